"""The plan that takes the state of another application over.

1. A source topic is read on from where the other application stands. Of a topic that it does not read, the user says where
   to begin.
2. Repartition topics are new: those of the other application must be read to their ends. So must be the topics between the
   two sides of a foreign-key join. Then the stores are all that there is of such a join.
3. Global tables have no changelogs and no committed offsets: each start reads their topics to the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from streamsrt.backfill.copying.origin import OtherApplication, missing_changelogs
from streamsrt.backfill.copying.subscriptions import left_sides, unknown_left_side
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.group import check_new_group
from streamsrt.backfill.operators import check_sources
from streamsrt.backfill.plan import BackfillPlan, CopiedStore, ReadPosition, SourceRange, StateCopy
from streamsrt.backfill.planned_application import draft_plan
from streamsrt.backfill.repartition.partitioners import Placements
from streamsrt.backfill.repartition.placement import closings_of, has_closed_marks, has_own_keys, refusal_of
from streamsrt.backfill.task_shape import TaskShape, topic_counts
from streamsrt.client.interface import Network
from streamsrt.client.values import EARLIEST, LATEST, TopicPartition
from topology.graph.nodes import StoreSpec, Subtopology, internal_topic_name, internal_topic_names
from topology.graph.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """What the user says about a takeover. ``origin``: the other application; ``changelogs``: topics by store, where they
    are not those of a store of that name there; ``empty``: stores that begin empty; ``begins``: for topics that the other
    application does not read, the first timestamp in ms, or ``EARLIEST`` or ``LATEST``; ``record_keys``: stores of
    processors whose keys are those of the records."""

    origin: str
    changelogs: Mapping[str, str] = field(default_factory=dict)
    empty: Collection[str] = ()
    begins: Mapping[str, int] = field(default_factory=dict)
    record_keys: Collection[str] = ()


def plan_takeover(
    network: Network,
    application: str,
    takeover: Takeover,
    *,
    application_id: str,
    bootstrap_servers: str,
    config: Mapping[str, str],
    now_ms: int,
) -> BackfillPlan:
    """Returns the plan. Raises BackfillError, UserError, BrokerError."""
    if takeover.origin == application_id:
        raise PlanError(
            f"{application_id!r} is the application itself, whose state is there already: start it. To give another one its "
            "state, name that one with --application-id"
        )
    topology, settings, drafted = draft_plan(
        network,
        application,
        application_id=application_id,
        bootstrap_servers=bootstrap_servers,
        config=config,
        changelogs="live",
        now_ms=now_ms,
    )
    check_sources(topology)
    _check_names(topology, takeover)
    internal = internal_topic_names(application_id, topology.subtopologies)
    check_new_group(network, application_id, internal_topics=internal, servers=bootstrap_servers)
    shape = TaskShape(topology, settings, topic_counts(network, topology, settings), replays=False)
    origin = OtherApplication(network, takeover.origin)
    own_topics = {
        internal_topic_name(takeover.origin, topic.name)
        for each in topology.subtopologies
        for topic in each.repartition_source_topics
    }
    ranges = dict(_ranges(network, shape, origin, takeover))
    stores = _stores(network, shape, origin, takeover)
    origin.check_drained(own_topics, shape.source_topics)
    # Last: what was looked at before is of one moment only if nothing has happened since.
    origin.check_at_rest({topic: shape.counts[topic] for topic in shape.source_topics if origin.positions(topic)})
    internal_topics, tasks = tuple(shape.internal_topics()), tuple(shape.tasks(ranges))
    copied = StateCopy(
        application_id=takeover.origin,
        stores=stores,
        positions={
            f"{topic}-{partition}": ReadPosition(offset=at.offset, metadata=at.metadata)
            for (topic, partition), at in sorted(origin.committed.items())
            if topic in shape.source_topics | own_topics
        },
    )
    found = {
        "topics": dict(sorted(shape.counts.items())),
        "internal_topics": internal_topics,
        "tasks": tasks,
        "copied": copied,
        "warnings": tuple(_warnings(topology, shape, origin, stores)),
    }
    return drafted.model_copy(update=found).sealed()


def _check_names(topology: Topology, takeover: Takeover) -> None:
    there = {spec.name for each in topology.subtopologies for spec in each.stores}
    said = {
        "--changelog": takeover.changelogs,
        "--empty": takeover.empty,
        "--record-keys": takeover.record_keys,
    }
    for option, names in said.items():
        unknown = sorted(set(names) - there)
        if unknown:
            raise PlanError(
                f"{option} is given for {', '.join(unknown)}, and the application has stores {', '.join(sorted(there))}"
            )


# -------------------------------------------------------------------------------------------------------------- positions


def _ranges(
    network: Network, shape: TaskShape, origin: OtherApplication, takeover: Takeover
) -> Iterator[tuple[TopicPartition, SourceRange]]:
    unread = sorted(topic for topic in shape.source_topics if not origin.positions(topic))
    unknown = [topic for topic in unread if topic not in takeover.begins]
    if unknown:
        raise PlanError(
            f"{origin.application_id!r} does not read {', '.join(unknown)}, so nobody knows which of these records are in "
            f"its state. Say where the new application begins: --read-from {unknown[0]}=earliest, latest or a time"
        )
    wrong = sorted(set(takeover.begins) - set(unread))
    if wrong:
        raise PlanError(
            f"--read-from is given for {', '.join(wrong)}: it is for topics that {origin.application_id!r} does not read"
            f" ({', '.join(unread) or 'none'})"
        )
    for topic in sorted(shape.source_topics):
        count = shape.counts[topic]
        # Of a partition without an offset it has read nothing.
        begins = _offsets(network, topic, count, takeover.begins.get(topic, EARLIEST))
        for index, position in {**begins, **origin.positions(topic)}.items():
            found = SourceRange(topic=topic, partition=index, start=position, end=position, log_start=position)
            yield (topic, index), found


def _offsets(network: Network, topic: str, count: int, at: int) -> dict[int, int]:
    """For each partition the offset of that time, or of ``EARLIEST`` or ``LATEST``."""
    partitions = dict.fromkeys(((topic, index) for index in range(count)), at)
    found = network.admin.list_offsets(partitions)
    ends = network.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    # There may be no record of that time, or later.
    return {tp[1]: ends[tp].offset if found[tp].offset < 0 else found[tp].offset for tp in partitions}


# ------------------------------------------------------------------------------------------------------------- changelogs


def _stores(network: Network, shape: TaskShape, origin: OtherApplication, takeover: Takeover) -> dict[str, CopiedStore]:
    wanted = {
        spec.name: takeover.changelogs.get(spec.name, internal_topic_name(takeover.origin, spec.changelog_name))
        for each in shape.topology.subtopologies
        for spec in each.stores
        if spec.has_own_changelog and spec.name not in takeover.empty
    }
    counts = network.admin.partitions_for(set(wanted.values())) if wanted else {}
    missing = {store: topic for store, topic in wanted.items() if topic not in counts}
    if missing:
        raise missing_changelogs(missing, takeover.origin, network.admin.topics())
    moved: list[Subtopology] = []
    for part in shape.topology.subtopologies:
        for spec in part.stores:
            if spec.name in wanted and counts[wanted[spec.name]] != shape.task_count(part):
                _check_movable(spec, part, takeover)
                moved.append(part)
    placements = Placements(shape.topology, shape.config.application_id)
    for part in moved:
        for topic in part.source_topics:
            origin.check_places(part, topic, placements.of_topic(topic), shape.counts[topic])
    left = _left_partitions(network, shape, takeover, {store: counts[topic] for store, topic in wanted.items()})
    return {
        store: CopiedStore(topic=topic, ends=origin.ends(topic, counts[topic]), left_partitions=left.get(store))
        for store, topic in sorted(wanted.items())
    }


def _left_partitions(
    network: Network, shape: TaskShape, takeover: Takeover, counts: Mapping[str, int]
) -> dict[str, int]:
    """For each store with subscriptions, how many partitions the left table of its join has in the other application.
    ``counts``: of the changelogs there, by store."""
    found = {}
    for spec, left in left_sides(shape.topology):
        if spec.name not in counts:
            continue
        topic = internal_topic_name(takeover.origin, left.answers)
        known = network.admin.partitions_for({topic}).get(topic)
        known = known or next((counts[each.name] for each in left.part.stores if each.name in counts), None)
        if known is None:
            raise unknown_left_side(spec.name, takeover.origin, topic)
        found[spec.name] = known
        if known != shape.counts[internal_topic_name(shape.config.application_id, left.answers)]:
            for each in left.part.stores:
                if each.name not in takeover.empty:
                    # Of one without a changelog of its own, nothing else has told.
                    _check_movable(each, left.part, takeover)
    return found


def _check_movable(spec: StoreSpec, part: Subtopology, takeover: Takeover) -> None:
    """Raises PlanError if the rows of a store can't be brought to another number of partitions."""
    reason = refusal_of(spec, part)
    if has_closed_marks(spec, part) or closings_of(spec, part):
        reason = "windows are emitted when they close, and in each partition others are closed"
    if reason:
        raise PlanError(
            f"store {spec.name!r} has another number of partitions in {takeover.origin!r}, and its rows can't be moved: "
            f"{reason}. Give the topics that it is filled from the same number of partitions, or compute it from history "
            "(streamsrt backfill plan without --state-of)"
        )
    if has_own_keys(spec, part) and spec.name not in takeover.record_keys:
        raise PlanError(
            f"store {spec.name!r} has another number of partitions in {takeover.origin!r}, and a processor chooses the keys "
            f"of its rows. If these are the keys of the records, repeat the command with --record-keys {spec.name}. "
            "Otherwise nobody knows where the rows belong: give the topics the same number of partitions"
        )


def _warnings(
    topology: Topology, shape: TaskShape, origin: OtherApplication, stores: Mapping[str, CopiedStore]
) -> Iterator[str]:
    for each in topology.subtopologies:
        for spec in each.stores:
            if spec.source_topic is None and spec.name not in stores:
                yield f"store {spec.name} begins empty"
    read = shape.source_topics.union(*(part.source_topics for part in topology.global_subtopologies))
    others = sorted({topic for topic, _ in origin.committed} - read)
    others = [topic for topic in others if not topic.startswith(f"{origin.application_id}-")]
    if others:
        yield f"{origin.application_id} also reads {', '.join(others)}, which this application does not read"
