"""Global stores of one instance: filled from all partitions of their topics, read by all of its tasks.

1. :class:`GlobalState` applies records to the stores, in the order of each partition. It is a value machine, like a
   task.
2. :class:`GlobalConsumer` feeds it: first from the position of the stores up to the end of the topics, before any task
   starts; then continuously. The group is not involved, and nothing is written but the stores.
3. Stores are written at intervals, and when the caches are full. The position of each is in a file beside it, which is
   written after the store, and at intervals only. After a crash in between, records are applied again, which changes
   nothing: the last record of a key counts. The store itself says how far it must be for the file to be valid.
4. A store that can't be trusted (its files are damaged, no file says how far it is, its topic was created again or starts
   later) is wiped: immediately if this is found when it is opened, else when the thread ends; the next thread fills it
   from the start. Read again over old rows, the topic would not delete those whose deletion it has compacted.
5. A processor that fails ends the thread, unless ``processing.exception.handler.global.enabled`` passes the failure to
   the handler. There are no dead letters (KIP-1270).

Source: GlobalStateManagerImpl, GlobalStateUpdateTask and GlobalStreamThread of Kafka Streams.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from streamsrt.client.interface import Fetching, Network
from streamsrt.client.values import EARLIEST, LATEST, Fetched, OffsetOutOfRangeError, TopicPartition
from streamsrt.errors import (
    DeserializationError,
    MissingTopicError,
    StateError,
    StoreCorruptedError,
    StreamsError,
    UserError,
)
from streamsrt.operators.engine.plan import ResolvedSubtopology
from streamsrt.operators.engine.user_metrics import UserMetrics
from streamsrt.operators.runner import Runner
from streamsrt.state.cache import RowFormat
from streamsrt.state.directory import StateDirectory
from streamsrt.state.kinds import Cache, LaidOut, UserStore, cache_over, store_access
from streamsrt.state.passing_directory import PassingDirectory
from streamsrt.state.store import StoreClosedError
from streamsrt.tasks.error_policy import NotThereYetError
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import RecordColumns, iter_columns
from topology.graph.nodes import StoreSpec, Subtopology
from topology.graph.store_kinds import RowsOfKey, rows_of
from topology.spec.codecs import ProgramSerde

logger = logging.getLogger(__name__)

WRITE_INTERVAL_MS = 30_000
_ADMIN_TIMEOUT_S = 5.0
_WRITES = frozenset({"put", "put_if_absent", "put_all", "delete"})


@dataclass(frozen=True, slots=True)
class _Part:
    """One global store with the nodes that fill it."""

    subtopology: Subtopology
    spec: StoreSpec
    plan: ResolvedSubtopology
    cache: Cache
    runner: Runner


class ReadOnlyStore:
    """A global store as a task's processors see it."""

    def __init__(self, access: UserStore) -> None:
        self._access = access

    def __getattr__(self, name: str) -> Any:
        if name in _WRITES:
            raise UserError(f"global store {self._access.name!r} is read-only: its contents come from its topic")
        return getattr(self._access, name)


