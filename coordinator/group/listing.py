"""ListGroups and DeleteGroups, over all group types; what a group of each type calls itself.

A group id with committed offsets and no group is listed as an empty classic group, as a group that never had members.
"""

from __future__ import annotations

from coordinator.group.classic.records import tombstone as classic_tombstone
from coordinator.group.classic.state import ClassicGroup
from coordinator.group.committed import offset_tombstones, with_pending
from coordinator.group.consumer.describe import state_name as consumer_state_name
from coordinator.group.consumer.records import group_tombstones as consumer_tombstones
from coordinator.group.consumer.state import ConsumerGroup
from coordinator.group.state import Group, GroupsState
from coordinator.group.streams.describe import state_name
from coordinator.group.streams.records import group_tombstones
from coordinator.group.values import GroupDecision, GroupRecord, Reply, RequestContext
from coordinator.machine.values import Decision
from streamsrt.assignment.topics import TopicsImage
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode

CLASSIC, CONSUMER, STREAMS = "classic", "consumer", "streams"


def list_groups(
    state: GroupsState, request: types.ListGroupsRequest, context: RequestContext, image: TopicsImage
) -> GroupDecision:
    """ListGroups: the groups that pass the filters, by group id. Filters ignore case."""
    states = {name.lower() for name in request.states_filter}
    kinds = {name.lower() for name in request.types_filter}
    found = [_listed(group_id, group, image) for group_id, group in state.groups.items()]
    found += [_listed(group_id, ClassicGroup(group_id), image) for group_id in state.offsets.keys() - state.groups]
    chosen = [
        entry
        for entry in sorted(found, key=lambda entry: entry.group_id)
        if (not states or entry.group_state.lower() in states) and (not kinds or entry.group_type in kinds)
    ]
    return Decision(replies=(Reply(context.request_id, types.ListGroupsResponse(groups=chosen)),))


def _listed(group_id: str, group: Group, image: TopicsImage) -> types.ListGroupsResponse.ListedGroup:
    kind, state = kind_and_state(group, image)
    protocol_type = group.live.protocol_type if isinstance(group, ClassicGroup) else kind
    return types.ListGroupsResponse.ListedGroup(
        group_id=group_id, group_type=kind, protocol_type=protocol_type, group_state=state
    )


def kind_and_state(group: Group, image: TopicsImage) -> tuple[str, str]:
    """Returns the type of a group and its state, as ListGroups names them."""
    if isinstance(group, ClassicGroup):
        return CLASSIC, group.live.state
    if isinstance(group, ConsumerGroup):
        return CONSUMER, consumer_state_name(group)
    return STREAMS, state_name(group, image)


def delete_groups(state: GroupsState, request: types.DeleteGroupsRequest, context: RequestContext) -> GroupDecision:
    """Handles DeleteGroups: deletes groups without members, with their offsets."""
    response = types.DeleteGroupsResponse()
    records: list[GroupRecord] = []
    for group_id in dict.fromkeys(request.groups_names):
        code = _delete_error(state, group_id)
        if code == ErrorCode.NONE:
            committed = state.offsets.get(group_id, {})
            records += offset_tombstones(group_id, with_pending(state.pending, group_id, committed))
            records += tombstones(state.groups.get(group_id))
        response.results.append(response.DeletableGroupResult(group_id=group_id, error_code=code))
    return Decision(records=tuple(records), replies=(Reply(context.request_id, response),))


def tombstones(group: Group | None) -> list[GroupRecord]:
    """Returns the records that end a group of any type; its offsets stay."""
    if group is None:
        return []
    if isinstance(group, ClassicGroup):
        return [classic_tombstone(group.group_id)]
    if isinstance(group, ConsumerGroup):
        return list(consumer_tombstones(group))
    return list(group_tombstones(group))


def _delete_error(state: GroupsState, group_id: str) -> ErrorCode:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    group = state.groups.get(group_id)
    if group is None:
        return ErrorCode.NONE if group_id in state.offsets else ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP
