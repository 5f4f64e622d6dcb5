"""One task of a plan, from its inputs to its published result: what every engine runs.

1. :func:`run_task` is a function of the plan's directory and the task's id. It may be run any number of times, by several
   processes at once: a finished task is not done again, and of several attempts the first result counts
   (:mod:`streamsrt.backfill.attempts`).
2. Before anything is read it is checked that the application is still the one of the plan.
3. An attempt writes into a folder of its own: one SST file per persistent store, record batches of the changelogs (the last
   value of each key), of the outputs and of the repartition topics. The manifest comes last.
4. What it takes of memory is bounded, whatever history and state: stores are on disk while it runs, files are read and
   written in parts.

An engine that runs tasks in other processes calls ``run_task(directory, task_id)`` there. An engine that brings the records
itself gives ``inputs`` (each partition in the order of offsets) or ``runs`` (all partitions, in the order of
:mod:`streamsrt.backfill.order`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Literal, TypeVar

from streamsrt.backfill.attempts import check_driver, driver_of, new_attempt
from streamsrt.backfill.copying.taking import take_state
from streamsrt.backfill.earlier_task import EarlierTask, earlier_task
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.full_disk import ResultsNotWrittenError, full_disk_said, not_written
from streamsrt.backfill.global_tables import global_tables
from streamsrt.backfill.manifest import (
    AttemptProgress,
    FileResult,
    LogResult,
    PartitionRead,
    StoreResult,
    TaskManifest,
    digest_sum,
    digest_text,
    file_digest,
    finished_manifest,
    load_manifest,
    publish,
    write_progress,
)
from streamsrt.backfill.order import Inputs
from streamsrt.backfill.plan import BackfillPlan, StorePlan, TaskPlan, load_plan
from streamsrt.backfill.planned_application import application_of, subtopology_of
from streamsrt.backfill.replay import OfflineSettings, TaskReplay, partition_counts
from streamsrt.backfill.row_places import RowPlaces, places_of
from streamsrt.backfill.slices.share import part_called
from streamsrt.backfill.sources import open_inputs
from streamsrt.backfill.task_state import LastValue, TaskStores
from streamsrt.config import StreamsConfig
from streamsrt.runtime.tuning import give_back
from streamsrt.state.rocksdb import write_sst
from streamsrt.tasks.input.partition_group import TopicPartition
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.compression import Compression
from streamsrt.wire.records import RecordColumns, encode_batch, read_header

PROGRESS_INTERVAL_S = 1.0
_GIVE_BACK_INTERVAL_S = 5.0
CHANGELOG_BATCH_RECORDS = 1000
CHANGELOG_BATCH_BYTES = 512 << 10
STATE_FOLDER = "state"
_ROWS_AT_ONCE = 10_000

Entry = TypeVar("Entry")
Runs = Iterable[tuple[TopicPartition, RecordColumns]]


def run_task(
    directory: Path | str,
    task_id: str,
    *,
    bootstrap_servers: str | None = None,
    inputs: Callable[[Sequence[TopicPartition]], Inputs] | None = None,
    runs: Runs | None = None,
) -> TaskManifest:
    """Runs a task of the plan in ``directory``, or a slice of one, unless it is finished, and returns its manifest.

    ``bootstrap_servers``: instead of those in the plan. ``inputs``: makes the inputs, given the task's source partitions in
    their order; ``runs``: the input, already in order. Raises PlanError, ArchiveError, RecordError, BrokerError, StateError.
    """
    directory = Path(directory)
    plan = load_plan(directory)
    finished = load_manifest(directory, plan, task_id)
    if finished is not None:
        return finished
    with full_disk_said(directory, stores=True), new_attempt(directory, task_id) as attempt:
        manifest = compute_task(
            directory, plan, task_id, attempt, bootstrap_servers=bootstrap_servers, inputs=inputs, runs=runs
        )
        if publish(directory, manifest):
            return manifest
    return finished_manifest(directory, plan, task_id)


def compute_task(
    directory: Path,
    plan: BackfillPlan,
    task_id: str,
    attempt: Path,
    *,
    bootstrap_servers: str | None = None,
    inputs: Callable[[Sequence[TopicPartition]], Inputs] | None = None,
    runs: Runs | None = None,
    generate: bool = True,
    canonical: bool = False,
) -> TaskManifest:
    """One attempt at a task, in a folder of :func:`~streamsrt.backfill.attempts.new_attempt`, without making it the task's
    result: see :func:`run_task`.

    ``generate`` False: record by record, without generated code. ``canonical``: of records as their serdes write them.
    """
    task_plan, share = part_called(plan, task_id)
    topology, config = application_of(plan)
    earlier = earlier_task(plan, task_plan.id)
    past = {} if earlier is None else {each.topic_partition: earlier.past_of(each) for each in task_plan.repartition}
    started = time.monotonic()
    with LogFiles(attempt) as files, contextlib.ExitStack() as stack:
        state = stack.enter_context(contextlib.closing(TaskStores(attempt / STATE_FOLDER)))
        subtopology = subtopology_of(topology, config, task_plan)
        settings = replace(settings_of(plan, config, generate=generate), canonical=canonical)
        shared = global_tables(directory, plan.global_tables, topology, subtopology, settings, state)
        if shared is not None:
            stack.callback(shared.close)
        replay = TaskReplay(subtopology, task_plan.partition, settings, files.write, state, earlier, shared)
        report = Reporter(directory, task_id, started)
        if plan.copied is not None:
            take_state(plan, task_plan, topology, subtopology, replay, bootstrap_servers, report)
        elif runs is not None:
            replay.ordered(runs, report, share)
        elif inputs is not None:
            replay.merge(inputs(replay.task.source_partitions), report, share)
        else:
            _check_no_lake(task_plan)
            order = replay.task.source_partitions
            opened = open_inputs(directory, plan, task_plan, order, bootstrap_servers, past)
            replay.merge(stack.enter_context(opened), report, share)
        replay.finish()
        changelogs = replay.changelogs()
        places = {} if share is not None else places_of(topology, subtopology, plan, task_plan)
        stores = [
            store_result(
                directory,
                attempt,
                task_plan.partition,
                each,
                replay.rows[each.name].range(),
                changelogs,
                report,
                places.get(each.name),
            )
            for each in task_plan.stores
        ]
        logs = files.results(directory)
    internal = {topic.name for topic in plan.internal_topics}
    written = () if earlier is None else tuple(earlier.outputs(directory, attempt))
    return TaskManifest(
        task=task_id,
        fingerprint=plan.fingerprint,
        attempt=str(attempt.relative_to(directory)),
        reads=tuple(_reads(task_plan, replay)),
        stores=tuple(stores),
        outputs=(*written, *(log for log in logs if log.topic not in internal)),
        repartition=tuple(log for log in logs if log.topic in internal),
        stream_time_ms=replay.task.stream_time_ms,
        operator_times_ms=replay.task.operator_times(),
        counters=replay.task.counters(),
        flushes=replay.flushes,
        carried=replay.snapshot,
        reached=_reached(files, internal, earlier),
        overtaken=replay.overtaken + sum(each.records for each in past.values()),
        peak_memory_bytes=peak_memory_bytes(),
        seconds=time.monotonic() - started,
    )


def peak_memory_bytes(pid: int | Literal["self"] = "self") -> int:
    """Returns the peak memory of this process or another one, in bytes; 0 if the system does not report it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def _check_no_lake(task: TaskPlan) -> None:
    for source in task.sources:
        if source.lake_records:
            raise PlanError(
                f"the history of {source.topic}-{source.partition} is in a lake, which only Spark can put in order: run "
                "with --engine spark"
            )


