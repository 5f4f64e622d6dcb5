"""The machine of all groups of one partition of ``__consumer_offsets``.

    handle(state, event, now_ms, image=, config=) -> GroupDecision     reads the state, changes nothing
    state.apply(state, record)                    -> state        the only transition of hard state, live and at a load
    state.apply_soft(state, update)               -> state        what the log does not hold

1. A request is refused by an answer with an error code and no records. An exception is a bug.
2. After a load, sessions start again, and members that have to give tasks back get the full time again.
3. The same events at the same times give the same decisions, in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from coordinator.group import offsets
from coordinator.group.classic import membership
from coordinator.group.classic.change import join_refusal
from coordinator.group.classic.describe import described as described_classic
from coordinator.group.classic.join import join
from coordinator.group.classic.state import ClassicGroup
from coordinator.group.config import GroupConfig
from coordinator.group.consumer import classic_requests as mixed
from coordinator.group.consumer import requests as consumer
from coordinator.group.consumer.response import error_response as consumer_error
from coordinator.group.consumer.state import ConsumerGroup
from coordinator.group.expiry import expired
from coordinator.group.heartbeats import JOIN
from coordinator.group.listing import delete_groups, list_groups, tombstones
from coordinator.group.refusal import Refused
from coordinator.group.state import Group, GroupsState
from coordinator.group.streams.classic import members as streams_classic
from coordinator.group.streams.classic.conversion import upgraded, with_downgrade
from coordinator.group.streams.classic.members import REJOIN
from coordinator.group.streams.creation import failed_creation
from coordinator.group.streams.departure import INITIAL_DELAY, REBALANCE, SESSION, remove_members
from coordinator.group.streams.describe import described
from coordinator.group.streams.heartbeat import assign_after_delay, handle_heartbeat
from coordinator.group.streams.response import error_response
from coordinator.group.streams.state import StreamsGroup
from coordinator.group.streams.validation import check_request, requested_topology
from coordinator.group.transactional import commit_in_transaction, failed_commit
from coordinator.group.values import (
    NOTHING,
    Event,
    GroupDecision,
    GroupRequest,
    Reply,
    RequestContext,
    RetentionDue,
    SoftUpdate,
    TopicCreationFailed,
)
from coordinator.machine.values import CancelTimer, Decision, Timer, TimerExpired, TimerKey
from streamsrt.assignment.reconcile import MemberState
from streamsrt.assignment.topics import NO_TOPICS, TopicsImage
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import Message

ABSENT_GROUP_VERSION = 6


def handle(
    state: GroupsState,
    event: Event,
    now_ms: int,
    *,
    image: TopicsImage = NO_TOPICS,
    config: GroupConfig,
) -> GroupDecision:
    """Handles an event."""
    match event:
        case GroupRequest(context, message):
            handler = _HANDLERS.get(message.NAME)
            if handler is None:
                raise TypeError(f"{message.NAME} is not a request of the group coordinator")
            return handler(_View(state, context, now_ms, image, config), message)
        case TimerExpired(key):
            return _expire(state, key, now_ms, image, config)
        case TopicCreationFailed(group_id, errors):
            group = state.groups.get(group_id)
            if not isinstance(group, StreamsGroup):
                return NOTHING
            failed = failed_creation(group.soft.creation, group_id, errors, now_ms)
            return Decision(soft=(SoftUpdate(group_id, {"creation": failed}),))
        case RetentionDue():
            return expired(state, event, now_ms)
        case _:
            return NOTHING


def on_loaded(state: GroupsState, now_ms: int, config: GroupConfig) -> GroupDecision:
    """Returns the timers that the state requires: none of them is in the log."""
    timers: list[Timer | CancelTimer] = []
    soft: list[SoftUpdate] = []
    for group in state.groups.values():
        if isinstance(group, ClassicGroup):
            loaded = membership.on_loaded(group, now_ms, config.classic)
            timers += loaded.timers
            soft += loaded.soft
        elif isinstance(group, ConsumerGroup):
            timers += consumer.loaded_timers(group, now_ms, config.consumer)
        else:
            timers += _streams_timers(group, now_ms, config.for_group(group.group_id).session_timeout_ms)
    return Decision(timers=tuple(timers), soft=tuple(soft))


def _streams_timers(group: StreamsGroup, now_ms: int, session_timeout_ms: int) -> Iterator[Timer]:
    for name, member in group.members.items():
        timeout_ms = session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        yield Timer(TimerKey(SESSION, group.group_id, name), now_ms + timeout_ms)
        current = group.current.get(name)
        if current is not None and current.state == MemberState.UNREVOKED_TASKS:
            yield Timer(TimerKey(REBALANCE, group.group_id, name), now_ms + member.rebalance_timeout_ms)


def failure(message: Message, code: ErrorCode) -> Message:
    """Returns the response to a request whose records could not be written: every part of it has this error."""
    return _FAILURES[message.NAME](message, code)


def on_refused(
    state: GroupsState, message: Message, code: ErrorCode, now_ms: int, config: GroupConfig
) -> GroupDecision:
    """Returns what follows, without any record, from a request that got a :func:`failure`.

    If the assignment of a classic group's leader could not be stored, the members that wait for it get the error, too.
    """
    if not isinstance(message, types.SyncGroupRequest):
        return NOTHING
    return membership.unassigned(state.groups.get(message.group_id), message, code, now_ms, config.classic)


@dataclass(frozen=True, slots=True)
class _View:
    """The data that a request handler may read."""

    state: GroupsState
    context: RequestContext
    now_ms: int
    image: TopicsImage
    config: GroupConfig

    def answer(self, message: Message) -> GroupDecision:
        return Decision(replies=(Reply(self.context.request_id, message),))


def _expire(state: GroupsState, key: TimerKey, now_ms: int, image: TopicsImage, config: GroupConfig) -> GroupDecision:
    """Handles an expired timer of a group that may have another type by now."""
    match state.groups.get(key.owner_id):
        case StreamsGroup() as group:
            decision = _expire_streams(group, key, now_ms, image, config)
            return with_downgrade(group, decision, now_ms, image, config)
        case ConsumerGroup() as group:
            return consumer.expire(group, key, now_ms, image, config)
        case ClassicGroup() as group:
            return membership.expire(group, key, now_ms, config.classic)
        case _:
            return NOTHING


def _expire_streams(
    group: StreamsGroup, key: TimerKey, now_ms: int, image: TopicsImage, config: GroupConfig
) -> GroupDecision:
    if key.kind == INITIAL_DELAY:
        return assign_after_delay(group, now_ms, image=image, config=config.for_group(key.owner_id))
    if key.kind == REJOIN and key.member_id not in group.soft.must_rejoin:
        return NOTHING
    current = group.current.get(key.member_id)
    if current is None or (key.kind == REBALANCE and current.state != MemberState.UNREVOKED_TASKS):
        return NOTHING
    return remove_members(group, [key.member_id], now_ms=now_ms, timed_out=True)


def _heartbeat(view: _View, request: types.StreamsGroupHeartbeatRequest) -> GroupDecision:
    group = view.state.groups.get(request.group_id)
    image, config = view.image, view.config
    try:
        if isinstance(group, ClassicGroup) and request.member_epoch == JOIN:
            return _upgrading_heartbeat(view, group, request)
        if isinstance(group, ConsumerGroup) and group.is_empty and request.member_epoch == JOIN:
            empty = StreamsGroup(group.group_id, epoch=group.epoch)
            joined = handle_heartbeat(empty, request, view.context, view.now_ms, image=image, config=config)
            return replace(joined, records=(*tombstones(group), *joined.records))
        if group is not None and not isinstance(group, StreamsGroup):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, _not_of_type(view.state, request.group_id, "a streams"))
        decision = handle_heartbeat(group, request, view.context, view.now_ms, image=image, config=config)
    except Refused as refused:
        return view.answer(error_response(refused))
    return decision if group is None else with_downgrade(group, decision, view.now_ms, image, config)


def _upgrading_heartbeat(
    view: _View, group: ClassicGroup, request: types.StreamsGroupHeartbeatRequest
) -> GroupDecision:
    """Handles the first member of the streams protocol that joins a classic group."""
    check_request(request)
    topology = requested_topology(request)
    assert topology is not None
    streams, conversion = upgraded(group, request, topology, view.config, view.now_ms)
    joined = handle_heartbeat(streams, request, view.context, view.now_ms, image=view.image, config=view.config)
    return replace(
        joined,
        records=(*conversion.records, *joined.records),
        timers=(*conversion.timers, *joined.timers),
        replies=(*conversion.replies, *joined.replies),
    )


def _describe(view: _View, request: types.StreamsGroupDescribeRequest) -> GroupDecision:
    response = types.StreamsGroupDescribeResponse()
    for group_id in request.group_ids:
        group = view.state.groups.get(group_id)
        if isinstance(group, StreamsGroup):
            include = request.include_topology_description
            response.groups.append(
                described(group, view.image, view.config.for_group(group_id), include_description=include)
            )
            continue
        entry = response.DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
        if group_id:
            entry.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            entry.error_message = _not_of_type(view.state, group_id, "a streams")
        response.groups.append(entry)
    return view.answer(response)


def _offset_commit(view: _View, request: types.OffsetCommitRequest) -> GroupDecision:
    group = view.state.groups.get(request.group_id)
    decision = offsets.commit(group, request, view.context, view.now_ms, view.config.offset_metadata_max_bytes)
    if isinstance(group, ClassicGroup):
        return replace(decision, timers=membership.kept_by_commit(group, request.member_id, view.now_ms))
    return decision


def _txn_offset_commit(view: _View, request: types.TxnOffsetCommitRequest) -> GroupDecision:
    group = view.state.groups.get(request.group_id)
    return commit_in_transaction(group, request, view.context, view.now_ms, view.config.offset_metadata_max_bytes)


def _offset_fetch(view: _View, request: types.OffsetFetchRequest) -> GroupDecision:
    return offsets.fetch(view.state.groups, view.state.all_offsets, request, view.context, view.image)


def _offset_delete(view: _View, request: types.OffsetDeleteRequest) -> GroupDecision:
    group = view.state.groups.get(request.group_id)
    return offsets.delete(group, view.state.all_offsets, request, view.context)


def _list_groups(view: _View, request: types.ListGroupsRequest) -> GroupDecision:
    return list_groups(view.state, request, view.context, view.image)


def _delete_groups(view: _View, request: types.DeleteGroupsRequest) -> GroupDecision:
    return delete_groups(view.state, request, view.context)


def _consumer_heartbeat(view: _View, request: types.ConsumerGroupHeartbeatRequest) -> GroupDecision:
    group = view.state.groups.get(request.group_id)
    try:
        return consumer.heartbeat(group, request, view.context, view.now_ms, image=view.image, config=view.config)
    except Refused as refused:
        return view.answer(consumer_error(refused))


def _consumer_describe(view: _View, request: types.ConsumerGroupDescribeRequest) -> GroupDecision:
    return view.answer(consumer.describe(view.state.groups, request.group_ids, view.image, view.config.consumer))


def _classic_describe(view: _View, request: types.DescribeGroupsRequest) -> GroupDecision:
    response = types.DescribeGroupsResponse()
    for group_id in request.groups:
        group = view.state.groups.get(group_id)
        if group is None and group_id in view.state.offsets:
            group = ClassicGroup(group_id)
        if isinstance(group, ClassicGroup):
            response.groups.append(described_classic(group))
            continue
        entry = response.DescribedGroup(group_id=group_id, group_state="Dead")
        if view.context.api_version >= ABSENT_GROUP_VERSION:
            entry.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            entry.error_message = _not_of_type(view.state, group_id, "a classic")
        response.groups.append(entry)
    return view.answer(response)


def _join_group(view: _View, request: types.JoinGroupRequest) -> GroupDecision:
    group = view.state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup) and not group.is_empty:
        return mixed.join(group, request, view.context, view.now_ms, view.image, view.config)
    if group is not None and not isinstance(group, ClassicGroup):
        return _join_other(view, group, request)
    if group is None and request.member_id and request.group_id in view.state.offsets:
        return view.answer(join_refusal(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id, view.context.api_version))
    return join(group, request, view.context, view.now_ms, view.config.classic)


def _join_other(view: _View, group: StreamsGroup | ConsumerGroup, request: types.JoinGroupRequest) -> GroupDecision:
    """Converts a group of a newer protocol without members to a classic one; its epoch continues as the generation."""
    if isinstance(group, StreamsGroup) and not group.is_empty:
        return streams_classic.join(group, request, view.context, view.now_ms, image=view.image, config=view.config)
    if request.member_id:
        return view.answer(join_refusal(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id, view.context.api_version))
    empty = ClassicGroup(group.group_id, generation=group.epoch)
    decision = join(empty, request, view.context, view.now_ms, view.config.classic)
    if not decision.records:
        return decision
    return replace(decision, records=(*tombstones(group), *decision.records))


def _sync_group(view: _View, request: types.SyncGroupRequest) -> GroupDecision:
    context, now_ms, config = view.context, view.now_ms, view.config
    match view.state.groups.get(request.group_id):
        case ConsumerGroup() as group:
            return mixed.sync(group, request, context, now_ms, view.image, config)
        case StreamsGroup() as group:
            return streams_classic.sync(group, request, context, now_ms, image=view.image, config=config)
        case other:
            return membership.sync(_as_classic(other), request, context, now_ms, config.classic)


def _classic_heartbeat(view: _View, request: types.HeartbeatRequest) -> GroupDecision:
    match view.state.groups.get(request.group_id):
        case ConsumerGroup() as group:
            return mixed.heartbeat(group, request, view.context, view.now_ms, view.config)
        case StreamsGroup() as group:
            decision = streams_classic.heartbeat(group, request, view.context, view.now_ms)
            return with_downgrade(group, decision, view.now_ms, view.image, view.config)
        case other:
            return membership.heartbeat(_as_classic(other), request, view.context, view.now_ms)


def _leave_group(view: _View, request: types.LeaveGroupRequest) -> GroupDecision:
    match view.state.groups.get(request.group_id):
        case ConsumerGroup() as group:
            return mixed.leave(group, request, view.context)
        case StreamsGroup() as group:
            return streams_classic.leave(group, request, view.context)
        case other:
            return membership.leave(_as_classic(other), request, view.context, view.now_ms, view.config.classic)


def _as_classic(group: Group | None) -> ClassicGroup | None:
    return group if isinstance(group, ClassicGroup) else None


def _not_of_type(state: GroupsState, group_id: str, kind: str) -> str:
    return f"Group {group_id} is not {kind} group." if group_id in state.groups else f"Group {group_id} not found."


_HANDLERS: Mapping[str, Callable[[_View, Any], GroupDecision]] = {  # a request of the class of that name
    "StreamsGroupHeartbeatRequest": _heartbeat,
    "StreamsGroupDescribeRequest": _describe,
    "OffsetCommitRequest": _offset_commit,
    "TxnOffsetCommitRequest": _txn_offset_commit,
    "OffsetFetchRequest": _offset_fetch,
    "OffsetDeleteRequest": _offset_delete,
    "ListGroupsRequest": _list_groups,
    "DeleteGroupsRequest": _delete_groups,
    "ConsumerGroupHeartbeatRequest": _consumer_heartbeat,
    "ConsumerGroupDescribeRequest": _consumer_describe,
    "DescribeGroupsRequest": _classic_describe,
    "JoinGroupRequest": _join_group,
    "SyncGroupRequest": _sync_group,
    "HeartbeatRequest": _classic_heartbeat,
    "LeaveGroupRequest": _leave_group,
}


def _failed_commit(request: types.OffsetCommitRequest, code: ErrorCode) -> Message:
    response = types.OffsetCommitResponse()
    for topic in request.topics:
        partitions = [
            response.OffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=code)
            for entry in topic.partitions
        ]
        response.topics.append(
            response.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
    return response


def _failed_fetch(request: types.OffsetFetchRequest, code: ErrorCode) -> Message:
    response = types.OffsetFetchResponse(error_code=code)
    for group in request.groups:
        response.groups.append(response.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
    return response


def _failed_description(request: types.DescribeGroupsRequest, code: ErrorCode) -> Message:
    group = types.DescribeGroupsResponse.DescribedGroup
    return types.DescribeGroupsResponse(groups=[group(group_id=each, error_code=code) for each in request.groups])


def _failed_consumer_description(request: types.ConsumerGroupDescribeRequest, code: ErrorCode) -> Message:
    group = types.ConsumerGroupDescribeResponse.DescribedGroup
    return types.ConsumerGroupDescribeResponse(
        groups=[group(group_id=each, error_code=code) for each in request.group_ids]
    )


def _failed_streams_description(request: types.StreamsGroupDescribeRequest, code: ErrorCode) -> Message:
    group = types.StreamsGroupDescribeResponse.DescribedGroup
    return types.StreamsGroupDescribeResponse(
        groups=[group(group_id=each, error_code=code) for each in request.group_ids]
    )


def _failed_delete(request: types.DeleteGroupsRequest, code: ErrorCode) -> Message:
    result = types.DeleteGroupsResponse.DeletableGroupResult
    return types.DeleteGroupsResponse(
        results=[result(group_id=group_id, error_code=code) for group_id in request.groups_names]
    )


_FAILURES: Mapping[str, Callable[[Any, ErrorCode], Message]] = {  # likewise
    "StreamsGroupHeartbeatRequest": lambda request, code: error_response(Refused(code)),
    "ConsumerGroupHeartbeatRequest": lambda request, code: consumer_error(Refused(code)),
    "OffsetCommitRequest": _failed_commit,
    "TxnOffsetCommitRequest": failed_commit,
    "OffsetFetchRequest": _failed_fetch,
    "OffsetDeleteRequest": lambda request, code: types.OffsetDeleteResponse(error_code=code),
    "DeleteGroupsRequest": _failed_delete,
    "ListGroupsRequest": lambda request, code: types.ListGroupsResponse(error_code=code),
    "DescribeGroupsRequest": _failed_description,
    "ConsumerGroupDescribeRequest": _failed_consumer_description,
    "StreamsGroupDescribeRequest": _failed_streams_description,
    "JoinGroupRequest": lambda request, code: types.JoinGroupResponse(
        error_code=code, member_id=request.member_id, protocol_name=""
    ),
    "SyncGroupRequest": lambda request, code: types.SyncGroupResponse(error_code=code),
    "HeartbeatRequest": lambda request, code: types.HeartbeatResponse(error_code=code),
    "LeaveGroupRequest": lambda request, code: types.LeaveGroupResponse(error_code=code),
}
