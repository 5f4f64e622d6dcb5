"""Makes the plan: asks the cluster, the archives and the application, and freezes what they say.

1. Whatever can be refused is refused here, before anything is computed: missing topics, holes, an application that runs or
   that has offsets already, topologies that can't be replayed.
2. A source partition ends at its last stable offset. It begins where its archive begins, which must be offset 0 unless gaps
   are allowed, else where the log begins.
3. A repartition topic without a count of its own gets the largest count among the inputs of the subtopologies that write it,
   and is raised to its co-partition group: as the group coordinator does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from streamsrt.backfill.application_bundle import check_environment
from streamsrt.backfill.archive import archived_offsets, scan_archive
from streamsrt.backfill.earlier_backfill import (
    EarlierBackfill,
    check_partitions,
    check_same,
    load_earlier,
    not_in_snapshot,
    range_behind,
)
from streamsrt.backfill.errors import ArchiveError, PlanError
from streamsrt.backfill.group import check_new_group
from streamsrt.backfill.lake import Lake, LakeShare, scan_lake
from streamsrt.backfill.lake_formats import check_format
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.operators import check_topology, notes
from streamsrt.backfill.parquet_files import OFFSET, TIMESTAMP, TimesRead
from streamsrt.backfill.plan import (
    ArchiveFile,
    BackfillPlan,
    Changelogs,
    LakePlan,
    SourceRange,
    StoreRepair,
)
from streamsrt.backfill.planned_application import draft_plan
from streamsrt.backfill.planned_topics import check_not_recreated, topic_ids
from streamsrt.backfill.repair.inputs import (
    check_counts,
    check_not_ahead,
    check_not_back,
    check_whole,
    lost_configs,
    repair_of,
    unread_range,
)
from streamsrt.backfill.repair.scope import note_on_global_tables, scope_of
from streamsrt.backfill.slices.division import check_slices, divided
from streamsrt.backfill.sources import Archive, Source
from streamsrt.backfill.spark.session import NOTHING, Shipment, check_installed, open_session
from streamsrt.backfill.table_freezing import check_global_topics
from streamsrt.backfill.task_shape import TaskShape, topic_counts
from streamsrt.client.interface import Network
from streamsrt.client.values import EARLIEST, LATEST, TopicPartition
from streamsrt.wording import counted
from topology.graph.nodes import internal_topic_names
from topology.graph.topology import Topology


@dataclass(frozen=True, slots=True)
class SparkAccess:
    """The connection to Spark: its master, its settings, and the files that it ships to the workers of a cluster."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    shipment: Shipment = NOTHING