def settings_of(plan: BackfillPlan, config: StreamsConfig, *, generate: bool = True) -> OfflineSettings:
    """Returns the settings with which the tasks of a plan are replayed."""
    return OfflineSettings(
        application_id=plan.application_id,
        task_config=replace(TaskConfig.of(config), generate=generate),
        partitions_of_topic=partition_counts(plan.topics),
        compression=Compression[config.compression_type.upper()],
        now_ms=plan.wall_clock_ms,
        full_changelogs=plan.changelogs == "full",
    )


# -------------------------------------------------------------------------------------------------------------- progress


class Reporter:
    """Reports the progress of a task every second, and ends it if another driver has taken over. Returns memory that is not
    used any more."""

    def __init__(self, directory: Path, task_id: str, started: float) -> None:
        self._directory = directory
        self._task_id = task_id
        self._started = started
        self._driver = driver_of(directory)
        self._records = 0
        self._rows = 0
        self._reported_s = 0.0
        self._gave_back_s = 0.0

    def __call__(self, records: int) -> None:
        self._records += records
        self._report("running")

    def written(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The same entries of state or a changelog, counted as they are written."""
        self._report("writing", now=True)
        for number, entry in enumerate(entries, 1):
            if not number % _ROWS_AT_ONCE:
                self._rows += _ROWS_AT_ONCE
                self._report("writing")
            yield entry

    def _report(self, phase: Literal["running", "writing"], *, now: bool = False) -> None:
        seconds = time.monotonic() - self._started
        if now or seconds - self._reported_s >= PROGRESS_INTERVAL_S:
            self._reported_s = seconds
            if seconds - self._gave_back_s >= _GIVE_BACK_INTERVAL_S:
                self._gave_back_s = seconds
                give_back()
            check_driver(self._directory, self._task_id, self._driver)
            write_progress(
                self._directory,
                AttemptProgress(
                    task=self._task_id, records=self._records, seconds=seconds, phase=phase, rows=self._rows
                ),
            )


# --------------------------------------------------------------------------------------------------------------- results


class LogFiles:
    """Record batches by topic and partition, each in a file: the sink of a replay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._files: dict[TopicPartition, _LogFile] = {}
        self.latest_ms: dict[TopicPartition, int] = {}
        """The latest timestamp of each partition."""
        self._failure: ResultsNotWrittenError | None = None

    def __enter__(self) -> LogFiles:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def write(self, topic: str, partition: int, batch: bytes, records: int) -> None:
        """Appends one batch. Raises ResultsNotWrittenError, and again in :meth:`results`: a program that catches everything
        must not go on without the batch."""
        try:
            self._append(topic, partition, batch, records)
        except OSError as error:
            # Not as it is: in the middle of a record, handlers would be asked whether to skip it.
            self._failure = not_written(self._folder, error)
            raise self._failure from error

    def _append(self, topic: str, partition: int, batch: bytes, records: int) -> None:
        known = self._files.get((topic, partition))
        if known is None:
            known = self._files[topic, partition] = _LogFile(self._folder / f"{topic}-{partition}.log")
            self._stack.callback(known.close)
        known.write(batch, records)
        latest_ms = read_header(batch).max_timestamp
        self.latest_ms[topic, partition] = max(latest_ms, self.latest_ms.get((topic, partition), -1))

    def results(self, directory: Path) -> list[LogResult]:
        """Closes all files; what they hold. Raises ResultsNotWrittenError, OSError."""
        if self._failure is not None:
            raise self._failure
        self._stack.close()
        return [
            LogResult(topic=topic, partition=partition, file=self._files[topic, partition].result(directory))
            for topic, partition in sorted(self._files)
        ]


class _LogFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "wb")  # noqa: SIM115  # closed by its owner
        self._hash = blake2b(digest_size=16)
        self._records = 0

    def write(self, batch: bytes, records: int) -> None:
        self._file.write(batch)
        self._hash.update(batch)
        self._records += records

    def close(self) -> None:
        if not self._file.closed:
            self._file.flush()
            self._file.close()

    def result(self, directory: Path) -> FileResult:
        return FileResult(
            path=str(self._path.relative_to(directory)),
            records=self._records,
            size_bytes=self._path.stat().st_size,
            digest=self._hash.hexdigest(),
        )


