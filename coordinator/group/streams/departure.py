"""Members that leave a streams group: for good, temporarily, or because of a session or rebalance timeout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from coordinator.group.heartbeats import LEFT_FOR_A_WHILE
from coordinator.group.members import find_member
from coordinator.group.refusal import Refused
from coordinator.group.streams.records import (
    bumped_epoch,
    current_record,
    epoch_record,
    member_tombstones,
    target_metadata_record,
)
from coordinator.group.streams.response import leave_response
from coordinator.group.streams.state import Member, StreamsGroup
from coordinator.group.values import GroupDecision, GroupRecord, Reply, RequestContext, SoftUpdate
from coordinator.machine.values import CancelTimer, Decision, Timer, TimerKey
from streamsrt.assignment.reconcile import MemberState
from streamsrt.assignment.tasks import NO_TASKS
from streamsrt.assignment.version_backoff import after_setback
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import StreamsGroupHeartbeatRequest

MAX_STRAYED = 1_000
SESSION = "session"
REBALANCE = "rebalance"
INITIAL_DELAY = "initial-delay"


def timers_of(group_id: str, member_id: str) -> tuple[TimerKey, TimerKey]:
    return TimerKey(SESSION, group_id, member_id), TimerKey(REBALANCE, group_id, member_id)


def leave(
    group: StreamsGroup | None,
    request: StreamsGroupHeartbeatRequest,
    context: RequestContext,
    now_ms: int,
    session_timeout_ms: int,
) -> GroupDecision:
    """Handles a heartbeat with member epoch -1 or -2."""
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    member = find_member(group, request.member_id, request.instance_id)
    reply = Reply(context.request_id, leave_response(member.member_id, request.member_epoch))
    if request.member_epoch == LEFT_FOR_A_WHILE:
        return _leave_for_a_while(group, member, reply, now_ms + session_timeout_ms)
    shutdown_by = member.member_id if request.shutdown_application else None
    decision = remove_members(group, [member.member_id], shutdown_by, now_ms=now_ms)
    return replace(decision, replies=(reply,))


def remove_members(
    group: StreamsGroup,
    member_ids: Iterable[str],
    shutdown_by: str | None = None,
    *,
    now_ms: int | None = None,
    timed_out: bool = False,
) -> GroupDecision:
    """Removes members of the group and bumps its epoch; the target is computed with the next heartbeat.

    ``now_ms``: None where somebody else has had them removed, which says nothing of how they fare. ``timed_out``: they may
    be alive, and return.
    """
    gone = [name for name in dict.fromkeys(member_ids) if name in group.members]
    records: list[GroupRecord] = [record for name in gone for record in member_tombstones(group.group_id, name)]
    records.append(epoch_record(group))
    timers = [CancelTimer(key) for name in gone for key in timers_of(group.group_id, name)]
    soft = group.soft
    changes = soft.forgetting(gone)
    if now_ms is not None and any(_sets_back(group, name) for name in gone):
        assert group.topology is not None
        changes["setbacks"] = after_setback(soft.setbacks, group.topology.epoch, now_ms)
    if any(group.members[name].user_endpoint for name in gone):
        changes["endpoint_epoch"] = soft.endpoint_epoch + 1
    if timed_out:
        stale = (name for name in gone if group.is_stale(group.members[name]))
        changes["strayed"] = (*soft.strayed, *stale)[-MAX_STRAYED:]
    if shutdown_by is not None:
        changes["shutdown_requested_by"] = shutdown_by
    if len(gone) == len(group.members):
        records.append(target_metadata_record(group.group_id, epoch=bumped_epoch(group)))
        changes |= {"shutdown_requested_by": None, "delayed_until_ms": None}
        timers.append(CancelTimer(TimerKey(INITIAL_DELAY, group.group_id)))
    return Decision(records=tuple(records), soft=(SoftUpdate(group.group_id, changes),), timers=tuple(timers))


def _leave_for_a_while(group: StreamsGroup, member: Member, reply: Reply, deadline_ms: int) -> GroupDecision:
    """Lets a static member leave temporarily: it keeps its tasks for a session timeout; pending ones count as closed now."""
    current = group.current[member.member_id]
    away = replace(
        current,
        epoch=LEFT_FOR_A_WHILE,
        state=MemberState.STABLE,
        pending=NO_TASKS,
        active_epochs=dict.fromkeys(current.assigned.active, 0),
    )
    session, rebalance = timers_of(group.group_id, member.member_id)
    return Decision(
        records=(current_record(group.group_id, member.member_id, away),),
        timers=(Timer(session, deadline_ms), CancelTimer(rebalance)),
        replies=(reply,),
    )


def _sets_back(group: StreamsGroup, name: str) -> bool:
    """Whether the member had tasks of the newest version while others run older ones."""
    if group.is_stale(group.members[name]) or not group.targets.get(name):
        return False
    return any(group.is_stale(member) for member in group.members.values())
