"""A task: one subtopology for one partition, as a value machine.

1. Batches go in (:meth:`Task.add_batch`), runs are processed (:meth:`Task.process`), results go to the collector. The
   only I/O goes through the stores and the collector that it was given; time is an argument.
2. A record that fails raises a RecordError that says which record it is. Everything before it is done. The failed
   record and the following ones stay buffered. Where the record has changed a store before it failed, the error says so
   (``is_in_order``), and nothing may be committed: read again, it would find what it had left behind.
3. A commit has two halves. :meth:`Task.prepare_commit` flushes the caches into the collector and returns the offsets that
   are done. When everything that was sent is acknowledged, :meth:`Task.post_commit` writes the stores, each in one batch
   with the end of its changelog, and offsets may be committed (at least once). A crash in between leaves a store that is
   *behind* its changelog: restoring catches up.
4. The user's processors are initialized with the first :meth:`Task.process` or :meth:`Task.punctuate`, when all stores
   are restored; those of a task that only follows its changelogs never are.
5. Caches do not grow without bounds: when they hold too much, ``commit_requested`` is set and :meth:`Task.process`
   stops until the next commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from streamsrt.assignment.tasks import TaskId
from streamsrt.errors import ProcessingError, RecordError, UserError
from streamsrt.operators.engine.environment import GlobalStores, is_interrupt
from streamsrt.operators.engine.plan import ResolvedSubtopology, StreamTime, stores_behind_caches
from streamsrt.operators.engine.user_metrics import UserMetrics
from streamsrt.operators.runner import Runner
from streamsrt.state.cache import RowFormat
from streamsrt.state.kinds import Cache, LaidOut, cache_over, sliding_cache_over, suppression_buffers
from streamsrt.state.passing_directory import PassingDirectory
from streamsrt.state.snapshots import Snapshotted, Values, cache_name, in_parts
from streamsrt.tasks.async_calls import AsyncCalls
from streamsrt.tasks.input.extraction import Extraction
from streamsrt.tasks.input.offset_metadata import partition_metadata
from streamsrt.tasks.input.partition_group import MergedRun, PartitionGroup, Run, TopicPartition
from streamsrt.tasks.input.selected import selected
from streamsrt.tasks.input.stream_time_keys import committed_times, stream_time_keys
from streamsrt.tasks.output.record_collector import Collector
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.tasks.task_meter import task_meter
from streamsrt.wire.records import RecordColumns
from topology.graph.nodes import SourceNode, StoreSpec, Subtopology
from topology.spec.codecs import ProgramSerde
from topology.spec.row_versions import UpcastError

_STREAM_TIME, _PARTITION_TIMES, _TIME_OF = "stream time", "partition times", "time of "
"""What a snapshot has under which name."""
_MEASURED_RECORDS = 8
"""After so many records a task looks how much its caches hold."""


class CommitState(NamedTuple):
    """The contents of a commit. ``ends``: for each input partition the next offset. The times, by partition and by windowed
    operator, become the offsets' metadata."""

    ends: Mapping[TopicPartition, int]
    partition_times: Mapping[TopicPartition, int]
    operator_times: Mapping[str, int]

    @property
    def offsets(self) -> dict[TopicPartition, tuple[int, str]]:
        """For each input partition the next offset and its metadata (Kafka Streams' partition time)."""
        times = self.operator_times
        return {each: (end, partition_metadata(self.partition_times[each], times)) for each, end in self.ends.items()}


