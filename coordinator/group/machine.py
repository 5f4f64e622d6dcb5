"""The machine of all groups of one partition of ``__consumer_offsets``.

    handle(state, event, now_ms, image=, config=) -> Decision     reads the state, changes nothing
    apply(state, record)                          -> state        the only transition of hard state, live and at a load
    apply_soft(state, update, ...)                -> state        what the log does not hold

1. A request is refused by an answer with an error code and no records. An exception is a bug.
2. After a load, sessions start anew and members that have to give tasks back get their whole time again.
3. The same events at the same times give the same decisions, in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.group import offsets
from coordinator.group.committed import Offsets, OffsetsByGroup, OffsetsDraft, offset_tombstones, with_pending
from coordinator.group.config import GroupConfig
from coordinator.group.refusal import Refused
from coordinator.group.streams.creation import failed_creation
from coordinator.group.streams.departure import INITIAL_DELAY, REBALANCE, SESSION, remove_members
from coordinator.group.streams.describe import described, state_name
from coordinator.group.streams.heartbeat import assign_after_delay, handle_heartbeat
from coordinator.group.streams.records import group_tombstones
from coordinator.group.streams.response import error_response
from coordinator.group.streams.state import (
    GroupDraft,
    MemberState,
    StreamsGroup,
    apply_to_group,
    is_streams_record,
)
from coordinator.group.transactional import commit_in_transaction, failed_commit
from coordinator.group.values import (
    NO_TOPICS,
    NOTHING,
    Decision,
    Entry,
    Event,
    GroupRequest,
    PendingRecord,
    Record,
    Reply,
    RequestContext,
    SoftUpdate,
    Timer,
    TimerExpired,
    TimerKey,
    TopicCreationFailed,
    TopicsImage,
    TransactionEnd,
)
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import Message

STREAMS_PROTOCOL = "streams"


@dataclass(frozen=True, slots=True)
class GroupsState:
    """All groups, all committed offsets by group id, topic and partition, and those of open transactions."""

    groups: Mapping[str, StreamsGroup] = field(default_factory=dict)
    offsets: OffsetsByGroup = field(default_factory=dict)
    pending: Mapping[int, OffsetsByGroup] = field(default_factory=dict)
    commits: int = 0

    @property
    def all_offsets(self) -> Offsets:
        return Offsets(self.offsets, self.pending, self.commits)


EMPTY = GroupsState()


class UnknownRecordError(Exception):
    """A record that no machine knows: written by a newer broker, or damage."""


def apply(state: GroupsState, entry: Entry) -> GroupsState:
    """The state after one record or transaction marker."""
    return apply_all(state, (entry,))


def apply_all(state: GroupsState, entries: Iterable[Entry]) -> GroupsState:
    """The state after these records; what they touch is copied once for all of them."""
    drafts: dict[str, GroupDraft] = {}
    committed = OffsetsDraft(state.all_offsets)
    for record in entries:
        if isinstance(record, PendingRecord):
            committed.apply_pending(record)
        elif isinstance(record, TransactionEnd):
            committed.end(record)
        elif isinstance(record.key, types.OffsetCommitKey):
            committed.apply(record)
        elif is_streams_record(record):
            group_id: str = record.key.group_id  # type: ignore[attr-defined]
            if group_id not in drafts:
                drafts[group_id] = GroupDraft(state.groups.get(group_id) or StreamsGroup(group_id))
            apply_to_group(drafts[group_id], record)
        else:
            raise UnknownRecordError(f"a record with the key {record.key!r} belongs to no group type of this broker")
    groups = dict(state.groups) if drafts else state.groups
    if isinstance(groups, dict):
        for group_id, draft in drafts.items():
            group = draft.freeze()
            if group.exists:
                groups[group_id] = group
            else:
                groups.pop(group_id, None)
    return GroupsState(groups, *committed.freeze())


def apply_soft(state: GroupsState, update: SoftUpdate) -> GroupsState:
    """The state with new values for soft fields of a group; a group that is not there has none."""
    group = state.groups.get(update.group_id)
    if group is None:
        return state
    soft = replace(group.soft, **update.changes)  # type: ignore[arg-type]
    return replace(state, groups={**state.groups, update.group_id: replace(group, soft=soft)})


def handle(
    state: GroupsState,
    event: Event,
    now_ms: int,
    *,
    image: TopicsImage = NO_TOPICS,
    config: GroupConfig,
) -> Decision:
    """What follows from an event."""
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
            if group is None:
                return NOTHING
            failed = failed_creation(group.soft.creation, group_id, errors, now_ms)
            return Decision(soft=(SoftUpdate(group_id, {"creation": failed}),))
        case _:
            return NOTHING


def on_loaded(state: GroupsState, now_ms: int, config: GroupConfig) -> Decision:
    """The timers that the state calls for: none of them is in the log."""
    timers = []
    for group_id, group in state.groups.items():
        session_ms = config.for_group(group_id).session_timeout_ms
        for name, member in group.members.items():
            timers.append(Timer(TimerKey(SESSION, group_id, name), now_ms + session_ms))
            current = group.current.get(name)
            if current is not None and current.state == MemberState.UNREVOKED_TASKS:
                timers.append(Timer(TimerKey(REBALANCE, group_id, name), now_ms + member.rebalance_timeout_ms))
    return Decision(timers=tuple(timers))


def failure(message: Message, code: ErrorCode) -> Message:
    """The answer to a request whose records could not be written: every part of it has this error."""
    return _FAILURES[message.NAME](message, code)


@dataclass(frozen=True, slots=True)
class _View:
    """What a handler of a request may look at."""

    state: GroupsState
    context: RequestContext
    now_ms: int
    image: TopicsImage
    config: GroupConfig

    def answer(self, message: Message) -> Decision:
        return Decision(replies=(Reply(self.context.request_id, message),))


def _expire(state: GroupsState, key: TimerKey, now_ms: int, image: TopicsImage, config: GroupConfig) -> Decision:
    group = state.groups.get(key.group_id)
    if group is None:
        return NOTHING
    if key.kind == INITIAL_DELAY:
        return assign_after_delay(group, now_ms, image=image, config=config.for_group(key.group_id))
    current = group.current.get(key.member_id)
    if current is None or (key.kind == REBALANCE and current.state != MemberState.UNREVOKED_TASKS):
        return NOTHING
    return remove_members(group, [key.member_id])


def _heartbeat(view: _View, request: Any) -> Decision:
    group = view.state.groups.get(request.group_id)
    try:
        return handle_heartbeat(group, request, view.context, view.now_ms, image=view.image, config=view.config)
    except Refused as refused:
        return view.answer(error_response(refused))


def _describe(view: _View, request: types.StreamsGroupDescribeRequest) -> Decision:
    response = types.StreamsGroupDescribeResponse()
    for group_id in request.group_ids:
        group = view.state.groups.get(group_id)
        if group is not None:
            include = request.include_topology_description
            response.groups.append(described(group, view.image, include_description=include))
            continue
        entry = response.DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
        if group_id:
            entry.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            entry.error_message = f"Group {group_id} not found."
        response.groups.append(entry)
    return view.answer(response)


def _offset_commit(view: _View, request: types.OffsetCommitRequest) -> Decision:
    group = view.state.groups.get(request.group_id)
    return offsets.commit(group, request, view.context, view.now_ms, view.config.offset_metadata_max_bytes)


def _txn_offset_commit(view: _View, request: types.TxnOffsetCommitRequest) -> Decision:
    group = view.state.groups.get(request.group_id)
    return commit_in_transaction(group, request, view.context, view.now_ms, view.config.offset_metadata_max_bytes)


def _offset_fetch(view: _View, request: types.OffsetFetchRequest) -> Decision:
    return offsets.fetch(view.state.groups, view.state.all_offsets, request, view.context)


def _offset_delete(view: _View, request: types.OffsetDeleteRequest) -> Decision:
    group = view.state.groups.get(request.group_id)
    return offsets.delete(group, view.state.all_offsets, request, view.context)


def _list_groups(view: _View, request: types.ListGroupsRequest) -> Decision:
    states = {name.lower() for name in request.states_filter}
    kinds = {name.lower() for name in request.types_filter}
    listed = types.ListGroupsResponse.ListedGroup
    found = [
        listed(
            group_id=group_id,
            protocol_type=STREAMS_PROTOCOL,
            group_state=state_name(group, view.image),
            group_type=STREAMS_PROTOCOL,
        )
        for group_id, group in view.state.groups.items()
    ]
    found += [
        listed(group_id=group_id, protocol_type="", group_state="Empty", group_type="classic")
        for group_id in view.state.offsets
        if group_id not in view.state.groups
    ]
    chosen = [
        entry
        for entry in sorted(found, key=lambda entry: entry.group_id)
        if (not states or entry.group_state.lower() in states) and (not kinds or entry.group_type in kinds)
    ]
    return view.answer(types.ListGroupsResponse(groups=chosen))


def _delete_groups(view: _View, request: types.DeleteGroupsRequest) -> Decision:
    response = types.DeleteGroupsResponse()
    records: list[Record] = []
    for group_id in dict.fromkeys(request.groups_names):
        code = _delete_error(view.state, group_id)
        if code == ErrorCode.NONE:
            committed = view.state.offsets.get(group_id, {})
            records += offset_tombstones(group_id, with_pending(view.state.pending, group_id, committed))
            group = view.state.groups.get(group_id)
            records += group_tombstones(group) if group is not None else ()
        response.results.append(response.DeletableGroupResult(group_id=group_id, error_code=code))
    return Decision(records=tuple(records), replies=(Reply(view.context.request_id, response),))


def _delete_error(state: GroupsState, group_id: str) -> ErrorCode:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    group = state.groups.get(group_id)
    if group is None:
        return ErrorCode.NONE if group_id in state.offsets else ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP


def _consumer_heartbeat(view: _View, request: types.ConsumerGroupHeartbeatRequest) -> Decision:
    return view.answer(
        types.ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=_not_of_type(view.state, request.group_id, "a consumer"),
        )
    )


def _consumer_describe(view: _View, request: types.ConsumerGroupDescribeRequest) -> Decision:
    response = types.ConsumerGroupDescribeResponse()
    for group_id in request.group_ids:
        text = _not_of_type(view.state, group_id, "a consumer")
        response.groups.append(
            response.DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=text)
        )
    return view.answer(response)


def _classic_describe(view: _View, request: types.DescribeGroupsRequest) -> Decision:
    response = types.DescribeGroupsResponse()
    for group_id in request.groups:
        entry = response.DescribedGroup(group_id=group_id, group_state="Dead")
        if view.context.api_version >= 6:
            entry.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            entry.error_message = _not_of_type(view.state, group_id, "a classic")
        response.groups.append(entry)
    return view.answer(response)


def _join_group(view: _View, request: types.JoinGroupRequest) -> Decision:
    return view.answer(
        types.JoinGroupResponse(
            error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, protocol_name="", member_id=request.member_id
        )
    )


def _not_of_type(state: GroupsState, group_id: str, kind: str) -> str:
    return f"Group {group_id} is not {kind} group." if group_id in state.groups else f"Group {group_id} not found."


_HANDLERS: Mapping[str, Callable[[_View, Any], Decision]] = {
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
}


def _failed_commit(request: Any, code: ErrorCode) -> Message:
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


def _failed_delete(request: Any, code: ErrorCode) -> Message:
    result = types.DeleteGroupsResponse.DeletableGroupResult
    return types.DeleteGroupsResponse(
        results=[result(group_id=group_id, error_code=code) for group_id in request.groups_names]
    )


_FAILURES: Mapping[str, Callable[[Any, ErrorCode], Message]] = {
    "StreamsGroupHeartbeatRequest": lambda request, code: error_response(Refused(code)),
    "OffsetCommitRequest": _failed_commit,
    "TxnOffsetCommitRequest": failed_commit,
    "OffsetDeleteRequest": lambda request, code: types.OffsetDeleteResponse(error_code=code),
    "DeleteGroupsRequest": _failed_delete,
}
