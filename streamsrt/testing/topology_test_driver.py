"""Runs a topology in a test, record by record, without a broker (Kafka Streams' ``TopologyTestDriver``).

1. Every subtopology runs as one task, for partition 0. Repartition topics, and topics that the topology both writes and
   reads, are followed until nothing is left to do.
2. After each record the tasks commit: caches are flushed, stores written. With ``commit="manual"`` only :meth:`commit` does.
3. The wall clock stands still but for :meth:`advance_wall_clock_time`.
4. Stores are in memory. Nothing is read from disk or network, so tests are repeatable.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import repeat
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

from streamsrt.config import StreamsConfig
from streamsrt.errors import UserError
from streamsrt.operators.environment import RefusedRecordError
from streamsrt.operators.store_access import KeyValueAccess, SessionAccess, VersionedAccess, WindowAccess, store_access
from streamsrt.state.kinds import Cache, lay_out
from streamsrt.state.memory import MemoryStore
from streamsrt.tasks.record_collector import Keys
from streamsrt.tasks.task import Task, TaskConfig
from streamsrt.wire.records import Headers, RecordColumns
from topology.nodes import StoreSpec, Subtopology, Topology
from topology.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")
Access = TypeVar("Access", KeyValueAccess, WindowAccess, SessionAccess, VersionedAccess)

Refuse = Callable[[str, bytes | None, bytes | None], Exception | None]
"""``(topic, key, value)`` -> why the cluster does not take a record; None: it takes it."""

_GETTERS = {"versioned": "versioned_key_value"}
_DEFAULT_CONFIG: dict[str, Any] = {"application.id": "topology-test-driver"}


class ProducedRecord(NamedTuple):
    """What was sent to a topic, as bytes."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class TestRecord(NamedTuple, Generic[K, V]):
    """A record of an input or output topic. ``timestamp``: epoch milliseconds."""

    key: K | None
    value: V | None
    timestamp: int
    headers: Headers = ()


TestRecord.__test__ = False  # type: ignore[attr-defined]  # the name is Kafka Streams'; it is no test class


class _Capture:
    """The collector of the driver: keeps records as they come."""

    def __init__(self, refuse: Refuse | None) -> None:
        self.produced: list[ProducedRecord] = []
        self._refuse = refuse

    def add(
        self,
        topic: str,
        keys: Keys,
        values: Keys,
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
        partition: int | Sequence[int] | None = None,
        partition_keys: Keys | None = None,
    ) -> None:
        each = repeat(()) if headers is None else headers
        for key, value, timestamp, header in zip(keys, values, timestamps, each, strict=False):
            reason = None if self._refuse is None else self._refuse(topic, key, value)
            if reason is not None:
                raise RefusedRecordError(reason)
            self.produced.append(ProducedRecord(topic, 0, key, value, timestamp, tuple(header)))

    def flush(self) -> None:
        """Nothing is held back."""


class TestInputTopic(Generic[K, V]):
    """Where a test writes. Timestamps start at ``start_timestamp`` and go on by ``auto_advance_ms``."""

    __test__ = False

    def __init__(
        self,
        driver: TopologyTestDriver,
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        start_timestamp: int = 0,
        auto_advance_ms: int = 0,
    ) -> None:
        self.name = name
        self._driver = driver
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._timestamp = start_timestamp
        self._auto_advance_ms = auto_advance_ms

    def pipe_input(self, key: K | None, value: V | None, timestamp: int | None = None, headers: Headers = ()) -> None:
        """Processes one record, with all that follows from it. ``timestamp`` None: the topic's own clock."""
        if timestamp is None:
            timestamp = self._timestamp
            self._timestamp += self._auto_advance_ms
        self._driver.pipe_raw(
            self.name,
            None if key is None else self._key_serde.serialize(key),
            None if value is None else self._value_serde.serialize(value),
            timestamp,
            headers,
        )

    def pipe_key_values(self, pairs: Iterable[tuple[K | None, V | None]]) -> None:
        """Processes several records one after the other."""
        for key, value in pairs:
            self.pipe_input(key, value)


