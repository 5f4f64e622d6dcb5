"""The member's half of KIP-1071 as a pure state machine: ``step(session, event, now_ms) -> SessionStep``.

Rules:

1. At most one request is in flight, be it a heartbeat or the search for the coordinator. What happens meanwhile is kept
   and sent with the next one.
2. A joining heartbeat (epoch 0) carries every field, with empty task lists. Later ones carry what changed since the last
   one that was *answered*; after any failure the next one carries every field but the topology.
3. A heartbeat reports the open tasks, and active tasks that are to be opened: others get what a report leaves out.
4. The task lists of a response are complete; null leaves the tasks of that role unchanged. When open and assigned tasks
   are equal, a heartbeat that says so is sent at once, as is one for every other change of the open tasks.
5. Losing the coordinator, a timeout or a retriable error changes neither tasks nor epoch. After FENCED_MEMBER_EPOCH,
   UNKNOWN_MEMBER_ID or the deletion of the group, all tasks are lost: no heartbeat is sent until the processing thread
   has closed them and reported that nothing is open; then the member joins again under its old id.
6. After a failure nothing is sent before the back-off is over. Otherwise the interval of the latest response applies
   between two requests. A member sends heartbeats more often while its assignment is a matter of seconds, and while a
   warm-up task that has caught up waits for its promotion: at first twice a second, then less and less.
7. A join that is refused because another member has the ``group.instance.id`` is sent again until that member's session
   must have ended: the process before this one may have been killed. After that, the other one is alive, and the refusal
   is final.
8. Nothing here reads a clock or makes an id; ``now_ms`` is a monotonic time in milliseconds.

States are those of Kafka's ``MemberState``. Source: KIP-1071; KIP-848; ``StreamsMembershipManager``,
``StreamsGroupHeartbeatRequestManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from streamsrt.assignment.status_code import StatusCode
from streamsrt.errors import StreamsError
from streamsrt.membership.errors import refusal, with_missing_right
from streamsrt.membership.requests import caught_up_warmups, heartbeat, leave_request
from streamsrt.membership.session_events import OwnedReported, Refused, RequestFailed, Tick
from streamsrt.membership.state import (
    HEARTBEAT_STATES,
    MEMBER_STATES,
    SENDING_STATES,
    Answered,
    CoordinatorFound,
    InFlight,
    MemberState,
    Occurrence,
    OffsetReport,
    Response,
    Session,
    SessionStep,
)
from streamsrt.membership.statuses import is_short_delay
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    Endpoint,
    EndpointsChanged,
    EpochChanged,
    Event,
    HeartbeatRecovered,
    HeartbeatTrouble,
    InstanceIdTaken,
    Join,
    Leave,
    LeftGroup,
    MembershipFailed,
    ReleaseTasks,
    ReportOwned,
    RequestShutdown,
    SetTaskOffsets,
    SourceTopicsMissing,
    Status,
    StatusChanged,
    Task,
    Tasks,
    TasksLost,
    UnknownStatus,
)
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode, error_name, is_retriable
from streamsrt.wire.private_tags import SAME_TOPOLOGY_TAG, WHY_ASSIGNED_TAG

PROMOTION_INTERVAL_MS = 500
PROMOTION_PATIENCE_MS = 30_000
DELAYED_INTERVAL_MS = 500

Change: TypeAlias = tuple[Session, tuple[Event, ...]]


def step(session: Session, event: Occurrence, now_ms: int) -> SessionStep:
    """Returns the next state, and the requests and events that follow. ``event`` is a command of ``values`` or an event
    of this module."""
    if session.ended:
        return SessionStep(session)
    session, events = _HANDLERS[type(event)](session, event, now_ms)
    if not session.ended:
        session, more = _check_times(session, now_ms)
        events += more
    session = _count(session, events)
    if session.ended:
        return SessionStep(session, events=events)
    return _act(session, events, now_ms)


def alive(session: Session, polled_at_ms: int) -> Session:
    """Records that the processing thread was active at this time. Called before every event."""
    return replace(session, polled_at_ms=polled_at_ms) if polled_at_ms > session.polled_at_ms else session


def _count(session: Session, events: tuple[Event, ...]) -> Session:
    if not events:
        return session
    lost_at = session.lost_at
    for number, event in enumerate(events, session.event_count + 1):
        if isinstance(event, TasksLost):
            lost_at = number
    return replace(session, event_count=session.event_count + len(events), lost_at=lost_at)


# ----------------------------------------------------------------------------------------------------------- commands


def _join(session: Session, _: Join, now_ms: int) -> Change:
    if session.state is not MemberState.UNSUBSCRIBED:
        return session, ()
    return replace(session, state=MemberState.JOINING, urgent=True, polled_at_ms=now_ms), ()


def _report_owned(session: Session, event: ReportOwned, now_ms: int) -> Change:
    return _owned_reported(session, OwnedReported(event.tasks, session.event_count), now_ms)


def _owned_reported(session: Session, event: OwnedReported, now_ms: int) -> Change:
    changed = event.tasks != session.owned
    offered = frozenset() if event.seen >= session.assigned_at else session.offered
    session = replace(session, owned=event.tasks, offered=offered, polled_at_ms=now_ms)
    if session.lost_at is not None:
        if event.seen >= session.lost_at and not event.tasks:
            session = _rejoin_if_free(replace(session, lost_at=None), now_ms)
        return session, ()
    if session.state is MemberState.PREPARE_LEAVING and not session.owned:
        return replace(session, state=MemberState.LEAVING, urgent=True), ()
    if session.state not in MEMBER_STATES:
        return session, ()
    if changed:
        session = replace(session, urgent=True)
    return _reconcile(session), ()


def _set_task_offsets(session: Session, event: SetTaskOffsets, now_ms: int) -> Change:
    known = session.report or OffsetReport({}, {})
    report = replace(known, offsets=event.offsets, end_offsets=event.end_offsets)
    session = replace(session, report=report)
    is_news = bool(session.heartbeat_version) and not caught_up_warmups(session, report) <= report.reported_caught_up
    return replace(session, urgent=True) if is_news and session.state in MEMBER_STATES else session, ()


def _request_shutdown(session: Session, _: RequestShutdown, now_ms: int) -> Change:
    return _leave(replace(session, shutdown_application=True), Leave(), now_ms)


def _leave(session: Session, event: Leave, now_ms: int) -> Change:
    if session.leave is not None:
        return session, ()
    session = replace(session, leave=event)
    never_joined = session.state is MemberState.JOINING and session.in_flight is not InFlight.HEARTBEAT
    if never_joined or session.state not in HEARTBEAT_STATES:
        lost = (TasksLost("the member left while it was not part of the group"),) if session.owned else ()
        return _end(session, (*lost, LeftGroup()))
    if session.owned or session.assigned:
        return replace(session, state=MemberState.PREPARE_LEAVING), (ReleaseTasks(),)
    return replace(session, state=MemberState.LEAVING, urgent=True), ()


# --------------------------------------------------------------------------------------------- network responses


def _coordinator_found(session: Session, event: CoordinatorFound, now_ms: int) -> Change:
    return replace(session, heartbeat_version=event.heartbeat_version, in_flight=None, urgent=True), ()


def _request_failed(session: Session, event: RequestFailed, now_ms: int) -> Change:
    return _retry(replace(session, heartbeat_version=None), event.reason, now_ms)


def _refused(session: Session, event: Refused, now_ms: int) -> Change:
    return _fatal(session, event.error)


def _answered(session: Session, event: Answered, now_ms: int) -> Change:
    answered = session.in_flight
    session = replace(session, in_flight=None)
    if answered is InFlight.LEAVE:
        return _after_leave(session, now_ms)
    if answered is not InFlight.HEARTBEAT or session.state not in SENDING_STATES:
        return replace(session, sent=None, sent_report=None), ()
    if event.response.error_code != ErrorCode.NONE:
        return _on_error(session, event.response, now_ms)
    return _on_success(session, event.response, now_ms)


def _on_success(session: Session, response: Response, now_ms: int) -> Change:
    session, events = _recovered(session, now_ms)
    epoch_changed = response.member_epoch != session.member_epoch
    joined = session.state is MemberState.JOINING
    session = replace(
        session,
        member_epoch=response.member_epoch,
        acknowledged=session.acknowledged if session.sent is None else session.sent,
        sent=None,
        report=_reported(session),
        sent_report=None,
        full=False,
        fences=0,
        id_taken_since_ms=None,
        heartbeat_interval_ms=response.heartbeat_interval_ms or session.heartbeat_interval_ms,
        task_offset_interval_ms=response.task_offset_interval_ms or session.task_offset_interval_ms,
        acceptable_recovery_lag=_recovery_lag(session, response),
    )
    if epoch_changed:
        events += (EpochChanged(response.member_epoch),)
    session, more = _take_statuses(session, response, now_ms)
    events += more
    session, more = _take_endpoints(session, response)
    events += more
    session, more = _take_assignment(session, response, joined, len(events), now_ms)
    return session, events + more


def _recovery_lag(session: Session, response: Response) -> int:
    if session.heartbeat_version:
        return response.acceptable_recovery_lag
    return response.acceptable_recovery_lag_legacy


def _reported(session: Session) -> OffsetReport | None:
    """Returns the report for the next heartbeat: the newest values, and what the answered heartbeat has reported of them."""
    if session.report is None or session.sent_report is None:
        return session.report
    sent = session.sent_report
    return replace(
        session.report,
        reported_at_ms=sent.reported_at_ms,
        reported_tasks=sent.reported_tasks,
        reported_caught_up=sent.reported_caught_up,
    )


def _take_statuses(session: Session, response: Response, now_ms: int) -> Change:
    if response.status is None:
        return session, ()
    statuses: list[Status] = []
    events: tuple[Event, ...] = ()
    for status in response.status:
        if status.status_code in _STATUS_CODES:
            statuses.append(
                Status(StatusCode(status.status_code), with_missing_right(session.membership, status.status_detail))
            )
        else:
            events += (UnknownStatus(status.status_code, status.status_detail),)
    missing = any(status.code is StatusCode.MISSING_SOURCE_TOPICS for status in statuses)
    changed = tuple(statuses) != session.statuses
    session = replace(
        session,
        statuses=tuple(statuses),
        delayed_since_ms=_since(session.delayed_since_ms, any(map(is_short_delay, statuses)), now_ms),
        sources_missing_since_ms=_since(session.sources_missing_since_ms, missing, now_ms),
        sources_missing_reported=session.sources_missing_reported and missing,
    )
    return session, (*events, StatusChanged(session.statuses)) if changed else events


def _since(since_ms: int | None, holds: bool, now_ms: int) -> int | None:
    """Since when something holds; None if it does not."""
    if not holds:
        return None
    return now_ms if since_ms is None else since_ms


def _take_endpoints(session: Session, response: Response) -> Change:
    session = replace(session, endpoint_epoch=response.endpoint_information_epoch)
    if response.partitions_by_user_endpoint is None:
        return session, ()
    partitions: dict[Endpoint, tuple[frozenset[tuple[str, int]], frozenset[tuple[str, int]]]] = {}
    for entry in response.partitions_by_user_endpoint:
        # Several members of one process have one endpoint.
        endpoint = Endpoint(entry.user_endpoint.host, entry.user_endpoint.port)
        active, standby = partitions.get(endpoint, (frozenset(), frozenset()))
        partitions[endpoint] = (
            active | _topic_partitions(entry.active_partitions),
            standby | _topic_partitions(entry.standby_partitions),
        )
    return session, (EndpointsChanged(partitions),)


def _topic_partitions(
    entries: Iterable[types.StreamsGroupHeartbeatResponse.TopicPartition],
) -> frozenset[tuple[str, int]]:
    return frozenset((entry.topic, partition) for entry in entries for partition in entry.partitions)


def _take_assignment(session: Session, response: Response, joined: bool, earlier: int, now_ms: int) -> Change:
    """Takes over an assignment. ``earlier``: how many events of this response precede the assignment's."""
    if session.state in {MemberState.PREPARE_LEAVING, MemberState.LEAVING}:
        return session, ()
    lists = (response.active_tasks, response.standby_tasks, response.warmup_tasks)
    before = session.assigned
    assigned = Tasks(
        before.active if lists[0] is None else _tasks(lists[0]),
        before.standby if lists[1] is None else _tasks(lists[1]),
        before.warmup if lists[2] is None else _tasks(lists[2]),
    )
    events: tuple[Event, ...] = ()
    if joined or assigned != before:
        session = replace(
            session,
            assigned=assigned,
            assigned_at=session.event_count + earlier + 1,
            offered=session.offered | assigned.active,
            state=MemberState.RECONCILING,
        )
        events = (AssignmentChanged(assigned, session.member_epoch, _why(response)),)
    return _reconcile(session), events


