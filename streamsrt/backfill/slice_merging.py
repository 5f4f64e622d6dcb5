"""The results of the slices of a task as the one result that the task has without slices.

1. Rows and changelogs are merged in the order of keys. No two slices have the same key: its bytes decide.
2. Outputs are merged as a repartition topic is read from several tasks: by time. The records of one key keep their order;
   records of several keys may stand in another order than without slices.
3. Times are the latest of all slices, counts are sums.
4. What the slices have left is deleted when their task is finished and no engine asks for it any more.
"""

from __future__ import annotations

import contextlib
import heapq
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from streamsrt.backfill.attempts import new_attempt
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.full_disk import full_disk_said
from streamsrt.backfill.manifest import (
    LogResult,
    PartitionRead,
    StoreResult,
    TaskManifest,
    finished_manifest,
    load_manifest,
    manifest_path,
    publish,
)
from streamsrt.backfill.order import merge
from streamsrt.backfill.plan import BackfillPlan, TaskPlan
from streamsrt.backfill.planned_application import application_of, subtopology_of
from streamsrt.backfill.replay import OfflineSettings
from streamsrt.backfill.row_places import places_of
from streamsrt.backfill.run_task import STATE_FOLDER, LogFiles, Reporter, settings_of, store_result
from streamsrt.backfill.slices.share import slices_of
from streamsrt.backfill.sources import read_batches
from streamsrt.backfill.task_state import LastValue, TaskStores
from streamsrt.state.rocksdb import RocksDBStore
from streamsrt.state.snapshots import Values
from streamsrt.state.windowed import STREAM_TIME_KEY
from streamsrt.tasks.input.partition_group import TopicPartition
from streamsrt.tasks.output.record_collector import RecordCollector
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import RowsOfKey, rows_of

Row = TypeVar("Row")
_MARKED = (RowsOfKey.WINDOWS, RowsOfKey.SESSIONS)
"""Rows of these stores have a time and a key; without a key there is the store's stream time."""


def merge_if_ready(directory: Path, plan: BackfillPlan, task: TaskPlan) -> TaskManifest | None:
    """Makes a task finished whose slices all are; its manifest, None if slices are missing, it has none, or it is finished
    already. Raises PlanError, BackfillError, OSError."""
    slices = slices_of(plan, task)
    if not slices or manifest_path(directory, task.id).exists():
        return None
    if any(load_manifest(directory, plan, each.id) is None for each in slices):
        return None
    parts = [finished_manifest(directory, plan, each.id) for each in slices]
    with full_disk_said(directory, stores=True), new_attempt(directory, task.id) as attempt:
        manifest = _merged(directory, plan, task, parts, attempt)
        return manifest if publish(directory, manifest) else finished_manifest(directory, plan, task.id)


def drop_slices(directory: Path, plan: BackfillPlan) -> None:
    """Deletes the manifests of slices whose task is finished: their files are leftovers from then on. Only while no other
    driver has the backfill."""
    for task in plan.tasks:
        if slices_of(plan, task) and manifest_path(directory, task.id).exists():
            for each in slices_of(plan, task):
                manifest_path(directory, each.id).unlink(missing_ok=True)


def _merged(
    directory: Path, plan: BackfillPlan, task: TaskPlan, parts: Sequence[TaskManifest], attempt: Path
) -> TaskManifest:
    started = time.monotonic()
    topology, config = application_of(plan)
    subtopology = subtopology_of(topology, config, task)
    places = places_of(topology, subtopology, plan, task)
    specs = {spec.name: spec for spec in subtopology.stores}
    report = Reporter(directory, task.id, started)
    results: list[StoreResult] = []
    for number, store in enumerate(task.stores):
        of_slices = [part.stores[number] for part in parts]
        with contextlib.closing(TaskStores(attempt / STATE_FOLDER)) as state:
            rows = merged_rows(specs[store.name], [_rows(directory, each, state) for each in of_slices])
            logged = merged_by_key(store.name, [_logged(directory, each) for each in of_slices])
            changelogs = {} if store.changelog is None else {store.changelog: logged}
            results.append(
                store_result(
                    directory, attempt, task.partition, store, rows, changelogs, report, places.get(store.name)
                )
            )
    return TaskManifest(
        task=task.id,
        fingerprint=plan.fingerprint,
        attempt=str(attempt.relative_to(directory)),
        reads=tuple(_reads(task, parts)),
        stores=tuple(results),
        outputs=tuple(_outputs(directory, attempt, parts, settings_of(plan, config))),
        stream_time_ms=max(part.stream_time_ms for part in parts),
        operator_times_ms=_latest(part.operator_times_ms for part in parts),
        counters={name: sum(part.counters[name] for part in parts) for name in parts[0].counters},
        flushes=sum(part.flushes for part in parts),
        carried=merged_snapshots([part.carried or {} for part in parts]),
        peak_memory_bytes=max(part.peak_memory_bytes for part in parts),
        seconds=max(part.seconds for part in parts) + time.monotonic() - started,
        slices=len(parts),
    )