def _reads(task_plan: TaskPlan, replay: TaskReplay) -> Iterator[PartitionRead]:
    ranges = {source.topic_partition: (source.start, source.end) for source in task_plan.sources}
    for repartition in task_plan.repartition:
        tp = repartition.topic_partition
        ranges[tp] = (repartition.start, repartition.start + replay.records.get(tp, 0))
    times = replay.task.partition_times()
    for tp in replay.task.source_partitions:
        start, end = ranges.get(tp, (0, replay.records.get(tp, 0)))
        yield PartitionRead(
            topic=tp[0],
            partition=tp[1],
            start=start,
            end=end,
            records=replay.records.get(tp, 0),
            partition_time_ms=times[tp],
            days=replay.days[tp].by_date() if tp in replay.days else {},
        )


def _reached(files: LogFiles, internal: Container[str], earlier: EarlierTask | None) -> dict[str, int]:
    """Up to when repartition topics were written, by the records' timestamps."""
    found = {} if earlier is None else dict(earlier.manifest.reached)
    for (topic, partition), latest_ms in files.latest_ms.items():
        if topic in internal:
            name = f"{topic}-{partition}"
            found[name] = max(latest_ms, found.get(name, -1))
    return found


def store_result(
    directory: Path,
    attempt: Path,
    partition: int,
    store: StorePlan,
    entries: Iterable[tuple[bytes, bytes]],
    changelogs: Mapping[str, Iterable[tuple[bytes, LastValue]]],
    report: Reporter,
    places: RowPlaces | None,
) -> StoreResult:
    """Writes a store of a task into the folder of an attempt. ``entries``: its rows by key; ``changelogs``: by topic, what
    the changelogs must hold. Raises OSError."""
    rows = _Counted(report.written(entries))
    file = None
    # A file without rows can't be written.
    first = next(rows, None)
    if first is not None:
        path = attempt / f"{store.name}.sst"
        write_sst(path, chain([first], rows))
        file = FileResult(
            path=str(path.relative_to(directory)),
            records=rows.count,
            size_bytes=path.stat().st_size,
            digest=file_digest(path),
        )
    bundle, kept = (file, None) if store.persistent else (None, file)
    if store.changelog is None or not store.own_changelog:
        return StoreResult(name=store.name, entries=rows.count, bundle=bundle, rows=kept)
    log, digest = _LogFile(attempt / f"{store.name}.changelog"), 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    with contextlib.closing(log):
        for part in changelog_parts(report.written(changelogs[store.changelog])):
            headers = [last[2] for _, last in part]
            batch = encode_batch(
                [key for key, _ in part],
                [last[0] for _, last in part],
                [last[1] for _, last in part],
                headers=headers if any(headers) else None,
            )
            log.write(batch, len(part))
            if places is not None:
                places.add([(key, last[0]) for key, last in part])
            digest += digest_sum((key, value, time_ms) for key, (value, time_ms, _) in part)
            times = [last[1] for _, last in part]
            oldest_ms = min(times) if oldest_ms is None else min(oldest_ms, *times)
            newest_ms = max(times) if newest_ms is None else max(newest_ms, *times)
    return StoreResult(
        name=store.name,
        entries=rows.count,
        bundle=bundle,
        rows=kept,
        changelog=LogResult(topic=store.changelog, partition=partition, file=log.result(directory)),
        changelog_digest=digest_text(digest),
        oldest_ms=oldest_ms,
        newest_ms=newest_ms,
        strays=None if places is None else places.strays(),
    )


class _Counted(Iterator[Entry]):
    """Counts what it gives."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self.count = 0

    def __next__(self) -> Entry:
        entry = next(self._entries)
        self.count += 1
        return entry


def changelog_parts(entries: Iterable[tuple[bytes, LastValue]]) -> Iterator[list[tuple[bytes, LastValue]]]:
    """The records of a changelog, as many at a time as go into a batch."""
    part: list[tuple[bytes, LastValue]] = []
    size = 0
    for entry in entries:
        part.append(entry)
        size += len(entry[0]) + len(entry[1][0] or b"")
        if len(part) == CHANGELOG_BATCH_RECORDS or size >= CHANGELOG_BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
