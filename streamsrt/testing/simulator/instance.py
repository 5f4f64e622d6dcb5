"""An instance of the application on a simulated host: the real processing thread, tasks, membership and client.

They run over a simulated network, disk and clock.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from streamsrt.client.network import NetworkThread
from streamsrt.client.transactions import ANSWER_SLACK_S
from streamsrt.client.values import ClientConfig, ClusterInfo, TopicPartition
from streamsrt.config import StreamsConfig
from streamsrt.errors import StreamsError
from streamsrt.queries.routing import StoreDirectory
from streamsrt.runtime.assembly import Assembled, Surroundings, assemble, client_config
from streamsrt.runtime.group_protocol import GroupProtocol
from streamsrt.runtime.lifecycle import Response
from streamsrt.runtime.loop.thread import StreamThread
from streamsrt.runtime.loop.values import Action, Assign, CommitAll, CommitBeforeClose
from streamsrt.runtime.values import State
from streamsrt.tasks.input.offset_metadata import refuse_half_written_state
from streamsrt.tasks.manager.task_manager import TaskManager
from streamsrt.testing.simulator.disk import Disk, SimulatedDirectory
from streamsrt.testing.simulator.hosts import GreenletBlocking, Host, HostKilled, HostThread
from streamsrt.testing.simulator.loop import VirtualLoop
from topology.graph.topology import Topology

T = TypeVar("T")


class World(Protocol):
    """The part of the simulation that an instance uses."""

    loop: VirtualLoop

    def now_ms(self) -> int: ...
    def note(self, host: str, text: str) -> None: ...
    def iterated(self, instance: Instance) -> None: ...
    def asked(self, instance: Instance) -> None: ...
    def ended(self, instance: Instance, error: StreamsError | None) -> None: ...


class SimulatedNetwork(NetworkThread):
    """The network of an instance, on the loop shared by all hosts instead of its own thread."""

    def __init__(self, config: ClientConfig, blocking: GreenletBlocking, loop: VirtualLoop, host: Host) -> None:
        super().__init__(config, blocking)
        self._loop = loop
        self._host = host

    def start(self, timeout_s: float = 30.0) -> ClusterInfo:
        self._started = True
        return self._call(self._open(timeout_s), timeout_s + ANSWER_SLACK_S)

    def stop(self, timeout_s: float = 10.0) -> None:
        if self._started:
            self._started = False
            self._call(self._close(), timeout_s)

    def _ask(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        if self._host.is_dead:
            coroutine.close()
            raise HostKilled
        return super()._ask(coroutine)

    def _running_tasks(self) -> set[asyncio.Task[Any] | None]:
        return {*self._host.tasks}


class _Life:
    """One process: from its start to its end."""

    def __init__(self, host: Host, directory: SimulatedDirectory) -> None:
        self.host = host
        self.directory = directory
        self.assembled: Assembled | None = None
        self.thread: HostThread | None = None
        self.stopping = False


class Instance:
    """A host with a disk, on which the application is started, ends, and is restarted."""

    def __init__(self, world: World, name: str, seed: str) -> None:
        self.name = name
        self.disk = Disk(random.Random(f"{seed}/disk"))
        self.starts = 0
        self.epoch = -1
        """The topology epoch of the process that started last."""
        self.protocol = ""
        """The protocol by which it joins its group."""
        self._world = world
        self._seed = seed
        self._life: _Life | None = None
        self._past: list[_Life] = []

    # ---------------------------------------------------------------------------------------------------------- state

    @property
    def is_alive(self) -> bool:
        return self._life is not None

    @property
    def host(self) -> Host | None:
        return None if self._life is None else self._life.host

    @property
    def manager(self) -> TaskManager | None:
        """The tasks of the running process, once it has started to join the group."""
        return None if self._life is None or self._life.assembled is None else self._life.assembled.manager

    @property
    def member_id(self) -> str:
        """The member id of the running process; empty before it joins."""
        if self._life is None or self._life.assembled is None:
            return ""
        return self._life.assembled.loop.member_id

    @property
    def committed_offsets(self) -> Mapping[TopicPartition, int]:
        """The input offsets that the running process takes as committed."""
        if self._life is None or self._life.assembled is None:
            return {}
        return self._life.assembled.loop.committed_offsets

    @property
    def is_committing(self) -> bool:
        """Whether its processing thread waits in a commit."""
        return isinstance(self._action, CommitAll | CommitBeforeClose | Assign)

    @property
    def is_giving_up(self) -> bool:
        """Whether its processing thread follows a new assignment: it waits then only to commit what it is to give up."""
        return isinstance(self._action, Assign)

    @property
    def _action(self) -> Action | None:
        activity = None if self._life is None or self._life.assembled is None else self._life.assembled.loop.activity
        return None if activity is None else activity.action

    # ----------------------------------------------------------------------------------------------------- life, death

    def start(self, topology: Topology, epoch: int, config: StreamsConfig) -> None:
        """Starts the application with this version of the topology. Does nothing if it is running."""
        if self._life is not None:
            return
        self.starts += 1
        self.epoch, self.protocol = epoch, config.group_protocol
        host = Host(self.name, random.Random(f"{self._seed}/{self.starts}"))
        life = self._life = _Life(host, SimulatedDirectory(self.disk))
        self._world.note(self.name, f"starts, topology epoch {epoch}")
        self._world.note(self.name, f"joins by {config.group_protocol}")
        if config.group_instance_id is not None:
            config = StreamsConfig.of(config, group_instance_id=f"{config.group_instance_id}-{self.name}")
        blocking = GreenletBlocking(random.Random(f"{self._seed}/{self.starts}/computing"))
        work = self._work(life, blocking, replace(topology, epoch=epoch), config)
        life.thread = blocking.thread = HostThread(host, self._world.loop, work)
        life.thread.on_ask = partial(self._world.asked, self)

    def kill(self) -> Host | None:
        """Ends it like ``kill -9``; returns the host that it ran on."""
        life, self._life = self._life, None
        if life is None:
            return None
        life.host.kill()
        life.directory.detach()
        self.disk.crash()
        self._past.append(life)
        return life.host

    def stop(self) -> None:
        """Requests that it commits, leaves the group and ends."""
        if self._life is not None:
            self._life.stopping = True
            if self._life.assembled is not None:
                loop = self._life.assembled.loop
                self._life.host.context.copy().run(loop.stop)

    def stall(self, seconds: float) -> None:
        """Stalls its processing thread, starting at its next wait."""
        if self._life is not None and self._life.thread is not None:
            self._life.thread.stalled_until_s = self._world.loop.time() + seconds

    def once_it_asks(self, times: int, act: Callable[[], object]) -> None:
        """See :meth:`~streamsrt.testing.simulator.hosts.HostThread.once_it_asks`. Does nothing if it is down."""
        if self._life is not None and self._life.thread is not None:
            self._life.thread.once_it_asks(times, act)

    def clear_away(self) -> None:
        """Frees the resources of its threads when the simulation is over."""
        self.kill()
        for life in self._past:
            if life.thread is not None:
                life.thread.unwind()
            life.host.tasks.clear()
        self._past.clear()

    # ---------------------------------------------------------------------------------------------------------- process

    def _work(
        self, life: _Life, blocking: GreenletBlocking, topology: Topology, config: StreamsConfig
    ) -> Callable[[], None]:
        def work() -> None:
            error: StreamsError | None = None
            try:
                self._run(life, blocking, topology, config)
            except StreamsError as caught:
                error = caught
            if not life.host.is_dead:
                life.directory.close()
                life.host.kill()
                self._life = None
                self._past.append(life)
                self._world.ended(self, error)

        return work

    def _run(self, life: _Life, blocking: GreenletBlocking, topology: Topology, config: StreamsConfig) -> None:
        world = self._world
        network = SimulatedNetwork(
            client_config(config, str(life.directory.process_id)), blocking, world.loop, life.host
        )
        network.start(config.default_api_timeout_ms / 1000)
        try:
            config = GroupProtocol().settle(config, network.admin)
            refuse_half_written_state(config.application_id, network.admin.committed(config.application_id))
            life.assembled = assemble(
                config,
                topology,
                StoreDirectory(topology, config.application_id),
                network,
                life.directory,
                on_state=self._entered,
                on_failure=lambda error: Response.SHUTDOWN_CLIENT,
                surroundings=Surroundings(
                    world.now_ms, lambda: uuid.UUID(int=life.host.chance.getrandbits(128), version=4)
                ),
            )
            if life.stopping:
                life.assembled.loop.stop()
            life.assembled.loop.run(self._turned)
        finally:
            network.stop()

    def _entered(self, state: State) -> None:
        """Logs nothing: state changes are visible in the log as tasks that open and close."""

    def _turned(self, _loop: StreamThread) -> bool:
        self._world.iterated(self)
        return False