class GlobalState:
    """The global stores of an instance. ``stores``: the open byte store of each of them, by name.

    Raises UserError for a store of a kind that can't be global.
    """

    def __init__(
        self,
        subtopologies: Iterable[Subtopology],
        *,
        application_id: str,
        stores: Mapping[str, LaidOut],
        config: TaskConfig,
        now_ms: int = 0,
        task_dir: Callable[[], Path] | None = None,
    ) -> None:
        task_dir = task_dir or PassingDirectory()
        self._parts: dict[str, _Part] = {}
        self._by_topic: dict[str, tuple[_Part, str]] = {}
        for subtopology in subtopologies:
            part = _part(subtopology, application_id, stores, config, now_ms, task_dir)
            self._parts[part.spec.name] = part
            for source in subtopology.sources:
                self._by_topic.update(dict.fromkeys(source.topics, (part, source.name)))

    @property
    def topics(self) -> frozenset[str]:
        """The topics from which the stores are filled."""
        return frozenset(self._by_topic)

    @property
    def specs(self) -> dict[str, StoreSpec]:
        """The stores, by name."""
        return {name: part.spec for name, part in self._parts.items()}

    def topic_of(self, store: str) -> str:
        """The topic from which a store is filled."""
        (source,) = self._parts[store].subtopology.sources
        return source.topics[0]

    def store(self, name: str) -> tuple[StoreSpec, Cache, ProgramSerde]:
        """Returns a store with its cache and serde. Raises KeyError."""
        part = self._parts[name]
        return part.spec, part.cache, part.plan.key_serde(part.spec)

    def read_only(self, name: str) -> ReadOnlyStore | None:
        """Returns a global store for a processor; None if there is none with that name."""
        if name not in self._parts:
            return None
        spec, cache, serde = self.store(name)
        return ReadOnlyStore(store_access(spec, cache, serde, lambda: (0, (), 0), None, timestamped=True))

    def advance_time(self, now_ms: int) -> None:
        """Sets the wall-clock time that the processors see."""
        for part in self._parts.values():
            part.runner.env.system_time_ms = now_ms

    def apply(self, topic: str, partition: int, columns: RecordColumns) -> None:
        """Applies records of one partition. Raises RecordError."""
        part, source = self._by_topic[topic]
        part.runner.run(source, topic, partition, columns)

    def write(self, marks: Mapping[str, int] | None = None) -> None:
        """Writes the stores. ``marks``: by store, a number that only increases and is kept with the data."""
        for name, part in self._parts.items():
            part.runner.flush()
            part.cache.write((marks or {}).get(name))

    def size_bytes(self) -> int:
        """About how much memory the caches take, with what is not written yet."""
        return sum(part.cache.size_bytes() for part in self._parts.values())

    def evict(self, limit_bytes: int) -> None:
        """Evicts entries until the caches hold about ``limit_bytes`` at most."""
        for part in self._parts.values():
            part.cache.evict(limit_bytes // len(self._parts))

    def user_metrics(self) -> dict[str, UserMetrics]:
        """Returns the metrics that the program's processors define, by the id of a task."""
        return {part.runner.env.task_id: part.runner.env.user_metrics for part in self._parts.values()}

    def counters(self) -> dict[str, int]:
        """Totals since the start, by name."""
        counted = [part.runner.counters for part in self._parts.values()]
        return {"dropped": sum(each.dropped() for each in counted)}

    def close(self) -> None:
        """Closes the program's processors. The owner of the stores closes those."""
        with ExitStack() as stack:
            for part in self._parts.values():
                stack.callback(part.runner.close)


def _part(
    subtopology: Subtopology,
    application_id: str,
    stores: Mapping[str, LaidOut],
    config: TaskConfig,
    now_ms: int,
    task_dir: Callable[[], Path],
) -> _Part:
    (spec,) = subtopology.stores
    if rows_of(spec) is not RowsOfKey.ONE:
        raise UserError(f"store {spec.name!r} is a {spec.kind} store: a global store must be a key-value store")
    plan = ResolvedSubtopology(
        subtopology=subtopology,
        application_id=application_id,
        default_key_serde=config.default_key_serde,
        default_value_serde=config.default_value_serde,
        caching=False,
        handlers=config.handlers.of_global_stores(processing=config.handles_global_processing),
        settings=config.settings,
        given_settings=config.given_settings,
        clock=config.clock,
    )
    serde = plan.value_serde(spec)
    row_format = RowFormat(serde.serialize, serde.deserialize, timestamped=spec.timestamped, store=spec.name)
    cache = cache_over(spec, stores[spec.name], row_format)
    runner = Runner(
        plan,
        {spec.name: cache},
        _nowhere,
        0,
        _no_partitions,
        task_dir=task_dir,
        system_time_ms=now_ms,
        generate=config.generate,
    )
    runner.begin(now_ms)
    return _Part(subtopology, spec, plan, cache, runner)


def _nowhere(topic: str, *_: object) -> None:
    raise StateError(f"a global store can't write to topics, but a record was sent to {topic!r}")


def _no_partitions(topic: str) -> int:
    return 1


class GlobalConsumer:
    """Keeps the global stores of this instance up to date. Belongs to the processing thread.

    It reads with the restore fetcher: what that brings goes to :meth:`take` first. ``changelogs``: topics that tasks restore
    from. A fetcher has one position for a partition, which is dropped when a task is restored, so a global topic among them
    is read with the main fetcher. A global table of Faust is such a topic.
    """

    def __init__(
        self,
        subtopologies: Iterable[Subtopology],
        network: Network,
        directory: StateDirectory,
        *,
        application_id: str,
        config: TaskConfig,
        cache_max_bytes: int,
        replica: int = 0,
        now_ms: int = 0,
        changelogs: Collection[str] = (),
    ) -> None:
        parts = tuple(subtopologies)
        self._changelogs = frozenset(changelogs)
        self._replica = replica
        self._network = network
        self._directory = directory
        self._cache_max_bytes = cache_max_bytes
        self._stores = {spec.name: self._open(spec) for part in parts for spec in part.stores}
        self._damaged: str | None = None
        self.state = GlobalState(
            parts,
            application_id=application_id,
            stores=self._stores,
            config=config,
            now_ms=now_ms,
            task_dir=partial(directory.task_directory, f"global-{replica}"),
        )
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] | None = None
        self._written_at_ms = 0
        self._changed = False

    def _open(self, spec: StoreSpec) -> LaidOut:
        try:
            store = self._directory.open_store(spec, self._replica)
            # Damage to a file may be detected only when it is read.
            mark = store.changelog_offset()
        except StoreCorruptedError as error:
            return self._opened_anew(spec, str(error))
        if mark is None:
            self._forget_positions(spec)
        elif not self._known(spec, mark):
            store.close()
            return self._opened_anew(spec, f"no file says how far {spec.name!r} was read")
        return store

    def _opened_anew(self, spec: StoreSpec, why: str) -> LaidOut:
        logger.warning("global store: %s; it is wiped and filled again from its topic", why)
        self._directory.wipe(spec.kept_as, self._replica)
        self._forget_positions(spec)
        return self._directory.open_store(spec, self._replica)

    def _forget_positions(self, spec: StoreSpec) -> None:
        """Before the store is written for the first time: with its first rows, those of an earlier one could be valid."""
        if self._directory.read_positions(spec.kept_as, self._replica):
            self._directory.write_positions(spec.kept_as, self._replica, {})

    def _known(self, spec: StoreSpec, mark: int | None) -> dict[int, int]:
        """The positions of a store with that mark, by partition; empty if it is new, or they are not its own."""
        known = {} if mark is None else self._directory.read_positions(spec.kept_as, self._replica)
        return known if mark is not None and sum(known.values()) <= mark else {}

    def _kept_as(self, store: str) -> str:
        return self.state.specs[store].kept_as

    def _path(self, store: str) -> Path:
        return self._directory.store_path(self._kept_as(store), self._replica)

    def open_stores(self) -> Iterator[tuple[StoreSpec, LaidOut, Cache]]:
        """Each store with its cache."""
        for name, spec in self.state.specs.items():
            yield spec, self._stores[name], self.state.store(name)[1]

    def is_damaged_by(self, error: StreamsError) -> bool:
        """Whether the error says that one of these stores is damaged; :meth:`close` then wipes it."""
        if isinstance(error, StoreCorruptedError):
            paths = {str(self._path(name)): name for name in self._stores}
            self._damaged = paths.get(error.path)
        return self._damaged is not None

    def _untrusted(self, store: str, why: str) -> StoreCorruptedError:
        error = StoreCorruptedError(
            f"global store {store!r} {why}. It is wiped, and filled from the start of its topic"
        )
        error.path = str(self._path(store))
        return error

    @property
    def is_ready(self) -> bool:
        """Whether everything was read that existed when the consumer started."""
        ends = self._ends
        return ends is not None and all(self._positions[tp] >= end for tp, end in ends.items())

    @property
    def has_begun(self) -> bool:
        return self._ends is not None

    def positions(self, store: str) -> dict[TopicPartition, int]:
        """Returns, for each partition of a store's topic, the offset after the last record that the store contains."""
        topic = self.state.topic_of(store)
        return {tp: at for tp, at in self._positions.items() if tp[0] == topic}

    def begin(self) -> None:
        """Starts reading. Raises MissingTopicError, and BrokerError if the cluster does not answer: then it can be called
        again."""
        counts = self._network.admin.partitions_for(self.state.topics, timeout_s=_ADMIN_TIMEOUT_S)
        missing = sorted(self.state.topics - set(counts))
        if missing:
            raise MissingTopicError(
                f"the application needs its global topics: {', '.join(missing)}. Create them (streamsrt topics create "
                "NAME --partitions N) and start it again."
            )
        partitions = [(topic, partition) for topic, count in sorted(counts.items()) for partition in range(count)]
        starts = self._network.admin.list_offsets(dict.fromkeys(partitions, EARLIEST), timeout_s=_ADMIN_TIMEOUT_S)
        ends = self._network.admin.list_offsets(dict.fromkeys(partitions, LATEST), timeout_s=_ADMIN_TIMEOUT_S)
        gone = {topic for topic, _ in set(partitions) - (starts.keys() & ends.keys())}
        if gone:
            # Deleted since it was counted.
            raise NotThereYetError(sorted(gone))
        for store in self.state.specs:
            topic = self.state.topic_of(store)
            own = {tp: (starts[tp].offset, ends[tp].offset) for tp in partitions if tp[0] == topic}
            self._positions.update(self._start_of(store, own))
        self._ends = {tp: ends[tp].offset for tp in partitions}
        for fetcher in self._fetchers():
            fetcher.add_partitions({tp: at for tp, at in self._positions.items() if self._fetcher_of(tp[0]) is fetcher})
        logger.info("global stores %s: reading %d partitions", ", ".join(self.state.specs), len(partitions))

    def _fetchers(self) -> list[Fetching]:
        """Those that read a partition."""
        return list(dict.fromkeys(self._fetcher_of(topic) for topic, _ in self._positions))

    def _fetcher_of(self, topic: str) -> Fetching:
        return self._network.fetcher if topic in self._changelogs else self._network.restorer

    def _start_of(self, store: str, bounds: dict[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """Returns the start offsets for the partitions of a store's topic."""
        known = self._known(self.state.specs[store], self._stores[store].changelog_offset())
        topic = next(iter(bounds))[0]
        if not set(known) <= {partition for _, partition in bounds}:
            raise self._untrusted(store, f"has read partitions that topic {topic!r} does not have any more")
        if any(known.get(partition, 0) > end for (_, partition), (_, end) in bounds.items()):
            raise self._untrusted(store, f"has read more than topic {topic!r} has: the topic was deleted and recreated")
        if any(0 < known.get(partition, 0) < start for (_, partition), (start, _) in bounds.items()):
            # Among what it has missed there may be the deletion of a row.
            raise self._untrusted(store, f"has read less than topic {topic!r} has deleted since")
        return {tp: max(start, known.get(tp[1], 0)) for tp, (start, _) in bounds.items()}

    def take(self, fetched: Fetched, fetcher: Fetching) -> bool:
        """Applies what a fetcher brings of a global topic; returns False if it is of another topic, or was fetched for a
        task. Raises RecordError, BrokerError."""
        tp = (fetched.topic, fetched.partition)
        if tp not in self._positions or self._fetcher_of(tp[0]) is not fetcher:
            return False
        if isinstance(fetched.error, OffsetOutOfRangeError):
            store = next(name for name in self._stores if self.state.topic_of(name) == tp[0])
            raise self._untrusted(store, f"can't continue from its offset: {fetched.error}") from fetched.error
        if fetched.error is not None:
            raise fetched.error
        try:
            for columns in iter_columns(fetched.buffer, from_offset=fetched.offset, aborted=fetched.aborted):
                if columns.keys:
                    self._changed = True
                    self.state.apply(*tp, columns)
                    if self.state.size_bytes() > self._cache_max_bytes:
                        self._write_stores()
        except DecodeError as error:
            raise DeserializationError(
                f"the global topic {tp[0]}-{tp[1]} holds a corrupt batch at or after offset {fetched.offset}: "
                f"{error}. Repair the broker's log, or rewrite the topic",
                *tp,
                fetched.offset,
            ) from error
        self._positions[tp] = fetched.next_offset
        return True

    def keep(self, now_ms: int) -> None:
        """Sets the time for the processors, and writes the stores at intervals."""
        self.state.advance_time(now_ms)
        if self._changed and now_ms - self._written_at_ms >= WRITE_INTERVAL_MS:
            self._written_at_ms = now_ms
            self.write()

    def write(self) -> None:
        """Writes the stores, then their positions."""
        if not self.has_begun:
            return
        self._changed = False
        for store, positions in self._write_stores().items():
            if self.state.specs[store].persistent:
                self._stores[store].flush()
                self._directory.write_positions(self._kept_as(store), self._replica, positions)

    def _write_stores(self) -> dict[str, dict[int, int]]:
        """Writes what the caches hold. Returns the positions that it goes with, by store."""
        done: dict[str, dict[int, int]] = {}
        for store in self.state.specs:
            topic = self.state.topic_of(store)
            done[store] = {partition: at for (name, partition), at in self._positions.items() if name == topic}
        self.state.write({store: sum(positions.values()) for store, positions in done.items()})
        self.state.evict(self._cache_max_bytes)
        return done

    def close(self) -> None:
        """Writes the stores, stops reading, and closes them; a damaged one is wiped."""
        if self._damaged is not None:
            try:
                self._end()
            finally:
                self._directory.wipe(self._kept_as(self._damaged), self._replica)
            return
        try:
            self.write()
        except StoreClosedError:
            logger.warning(
                "the global stores were closed before they were written to disk: they are read again at the next start"
            )
        self._end()

    def _end(self) -> None:
        for fetcher in self._fetchers():
            fetcher.remove_partitions([tp for tp in self._positions if self._fetcher_of(tp[0]) is fetcher])
        with ExitStack() as stack:
            # In reverse order: the processors are closed before the stores, which are closed in any case.
            for name, store in self._stores.items():
                if name != self._damaged:
                    stack.callback(store.close)
            stack.callback(self.state.close)