# --------------------------------------------------------------------------------------------------------------- stores


def _rows(directory: Path, result: StoreResult, state: TaskStores) -> Iterator[tuple[bytes, bytes]]:
    file = result.bundle or result.rows
    if file is None:
        return iter(())
    store = state.open(result.name)
    assert isinstance(store, RocksDBStore), "slices have their stores on disk"
    store.ingest(directory / file.path, changelog_offset=None)
    return store.range()


def _logged(directory: Path, result: StoreResult) -> Iterator[tuple[bytes, LastValue]]:
    if result.changelog is None:
        return
    for columns in read_batches(directory / result.changelog.file.path):
        headers = columns.headers or [()] * len(columns)
        for key, value, at, header in zip(columns.keys, columns.values, columns.timestamps, headers, strict=True):
            assert key is not None, "changelogs of stores that can be sliced have keys"
            yield key, (value, at, tuple(header))


def merged_rows(spec: StoreSpec, parts: Sequence[Iterable[tuple[bytes, bytes]]]) -> Iterator[tuple[bytes, bytes]]:
    """The rows of a store, by key, out of those of its slices. Raises PlanError if two slices have one key."""
    rows = heapq.merge(*parts, key=itemgetter(0))
    if rows_of(spec) not in _MARKED:
        yield from _checked(spec.name, rows)
        return
    marks: list[bytes] = []
    for key, row in rows:
        if key != STREAM_TIME_KEY:
            yield from _marked(marks)
            marks = []
            yield from _checked(spec.name, chain([(key, row)], rows))
            return
        marks.append(row)
    yield from _marked(marks)


def _marked(marks: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The stream time of a store, whose bytes are in the order of times."""
    if marks:
        yield STREAM_TIME_KEY, max(marks)


def merged_by_key(store: str, parts: Sequence[Iterable[tuple[bytes, Row]]]) -> Iterator[tuple[bytes, Row]]:
    """Entries in the order of keys, out of those of slices. Raises PlanError if two slices have one key."""
    return _checked(store, heapq.merge(*parts, key=itemgetter(0)))


def _checked(store: str, entries: Iterable[tuple[bytes, Row]]) -> Iterator[tuple[bytes, Row]]:
    before: bytes | None = None
    for key, row in entries:
        if key == before:
            raise PlanError(
                f"two slices have rows of one key in store {store}: its serde does not always write {key!r} for one "
                "key. Plan without --slices in another --dir"
            )
        before = key
        yield key, row


# ------------------------------------------------------------------------------------------------------ outputs and times


def _outputs(
    directory: Path, attempt: Path, parts: Sequence[TaskManifest], settings: OfflineSettings
) -> Iterator[LogResult]:
    logs: dict[TopicPartition, dict[TopicPartition, Path]] = {}
    for number, part in enumerate(parts):
        for log in part.outputs:
            paths = logs.setdefault((log.topic, log.partition), {})
            paths[log.topic, number] = directory / log.file.path
    with LogFiles(attempt) as files:
        collector = RecordCollector(files.write, settings.partitions_of_topic, compression=settings.compression)
        for (topic, partition), paths in sorted(logs.items()):
            add = partial(collector.add, topic, partition=partition)
            for _, columns in merge({tp: read_batches(path) for tp, path in paths.items()}):
                add(columns.keys, columns.values, columns.timestamps, columns.headers)
            collector.flush()
        yield from files.results(directory)


def _reads(task: TaskPlan, parts: Sequence[TaskManifest]) -> Iterator[PartitionRead]:
    repartition = {source.topic_partition for source in task.repartition}
    for each in zip(*(part.reads for part in parts), strict=True):
        records, days = sum(read.records for read in each), Counter[str]()
        for read in each:
            days.update(read.days)
        first = each[0]
        yield first.model_copy(
            update={
                "end": first.start + records if (first.topic, first.partition) in repartition else first.end,
                "records": records,
                "partition_time_ms": max(read.partition_time_ms for read in each),
                "days": dict(sorted(days.items())),
            }
        )


def _latest(times: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in times:
        for name, ms in each.items():
            found[name] = max(ms, found.get(name, ms))
    return found


def merged_snapshots(parts: Sequence[Mapping[str, Values]]) -> dict[str, Values]:
    """What a task carries on beside its stores, out of what its slices do: the latest of all times."""
    found: dict[str, Values] = {}
    for part in parts:
        for name, values in part.items():
            known = found.setdefault(name, values)
            found[name] = [_later(one, other) for one, other in zip(known, values, strict=True)]
    return found


def _later(one: int | str, other: int | str) -> int | str:
    return max(one, other) if isinstance(one, int) and isinstance(other, int) else one
