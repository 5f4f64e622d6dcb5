"""Interprets a response to SyncGroup: which assignment the member takes, if any.

A broker gives a restarted static member the assignment that it has stored for the instance id. If the assignment is for
this process and topology, the member uses it, as in a streams group, and joins again to report its tasks: some of them
may have been revoked since, and other members wait for them. Otherwise the member ignores it.

An assignment of a Java leader does not name the process or the topology that it is for. A static member therefore ignores
the first one and joins again. A member leaves if it is assigned tasks that its topology does not have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamsrt.assignment.status_code import StatusCode
from streamsrt.errors import StreamsError
from streamsrt.membership.classic.java_members import foreign_inputs
from streamsrt.membership.classic.layout import decode_assignment
from streamsrt.membership.classic.state import Session
from streamsrt.membership.classic.stream_layout import STREAM_PROTOCOL, JavaAssignment, decode_stream_assignment
from streamsrt.membership.classic.values import NO_GENERATION, ClassicAssignment, Echo, Unreadable, echo_of
from streamsrt.membership.errors import consumers_group, refusal, unlike_java, with_missing_right
from streamsrt.membership.statuses import NOT_READABLE
from streamsrt.membership.values import NOTHING, Answers, Status, UnknownStatus
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.streams_user_data import (
    ASSIGNMENT_ERROR,
    INCOMPLETE_SOURCE_TOPIC_METADATA,
    NEWEST_VERSION,
    SHUTDOWN_REQUESTED,
)

FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9
"""Of JoinGroup: in earlier ones, the response to a restarted static member does not show that it leads (KIP-814)."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """``assignment``: the assignment to take; if it is None, ``why_not`` gives the reason, and ``error`` is final.
    ``is_stored``: it was made for the process before this one."""

    assignment: ClassicAssignment | None = None
    why_not: str = ""
    error: StreamsError | None = None
    echo: Echo | None = None
    statuses: tuple[Status, ...] = ()
    unknown: tuple[UnknownStatus, ...] = ()
    is_stored: bool = False
    stream_version: int | None = None
    answers: Answers | None = None


def assigned_by(session: Session, data: bytes) -> Assigned:
    """``data``: the assignment in the response to the session's SyncGroup."""
    if session.protocol_name != STREAM_PROTOCOL:
        assignment = decode_assignment(data)
        if not isinstance(assignment, Unreadable):
            return _assigned(session, assignment)
        if session.is_leaderless:
            return Assigned(error=consumers_group(session.membership))
        return _unreadable(session, assignment)
    read = decode_stream_assignment(data)
    if isinstance(read, Unreadable):
        return _unreadable(session, read)
    own, java = read
    found = _assigned_by_java(session, java) if own is None else _assigned(session, own)
    return replace(
        found,
        stream_version=min(java.info.common_version, NEWEST_VERSION),
        answers=None if session.membership.endpoint is None else java.endpoints,
    )


def _unreadable(session: Session, assignment: Unreadable) -> Assigned:
    """The leader may have missed this member once. If it happens again, no rebalance changes that."""
    if not session.missed_sync:
        return Assigned(why_not=assignment.reason)
    group = session.membership.group_id
    text = (
        f"{assignment.reason[0].upper()}{assignment.reason[1:]}. Member {session.leader_id} of group {group} leads it and "
        f"{NOT_READABLE}. It is probably not an instance of this application. Stop it "
        f"(`streamsrt groups describe {group} --view members` shows its host), or choose another application.id"
    )
    return Assigned(why_not=assignment.reason, statuses=(Status(StatusCode.ASSIGNMENT_DELAYED, f"{text}."),))


def _assigned_by_java(session: Session, java: JavaAssignment) -> Assigned:
    membership, info = session.membership, java.info
    if membership.instance_id is not None and session.synced_generation == NO_GENERATION and not session.missed_sync:
        return Assigned(why_not="the assignment may be that of an earlier process")
    difference = foreign_inputs(membership.topology, java.inputs())
    if difference:
        reason = f"The leader runs another topology: {difference}."
        return Assigned(error=unlike_java(membership, reason))
    epoch, tasks = membership.topology.epoch, java.tasks
    is_at_once = info.next_rebalance_ms == 0 or info.version < session.stream_version
    assignment = ClassicAssignment(
        generation=session.generation,
        group_epoch=epoch,
        group_digest=session.digest,
        assigned_partitions=frozenset(java.partitions),
        tasks=tasks,
        target=tasks,
        rejoin_after_ms=0 if is_at_once else None,
    )
    statuses = tuple(status for code, status in _STATUSES.items() if code == info.error)
    return Assigned(assignment, echo=Echo(session.generation, epoch, session.digest, tasks), statuses=statuses)


_STATUSES = {
    INCOMPLETE_SOURCE_TOPIC_METADATA: Status(
        StatusCode.MISSING_SOURCE_TOPICS,
        "Source topics are missing. The leader of the group, a member of Java's Kafka Streams, names them in its log.",
    ),
    ASSIGNMENT_ERROR: Status(
        StatusCode.ASSIGNMENT_DELAYED,
        "The leader of the group, a member of Java's Kafka Streams, could not assign tasks: its log says why.",
    ),
    SHUTDOWN_REQUESTED: Status(
        StatusCode.SHUTDOWN_APPLICATION,
        "A member of the group encountered a fatal error and requested a shutdown for the entire application, "
        "according to the leader, a member of Java's Kafka Streams.",
    ),
}
"""By the error codes of Java's assignments."""


def _assigned(session: Session, assignment: ClassicAssignment) -> Assigned:
    membership = session.membership
    is_meant = assignment.unique == session.unique and assignment.process_id == membership.process_id
    if not is_meant:
        if assignment.group_epoch > membership.topology.epoch:
            epoch = assignment.group_epoch
            text = f"The group ran topology epoch {epoch} when an instance with this group.instance.id was last in it."
            return Assigned(error=refusal(membership, ErrorCode.STREAMS_TOPOLOGY_FENCED, text))
        if not _may_resume(session, assignment):
            return Assigned(why_not="the assignment is that of an earlier process")
    if assignment.error_code != ErrorCode.NONE:
        code, is_same_topology = assignment.error_code, assignment.is_same_topology
        return Assigned(error=refusal(membership, code, assignment.error_text, is_same_topology=is_same_topology))
    echo = None
    if assignment.group_epoch >= 0:
        echo = echo_of(assignment, assignment.generation)
    statuses = tuple(
        Status(status.code, with_missing_right(membership, status.detail))
        for status in assignment.statuses
        if isinstance(status, Status)
    )
    unknown = tuple(status for status in assignment.statuses if isinstance(status, UnknownStatus))
    return Assigned(assignment, echo=echo, statuses=statuses, unknown=unknown, is_stored=not is_meant)


def _may_resume(session: Session, stored: ClassicAssignment) -> bool:
    is_first = session.synced_generation == NO_GENERATION and session.claimed == NOTHING
    has_skip_assignment = session.version is not None and session.version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT
    return (
        is_first
        and has_skip_assignment
        and session.membership.instance_id is not None
        and stored.error_code == ErrorCode.NONE
        and stored.process_id == session.membership.process_id
        and stored.group_digest == session.digest
        # A member with an older topology may keep tasks that this topology does not have.
        and not any(status.code == StatusCode.STALE_TOPOLOGY for status in stored.statuses)
    )
