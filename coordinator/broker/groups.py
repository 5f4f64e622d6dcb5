"""Requests of clients to the group coordinator: FindCoordinator, heartbeats, offsets, listings.

Topic ids of OffsetCommit and OffsetFetch are converted into names before a shard sees them, and back in its response: a
group's offsets are stored by name, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from inspect import isawaitable
from typing import TypeVar

from coordinator.broker.access import EVERYTHING
from coordinator.broker.broker import Answer, Broker, Handler, Request
from coordinator.broker.group_shards import Caller
from coordinator.security.acls import ResourceType
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.primitives import ZERO_UUID
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsResponse,
    Message,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

Described = TypeVar("Described", ConsumerGroupDescribeResponse, StreamsGroupDescribeResponse, DescribeGroupsResponse)

TOPIC_ID_VERSION = 10
BATCHED_FETCH_VERSION = 8
BATCHED_COORDINATORS_VERSION = 4
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2


def context_of(request: Request) -> Caller:
    """Returns client id, host, API version and rights of a request, for the shards."""
    header, access = request.header, request.access
    rights = None if access is EVERYTHING else access
    return header.client_id or "", "/" + request.client_host, header.api_version, rights


def handle_find_coordinator(broker: Broker, request: Request) -> FindCoordinatorResponse:
    message: FindCoordinatorRequest = request.message
    code, text = _coordinator_error(broker, message.key_type)
    node, host, port = (broker.node_id, broker.host, broker.port) if not code else (-1, "", -1)
    if request.header.api_version < BATCHED_COORDINATORS_VERSION:
        return FindCoordinatorResponse(error_code=code, error_message=text, node_id=node, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=node, host=host, port=port, error_code=code, error_message=text
            )
            for key in message.coordinator_keys
        ]
    )


def _coordinator_error(broker: Broker, key_type: int) -> tuple[int, str | None]:
    if key_type == _GROUP:
        return 0, None
    if key_type == _TRANSACTION:
        ready = broker.transactions.ensure_topic()
        return (0, None) if ready else (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    if key_type == _SHARE:
        return ErrorCode.INVALID_REQUEST, "This broker does not serve share groups."
    return ErrorCode.INVALID_REQUEST, f"Key type {key_type} is unknown."


def _pass_on(broker: Broker, request: Request) -> Answer:
    """Passes a request that names one group to its shard."""
    group_id = request.message.group_id
    answer = broker.groups.execute(group_id, request.message, context_of(request))
    return broker.acknowledged(answer, [broker.groups.log_of(group_id)])


# ------------------------------------------------------------------------------------------------------------- offsets


def handle_offset_commit(broker: Broker, request: Request) -> Answer:
    """Handles OffsetCommit: refuses unknown partitions, one by one; the shard handles the others."""
    by_id = request.header.api_version >= TOPIC_ID_VERSION
    message: OffsetCommitRequest = request.message
    refused: list[OffsetCommitResponse.OffsetCommitResponseTopic] = []
    known = []
    for wanted in message.topics:
        topic = broker.topics.by_id(wanted.topic_id) if by_id else broker.topics.get(wanted.name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_refused_commit(wanted, wanted.partitions, code))
            continue
        wanted.name, wanted.topic_id = topic.name, topic.id
        count = len(topic.partitions)
        absent = [each for each in wanted.partitions if not 0 <= each.partition_index < count]
        if absent:
            wanted.partitions = [each for each in wanted.partitions if 0 <= each.partition_index < count]
            refused.append(_refused_commit(wanted, absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        known.append(wanted)
    message.topics = known
    answer = _pass_on(broker, request)
    return _merged(broker, refused, answer) if by_id or refused else answer


def _refused_commit(
    wanted: OffsetCommitRequest.OffsetCommitRequestTopic,
    partitions: Iterable[OffsetCommitRequest.OffsetCommitRequestPartition],
    code: int,
) -> OffsetCommitResponse.OffsetCommitResponseTopic:
    return OffsetCommitResponse.OffsetCommitResponseTopic(
        name=wanted.name,
        topic_id=wanted.topic_id,
        partitions=[
            OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )


def _merged(broker: Broker, refused: list[OffsetCommitResponse.OffsetCommitResponseTopic], answer: Answer) -> Answer:
    """Returns the shard's response with topic ids, and with the partitions refused before."""
    if isawaitable(answer):
        return _merged_later(broker, refused, answer)
    assert isinstance(answer, OffsetCommitResponse)
    by_name = {topic.name: topic for topic in answer.topics}
    for topic in answer.topics:
        topic.topic_id = _id_of(broker, topic.name)
    for topic in refused:
        if topic.name in by_name:
            by_name[topic.name].partitions.extend(topic.partitions)
        else:
            answer.topics.append(topic)
    return answer


async def _merged_later(
    broker: Broker,
    refused: list[OffsetCommitResponse.OffsetCommitResponseTopic],
    answer: Awaitable[Message | None],
) -> Message | None:
    merged = _merged(broker, refused, await answer)
    assert not isawaitable(merged)
    return merged


def _id_of(broker: Broker, name: str) -> bytes:
    topic = broker.topics.get(name)
    return ZERO_UUID if topic is None else topic.id


