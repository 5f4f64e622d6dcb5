"""A member of a classic consumer group as a pure state machine: ``step(session, event, now_ms) -> ClassicSessionStep``.

Rules that it keeps:

1. A member joins when it starts and when the group rebalances. It also joins on its own initiative: when it has closed
   all revoked tasks, when a warm-up task has caught up, when the leader requests its topology, at the time that the
   leader has set, and when the leader has another reason.
2. It never joins on its own initiative before the SyncGroup of its generation is answered. While such joins change
   nothing for it, the pause between them grows: a join during a rebalance makes others miss their sync (KAFKA-14382).
3. A JoinGroup claims the tasks that the member holds at that moment. Until SyncGroup is answered, no others may be opened.
   While tasks are being closed, the JoinGroup waits, for a second at most, so that one rebalance confirms many of them.
4. A JoinGroup or SyncGroup whose response is lost is repeated unchanged.
5. After a missed or refused SyncGroup, the member keeps its tasks and claims, and reports it when it joins again
   (KAFKA-14639).
6. Commits carry the new generation as soon as JoinGroup is answered. Claimed tasks keep running.
7. A member sends a heartbeat per interval while it has a generation and while it leads. In the first seconds after
   SyncGroup it sends one every half second, because the next generation, which hands over tasks, usually begins then.
   None is needed while JoinGroup or SyncGroup waits. Errors of heartbeats are ignored once a join has begun: the join
   gets them too.
8. At most one heartbeat and one join request (JoinGroup or SyncGroup) are in flight.
9. After UNKNOWN_MEMBER_ID all tasks are lost. Nothing is sent until the processing thread has handled the loss and has
   reported that no task is open. The same holds if a static member missed a generation: brokers keep the member in the
   group with its old claims.
10. A restarted static member gets the assignment that the broker has stored. It is used if it was made for an earlier
    subscription of this process with the same topology; otherwise no task is opened. In both cases the member joins again
    at once, because the previous process may have claimed tasks that were revoked.
11. A member that the leader refuses leaves the group, unless it is static.
12. To shut down the application, a member requests it in a JoinGroup and leaves when that generation is synced. Members
    that receive the request repeat it, because others may have missed that SyncGroup. All of them leave for good.
13. A JoinGroup that is refused because a streams member has the ``group.instance.id`` is sent again until that member's
    session must have ended: the process before this one may have been killed. After that the refusal is final.
14. Nothing here reads a clock or makes an id; ``now_ms`` is a monotonic time in milliseconds.

Source: ``GroupCoordinator`` and ``AbstractCoordinator`` of Kafka; KIP-345, KIP-394, KIP-814.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamsrt.assignment.status_code import StatusCode
from streamsrt.membership.classic.received_assignment import Assigned, assigned_by
from streamsrt.membership.classic.recovery import (
    StepResult,
    after_leave,
    end,
    fatal,
    joining,
    leave_group,
    note_recovery,
    on_error,
    refused_by_leader,
    rejoin_if_free,
    request_join,
    retry,
    without_group,
)
from streamsrt.membership.classic.request_schedule import SHUTDOWN_PATIENCE_MS, act, must_poll
from streamsrt.membership.classic.requests import caught_up_warmups, sync_request, with_member_id
from streamsrt.membership.classic.state import (
    BEATING,
    TAKING_PART,
    Answered,
    ClassicMemberState,
    ClassicSessionStep,
    CoordinatorFound,
    EndpointsFound,
    Happening,
    InFlight,
    Lead,
    Led,
    RebalanceAnswered,
    RebalanceFailed,
    RejoinWanted,
    Session,
    TaskState,
    Unfit,
    is_held,
    not_given,
    union,
)
from streamsrt.membership.classic.values import NO_GENERATION, PROTOCOL_NAME, Joined
from streamsrt.membership.errors import unlike_java
from streamsrt.membership.session_events import OwnedReported, Refused, RequestFailed, Tick
from streamsrt.membership.state import OffsetReport
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    EndpointsChanged,
    EpochChanged,
    Event,
    Join,
    Leave,
    LeftGroup,
    ReleaseTasks,
    ReportOwned,
    RequestShutdown,
    SetTaskOffsets,
    SourceTopicsMissing,
    StatusChanged,
    TasksLost,
)
from streamsrt.wire.error_codes import ErrorCode, error_name
from streamsrt.wire.types import JoinGroupResponse, SyncGroupResponse


def step(session: Session, event: Happening, now_ms: int) -> ClassicSessionStep:
    """Returns the next state, and the requests and events that follow."""
    if session.ended:
        return ClassicSessionStep(session)
    session, events, lead = _HANDLERS[type(event)](session, event, now_ms)
    if not session.ended:
        session, more = _check_times(session, now_ms)
        events += more
    session = _count(session, events)
    if session.ended:
        return ClassicSessionStep(session, events=events)
    session = _rejoin_if_due(rejoin_if_free(session, now_ms), now_ms)
    return act(session, events, lead if session.group is ClassicMemberState.LEADING else None, now_ms)


def alive(session: Session, polled_at_ms: int) -> Session:
    """Records that the processing thread was active at this time. Called before every event."""
    return replace(session, polled_at_ms=polled_at_ms) if polled_at_ms > session.polled_at_ms else session


def _count(session: Session, events: tuple[Event, ...]) -> Session:
    if not events:
        return session
    assigned_at, lost_at = session.assigned_at, session.lost_at
    for number, event in enumerate(events, session.event_count + 1):
        if isinstance(event, TasksLost):
            lost_at = number
        if isinstance(event, TasksLost | ReleaseTasks | AssignmentChanged):
            assigned_at = number
    return replace(session, event_count=session.event_count + len(events), assigned_at=assigned_at, lost_at=lost_at)


# ----------------------------------------------------------------------------------------------------------- commands


def _join(session: Session, _: Join, now_ms: int) -> StepResult:
    if session.group is not ClassicMemberState.OUT or session.rejoin is not None:
        return StepResult(session)
    # A restarted process must not reuse the numbers of the previous one: numbers show which subscription an assignment
    # answers.
    unique = now_ms & 0x7FFF_FFFF
    return StepResult(replace(joining(session, "the member starts", now_ms), polled_at_ms=now_ms, unique=unique))


def _report_owned(session: Session, event: ReportOwned, now_ms: int) -> StepResult:
    return _owned_reported(session, OwnedReported(event.tasks, session.event_count), now_ms)


def _owned_reported(session: Session, event: OwnedReported, now_ms: int) -> StepResult:
    has_seen = event.seen >= session.assigned_at
    session = replace(
        session,
        owned=event.tasks,
        offered=session.assigned if has_seen else session.offered,
        polled_at_ms=now_ms,
    )
    if session.lost_at is not None:
        if event.seen >= session.lost_at and not event.tasks:
            session = replace(session, lost_at=None)
        return StepResult(session)
    if session.tasks is TaskState.RELEASING and not event.tasks:
        # The processing thread has reported this after it asked to leave: nothing is opened any more.
        return _all_released(replace(session, offered=NOTHING), now_ms)
    return StepResult(session)


def _all_released(session: Session, now_ms: int) -> StepResult:
    if session.shuts_down and not session.join_requested_shutdown and session.group in TAKING_PART:
        return StepResult(request_join(session, "the application is to shut down", now_ms))
    if session.shuts_down and session.group is not ClassicMemberState.IN and session.join_requested_shutdown:
        return StepResult(session)
    if session.shutdown_wait_until_ms is not None and now_ms < session.shutdown_wait_until_ms:
        return StepResult(session)
    return leave_group(session)


def _set_task_offsets(session: Session, event: SetTaskOffsets, now_ms: int) -> StepResult:
    return StepResult(replace(session, report=OffsetReport(event.offsets, event.end_offsets)))


def _request_shutdown(session: Session, _: RequestShutdown, now_ms: int) -> StepResult:
    return _leave(replace(session, shutdown_application=True), Leave(), now_ms)


def _leave(session: Session, event: Leave, now_ms: int) -> StepResult:
    if session.leave is not None:
        return StepResult(session)
    session = replace(session, leave=event)
    if session.group not in TAKING_PART or session.generation == NO_GENERATION:
        lost = (TasksLost("the member left while it was not part of the group"),) if session.held else ()
        if session.group in TAKING_PART and session.member_id and not lost:
            return leave_group(session)
        return end(session, (*lost, LeftGroup()))
    if session.held:
        return StepResult(replace(session, tasks=TaskState.RELEASING, assigned=NOTHING), (ReleaseTasks(),))
    return _all_released(replace(session, tasks=TaskState.RELEASING, assigned=NOTHING), now_ms)


def _unfit(session: Session, event: Unfit, now_ms: int) -> StepResult:
    if session.group is not ClassicMemberState.LEADING:
        return StepResult(session)
    return refused_by_leader(session, unlike_java(session.membership, event.reason))


def _wanted(session: Session, event: RejoinWanted, now_ms: int) -> StepResult:
    return StepResult(request_join(session, event.reason, now_ms))


def _endpoints_found(session: Session, event: EndpointsFound, now_ms: int) -> StepResult:
    return StepResult(session, (EndpointsChanged(event.partitions),))


# --------------------------------------------------------------------------------------------- network responses


def _coordinator_found(session: Session, event: CoordinatorFound, now_ms: int) -> StepResult:
    return StepResult(replace(session, version=event.version, in_flight=None))


def _request_failed(session: Session, event: RequestFailed, now_ms: int) -> StepResult:
    in_flight = session.in_flight
    session = replace(session, in_flight=None, version=None)
    if in_flight is InFlight.LEAVE or session.group is ClassicMemberState.LEAVING:
        return after_leave(session)
    if session.tasks is TaskState.STALE:
        return StepResult(replace(session, stale_leave_pending=False))
    if session.group not in TAKING_PART:
        return StepResult(session)
    return retry(session, event.reason, now_ms)


def _rebalance_failed(session: Session, event: RebalanceFailed, now_ms: int) -> StepResult:
    lost = session.rebalance_in_flight
    session = replace(session, rebalance_in_flight=None, version=None)
    if not _is_awaited(session, lost):
        return StepResult(session)
    return retry(replace(session, join_was_lost=session.join_was_lost or lost is InFlight.JOIN), event.reason, now_ms)


def _is_awaited(session: Session, answered: InFlight | None) -> bool:
    """Whether the response still counts: the member may have left, or lost all tasks, in the meantime."""
    wanted = ClassicMemberState.JOINING if answered is InFlight.JOIN else ClassicMemberState.SYNCING
    return session.group is wanted


def _refused(session: Session, event: Refused, now_ms: int) -> StepResult:
    return fatal(session, event.error)


def _answered(session: Session, event: Answered, now_ms: int) -> StepResult:
    answered = session.in_flight
    session = replace(session, in_flight=None)
    if answered is InFlight.LEAVE:
        return after_leave(session)
    if answered is not InFlight.HEARTBEAT or session.group not in BEATING:
        return StepResult(session)
    if session.beat_generation != session.generation:
        # The lanes are two connections: a heartbeat may be overtaken by a whole generation.
        return note_recovery(session, now_ms)
    code = event.response.error_code
    if code == ErrorCode.NONE:
        return note_recovery(session, now_ms)
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        return _rebalances(session, now_ms)
    return on_error(session, code, now_ms)


def _rebalances(session: Session, now_ms: int) -> StepResult:
    """Joins again, because the group waits for this member."""
    session, events, _ = note_recovery(session, now_ms)
    if session.shutdown_wait_until_ms is not None and session.group is ClassicMemberState.IN and not session.held:
        return StepResult(leave_group(session).session, events)
    if session.group is not ClassicMemberState.IN:
        session = replace(session, missed_sync=True, sync=None, group=ClassicMemberState.IN)
    return StepResult(request_join(session, "the group rebalances", now_ms, is_forced=True), events)


def _rebalance_answered(session: Session, event: RebalanceAnswered, now_ms: int) -> StepResult:
    answered = session.rebalance_in_flight
    session = replace(session, rebalance_in_flight=None)
    if not _is_awaited(session, answered):
        return StepResult(session)
    if isinstance(event.response, JoinGroupResponse):
        return _join_answered(session, event.response, now_ms)
    return _sync_answered(session, event.response, now_ms)


def _join_answered(session: Session, response: JoinGroupResponse, now_ms: int) -> StepResult:
    code = response.error_code
    if code == ErrorCode.MEMBER_ID_REQUIRED and session.join is not None:
        # The same request, now with the id (KIP-394).
        return StepResult(
            replace(session, member_id=response.member_id, join=with_member_id(session.join, response.member_id))
        )
    if code == ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH and not session.topology_wanted:
        # The coordinator of a streams group assigns the tasks, but does not know the topology: the same request with its
        # text.
        session = replace(session, topology_wanted=True, join=None)
        return StepResult(request_join(session, "the coordinator asks for the topology", now_ms, is_forced=True))
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        # The group is changing its protocol: members that waited in it were not counted.
        return retry(session, error_name(code), now_ms)
    if code != ErrorCode.NONE:
        return on_error(session, code, now_ms)
    session, events, _ = note_recovery(session, now_ms)
    changed = response.generation_id != session.generation
    session = replace(
        session,
        member_id=response.member_id,
        generation=response.generation_id,
        protocol_name=response.protocol_name or PROTOCOL_NAME,
        leader_id=response.leader or "",
        is_leaderless=not response.leader,
        join=None,
        join_was_lost=False,
        id_taken_since_ms=None,
        sent_at_ms=now_ms,
    )
    if changed:
        events += (EpochChanged(response.generation_id),)
    if response.leader != response.member_id or response.skip_assignment:
        session = replace(session, group=ClassicMemberState.SYNCING, sync=sync_request(session, {}))
        return StepResult(session, events)
    members = tuple(Joined(m.member_id, m.group_instance_id, bytes(m.metadata)) for m in response.members)
    lead = Lead(response.generation_id, response.protocol_name or "", members)
    return StepResult(replace(session, group=ClassicMemberState.LEADING), events, lead)


def _led(session: Session, event: Led, now_ms: int) -> StepResult:
    if session.group is not ClassicMemberState.LEADING or event.generation != session.generation:
        return StepResult(session)
    sync = sync_request(session, dict(event.assignments))
    wait_until_ms = None
    if session.join_requested_shutdown and len(event.assignments) > 1:
        # Members whose SyncGroup arrives after this one has left only get REBALANCE_IN_PROGRESS.
        wait_until_ms = now_ms + SHUTDOWN_PATIENCE_MS
    return StepResult(
        replace(session, group=ClassicMemberState.SYNCING, sync=sync, shutdown_wait_until_ms=wait_until_ms)
    )


def _sync_answered(session: Session, response: SyncGroupResponse, now_ms: int) -> StepResult:
    code = response.error_code
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        return _rebalances(session, now_ms)
    if code != ErrorCode.NONE:
        return on_error(session, code, now_ms)
    session, events, _ = note_recovery(session, now_ms)
    session = replace(session, sync=None, group=ClassicMemberState.IN, synced_at_ms=now_ms, sent_at_ms=now_ms)
    change = _take(session, assigned_by(session, bytes(response.assignment)), now_ms)
    return StepResult(change.session, events + change.events)


# ----------------------------------------------------------------------------------------------------- the assignment


def _take(session: Session, given: Assigned, now_ms: int) -> StepResult:
    session = replace(session, stream_version=given.stream_version or session.stream_version)
    if given.error is not None:
        return refused_by_leader(session, given.error)
    if given.assignment is None:
        if session.tasks is TaskState.RELEASING and not session.held:
            return leave_group(session)
        session, events = _take_statuses(session, given, now_ms) if given.statuses else (session, ())
        session = replace(session, missed_sync=True, idle_rounds=session.idle_rounds + 1)
        return StepResult(request_join(session, given.why_not, now_ms), events)
    assignment = given.assignment
    session = replace(
        session,
        fences=0,
        missed_sync=False,
        sync_failures=0,
        synced_generation=session.generation,
        awaits=assignment.awaits,
        recovery_lag=assignment.recovery_lag,
        topology_wanted=assignment.send_topology,
        rejoin_at_ms=None if assignment.rejoin_after_ms is None else now_ms + assignment.rejoin_after_ms,
        partitions=session.partitions | assignment.assigned_partitions,
        echo=given.echo or session.echo,
        revoked=not_given(session.claimed, assignment.tasks),
    )
    session, events = _take_statuses(session, given, now_ms)
    if given.answers is not None and given.answers != session.answers:
        session = replace(session, answers=given.answers)
        events += (EndpointsChanged(given.answers),)
    if session.tasks is TaskState.RELEASING:
        if session.held:
            return StepResult(session, events)
        last = _all_released(session, now_ms)
        return StepResult(last.session, events + last.events)
    changes = session.is_new or assignment.tasks != session.assigned
    session = replace(
        session,
        assigned=assignment.tasks,
        offered=union(session.offered, assignment.tasks),
        partitions=session.partitions if session.revoked else assignment.assigned_partitions,
        is_new=False,
        idle_rounds=0 if changes or not session.joined_of_its_own else session.idle_rounds + 1,
    )
    if changes:
        events += (AssignmentChanged(assignment.tasks, session.generation, assignment.why),)
    if given.is_stored:
        session = request_join(session, "the member continues after a restart", now_ms)
    return StepResult(session, events)


def _take_statuses(session: Session, given: Assigned, now_ms: int) -> tuple[Session, tuple[Event, ...]]:
    statuses = given.statuses
    missing = any(status.code is StatusCode.MISSING_SOURCE_TOPICS for status in statuses)
    since = session.sources_missing_since_ms
    changed = statuses != session.statuses
    is_shut_down = any(status.code is StatusCode.SHUTDOWN_APPLICATION for status in statuses)
    session = replace(
        session,
        statuses=statuses,
        shutdown_received=session.shutdown_received or (is_shut_down and not session.shutdown_application),
        sources_missing_since_ms=(now_ms if since is None else since) if missing else None,
        sources_missing_reported=session.sources_missing_reported and missing,
    )
    return session, (*given.unknown, StatusChanged(statuses, is_classic=True)) if changed else given.unknown


# ------------------------------------------------------------------------------------------------- reasons to join again


def _rejoin_if_due(session: Session, now_ms: int) -> Session:
    if session.group is not ClassicMemberState.IN or session.rejoin is not None:
        return session
    if session.revoked and not is_held(session.revoked, session.held):
        return replace(request_join(session, "tasks are released", now_ms), revoked=NOTHING)
    if session.tasks is not TaskState.RUNNING:
        return session
    if session.topology_wanted:
        return request_join(session, "the leader asks for the topology", now_ms)
    if not caught_up_warmups(session) <= session.reported_caught_up:
        return request_join(session, "a warm-up task has caught up", now_ms)
    if session.rejoin_at_ms is not None and now_ms >= session.rejoin_at_ms:
        return replace(request_join(session, "the leader scheduled this rebalance", now_ms), rejoin_at_ms=None)
    return session


# -------------------------------------------------------------------------------------------------------------- times


def _tick(session: Session, _: Tick, now_ms: int) -> StepResult:
    return StepResult(session)


def _check_times(session: Session, now_ms: int) -> tuple[Session, tuple[Event, ...]]:
    events: tuple[Event, ...] = ()
    since = session.sources_missing_since_ms
    patience_ms = session.membership.missing_source_topics_timeout_ms
    if since is not None and not session.sources_missing_reported and now_ms >= since + patience_ms:
        session = replace(session, sources_missing_reported=True)
        detail = next(s.detail for s in session.statuses if s.code is StatusCode.MISSING_SOURCE_TOPICS)
        events = (SourceTopicsMissing(detail),)
    if session.shutdown_wait_until_ms is not None and now_ms >= session.shutdown_wait_until_ms:
        session = replace(session, shutdown_wait_until_ms=None)
        if session.tasks is TaskState.RELEASING and session.group is ClassicMemberState.IN and not session.held:
            session = leave_group(session).session
    limit_ms = session.membership.rebalance_timeout_ms
    if must_poll(session) and now_ms >= session.polled_at_ms + limit_ms:
        # A static member keeps its place until its session expires, and sends nothing until then.
        leaves = bool(session.member_id) and session.membership.instance_id is None
        member_id = session.member_id
        session = replace(
            without_group(session), tasks=TaskState.STALE, stale_leave_pending=leaves, member_id=member_id
        )
        events += (TasksLost(f"the processing thread did not poll for {limit_ms} ms (max.poll.interval.ms)"),)
    return session, events


_HANDLERS: dict[type, Callable[[Session, Any, int], StepResult]] = {
    Join: _join,
    ReportOwned: _report_owned,
    OwnedReported: _owned_reported,
    SetTaskOffsets: _set_task_offsets,
    RequestShutdown: _request_shutdown,
    Leave: _leave,
    CoordinatorFound: _coordinator_found,
    Answered: _answered,
    RequestFailed: _request_failed,
    RebalanceAnswered: _rebalance_answered,
    RebalanceFailed: _rebalance_failed,
    Refused: _refused,
    Led: _led,
    Unfit: _unfit,
    RejoinWanted: _wanted,
    EndpointsFound: _endpoints_found,
    Tick: _tick,
}