def _why(response: Response) -> str:
    return (response.unknown_tags or {}).get(WHY_ASSIGNED_TAG, b"").decode(errors="replace")


def _tasks(entries: Iterable[types.StreamsGroupHeartbeatResponse.TaskIds]) -> frozenset[Task]:
    return frozenset((entry.subtopology_id, partition) for entry in entries for partition in entry.partitions)


def _reconcile(session: Session) -> Session:
    # A thread that has not handled this assignment yet may still open tasks of an earlier one.
    if session.owned != session.assigned or not session.offered <= session.assigned.active:
        return replace(session, state=MemberState.RECONCILING)
    if session.state is MemberState.RECONCILING:
        return replace(session, state=MemberState.ACKNOWLEDGING, urgent=True)
    return session


# ------------------------------------------------------------------------------------------------------------- errors


_LOST = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_STATUS_CODES = frozenset(int(code) for code in StatusCode)


def _on_error(session: Session, response: Response, now_ms: int) -> Change:
    code, message = response.error_code, response.error_message
    reason = f"{error_name(code)}: {message}" if message else error_name(code)
    if code in _COORDINATOR_MOVED:
        return _retry(replace(session, heartbeat_version=None), reason, now_ms)
    if code in _LOST or (code == ErrorCode.GROUP_ID_NOT_FOUND and session.member_epoch > 0):
        return _lose_tasks(session, reason, now_ms)
    if is_retriable(code):
        return _retry(session, reason, now_ms)
    is_same_topology = SAME_TOPOLOGY_TAG in (response.unknown_tags or {})
    error = refusal(session.membership, code, message, is_same_topology=is_same_topology)
    if code == ErrorCode.UNRELEASED_INSTANCE_ID and session.state is MemberState.JOINING:
        return _retry_instance_id(session, error, now_ms)
    return _fatal(session, error)


