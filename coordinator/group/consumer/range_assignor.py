"""``range``: contiguous partitions of each topic, equal numbers of different topics at the same member.

Members take their ranges in the order of their instance ids, those without one after them in the order of their member
ids, so that partitions with the same number are together wherever the same members subscribe. What a member had before
does not count.
"""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.group.consumer.assignor import AssignmentSpec, by_subscribers
from coordinator.group.consumer.partitions import Target, TopicIdPartition, in_topic_order


class RangeAssignor:
    """Implements Kafka's server-side ``RangeAssignor``."""

    name = "range"

    def assign(self, spec: AssignmentSpec) -> Mapping[str, Target]:
        found: dict[str, list[TopicIdPartition]] = {}
        for topic_ids, members in by_subscribers(spec):
            ordered = sorted(members, key=lambda name: _sort_key(spec.members[name].instance_id, name))
            for topic_id in topic_ids:
                share, more = divmod(spec.topics[topic_id].partitions, len(ordered))
                start = 0
                for index, name in enumerate(ordered):
                    end = start + share + (index < more)
                    found.setdefault(name, []).extend(TopicIdPartition(topic_id, n) for n in range(start, end))
                    start = end
        return {name: in_topic_order(partitions) for name, partitions in found.items()}


def _sort_key(instance_id: str | None, member_id: str) -> tuple[bool, str]:
    return (instance_id is None, instance_id or member_id)
