"""Decides whether a member with an older version than the group's may join again.

1. A version that joins a group has not taken over yet: its members may fail. Until nothing else has run for a session
   timeout, whoever runs the version before it is needed.
2. So a member with that version that was removed by a timeout, and lives, returns: it was never told to end.
3. A member that is started with it is accepted while no member runs the group's version.
4. After the group's version has taken over, older ones are fenced (KIP-1071).
"""

from __future__ import annotations

from coordinator.group.streams.state import StreamsGroup
from streamsrt.assignment.in_flight import is_version_again
from streamsrt.assignment.topology import Topology


def may_return(group: StreamsGroup, member_id: str, requested: Topology) -> bool:
    """Whether a joining member with this older version is accepted. ``group``: without its join."""
    if group.topology is None or group.has_taken_over or not is_version_again(group.topology, group.older, requested):
        return False
    if member_id in group.members or member_id in group.soft.strayed:
        return True
    return all(map(group.is_stale, group.members.values()))
