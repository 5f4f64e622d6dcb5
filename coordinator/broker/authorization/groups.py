"""Rights to join, commit, describe and delete groups: Kafka's ``KafkaApis``.

1. Members and commits need READ on the group; fetching offsets and describing groups need DESCRIBE; deleting needs
   DELETE.
2. Offsets can be committed for topics with READ, and seen for topics with DESCRIBE.
3. Heartbeats may only name topics with DESCRIBE. What a pattern matches, and which internal topics may be created, is
   checked by the group itself: it gets the requester's rights with the request.
4. A group is described completely or not at all: not to a requester without DESCRIBE on one of its topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from coordinator.broker.authorization.guard import (
    GROUP_DENIED,
    GROUP_MESSAGE,
    TOPIC_DENIED,
    TOPIC_MESSAGE,
    TRANSACTION_DENIED,
    TRANSACTION_MESSAGE,
    may_read_group,
    parted,
    with_topics,
)
from coordinator.broker.broker import Answer, Broker, Handler, Request, then
from coordinator.broker.groups import BATCHED_COORDINATORS_VERSION, BATCHED_FETCH_VERSION, TOPIC_ID_VERSION
from coordinator.group.machine import failure
from coordinator.security.acls import CLUSTER_NAME, Operation, ResourceType
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

_GROUP, _TRANSACTION = 0, 1
_TOPICS_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def _may(request: Request, operation: Operation, group_id: str) -> bool:
    return request.access.may(operation, ResourceType.GROUP, group_id)


# ------------------------------------------------------------------------------------------------------------- members


def read_group(handler: Handler, broker: Broker, request: Request) -> Answer:
    """Guards requests that one member of a group sends."""
    if may_read_group(request, request.message.group_id):
        return handler(broker, request)
    return failure(request.message, GROUP_DENIED)


def consumer_group_heartbeat(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: ConsumerGroupHeartbeatRequest = request.message
    if not may_read_group(request, message.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=GROUP_DENIED, error_message=GROUP_MESSAGE)
    if all(request.access.may_describe(name) for name in message.subscribed_topic_names or ()):
        return handler(broker, request)
    return ConsumerGroupHeartbeatResponse(error_code=TOPIC_DENIED, error_message=TOPIC_MESSAGE)


def streams_group_heartbeat(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: StreamsGroupHeartbeatRequest = request.message
    if not may_read_group(request, message.group_id):
        return StreamsGroupHeartbeatResponse(error_code=GROUP_DENIED, error_message=GROUP_MESSAGE)
    hidden = sorted({name for name in _topology_topics(message) if not request.access.may_describe(name)})
    if not hidden:
        return handler(broker, request)
    # The names come from the requester itself: returning them discloses nothing.
    return StreamsGroupHeartbeatResponse(
        error_code=TOPIC_DENIED, error_message=f"Topic authorization failed: DESCRIBE on {', '.join(hidden)}."
    )


def _topology_topics(message: StreamsGroupHeartbeatRequest) -> Iterable[str]:
    for part in message.topology.subtopologies if message.topology is not None else ():
        yield from part.source_topics
        yield from part.repartition_sink_topics
        yield from (topic.name for topic in part.repartition_source_topics)
        yield from (topic.name for topic in part.state_changelog_topics)


def find_coordinator(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: FindCoordinatorRequest = request.message
    response = FindCoordinatorResponse
    kind = message.key_type
    if request.header.api_version < BATCHED_COORDINATORS_VERSION:
        if _may_find(request, kind, message.key):
            return handler(broker, request)
        code, text = _not_found(kind)
        return response(error_code=code, error_message=text, node_id=-1, host="", port=-1)
    message.coordinator_keys, denied = parted(message.coordinator_keys, lambda key: _may_find(request, kind, key))
    code, text = _not_found(kind)
    refused = [
        response.Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)
        for key in denied
    ]

    def joined(answer: FindCoordinatorResponse) -> FindCoordinatorResponse:
        answer.coordinators.extend(refused)
        return answer

    return then(handler(broker, request), joined)


def _may_find(request: Request, key_type: int, key: str) -> bool:
    access = request.access
    if key_type == _GROUP:
        return _may(request, Operation.DESCRIBE, key)
    if key_type == _TRANSACTION:
        return access.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
    return access.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def _not_found(key_type: int) -> tuple[int, str]:
    if key_type == _GROUP:
        return GROUP_DENIED, GROUP_MESSAGE
    if key_type == _TRANSACTION:
        return TRANSACTION_DENIED, TRANSACTION_MESSAGE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."


# ------------------------------------------------------------------------------------------------------------- offsets


def offset_commit(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: OffsetCommitRequest = request.message
    if not may_read_group(request, message.group_id):
        return failure(message, GROUP_DENIED)
    by_id = request.header.api_version >= TOPIC_ID_VERSION

    def check(wanted: OffsetCommitRequest.OffsetCommitRequestTopic) -> bool:
        name = _name_of(broker, wanted.topic_id) if by_id else wanted.name
        return name is None or request.access.may(Operation.READ, ResourceType.TOPIC, name)

    message.topics, denied = parted(message.topics, check)
    response = OffsetCommitResponse
    refused = [
        response.OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                response.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=TOPIC_DENIED)
                for each in topic.partitions
            ],
        )
        for topic in denied
    ]
    if denied and not message.topics:
        return response(topics=refused)
    return then(handler(broker, request), lambda answer: with_topics(answer, refused))


def _name_of(broker: Broker, topic_id: bytes) -> str | None:
    topic = broker.topics.by_id(topic_id)
    return None if topic is None else topic.name


def offset_delete(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: OffsetDeleteRequest = request.message
    if not _may(request, Operation.DELETE, message.group_id):
        return OffsetDeleteResponse(error_code=GROUP_DENIED)
    message.topics, denied = parted(
        message.topics, lambda each: request.access.may(Operation.READ, ResourceType.TOPIC, each.name)
    )
    response = OffsetDeleteResponse
    refused = [
        response.OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                response.OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=TOPIC_DENIED)
                for each in topic.partitions
            ],
        )
        for topic in denied
    ]
    if denied and not message.topics:
        return response(topics=refused)
    return then(handler(broker, request), lambda answer: answer if answer.error_code else with_topics(answer, refused))


def offset_fetch(handler: Handler, broker: Broker, request: Request) -> Answer:
    if request.header.api_version < BATCHED_FETCH_VERSION:
        return _fetch_of_one_group(handler, broker, request)
    message: OffsetFetchRequest = request.message
    message.groups, denied = parted(message.groups, lambda each: _may(request, Operation.DESCRIBE, each.group_id))
    by_id = request.header.api_version >= TOPIC_ID_VERSION
    hidden = {group.group_id: _hide_topics(broker, request, group, by_id=by_id) for group in message.groups}

    def joined(answer: OffsetFetchResponse) -> OffsetFetchResponse:
        for group in answer.groups:
            group.topics = _visible(request, group.topics, lambda topic: _fetched_name(broker, topic, by_id=by_id))
            if not group.error_code:
                group.topics.extend(hidden.get(group.group_id, ()))
        answer.groups.extend(
            OffsetFetchResponse.OffsetFetchResponseGroup(group_id=each.group_id, topics=[], error_code=GROUP_DENIED)
            for each in denied
        )
        return answer

    return then(handler(broker, request), joined)


def _fetched_name(broker: Broker, topic: OffsetFetchResponse.OffsetFetchResponseTopics, *, by_id: bool) -> str | None:
    return topic.name or (_name_of(broker, topic.topic_id) if by_id else "")


FetchedTopic = TypeVar(
    "FetchedTopic", OffsetFetchResponse.OffsetFetchResponseTopic, OffsetFetchResponse.OffsetFetchResponseTopics
)


def _visible(
    request: Request, topics: list[FetchedTopic], name_of: Callable[[FetchedTopic], str | None]
) -> list[FetchedTopic]:
    """Returns topics of a response that may be described; ids without a topic stay."""
    return [topic for topic in topics if (name := name_of(topic)) is None or request.access.may_describe(name)]


def _hide_topics(
    broker: Broker, request: Request, wanted: OffsetFetchRequest.OffsetFetchRequestGroup, *, by_id: bool
) -> list[OffsetFetchResponse.OffsetFetchResponseTopics]:
    """Removes topics that may not be described from a request, and returns the responses to them."""
    if wanted.topics is None:
        return []

    def check(topic: OffsetFetchRequest.OffsetFetchRequestTopics) -> bool:
        name = _name_of(broker, topic.topic_id) if by_id else topic.name
        return name is None or request.access.may_describe(name)

    wanted.topics, denied = parted(wanted.topics, check)
    response = OffsetFetchResponse
    return [
        response.OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                response.OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, metadata="", error_code=TOPIC_DENIED
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in denied
    ]


def _fetch_of_one_group(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: OffsetFetchRequest = request.message
    response = OffsetFetchResponse

    def failed(
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopic], code: int
    ) -> list[OffsetFetchResponse.OffsetFetchResponseTopic]:
        return [
            response.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    response.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in topics
        ]

    if not _may(request, Operation.DESCRIBE, message.group_id):
        return response(error_code=GROUP_DENIED, topics=failed(message.topics or [], GROUP_DENIED))
    refused: list[OffsetFetchResponse.OffsetFetchResponseTopic] = []
    if message.topics is not None:
        message.topics, denied = parted(message.topics, lambda topic: request.access.may_describe(topic.name))
        refused = failed(denied, TOPIC_DENIED)

    def joined(answer: OffsetFetchResponse) -> OffsetFetchResponse:
        answer.topics = [*_visible(request, answer.topics, lambda topic: topic.name), *refused]
        return answer

    return then(handler(broker, request), joined)


# ------------------------------------------------------------------------------------------------------------ listings


def list_groups(handler: Handler, broker: Broker, request: Request) -> Answer:
    """Lists all groups with DESCRIBE on the cluster; otherwise those that may be described."""
    access = request.access
    if access.may_with_cluster(Operation.DESCRIBE):
        return handler(broker, request)

    def visible(answer: ListGroupsResponse) -> ListGroupsResponse:
        answer.groups = [group for group in answer.groups if _may(request, Operation.DESCRIBE, group.group_id)]
        return answer

    return then(handler(broker, request), visible)


def delete_groups(handler: Handler, broker: Broker, request: Request) -> Answer:
    message = request.message
    message.groups_names, denied = parted(
        message.groups_names, lambda group_id: _may(request, Operation.DELETE, group_id)
    )
    result = DeleteGroupsResponse.DeletableGroupResult

    def joined(answer: DeleteGroupsResponse) -> DeleteGroupsResponse:
        answer.results.extend(result(group_id=group_id, error_code=GROUP_DENIED) for group_id in denied)
        return answer

    return then(handler(broker, request), joined)


def describe_groups(handler: Handler, broker: Broker, request: Request) -> Answer:
    message = request.message
    message.groups, denied = parted(message.groups, lambda each: _may(request, Operation.DESCRIBE, each))
    group = DescribeGroupsResponse.DescribedGroup
    refused = [group(group_id=group_id, error_code=GROUP_DENIED, error_message=GROUP_MESSAGE) for group_id in denied]
    return then(handler(broker, request), partial(_with_groups, refused))


def _with_groups(
    refused: list[DescribeGroupsResponse.DescribedGroup], answer: DescribeGroupsResponse
) -> DescribeGroupsResponse:
    answer.groups = [*refused, *answer.groups]
    return answer


def describe_consumer_groups(handler: Handler, broker: Broker, request: Request) -> Answer:
    message = request.message
    message.group_ids, denied = parted(message.group_ids, lambda each: _may(request, Operation.DESCRIBE, each))
    described = ConsumerGroupDescribeResponse.DescribedGroup
    refused = [described(group_id=each, error_code=GROUP_DENIED, error_message=GROUP_MESSAGE) for each in denied]

    def seen(group: ConsumerGroupDescribeResponse.DescribedGroup) -> ConsumerGroupDescribeResponse.DescribedGroup:
        assignments = (part for member in group.members for part in (member.assignment, member.target_assignment))
        names = {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}
        if all(request.access.may_describe(name) for name in names):
            return group
        return described(group_id=group.group_id, error_code=TOPIC_DENIED, error_message=_TOPICS_HIDDEN)

    def joined(answer: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        answer.groups = [*refused, *map(seen, answer.groups)]
        return answer

    return then(handler(broker, request), joined)


def describe_streams_groups(handler: Handler, broker: Broker, request: Request) -> Answer:
    message = request.message
    message.group_ids, denied = parted(message.group_ids, lambda each: _may(request, Operation.DESCRIBE, each))
    described = StreamsGroupDescribeResponse.DescribedGroup
    refused = [described(group_id=each, error_code=GROUP_DENIED, error_message=GROUP_MESSAGE) for each in denied]

    def seen(group: StreamsGroupDescribeResponse.DescribedGroup) -> StreamsGroupDescribeResponse.DescribedGroup:
        if all(request.access.may_describe(name) for name in _described_topics(group)):
            return group
        return described(group_id=group.group_id, error_code=TOPIC_DENIED, error_message=_TOPICS_HIDDEN)

    def joined(answer: StreamsGroupDescribeResponse) -> StreamsGroupDescribeResponse:
        answer.groups = [*refused, *map(seen, answer.groups)]
        return answer

    return then(handler(broker, request), joined)


def _described_topics(group: StreamsGroupDescribeResponse.DescribedGroup) -> Iterable[str]:
    topology = group.topology
    for part in (topology.subtopologies or ()) if topology is not None else ():
        yield from part.source_topics
        yield from part.repartition_sink_topics
        yield from (topic.name for topic in part.repartition_source_topics)
        yield from (topic.name for topic in part.state_changelog_topics)
