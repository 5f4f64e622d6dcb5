"""Records of a consumer group, made from state values. Layouts and record types are Kafka's (3, 5 to 8, 16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coordinator.group.consumer.partitions import Target, wire_partitions, wire_target
from coordinator.group.consumer.state import ConsumerGroup, Current, Member
from coordinator.group.values import GroupRecord
from coordinator.machine.values import CoordinatorRecord
from streamsrt.wire import types


def metadata_record(group_id: str, *, epoch: int, metadata_hash: int) -> GroupRecord:
    return CoordinatorRecord(
        types.ConsumerGroupMetadataKey(group_id=group_id),
        types.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_record(group_id: str, member: Member) -> GroupRecord:
    value = types.ConsumerGroupMemberMetadataValue
    classic = member.classic
    return CoordinatorRecord(
        types.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        value(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topic_names),
            subscribed_topic_regex=member.topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=None
            if classic is None
            else value.ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    value.ClassicProtocol(name=entry.name, metadata=entry.metadata) for entry in classic.protocols
                ],
            ),
        ),
    )


def regex_record(group_id: str, regex: str, topics: Iterable[str], *, version: int, timestamp_ms: int) -> GroupRecord:
    return CoordinatorRecord(
        types.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        types.ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp_ms),
    )


def regex_tombstone(group_id: str, regex: str) -> GroupRecord:
    return CoordinatorRecord(types.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def target_record(group_id: str, member_id: str, target: Target) -> GroupRecord:
    value = types.ConsumerGroupTargetAssignmentMemberValue
    return CoordinatorRecord(
        types.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        value(topic_partitions=wire_target(value.TopicPartition, target)),
    )


def target_metadata_record(group_id: str, *, epoch: int, timestamp_ms: int = 0) -> GroupRecord:
    return CoordinatorRecord(
        types.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        types.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def current_record(group_id: str, member_id: str, current: Current) -> GroupRecord:
    value = types.ConsumerGroupCurrentMemberAssignmentValue
    return CoordinatorRecord(
        types.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        value(
            member_epoch=current.epoch,
            previous_member_epoch=current.previous_epoch,
            state=int(current.state),
            assigned_partitions=wire_partitions(value.TopicPartitions, current.assigned),
            partitions_pending_revocation=wire_partitions(value.TopicPartitions, current.pending),
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> tuple[GroupRecord, ...]:
    """Returns the tombstones of a member: its current assignment, its target and its metadata, in this order."""
    return (
        CoordinatorRecord(types.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(types.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(types.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def group_tombstones(group: ConsumerGroup) -> Iterator[GroupRecord]:
    """Returns the tombstones of a group with all its records."""
    for member_id in sorted(group.members):
        yield from member_tombstones(group.group_id, member_id)
    for regex in sorted(group.regexes):
        yield regex_tombstone(group.group_id, regex)
    yield CoordinatorRecord(types.ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    yield CoordinatorRecord(types.ConsumerGroupMetadataKey(group_id=group.group_id), None)
