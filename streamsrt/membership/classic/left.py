"""What versions that nobody runs have left unread, when a group starts anew: who reads it, and what waits for whom.

1. Members of an earlier version that read some of it are taken beside the version that begins, as while an upgrade rolls.
   Else they would be refused, and it for what it leaves unread.
2. A version that reads some of what is unread waits for members that read the rest. One that reads nothing of it is refused:
   who reads the rest does not need it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamsrt.assignment.in_flight import Unread
from streamsrt.assignment.topology import Topology
from streamsrt.membership.classic.view import Version, View


@dataclass(frozen=True, slots=True)
class LeftUnread:
    """What is unread of topics that a version does not have, and of those that it has (``own``)."""

    unread: Unread
    own: Unread

    def without(self, topics: Iterable[str]) -> LeftUnread:
        read = frozenset(topics)
        return LeftUnread({place: count for place, count in self.unread.items() if place[0] not in read}, self.own)


def left_of(topology: Topology, unread: Unread) -> LeftUnread:
    own = topology.topics()
    return LeftUnread(
        {place: count for place, count in unread.items() if place[0] not in own},
        {place: count for place, count in unread.items() if place[0] in own},
    )


def returning(view: View, version: Version, left: LeftUnread) -> tuple[frozenset[str], LeftUnread]:
    """Members of earlier versions that read some of what this one leaves, and what those leave, too."""
    topics = {topic for topic, _ in left.unread}
    found = [m for m in view.members if m.version.epoch < version.epoch and topics & m.said.topics]
    return frozenset(m.member_id for m in found), left.without(topic for m in found for topic in m.said.topics)