class TestOutputTopic(Generic[K, V]):
    """What the topology wrote to a topic, each record read once."""

    __test__ = False

    def __init__(self, driver: TopologyTestDriver, name: str, key_serde: Serde[K], value_serde: Serde[V]) -> None:
        self.name = name
        self._queue = driver.output_queue(name)
        self._key_serde = key_serde
        self._value_serde = value_serde

    def is_empty(self) -> bool:
        return not self._queue

    def queue_size(self) -> int:
        return len(self._queue)

    def read_record(self) -> TestRecord[K, V]:
        """The next record. Raises UserError where there is none."""
        if not self._queue:
            raise UserError(f"topic {self.name!r} has no more records: check is_empty() first, or what was piped in")
        record = self._queue.popleft()
        return TestRecord(
            None if record.key is None else self._key_serde.deserialize(record.key),
            None if record.value is None else self._value_serde.deserialize(record.value),
            record.timestamp,
            record.headers,
        )

    def read_key_value(self) -> tuple[K | None, V | None]:
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> V | None:
        return self.read_record().value

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        return [self.read_record() for _ in range(len(self._queue))]

    def read_key_values_to_list(self) -> list[tuple[K | None, V | None]]:
        return [self.read_key_value() for _ in range(len(self._queue))]

    def read_values_to_list(self) -> list[V | None]:
        return [self.read_value() for _ in range(len(self._queue))]

    def read_key_values_to_map(self) -> dict[K | None, V | None]:
        """The last value of each key."""
        return dict(self.read_key_values_to_list())