def _retry_instance_id(session: Session, error: StreamsError, now_ms: int) -> Change:
    session, recovered = _recovered(session, now_ms)
    membership, since_ms = session.membership, session.id_taken_since_ms
    left_ms = (now_ms if since_ms is None else since_ms) + membership.instance_id_wait_ms - now_ms
    if session.leave is not None or left_ms <= 0:
        return _fatal(session, error)
    session = replace(
        session,
        sent=None,
        sent_report=None,
        full=True,
        urgent=True,
        id_taken_since_ms=now_ms if since_ms is None else since_ms,
        back_off_until_ms=now_ms + min(membership.retry_backoff_max_ms, left_ms),
    )
    return session, (*recovered, InstanceIdTaken(left_ms)) if since_ms is None or recovered else ()


def _retry(session: Session, reason: str, now_ms: int) -> Change:
    """Schedules a retry. Tasks and epoch are kept; the next heartbeat contains everything (a leaving member does not
    retry)."""
    leaving = session.in_flight is InFlight.LEAVE or session.state is MemberState.LEAVING
    session = replace(session, in_flight=None, sent=None, sent_report=None, full=True)
    if session.state is MemberState.STALE:
        return _rejoin_if_free(replace(session, stale_leave_pending=False), now_ms), ()
    if leaving:
        return _end(session, (LeftGroup(),))
    session = replace(
        session,
        failures=session.failures + 1,
        back_off_until_ms=now_ms + _back_off_ms(session, session.failures),
        urgent=True,
        trouble_since_ms=now_ms if session.trouble_since_ms is None else session.trouble_since_ms,
    )
    return session, (HeartbeatTrouble(reason),) if session.failures == 1 else ()


