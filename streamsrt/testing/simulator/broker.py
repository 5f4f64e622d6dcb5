"""The broker of a simulated cluster: a host that runs the bundled broker, from frames to files.

The client never imports the broker: it is found by its name, like an application.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from streamsrt.testing.simulator.hosts import Host
from streamsrt.testing.simulator.loop import VirtualLoop
from streamsrt.testing.simulator.net import SimulatedNet

BROKER = "coordinator.server.embedded:EmbeddedBroker"
HOST_NAME, PORT = "broker", 9092

QUICK_GROUPS = {
    "group.streams.initial.rebalance.delay.ms": "200",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "5000",
    "group.streams.assignment.interval.ms": "100",
    "group.streams.acceptable.recovery.lag": "5",
    "group.streams.min.task.offset.interval.ms": "1000",
    "group.streams.task.offset.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "log.cleaner.enable": "false",
}
"""A group that notices in seconds what takes others a minute: virtual time costs work too."""


class GroupView(Protocol):
    """See :class:`coordinator.server.embedded.GroupView`."""

    @property
    def state(self) -> str: ...
    @property
    def topology_epoch(self) -> int: ...
    @property
    def epochs(self) -> Mapping[str, int]: ...
    @property
    def owners(self) -> Mapping[tuple[str, int], tuple[str, ...]]: ...


class Stored(Protocol):
    """See :class:`coordinator.server.embedded.Stored`."""

    batches: bytes
    start: int
    end: int
    stable_end: int
    aborted: tuple[tuple[int, int], ...]


class BrokerLife(Protocol):
    """The interface of a broker to this package, besides Kafka's protocol on its address."""

    async def start(self) -> None: ...
    def abandon(self) -> None: ...
    def create_topic(self, name: str, partitions: int) -> None: ...
    def grow_topic(self, name: str, partitions: int) -> None: ...
    def append(self, topic: str, partition: int, batch: bytes) -> None: ...
    def topics(self) -> dict[str, int]: ...
    def ends(self, topic: str) -> list[tuple[int, int]]: ...
    def read(self, topic: str, partition: int) -> Stored: ...
    def group(self, group_id: str) -> GroupView | None: ...
    def leader_at_work(self, group_id: str) -> str: ...
    def committed(self, group_id: str) -> dict[tuple[str, int], int]: ...


class SimulatedBroker:
    """The host that the broker runs on; it can be killed and restarted. Its files survive."""

    def __init__(
        self,
        loop: VirtualLoop,
        net: SimulatedNet,
        seed: int,
        configs: Mapping[str, str],
        now_ms: Callable[[], int],
        note: Callable[[str, str], None],
    ) -> None:
        module, _, name = BROKER.partition(":")
        self._make: Any = getattr(importlib.import_module(module), name)
        self._loop = loop
        self._net = net
        self._chance = random.Random(f"{seed}/broker")
        self._configs = [f"{key}={value}" for key, value in {**QUICK_GROUPS, **configs}.items()]
        self._now_ms = now_ms
        self._note = note
        self._files = tempfile.TemporaryDirectory(dir=_memory(), prefix="streamsrt-simulator-")
        self._past: list[Host] = []
        self.host: Host | None = None
        self.life: BrokerLife | None = None
        """None: it is down."""
        self._starting: asyncio.Task[None] | None = None

    @property
    def directory(self) -> Path:
        """The directory of its files."""
        return Path(self._files.name) / "data"

    def start(self) -> None:
        """Starts it with the existing files. Does nothing if it is running."""
        if self.host is not None:
            return
        self._note(HOST_NAME, "starts")
        host = self.host = Host(HOST_NAME, self._chance)
        host.context.copy().run(self._begin)

    def _begin(self) -> None:
        life: BrokerLife = self._make(
            self.directory,
            self._configs,
            now_ms=self._now_ms,
            random_bytes=self._chance.randbytes,
            host=HOST_NAME,
            port=PORT,
        )
        self.life = life
        self._starting = self._loop.create_task(life.start())

    def kill(self) -> None:
        """Ends it like ``kill -9``: its files stay as they are."""
        host, life, self.host, self.life = self.host, self.life, None, None
        if host is None or life is None:
            return
        self._note(HOST_NAME, "is killed")
        host.kill()
        self._net.host_died(host)
        life.abandon()
        self._past.append(host)

    @property
    def is_up(self) -> bool:
        """Whether it accepts requests."""
        return self.life is not None and self._starting is not None and self._starting.done()

    def failure(self) -> BaseException | None:
        """Why it does not start."""
        starting = self._starting
        if starting is None or not starting.done() or starting.cancelled():
            return None
        return starting.exception()

    def append(self, topic: str, partition: int, batch: bytes) -> None:
        """Appends a batch, like a producer."""
        assert self.life is not None
        assert self.host is not None
        self.host.context.copy().run(self.life.append, topic, partition, batch)

    def clear_away(self) -> None:
        """Frees resources when the simulation is over."""
        self.kill()
        for host in self._past:
            host.tasks.clear()
        self._files.cleanup()


def _memory() -> str | None:
    """Returns a directory in memory, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
