"""What clients ask the group coordinator: FindCoordinator, heartbeats, offsets, listings.

Topic ids of OffsetCommit and OffsetFetch are turned into names before a shard sees them, and back in its answer: a group's
offsets are kept by name, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any

from coordinator.broker.broker import Answer, Broker, Handler, Request
from coordinator.log import Fsync
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.primitives import ZERO_UUID
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

TOPIC_ID_VERSION = 10
BATCHED_FETCH_VERSION = 8
BATCHED_COORDINATORS_VERSION = 4
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2


def context_of(request: Request) -> tuple[str, str, int]:
    """Client id, host and API version of a request, as the shards want them."""
    return request.header.client_id or "", "/" + request.client_host, request.header.api_version


def handle_find_coordinator(broker: Broker, request: Request) -> FindCoordinatorResponse:
    message: FindCoordinatorRequest = request.message
    code, text = _coordinator_error(message.key_type)
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


def _coordinator_error(key_type: int) -> tuple[int, str | None]:
    if key_type == _GROUP:
        return 0, None
    if key_type == _TRANSACTION:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "This broker does not serve transactions."
    if key_type == _SHARE:
        return ErrorCode.INVALID_REQUEST, "This broker does not serve share groups."
    return ErrorCode.INVALID_REQUEST, f"Key type {key_type} is unknown."


def _pass_on(broker: Broker, request: Request) -> Answer:
    """Hands a request that names one group to its shard."""
    group_id = request.message.group_id
    return _acknowledge(broker, [group_id], broker.groups.execute(group_id, request.message, context_of(request)))


def _acknowledge(broker: Broker, group_ids: list[str], answer: Answer) -> Answer:
    """Holds an answer back until what it may tell of is as safe as ``log.fsync`` promises."""
    if broker.fsync is not Fsync.GROUP:
        return answer
    return _after_fsync(broker, group_ids, answer)


async def _after_fsync(broker: Broker, group_ids: list[str], answer: Answer) -> Any:
    message = await answer if isawaitable(answer) else answer
    await broker.durable(list({broker.groups.log_of(group_id) for group_id in group_ids}))
    return message


# ------------------------------------------------------------------------------------------------------------- offsets


def handle_offset_commit(broker: Broker, request: Request) -> Answer:
    if request.header.api_version < TOPIC_ID_VERSION:
        return _pass_on(broker, request)
    message: OffsetCommitRequest = request.message
    unknown, known = [], []
    for wanted in message.topics:
        topic = broker.topics.by_id(wanted.topic_id)
        if topic is None:
            unknown.append(_unknown_commit(wanted))
        else:
            wanted.name = topic.name
            known.append(wanted)
    message.topics = known
    return _with_ids(broker, unknown, _pass_on(broker, request))


def _unknown_commit(
    wanted: OffsetCommitRequest.OffsetCommitRequestTopic,
) -> OffsetCommitResponse.OffsetCommitResponseTopic:
    return OffsetCommitResponse.OffsetCommitResponseTopic(
        topic_id=wanted.topic_id,
        partitions=[
            OffsetCommitResponse.OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for partition in wanted.partitions
        ],
    )


def _with_ids(broker: Broker, unknown: list[Any], answer: Answer) -> Answer:
    if isawaitable(answer):
        return _later_with_ids(broker, unknown, answer)
    for topic in answer.topics:
        topic.topic_id = _id_of(broker, topic.name)
    answer.topics.extend(unknown)
    return answer


async def _later_with_ids(broker: Broker, unknown: list[Any], answer: Awaitable[Any]) -> Any:
    return _with_ids(broker, unknown, await answer)


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
        reply = broker.groups.execute(wanted.group_id, one, context_of(request))
        assert not isawaitable(reply)
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
    answers = broker.groups.execute_on_all(request.message, context_of(request))
    groups = [group for answer in answers for group in answer.groups]
    return ListGroupsResponse(error_code=0, groups=sorted(groups, key=lambda group: group.group_id))


def handle_delete_groups(broker: Broker, request: Request) -> Answer:
    results = []
    names = request.message.groups_names
    for group_ids in broker.groups.by_shard(names):
        reply = broker.groups.execute(group_ids[0], DeleteGroupsRequest(groups_names=group_ids), context_of(request))
        assert not isawaitable(reply)
        results.extend(reply.results)
    return _acknowledge(broker, names, DeleteGroupsResponse(results=results))


def handle_describe_streams_groups(broker: Broker, request: Request) -> StreamsGroupDescribeResponse:
    message: StreamsGroupDescribeRequest = request.message
    groups = []
    for group_ids in broker.groups.by_shard(message.group_ids):
        one = StreamsGroupDescribeRequest(
            group_ids=group_ids, include_authorized_operations=message.include_authorized_operations
        )
        reply = broker.groups.execute(group_ids[0], one, context_of(request))
        assert not isawaitable(reply)
        groups.extend(reply.groups)
    return StreamsGroupDescribeResponse(groups=groups)


HANDLERS: dict[int, Handler] = {
    ApiKey.FIND_COORDINATOR: handle_find_coordinator,
    ApiKey.OFFSET_COMMIT: handle_offset_commit,
    ApiKey.OFFSET_FETCH: handle_offset_fetch,
    ApiKey.OFFSET_DELETE: _pass_on,
    ApiKey.LIST_GROUPS: handle_list_groups,
    ApiKey.DELETE_GROUPS: handle_delete_groups,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _pass_on,
    ApiKey.STREAMS_GROUP_DESCRIBE: handle_describe_streams_groups,
}
