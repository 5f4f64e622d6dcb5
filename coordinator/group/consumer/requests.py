"""Consumer groups' handlers for the machine of all groups: requests, timers, and the timers of a group after a load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from coordinator.group.classic.state import ClassicGroup
from coordinator.group.consumer.change import GroupChange
from coordinator.group.consumer.config import ConsumerConfig, NeededConfig
from coordinator.group.consumer.departure import leave_for_a_while
from coordinator.group.consumer.describe import described
from coordinator.group.consumer.heartbeat import handle_heartbeat
from coordinator.group.consumer.migration import depart, upgrade
from coordinator.group.consumer.response import leave_response
from coordinator.group.consumer.state import ConsumerGroup, MemberState
from coordinator.group.consumer.timers import REBALANCE, rebalance_timer, session_timer
from coordinator.group.consumer.validation import check_request
from coordinator.group.heartbeats import JOIN, LEFT_FOR_A_WHILE
from coordinator.group.members import NamedGroup, find_member
from coordinator.group.refusal import Refused
from coordinator.group.values import NOTHING, GroupDecision, Reply, RequestContext
from coordinator.machine.values import Timer, TimerKey
from streamsrt.assignment.topics import TopicsImage
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest


def heartbeat(
    group: NamedGroup | None,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
    now_ms: int,
    *,
    image: TopicsImage,
    config: NeededConfig,
) -> GroupDecision:
    """Handles ConsumerGroupHeartbeat. Raises Refused without any change."""
    if not config.consumer.is_enabled:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            "Consumer groups are off: group.coordinator.rebalance.protocols does not name consumer.",
        )
    check_request(request, context.api_version, config.consumer.assignors)
    if group is None and request.member_epoch != JOIN:
        kind = "Group" if request.member_epoch < JOIN else "Consumer group"
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {request.group_id} not found.")
    if isinstance(group, ClassicGroup) and request.member_epoch == JOIN:
        return _joining_classic(group, request, context, now_ms, image, config)
    if group is not None and not isinstance(group, ConsumerGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
    if group is not None and request.member_epoch < JOIN:
        return _leaving(group, request, context, now_ms, image, config)
    change = GroupChange(group or ConsumerGroup(request.group_id), context, now_ms, image, config.consumer)
    return handle_heartbeat(change, request)


def _joining_classic(
    group: ClassicGroup,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
    now_ms: int,
    image: TopicsImage,
    config: NeededConfig,
) -> GroupDecision:
    """Handles a member of the consumer protocol that joins a classic group."""
    upgraded = upgrade(group, now_ms, image, config)
    change = GroupChange(upgraded.group, context, now_ms, image, config.consumer, upgraded.records)
    change.timers += upgraded.timers
    decision = handle_heartbeat(change, request)
    return replace(decision, replies=(*upgraded.replies, *decision.replies))


def _leaving(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
    now_ms: int,
    image: TopicsImage,
    config: NeededConfig,
) -> GroupDecision:
    """Handles a heartbeat with member epoch -1 or -2."""
    member = find_member(group, request.member_id, request.instance_id)
    if request.member_epoch == LEFT_FOR_A_WHILE:
        deadline_ms = now_ms + config.consumer.for_group(group.group_id).session_timeout_ms
        return leave_for_a_while(group, member, context.request_id, deadline_ms)
    decision = depart(group, [member.member_id], now_ms, image, config)
    reply = Reply(context.request_id, leave_response(member.member_id, request.member_epoch))
    return replace(decision, replies=(*decision.replies, reply))


def describe(
    groups: Mapping[str, NamedGroup], group_ids: Iterable[str], image: TopicsImage, config: ConsumerConfig
) -> ConsumerGroupDescribeResponse:
    """Handles ConsumerGroupDescribe: each group with its own error."""
    response = ConsumerGroupDescribeResponse()
    for group_id in group_ids:
        group = groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            response.groups.append(described(group, image, config.assignors))
            continue
        entry = response.DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
        if group_id:
            what = "not found." if group is None else "is not a consumer group."
            entry.error_code, entry.error_message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}"
        response.groups.append(entry)
    return response


def expire(group: ConsumerGroup, key: TimerKey, now_ms: int, image: TopicsImage, config: NeededConfig) -> GroupDecision:
    """Handles a member's expired timer: it is removed, unless it has done meanwhile what it was given time for."""
    current = group.current.get(key.member_id)
    if current is None or (key.kind == REBALANCE and current.state != MemberState.UNREVOKED_PARTITIONS):
        return NOTHING
    return depart(group, [key.member_id], now_ms, image, config)


def loaded_timers(group: ConsumerGroup, now_ms: int, config: ConsumerConfig) -> Iterator[Timer]:
    """Returns the timers after a load: sessions start again, and members that have to give partitions back get the full
    time again."""
    session_timeout_ms = config.for_group(group.group_id).session_timeout_ms
    for name, member in group.members.items():
        classic = member.classic
        timeout_ms = session_timeout_ms if classic is None else classic.session_timeout_ms
        yield Timer(session_timer(group.group_id, name), now_ms + timeout_ms)
        current = group.current.get(name)
        if classic is None and current is not None and current.state == MemberState.UNREVOKED_PARTITIONS:
            yield Timer(rebalance_timer(group.group_id, name), now_ms + member.rebalance_timeout_ms)