def make_plan(
    network: Network,
    application: str,
    *,
    application_id: str,
    bootstrap_servers: str,
    sources: Mapping[str, Source],
    config: Mapping[str, str],
    now_ms: int,
    changelogs: Changelogs = "live",
    spark: SparkAccess | None = None,
    after: Path | None = None,
    store: str | None = None,
    slices: int = 1,
) -> BackfillPlan:
    """The plan. ``sources``: topics whose history is not only in the log; ``after``: the directory of the earlier
    backfill that it continues; ``store``: the one store that is rebuilt; ``slices``: into how many each task is divided
    where that is possible. Raises BackfillError, UserError, BrokerError."""
    topology, settings, drafted = draft_plan(
        network,
        application,
        application_id=application_id,
        bootstrap_servers=bootstrap_servers,
        config=config,
        changelogs=changelogs,
        now_ms=now_ms,
    )
    if spark is not None and spark.shipment.bundle is not None:
        check_environment(spark.shipment.bundle, application, drafted.code_digest, drafted.module_digests)
    check_topology(topology)
    check_global_topics(topology, application_id)
    check_slices(slices, after)
    earlier = None if after is None else load_earlier(after, store)
    if earlier is not None:
        check_same(earlier, drafted)
        drafted = drafted.model_copy(update={"after": earlier.after, "clock_ms": earlier.plan.wall_clock_ms})
    scope = None if store is None else scope_of(topology, store)
    if scope is not None:
        repair = repair_of(network, topology, application_id, scope)
        drafted = drafted.model_copy(update={"repair": repair})
    else:
        check_new_group(
            network,
            application_id,
            goes_on=earlier is not None,
            internal_topics=internal_topic_names(application_id, topology.subtopologies),
            servers=bootstrap_servers,
        )
    shape = TaskShape(topology, settings, topic_counts(network, topology, settings), scope)
    if earlier is not None:
        check_partitions(earlier, shape.counts)
    _check_read(topology, shape, sources)
    times = {topic: TimesRead(is_extracted=shape.is_extracted(topic)) for topic in sources}
    ids = topic_ids(network, shape.source_topics)
    if earlier is not None:
        check_not_recreated(earlier.plan, ids)
    lakes = _lakes(shape, sources, times, spark or SparkAccess(), drafted)
    shares = {topic: shares for topic, (_, shares) in lakes.items()}
    ranges = _ranges(network, shape, sources, shares, times, earlier, drafted.repair)
    internal_topics, tasks = tuple(shape.internal_topics()), shape.tasks(ranges)
    if store is not None:
        check_counts(network, internal_topics, application_id)
        if earlier is None:
            check_whole(ranges.values(), store)
    sliced, unsliced = divided(shape.replayed, settings, sources, slices)
    found = {
        "slices": sliced,
        "topics": dict(sorted(shape.counts.items())),
        "topic_ids": ids,
        "internal_topics": internal_topics,
        "lakes": tuple(lake for lake, _ in lakes.values()),
        "tasks": tuple(tasks if earlier is None else earlier.behind(tasks)),
        "warnings": (
            *_warnings(replace(topology, subtopologies=tuple(shape.replayed)), ranges.values(), earlier, store),
            *(() if scope is None else lost_configs(network, internal_topics, shape.changelog(scope))),
            *(() if scope is None else note_on_global_tables(topology, scope)),
            *_lake_warnings(lake for lake, _ in lakes.values()),
            *_lake_gaps(ranges, shares),
            *(note for topic in sorted(times) for note in times[topic].notes(topic, now_ms)),
            *unsliced,
        ),
    }
    return drafted.model_copy(update=found).sealed()


def _check_read(topology: Topology, shape: TaskShape, sources: Mapping[str, Source]) -> None:
    """Raises PlanError for archives and lakes of topics that no task reads."""
    unknown = sorted(set(sources) - set(shape.source_topics))
    tables = {topic for part in topology.global_subtopologies for topic in part.source_topics}.intersection(unknown)
    if tables:
        raise PlanError(
            f"--archive or --lake is given for {', '.join(sorted(tables))}, from which a global table is filled: that is "
            "read from the log, as an application does that is started. Leave it out"
        )
    if unknown:
        raise PlanError(
            f"--archive is given for {', '.join(unknown)}, which the application does not read; it reads "
            f"{', '.join(sorted(shape.source_topics))}"
        )


# --------------------------------------------------------------------------------------------------------------- ranges


def _lakes(
    shape: TaskShape,
    sources: Mapping[str, Source],
    times: Mapping[str, TimesRead],
    spark: SparkAccess,
    drafted: BackfillPlan,
) -> dict[str, tuple[LakePlan, dict[int, LakeShare]]]:
    """Returns the contents of lakes. Spark is an extra: it is loaded only for a lake that needs it."""
    found = {}
    _check_options(sources)
    with contextlib.ExitStack() as stack:
        session = None
        for topic, lake in sorted(sources.items()):
            if not isinstance(lake, Lake):
                continue
            if not lake.is_read_by_spark:
                found[topic] = scan_lake(lake, topic, shape.counts[topic], times=times[topic])
                continue
            if session is None:
                opened = open_session(spark.master, conf=spark.conf, shipment=spark.shipment)
                session = stack.enter_context(contextlib.closing(opened))
            from streamsrt.backfill.spark.encoding import SourceSerdes
            from streamsrt.backfill.spark.scan import scan_by_spark

            found[topic] = scan_by_spark(
                session.spark,
                lake,
                topic,
                shape.counts[topic],
                serdes=SourceSerdes.of(drafted, session.python_path),
                times=times[topic],
            )
    return found


def _check_options(sources: Mapping[str, Source]) -> None:
    lakes = {topic: lake for topic, lake in sorted(sources.items()) if isinstance(lake, Lake) and lake.is_read_by_spark}
    for topic, lake in lakes.items():
        check_format(topic, lake.format)
    if lakes:
        check_installed()
        from streamsrt.backfill.spark.scan import check_options

        for topic, lake in lakes.items():
            check_options(lake, topic)


