"""What the machine of all groups hands to consumer groups: requests, timers, and the timers of a group after a load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from coordinator.group.consumer.change import GroupChange
from coordinator.group.consumer.config import ConsumerConfig
from coordinator.group.consumer.departure import remove_members
from coordinator.group.consumer.describe import described
from coordinator.group.consumer.heartbeat import handle_heartbeat, handle_leave
from coordinator.group.consumer.state import ConsumerGroup, MemberState
from coordinator.group.consumer.timers import REBALANCE, rebalance_timer, session_timer
from coordinator.group.consumer.validation import JOIN, check_request
from coordinator.group.refusal import Refused
from coordinator.group.state import Group
from coordinator.group.values import NOTHING, Decision, RequestContext, Timer, TimerKey, TopicsImage
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest


def heartbeat(
    group: Group | None,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
    now_ms: int,
    *,
    image: TopicsImage,
    config: ConsumerConfig,
) -> Decision:
    """ConsumerGroupHeartbeat. Raises Refused, and then nothing has changed."""
    if not config.is_enabled:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            "Consumer groups are off: group.coordinator.rebalance.protocols does not name consumer.",
        )
    check_request(request, context, config.assignors)
    if request.member_epoch < JOIN:
        if group is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise _not_a_consumer_group(request.group_id)
        return handle_leave(group, request, context, now_ms, config)
    if group is None and request.member_epoch != JOIN:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
    if group is not None and not isinstance(group, ConsumerGroup):
        raise _not_a_consumer_group(request.group_id)
    change = GroupChange(group or ConsumerGroup(request.group_id), context, now_ms, image, config)
    return handle_heartbeat(change, request)


def describe(
    groups: Mapping[str, Group], group_ids: Iterable[str], image: TopicsImage, config: ConsumerConfig
) -> ConsumerGroupDescribeResponse:
    """ConsumerGroupDescribe: each group with its own error."""
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


def expire(group: ConsumerGroup, key: TimerKey) -> Decision:
    """A timer of a member is over: it is removed, unless it has done meanwhile what it was given time for."""
    current = group.current.get(key.member_id)
    if current is None or (key.kind == REBALANCE and current.state != MemberState.UNREVOKED_PARTITIONS):
        return NOTHING
    return remove_members(group, [key.member_id])


def loaded_timers(group: ConsumerGroup, now_ms: int, config: ConsumerConfig) -> Iterator[Timer]:
    """After a load sessions start anew, and members that have to give partitions back get their whole time again."""
    session_timeout_ms = config.for_group(group.group_id).session_timeout_ms
    for name, member in group.members.items():
        classic = member.classic
        timeout_ms = session_timeout_ms if classic is None else classic.session_timeout_ms
        yield Timer(session_timer(group.group_id, name), now_ms + timeout_ms)
        current = group.current.get(name)
        if classic is None and current is not None and current.state == MemberState.UNREVOKED_PARTITIONS:
            yield Timer(rebalance_timer(group.group_id, name), now_ms + member.rebalance_timeout_ms)


def _not_a_consumer_group(group_id: str) -> Refused:
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
