"""Metadata, DescribeTopicPartitions, DescribeCluster: describes the cluster, which is one node."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from coordinator.broker.broker import Answer, Broker, Handler, Request
from coordinator.broker.slices import whole
from coordinator.broker.topics import Topic, TopicRefusedError, check_name
from coordinator.log import LogError
from coordinator.security.acls import ResourceType
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.primitives import ZERO_UUID
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import (
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)

_BROKERS_ENDPOINT = 1
TOPIC_ID_VERSION = 12
"""Versions 10 and 11 of Metadata have the field, but no answer for it (KIP-516)."""
_PARTITIONS_PER_PAGE_MAX = 2000
_NAMES_AT_ONCE = 64


def wants_everything(request: Request) -> bool:
    """Whether a Metadata request is for all topics."""
    message: MetadataRequest = request.message
    return message.topics is None or (request.header.api_version == 0 and not message.topics)


def handle_metadata(broker: Broker, request: Request) -> MetadataResponse:
    message: MetadataRequest = request.message
    access = request.access
    if wants_everything(request):
        topics = [_metadata_of(broker, topic) for topic in broker.topics]
    else:
        by_id = request.header.api_version >= TOPIC_ID_VERSION
        topics = [_metadata_for(broker, message, wanted, by_id=by_id) for wanted in message.topics or ()]
    answer = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=_rack(broker)
            )
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
    )
    if message.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = access.cluster_operations()
    if message.include_topic_authorized_operations:
        for topic in topics:
            if topic.name:
                topic.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name)
    return answer


def _rack(broker: Broker) -> str | None:
    return str(broker.configs["broker.rack"]) or None


def _metadata_for(
    broker: Broker, message: MetadataRequest, wanted: MetadataRequest.MetadataRequestTopic, *, by_id: bool
) -> MetadataResponse.MetadataResponseTopic:
    if wanted.name is None and not by_id:
        return MetadataResponse.MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name="", topic_id=ZERO_UUID, partitions=[]
        )
    # Java's consumer leaves the name empty beside an id, not null.
    if wanted.name is None or (by_id and wanted.topic_id != ZERO_UUID):
        topic = broker.topics.by_id(wanted.topic_id)
        if topic is not None:
            return _metadata_of(broker, topic)
        return MetadataResponse.MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id, partitions=[]
        )
    topic = broker.topics.get(wanted.name)
    if topic is not None:
        return _metadata_of(broker, topic)
    error = _create_or_refuse(broker, wanted.name, message.allow_auto_topic_creation)
    topic = broker.topics.get(wanted.name)
    if topic is not None:
        return _metadata_of(broker, topic)
    return MetadataResponse.MetadataResponseTopic(error_code=error, name=wanted.name, topic_id=ZERO_UUID, partitions=[])


def _create_or_refuse(broker: Broker, name: str, may_create: bool) -> int:
    try:
        check_name(name)
        # Topic creation is awaited: creating it immediately would keep all others waiting.
        if not (may_create and broker.configs["auto.create.topics.enable"]) or broker.topics.is_changing(name):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.topics.create(name, broker.integer("num.partitions"), {})
    except TopicRefusedError as refused:
        return refused.error_code
    except LogError as error:
        return error.error_code
    broker.topics_changed()
    return ErrorCode.NONE


def _metadata_of(broker: Broker, topic: Topic) -> MetadataResponse.MetadataResponseTopic:
    nodes = [broker.node_id]
    return MetadataResponse.MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponse.MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=broker.node_id,
                leader_epoch=log.leader_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
                offline_replicas=[],
            )
            for index, log in enumerate(topic.partitions)
        ],
    )


def handle_describe_topic_partitions(broker: Broker, request: Request) -> Answer:
    described = _described_topics(broker, request)
    return whole(described) if len(request.message.topics) <= _NAMES_AT_ONCE else broker.slices.run_alone(described)


def _described_topics(broker: Broker, request: Request) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    message: DescribeTopicPartitionsRequest = request.message
    names: Iterable[str] = [wanted.name for wanted in message.topics] or [topic.name for topic in broker.topics]
    cursor = message.cursor
    left = max(1, min(message.response_partition_limit, _PARTITIONS_PER_PAGE_MAX))
    answer = DescribeTopicPartitionsResponse(topics=[], next_cursor=None)
    if cursor is not None and cursor.partition_index < 0:
        answer.topics = [_undescribed(name, ErrorCode.INVALID_REQUEST) for name in names]
        return answer
    for name in sorted(set(names)):
        yield
        if cursor is not None and name < cursor.topic_name:
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        topic = broker.topics.get(name)
        if topic is None:
            answer.topics.append(_unknown_topic(name))
            continue
        if left == 0:
            answer.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=first)
            break
        described = _describe_partitions(broker, topic, first, left)
        answer.topics.append(described)
        left -= len(described.partitions)
        if first + len(described.partitions) < len(topic.partitions):
            answer.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                topic_name=name, partition_index=first + len(described.partitions)
            )
            break
    for described in answer.topics:
        yield
        described.topic_authorized_operations = request.access.operations(ResourceType.TOPIC, described.name or "")
    return answer


def _unknown_topic(name: str) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    try:
        check_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except TopicRefusedError as refused:
        code = refused.error_code
    return _undescribed(name, code)


def _undescribed(name: str, code: int) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=ZERO_UUID, partitions=[]
    )


def _describe_partitions(
    broker: Broker, topic: Topic, first: int, count: int
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    nodes = [broker.node_id]
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=broker.node_id,
                leader_epoch=topic.partitions[index].leader_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[],
            )
            for index in range(first, min(first + count, len(topic.partitions)))
        ],
    )


def handle_describe_cluster(broker: Broker, request: Request) -> DescribeClusterResponse:
    endpoint_type = request.message.endpoint_type
    answer = DescribeClusterResponse(
        error_code=0,
        error_message=None,
        endpoint_type=endpoint_type,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[],
    )
    if endpoint_type != _BROKERS_ENDPOINT:
        answer.error_code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        answer.error_message = "This node has no separate controller endpoint: ask for brokers (endpoint type 1)."
        return answer
    if request.message.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = request.access.cluster_operations()
    answer.brokers.append(
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=broker.node_id, host=broker.host, port=broker.port, rack=_rack(broker)
        )
    )
    return answer


HANDLERS: dict[int, Handler] = {
    ApiKey.METADATA: handle_metadata,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: handle_describe_topic_partitions,
    ApiKey.DESCRIBE_CLUSTER: handle_describe_cluster,
}
