"""What a backfill has read, computed and dropped, as one value: for people (:mod:`streamsrt.backfill.report_page`) and
programs (``streamsrt backfill report --json``).

1. Everything is out of the plan and the manifests of its finished tasks. Nothing is measured again, so the same directory
   gives the same report.
2. A source partition that tasks of several subtopologies read counts once in ``sources``, and in each of these tasks.
3. ``skew`` compares the tasks of one subtopology: how many times the mean number of records the largest one has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from streamsrt.backfill.handover import Step, load_state
from streamsrt.backfill.manifest import LogResult, TaskManifest, load_manifest
from streamsrt.backfill.plan import BackfillPlan, LakePlan, load_plan


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TopicReport(_Value):
    """What was read of a source topic. ``kept_in``: ``archive``, ``lake`` and ``log``; ``files`` and ``size_bytes``: of
    archive and lake; ``days``: how many records have a timestamp of that day in UTC, as far as the manifests say so;
    ``without_key`` and ``duplicates``: of lakes, as counted by the plan."""

    topic: str
    kept_in: tuple[str, ...]
    partitions: int
    records: int
    files: int
    size_bytes: int
    days: dict[str, int]
    without_key: int = 0
    duplicates: int = 0


class TaskReport(_Value):
    """A finished task. ``records`` includes those of repartition topics; ``written_bytes``: of its stores, changelogs,
    outputs and repartition topics; ``slices``: in how many slices of its keys it was computed;
    ``seconds`` are those of the slowest one and of merging then."""

    task: str
    subtopology: str
    level: int
    records: int
    seconds: float
    records_per_second: int
    dropped_late: int
    dropped: int
    peak_memory_bytes: int
    written_bytes: int
    slices: int


class SubtopologyReport(_Value):
    """The finished tasks of a subtopology. ``skew``: 1.0 if all of them have as many records."""

    subtopology: str
    tasks: int
    records: int
    seconds: float
    skew: float
    largest: str
    slowest: str


class StoreReport(_Value):
    """A store over all of its partitions."""

    store: str
    partitions: int
    entries: int
    changelog_records: int
    size_bytes: int


class WrittenTopicReport(_Value):
    """What was computed for an output or repartition topic."""

    topic: str
    kind: str
    partitions: int
    records: int
    size_bytes: int


class BackfillReport(_Value):
    """A backfill, as far as its tasks are finished. ``unfinished``: the ids of the others; ``seconds``: the sum of what its
    tasks took; ``counters``: the sums of the tasks' counters; ``overtaken``: records that one backfill over everything would
    have processed before the end of the earlier one, of a backfill that continues another."""

    plan: str
    application: str
    application_id: str
    cluster_id: str | None
    planned_ms: int
    hand_over: Step
    unfinished: tuple[str, ...]
    records: int
    seconds: float
    peak_memory_bytes: int
    written_bytes: int
    overtaken: int
    counters: dict[str, int]
    warnings: tuple[str, ...]
    sources: tuple[TopicReport, ...]
    subtopologies: tuple[SubtopologyReport, ...]
    tasks: tuple[TaskReport, ...]
    stores: tuple[StoreReport, ...]
    written: tuple[WrittenTopicReport, ...]


def report_of(directory: Path) -> BackfillReport:
    """The report of the backfill in a directory. Raises PlanError."""
    plan = load_plan(directory)
    manifests = [load_manifest(directory, plan, task.id) for task in plan.tasks]
    return made_report(plan, [each for each in manifests if each is not None], load_state(directory, plan).step)


def made_report(plan: BackfillPlan, manifests: Sequence[TaskManifest], hand_over: Step) -> BackfillReport:
    """The report of a plan of which these tasks are finished."""
    finished = {manifest.task for manifest in manifests}
    tasks = tuple(_task(plan, manifest) for manifest in manifests)
    counters: Counter[str] = Counter()
    for manifest in manifests:
        counters.update(manifest.counters)
    return BackfillReport(
        plan=plan.id,
        application=plan.application,
        application_id=plan.application_id,
        cluster_id=plan.cluster_id,
        planned_ms=plan.created_ms,
        hand_over=hand_over,
        unfinished=tuple(task.id for task in plan.tasks if task.id not in finished),
        records=sum(task.records for task in tasks),
        seconds=sum(task.seconds for task in tasks),
        peak_memory_bytes=max((task.peak_memory_bytes for task in tasks), default=0),
        written_bytes=sum(task.written_bytes for task in tasks),
        overtaken=sum(manifest.overtaken for manifest in manifests),
        counters=dict(counters),
        warnings=plan.warnings,
        sources=tuple(_sources(plan, manifests)),
        subtopologies=tuple(_subtopologies(tasks)),
        tasks=tasks,
        stores=tuple(_stores(manifests)),
        written=tuple(_written(plan, manifests)),
    )


def _task(plan: BackfillPlan, manifest: TaskManifest) -> TaskReport:
    planned = plan.task(manifest.task)
    return TaskReport(
        task=manifest.task,
        subtopology=planned.subtopology,
        level=planned.level,
        records=manifest.records,
        seconds=manifest.seconds,
        records_per_second=round(manifest.records / manifest.seconds) if manifest.seconds else 0,
        dropped_late=manifest.counters.get("dropped_late", 0),
        dropped=manifest.counters.get("dropped", 0),
        peak_memory_bytes=manifest.peak_memory_bytes,
        written_bytes=sum(file.size_bytes for file in manifest.files),
        slices=manifest.slices,
    )


def _sources(plan: BackfillPlan, manifests: Sequence[TaskManifest]) -> Iterator[TopicReport]:
    reads = {(read.topic, read.partition): read for manifest in manifests for read in manifest.reads}
    lakes = {lake.topic: lake for lake in plan.lakes}
    # They come in the order of topics.
    for topic, sources in groupby(plan.sources(), key=attrgetter("topic")):
        ranges = list(sources)
        files = {file.path: file.size_bytes for source in ranges for file in source.archive}
        lake = lakes.get(topic)
        if lake is not None:
            files |= {file.path: file.size_bytes for file in lake.files}
        kinds = {
            "archive": any(source.archive for source in ranges),
            "lake": lake is not None,
            "log": any(source.log_start < source.end for source in ranges),
        }
        found = [reads[source.topic_partition] for source in ranges if source.topic_partition in reads]
        days: Counter[str] = Counter()
        for read in found:
            days.update(read.days)
        yield TopicReport(
            topic=topic,
            kept_in=tuple(kind for kind, is_used in kinds.items() if is_used),
            partitions=len(ranges),
            records=sum(read.records for read in found),
            files=len(files),
            size_bytes=sum(files.values()),
            days=dict(sorted(days.items())),
            **_of_lake(lake),
        )


def _of_lake(lake: LakePlan | None) -> Mapping[str, int]:
    return {} if lake is None else {"without_key": lake.null_keys, "duplicates": lake.duplicates}


def _subtopologies(tasks: Sequence[TaskReport]) -> Iterator[SubtopologyReport]:
    for name in dict.fromkeys(task.subtopology for task in tasks):
        found = [task for task in tasks if task.subtopology == name]
        records = sum(task.records for task in found)
        largest = max(found, key=lambda task: task.records)
        yield SubtopologyReport(
            subtopology=name,
            tasks=len(found),
            records=records,
            seconds=sum(task.seconds for task in found),
            skew=round(largest.records * len(found) / records, 2) if records else 1.0,
            largest=largest.task,
            slowest=max(found, key=lambda task: task.seconds).task,
        )


def _stores(manifests: Sequence[TaskManifest]) -> Iterator[StoreReport]:
    stores = [store for manifest in manifests for store in manifest.stores]
    for name in sorted({store.name for store in stores}):
        found = [store for store in stores if store.name == name]
        files = [file for store in found for file in (store.bundle, store.rows) if file is not None]
        logged = [store.changelog.file.records for store in found if store.changelog is not None]
        yield StoreReport(
            store=name,
            partitions=len(found),
            entries=sum(store.entries for store in found),
            changelog_records=sum(logged),
            size_bytes=sum(file.size_bytes for file in files),
        )


def _written(plan: BackfillPlan, manifests: Sequence[TaskManifest]) -> Iterator[WrittenTopicReport]:
    for kind, logs in (
        ("output", [log for manifest in manifests for log in manifest.outputs]),
        ("repartition", [log for manifest in manifests for log in manifest.repartition]),
    ):
        by_topic: dict[str, list[LogResult]] = {}
        for log in logs:
            by_topic.setdefault(log.topic, []).append(log)
        for topic, found in sorted(by_topic.items()):
            yield WrittenTopicReport(
                topic=topic,
                kind=kind,
                partitions=plan.topics.get(topic, len({log.partition for log in found})),
                records=sum(log.file.records for log in found),
                size_bytes=sum(log.file.size_bytes for log in found),
            )
