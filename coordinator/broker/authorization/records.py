"""Rights to read, write and look up records: Kafka's ``KafkaApis``, for the APIs of producers and consumers.

1. A topic that is requested by id is checked by its name; the handler refuses an id that no topic has.
2. A refusal is the same whether or not the resource exists.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.broker.authorization.guard import TOPIC_DENIED, TRANSACTION_DENIED, parted, with_topics
from coordinator.broker.broker import Answer, Broker, DisconnectError, Handler, Request, then
from coordinator.broker.fetch import TOPIC_ID_VERSION as FETCH_ID_VERSION
from coordinator.broker.produce import TOPIC_ID_VERSION as PRODUCE_ID_VERSION
from coordinator.broker.produce import is_transactional
from coordinator.security.acls import Operation, ResourceType
from streamsrt.wire.types import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
)


def _topic_check(broker: Broker, request: Request, operation: Operation) -> Callable[[str, bytes | None], bool]:
    """Returns a check whether the operation is allowed with a topic, by its id or else by its name."""

    def check(name: str, topic_id: bytes | None) -> bool:
        if topic_id is not None:
            topic = broker.topics.by_id(topic_id)
            return topic is None or request.access.may(operation, ResourceType.TOPIC, topic.name)
        return request.access.may(operation, ResourceType.TOPIC, name)

    return check


# ------------------------------------------------------------------------------------------------------------- produce


def produce(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: ProduceRequest = request.message
    if _is_transactional(message) and not _may_write_transaction(request, message.transactional_id):
        return _not_produced(message, message.topic_data, TRANSACTION_DENIED)
    by_id = request.header.api_version >= PRODUCE_ID_VERSION
    check = _topic_check(broker, request, Operation.WRITE)
    allowed, denied = parted(message.topic_data, lambda data: check(data.name, data.topic_id if by_id else None))
    if not denied:
        return handler(broker, request)
    message.topic_data = allowed

    def joined(answer: ProduceResponse | None) -> ProduceResponse:
        # With acks=0 too, what is allowed is written first.
        refused = _not_produced(message, denied, TOPIC_DENIED)
        assert answer is not None
        answer.responses.extend(refused.responses)
        return answer

    return then(handler(broker, request), joined)


def _is_transactional(message: ProduceRequest) -> bool:
    return any(is_transactional(each.records) for data in message.topic_data for each in data.partition_data)


def _may_write_transaction(request: Request, transactional_id: str | None) -> bool:
    if transactional_id is None:
        return False
    return request.access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _not_produced(message: ProduceRequest, denied: list[ProduceRequest.TopicProduceData], code: int) -> ProduceResponse:
    """The response for partitions without permission. With acks=0 there is no response, so the connection is closed
    instead."""
    if message.acks == 0:
        raise DisconnectError("the producer uses acks=0 and is not authorized to write to the topic")
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(
                        index=each.index, error_code=code, base_offset=-1, log_start_offset=-1
                    )
                    for each in data.partition_data
                ],
            )
            for data in denied
        ]
    )


# --------------------------------------------------------------------------------------------------------------- fetch


def fetch(handler: Handler, broker: Broker, request: Request) -> Answer:
    """Requires READ on each topic from a consumer; a fetching replica needs CLUSTER_ACTION on the cluster."""
    message: FetchRequest = request.message
    by_id = request.header.api_version >= FETCH_ID_VERSION
    if message.replica_id >= 0 or message.replica_state.replica_id >= 0:
        may_all = request.access.may_with_cluster(Operation.CLUSTER_ACTION)
        allowed, denied = (message.topics, []) if may_all else ([], message.topics)
    else:
        check = _topic_check(broker, request, Operation.READ)
        allowed, denied = parted(message.topics, lambda each: check(each.topic, each.topic_id if by_id else None))
    if not denied:
        return handler(broker, request)
    message.topics = allowed
    if not allowed:
        message.max_wait_ms = 0
    refused = [
        FetchResponse.FetchableTopicResponse(
            topic=each.topic,
            topic_id=each.topic_id,
            partitions=[
                FetchResponse.PartitionData(
                    partition_index=data.partition,
                    error_code=TOPIC_DENIED,
                    high_watermark=-1,
                    aborted_transactions=None,
                    records=b"",
                )
                for data in each.partitions
            ],
        )
        for each in denied
    ]

    def joined(answer: FetchResponse) -> FetchResponse:
        if not answer.error_code:
            answer.responses.extend(refused)
        return answer

    return then(handler(broker, request), joined)


# ------------------------------------------------------------------------------------------------------------- offsets


def list_offsets(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: ListOffsetsRequest = request.message
    check = _topic_check(broker, request, Operation.DESCRIBE)
    message.topics, denied = parted(message.topics, lambda each: check(each.name, None))
    response = ListOffsetsResponse
    refused = [
        response.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                response.ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=TOPIC_DENIED)
                for each in topic.partitions
            ],
        )
        for topic in denied
    ]
    return then(handler(broker, request), lambda answer: with_topics(answer, refused))


def offset_for_leader_epoch(handler: Handler, broker: Broker, request: Request) -> Answer:
    """Requires DESCRIBE on each topic, or CLUSTER_ACTION on the cluster."""
    message: OffsetForLeaderEpochRequest = request.message
    if request.access.may_with_cluster(Operation.CLUSTER_ACTION):
        return handler(broker, request)
    check = _topic_check(broker, request, Operation.DESCRIBE)
    message.topics, denied = parted(message.topics, lambda each: check(each.topic, None))
    response = OffsetForLeaderEpochResponse
    refused = [
        response.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                response.EpochEndOffset(partition=each.partition, error_code=TOPIC_DENIED) for each in topic.partitions
            ],
        )
        for topic in denied
    ]
    return then(handler(broker, request), lambda answer: with_topics(answer, refused))


def delete_records(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: DeleteRecordsRequest = request.message
    check = _topic_check(broker, request, Operation.DELETE)
    message.topics, denied = parted(message.topics, lambda each: check(each.name, None))
    response = DeleteRecordsResponse
    refused = [
        response.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                response.DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, low_watermark=-1, error_code=TOPIC_DENIED
                )
                for each in topic.partitions
            ],
        )
        for topic in denied
    ]
    return then(handler(broker, request), lambda answer: with_topics(answer, refused))