def _ranges(
    network: Network,
    shape: TaskShape,
    sources: Mapping[str, Source],
    lakes: Mapping[str, Mapping[int, LakeShare]],
    times: Mapping[str, TimesRead],
    earlier: EarlierBackfill | None,
    repair: StoreRepair | None,
) -> dict[TopicPartition, SourceRange]:
    partitions = [(topic, index) for topic in sorted(shape.source_topics) for index in range(shape.counts[topic])]
    starts = network.admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = network.admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    read = {} if earlier is None else {source.topic_partition: source for source in earlier.plan.sources()}
    ranges: dict[TopicPartition, SourceRange] = {}
    for topic in sorted(shape.source_topics):
        source = sources.get(topic)
        files: dict[int, tuple[ArchiveFile, ...]] = {}
        if isinstance(source, Archive):
            files = scan_archive(source.path, allow_gaps=source.allow_gaps, times=times[topic], topic=topic)
        surplus = sorted(index for index in files if index >= shape.counts[topic])
        if surplus:
            raise ArchiveError(
                f"the archive of {topic} has partition {surplus[0]}, and the topic has "
                f"{counted(shape.counts[topic], 'partition')}: it is the archive of another topic, or the topic was "
                "recreated"
            )
        for index in range(shape.counts[topic]):
            tp = (topic, index)
            log, shares = (starts[tp].offset, ends[tp].offset), lakes.get(topic, {})
            if repair is not None:
                before = read.get(tp)
                ranges[tp] = _read_range(network, tp, source, files.get(index, ()), shares, log, repair, before)
            elif earlier is None:
                ranges[tp] = _range(network, tp, source, files.get(index, ()), shares, log)
            else:
                ranges[tp] = range_behind(read[tp], source, files.get(index, ()), shares, *log)
            if ranges[tp].allow_gaps:
                _check_nothing_left_out(network, ranges[tp], log[0] if earlier is None else max(log[0], read[tp].end))
    return ranges


def _read_range(
    network: Network,
    tp: TopicPartition,
    source: Source | None,
    files: tuple[ArchiveFile, ...],
    shares: Mapping[int, LakeShare],
    log: tuple[int, int],
    repair: StoreRepair,
    before: SourceRange | None,
) -> SourceRange:
    """What the application has read of a partition, for a repair of one of its stores. ``before``: what an earlier backfill
    has read of it."""
    read = repair.committed.get(f"{tp[0]}-{tp[1]}")
    if read is None:
        return unread_range(tp)
    if before is not None:
        check_not_back(tp, before.end, read.offset)
        return range_behind(before, source, files, shares, log[0], read.offset)
    share = shares.get(tp[1])
    lake_ends = [share.next_offset] if share is not None and share.next_offset is not None else []
    check_not_ahead(tp, [*(file.next_offset for file in files), *lake_ends], read.offset)
    return _range(network, tp, source, files, shares, (log[0], read.offset))


def _range(
    network: Network,
    tp: TopicPartition,
    source: Source | None,
    files: tuple[ArchiveFile, ...],
    shares: Mapping[int, LakeShare],
    log: tuple[int, int],
) -> SourceRange:
    """The whole history of a partition. ``log``: the first and the end offset of what the log holds now."""
    (topic, index), (first, end) = tp, log
    if isinstance(source, Lake):
        share = shares.get(index)
        if source.until_ms is not None:
            return _cut(network, tp, share, source, first, end)
        exact = any(each.first_offset is not None for each in shares.values())
        if exact and share is None:
            # As an archive without a file of the partition: what the log has deleted is nowhere.
            return splice(tp, (), first, end, allow_gaps=source.allow_gaps, kind="lake")
        return splice_lake(tp, share, first, end, allow_gaps=source.allow_gaps)
    if isinstance(source, Archive):
        return splice(tp, files, first, end, allow_gaps=source.allow_gaps)
    return SourceRange(topic=topic, partition=index, start=first, end=end, log_start=first)


