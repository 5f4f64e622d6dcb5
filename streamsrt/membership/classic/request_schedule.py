"""Decides when a member of a classic group sends which request: at most one on each lane."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from streamsrt.membership.classic.requests import heartbeat_request, join_request, leave_request
from streamsrt.membership.classic.state import (
    BEATING,
    TAKING_PART,
    ClassicMemberState,
    ClassicSessionStep,
    GroupRequest,
    InFlight,
    Lead,
    RebalanceRequest,
    Rejoin,
    Session,
    TaskState,
    is_held,
)
from streamsrt.membership.classic.values import NO_GENERATION
from streamsrt.membership.values import Event

REVOCATION_PATIENCE_MS: Final = 1_000
HAND_OVER_MS: Final = 5_000
"""For so long after a generation the next one is likely: tasks that were taken from a member are given to another one."""
HAND_OVER_HEARTBEAT_MS: Final = 500
IDLE_PAUSE_MS: Final = 250
IDLE_PAUSE_MAX_MS: Final = 30_000
SHUTDOWN_PATIENCE_MS: Final = 10_000


def act(session: Session, events: tuple[Event, ...], lead: Lead | None, now_ms: int) -> ClassicSessionStep:
    session, rebalance_request = _on_rebalance_lane(session, now_ms)
    session, request, find_coordinator = _on_group_lane(session, now_ms)
    return ClassicSessionStep(
        session,
        request=request,
        rebalance_request=rebalance_request,
        find_coordinator=find_coordinator,
        lead=lead,
        events=events,
        wake_at_ms=wake_at_ms(session),
    )


def _on_rebalance_lane(session: Session, now_ms: int) -> tuple[Session, RebalanceRequest | None]:
    due_ms = _rebalance_due_ms(session)
    if due_ms is None or now_ms < due_ms or session.version is None:
        return session, None
    if session.group is ClassicMemberState.SYNCING:
        return replace(session, rebalance_in_flight=InFlight.SYNC), session.sync
    join = session.join
    if join is None:
        assert session.rejoin is not None
        own = replace(session, joined_of_its_own=not session.rejoin.is_forced)
        session, join = join_request(own, session.rejoin.reason)
    session = replace(session, group=ClassicMemberState.JOINING, rebalance_in_flight=InFlight.JOIN, rejoin=None)
    return session, join


def _rebalance_due_ms(session: Session) -> int | None:
    """When the rebalance lane has to send something; None if there is nothing to send or a request is in flight."""
    if session.rebalance_in_flight is not None:
        return None
    if session.group is ClassicMemberState.SYNCING:
        return session.rebalance_back_off_until_ms
    if session.group is ClassicMemberState.JOINING and session.join is not None:
        return session.rebalance_back_off_until_ms
    if session.group in {ClassicMemberState.IN, ClassicMemberState.JOINING} and session.rejoin is not None:
        return _join_due_ms(session, session.rejoin)
    return None


def _on_group_lane(session: Session, now_ms: int) -> tuple[Session, GroupRequest | None, bool]:
    due_ms = _group_due_ms(session)
    if due_ms is None or now_ms < due_ms:
        return session, None, False
    if session.version is None:
        return replace(session, in_flight=InFlight.COORDINATOR), None, True
    if session.group in BEATING:
        beating = replace(session, in_flight=InFlight.HEARTBEAT, sent_at_ms=now_ms, beat_generation=session.generation)
        return beating, heartbeat_request(session), False
    reason = "the processing thread hangs" if session.tasks is TaskState.STALE else "the member is closed"
    return replace(session, in_flight=InFlight.LEAVE), leave_request(session, reason), False


def _group_due_ms(session: Session) -> int | None:
    if session.in_flight is not None:
        return None
    if session.stale_leave_pending or session.group is ClassicMemberState.LEAVING:
        return session.back_off_until_ms
    if session.version is None and session.group in TAKING_PART and session.rebalance_in_flight is None:
        return session.back_off_until_ms
    if session.group in BEATING:
        return max(session.sent_at_ms + _heartbeat_pause_ms(session), session.back_off_until_ms)
    return None


def _heartbeat_pause_ms(session: Session) -> int:
    """The pause before the next heartbeat. It is short after SyncGroup: a member that learns late of a generation keeps all
    others waiting, and tasks that move have no owner meanwhile."""
    if session.group is ClassicMemberState.IN and session.sent_at_ms < session.synced_at_ms + HAND_OVER_MS:
        return min(HAND_OVER_HEARTBEAT_MS, session.heartbeat_interval_ms)
    return session.heartbeat_interval_ms


def wake_at_ms(session: Session) -> int | None:
    times = [_group_due_ms(session), session.shutdown_wait_until_ms]
    if session.version is not None:
        times.append(_rebalance_due_ms(session))
    if session.sources_missing_since_ms is not None and not session.sources_missing_reported:
        times.append(session.sources_missing_since_ms + session.membership.missing_source_topics_timeout_ms)
    if must_poll(session):
        times.append(session.polled_at_ms + session.membership.rebalance_timeout_ms)
    if session.group is ClassicMemberState.IN and session.rejoin is None:
        times.append(session.rejoin_at_ms)
    return min((time for time in times if time is not None), default=None)


def _pause_ms(session: Session) -> int:
    rounds = session.idle_rounds
    return min(IDLE_PAUSE_MS << min(rounds - 1, 16), IDLE_PAUSE_MAX_MS) if rounds else 0


def _join_due_ms(session: Session, rejoin: Rejoin) -> int:
    if session.group is ClassicMemberState.IN and is_held(session.revoked, session.held):
        due_ms = rejoin.since_ms + REVOCATION_PATIENCE_MS
    else:
        due_ms = rejoin.since_ms
    if not rejoin.is_forced:
        due_ms = max(due_ms, session.synced_at_ms + _pause_ms(session))
    return max(due_ms, session.rebalance_back_off_until_ms)


def must_poll(session: Session) -> bool:
    return session.tasks is TaskState.RUNNING and session.group in TAKING_PART and session.generation != NO_GENERATION
