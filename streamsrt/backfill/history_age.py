"""How old the history of a plan is: what a hand-over will say about changelogs is said when the plan is made.

1. The age is that of the last record of the partition that was written to least recently, of those that a changelog is
   computed from. A hand-over knows more: the records of the changelog itself. So this is a warning, and decides nothing.
2. Of a partition only its end is read, and only if a changelog has windows or versions.
3. A topic whose times a program extracts counts for nothing: only the program knows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from streamsrt.backfill.kept_history import kept_for, limited
from streamsrt.backfill.parquet_files import TIMESTAMP, milliseconds, opened
from streamsrt.backfill.plan import BackfillPlan, SourceRange, TaskPlan
from streamsrt.backfill.planned_application import application_of
from streamsrt.backfill.sources import LogReader
from streamsrt.client.interface import Network
from streamsrt.client.values import TopicPartition
from streamsrt.tasks.task_config import TaskConfig

_LAST_OFFSETS = 10
"""Some of the last ones may be no records, but ends of transactions."""


def with_notes_on_age(network: Network, plan: BackfillPlan) -> BackfillPlan:
    """Returns the plan with a warning for each changelog that needs longer retention than the application gives it. Raises
    BrokerError, ArchiveError."""
    topics = {topic.name for topic in limited(plan)}
    if not topics:
        return plan
    newest = _newest_times(network, plan)
    tasks = {task.id: task for task in plan.tasks}
    ages: dict[str, int] = {}
    for task in plan.tasks:
        times = [newest[tp] for tp in _inputs(task, tasks) if tp in newest]
        for store in task.stores:
            # A repair computes others, too, and writes one.
            if plan.repair is not None and store.name != plan.repair.store:
                continue
            if times and store.changelog in topics:
                ages[store.changelog] = max(plan.created_ms - max(times), ages.get(store.changelog, 0))
    notes = (f"old history; at commit, {kept}" for kept in kept_for(plan, ages))
    return plan.model_copy(update={"warnings": (*plan.warnings, *notes)})


def _inputs(task: TaskPlan, tasks: Mapping[str, TaskPlan]) -> set[TopicPartition]:
    """The source partitions that a task is computed from."""
    found, waiting, seen = set(), [task.id], set()
    while waiting:
        task_id = waiting.pop()
        if task_id in seen:
            continue
        seen.add(task_id)
        found |= {source.topic_partition for source in tasks[task_id].sources}
        waiting += [each for source in tasks[task_id].repartition for each in source.upstream]
    return found


def _newest_times(network: Network, plan: BackfillPlan) -> dict[TopicPartition, int]:
    """The time in ms at the end of each source partition, where it is known."""
    extracted = _extracted(plan)
    sources = [source for source in plan.sources() if source.topic not in extracted]
    found = {tp: time for tp, time in _archived(plan, sources) if time is not None}
    ends = [
        source.model_copy(update={"log_start": max(source.log_start, source.end - _LAST_OFFSETS)})
        for source in sources
        if source.log_start < source.end
    ]
    if not ends:
        return found
    log = LogReader(network, ends)
    for source in ends:
        times = [max(columns.timestamps) for columns in log.columns(source) if len(columns)]
        if times:
            found[source.topic_partition] = max(times)
    return found


def _extracted(plan: BackfillPlan) -> set[str]:
    topology, config = application_of(plan)
    default = TaskConfig.of(config).default_timestamp_extractor
    return {
        topic
        for part in topology.subtopologies
        for source in part.sources
        if source.timestamp_extractor or default
        for topic in source.topics
    }


def _archived(plan: BackfillPlan, sources: Iterable[SourceRange]) -> Iterable[tuple[TopicPartition, int | None]]:
    lakes = {lake.topic: max(lake.days) for lake in plan.lakes if lake.days}
    for source in sources:
        if source.archive:
            yield source.topic_partition, _last_time(Path(source.archive[-1].path))
        elif source.lake_records and source.topic in lakes:
            day = datetime.fromisoformat(lakes[source.topic]).replace(tzinfo=UTC) + timedelta(days=1)
            yield source.topic_partition, int(day.timestamp() * 1_000)


def _last_time(path: Path) -> int | None:
    with opened(path) as file:
        groups = file.metadata.num_row_groups
        if not groups:
            return None
        column = file.read_row_group(groups - 1, columns=[TIMESTAMP]).column(TIMESTAMP)
        return max((max(milliseconds(part)) for part in column.chunks if len(part)), default=None)
