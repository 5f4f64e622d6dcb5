"""Runs a topology in a test, record by record, without a broker (Kafka Streams' ``TopologyTestDriver``).

1. Every subtopology runs as one task for each partition. Repartition topics, and topics that the topology both writes
   and reads, are processed until nothing is left. The waiting record with the lowest timestamp comes next.
2. After each record the tasks commit: caches are flushed, stores written. With ``commit="manual"`` only :meth:`commit`
   does.
3. The wall clock advances only with :meth:`advance_wall_clock_time`.
4. Stores are in memory. Nothing is read from disk or network, so tests are repeatable.
5. :meth:`restart` starts again with what a cluster would have kept: topics, changelogs and committed offsets.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

from streamsrt.config import StreamsConfig
from streamsrt.errors import TopologyMismatchError, UserError
from streamsrt.operators.engine.handlers import handler_of
from streamsrt.runtime.metrics import Metric, MetricList
from streamsrt.runtime.task_metrics import user_metrics
from streamsrt.runtime.topology_version import misread_stores
from streamsrt.sensors import Rates
from streamsrt.state.access import KeyValueAccess, SessionAccess, VersionedAccess, WindowAccess
from streamsrt.state.kinds import Cache, LaidOut, lay_out, make_store, store_access
from streamsrt.tasks.derived_partitions import DerivedPartitions
from streamsrt.tasks.global_state import GlobalState
from streamsrt.tasks.task import CommitState, Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.testing.driver.produced_records import (
    ProducedRecord,
    ProducedRecords,
    Refuse,
    columns_of,
    partition_for,
    produced_record,
)
from streamsrt.testing.driver.topics import TestInputTopic, TestOutputTopic, TestRecord, to_whole_ms
from streamsrt.wire.records import Headers, RecordColumns
from topology.graph.nodes import StoreSpec, Subtopology, internal_topic_names
from topology.graph.outline import outline
from topology.graph.store_kinds import RowsOfKey, rows_of
from topology.graph.topology import Topology
from topology.spec.codecs import ProgramSerde
from topology.spec.serdes import Serde
from topology.spec.timestamps import is_whole_ms

__all__ = ["ProducedRecord", "TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver", "partition_for"]

K = TypeVar("K")
V = TypeVar("V")
Access = TypeVar("Access", KeyValueAccess, WindowAccess, SessionAccess, VersionedAccess)

TopicPartition: TypeAlias = tuple[str, int]

GETTERS = {
    RowsOfKey.ONE: "get_key_value_store",
    RowsOfKey.VERSIONS: "get_versioned_key_value_store",
    RowsOfKey.WINDOWS: "get_window_store",
    RowsOfKey.SESSIONS: "get_session_store",
}
"""By what a store has of a key, the method that returns such a store."""

_DEFAULT_CONFIG: dict[str, Any] = {"application.id": "topology-test-driver"}


class _Route(NamedTuple):
    """Where the records of a partition go: its log, those that the application sends also to the ``queue`` of its topic, and
    the tasks that read it, with their numbers. ``is_global``: a global store reads it."""

    log: list[ProducedRecord]
    queue: deque[ProducedRecord]
    readers: list[tuple[int, Task]]
    is_global: bool


class TopologyTestDriver:
    """Runs ``topology``. ``config``: as for ``KafkaStreams``; ``application.id`` may be left out.

    ``initial_wall_clock_ms``: the wall clock at the start. ``generate`` False: every operation runs on processor nodes.
    ``refuse(topic, key, value)`` returns an exception for a record that the cluster should refuse; the production
    handler gets it. ``partitions``: the partition count of every topic, or a mapping for the topics with more than one;
    the counts of internal topics follow from it. Raises UserError for a topology or configuration that can't run,
    RecordError if a record fails.
    """

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, Any] | StreamsConfig | None = None,
        *,
        initial_wall_clock_ms: int = 0,
        commit: Literal["each record", "manual"] = "each record",
        generate: bool = True,
        refuse: Refuse | None = None,
        partitions: int | Mapping[str, int] = 1,
    ) -> None:
        self._settings = None if isinstance(config, StreamsConfig) else config or {}
        if not isinstance(config, StreamsConfig):
            config = StreamsConfig.of({**_DEFAULT_CONFIG, **(config or {})})
        self.config = config
        topology = self._configured(topology)
        self._now_ms = self._began_ms = initial_wall_clock_ms
        self._commit_each = commit == "each record"
        self._topology = topology
        self._counts = DerivedPartitions(config.application_id, partitions)
        self._partitions_of = self._counts.of
        self._produced = ProducedRecords(refuse, self._partitions_of)
        self._followed = 0
        self._queues: dict[str, deque[ProducedRecord]] = {}
        self._logs: dict[TopicPartition, list[ProducedRecord]] = {}
        self._routes: dict[TopicPartition, _Route] = {}
        self._waiting: set[int] = set()
        """Numbers of tasks that may have records to process."""
        self._committed: dict[TopicPartition, CommitState] = {}
        """By input partition, the last commit that it was in."""
        found = self._counts.tasks(topology)
        self._task_config = replace(TaskConfig.of(config, max(1, len(found))), is_measured=False)
        if not generate or refuse is not None:
            self._task_config = replace(self._task_config, generate=False, gathers_output=refuse is None)
        self._globals = self._global_state(topology)
        self._tasks: list[Task] = []
        self._is_whole = True
        """Whether it has neither failed nor ended."""
        self._is_closed = False
        try:
            for each in found:
                self._tasks.append(self._task(*each))
            self._set_start_time()
        except BaseException:
            # Otherwise nobody would close the processors that have begun.
            self.close()
            raise

    def _configured(self, topology: Topology) -> Topology:
        if self._settings is not None:
            topology = topology.configured(self._settings)
        return topology.with_default_serdes(self.config.default_key_serde, self.config.default_value_serde)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _task(self, subtopology: Subtopology, partition: int) -> Task:
        return Task(
            subtopology,
            partition,
            application_id=self.config.application_id,
            stores={spec.name: _memory_store(spec) for spec in subtopology.stores},
            collector=self._produced,
            config=self._task_config,
            partitions_of_topic=self._partitions_of,
            now_ms=self._now_ms,
            global_stores=self._globals,
        )

    def _global_state(self, topology: Topology) -> GlobalState:
        """Returns the global stores. As in Kafka Streams' driver, records that can't be deserialized are skipped there."""
        handlers = replace(self._task_config.handlers, deserialization=handler_of("continue"))
        return GlobalState(
            topology.global_subtopologies,
            application_id=self.config.application_id,
            stores={spec.name: _memory_store(spec) for part in topology.global_subtopologies for spec in part.stores},
            config=replace(self._task_config, handlers=handlers),
            now_ms=self._now_ms,
        )

    # ------------------------------------------------------------------------------------------------- topics

    def create_input_topic(
        self,
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        start_timestamp: int = 0,
        auto_advance_ms: int = 0,
    ) -> TestInputTopic[K, V]:
        return TestInputTopic(self.pipe_raw, name, key_serde, value_serde, start_timestamp, auto_advance_ms)

    def create_output_topic(self, name: str, key_serde: Serde[K], value_serde: Serde[V]) -> TestOutputTopic[K, V]:
        return TestOutputTopic(self.output_queue(name), name, key_serde, value_serde)

    def output_queue(self, topic: str) -> deque[ProducedRecord]:
        """Returns the records sent to a topic and not read yet."""
        return self._queues.setdefault(topic, deque())

    @property
    def producer_history(self) -> tuple[ProducedRecord, ...]:
        """Everything sent, in order: outputs, repartition topics and changelogs."""
        return tuple(self._produced.all)

    def pipe_raw(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = (),
        *,
        partition: int | None = None,
    ) -> None:
        """Processes one record given as bytes. Raises UserError for a topic that the topology does not read."""
        count = self._partitions_of(topic)
        number = partition_for(key, count) if partition is None else partition
        if not 0 <= number < count:
            raise UserError(f"topic {topic!r} has {count} partitions here, so there is no partition {number}")
        if not is_whole_ms(timestamp):
            raise UserError(f"{topic}: the timestamp is {timestamp!r}; give a whole number of milliseconds since 1970")
        tp = (topic, number)
        route = self._routes.get(tp) or self._route(tp)
        if not (route.readers or route.is_global):
            read = {topic for task in self._tasks for topic, _ in task.source_partitions}
            known = ", ".join(sorted(read | self._globals.topics))
            raise UserError(f"the topology does not read the topic {topic!r}; it reads: {known}")
        record = produced_record((topic, number, key, value, timestamp, headers))
        try:
            self._deliver(record, route)
            route.log.append(record)
            self._work()
        except BaseException:
            self._is_whole = False
            raise

    def _deliver(self, record: ProducedRecord, route: _Route) -> None:
        topic, partition, key, value, timestamp, headers = record
        offset, each = len(route.log), [headers] if headers else None
        columns = RecordColumns([key], [value], [timestamp], offset, offset + 1, None, each, (timestamp, timestamp))
        for number, task in route.readers:
            task.add_batch(topic, partition, columns)
            self._waiting.add(number)
        if route.is_global:
            self._globals.apply(topic, partition, columns)
            self._globals.write()

    def _route(self, tp: TopicPartition) -> _Route:
        # No pattern matches the application's own topics.
        is_internal = tp[0] in internal_topic_names(self.config.application_id, self._topology.subtopologies)
        readers = [
            (number, task)
            for number, task in enumerate(self._tasks)
            if tp in task.source_partitions or (not is_internal and self._matches(task, *tp))
        ]
        log, is_global = self._logs.setdefault(tp, []), tp[0] in self._globals.topics
        route = self._routes[tp] = _Route(log, self.output_queue(tp[0]), readers, is_global)
        return route

    def _matches(self, task: Task, topic: str, partition: int) -> bool:
        for source in task.subtopology.sources:
            if source.pattern is not None and re.fullmatch(source.pattern, topic):
                task.add_source_topic(source.name, topic)
                return (topic, partition) in task.source_partitions
        return False

    def _work(self) -> None:
        if self._followed < len(self._produced.all):
            self._follow()
        tasks, waiting = self._tasks, self._waiting
        while waiting:
            number = min(waiting, key=self._head) if len(waiting) > 1 else next(iter(waiting))
            task = tasks[number]
            if task.buffered_records:
                task.process(1, self._now_ms)
                if self._commit_each or task.commit_requested:
                    self._commit_task(task)
            if not task.buffered_records:
                waiting.discard(number)
            self._follow()

    def _head(self, number: int) -> tuple[int, int]:
        """Orders tasks by their next records. Those without any come first: they wait for nothing."""
        head = self._tasks[number].head_timestamp
        return -1 if head is None else head, number

    def _follow(self) -> None:
        """Adds new records to the queues of their topics, and to the tasks that read them."""
        produced, routes = self._produced.all, self._routes
        while self._followed < len(produced):
            record = produced[self._followed]
            self._followed += 1
            tp = record[:2]
            route = routes.get(tp) or self._route(tp)
            route.queue.append(record)
            if route.readers or route.is_global:
                self._deliver(record, route)
            route.log.append(record)

    # ------------------------------------------------------------------------------------------------- time, commit

    def _set_start_time(self) -> None:
        """Tells the tasks the time at which they start: waiting times count from there."""
        for task in self._tasks:
            task.punctuate(self._now_ms)

    def advance_wall_clock_time(self, duration: timedelta | int) -> None:
        """Advances the wall clock (milliseconds or timedelta) and runs due punctuations."""
        self._now_ms += to_whole_ms(duration)
        self._globals.advance_time(self._now_ms)
        with self._noting_failure():
            for task in self._tasks:
                task.punctuate(self._now_ms)
                if self._commit_each:
                    self._commit_task(task)
            self._work()

    @property
    def now_ms(self) -> int:
        """The wall clock, in milliseconds."""
        return self._now_ms

    def commit(self) -> None:
        """Commits all tasks: caches are flushed, and the forwarded records are processed."""
        with self._noting_failure():
            for task in self._tasks:
                self._commit_task(task)
            self._work()

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._is_whole = False
            raise

    def _commit_task(self, task: Task) -> None:
        state = task.prepare_commit()
        for tp in state.ends:
            self._committed[tp] = state
        task.post_commit(None)

    def _committed_offset(self, tp: TopicPartition) -> tuple[int, str]:
        state = self._committed.get(tp)
        return (0, "") if state is None else state.offsets[tp]

    def restart(self, *, clean: bool = True, topology: Topology | None = None, check_state: bool = True) -> None:
        """Closes all tasks and starts again, with stores restored from their changelogs.

        ``clean`` False: as after a crash. Uncommitted records are processed again, and their results are sent again.
        ``topology``: another version of the application, which continues with the state of this one. Raises
        TopologyMismatchError if it would misread that state, and goes on with the former version. ``check_state`` False: as
        an instance that was started before this state was written.
        """
        following = self._topology if topology is None else self._configured(topology)
        if check_state:
            self._check_state(following)
        if clean:
            self.end()
            self.commit()
        self.close()
        self._is_whole, self._is_closed = True, False
        self._topology = following
        self._globals = self._global_state(self._topology)
        for tp, log in self._logs.items():
            if tp[0] in self._globals.topics and log:
                self._globals.apply(*tp, columns_of(log, 0))
        self._tasks = [self._task(*each) for each in self._counts.tasks(self._topology)]
        for task in self._tasks:
            for spec in task.subtopology.stores:
                self._restore(task, spec.name)
        self._routes.clear()
        self._waiting.clear()
        self._begin_where_committed()
        self._set_start_time()
        self._work()

    def _check_state(self, following: Topology) -> None:
        same = following is self._topology
        listed = "" if same else misread_stores(outline(self._topology), outline(following))
        if listed:
            raise TopologyMismatchError(
                f"The state of the driver would be misread by this version: {listed}. `streamsrt topology diff OLD NEW` "
                "shows all changes."
            )

    def _begin_where_committed(self) -> None:
        for tp, log in self._logs.items():
            position, metadata = self._committed_offset(tp)
            for number, task in self._route(tp).readers:
                task.start_at(*tp, position)
                task.restore_partition_time(*tp, metadata)
                if log[position:]:
                    task.add_batch(*tp, columns_of(log[position:], position))
                    self._waiting.add(number)

    def _restore(self, task: Task, store: str) -> None:
        target = task.restore_target(store)
        if target is None:
            return
        records = [record for record in self._produced.all if (record.topic, record.partition) == target]
        if not task.writes_changelog(store):
            records = self._logs.get(target, [])[: self._committed_offset(target)[0]]
        if records:
            task.restore(store, columns_of(records, 0))

    # ------------------------------------------------------------------------------------------------- state

    def _store(self, name: str, partition: int = 0) -> tuple[StoreSpec, Cache, ProgramSerde]:
        if name in self._globals.specs:
            return self._globals.store(name)
        for task in self._tasks:
            for spec in task.subtopology.stores:
                if spec.name == name and task.task_id.partition == partition:
                    return spec, task.caches[name], task.key_serde(name)
        known = ", ".join(self.store_names()) or "none"
        raise UserError(f"the topology has no store {name!r} of partition {partition}; its stores: {known}")

    def store_names(self) -> tuple[str, ...]:
        """All stores, global ones too."""
        stores = (spec.name for task in self._tasks for spec in task.subtopology.stores)
        return tuple(dict.fromkeys((*self._globals.specs, *stores)))

    def store_kind(self, name: str) -> str:
        """``key_value``, ``window``, ``session`` or ``versioned``."""
        return self._store(name)[0].kind

    def get_key_value_store(self, name: str, *, timestamped: bool = False, partition: int = 0) -> KeyValueAccess:
        """A key-value store. ``timestamped``: values are ValueAndTimestamp. Writes to it are not logged."""
        return self._access(name, KeyValueAccess, timestamped=timestamped, partition=partition)

    def get_timestamped_key_value_store(self, name: str, *, partition: int = 0) -> KeyValueAccess:
        return self.get_key_value_store(name, timestamped=True, partition=partition)

    def get_window_store(self, name: str, *, timestamped: bool = False, partition: int = 0) -> WindowAccess:
        """A window store. ``timestamped``: values are ValueAndTimestamp."""
        return self._access(name, WindowAccess, timestamped=timestamped, partition=partition)

    def get_timestamped_window_store(self, name: str, *, partition: int = 0) -> WindowAccess:
        return self.get_window_store(name, timestamped=True, partition=partition)

    def get_session_store(self, name: str, *, partition: int = 0) -> SessionAccess:
        """A session store."""
        return self._access(name, SessionAccess, partition=partition)

    def get_versioned_key_value_store(self, name: str, *, partition: int = 0) -> VersionedAccess:
        """A versioned store."""
        return self._access(name, VersionedAccess, partition=partition)

    def _access(self, name: str, wanted: type[Access], *, timestamped: bool = False, partition: int = 0) -> Access:
        spec, cache, serde = self._store(name, partition)
        access = store_access(spec, cache, serde, self._outside, None, timestamped=timestamped)
        if not isinstance(access, wanted):
            raise UserError(f"store {name!r} is a {spec.kind} store: use {GETTERS[rows_of(spec)]}")
        return access

    def _outside(self) -> tuple[int, Headers, int]:
        return self._now_ms, (), 0

    def counters(self) -> dict[str, int]:
        """The sums of the tasks' counters: processed, dropped, ..."""
        total: dict[str, int] = self._globals.counters()
        for task in self._tasks:
            for name, count in task.counters().items():
                total[name] = total.get(name, 0) + count
        return total

    def metrics(self) -> list[Metric]:
        """The metrics of the processors. Rates are over at least a second of the wall clock."""
        passed_ns = max(1_000, self._now_ms - self._began_ms) * 1_000_000
        board = MetricList(Rates(0), passed_ns, self._now_ms)
        for task in self._tasks:
            user_metrics(board, {"task-id": str(task.task_id)}, task.user_metrics)
        for name, metrics in self._globals.user_metrics().items():
            user_metrics(board, {"task-id": name}, metrics)
        return board.found

    def end(self) -> None:
        """Ends as a process that is stopped: what processors send then is committed. After a failure it does nothing."""
        if not self._is_whole:
            return
        self._is_whole = False
        for task in self._tasks:
            task.end()
            self._commit_task(task)
        self._follow()

    def close(self) -> None:
        """Closes the user's processors. Does nothing if they are closed already."""
        if self._is_closed:
            return
        self._is_closed = True
        with ExitStack() as stack:
            stack.callback(self._globals.close)
            for task in reversed(self._tasks):
                stack.callback(task.close)


def _memory_store(spec: StoreSpec) -> LaidOut:
    return lay_out(spec, make_store(spec))
