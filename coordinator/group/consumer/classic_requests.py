"""Requests of the classic protocol to a consumer group, as the machine of all groups gets them.

A JoinGroup that leaves no member of the consumer protocol, because a static one comes back with the classic protocol, makes
the group a classic one, and joins that.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.group.classic.change import join_refusal
from coordinator.group.classic.join import join as join_classic_group
from coordinator.group.classic.membership import SEVERAL_MEMBERS_VERSION, leaving
from coordinator.group.consumer import classic_members
from coordinator.group.consumer.change import GroupChange
from coordinator.group.consumer.classic_members import Joined, classic_member
from coordinator.group.consumer.config import NeededConfig
from coordinator.group.consumer.departure import remove_members
from coordinator.group.consumer.migration import downgraded
from coordinator.group.consumer.state import ConsumerGroup
from coordinator.group.refusal import Refused
from coordinator.group.values import GroupDecision, Reply, RequestContext
from coordinator.machine.values import Decision
from streamsrt.assignment.topics import TopicsImage
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


def join(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    context: RequestContext,
    now_ms: int,
    image: TopicsImage,
    config: NeededConfig,
) -> GroupDecision:
    """Handles JoinGroup to a consumer group that has members."""
    try:
        if (
            not config.classic.min_session_timeout_ms
            <= request.session_timeout_ms
            <= config.classic.max_session_timeout_ms
        ):
            raise Refused(ErrorCode.INVALID_SESSION_TIMEOUT)
        change = GroupChange(group, context, now_ms, image, config.consumer)
        joined = classic_members.join(change, request, config.consumer.migration)
    except Refused as refused:
        response = join_refusal(refused.code, request.member_id, context.api_version)
        return Decision(replies=(Reply(context.request_id, response),))
    if isinstance(joined, Decision):
        return joined
    return _maybe_downgraded(joined, request, context, image, config)


def _maybe_downgraded(
    joined: Joined, request: JoinGroupRequest, context: RequestContext, image: TopicsImage, config: NeededConfig
) -> GroupDecision:
    change = joined.change
    before, after = change.before, change.group
    had_others = before.classic_members < len(before.members)
    is_classic_now = after.classic_members == len(after.members) <= config.classic.max_size
    if not (had_others and is_classic_now and config.consumer.migration.downgrades):
        return change.decision(joined.reply)
    classic, first = downgraded(after, sorted(after.members), change.now_ms, image, config)
    again = JoinGroupRequest(
        group_id=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        member_id=joined.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=request.protocols,
        reason=request.reason,
    )
    second = join_classic_group(classic, again, context, change.now_ms, config.classic)
    return Decision(
        records=(*change.records, *first.records, *second.records),
        soft=(*first.soft, *second.soft),
        timers=(*change.timers, *first.timers, *second.timers),
        replies=(*first.replies, *second.replies),
    )


def sync(
    group: ConsumerGroup,
    request: SyncGroupRequest,
    context: RequestContext,
    now_ms: int,
    image: TopicsImage,
    config: NeededConfig,
) -> GroupDecision:
    """Handles SyncGroup to a consumer group."""
    try:
        return classic_members.sync(group, request, context, now_ms, image, config)
    except Refused as refused:
        return Decision(replies=(Reply(context.request_id, SyncGroupResponse(error_code=refused.code)),))


def heartbeat(
    group: ConsumerGroup, request: HeartbeatRequest, context: RequestContext, now_ms: int, config: NeededConfig
) -> GroupDecision:
    """Handles Heartbeat of the classic protocol to a consumer group."""
    try:
        return classic_members.heartbeat(group, request, context, now_ms, config)
    except Refused as refused:
        return Decision(replies=(Reply(context.request_id, HeartbeatResponse(error_code=refused.code)),))


def leave(group: ConsumerGroup, request: LeaveGroupRequest, context: RequestContext) -> GroupDecision:
    """Handles LeaveGroup to a consumer group: classic members only, each with its own error."""
    response = LeaveGroupResponse()
    gone = []
    for member_id, instance_id in leaving(request, context.api_version):
        code, name = ErrorCode.NONE, member_id
        if not name and instance_id is not None:
            name = group.static_members.get(instance_id, "")
        try:
            classic_member(group, name, instance_id)
            gone.append(name)
        except Refused as refused:
            code = refused.code
        response.members.append(
            response.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
        )
    if context.api_version < SEVERAL_MEMBERS_VERSION:
        response = LeaveGroupResponse(error_code=response.members[0].error_code)
    return replace(remove_members(group, gone), replies=(Reply(context.request_id, response),))
