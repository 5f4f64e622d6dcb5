"""SyncGroup, Heartbeat and LeaveGroup of a classic group, and members that time out.

1. Every request of a member has its generation; one of another generation is refused, and the member joins again.
2. SyncGroup waits until the leader has sent the assignment. A member that does not send SyncGroup in time is removed.
3. A heartbeat only extends the session.
4. An administrator may remove static members by instance id alone.
"""

from __future__ import annotations

from coordinator.group.classic.change import JOIN, SESSION, SYNC, ClassicChange
from coordinator.group.classic.config import ClassicConfig
from coordinator.group.classic.fencing import member_error
from coordinator.group.classic.state import ClassicGroup, GroupState, PendingRequest
from coordinator.group.values import NOTHING, GroupDecision, Reply, RequestContext
from coordinator.machine.values import Decision, Timer, TimerKey
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

SEVERAL_MEMBERS_VERSION = 3


def heartbeat(
    group: ClassicGroup | None, request: HeartbeatRequest, context: RequestContext, now_ms: int
) -> GroupDecision:
    """Handles a Heartbeat."""
    if not request.group_id:
        return _heartbeat_answer(context, ErrorCode.INVALID_GROUP_ID)
    if group is None:
        return _heartbeat_answer(context, ErrorCode.UNKNOWN_MEMBER_ID)
    live = group.live
    code = member_error(live, request.member_id, request.group_instance_id)
    if code == ErrorCode.NONE and request.generation_id != live.generation:
        code = ErrorCode.ILLEGAL_GENERATION
    if code != ErrorCode.NONE:
        return _heartbeat_answer(context, code)
    if live.state is GroupState.PREPARING_REBALANCE:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    timeout_ms = live.members[request.member_id].session_timeout_ms
    session = Timer(TimerKey(SESSION, group.group_id, request.member_id), now_ms + timeout_ms)
    return Decision(timers=(session,), replies=_heartbeat_answer(context, code).replies)


def _heartbeat_answer(context: RequestContext, code: ErrorCode) -> GroupDecision:
    return Decision(replies=(Reply(context.request_id, HeartbeatResponse(error_code=code)),))


def kept_by_commit(group: ClassicGroup, member_id: str, now_ms: int) -> tuple[Timer, ...]:
    """Extends the member's session, because a commit shows that it is alive, unless the generation's assignment is being
    computed."""
    live = group.live
    member = live.members.get(member_id)
    if member is None or live.state not in {GroupState.STABLE, GroupState.PREPARING_REBALANCE}:
        return ()
    return (Timer(TimerKey(SESSION, group.group_id, member_id), now_ms + member.session_timeout_ms),)


def sync(
    group: ClassicGroup | None,
    request: SyncGroupRequest,
    context: RequestContext,
    now_ms: int,
    config: ClassicConfig,
) -> GroupDecision:
    """Handles a SyncGroup; the response may have to wait for the leader's."""
    code = _sync_error(group, request)
    if group is None or code != ErrorCode.NONE:
        return Decision(replies=(Reply(context.request_id, SyncGroupResponse(error_code=code)),))
    change = ClassicChange(group, now_ms, config)
    name = request.member_id
    waiting = PendingRequest(context.request_id, context.api_version)
    change.has_synced(name)
    if change.state is GroupState.STABLE:
        change.reply(waiting, change.assigned(name))
        return change.decision()
    change.fence(name, ErrorCode.REBALANCE_IN_PROGRESS, name)
    change.syncing[name] = waiting
    if name == change.leader:
        change.assign({entry.member_id: bytes(entry.assignment) for entry in request.assignments})
    return change.decision()


