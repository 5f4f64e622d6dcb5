"""A plan that continues an earlier backfill: what must be the same, and where each partition starts.

1. The earlier backfill is complete: every task is finished, and every file has its digest. Whether it was committed makes no
   difference to what is computed.
2. Application, code, topology, settings, cluster and partition counts are those of the earlier plan.
3. Each partition starts at the offset at which the earlier plan ended, without a gap. So the new part is processed after all
   of the old part, even where it has records that are older than what other partitions had by then.
4. State that can't be restored is refused: punctuations that were scheduled while records were processed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamsrt.application import is_same_application
from streamsrt.backfill.archive import archived_offsets
from streamsrt.backfill.errors import ArchiveError, BackfillError, PlanError
from streamsrt.backfill.lake import Lake, LakeShare
from streamsrt.backfill.manifest import TaskManifest
from streamsrt.backfill.plan import After, ArchiveFile, BackfillPlan, SourceRange, TaskPlan, load_plan
from streamsrt.backfill.sources import Archive, Source
from streamsrt.backfill.verify import verify_results
from streamsrt.client.values import TopicPartition
from streamsrt.operators.engine.environment import PUNCTUATIONS
from streamsrt.operators.engine.punctuation_queue import scheduled_later
from streamsrt.wording import counted
from topology.graph.nodes import ProcessorNode
from topology.graph.operations.traits import Code, traits_of
from topology.graph.topology import Topology

_ANEW = "or plan a complete backfill in another --dir, without --after"


@dataclass(frozen=True, slots=True)
class EarlierBackfill:
    """A finished backfill, in ``directory``."""

    directory: Path
    plan: BackfillPlan
    manifests: Sequence[TaskManifest]

    @property
    def after(self) -> After:
        """The part of a plan that continues this one."""
        return After(directory=str(self.directory.absolute()), fingerprint=self.plan.fingerprint)

    def ends(self) -> dict[TopicPartition, int]:
        """The end offset of each partition that it read."""
        return {(read.topic, read.partition): read.end for manifest in self.manifests for read in manifest.reads}

    def behind(self, tasks: Iterable[TaskPlan]) -> Iterator[TaskPlan]:
        """The same tasks, which read repartition topics behind what the earlier ones did."""
        ends = self.ends()
        for task in tasks:
            moved = tuple(
                each.model_copy(update={"start": ends.get(each.topic_partition, 0)}) for each in task.repartition
            )
            yield task.model_copy(update={"repartition": moved})


def load_earlier(directory: Path, store: str | None = None) -> EarlierBackfill:
    """The backfill in a directory. ``store``: the only one that is wanted of it. Raises PlanError if it is incomplete or
    can't be continued."""
    try:
        plan = load_plan(directory)
        manifests = verify_results(directory, plan)
    except BackfillError as error:
        raise PlanError(f"--after {directory}: that backfill can't be continued: {error}") from None
    if plan.repair is not None and plan.repair.store != store:
        raise PlanError(
            f"--after {directory}: that plan rebuilds store {plan.repair.store!r} only (--store), and is not the state of "
            + ("the application" if store is None else f"store {store!r}")
            + f". Give the directory of a backfill of all stores, or --store {plan.repair.store}"
        )
    if plan.copied is not None:
        raise PlanError(
            f"--after {directory}: that plan takes over the state of {plan.copied.application_id!r} (--state-of), and has "
            "read no history. Commit it, and start the application"
        )
    for manifest in manifests:
        _check_snapshot(directory, manifest)
    return EarlierBackfill(directory, plan, manifests)


def _check_snapshot(directory: Path, manifest: TaskManifest) -> None:
    if manifest.carried is None:
        raise PlanError(
            f"--after {directory}: task {manifest.task} was run by a version of streamsrt that did not keep what is needed "
            f"to continue: plan and run that backfill again, {_ANEW}"
        )
    later = sorted(scheduled_later(manifest.carried.get(PUNCTUATIONS, [])))
    if later:
        raise PlanError(
            f"--after {directory}: {', '.join(later)} scheduled punctuations while records were processed, and their "
            f"functions can't be restored. Schedule them in init() and run that backfill again, {_ANEW}"
        )


def check_same(earlier: EarlierBackfill, now: BackfillPlan) -> None:
    """Raises PlanError if the draft plan ``now`` can't continue the earlier one."""
    for name, says in _SAME.items():
        before, found = getattr(earlier.plan, name), getattr(now, name)
        if before != found and not (name == "application" and is_same_application(before, found)):
            raise PlanError(f"--after {earlier.directory}: {says.format(before=before, found=found)}, {_ANEW}")
    changed = sorted(
        module
        for module, digest in earlier.plan.module_digests.items()
        if now.module_digests.get(module, digest) != digest
    )
    if changed:
        raise PlanError(
            f"--after {earlier.directory}: the source of {', '.join(changed)}, which the application imports, has changed "
            f"since then, and the state of two versions must not be mixed. Bring back what was backfilled, {_ANEW}"
        )
    if earlier.plan.changelogs == "live" and now.changelogs == "full":
        raise PlanError(
            f"--after {earlier.directory}: what was beyond retention is not in its changelogs, so these can't be full. "
            f"Leave out --full-changelogs, {_ANEW}"
        )
    before_id, found_id = earlier.plan.cluster_id, now.cluster_id
    if before_id is not None and found_id is not None and before_id != found_id:
        raise PlanError(
            f"--after {earlier.directory}: it was planned on cluster {before_id}, and this is cluster {found_id}, which has "
            f"other offsets. Give the --bootstrap-servers of that one, {_ANEW}"
        )


