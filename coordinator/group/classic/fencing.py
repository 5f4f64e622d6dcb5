"""Checks whether a client is a member of a classic group, by its id and its instance."""

from __future__ import annotations

from coordinator.group.classic.state import Live
from streamsrt.wire.error_codes import ErrorCode


def member_error(live: Live, member_id: str, instance_id: str | None) -> ErrorCode:
    """Returns why a client is not this member of a classic group: unknown, or fenced by another member of its instance."""
    if instance_id is not None:
        owner = live.static_members.get(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in live.members else ErrorCode.UNKNOWN_MEMBER_ID