class TopologyTestDriver:
    """Runs ``topology``. ``config``: as for ``KafkaStreams``; ``application.id`` may be left out.

    ``initial_wall_clock_ms``: the wall clock at the start. ``generate`` False: every operation runs on processor nodes.
    ``refuse(topic, key, value)`` returns an exception for a record that the cluster is not to take; the production handler
    gets it.
    Raises UserError for a topology or configuration that can't run, RecordError where a record fails.
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
    ) -> None:
        if not isinstance(config, StreamsConfig):
            config = StreamsConfig.of({**_DEFAULT_CONFIG, **(config or {})})
        self.config = config
        topology = topology.with_default_serdes(config.default_key_serde, config.default_value_serde)
        self._now_ms = initial_wall_clock_ms
        self._commit_each = commit == "each record"
        self._capture = _Capture(refuse)
        self._followed = 0
        self._queues: dict[str, deque[ProducedRecord]] = {}
        self._offsets: dict[str, int] = {}
        tasks = max(1, len(topology.subtopologies))
        self._task_config = TaskConfig.of(config, tasks)
        if not generate or refuse is not None:
            self._task_config = _without_generation(self._task_config)
        self._tasks = [self._task(subtopology) for subtopology in topology.subtopologies]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _task(self, subtopology: Subtopology) -> Task:
        return Task(
            subtopology,
            0,
            application_id=self.config.application_id,
            stores={spec.name: _memory_store(spec) for spec in subtopology.stores},
            collector=self._capture,
            config=self._task_config,
            partitions_of_topic=_one_partition,
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
        return TestInputTopic(self, name, key_serde, value_serde, start_timestamp, auto_advance_ms)

    def create_output_topic(self, name: str, key_serde: Serde[K], value_serde: Serde[V]) -> TestOutputTopic[K, V]:
        return TestOutputTopic(self, name, key_serde, value_serde)

    def output_queue(self, topic: str) -> deque[ProducedRecord]:
        """What was sent to a topic and is not read yet."""
        return self._queues.setdefault(topic, deque())

    @property
    def producer_history(self) -> tuple[ProducedRecord, ...]:
        """Everything that was sent, in order: outputs, repartition topics and changelogs."""
        return tuple(self._capture.produced)

    def pipe_raw(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> None:
        """Processes one record given as bytes. Raises UserError for a topic that the topology does not read."""
        if not self._enqueue(topic, key, value, timestamp, headers):
            known = ", ".join(sorted({t for task in self._tasks for t, _ in task.source_partitions}))
            raise UserError(f"the topology does not read the topic {topic!r}; it reads: {known}")
        self._work()

    def _enqueue(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> bool:
        offset = self._offsets.get(topic, 0)
        columns = RecordColumns([key], [value], [timestamp], offset, offset + 1, None, [headers] if headers else None)
        readers = [task for task in self._tasks if self._reads(task, topic)]
        for task in readers:
            task.add_batch(topic, 0, columns)
        self._offsets[topic] = offset + 1
        return bool(readers)

    def _reads(self, task: Task, topic: str) -> bool:
        if (topic, 0) in task.source_partitions:
            return True
        for source in task.subtopology.sources:
            if source.pattern is not None and re.fullmatch(source.pattern, topic):
                task.add_source_topic(source.name, topic)
                return True
        return False

    def _work(self) -> None:
        self._follow()
        while True:
            waiting = [
                (head, index) for index, task in enumerate(self._tasks) if (head := task.head_timestamp) is not None
            ]
            if not waiting:
                return
            task = self._tasks[min(waiting)[1]]
            task.process(1, self._now_ms)
            if self._commit_each or task.commit_requested:
                self._commit_task(task)
            self._follow()

    def _follow(self) -> None:
        """Gives new records to the queues of their topics, and to the tasks that read them."""
        produced = self._capture.produced
        while self._followed < len(produced):
            record = produced[self._followed]
            self._followed += 1
            self.output_queue(record.topic).append(record)
            self._enqueue(record.topic, record.key, record.value, record.timestamp, record.headers)

    # ------------------------------------------------------------------------------------------------- time, commit

    def advance_wall_clock_time(self, duration: timedelta | int) -> None:
        """Moves the wall clock (milliseconds or timedelta), and runs the punctuations that are due then."""
        self._now_ms += round(duration / timedelta(milliseconds=1)) if isinstance(duration, timedelta) else duration
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
        """Commits all tasks: caches are flushed, and what they forward is processed."""
        for task in self._tasks:
            self._commit_task(task)
        self._work()

    def _commit_task(self, task: Task) -> None:
        task.prepare_commit()
        task.post_commit(None)

    # ------------------------------------------------------------------------------------------------- state

    def _store(self, name: str) -> tuple[StoreSpec, Cache, Serde[Any]]:
        for task in self._tasks:
            for spec in task.subtopology.stores:
                if spec.name == name:
                    return spec, task.caches[name], task.key_serde(name)
        known = ", ".join(spec.name for task in self._tasks for spec in task.subtopology.stores) or "none"
        raise UserError(f"the topology has no store {name!r}; its stores: {known}")

    def store_names(self) -> tuple[str, ...]:
        return tuple(spec.name for task in self._tasks for spec in task.subtopology.stores)

    def store_kind(self, name: str) -> str:
        """``key_value``, ``window``, ``session`` or ``versioned``."""
        return self._store(name)[0].kind

    def get_key_value_store(self, name: str, *, timestamped: bool = False) -> KeyValueAccess:
        """A key-value store. ``timestamped``: values are ValueAndTimestamp. What is put there is not logged."""
        return self._access(name, KeyValueAccess, timestamped=timestamped)

    def get_timestamped_key_value_store(self, name: str) -> KeyValueAccess:
        return self.get_key_value_store(name, timestamped=True)

    def get_window_store(self, name: str, *, timestamped: bool = False) -> WindowAccess:
        """A window store. ``timestamped``: values are ValueAndTimestamp."""
        return self._access(name, WindowAccess, timestamped=timestamped)

    def get_timestamped_window_store(self, name: str) -> WindowAccess:
        return self.get_window_store(name, timestamped=True)

    def get_session_store(self, name: str) -> SessionAccess:
        """A session store."""
        return self._access(name, SessionAccess)

    def get_versioned_key_value_store(self, name: str) -> VersionedAccess:
        """A versioned store."""
        return self._access(name, VersionedAccess)

    def _access(self, name: str, wanted: type[Access], *, timestamped: bool = False) -> Access:
        spec, cache, serde = self._store(name)
        access = store_access(spec, cache, serde, self._outside, None, timestamped=timestamped)
        if not isinstance(access, wanted):
            raise UserError(
                f"store {name!r} is a {spec.kind} store: use get_{_GETTERS.get(spec.kind, spec.kind)}_store"
            )
        return access

    def _outside(self) -> tuple[int, Any, int]:
        return self._now_ms, (), 0

    def counters(self) -> dict[str, int]:
        """The sums of the tasks' counters: processed, dropped, ..."""
        total: dict[str, int] = {}
        for task in self._tasks:
            for name, count in task.counters().items():
                total[name] = total.get(name, 0) + count
        return total

    def close(self) -> None:
        """Closes the user's processors."""
        for task in self._tasks:
            task.close()


def _one_partition(topic: str) -> int:
    return 1


def _without_generation(config: TaskConfig) -> TaskConfig:
    return replace(config, generate=False)


def _memory_store(spec: StoreSpec) -> Any:
    return lay_out(spec, MemoryStore(spec.name))
