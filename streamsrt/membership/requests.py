"""The requests of a member: what a heartbeat contains, and when task offsets are reported.

1. A joining heartbeat (epoch 0) contains every field; so does the one after a failure, except the topology.
2. Other heartbeats contain what has changed since the last one that was answered. The three task lists are sent
   together or not at all.
3. Task offsets are reported when a task with state is added or removed, when a warm-up task has caught up, at their
   interval, and with everything else after a failure (KIP-1071); never to a broker that supports only version 0 of the
   heartbeat. A joining heartbeat always has them, even if the list is empty: this says that the member reports them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streamsrt.membership.state import InFlight, MemberState, OffsetReport, Request, Session
from streamsrt.membership.values import NOTHING, GroupMembership, Task
from streamsrt.wire import types

LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


def leave_request(session: Session) -> tuple[Session, Request]:
    membership = session.membership
    remain = session.leave.remain if session.leave is not None else True
    epoch = LEAVE_STATIC_EPOCH if membership.instance_id is not None and remain else LEAVE_EPOCH
    request = Request(
        group_id=membership.group_id,
        member_id=membership.member_id,
        member_epoch=epoch,
        endpoint_information_epoch=session.endpoint_epoch,
        instance_id=membership.instance_id,
        shutdown_application=session.shutdown_application,
    )
    return replace(session, in_flight=InFlight.LEAVE), request


def heartbeat(session: Session, now_ms: int) -> tuple[Session, Request]:
    membership = session.membership
    joining = session.state is MemberState.JOINING
    request = Request(
        group_id=membership.group_id,
        member_id=membership.member_id,
        member_epoch=session.member_epoch,
        endpoint_information_epoch=session.endpoint_epoch,
        instance_id=membership.instance_id,
    )
    owned = NOTHING if joining else session.held
    sent = None
    if session.full or session.state is MemberState.ACKNOWLEDGING or owned != session.acknowledged:
        sent = owned
        request.active_tasks = _task_ids(owned.active)
        request.standby_tasks = _task_ids(owned.standby)
        request.warmup_tasks = _task_ids(owned.warmup)
    if session.full:
        _add_everything(request, membership, joining)
    report = _due_report(session, now_ms)
    if report is not None:
        request.task_offsets = _offsets(report.offsets)
        request.task_end_offsets = _offsets(report.end_offsets)
    session = replace(
        session,
        in_flight=InFlight.HEARTBEAT,
        sent=sent,
        sent_report=report,
        urgent=False,
        sent_at_ms=now_ms,
        state=MemberState.STABLE if session.state is MemberState.ACKNOWLEDGING else session.state,
    )
    return session, request


def _add_everything(request: Request, membership: GroupMembership, joining: bool) -> None:
    request.rack_id = membership.rack_id
    request.rebalance_timeout_ms = membership.rebalance_timeout_ms
    request.process_id = membership.process_id
    request.client_tags = [Request.KeyValue(key=k, value=v) for k, v in sorted(membership.client_tags.items())]
    if membership.endpoint is not None:
        request.user_endpoint = Request.Endpoint(host=membership.endpoint.host, port=membership.endpoint.port)
    if joining:
        request.topology = membership.topology


def _task_ids(tasks: frozenset[Task]) -> list[types.StreamsGroupHeartbeatRequest.TaskIds]:
    partitions: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        partitions.setdefault(subtopology_id, []).append(partition)
    return [Request.TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in partitions.items()]


def _due_report(session: Session, now_ms: int) -> OffsetReport | None:
    """Returns task offsets if they are due. Brokers that support only version 0 of the heartbeat refuse them."""
    report = session.report or (OffsetReport({}, {}) if session.full else None)
    if report is None or not session.heartbeat_version:
        return None
    tasks, caught_up = frozenset(report.offsets), caught_up_warmups(session, report)
    due = (
        session.full
        or report.reported_at_ms is None
        or now_ms - report.reported_at_ms >= session.task_offset_interval_ms
        or tasks != report.reported_tasks
        or not caught_up <= report.reported_caught_up
    )
    if not due:
        return None
    return replace(report, reported_at_ms=now_ms, reported_tasks=tasks, reported_caught_up=caught_up)


def caught_up_warmups(session: Session, report: OffsetReport) -> frozenset[Task]:
    """Returns the warm-up tasks that have caught up far enough to be promoted."""
    return caught_up(session.owned.warmup, report, session.acceptable_recovery_lag)


def caught_up(warmup: frozenset[Task], report: OffsetReport, recovery_lag: int) -> frozenset[Task]:
    """Returns those of ``warmup`` that lack at most ``recovery_lag`` records; none if it is negative, which means
    unknown."""
    if recovery_lag < 0:
        return frozenset()
    return frozenset(
        task
        for task in warmup
        if task in report.offsets
        and task in report.end_offsets
        and report.end_offsets[task] - report.offsets[task] <= recovery_lag
    )


def _offsets(offsets: Mapping[Task, int]) -> list[types.StreamsGroupHeartbeatRequest.TaskOffset]:
    return [
        Request.TaskOffset(subtopology_id=task[0], partition=task[1], offset=offset)
        for task, offset in sorted(offsets.items())
    ]
