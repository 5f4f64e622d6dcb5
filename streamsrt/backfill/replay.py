"""Replaying a task offline: the live task over frozen inputs, with stores of its own.

1. It is the same :class:`~streamsrt.tasks.task.Task` as live, with the same handlers, and the order of
   :mod:`streamsrt.backfill.order`.
2. A replay commits only when caches are full, when a processor requests it, and at the end. So what a cached store
   forwards and logs is the last value of each key, as live with as long a commit interval; with caching off, and for
   stateless steps, every record that live would write is written, in the same order per partition.
3. Of a changelog only the last value of each key is kept (:mod:`streamsrt.backfill.task_state`), and of a store of windows
   or sessions, unless the full changelog is wanted, only of rows that the store still has: what is beyond retention would
   be restored by nobody.
4. Stream-time punctuations run as they do live. The wall clock stands still, so wall-clock punctuations never run.
5. A replay that continues an ``earlier`` one does what that one would have done after its end, which was a commit.
6. A record that fails goes to the application's own exception handlers; where they say fail, the task fails for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from streamsrt.backfill.canonical import CanonicalRecords
from streamsrt.backfill.day_counts import DayCounts
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.order import Inputs, Overtaken, merge
from streamsrt.backfill.slices.eligibility import timed_nodes
from streamsrt.backfill.slices.own_records import Runs, own_records
from streamsrt.backfill.slices.share import Slice
from streamsrt.backfill.task_state import ChangelogRows, ChangelogVersions, LastValue, TaskStores
from streamsrt.operators.engine.environment import GlobalStores
from streamsrt.state.kinds import functions_of, lay_out
from streamsrt.state.snapshots import Values, cache_name
from streamsrt.state.store import BytesStore
from streamsrt.tasks.input.partition_group import TopicPartition
from streamsrt.tasks.output.record_collector import Keys, Partitions, RecordCollector, Sink
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.compression import Compression
from streamsrt.wire.records import Headers, RecordColumns
from streamsrt.wire.records.texts import Texts, Times
from topology.graph.nodes import Subtopology
from topology.graph.store_kinds import Limit, RowsOfKey, rows_of, store_traits

CACHE_MAX_BYTES = 4 << 20
"""Of record caches and of what waits to be written to the stores, by the task's own count. Values that are objects take
several times as much, and a flush has them all in its hands at once."""
RUN_RECORDS = 20_000
_MORE_TO_COME = 1 << 62
_NOTHING_MORE = -(1 << 62)
"""Below every offset: those of a lake that lies before a log are negative."""

Report = Callable[[int], None]


class Earlier(Protocol):
    """The state that a replay continues (:mod:`streamsrt.backfill.earlier_task`)."""

    @property
    def snapshot(self) -> Mapping[str, Values]: ...
    def fill(self, store: BytesStore, /) -> None: ...
    def logged(self, store: str, /) -> Iterator[RecordColumns]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSettings:
    """The parts of plan and application that a replay needs. ``now_ms``: the fixed wall-clock time. ``full_changelogs``:
    also write rows beyond retention. ``canonical``: re-encode records with their serdes."""

    application_id: str
    task_config: TaskConfig
    partitions_of_topic: Callable[[str], int]
    compression: Compression = Compression.NONE
    now_ms: int = 0
    full_changelogs: bool = True
    canonical: bool = False


class OfflineCollector:
    """Keeps the last value of each key of the changelogs, and hands everything else on as record batches."""

    def __init__(
        self,
        changelogs: Mapping[str, ChangelogRows | ChangelogVersions],
        sink: Sink,
        partitions_of_topic: Callable[[str], int],
        compression: Compression = Compression.NONE,
    ) -> None:
        self._changelogs = changelogs
        self._others = RecordCollector(sink, partitions_of_topic, compression=compression)
        self._partitions_of_topic = partitions_of_topic
        self._is_of_slice = False
        self._unplaced: str | None = None

    def add(
        self,
        topic: str,
        keys: Keys,
        values: Keys,
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
        partition: Partitions = None,
        partition_keys: Keys | None = None,
    ) -> None:
        latest = self._changelogs.get(topic)
        if latest is None:
            if self._is_of_slice and partition is None and None in keys and self._partitions_of_topic(topic) > 1:
                # Not an error here: handlers would be asked whether to skip the record.
                self._unplaced = topic
            self._others.add(topic, keys, values, timestamps, headers, partition, partition_keys)
        else:
            latest.add(keys, values, timestamps, headers)

    def add_texts(self, topic: str, texts: Texts, times: Times) -> None:
        self._others.add_texts(topic, texts, times)

    def begin_slice(self) -> None:
        """All that follows is of some keys only."""
        self._is_of_slice = True

    def check(self) -> None:
        """Raises PlanError if a slice has a result that it can't place."""
        if self._unplaced is not None:
            raise PlanError(
                f"a record without a key goes to topic {self._unplaced!r}, where its partition depends on the records "
                "around it, which a slice does not have: plan without --slices in another --dir"
            )

    def flush(self) -> None:
        self._others.flush()