def _back_off_ms(session: Session, failures: int) -> int:
    membership = session.membership
    return min(membership.retry_backoff_ms << min(failures, 16), membership.retry_backoff_max_ms)


def _recovered(session: Session, now_ms: int) -> Change:
    if session.trouble_since_ms is None:
        return session, ()
    outage_ms = now_ms - session.trouble_since_ms
    return replace(session, failures=0, trouble_since_ms=None), (HeartbeatRecovered(outage_ms),)


def _lose_tasks(session: Session, reason: str, now_ms: int) -> Change:
    lost: tuple[Event, ...] = (TasksLost(reason),) if session.member_epoch > 0 else ()
    if session.state in {MemberState.PREPARE_LEAVING, MemberState.LEAVING}:
        return _end(session, (*lost, LeftGroup()))
    back_off_until_ms = now_ms + _back_off_ms(session, session.fences - 1) if session.fences else now_ms
    session, recovered = _recovered(session, now_ms)
    session = replace(
        session,
        state=MemberState.FENCED,
        assigned=NOTHING,
        fences=session.fences + 1,
        back_off_until_ms=back_off_until_ms,
        sent=None,
        sent_report=None,
    )
    return (session if lost else _rejoin_if_free(session, now_ms)), recovered + lost


def _rejoin_if_free(session: Session, now_ms: int) -> Session:
    """Joins anew, unless tasks are still being released or the previous membership has to be ended first."""
    if session.state not in {MemberState.FENCED, MemberState.STALE} or session.lost_at is not None:
        return session
    if session.stale_leave_pending or session.in_flight is not None:
        return session
    return replace(
        session,
        state=MemberState.JOINING,
        member_epoch=0,
        assigned=NOTHING,
        acknowledged=None,
        full=True,
        endpoint_epoch=-1,
        urgent=True,
        polled_at_ms=now_ms,
        report=session.report and OffsetReport(session.report.offsets, session.report.end_offsets),
        sources_missing_since_ms=None,
        sources_missing_reported=False,
        statuses=(),
    )


