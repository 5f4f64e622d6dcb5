"""Input and output of a server-side assignor: the broker's ``ConsumerGroupPartitionAssignor``.

1. An assignor is a pure function of its input: the same input gives the same assignment in every process.
2. A partition is given to one member only, and only to one that subscribes to its topic.
3. Subscribed topics that do not exist are not in ``topics``; nobody gets partitions of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from coordinator.group.consumer.partitions import Target


class PartitionAssignorError(Exception):
    """The assignor cannot assign: the target stays as it was."""


class AssignorTopic(NamedTuple):
    """A topic that a group subscribes to."""

    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """A member as an assignor sees it. ``topics``: ids of subscribed topics; ``target``: its previous target."""

    topics: frozenset[bytes]
    target: Target = ()
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentSpec:
    """A group to assign: member id -> member, topic id -> topic."""

    members: Mapping[str, AssignorMember]
    topics: Mapping[bytes, AssignorTopic]


class PartitionAssignor(Protocol):
    """A server-side assignor; members request it by its name."""

    @property
    def name(self) -> str: ...

    def assign(self, spec: AssignmentSpec) -> Mapping[str, Target]:
        """Returns the target of every member that gets partitions. Raises PartitionAssignorError."""
        ...


class SubscribedMembers(NamedTuple):
    """Topics with the same subscribers, by name, and those subscribers, by id."""

    topic_ids: list[bytes]
    members: list[str]


def by_subscribers(spec: AssignmentSpec) -> list[SubscribedMembers]:
    """Groups the subscribed topics by their subscribers, starting with the fewest subscribers."""
    subscribers: dict[bytes, list[str]] = {}
    for name in sorted(spec.members):
        for topic_id in spec.members[name].topics:
            if topic_id in spec.topics:
                subscribers.setdefault(topic_id, []).append(name)
    kinds: dict[tuple[str, ...], list[bytes]] = {}
    for topic_id in sorted(subscribers, key=lambda each: (spec.topics[each].name, each)):
        kinds.setdefault(tuple(subscribers[topic_id]), []).append(topic_id)
    ordered = sorted(kinds, key=lambda members: (len(members), members))
    return [SubscribedMembers(kinds[members], list(members)) for members in ordered]