class TaskReplay:
    """One task with what it has written so far. ``sink``: takes record batches of outputs and repartition topics; ``state``:
    opens its stores, and stays whose it is; ``earlier``: what it continues; ``global_stores``: what its processors see of
    global tables."""

    def __init__(
        self,
        subtopology: Subtopology,
        partition: int,
        settings: OfflineSettings,
        sink: Sink,
        state: TaskStores | None = None,
        earlier: Earlier | None = None,
        global_stores: GlobalStores | None = None,
    ) -> None:
        state = TaskStores() if state is None else state
        self.rows: dict[str, BytesStore] = {spec.name: state.open(spec.name) for spec in subtopology.stores}
        if earlier is not None:
            for store in self.rows.values():
                earlier.fill(store)
        self._stores = {spec.name: lay_out(spec, self.rows[spec.name]) for spec in subtopology.stores}
        config = settings.task_config
        limit_bytes = CACHE_MAX_BYTES if config.cache_max_bytes else 0
        self._logged = {
            f"{settings.application_id}-{spec.changelog_name}": spec.name
            for spec in subtopology.stores
            if spec.has_own_changelog
        }
        self._specs = {spec.name: spec for spec in subtopology.stores}
        self._changelogs = {
            topic: (ChangelogVersions if rows_of(self._specs[name]) is RowsOfKey.VERSIONS else ChangelogRows)(
                state.open(topic)
            )
            for topic, name in self._logged.items()
        }
        self._full_changelogs = settings.full_changelogs
        self._collector = OfflineCollector(self._changelogs, sink, settings.partitions_of_topic, settings.compression)
        self.flushes = 0
        """How often caches were flushed before the end. The intermediate results depend on it."""
        self._caching = limit_bytes > 0
        self._now_ms = settings.now_ms
        self.records: dict[TopicPartition, int] = {}
        self.days: dict[TopicPartition, DayCounts] = {}
        self.task = Task(
            subtopology,
            partition,
            application_id=settings.application_id,
            stores=self._stores,
            collector=self._collector,
            config=replace(
                config, cache_max_bytes=limit_bytes, write_buffer_max_bytes=CACHE_MAX_BYTES, max_task_idle_ms=0
            ),
            partitions_of_topic=settings.partitions_of_topic,
            now_ms=settings.now_ms,
            global_stores=global_stores,
        )
        self._canonical = CanonicalRecords(self.task.source_of) if settings.canonical else None
        self.snapshot: dict[str, Values] = {}
        """After :meth:`finish`: the state outside the stores, for a replay that continues this one."""
        self._past: Overtaken | None = None
        if earlier is not None:
            self._continue(earlier)

    def take(self, store: str, columns: RecordColumns) -> None:
        """Takes records of a changelog into a store and its changelog, as a restored store has them."""
        self.task.restore(store, columns)
        topic = next(topic for topic, name in self._logged.items() if name == store)
        self._changelogs[topic].add(columns.keys, columns.values, columns.timestamps, columns.headers)

    def _continue(self, earlier: Earlier) -> None:
        for topic, name in self._logged.items():
            for columns in earlier.logged(name):
                self._changelogs[topic].add(columns.keys, columns.values, columns.timestamps, columns.headers)
        self.task.resume_from(earlier.snapshot)
        self._past = Overtaken(self.task.partition_times())

    @property
    def overtaken(self) -> int:
        """Of what it continues, see :class:`Overtaken`."""
        return 0 if self._past is None else self._past.records

    def merge(self, inputs: Inputs, report: Report | None = None, share: Slice | None = None) -> None:
        """Replays everything of all inputs in the order of :mod:`streamsrt.backfill.order`, or what a slice has of it.
        Raises RecordError."""
        if share is not None:
            # Which partition comes next depends on the records of all slices.
            self.ordered(merge(inputs), report, share)
            return
        task, left = self.task, dict(inputs)
        for tp in left:
            # As live, the task waits for a partition as long as it knows that there is more of it.
            task.note_high_watermark(*tp, _MORE_TO_COME)
            self.records.setdefault(tp, 0)
        while left or task.buffered_records:
            self._refill(left)
            self._process(report)

    def _refill(self, left: dict[TopicPartition, Iterator[RecordColumns]]) -> None:
        task = self.task
        for tp, batches in list(left.items()):
            while tp in left and task.buffered_of(*tp) == 0:
                columns = next(batches, None)
                if columns is None:
                    del left[tp]
                    task.note_high_watermark(*tp, _NOTHING_MORE)
                else:
                    self._add(tp, columns)

    def _add(self, tp: TopicPartition, columns: RecordColumns) -> None:
        self.records[tp] = self.records.get(tp, 0) + len(columns)
        self.days.setdefault(tp, DayCounts()).add(columns)
        if self._past is not None:
            self._past.add(tp, columns.timestamps)
        self.task.add_batch(*tp, columns if self._canonical is None else self._canonical.of(tp, columns))

    def ordered(self, runs: Runs, report: Report | None = None, share: Slice | None = None) -> None:
        """Replays runs as they come: for an engine that has put them into the order itself. Of a slice, its own records are
        taken out of them. Raises RecordError."""
        if share is not None:
            self._collector.begin_slice()
            runs = own_records(runs, share, self.task, timed_nodes(self.task.plan))
        for tp in self.task.source_partitions:
            self.task.note_high_watermark(*tp, _NOTHING_MORE)
        for tp, columns in runs:
            self._add(tp, columns)
            while self.task.buffered_records:
                self._process(report)

    def _process(self, report: Report | None) -> None:
        processed = self.task.process(RUN_RECORDS, self._now_ms)
        self._collector.check()
        if self.task.commit_requested:
            self.flushes += self._caching
            self._commit()
        if report is not None:
            report(processed)

    def _commit(self) -> None:
        self.task.prepare_commit()
        self._collector.flush()
        self.task.post_commit(None)

    def finish(self) -> None:
        """Flushes everything."""
        self._commit()
        self._collector.check()
        self.snapshot = self.task.snapshot()
        self.task.close()

    def changelogs(self) -> dict[str, Iterator[tuple[bytes, LastValue]]]:
        """By topic what the changelog must hold, in the order of keys; of a store that keeps the entries used last, those
        that it still has come last, in the order of their use."""
        return {topic: self._live(topic, latest.entries()) for topic, latest in self._changelogs.items()}

    def _live(self, topic: str, entries: Iterator[tuple[bytes, LastValue]]) -> Iterator[tuple[bytes, LastValue]]:
        name = self._logged[topic]
        if store_traits(self._specs[name]).limit is Limit.COUNT:
            return _by_use(entries, [bytes.fromhex(str(key)) for key in self.snapshot.get(cache_name(name), ())])
        store, keeps = self._stores[name], functions_of(self._specs[name]).keeps
        if self._full_changelogs or keeps is None:
            return entries
        return (entry for entry in entries if keeps(store, entry[0]))


def _by_use(entries: Iterator[tuple[bytes, LastValue]], used: Sequence[bytes]) -> Iterator[tuple[bytes, LastValue]]:
    """Entries so that a restored store drops next what this one would have dropped: it takes their order for that of use.
    The others, of which there may be many, are deletions."""
    kept: dict[bytes, LastValue | None] = dict.fromkeys(used)
    for key, last in entries:
        if key in kept:
            kept[key] = last
        else:
            yield key, last
    yield from ((key, last) for key, last in kept.items() if last is not None)


def partition_counts(topics: Mapping[str, int]) -> Callable[[str], int]:
    """Returns the partition counts of the plan. A topic that is not in the plan raises PlanError when it is looked up."""

    def of(topic: str) -> int:
        try:
            return topics[topic]
        except KeyError:
            raise PlanError(
                f"a record is to be written to topic {topic!r}, which did not exist when the plan was made: create "
                "it and "
                "plan again"
            ) from None

    return of
