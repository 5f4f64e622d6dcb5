"""What ConsumerGroupDescribe and ListGroups say about a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.group.consumer.assignment import preferred_assignor
from coordinator.group.consumer.assignor import PartitionAssignor
from coordinator.group.consumer.partitions import TopicIdPartition, grouped
from coordinator.group.consumer.state import NEVER_ASSIGNED, ConsumerGroup, MemberState
from streamsrt.assignment.topics import TopicsImage
from streamsrt.wire.types import ConsumerGroupDescribeResponse as Response

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def state_name(group: ConsumerGroup) -> str:
    """Empty, Assigning, Reconciling or Stable."""
    if group.is_empty:
        return "Empty"
    if group.epoch > group.assignment_epoch:
        return "Assigning"
    for name in group.members:
        current = group.current.get(name, NEVER_ASSIGNED)
        if current.epoch != group.assignment_epoch or current.state != MemberState.STABLE:
            return "Reconciling"
    return "Stable"


def described(
    group: ConsumerGroup, image: TopicsImage, assignors: Mapping[str, PartitionAssignor]
) -> Response.DescribedGroup:
    """Returns the group's entry in the response. Partitions of deleted topics are left out: they have no name."""
    return Response.DescribedGroup(
        group_id=group.group_id,
        group_state=state_name(group),
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group, assignors).name,
        members=[_member(group, name, image) for name in sorted(group.members)],
    )


def _member(group: ConsumerGroup, name: str, image: TopicsImage) -> Response.Member:
    member, current = group.members[name], group.current.get(name, NEVER_ASSIGNED)
    return Response.Member(
        member_id=name,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(current.assigned, image),
        target_assignment=_assignment(group.targets.get(name, ()), image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Iterable[TopicIdPartition], image: TopicsImage) -> Response.Assignment:
    names = image.names_by_id
    return Response.Assignment(
        topic_partitions=[
            Response.TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=numbers)
            for topic_id, numbers in grouped(sorted(partitions))
            if topic_id in names
        ]
    )