def _fatal(session: Session, error: StreamsError) -> Change:
    if session.leave is not None:
        return _end(session, (LeftGroup(),))
    session = replace(session, state=MemberState.FATAL, ended=True, in_flight=None)
    return session, (MembershipFailed(error),)


def _end(session: Session, events: tuple[Event, ...]) -> Change:
    return replace(session, state=MemberState.UNSUBSCRIBED, ended=True, in_flight=None), events


def _after_leave(session: Session, now_ms: int) -> Change:
    if session.state is not MemberState.STALE:
        return _end(session, (LeftGroup(),))
    return _rejoin_if_free(replace(session, stale_leave_pending=False), now_ms), ()


# -------------------------------------------------------------------------------------------------------------- times


def _tick(session: Session, _: Tick, now_ms: int) -> Change:
    return session, ()


def _check_times(session: Session, now_ms: int) -> Change:
    events: tuple[Event, ...] = ()
    since = session.sources_missing_since_ms
    if since is not None and not session.sources_missing_reported and now_ms >= since + _patience_ms(session):
        session = replace(session, sources_missing_reported=True)
        detail = next(s.detail for s in session.statuses if s.code is StatusCode.MISSING_SOURCE_TOPICS)
        events = (SourceTopicsMissing(detail),)
    if session.state in MEMBER_STATES and now_ms >= session.polled_at_ms + session.membership.rebalance_timeout_ms:
        reason = f"the processing thread did not poll for {session.membership.rebalance_timeout_ms} ms"
        session = replace(session, state=MemberState.STALE, assigned=NOTHING, stale_leave_pending=True, full=True)
        events += (TasksLost(f"{reason} (max.poll.interval.ms)"),)
    return session, events


