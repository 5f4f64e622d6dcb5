"""Records of a streams group, made from state values. Layouts and record types are Kafka's (17, 19 to 23)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from coordinator.group.streams.state import (
    CLASSIC_TAG,
    OLDER_TAG,
    PROGRAM_TAG,
    TAKEN_OVER_TAG,
    Member,
    StreamsGroup,
    classic_tag,
)
from coordinator.group.values import GroupRecord
from coordinator.machine.values import CoordinatorRecord
from streamsrt.assignment.reconcile import Current
from streamsrt.assignment.tasks import TaskId, Tasks, grouped, wire_tasks
from streamsrt.assignment.topology import InternalTopic, Subtopology, Topology
from streamsrt.wire import types
from streamsrt.wire.messages import encode_record_value


def metadata_record(
    group_id: str,
    *,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    assignment_configs: tuple[tuple[str, str], ...],
) -> GroupRecord:
    config = types.StreamsGroupMetadataValue.LastAssignmentConfig
    return CoordinatorRecord(
        types.StreamsGroupMetadataKey(group_id=group_id),
        types.StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_topology_epoch,
            last_assignment_configs=[config(key=key, value=value) for key, value in assignment_configs],
        ),
    )


def bumped_epoch(group: StreamsGroup) -> int:
    """Returns the next group epoch. A new group starts at 2: to a member, 0 means "joining" and 1 "nothing assigned yet"."""
    return group.epoch + 1 if group.epoch else 2


def epoch_record(group: StreamsGroup) -> GroupRecord:
    """Returns the group's metadata with the next epoch and no other change."""
    return metadata_record(
        group.group_id,
        epoch=bumped_epoch(group),
        metadata_hash=group.metadata_hash,
        validated_topology_epoch=group.validated_topology_epoch,
        assignment_configs=group.assignment_configs,
    )


def topology_record(
    group_id: str, wire: types.StreamsGroupHeartbeatRequest.Topology, older: Sequence[Topology] = (), program: str = ""
) -> GroupRecord:
    """Returns the record of a member's topology, in the member's order. ``older``: those that members still run, newest
    first. ``program``: what the member says of the operators."""
    written = types.StreamsGroupTopologyValue(
        epoch=wire.epoch, subtopologies=list(map(_as_sent, wire.subtopologies)), unknown_tags=_tags(older, program)
    )
    return CoordinatorRecord(types.StreamsGroupTopologyKey(group_id=group_id), written)


def taken_over_record(group: StreamsGroup) -> GroupRecord:
    """Returns the record of the group's topology once it has taken over."""
    assert group.topology is not None
    return _known_record(group, group.topology, has_taken_over=True)


def program_record(group: StreamsGroup, program: str) -> GroupRecord:
    """Returns the record of the group's topology with what the first member that tells it says of its operators."""
    assert group.topology is not None
    return _known_record(group, replace(group.topology, program=program), has_taken_over=group.has_taken_over)


def _known_record(group: StreamsGroup, topology: Topology, *, has_taken_over: bool) -> GroupRecord:
    written = _known_value(topology, group.older)
    if has_taken_over:
        written.unknown_tags = {**(written.unknown_tags or {}), TAKEN_OVER_TAG: b""}
    return CoordinatorRecord(types.StreamsGroupTopologyKey(group_id=group.group_id), written)


def _known_value(topology: Topology, older: Sequence[Topology]) -> types.StreamsGroupTopologyValue:
    return types.StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=list(map(_as_known, topology.subtopologies)),
        unknown_tags=_tags(older, topology.program),
    )


def _tags(older: Sequence[Topology], program: str) -> dict[int, bytes] | None:
    tags = {OLDER_TAG: encode_record_value(_known_value(older[0], older[1:]))} if older else {}
    if program:
        tags[PROGRAM_TAG] = program.encode()
    return tags or None


def _as_sent(part: types.StreamsGroupHeartbeatRequest.Subtopology) -> types.StreamsGroupTopologyValue.Subtopology:
    return _written_subtopology(
        part.subtopology_id,
        source_topics=part.source_topics,
        source_patterns=part.source_topic_regex,
        changelogs=map(_sent_topic, part.state_changelog_topics),
        repartition_sinks=part.repartition_sink_topics,
        repartition_sources=map(_sent_topic, part.repartition_source_topics),
        copartition_groups=[
            (group.source_topics, group.source_topic_regex, group.repartition_source_topics)
            for group in part.copartition_groups
        ],
    )


def _as_known(part: Subtopology) -> types.StreamsGroupTopologyValue.Subtopology:
    columns = (part.source_topics, part.source_patterns, [topic.name for topic in part.repartition_sources])
    return _written_subtopology(
        part.id,
        source_topics=part.source_topics,
        source_patterns=part.source_patterns,
        changelogs=part.changelogs,
        repartition_sinks=part.repartition_sinks,
        repartition_sources=part.repartition_sources,
        copartition_groups=[
            tuple([at for at, name in enumerate(names) if name in group] for names in columns)
            for group in part.copartition_groups
        ],
    )


