"""Rights to see, create, change and delete topics: Kafka's ``KafkaApis`` and ``ControllerApis``.

1. Lists of all topics contain those with DESCRIBE. A topic that is requested by name without DESCRIBE is refused,
   without revealing whether it exists.
2. Creating a topic requires CREATE on the cluster or on this topic; so does a Metadata request that would create one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coordinator.broker.access import Access
from coordinator.broker.authorization.guard import TOPIC_DENIED, TOPIC_MESSAGE, parted
from coordinator.broker.broker import Answer, Broker, Handler, Request, then
from coordinator.broker.metadata import TOPIC_ID_VERSION, wants_everything
from coordinator.security.acls import Operation, ResourceType
from streamsrt.wire.primitives import ZERO_UUID
from streamsrt.wire.types import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)


def _twice(names: Iterable[str | None]) -> set[str | None]:
    """Returns the names that occur more than once in a request: the handler refuses these for every client."""
    return {name for name, count in Counter(names).items() if count > 1}


# ------------------------------------------------------------------------------------------------------------ describe


def metadata(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: MetadataRequest = request.message
    access = request.access
    if wants_everything(request):
        return then(handler(broker, request), lambda answer: _only_visible(answer, access))
    by_id = request.header.api_version >= TOPIC_ID_VERSION
    wanted = message.topics or []
    may_create = message.allow_auto_topic_creation and bool(broker.configs["auto.create.topics.enable"])
    allowed, refused = [], []
    for each in wanted:
        topic = broker.topics.by_id(each.topic_id) if by_id and each.topic_id != ZERO_UUID else None
        name = each.name if topic is None else topic.name
        if not name or (by_id and each.topic_id != ZERO_UUID and topic is None):
            allowed.append(each)
        elif not access.may_describe(name):
            refused.append(_hidden(None if topic is not None else name, each.topic_id if by_id else ZERO_UUID))
        elif may_create and broker.topics.get(name) is None and not access.may_create(name):
            refused.append(_hidden(name, ZERO_UUID))
        else:
            allowed.append(each)
    message.topics = allowed

    def joined(answer: MetadataResponse) -> MetadataResponse:
        # For version 0 an empty list means all topics.
        answer.topics = [*(answer.topics if allowed else []), *refused]
        return answer

    return then(handler(broker, request), joined)


def _only_visible(answer: MetadataResponse, access: Access) -> MetadataResponse:
    answer.topics = [topic for topic in answer.topics if access.may_describe(topic.name or "")]
    return answer


def _hidden(name: str | None, topic_id: bytes) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(
        error_code=TOPIC_DENIED, name=name, topic_id=topic_id, is_internal=False, partitions=[]
    )


def describe_topic_partitions(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: DescribeTopicPartitionsRequest = request.message
    access, cursor = request.access, message.cursor
    response = DescribeTopicPartitionsResponse
    if not message.topics:
        named = DescribeTopicPartitionsRequest.TopicRequest
        message.topics = [named(name=topic.name) for topic in broker.topics if access.may_describe(topic.name)]
        return handler(broker, request) if message.topics else response(topics=[], next_cursor=None)
    message.topics, denied = parted(message.topics, lambda each: access.may_describe(each.name))
    refused = [
        response.DescribeTopicPartitionsResponseTopic(
            error_code=TOPIC_DENIED, name=name, topic_id=ZERO_UUID, partitions=[]
        )
        for name in sorted({each.name for each in denied})
        if cursor is None or name >= cursor.topic_name
    ]

    def joined(answer: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        answer.topics.extend(refused)
        return answer

    return then(handler(broker, request) if message.topics else response(topics=[], next_cursor=None), joined)


# -------------------------------------------------------------------------------------------------------------- change


def create_topics(handler: Handler, broker: Broker, request: Request) -> Answer:
    """Handles CreateTopics. Without DESCRIBE_CONFIGS on a created topic, the response omits its settings."""
    message: CreateTopicsRequest = request.message
    access = request.access
    twice = _twice(topic.name for topic in message.topics)
    message.topics, denied = parted(message.topics, lambda each: each.name in twice or access.may_create(each.name))
    result = CreateTopicsResponse.CreatableTopicResult

    def joined(answer: CreateTopicsResponse) -> CreateTopicsResponse:
        for topic in answer.topics:
            if not topic.error_code and not access.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
                topic.topic_config_error_code = TOPIC_DENIED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        answer.topics.extend(
            result(
                name=each.name,
                topic_id=ZERO_UUID,
                error_code=TOPIC_DENIED,
                error_message="Authorization failed.",
                configs=None,
            )
            for each in denied
        )
        return answer

    return then(handler(broker, request), joined)


def delete_topics(handler: Handler, broker: Broker, request: Request) -> Answer:
    """DELETE on the cluster, or on each topic. Who may describe a topic is told that it does not exist."""
    message: DeleteTopicsRequest = request.message
    if request.access.may_with_cluster(Operation.DELETE):
        return handler(broker, request)
    state = DeleteTopicsRequest.DeleteTopicState
    wanted = message.topics or [state(name=name) for name in message.topic_names]
    twice = _twice(each.name for each in wanted if each.name is not None)
    allowed, refused = [], []
    for each in wanted:
        refusal = None if each.name in twice else _not_deletable(broker, request.access, each)
        if refusal is None:
            allowed.append(each)
        else:
            refused.append(refusal)
    message.topics, message.topic_names = allowed, []

    def joined(answer: DeleteTopicsResponse) -> DeleteTopicsResponse:
        # Sorted by name, so that the order reveals nothing about hidden topics.
        answer.responses = sorted([*answer.responses, *refused], key=lambda each: (each.name or "", each.topic_id))
        return answer

    return then(handler(broker, request), joined)


def _not_deletable(
    broker: Broker, access: Access, wanted: DeleteTopicsRequest.DeleteTopicState
) -> DeleteTopicsResponse.DeletableTopicResult | None:
    by_id = wanted.name is None
    topic = broker.topics.by_id(wanted.topic_id) if by_id else broker.topics.get(wanted.name or "")
    name = topic.name if topic is not None else wanted.name
    if name is None or (not by_id and wanted.topic_id != ZERO_UUID):
        return None
    is_visible = access.may_describe(name)
    if is_visible and (topic is None or access.may(Operation.DELETE, ResourceType.TOPIC, name)):
        return None
    if by_id and access.may(Operation.DELETE, ResourceType.TOPIC, name):
        return None
    return DeleteTopicsResponse.DeletableTopicResult(
        name=name if is_visible or not by_id else None,
        topic_id=wanted.topic_id if by_id else ZERO_UUID,
        error_code=TOPIC_DENIED,
        error_message=TOPIC_MESSAGE,
    )


def create_partitions(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: CreatePartitionsRequest = request.message
    twice = _twice(topic.name for topic in message.topics)
    message.topics, denied = parted(
        message.topics,
        lambda each: each.name in twice or request.access.may(Operation.ALTER, ResourceType.TOPIC, each.name),
    )
    result = CreatePartitionsResponse.CreatePartitionsTopicResult

    def joined(answer: CreatePartitionsResponse) -> CreatePartitionsResponse:
        answer.results.extend(result(name=each.name, error_code=TOPIC_DENIED, error_message=None) for each in denied)
        return answer

    return then(handler(broker, request), joined)