def _patience_ms(session: Session) -> int:
    return session.membership.missing_source_topics_timeout_ms


# ------------------------------------------------------------------------------------------------------------ sending


def _act(session: Session, events: tuple[Event, ...], now_ms: int) -> SessionStep:
    stale_leave = session.state is MemberState.STALE and session.stale_leave_pending
    if session.in_flight is not None or not (stale_leave or session.state in SENDING_STATES):
        return SessionStep(session, events=events, wake_at_ms=_wake_at_ms(session, None))
    due_ms = now_ms if stale_leave else _due_ms(session, now_ms)
    if now_ms < due_ms:
        return SessionStep(session, events=events, wake_at_ms=_wake_at_ms(session, due_ms))
    if session.heartbeat_version is None:
        session = replace(session, in_flight=InFlight.COORDINATOR)
        return SessionStep(session, find_coordinator=True, events=events, wake_at_ms=_wake_at_ms(session, None))
    leaving = stale_leave or session.state is MemberState.LEAVING
    session, request = leave_request(session) if leaving else heartbeat(session, now_ms)
    return SessionStep(session, request=request, events=events, wake_at_ms=_wake_at_ms(session, None))


def _due_ms(session: Session, now_ms: int) -> int:
    wanted_ms = now_ms if session.urgent else session.sent_at_ms + _interval_ms(session, now_ms)
    return max(wanted_ms, session.back_off_until_ms)


def _interval_ms(session: Session, now_ms: int) -> int:
    """Returns the heartbeat interval. It is shorter while the group is about to assign tasks, which nothing but a response
    says; and while a warm-up task that has reported to be caught up waits for its promotion: its old owner may have stopped
    already."""
    report, interval_ms = session.report, session.heartbeat_interval_ms
    if session.delayed_since_ms is not None:
        # A group that waits for minutes is not asked twice a second all that time.
        return min(interval_ms, max(DELAYED_INTERVAL_MS, (session.sent_at_ms - session.delayed_since_ms) // 4))
    if report is None or report.reported_at_ms is None or not report.reported_caught_up & session.owned.warmup:
        return interval_ms
    is_recent = now_ms - report.reported_at_ms < PROMOTION_PATIENCE_MS
    return min(interval_ms, PROMOTION_INTERVAL_MS) if is_recent else interval_ms


def _wake_at_ms(session: Session, due_ms: int | None) -> int | None:
    times = [] if due_ms is None else [due_ms]
    if session.sources_missing_since_ms is not None and not session.sources_missing_reported:
        times.append(session.sources_missing_since_ms + _patience_ms(session))
    if session.state in MEMBER_STATES:
        times.append(session.polled_at_ms + session.membership.rebalance_timeout_ms)
    return min(times, default=None)


_HANDLERS: dict[type, Callable[[Session, Any, int], Change]] = {  # an occurrence of that class
    Join: _join,
    ReportOwned: _report_owned,
    OwnedReported: _owned_reported,
    SetTaskOffsets: _set_task_offsets,
    RequestShutdown: _request_shutdown,
    Leave: _leave,
    CoordinatorFound: _coordinator_found,
    Answered: _answered,
    RequestFailed: _request_failed,
    Refused: _refused,
    Tick: _tick,
}