def _written_subtopology(
    subtopology_id: str,
    *,
    source_topics: Iterable[str],
    source_patterns: Iterable[str],
    changelogs: Iterable[InternalTopic],
    repartition_sinks: Iterable[str],
    repartition_sources: Iterable[InternalTopic],
    copartition_groups: Iterable[Sequence[Iterable[int]]],
) -> types.StreamsGroupTopologyValue.Subtopology:
    """``copartition_groups``: of each group the indexes of its topics among source topics, patterns, repartition topics."""
    value = types.StreamsGroupTopologyValue
    return value.Subtopology(
        subtopology_id=subtopology_id,
        source_topics=list(source_topics),
        source_topic_regex=list(source_patterns),
        state_changelog_topics=list(map(_written_topic, changelogs)),
        repartition_sink_topics=list(repartition_sinks),
        repartition_source_topics=list(map(_written_topic, repartition_sources)),
        copartition_groups=[
            value.CopartitionGroup(
                source_topics=list(sources), source_topic_regex=list(patterns), repartition_source_topics=list(others)
            )
            for sources, patterns, others in copartition_groups
        ],
    )


def _written_topic(topic: InternalTopic) -> types.StreamsGroupTopologyValue.TopicInfo:
    config = types.StreamsGroupTopologyValue.TopicConfig
    return types.StreamsGroupTopologyValue.TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[config(key=key, value=value) for key, value in topic.configs],
    )


def _sent_topic(wire: types.StreamsGroupHeartbeatRequest.TopicInfo) -> InternalTopic:
    configs = tuple((config.key, config.value) for config in wire.topic_configs)
    return InternalTopic(wire.name, wire.partitions, wire.replication_factor, configs)


def member_record(group_id: str, member: Member) -> GroupRecord:
    value = types.StreamsGroupMemberMetadataValue
    endpoint = member.user_endpoint
    return CoordinatorRecord(
        types.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        value(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology_epoch=member.topology_epoch,
            process_id=member.process_id,
            user_endpoint=None if endpoint is None else value.Endpoint(host=endpoint.host, port=endpoint.port),
            client_tags=[value.KeyValue(key=key, value=text) for key, text in member.client_tags],
            unknown_tags=None if member.classic is None else {CLASSIC_TAG: classic_tag(member.classic)},
        ),
    )


def target_record(group_id: str, member_id: str, target: Tasks) -> GroupRecord:
    value = types.StreamsGroupTargetAssignmentMemberValue
    return CoordinatorRecord(
        types.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        value(
            active_tasks=wire_tasks(value.TaskIds, target.active),
            standby_tasks=wire_tasks(value.TaskIds, target.standby),
            warmup_tasks=wire_tasks(value.TaskIds, target.warmup),
        ),
    )


def target_metadata_record(group_id: str, *, epoch: int, timestamp_ms: int = 0) -> GroupRecord:
    return CoordinatorRecord(
        types.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id),
        types.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def current_record(group_id: str, member_id: str, current: Current) -> GroupRecord:
    value = types.StreamsGroupCurrentMemberAssignmentValue
    assigned, pending, epochs = current.assigned, current.pending, current.active_epochs
    return CoordinatorRecord(
        types.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        value(
            member_epoch=current.epoch,
            previous_member_epoch=current.previous_epoch,
            state=int(current.state),
            active_tasks=_with_epochs(assigned.active, epochs),
            standby_tasks=wire_tasks(value.TaskIds, assigned.standby),
            warmup_tasks=wire_tasks(value.TaskIds, assigned.warmup),
            active_tasks_pending_revocation=_with_epochs(pending.active, epochs),
            standby_tasks_pending_revocation=wire_tasks(value.TaskIds, pending.standby),
            warmup_tasks_pending_revocation=wire_tasks(value.TaskIds, pending.warmup),
        ),
    )


def _with_epochs(
    tasks: Iterable[TaskId], epochs: Mapping[TaskId, int]
) -> list[types.StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
    return [
        types.StreamsGroupCurrentMemberAssignmentValue.TaskIds(
            subtopology_id=name,
            partitions=partitions,
            assignment_epochs=[epochs.get(TaskId(name, partition), 0) for partition in partitions],
        )
        for name, partitions in grouped(tasks)
    ]


def member_tombstones(group_id: str, member_id: str) -> tuple[GroupRecord, ...]:
    """Returns the tombstones of a member: its current assignment, its target and its metadata, in this order."""
    return (
        CoordinatorRecord(types.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(types.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(types.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def group_tombstones(group: StreamsGroup) -> Iterator[GroupRecord]:
    """Returns the tombstones of an empty group."""
    yield CoordinatorRecord(types.StreamsGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    yield CoordinatorRecord(types.StreamsGroupMetadataKey(group_id=group.group_id), None)
    if group.topology is not None:
        yield CoordinatorRecord(types.StreamsGroupTopologyKey(group_id=group.group_id), None)