_SAME = {
    "application_id": "it is of application {before!r}, and this one is {found!r}. Give the same --application-id",
    "application": "it is of {before}, and this plan is of {found}. Name the same MODULE:ATTRIBUTE",
    "code_digest": (
        "the source of the application has changed since then (digest {before}, now {found}), and the state of two versions "
        "must not be mixed. Bring back the version that was backfilled"
    ),
    "topology_digest": (
        "it is of another topology (digest {before}, now {found}). Bring back the version that was backfilled"
    ),
    "config": "its settings were {before}, and these are {found}. Give the same --config",
}


def check_partitions(earlier: EarlierBackfill, counts: Mapping[str, int]) -> None:
    """Raises PlanError where a topic has another number of partitions than then."""
    for topic, before in earlier.plan.topics.items():
        now = counts.get(topic, before)
        if now != before:
            raise PlanError(
                f"--after {earlier.directory}: topic {topic!r} has {counted(now, 'partition')}, and had "
                f"{before} then: keys are in "
                f"other partitions now. Plan a complete backfill in another --dir, without --after"
            )


def not_in_snapshot(topology: Topology) -> Iterator[str]:
    """Notes about state that users may expect to be continued, but is not."""
    nodes = [
        f"{node.name} ({node.site})"
        for each in topology.subtopologies
        for node in each.nodes
        if isinstance(node, ProcessorNode) and traits_of(node.operation).code is Code.PROCESSOR
    ]
    if nodes:
        yield (
            f"{', '.join(nodes)}: only stores and punctuations are continued from the earlier backfill; attributes of "
            "processor objects are lost, as after a restart"
        )


# --------------------------------------------------------------------------------------------------------------- ranges


def range_behind(
    earlier: SourceRange,
    source: Source | None,
    files: Sequence[ArchiveFile],
    shares: Mapping[int, LakeShare],
    log_first: int,
    log_end: int,
) -> SourceRange:
    """Returns what is read of a partition after the end of the earlier range. ``files``, ``shares``: the records of its
    topic in an archive or a lake; ``log_first``, ``log_end``: the present range of the log. Raises ArchiveError."""
    named, cut = f"{earlier.topic}-{earlier.partition}", earlier.end
    if log_end < cut:
        raise ArchiveError(
            f"the log of {named} ends at offset {log_end}, and the earlier backfill has read it up to {cut}: the topic was "
            f"recreated, or this is another cluster. Give the cluster of that backfill, {_ANEW}"
        )
    allow_gaps = isinstance(source, Archive | Lake) and source.allow_gaps
    left = tuple(file for file in files if file.next_offset > cut)
    first, end, lake = (left[0].first_offset, left[-1].next_offset, None) if left else (cut, cut, None)
    if isinstance(source, Lake):
        lake = _share(named, cut, source, shares, earlier.partition)
        if lake is not None and lake.first_offset is not None and lake.next_offset is not None:
            first, end = lake.first_offset, lake.next_offset
    if end > log_end:
        raise ArchiveError(
            f"the history of {named} goes to offset {end - 1}, and the log ends at {log_end}: it is the archive or lake of "
            "another topic, or the topic was recreated. Give what belongs to this topic"
        )
    _check_no_gap(named, cut, first, (end, log_first), allow_gaps=allow_gaps)
    return SourceRange(
        topic=earlier.topic,
        partition=earlier.partition,
        start=cut,
        end=log_end,
        log_start=max(end, log_first) if end < log_end else log_end,
        archive=left,
        lake_records=0 if lake is None else lake.records,
        lake_files=0 if lake is None else lake.files,
        log_from_ms=earlier.log_from_ms,
        allow_gaps=allow_gaps,
        passed_records=_passed(left[0], cut) if left else 0,
    )


def _check_no_gap(named: str, cut: int, first: int, follows: tuple[int, int], *, allow_gaps: bool) -> None:
    """Raises ArchiveError if there is a gap between the earlier backfill, the archive from ``first`` on, and the log.
    ``follows``: where the archive ends, and where the log begins."""
    if allow_gaps:
        return
    end, log_first = follows
    gap = (cut, first) if first > cut else (end, log_first) if end < log_first else None
    if gap is not None:
        raise ArchiveError(
            f"offsets {gap[0]} to {gap[1] - 1} of {named} are missing behind the earlier backfill, which ends at offset "
            f"{cut}: neither the log nor what is given with --archive or --lake has them. Give an archive that does, or "
            "--allow-gaps with an archive if no record has these offsets"
        )


def _share(named: str, cut: int, lake: Lake, shares: Mapping[int, LakeShare], partition: int) -> LakeShare | None:
    """Returns what a lake has of a partition; all of it is after the earlier end. Raises ArchiveError."""
    if lake.until_ms is not None or any(share.first_offset is None for share in shares.values()):
        raise ArchiveError(
            f"the lake of {named} has no offsets, so nobody can tell which of its rows the earlier backfill has read. "
            f"Give a lake with offsets (--lake-column TOPIC.offset=...), an archive, or only the log, {_ANEW}"
        )
    share = shares.get(partition)
    if share is not None and share.first_offset is not None and share.first_offset < cut:
        raise ArchiveError(
            f"the lake of {named} begins at offset {share.first_offset}, and the earlier backfill has read up to {cut}: "
            "leave out what was read with --lake-where, for example by its day or its offset"
        )
    return share


def _passed(file: ArchiveFile, cut: int) -> int:
    """Returns the number of records of a file before the offset."""
    if file.first_offset >= cut:
        return 0
    if file.records == file.next_offset - file.first_offset:
        return cut - file.first_offset
    return sum(offset < cut for offset in archived_offsets(file))
