"""Computes the target assignment of a whole group, as records of what changed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from coordinator.group.consumer.assignor import (
    AssignmentSpec,
    AssignorMember,
    AssignorTopic,
    PartitionAssignor,
    PartitionAssignorError,
)
from coordinator.group.consumer.records import target_metadata_record, target_record
from coordinator.group.consumer.state import ConsumerGroup
from coordinator.group.values import GroupRecord
from streamsrt.assignment.topics import TopicsImage

logger = logging.getLogger("coordinator.groups")


def preferred_assignor(group: ConsumerGroup, assignors: Mapping[str, PartitionAssignor]) -> PartitionAssignor:
    """Returns the assignor that most members request. A member without a preference counts for the first, which also wins
    a tie."""
    default = next(iter(assignors))
    votes = Counter(member.server_assignor or default for member in group.members.values())
    order = list(assignors)
    return assignors[max(order, key=lambda name: (votes[name], -order.index(name)))]


def target_records(
    group: ConsumerGroup, image: TopicsImage, assignors: Mapping[str, PartitionAssignor], now_ms: int
) -> list[GroupRecord]:
    """Returns records that bring the target assignment to the group epoch: changed members, then the epoch.

    None if the assignor fails: members keep their present target.
    """
    assignor = preferred_assignor(group, assignors)
    try:
        targets = assignor.assign(_specification(group, image))
    except PartitionAssignorError as error:
        logger.error(
            "assignor %s has no assignment for epoch %d of group %s: %s",
            assignor.name,
            group.epoch,
            group.group_id,
            error,
        )
        return []
    except Exception:
        logger.exception(
            "assignor %s failed for epoch %d of group %s, whose members keep what they have; if it is not one of this "
            "broker's, mend it",
            assignor.name,
            group.epoch,
            group.group_id,
        )
        return []
    records = [
        target_record(group.group_id, name, targets.get(name, ()))
        for name in sorted(group.members)
        if group.targets.get(name) != targets.get(name, ())
    ]
    records.append(target_metadata_record(group.group_id, epoch=group.epoch, timestamp_ms=now_ms))
    return records


def _specification(group: ConsumerGroup, image: TopicsImage) -> AssignmentSpec:
    topics = {}
    for name in group.all_subscribed_topics():
        topic = image.get(name)
        if topic is not None:
            topics[topic.id] = AssignorTopic(name, topic.partitions)
    ids: dict[frozenset[str], frozenset[bytes]] = {}
    members = {}
    for name, member in group.members.items():
        names = group.subscribed_topics(member)
        if names not in ids:
            ids[names] = frozenset(image[topic].id for topic in names if topic in image)
        members[name] = AssignorMember(ids[names], group.targets.get(name, ()), member.instance_id, member.rack_id)
    return AssignmentSpec(members, topics)
