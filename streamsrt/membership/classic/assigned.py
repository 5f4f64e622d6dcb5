"""What an answer to SyncGroup means for the member that gets it.

A broker gives a restarted static member what it stored for the process before. If that was the same process with the same
topology, the member goes on with it, as a streams group's coordinator would have it, and joins again to say what it has: the
process before it may have been told to let go of tasks, for which others wait. Otherwise it is not meant.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamsrt.assignment.status_code import StatusCode
from streamsrt.errors import StreamsError
from streamsrt.membership.classic.layout import decode_assignment
from streamsrt.membership.classic.state import Session
from streamsrt.membership.classic.values import NO_GENERATION, ClassicAssignment, Echo, Unreadable
from streamsrt.membership.errors import refusal, with_missing_right
from streamsrt.membership.values import NOTHING, Status, UnknownStatus
from streamsrt.wire.error_codes import ErrorCode

FIRST_VERSION_THAT_TELLS_A_LEADER = 9
"""Of JoinGroup: below it, a restarted static member is not told that it leads (KIP-814)."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """``told``: what is to be taken; where it is None, ``why_not`` says why, and ``error`` is final. ``is_stored``: it was
    said to the process before this one."""

    told: ClassicAssignment | None = None
    why_not: str = ""
    error: StreamsError | None = None
    echo: Echo | None = None
    statuses: tuple[Status, ...] = ()
    unknown: tuple[UnknownStatus, ...] = ()
    is_stored: bool = False


def assigned_by(session: Session, data: bytes) -> Assigned:
    """``data``: of the answer to the session's SyncGroup."""
    told = decode_assignment(data)
    if isinstance(told, Unreadable):
        return Assigned(why_not=told.reason)
    membership = session.membership
    is_meant = told.unique == session.unique and told.process_id == membership.process_id
    if not is_meant:
        if told.group_epoch > membership.topology.epoch:
            text = f"The group has run epoch {told.group_epoch} under this group.instance.id."
            return Assigned(error=refusal(membership, ErrorCode.STREAMS_TOPOLOGY_FENCED, text))
        if not _may_go_on(session, told):
            return Assigned(why_not="the assignment is that of an earlier process")
    if told.error_code != ErrorCode.NONE:
        return Assigned(error=refusal(membership, told.error_code, told.error_text))
    echo = None
    if told.group_epoch >= 0:
        echo = Echo(told.generation, told.group_epoch, told.group_digest, told.target)
    statuses = tuple(
        Status(status.code, with_missing_right(membership, status.detail))
        for status in told.statuses
        if isinstance(status, Status)
    )
    unknown = tuple(status for status in told.statuses if isinstance(status, UnknownStatus))
    return Assigned(told, echo=echo, statuses=statuses, unknown=unknown, is_stored=not is_meant)


def _may_go_on(session: Session, stored: ClassicAssignment) -> bool:
    is_first = session.synced_generation == NO_GENERATION and session.claimed == NOTHING
    tells_leader = session.version is not None and session.version >= FIRST_VERSION_THAT_TELLS_A_LEADER
    return (
        is_first
        and tells_leader
        and session.membership.instance_id is not None
        and stored.error_code == ErrorCode.NONE
        and stored.process_id == session.membership.process_id
        and stored.group_digest == session.digest
        # What a member with an older topology keeps may be tasks that this one does not have.
        and not any(status.code == StatusCode.STALE_TOPOLOGY for status in stored.statuses)
    )