def _sync_error(group: ClassicGroup | None, request: SyncGroupRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None or group.is_empty:
        return ErrorCode.UNKNOWN_MEMBER_ID
    live = group.live
    code = member_error(live, request.member_id, request.group_instance_id)
    if code != ErrorCode.NONE:
        return code
    if request.generation_id != live.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # Clients before version 5 send neither of the two.
    if request.protocol_type not in {None, live.protocol_type} or request.protocol_name not in {None, live.protocol}:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if live.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def unassigned(
    group: object, request: SyncGroupRequest, code: ErrorCode, now_ms: int, config: ClassicConfig
) -> GroupDecision:
    """The leader's assignment could not be stored: those that wait for it get the error, and all members join again.

    ``group``: whatever group has the name.
    """
    if not isinstance(group, ClassicGroup) or group.live.state is not GroupState.COMPLETING_REBALANCE:
        return NOTHING
    live = group.live
    if (request.member_id, request.generation_id) != (live.leader, live.generation):
        return NOTHING
    change = ClassicChange(group, now_ms, config)
    for name in live.syncing:
        change.fence(name, code, name)
        change.keep_session(name)
    change.prepare()
    return change.decision()


def leave(
    group: ClassicGroup | None,
    request: LeaveGroupRequest,
    context: RequestContext,
    now_ms: int,
    config: ClassicConfig,
) -> GroupDecision:
    """Handles a LeaveGroup, of one member up to version 2, of several from version 3."""
    if not request.group_id or group is None:
        code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        return Decision(replies=(Reply(context.request_id, LeaveGroupResponse(error_code=code)),))
    change = ClassicChange(group, now_ms, config)
    response = LeaveGroupResponse()
    some_left = False
    for member_id, instance_id in leaving(request, context.api_version):
        code = _remove(change, member_id, instance_id)
        some_left = some_left or code == ErrorCode.NONE
        response.members.append(
            response.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
        )
    if context.api_version < SEVERAL_MEMBERS_VERSION:
        response = LeaveGroupResponse(error_code=response.members[0].error_code)
    change.reply(PendingRequest(context.request_id, context.api_version), response)
    if some_left and change.state is not GroupState.EMPTY:
        change.rebalance_or_complete()
    return change.decision() if some_left else Decision(replies=change.decision().replies)


def leaving(request: LeaveGroupRequest, api_version: int) -> list[tuple[str, str | None]]:
    """Returns member id and instance id of all members to remove."""
    if api_version < SEVERAL_MEMBERS_VERSION:
        return [(request.member_id, None)]
    return [(entry.member_id, entry.group_instance_id) for entry in request.members]


def _remove(change: ClassicChange, member_id: str, instance_id: str | None) -> ErrorCode:
    if member_id in change.pending:
        change.remove(member_id)
        return ErrorCode.NONE
    if not member_id and instance_id is not None:
        member_id = change.static_members.get(instance_id, "")
        instance_id = None
    code = member_error(change.live(), member_id, instance_id)
    if code == ErrorCode.NONE:
        change.remove(member_id)
    return code


def expire(group: ClassicGroup, key: TimerKey, now_ms: int, config: ClassicConfig) -> GroupDecision:
    """Handles an expired timer of the group: a session, the time to join, or the time to send SyncGroup."""
    live = group.live
    change = ClassicChange(group, now_ms, config)
    if key.kind == SESSION:
        name = key.member_id
        waits = name not in live.fresh and (name in live.joining or name in live.syncing)
        if waits or (name not in live.members and name not in live.pending):
            return NOTHING
        was_member = name in live.members
        change.remove(name)
        if was_member:
            change.rebalance_or_complete()
        else:
            change.complete_join_phase()
    elif key.kind == JOIN and live.state is GroupState.PREPARING_REBALANCE:
        change.waited_long_enough()
    elif key.kind == SYNC and live.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE} and live.unsynced:
        for name in sorted(live.unsynced):
            change.remove(name)
        change.prepare()
    else:
        return NOTHING
    return change.decision()


def on_loaded(group: ClassicGroup, now_ms: int, config: ClassicConfig) -> GroupDecision:
    """Restarts each member's full session timeout after a load.

    Members join again in a group that has grown too large for a changed setting, and in one that has just become a classic
    one: its record has no leader, because nobody has assigned anything yet.
    """
    change = ClassicChange(group, now_ms, config)
    for name in change.members:
        change.keep_session(name)
    if len(change.members) > config.max_size or (change.members and group.leader is None):
        change.prepare()
    return change.decision()