class Task:
    """One active task. ``stores``: the open byte store of every store of the subtopology, by name.

    ``partitions_of_topic``: how many partitions an output topic has. ``now_ms``: the wall clock at the start. ``task_dir``
    makes the directory that its processors may use; None: a passing one.
    """

    def __init__(
        self,
        subtopology: Subtopology,
        partition: int,
        *,
        application_id: str,
        stores: Mapping[str, LaidOut],
        collector: Collector,
        config: TaskConfig,
        partitions_of_topic: Callable[[str], int],
        now_ms: int = 0,
        source_topics: Mapping[str, tuple[str, ...]] | None = None,
        global_stores: GlobalStores | None = None,
        task_dir: Callable[[], Path] | None = None,
    ) -> None:
        self.task_id = TaskId(subtopology.id, partition)
        self.subtopology = subtopology
        self.config = config
        self._plan = config.resolved(subtopology, application_id)
        self._stores = stores
        self.meter = task_meter(self._plan, collector, config.recording_level, is_read=config.is_measured)
        self.caches: dict[str, Cache] = {spec.name: self._cache(spec) for spec in subtopology.stores}
        self._buffers = suppression_buffers(subtopology.stores, self.caches)
        self._runner = Runner(
            self._plan,
            self.caches,
            collector.add,
            partition,
            partitions_of_topic,
            task_dir=task_dir or PassingDirectory(),
            system_time_ms=now_ms,
            generate=config.generate,
            gathers_output=config.gathers_output,
            open_calls=AsyncCalls,
            global_stores=global_stores,
            node_meters=self.meter.nodes,
            store_meters=self.meter.stores,
        )
        self._runner.env.collect_texts = collector.add_texts
        self._sources = self._source_of_topic(source_topics or {})
        self.meter.source_nodes = self._sources
        self.source_partitions: tuple[TopicPartition, ...] = tuple((topic, partition) for topic in self._sources)
        has_several = len(self._sources) > 1 or any(each.pattern is not None for each in subtopology.sources)
        skips = has_several and self._plan.handlers.may_skip_unreadable
        is_unreadable = self._is_unreadable if skips else None
        self._group = PartitionGroup(self.source_partitions, config.max_task_idle_ms, is_unreadable)
        self._runner.env.observed.readable_ends = self._group.readable_ends
        self._extractions: dict[TopicPartition, Extraction] = {}
        self._partition_times: dict[TopicPartition, int] = dict.fromkeys(self.source_partitions, -1)
        self._stream_time_keys = stream_time_keys(subtopology)
        self._offsets: dict[TopicPartition, int] = {}
        self._flushed_offsets: dict[TopicPartition, int] = {}
        self._held_back: dict[TopicPartition, int] = {}
        """What the last commit left out, since records from there on are not acknowledged."""
        self._behind_caches = stores_behind_caches(self._plan)
        self._uncommitted: set[TopicPartition] = set()
        self._processed = 0
        self._is_leaving = False
        self._current: Run | MergedRun | None = None
        for name, cache in self.caches.items():
            if isinstance(cache, Snapshotted):
                self._runner.env.snapshots.add(cache_name(name), cache)

    def _source_of_topic(self, matched: Mapping[str, tuple[str, ...]]) -> dict[str, SourceNode]:
        found: dict[str, SourceNode] = {}
        for source in self.subtopology.sources:
            topics = matched.get(source.name) or self._plan.source_topics(source)
            found.update(dict.fromkeys(topics, source))
        return found

    def source_of(self, topic: str) -> SourceNode:
        """Returns the source that reads a topic of the task."""
        return self._sources[topic]

    @property
    def config(self) -> TaskConfig:
        """Returns its settings. What it may hold in memory is set again when other tasks come and go."""
        return self._config

    @config.setter
    def config(self, config: TaskConfig) -> None:
        self._config = config
        self._limit_bytes = max(config.cache_max_bytes, config.write_buffer_max_bytes)

    @property
    def plan(self) -> ResolvedSubtopology:
        """Returns its subtopology with everything resolved."""
        return self._plan

    def pair_of(self, topic: str, columns: RecordColumns, index: int) -> tuple[object, object]:
        """Returns key and value of a record. Raises what their serdes raise."""
        source, key, value = self._sources[topic], columns.keys[index], columns.values[index]
        return (
            None if key is None else self._plan.key_serde(source).deserialize(key),
            None if value is None else self._plan.value_serde(source).deserialize(value),
        )

    def _is_unreadable(self, topic_partition: TopicPartition, columns: RecordColumns, index: int) -> bool:
        try:
            self.pair_of(topic_partition[0], columns, index)
        except BaseException as error:
            if is_interrupt(error):
                raise
            return True
        return False

    def add_source_topic(self, source: str, topic: str) -> None:
        """Adds a topic that a pattern source matched after the task was created."""
        node = self.subtopology.node(source)
        assert isinstance(node, SourceNode)
        self._sources[topic] = node
        added = (topic, self.task_id.partition)
        self.source_partitions = (*self.source_partitions, added)
        self._group.add_partition(added)
        self._partition_times[added] = -1

    def _cache(self, spec: StoreSpec) -> Cache:
        serde = self._plan.value_serde(spec)
        timestamped = spec.timestamped and not spec.plain_rows
        row_format = RowFormat(serde.serialize, serde.deserialize, timestamped=timestamped, store=spec.name)
        over = sliding_cache_over if spec.name in self._plan.sliding_stores else cache_over
        return over(spec, self._store(spec), row_format)

    def _store(self, spec: StoreSpec) -> LaidOut:
        try:
            store = self._stores[spec.name]
        except KeyError:
            raise UserError(f"task {self.task_id} has no store {spec.name!r}") from None
        meter = self.meter.stores.get(spec.name)
        return store if meter is None else meter.before(store)

    # ------------------------------------------------------------------------------------------------- input

    @property
    def buffered_records(self) -> int:
        waiting = sum(each.waiting for each in self._extractions.values()) if self._extractions else 0
        return self._group.buffered + waiting

    @property
    def enforced_processings(self) -> int:
        """How often records were processed while other partitions had none."""
        return self._group.enforced

    @property
    def head_timestamp(self) -> int | None:
        """The timestamp of the next record; None if nothing is buffered."""
        return self._group.head_timestamp

    def only_counts(self, topic: str) -> bool:
        """Whether the records of this source topic are only counted, as a rule: few of their values are read."""
        return self._runner.only_counts(self._sources[topic].name)

    def buffered_of(self, topic: str, partition: int) -> int:
        extraction = self._extractions.get((topic, partition))
        return self._group.buffered_of((topic, partition)) + (0 if extraction is None else extraction.waiting)

    def add_batch(self, topic: str, partition: int, columns: RecordColumns) -> None:
        """Adds a decoded batch of an input partition. Raises RecordError if its timestamps are not usable."""
        topic_partition, source = (topic, partition), self._sources[topic]
        extractor = source.timestamp_extractor or self.config.default_timestamp_extractor
        if extractor is not None:
            extraction = self._extractions.get(topic_partition)
            if extraction is None:
                extraction = Extraction(self._plan, self._runner, source, topic_partition, extractor)
                self._extractions[topic_partition] = extraction
            extraction.add(columns)
            self._take_extracted()
            return
        if columns and columns.timestamp_min < 0:
            index = next(i for i, timestamp in enumerate(columns.timestamps) if timestamp < 0)
            raise ProcessingError(
                f"the record at {topic}-{partition} offset {columns.offset_at(index)} has no timestamp "
                f"({columns.timestamps[index]}): its producer is too old, or give the source a timestamp extractor",
                topic,
                partition,
                columns.offset_at(index),
            )
        self._add(topic_partition, columns)

    def _add(self, topic_partition: TopicPartition, columns: RecordColumns) -> None:
        if not self._group.add(topic_partition, columns):
            self._offsets[topic_partition] = columns.next_offset
            self._uncommitted.add(topic_partition)

    def _take_extracted(self) -> None:
        """Buffers records with extracted timestamps of partitions that have none. Raises RecordError."""
        for topic_partition, extraction in self._extractions.items():
            while extraction and not self._group.buffered_of(topic_partition):
                self._add(topic_partition, extraction.take(self._partition_times[topic_partition]))

    def wait_for(self, partitions: Iterable[TopicPartition]) -> None:
        """The high watermarks of these input partitions will be noted: see ``max.task.idle.ms`` in
        ``streamsrt.tasks.input.partition_group``."""
        self._group.wait_for(partitions)

    def note_high_watermark(self, topic: str, partition: int, high_watermark: int, fetched_to: int = -1) -> None:
        """Records the broker's high watermark of an input partition. ``fetched_to``: where a fetch without data ended."""
        self._group.note_high_watermark((topic, partition), high_watermark, fetched_to)

    # ------------------------------------------------------------------------------------------------- work

    def process(self, limit_records: int, now_ms: int, *, finishes: bool = True) -> int:
        """Processes up to about ``limit_records`` buffered records and returns how many. Raises RecordError.

        ``finishes`` False: asynchronous calls may still be under way (:meth:`await_calls`), and while they take no more
        records it does not wait for them.
        """
        env = self._runner.env
        env.begin(now_ms)
        env.system_time_ms = now_ms
        began_ns = self.meter.clock_ns()
        done = 0
        measured = 0
        while done < limit_records and self._is_ready(now_ms):
            room = env.room if env.windows else None
            if room == 0:
                env.await_calls(None if finishes else 0.0)
                room = env.room
                if room == 0 and finishes:
                    continue
            run = None if room == 0 else self._next_run(min(limit_records - done, room or limit_records))
            if run is None:
                break
            done += self._process_merged(run) if isinstance(run, MergedRun) else self._process_run(run)
            # If partitions alternate, a run has only a few records.
            if done - measured >= _MEASURED_RECORDS:
                measured = done
                self._request_commit_if_full()
        if done > measured:
            self._request_commit_if_full()
        if finishes:
            env.finish_calls()
        if done:
            self.meter.iterated(began_ns, done, now_ms)
            if self.meter.exact:
                self.meter.measure_buffers(self._buffers, now_ms)
        return done

    def _is_ready(self, now_ms: int) -> bool:
        if self._runner.env.commit_requested or self._is_leaving:
            return False
        if self._extractions:
            self._take_extracted()
        return self._group.is_ready(now_ms)

    def _next_run(self, limit_records: int) -> Run | MergedRun | None:
        if len(self.source_partitions) == 1 or self.meter.exact:
            # Lateness is measured run by run.
            return self._group.next_run(limit_records)
        return self._group.next_merged(limit_records, lambda: self._runner.merges)

    @property
    def is_calling(self) -> bool:
        """Whether asynchronous calls are pending."""
        return self._runner.env.is_calling

    @property
    def is_timed(self) -> bool:
        """Whether punctuations, asynchronous calls or idle operators may become due."""
        return self._runner.is_timed

    @property
    def wait_max_ms(self) -> int | None:
        """How long the loop may wait for input at most; None: as long as it likes."""
        return self._runner.env.wait_max_ms

    def pending_calls(self) -> int:
        """How many asynchronous calls are unfinished, those that wait for their turn included."""
        return self._runner.env.pending_calls

    @property
    def queued_calls(self) -> int:
        """How many asynchronous calls wait for their turn."""
        return self._runner.env.queued_calls

    @property
    def may_call(self) -> bool:
        """Whether a commit may have to wait for asynchronous calls."""
        return bool(self._runner.env.windows)

    def calls_under_way(self) -> list[str]:
        """Describes the pending asynchronous calls and their maximum duration."""
        return self._runner.env.calls_under_way()

    def while_calling(self, check: Callable[[], None]) -> None:
        """Sets a function that is called at intervals while a commit waits for asynchronous calls."""
        self._runner.env.while_calling = check

    def on_stop_request(self, stop: Callable[[], None]) -> None:
        """Sets what is called when the program asks the instance to end."""
        self._runner.env.request_stop = stop

    def await_calls(self, wait_s: float) -> None:
        """Waits up to this long for an asynchronous call to end, and handles the finished ones. Raises RecordError."""
        self._runner.env.await_calls(wait_s)

    @property
    def processing(self) -> str:
        """Describes the record that is being processed; empty between records. May be called from any thread."""
        run, at = self._current, self._runner.current()
        if run is None:
            return ""
        if isinstance(run, MergedRun):
            where = None if at is None else (at.topic, at.partition)
            which = run.topic_partitions.index(where) if where in run.topic_partitions else 0
            run = Run(run.topic_partitions[which], run.columns.parts[which])
        topic, partition = run.topic_partition
        first, last = run.columns.offset_at(0), run.columns.next_offset - 1
        if at is not None and at.topic == topic and at.partition == partition and first <= at.offset <= last:
            return f"{topic}-{partition} offset {at.offset} (of a batch of {first} to {last})"
        return f"{topic}-{partition} offset {first}" + (f" to {last}" if last > first else "")

    def _process_run(self, run: Run) -> int:
        topic, partition = run.topic_partition
        columns = run.columns
        self._current = run
        try:
            self._runner.run(self._sources[topic].name, topic, partition, columns)
        except RecordError:
            index = self._runner.failed_index
            self._done(run.topic_partition, columns.cut(0, index), self._runner.unread)
            self._group.put_back(run.topic_partition, columns.cut(index))
            raise
        finally:
            self._current = None
        return self._done(run.topic_partition, columns, self._runner.unread)

    def _process_merged(self, run: MergedRun) -> int:
        partitions, columns = run.topic_partitions, run.columns
        self._current = run
        try:
            self._runner.run_merged([self._sources[topic].name for topic, _ in partitions], partitions, columns)
        except RecordError:
            counts, unread = columns.counts(self._runner.failed_index), columns.in_parts(self._runner.unread)
            for topic_partition, part, count, skipped in zip(partitions, columns.parts, counts, unread, strict=True):
                self._done(topic_partition, part.cut(0, count), skipped)
                if count < len(part):
                    self._group.put_back(topic_partition, part.cut(count))
            raise
        finally:
            self._current = None
        unread = columns.in_parts(self._runner.unread)
        for topic_partition, part, skipped in zip(partitions, columns.parts, unread, strict=True):
            self._done(topic_partition, part, skipped)
        return len(columns)

    def _done(self, topic_partition: TopicPartition, columns: RecordColumns, unread: Sequence[int]) -> int:
        """Returns how many records these are. ``unread``: the indexes of those that can't be deserialized. Their timestamps
        may be as wrong as they are."""
        count = len(columns)
        if count:
            latest, env = columns.timestamp_max, self._runner.env
            self.meter.done(topic_partition[0], columns.quick_times, latest, env.system_time_ms, env.stream_time_ms)
            if unread:
                skipped = set(unread)
                latest = max((ms for i, ms in enumerate(columns.timestamps) if i not in skipped), default=-1)
            if latest > self._partition_times[topic_partition]:
                self._partition_times[topic_partition] = latest
            if latest > env.stream_time_ms:
                env.stream_time_ms = latest
        self._processed += count
        self._offsets[topic_partition] = columns.next_offset
        self._uncommitted.add(topic_partition)
        return count

    def _request_commit_if_full(self) -> None:
        if not self.caches:
            return
        size = 0
        for cache in self.caches.values():
            size += cache.size_bytes()
        if size > self._limit_bytes:
            if self._has_changes():
                self._runner.env.commit_requested = True
            else:
                for cache in self.caches.values():
                    cache.evict(self._limit_bytes // len(self.caches))

    def punctuate(self, now_ms: int) -> int:
        """Runs wall-clock punctuations that are due and returns how many ran. Raises RecordError (offset -1)."""
        if not self.is_timed:
            return 0
        self._runner.begin(now_ms)
        began_ns = self.meter.clock_ns()
        ran = self._runner.punctuate(now_ms, is_behind=self._group.buffered > 0)
        if ran:
            self.meter.punctuated(began_ns, ran, now_ms)
        return ran

    def pass_time(self, node: str, ms: int) -> None:
        """Moves the stream time of a node's operation on, as a record of a key that another process has would do. Raises
        RecordError."""
        self._runner.pass_time(node, ms)

    # ------------------------------------------------------------------------------------------------- commit

    @property
    def commit_requested(self) -> bool:
        """Whether a processor requested a commit, or the caches are full."""
        return self._runner.env.commit_requested

    @property
    def commit_needed(self) -> bool:
        """Whether anything was processed since the last commit."""
        return bool(self._uncommitted) or self.commit_requested or self._has_changes() or self._is_released()

    def _is_released(self) -> bool:
        now = self._runner.env.first_held_back() if self._held_back else {}
        return any(now.get(topic_partition) != offset for topic_partition, offset in self._held_back.items())

    def _has_changes(self) -> bool:
        """Whether caches have changes that are not in the stores."""
        return self._runner.has_changes() or any(cache.pending for cache in self.caches.values())

    def end(self) -> None:
        """Finishes pending calls before the last commit, then lets processors send once more. Raises StreamsError."""
        self._runner.env.end()

    def leave_queued_calls(self) -> None:
        """Leaves records whose asynchronous calls have not begun to the next start, where that is safe: the next commit does
        not cover them, and the task processes nothing more. Further calls have no effect."""
        leave = self._runner.env.leave_queued_calls
        if leave is not None and not self._is_leaving:
            self._is_leaving = True
            leave()

    @property
    def left_records(self) -> int:
        """How many records :meth:`leave_queued_calls` has left, once a commit has waited for the others."""
        return self._runner.env.left_records

    def prepare_commit(self) -> CommitState:
        """Flushes caches into the collector, which is to be flushed next. Raises RecordError if a cached record can't be
        processed."""
        env = self._runner.env
        for begin in env.observed.commit_beginnings:
            begin()
        self._runner.flush()
        self.meter.sample(env.system_time_ms)
        self._flushed_offsets = dict(self._offsets)
        held_back, done = env.first_held_back(), self._uncommitted
        if self._held_back:
            done = done | self._held_back.keys()
        ends = {each: held_back.get(each, self._offsets[each]) for each in self.source_partitions if each in done}
        self._held_back = {each: offset for each, offset in held_back.items() if each in ends} if held_back else {}
        env.observed.committing = ends
        return CommitState(ends, self._partition_times.copy(), self.operator_times())

    def post_commit(self, changelog_end_offsets: Mapping[str, int] | None = None) -> None:
        """Writes the stores. ``changelog_end_offsets``: by store, the offset after the last acknowledged record."""
        ends, env, specs = changelog_end_offsets or {}, self._runner.env, self._plan.specs
        share = self._limit_bytes // max(1, len(self.caches))
        for name, cache in self.caches.items():
            source = specs[name].source_topic
            # A source topic that serves as changelog is read up to the processed position.
            cache.write(ends.get(name) if source is None else self._offsets.get((source, self.task_id.partition)))
            cache.evict(share)
        self._uncommitted.clear()
        env.commit_requested = False
        for callback in env.committed:
            callback()

    def start_at(self, topic: str, partition: int, offset: int) -> None:
        """Sets the start offset of an input partition: everything before is already in the stores."""
        self._offsets[topic, partition] = self._flushed_offsets[topic, partition] = offset

    def position(self, store: str) -> Mapping[TopicPartition, int]:
        """Returns, for each input partition, the offset after the last record whose effects the store contains.

        A store behind another one's cache holds what that had at the last flush.
        """
        is_behind = store in self._behind_caches or self.is_calling
        return self._flushed_offsets if is_behind else self._offsets

    def restore_partition_time(self, topic: str, partition: int, metadata: str) -> None:
        """Restores from a committed offset's metadata: the partition time, and the windowed operators' stream times.

        What is not such metadata is ignored.
        """
        known = committed_times(metadata, self.subtopology)
        if known is None:
            return
        partition_time_ms, operator_times_ms = known
        self._restore_time(topic, partition, partition_time_ms)
        holders = {key: name for name, key in self._stream_time_keys.items()}
        for key, seen_ms in operator_times_ms.items():
            stream_time = self._runner.env.stream_times.setdefault(holders.get(key, key), StreamTime())
            # Windows closed by then were emitted with the record that closed them, before the commit.
            stream_time.ms = stream_time.closed_ms = max(stream_time.ms, seen_ms)

    def _restore_time(self, topic: str, partition: int, time_ms: int) -> None:
        self._partition_times[topic, partition] = max(time_ms, self._partition_times[topic, partition])
        self._runner.env.stream_time_ms = max(time_ms, self._runner.env.stream_time_ms)

    def partition_times(self) -> dict[TopicPartition, int]:
        """Returns, for each input partition, the latest processed timestamp; -1 before the first record."""
        return dict(self._partition_times)

    def operator_times(self) -> dict[str, int]:
        """Returns the stream time of each windowed operator, by its name in commits."""
        keys, times = self._stream_time_keys, self._runner.env.stream_times
        if not times:
            return {}
        return {keys.get(name, name): time.ms for name, time in times.items() if time.ms >= 0}

    def snapshot(self) -> dict[str, Values]:
        """Returns its times, and other values kept beside its stores (:mod:`streamsrt.state.snapshots`). Called after a
        commit."""
        env = self._runner.env
        return {
            _STREAM_TIME: [env.stream_time_ms],
            _PARTITION_TIMES: [
                part for (topic, partition), ms in self._partition_times.items() for part in (topic, partition, ms)
            ],
            **{f"{_TIME_OF}{name}": time.snapshot() for name, time in env.stream_times.items()},
            **env.snapshots.values(),
        }

    def resume_from(self, values: Mapping[str, Values]) -> None:
        """Continues with the values that another task's :meth:`snapshot` returned. Called before the first record, with
        the rows of its stores."""
        env, left = self._runner.env, dict(values)
        (env.stream_time_ms,) = map(int, left.pop(_STREAM_TIME))
        for topic, partition, ms in in_parts(left.pop(_PARTITION_TIMES), 3):
            self._partition_times[str(topic), int(partition)] = int(ms)
        for name in [name for name in left if name.startswith(_TIME_OF)]:
            env.stream_times.setdefault(name.removeprefix(_TIME_OF), StreamTime()).resume_from(left.pop(name))
        env.snapshots.resume_from(left)

    # ------------------------------------------------------------------------------------------------- state

    def restore_target(self, store: str) -> TopicPartition | None:
        """Returns the changelog partition of a store; None if it has no changelog."""
        topic = self._plan.changelog_topic(store)
        return None if topic is None else (topic, self.task_id.partition)

    def restore(self, store: str, columns: RecordColumns) -> None:
        """Applies records of the store's changelog. Nothing may be processed between the first and the last of them."""
        has_other_keys = self._plan.specs[store].source_topic is not None and columns.tables is None
        if has_other_keys and None in columns.keys:
            columns = selected(columns, columns.timestamps, [key is not None for key in columns.keys])
        try:
            self.caches[store].restore(columns)
        except UpcastError as error:
            raise ProcessingError(error.with_advice) from error

    def counters(self) -> dict[str, int]:
        """Totals since the start, by name."""
        counted = self._runner.counters
        expired = sum(getattr(cache, "expired_puts", 0) for cache in self.caches.values())
        untimed = sum(extraction.dropped for extraction in self._extractions.values())
        return {
            "processed": self._processed - self.left_records,
            "dropped": counted.dropped() + untimed + expired,
            "dropped_null": counted.dropped_null,
            "unkeyed": counted.unkeyed,
            "dropped_late": counted.dropped_late + expired,
            "dropped_outdated": counted.dropped_outdated,
            "dropped_timestamp": untimed,
            "failed_deserialization": counted.failed_deserialization,
            "failed_processing": counted.failed_processing,
            "failed_production": counted.failed_production,
        }

    @property
    def letter_topics(self) -> Collection[str]:
        """The topics that it has sent dead letters to."""
        return self._runner.env.letter_topics

    @property
    def user_metrics(self) -> UserMetrics:
        """Returns the metrics that its processors define."""
        return self._runner.env.user_metrics

    @property
    def last_skipped(self) -> Mapping[str, str]:
        """Returns, by name of a failure counter, the last record that a handler skipped, and why."""
        return self._runner.counters.last_skipped

    @property
    def stream_time_ms(self) -> int:
        """The highest processed timestamp; -1 before the first record."""
        return self._runner.env.stream_time_ms

    def writes_changelog(self, store: str) -> bool:
        """Whether changes of the store are sent to its own topic (not if its source topic is the changelog)."""
        return self._plan.writes_changelog(store)

    def key_serde(self, store: str) -> ProgramSerde:
        """The serde of a store's keys."""
        return self._plan.key_serde(self._plan.specs[store])

    def close(self) -> None:
        """Closes the user's processors and drops uncommitted work. The owner of the stores closes those."""
        try:
            self._runner.close()
        finally:
            self._group.clear()
            self._extractions.clear()
