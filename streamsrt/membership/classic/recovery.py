"""How a member of a classic group goes on after an error, or ends: it tries again, joins anew, or leaves.

1. Retries keep tasks, generation and the pending request.
2. A member that lost its tasks joins anew once nothing is open and no request of its earlier membership is in flight.
3. A final error is reported once, and nothing follows it; a member that leaves anyway only ends.

The rules that these keep are those of :mod:`streamsrt.membership.classic.session`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from streamsrt.errors import StreamsError
from streamsrt.membership.classic.state import (
    ClassicMemberState,
    Lead,
    Rejoin,
    Session,
    TaskState,
)
from streamsrt.membership.classic.values import NO_GENERATION
from streamsrt.membership.errors import classic_refusal
from streamsrt.membership.values import (
    NOTHING,
    Event,
    HeartbeatRecovered,
    HeartbeatTrouble,
    InstanceIdTaken,
    LeftGroup,
    MembershipFailed,
    TasksLost,
)
from streamsrt.wire.error_codes import ErrorCode, error_name, is_retriable

_NOT_STORED = (
    "The broker could not store the group. If this continues, the group's record is larger than max.message.bytes of "
    "__consumer_offsets or message.max.bytes of the brokers: raise them, run fewer stream threads, or use "
    "group.protocol=streams"
)
_COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class StepResult(NamedTuple):
    """A step before its requests: the session, the events, and what to lead."""

    session: Session
    events: tuple[Event, ...] = ()
    lead: Lead | None = None


def joining(session: Session, reason: str, now_ms: int) -> Session:
    """Joins as a new member."""
    return replace(session, group=ClassicMemberState.JOINING, rejoin=Rejoin(reason, now_ms, is_forced=True))


def request_join(session: Session, reason: str, now_ms: int, *, is_forced: bool = False) -> Session:
    """Joins again when this is possible. ``is_forced``: the group waits for it."""
    known = session.rejoin
    if known is not None and (known.is_forced or not is_forced):
        return session
    return replace(session, rejoin=Rejoin(reason, now_ms, is_forced))


def on_error(session: Session, code: int, now_ms: int) -> StepResult:
    """Handles the error code of a response."""
    reason = error_name(code)
    if code in _COORDINATOR_MOVED:
        return retry(replace(session, version=None), reason, now_ms)
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        return _lose_tasks(session, reason, now_ms)
    if code == ErrorCode.ILLEGAL_GENERATION:
        return _on_old_generation(session, now_ms)
    if code == ErrorCode.UNKNOWN_SERVER_ERROR and session.group is ClassicMemberState.SYNCING:
        return _retry_sync(session, reason, now_ms)
    if is_retriable(code):
        return retry(session, reason, now_ms)
    if code == ErrorCode.UNRELEASED_INSTANCE_ID:
        return _retry_instance_id(session, now_ms)
    is_forgotten = session.synced_generation == NO_GENERATION < session.generation and session.fences <= 1
    if code == ErrorCode.FENCED_INSTANCE_ID and is_forgotten:
        # A coordinator that was restarted knows members of the last generation only: it forgot that this one had joined.
        return _lose_tasks(session, reason, now_ms)
    return fatal(session, classic_refusal(session.membership, code))


def _retry_sync(session: Session, reason: str, now_ms: int) -> StepResult:
    """Joins again after the broker could not store the group. Other requests succeed meanwhile, so that the back-off has a
    count of its own."""
    count = session.sync_failures + 1
    failed = replace(
        session,
        missed_sync=True,
        sync=None,
        group=ClassicMemberState.IN,
        sync_failures=count,
        failures=max(session.failures, session.sync_failures),
    )
    change = retry(failed, reason, now_ms)
    is_reported = count & (count - 1) == 0
    reported = (HeartbeatTrouble(f"{reason} at SyncGroup. {_NOT_STORED}"),) if is_reported else ()
    return StepResult(request_join(change.session, "the sync failed", now_ms), reported)


def _retry_instance_id(session: Session, now_ms: int) -> StepResult:
    session, recovered, _ = note_recovery(session, now_ms)
    membership, was_reported = session.membership, session.id_taken_since_ms is not None
    since_ms = now_ms if session.id_taken_since_ms is None else session.id_taken_since_ms
    left_ms = since_ms + membership.instance_id_wait_ms - now_ms
    if left_ms <= 0:
        return fatal(session, classic_refusal(membership, ErrorCode.UNRELEASED_INSTANCE_ID))
    until_ms = now_ms + min(membership.retry_backoff_max_ms, left_ms)
    session = replace(session, id_taken_since_ms=since_ms, rebalance_back_off_until_ms=until_ms)
    return StepResult(session, () if was_reported and not recovered else (*recovered, InstanceIdTaken(left_ms)))


def _on_old_generation(session: Session, now_ms: int) -> StepResult:
    """Keeps or loses the tasks of an old generation. A dynamic member is part of a newer one only if its own JoinGroup
    arrived, with its claims; brokers keep a static one that missed a generation (KAFKA-13419)."""
    if session.membership.instance_id is not None and not session.join_was_lost:
        return _lose_tasks(session, "a generation of the group was missed", now_ms)
    session = replace(session, missed_sync=True, sync=None, group=ClassicMemberState.IN)
    return StepResult(request_join(session, "the generation is old", now_ms, is_forced=True))


def retry(session: Session, reason: str, now_ms: int) -> StepResult:
    """Schedules a retry. Tasks, generation and the pending request are kept."""
    until_ms = now_ms + _back_off_ms(session, session.failures)
    session = replace(
        session,
        failures=session.failures + 1,
        sent_at_ms=now_ms - session.heartbeat_interval_ms,
        back_off_until_ms=until_ms,
        rebalance_back_off_until_ms=until_ms,
        trouble_since_ms=now_ms if session.trouble_since_ms is None else session.trouble_since_ms,
    )
    return StepResult(session, (HeartbeatTrouble(reason),) if session.failures == 1 else ())


def _back_off_ms(session: Session, failures: int) -> int:
    membership = session.membership
    return min(membership.retry_backoff_ms << min(failures, 16), membership.retry_backoff_max_ms)


def note_recovery(session: Session, now_ms: int) -> StepResult:
    if session.trouble_since_ms is None:
        return StepResult(session)
    outage_ms = now_ms - session.trouble_since_ms
    return StepResult(replace(session, failures=0, trouble_since_ms=None), (HeartbeatRecovered(outage_ms),))


def _lose_tasks(session: Session, reason: str, now_ms: int) -> StepResult:
    lost: tuple[Event, ...] = (TasksLost(reason),) if session.held else ()
    if session.leave is not None:
        return end(session, (*lost, LeftGroup()))
    session, recovered, _ = note_recovery(session, now_ms)
    back_off_ms = _back_off_ms(session, session.fences - 1) if session.fences else 0
    session = replace(
        without_group(session),
        tasks=TaskState.LOST,
        fences=session.fences + 1,
        back_off_until_ms=now_ms + back_off_ms,
        rebalance_back_off_until_ms=now_ms + back_off_ms,
    )
    return StepResult(session, recovered + lost)


def without_group(session: Session) -> Session:
    return replace(
        session,
        group=ClassicMemberState.OUT,
        member_id="",
        generation=NO_GENERATION,
        synced_generation=NO_GENERATION,
        join=None,
        join_was_lost=False,
        sync=None,
        rejoin=None,
        rejoin_at_ms=None,
        missed_sync=False,
        claimed=NOTHING,
        revoked=NOTHING,
        assigned=NOTHING,
        echo=None,
        returns=session.returns or session.echo is not None,
        is_new=True,
        reported_caught_up=frozenset(),
        join_requested_shutdown=False,
        shutdown_wait_until_ms=None,
    )


def rejoin_if_free(session: Session, now_ms: int) -> Session:
    """Joins anew, unless tasks are still being released or a request of the previous membership is in flight."""
    if session.tasks not in {TaskState.LOST, TaskState.STALE} or session.lost_at is not None:
        return session
    if session.stale_leave_pending or session.in_flight is not None or session.rebalance_in_flight is not None:
        return session
    session = replace(
        session,
        tasks=TaskState.RUNNING,
        offered=NOTHING,
        member_id="",
        polled_at_ms=now_ms,
        partitions=frozenset(),
        sources_missing_since_ms=None,
        sources_missing_reported=False,
        statuses=(),
    )
    return joining(session, "the member starts over", now_ms)


def fatal(session: Session, error: StreamsError) -> StepResult:
    if session.leave is not None:
        return end(session, (LeftGroup(),))
    session = replace(session, group=ClassicMemberState.FATAL, ended=True, in_flight=None, rebalance_in_flight=None)
    return StepResult(session, (MembershipFailed(error),))


def refused_by_leader(session: Session, error: StreamsError) -> StepResult:
    """Leaves the group: the broker has accepted the member, so others would wait for it until its session expires. A
    static member may return with its previous version."""
    if session.leave is not None or session.membership.instance_id is not None:
        return fatal(session, error)
    left = leave_group(session)
    return StepResult(left.session, (MembershipFailed(error),))


def leave_group(session: Session) -> StepResult:
    static = session.membership.instance_id is not None
    # Otherwise the subscription stored by the broker would shut down the application again when the member returns.
    remains = static and session.leave is not None and session.leave.remain and not session.join_requested_shutdown
    if not session.member_id or remains:
        return end(session, (LeftGroup(),))
    return StepResult(replace(session, group=ClassicMemberState.LEAVING, rejoin=None, join=None, sync=None))


def end(session: Session, events: tuple[Event, ...]) -> StepResult:
    ended = replace(session, group=ClassicMemberState.OUT, ended=True, in_flight=None, rebalance_in_flight=None)
    return StepResult(ended, events)


def after_leave(session: Session) -> StepResult:
    if session.tasks is not TaskState.STALE:
        return end(session, (LeftGroup(),))
    return StepResult(replace(session, stale_leave_pending=False, member_id=""))
