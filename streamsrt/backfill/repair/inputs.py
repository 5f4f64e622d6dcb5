"""Up to which offsets the stopped application has read its inputs, and what keeps a replay from meeting them.

1. A replay ends where the application stands: at its committed offsets. It must not run from the plan to the hand-over. A
   store that it does not have yet can be begun while it runs, and is continued when it is stopped (``--after``).
2. Repartition topics must be read to the end. What is left in one is in the replayed state already, and the application
   would process it once more.
3. The history must be whole. A store that lacks what older records made would not be what the application had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from streamsrt.backfill.errors import ArchiveError, PlanError
from streamsrt.backfill.group import check_nobody_runs, running_state
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.plan import InternalTopicPlan, ReadPosition, SourceRange, StoreRepair
from streamsrt.backfill.repair.scope import RepairScope
from streamsrt.client.interface import Network
from streamsrt.client.values import EARLIEST, LATEST, TopicPartition
from streamsrt.tasks.input.offset_metadata import refuse_half_written_state
from streamsrt.wording import counted
from topology.graph.nodes import internal_topic_name
from topology.graph.topology import Topology

_CATCH_UP = "Start it, let it process what is there (streamsrt run --until quiet), stop it, and plan again"


def repair_of(network: Network, topology: Topology, application_id: str, scope: RepairScope) -> StoreRepair:
    """Returns the part of a plan that says what is repaired, with the offsets at which the application stands.

    While it runs, a store can be begun that it does not have. Raises HandOverError if it runs and has the store, PlanError
    if it has read nothing yet or, where it is stopped, has not read repartition topics to the end.
    """
    changelog = internal_topic_name(application_id, scope.spec.changelog_name)
    beside = running_state(network, application_id) is not None and not network.admin.topics([changelog])
    if not beside:
        check_nobody_runs(network, application_id)
    committed = network.admin.committed(application_id)
    if not committed:
        raise PlanError(
            f"application {application_id!r} has no committed offsets: it has not run yet, so it has no state to repair. "
            "Check --application-id, or plan a backfill of all stores, without --store"
        )
    refuse_half_written_state(application_id, committed)
    parts = [each for each in topology.subtopologies if each.number in scope.subtopologies]
    repartition = {
        internal_topic_name(application_id, topic.name) for each in parts for topic in each.repartition_source_topics
    }
    inputs = repartition.union(*(each.source_topics for each in parts))
    offsets = {tp: each for tp, each in committed.items() if tp[0] in inputs}
    for topic in () if beside else sorted(repartition):
        _check_drained(network, topic, {tp: each.offset for tp, each in offsets.items()}, application_id)
    return StoreRepair(
        store=scope.spec.name,
        feeding=dict(scope.feeding),
        fed=scope.fed,
        committed={
            f"{topic}-{partition}": ReadPosition(offset=each.offset, metadata=each.metadata)
            for (topic, partition), each in sorted(offsets.items())
        },
        beside=beside,
    )


def _check_drained(network: Network, topic: str, committed: Mapping[TopicPartition, int], application_id: str) -> None:
    partitions = [(topic, index) for index in range(network.admin.partitions_for({topic}).get(topic, 0))]
    ends = network.admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    starts = network.admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    waiting = sum(
        len(columns)
        for tp in partitions
        for columns in read_log(network, tp, committed.get(tp, starts[tp].offset), ends[tp].offset)
    )
    if waiting:
        raise PlanError(
            f"application {application_id!r} has not processed {counted(waiting, 'record')} of repartition topic {topic} "
            f"yet: the replay would count them, and the application once more. {_CATCH_UP}"
        )


def check_counts(network: Network, topics: Sequence[InternalTopicPlan], application_id: str) -> None:
    """Raises PlanError if an internal topic has another number of partitions than the replay would give it."""
    wanted = {topic.name: topic.partitions for topic in topics}
    for name, there in sorted(network.admin.partitions_for(set(wanted)).items()):
        if there != wanted[name]:
            raise PlanError(
                f"topic {name} has {counted(there, 'partition')}, and by the topics that application {application_id!r} "
                f"reads it needs {wanted[name]}: its state is placed by another count than its records are now, so no store "
                "can be rebuilt alone. If source topics got more partitions, see streamsrt state repartition"
            )


def lost_configs(network: Network, topics: Iterable[InternalTopicPlan], changelog: str) -> Iterator[str]:
    """Yields what to know about settings of the old changelog that the new one would not have."""
    if not network.admin.topics([changelog]):
        return
    there = network.admin.describe_topic_configs([changelog], only_set=True)[changelog]
    planned = next((topic.configs for topic in topics if topic.name == changelog), {})
    lost = {name: value for name, value in there.items() if planned.get(name) != value}
    if lost:
        listed = ", ".join(f"{name}={value}" for name, value in sorted(lost.items()))
        options = " ".join(f"-c topic.{name}={value}" for name, value in sorted(lost.items()))
        yield (
            f"topic {changelog} has settings that the application does not give it ({listed}), and commit creates it "
            f"without them. To keep them, plan again in another --dir with {options}"
        )


def unread_range(tp: TopicPartition) -> SourceRange:
    """Returns the range of a partition of which the application has read nothing."""
    return SourceRange(topic=tp[0], partition=tp[1], start=0, end=0, log_start=0)


def check_not_back(tp: TopicPartition, earlier_end: int, end: int) -> None:
    """Raises PlanError if the application stands before the end of an earlier backfill."""
    if end < earlier_end:
        raise PlanError(
            f"the application stands at offset {end} of {tp[0]}-{tp[1]}, and the earlier backfill has read it up to "
            f"{earlier_end}: its offsets were reset. Plan again in another --dir, without --after"
        )


def check_not_ahead(tp: TopicPartition, archived_ends: Sequence[int], end: int) -> None:
    """Raises ArchiveError if an archive or a lake with these ends has records that the application has not read yet.
    ``end``: up to where it has."""
    ahead = max(archived_ends, default=0)
    if ahead > end:
        raise ArchiveError(
            f"the history of {tp[0]}-{tp[1]} goes to offset {ahead - 1}, and the application has read it up to {end}: a "
            f"repair reads no more than it has. Leave out the files behind that offset. {_CATCH_UP}, if that is the end of "
            "the topic"
        )


def check_whole(ranges: Iterable[SourceRange], store: str) -> None:
    """Raises PlanError if older records are missing that the application may have read."""
    cut = [each for each in ranges if each.start > 0 and each.log_from_ms is None and not each.allow_gaps]
    if cut:
        listed = ", ".join(f"{each.topic}-{each.partition} (from {each.start})" for each in cut[:5])
        raise PlanError(
            f"store {store!r} can't be rebuilt from a part of the history: the log no longer holds the older records of "
            f"{listed}. Give what has them with --archive or --lake"
        )