def handle_offset_fetch(broker: Broker, request: Request) -> Answer:
    message: OffsetFetchRequest = request.message
    if request.header.api_version < BATCHED_FETCH_VERSION:
        return _pass_on(broker, request)
    by_id = request.header.api_version >= TOPIC_ID_VERSION
    answer = OffsetFetchResponse(groups=[])
    for wanted in message.groups:
        unknown = _resolve_names(broker, wanted) if by_id else []
        one = OffsetFetchRequest(groups=[wanted], require_stable=message.require_stable)
        reply = broker.groups.answered(OffsetFetchResponse, wanted.group_id, one, context_of(request))
        for group in reply.groups:
            for topic in group.topics:
                topic.topic_id = _id_of(broker, topic.name)
            group.topics.extend(unknown)
            answer.groups.append(group)
    return answer


def _resolve_names(
    broker: Broker, wanted: OffsetFetchRequest.OffsetFetchRequestGroup
) -> list[OffsetFetchResponse.OffsetFetchResponseTopics]:
    if wanted.topics is None:
        return []
    unknown, known = [], []
    for each in wanted.topics:
        topic = broker.topics.by_id(each.topic_id)
        if topic is not None:
            each.name = topic.name
            known.append(each)
            continue
        unknown.append(
            OffsetFetchResponse.OffsetFetchResponseTopics(
                topic_id=each.topic_id,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=-1,
                        metadata="",
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    )
                    for index in each.partition_indexes
                ],
            )
        )
    wanted.topics = known
    return unknown


# ------------------------------------------------------------------------------------------------------------ listings


def handle_list_groups(broker: Broker, request: Request) -> ListGroupsResponse:
    answers = broker.groups.answered_by_all(ListGroupsResponse, request.message, context_of(request))
    groups = [group for answer in answers for group in answer.groups]
    code = next((answer.error_code for answer in answers if answer.error_code), 0)
    return ListGroupsResponse(error_code=code, groups=sorted(groups, key=lambda group: group.group_id))


def handle_delete_groups(broker: Broker, request: Request) -> Answer:
    results = []
    names = request.message.groups_names
    for group_ids in broker.groups.by_shard(names):
        reply = broker.groups.answered(
            DeleteGroupsResponse, group_ids[0], DeleteGroupsRequest(groups_names=group_ids), context_of(request)
        )
        results.extend(reply.results)
    logs = {broker.groups.log_of(group_id) for group_id in names}
    return broker.acknowledged(DeleteGroupsResponse(results=results), logs)


def handle_describe_consumer_groups(broker: Broker, request: Request) -> ConsumerGroupDescribeResponse:
    groups = []
    for group_ids in broker.groups.by_shard(request.message.group_ids):
        one = ConsumerGroupDescribeRequest(group_ids=group_ids)
        reply = broker.groups.answered(ConsumerGroupDescribeResponse, group_ids[0], one, context_of(request))
        groups.extend(reply.groups)
    return _with_operations(request, ConsumerGroupDescribeResponse(groups=groups))


def handle_describe_streams_groups(broker: Broker, request: Request) -> StreamsGroupDescribeResponse:
    message: StreamsGroupDescribeRequest = request.message
    groups = []
    for group_ids in broker.groups.by_shard(message.group_ids):
        one = StreamsGroupDescribeRequest(group_ids=group_ids)
        reply = broker.groups.answered(StreamsGroupDescribeResponse, group_ids[0], one, context_of(request))
        groups.extend(reply.groups)
    return _with_operations(request, StreamsGroupDescribeResponse(groups=groups))


def handle_describe_groups(broker: Broker, request: Request) -> DescribeGroupsResponse:
    groups = []
    for group_ids in broker.groups.by_shard(request.message.groups):
        reply = broker.groups.answered(
            DescribeGroupsResponse, group_ids[0], DescribeGroupsRequest(groups=group_ids), context_of(request)
        )
        groups.extend(reply.groups)
    return _with_operations(request, DescribeGroupsResponse(groups=groups))


def _with_operations(request: Request, answer: Described) -> Described:
    """Returns the response with the requester's allowed operations for each group, if requested."""
    if request.message.include_authorized_operations:
        for group in answer.groups:
            if not group.error_code:
                group.authorized_operations = request.access.operations(ResourceType.GROUP, group.group_id)
    return answer


HANDLERS: dict[int, Handler] = {
    ApiKey.FIND_COORDINATOR: handle_find_coordinator,
    ApiKey.OFFSET_COMMIT: handle_offset_commit,
    ApiKey.OFFSET_FETCH: handle_offset_fetch,
    ApiKey.OFFSET_DELETE: _pass_on,
    ApiKey.JOIN_GROUP: _pass_on,
    ApiKey.SYNC_GROUP: _pass_on,
    ApiKey.HEARTBEAT: _pass_on,
    ApiKey.LEAVE_GROUP: _pass_on,
    ApiKey.DESCRIBE_GROUPS: handle_describe_groups,
    ApiKey.LIST_GROUPS: handle_list_groups,
    ApiKey.DELETE_GROUPS: handle_delete_groups,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _pass_on,
    ApiKey.CONSUMER_GROUP_DESCRIBE: handle_describe_consumer_groups,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _pass_on,
    ApiKey.STREAMS_GROUP_DESCRIBE: handle_describe_streams_groups,
}