def _cut(
    network: Network, tp: TopicPartition, share: LakeShare | None, lake: Lake, log_first: int, log_end: int
) -> SourceRange:
    """The range of a partition whose history is in a lake up to a time, and in the log from then on. Raises ArchiveError."""
    assert lake.until_ms is not None
    found = network.admin.list_offsets({tp: lake.until_ms})[tp].offset
    first = min(found, log_end) if found >= 0 else log_end
    if first == log_first and log_first > 0 and not lake.allow_gaps:
        raise ArchiveError(
            f"the log of {tp[0]}-{tp[1]} begins at offset {log_first}, and holds no record before --lake-until: records of "
            "that time may have been deleted from the log. Give a later time, up to which the lake is complete, or use "
            "--allow-gaps if there are none"
        )
    ranged = splice_lake(tp, share, first, log_end, allow_gaps=False)
    return ranged.model_copy(update={"log_from_ms": lake.until_ms})


def _check_nothing_left_out(network: Network, source: SourceRange, log_first: int) -> None:
    """Raises ArchiveError where the log holds records that an archive or a lake lacks, before its first one or between
    others: allowed gaps are offsets that no record has."""
    for columns in read_log(network, (source.topic, source.partition), log_first, source.start):
        if len(columns):
            raise ArchiveError(
                f"the history of {source.topic}-{source.partition} begins at offset {source.start}, and the log holds a "
                f"record at offset {columns.offset_at(0)} before that: --allow-gaps is for offsets without a record. "
                "Archive what is missing"
            )
    for first, end, archived in _archived_with_gaps(source, log_first):
        for columns in read_log(network, source.topic_partition, first, end):
            for index in range(len(columns)):
                _check_archived(source, columns.offset_at(index), archived)
    if source.lake_records and log_first <= source.start:
        logged = sum(
            len(columns) for columns in read_log(network, source.topic_partition, source.start, source.log_start)
        )
        if logged > source.lake_records:
            raise ArchiveError(
                f"the lake of {source.topic}-{source.partition} holds {source.lake_records} records of offsets "
                f"{source.start} to {source.log_start - 1}, and the log {logged}: --allow-gaps is for offsets without a "
                "record. Write what is missing into the lake"
            )


def _archived_with_gaps(source: SourceRange, log_first: int) -> Iterator[tuple[int, int, Container[int]]]:
    """Offsets of an archive that lacks some of them, as far as the log still holds them, and those that it has."""
    position = source.start
    for file in source.archive:
        if position < file.first_offset:
            yield max(position, log_first), file.first_offset, ()
        if file.records < file.next_offset - file.first_offset and file.next_offset > log_first:
            yield max(file.first_offset, log_first), file.next_offset, archived_offsets(file)
        position = file.next_offset


def _check_archived(source: SourceRange, offset: int, archived: Container[int]) -> None:
    if offset not in archived:
        raise ArchiveError(
            f"the archive of {source.topic}-{source.partition} has no offset {offset}, and the log holds a record there: "
            "--allow-gaps is for offsets without a record. Archive what is missing"
        )


def splice(
    tp: TopicPartition,
    files: tuple[ArchiveFile, ...],
    log_first: int,
    log_end: int,
    *,
    allow_gaps: bool,
    kind: str = "archive",
) -> SourceRange:
    """Returns the range of a partition that is read from its archive up to some offset, and from the log after that. Raises
    ArchiveError.

    ``log_first``, ``log_end``: what the log holds now, the end not included. ``kind``: what errors call the archive.
    """
    topic, partition = tp
    archive_first = files[0].first_offset if files else log_first
    archive_end = files[-1].next_offset if files else 0
    if archive_end > log_end:
        raise ArchiveError(
            f"the {kind} of {topic}-{partition} goes to offset {archive_end - 1}, and the log ends at {log_end}: it "
            f"is the {kind} of another topic, or the topic was recreated. Give the {kind} that belongs to this topic"
        )
    if archive_first > 0 and not allow_gaps:
        raise ArchiveError(
            f"the history of {topic}-{partition} begins at offset {archive_first}: the {kind} has nothing before "
            "that. Bring "
            "the missing files back, or use --allow-gaps to start there"
        )
    if archive_end < log_first and files and not allow_gaps:
        raise ArchiveError(
            f"offsets {archive_end} to {log_first - 1} of {topic}-{partition} are missing: the {kind} ends before "
            f"them, and the log begins after them. Add them to the {kind}, or use --allow-gaps to skip them"
        )
    return SourceRange(
        topic=topic,
        partition=partition,
        start=archive_first,
        end=log_end,
        log_start=max(archive_end, log_first) if archive_end < log_end else log_end,
        archive=files,
        allow_gaps=allow_gaps,
    )


def splice_lake(
    tp: TopicPartition, share: LakeShare | None, log_first: int, log_end: int, *, allow_gaps: bool
) -> SourceRange:
    """Returns the range of a partition that is read from a lake, and from the log after that. Raises ArchiveError."""
    if share is None or share.first_offset is None or share.next_offset is None:
        # Without offsets the lake's records stand directly before those of the log.
        records = 0 if share is None else share.records
        return SourceRange(
            topic=tp[0],
            partition=tp[1],
            start=log_first - records,
            end=log_end,
            log_start=log_first,
            lake_records=records,
            lake_files=0 if share is None else share.files,
            allow_gaps=allow_gaps,
        )
    as_one_file = ArchiveFile(
        path="", first_offset=share.first_offset, next_offset=share.next_offset, records=share.records, size_bytes=0
    )
    found = splice(tp, (as_one_file,), log_first, log_end, allow_gaps=allow_gaps, kind="lake")
    return found.model_copy(update={"archive": (), "lake_records": share.records, "lake_files": share.files})


def _lake_warnings(lakes: Iterable[LakePlan]) -> Iterator[str]:
    for lake in lakes:
        if lake.order != OFFSET:
            by = f"its records are processed in the order of column {lake.order}, whatever order they were written in"
            yield (
                f"the lake of {lake.topic} has no offsets: {by}"
                + ("" if lake.order != TIMESTAMP else f" (--lake-order {lake.topic}=COLUMN names another one)")
            )
        if lake.order != OFFSET and lake.until_ms is None:
            yield (
                f"all of the lake of {lake.topic} counts as older than what the log holds, and a record that is in both "
                f"counts twice (--lake-until {lake.topic}=TIME separates them)"
            )
        if lake.duplicates:
            yield f"{lake.duplicates} rows of the lake of {lake.topic} are left out: others have the same {lake.id}"
        if lake.null_keys:
            yield f"{lake.null_keys} records in the lake of {lake.topic} have no key"


def _warnings(
    topology: Topology, ranges: Iterable[SourceRange], earlier: EarlierBackfill | None, store: str | None
) -> list[str]:
    """What to know about a plan for these subtopologies. ``store``: the only one that is written."""
    found = [*notes(topology), *(() if earlier is None else not_in_snapshot(topology))]
    for each in topology.subtopologies:
        for spec in each.stores:
            if store is None and not spec.logging and spec.source_topic is None:
                found.append(f"store {spec.name} has no changelog: only installed bundles have its state")
    ranges = list(ranges)
    truncated = [source for source in ranges if source.start > 0 and source.log_from_ms is None]
    if truncated and earlier is None:
        partitions = ", ".join(f"{source.topic}-{source.partition} (from {source.start})" for source in truncated[:5])
        found.append(f"the log does not hold the whole history; older records are left out: {partitions}")
    return [*found, *_gaps(ranges)]


def _gaps(ranges: Iterable[SourceRange]) -> Iterator[str]:
    """Yields the gaps in archives that are allowed and exist."""
    for source in ranges:
        if source.archive and source.allow_gaps:
            end = source.archive[-1].next_offset
            yield from _gaps_before(source, end, "archive")


def _lake_gaps(
    ranges: Mapping[TopicPartition, SourceRange], shares: Mapping[str, Mapping[int, LakeShare]]
) -> Iterator[str]:
    """Yields the gaps in lakes with offsets that are allowed and exist."""
    for (topic, partition), source in ranges.items():
        share = shares.get(topic, {}).get(partition)
        if share is not None and share.next_offset is not None and source.allow_gaps and source.lake_records:
            yield from _gaps_before(source, share.next_offset, "lake")


def _gaps_before(source: SourceRange, end: int, kind: str) -> Iterator[str]:
    """Yields the gaps in an archive or a lake that ends at an offset, and between it and the log."""
    span = end - source.start
    missing = span - source.archived_records
    if missing:
        yield f"the {kind} of {source.topic}-{source.partition} spans {span} offsets, {missing} have no record"
    if end < source.log_start < source.end:
        yield (
            f"offsets {end} to {source.log_start - 1} of {source.topic}-{source.partition} are neither in the {kind} nor "
            "in the log: they are left out"
        )
