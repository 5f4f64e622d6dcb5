"""The tasks of one member over a cluster in this process: the real stores, tasks, commits and loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streamsrt.client.blocking import THREADS
from streamsrt.membership.values import AssignmentChanged, Tasks
from streamsrt.operators.engine.handlers import ExceptionHandlers
from streamsrt.queries.gate import QueryGate
from streamsrt.queries.local import LocalQueries
from streamsrt.queries.routing import Routing, StoreDirectory
from streamsrt.queries.values import HostInfo
from streamsrt.runtime.assembly import changelogs_of
from streamsrt.runtime.commit import Committer
from streamsrt.runtime.loop.thread import StreamThread
from streamsrt.runtime.loop.values import LoopSettings
from streamsrt.runtime.restore_thread import RestoreThread
from streamsrt.runtime.values import State
from streamsrt.state.directory import StateDirectory
from streamsrt.tasks.global_state import GlobalConsumer
from streamsrt.tasks.manager.task_manager import TaskManager
from streamsrt.tasks.manager.task_settings import TaskSettings
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.tasks.restore.listeners import NO_RESTORE_LISTENER, RestoreListener
from streamsrt.tasks.task_config import TaskConfig
from tests.streamsrt.in_process_network import InProcessMember, InProcessNetwork
from topology import StreamsBuilder, serdes
from topology.graph.nodes import Subtopology
from topology.graph.topology import Topology

APPLICATION_ID = "app"
CHANGELOG = "app-counts-changelog"


def counting() -> Topology:
    """Counts the records of ``in`` by key, into ``out``."""
    builder = StreamsBuilder()
    (
        builder.stream("in", key=serdes.string, value=serdes.integer)
        .group_by_key()
        .count(store="counts")
        .to_stream()
        .to("out", key=serdes.string, value=serdes.long)
    )
    return builder.build()


def two_sources() -> Topology:
    """Passes on what comes from two topics."""
    builder = StreamsBuilder()
    builder.stream(["wide", "narrow"], key=serdes.string, value=serdes.string).to("out")
    return builder.build()


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


class SteadyWork:
    """Waits with threads, and computes as long as it is told: a commit takes ``commit_ms``."""

    flag, condition, result, pause = THREADS.flag, THREADS.condition, THREADS.result, THREADS.pause

    def __init__(self) -> None:
        self.commit_ms = 0
        self._worked_ms = 0

    def worked_ns(self) -> int:
        self._worked_ms += self.commit_ms
        return self._worked_ms * 1_000_000


class Rig:
    """One member. ``clock_ms`` stands still until the test moves it."""

    def __init__(
        self,
        folder: Path,
        topology: Topology | None = None,
        network: InProcessNetwork | None = None,
        *,
        partitions: int = 2,
        cache_max_bytes: int = 1 << 20,
        input_buffer_bytes: int = 1 << 20,
        all_input_bytes: int = 64 << 20,
        task_timeout_ms: int = 300_000,
        may_be_beside_java: bool = False,
        commit_interval_ms: int = 1_000_000,
        handlers: ExceptionHandlers | None = None,
        max_task_idle_ms: int = 0,
        own_host: HostInfo | None = None,
        subtopology: int = 0,
        restores_apart: bool = False,
        patience_s: float = 60.0,
        on_restore: RestoreListener = NO_RESTORE_LISTENER,
        global_config: TaskConfig | None = None,
    ) -> None:
        self.topology = (topology or counting()).with_default_serdes().configured({})
        self.network = network or InProcessNetwork({"in": partitions, "out": partitions, CHANGELOG: partitions})
        self.subtopology: Subtopology = self.topology.subtopologies[subtopology]
        self.directory = StateDirectory(folder, APPLICATION_ID)
        self.collector = RecordCollector(self.network.producer.send, self._count)
        self.gate = QueryGate()
        self.clock_ms, self.clock_ahead_ms = 1_000_000, 0
        self.work = SteadyWork()
        self.states: list[State] = []
        self._global_config = global_config or TaskConfig()
        self.global_consumer = self._global_consumer(cache_max_bytes)
        self.manager = TaskManager(
            TaskSettings(
                application_id=APPLICATION_ID,
                subtopologies={each.id: each for each in self.topology.subtopologies},
                task_config=TaskConfig(
                    cache_max_bytes=cache_max_bytes,
                    handlers=handlers or ExceptionHandlers(),
                    max_task_idle_ms=max_task_idle_ms,
                    clock=self._global_config.clock,
                ),
                cache_max_bytes=cache_max_bytes,
                auto_offset_reset="earliest",
                input_buffer_bytes=input_buffer_bytes,
                all_input_bytes=all_input_bytes,
                partitions_of_topic=self._count,
                task_timeout_ms=task_timeout_ms,
                may_be_beside_java=may_be_beside_java,
                state_cleanup_delay_ms=60_000,
            ),
            self.network,
            self.directory,
            self.collector,
            between_batches=self.gate.serve,
            restoring=self._restore_thread(patience_s) if restores_apart else None,
            on_restore=on_restore,
            global_consumer=self.global_consumer,
        )
        self.routing = Routing(StoreDirectory(self.topology, APPLICATION_ID), self._count, own_host)
        self.queries = LocalQueries(
            self.manager,
            self.gate,
            self.routing,
            lambda: self.manager.global_consumer,
            restoring=self.manager.restoring,
        )
        self.member = InProcessMember()
        self.committer = Committer(APPLICATION_ID, self.network, self.collector, idle=self.gate.idle)
        self.thread = StreamThread(
            LoopSettings(commit_interval_ms=commit_interval_ms, poll_ms=10, linger_ms=0, purge_interval_ms=1_000_000),
            self.network,
            self.member,
            self.manager,
            self.committer,
            flush_outputs=self.collector.flush,
            now_ms=lambda: self.clock_ms,
            clock_ahead_ms=lambda: self.clock_ahead_ms,
            on_state=self.states.append,
            gate=self.gate,
            routing=self.routing,
            blocking=self.work,
        )

    def _restore_thread(self, patience_s: float) -> RestoreThread:
        restorer = self.network.restorer
        return RestoreThread(restorer, restorer.arrived, self.network.wake, patience_s=patience_s)

    def _global_consumer(self, cache_max_bytes: int) -> GlobalConsumer | None:
        parts = self.topology.global_subtopologies
        if not parts:
            return None
        return GlobalConsumer(
            parts,
            self.network,
            self.directory,
            application_id=APPLICATION_ID,
            config=self._global_config,
            cache_max_bytes=cache_max_bytes,
            changelogs=changelogs_of(self.topology, APPLICATION_ID),
        )

    def _count(self, topic: str) -> int:
        return self.network.counts()[topic]

    def tasks(self, *partitions: int) -> frozenset[tuple[str, int]]:
        return frozenset((self.subtopology.id, partition) for partition in partitions)

    def give(self, tasks: Tasks) -> None:
        """The coordinator assigns these tasks."""
        self.member.waiting.append(AssignmentChanged(tasks, self.member.member_epoch))

    def iterate(self, count: int = 1) -> None:
        """The loop goes round so many times."""
        for _ in range(count):
            self.thread._iterate()

    def commit(self) -> None:
        self.committer.commit(self.manager.running(), "member", 1)

    def start(self, wanted: Tasks) -> Tasks:
        """Assigns and starts tasks, without the loop."""
        opened = self.manager.assign(wanted, lambda leaving: self.committer.commit(leaving, "member", 1))
        self.manager.start_tasks(self.clock_ms, "member", 1)
        return opened

    def move(self, rounds: int = 5) -> int:
        """Brings what the fetchers have, and processes it, without the loop."""
        done = 0
        for _ in range(rounds):
            self.restore()
            for fetched in self.network.fetcher.poll():
                self.manager.add_input(fetched, self.clock_ms)
            done += self.manager.process(1_000, self.clock_ms)
        return done

    def restore(self) -> None:
        """Brings what the restore fetcher has, and applies it."""
        for report in self.manager.restoring.reports():
            self.manager.restored(report)

    def phases(self) -> dict[int, str]:
        return {owned.key[1]: f"{owned.role} {owned.phase.value}" for owned in self.manager}

    def counts(self) -> dict[str, int]:
        """The last count of each key in ``out``."""
        return {(key or b"").decode(): int.from_bytes(value or b"", "big") for key, value in self.network.read("out")}

    def close(self) -> None:
        self.manager.close_all()
        self.manager.end()
        self.directory.close()


MakeRig = Callable[..., Rig]
