"""Rights to write in transactions, and to describe them: Kafka's ``KafkaApis``.

1. A producer needs WRITE on its transactional id, and WRITE on what it adds. Without the first, nothing is checked any
   further; without the second, nothing of the request is done.
2. A producer without a transactional id needs IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679).
3. Transactions are only listed to requesters with DESCRIBE, and described with the topics for which the requester has
   DESCRIBE.
"""

from __future__ import annotations

from coordinator.broker.authorization.guard import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TOPIC_MESSAGE,
    TRANSACTION_DENIED,
    may_read_group,
    parted,
)
from coordinator.broker.broker import Answer, Broker, Handler, Request, then
from coordinator.broker.topics import INTERNAL_TOPICS
from coordinator.group.transactional import failed_commit
from coordinator.security.acls import Operation, ResourceType
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)


def _may(request: Request, operation: Operation, transactional_id: str) -> bool:
    return request.access.may(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)


def init_producer_id(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: InitProducerIdRequest = request.message
    code = 0
    if message.transactional_id is None:
        access = request.access
        may_cluster = access.may_with_cluster(Operation.IDEMPOTENT_WRITE)
        if not may_cluster and not access.may_with_some(Operation.WRITE, ResourceType.TOPIC):
            code = CLUSTER_DENIED
    elif not _may(request, Operation.WRITE, message.transactional_id):
        code = TRANSACTION_DENIED
    if code:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return handler(broker, request)


def add_partitions(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: AddPartitionsToTxnRequest = request.message
    topics = message.v3_and_below_topics
    if not _may(request, Operation.WRITE, message.v3_and_below_transactional_id):
        return _not_added(message, dict.fromkeys((topic.name for topic in topics), TRANSACTION_DENIED))
    denied = [topic.name for topic in topics if not _may_add(request, topic.name)]
    if not denied:
        return handler(broker, request)
    codes: dict[str, int] = {}
    for topic in topics:
        known = broker.topics.get(topic.name)
        counted = 0 if known is None else len(known.partitions)
        is_there = all(0 <= number < counted for number in topic.partitions)
        codes[topic.name] = ErrorCode.OPERATION_NOT_ATTEMPTED if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _not_added(message, codes | dict.fromkeys(denied, TOPIC_DENIED))


def _may_add(request: Request, topic: str) -> bool:
    return topic not in INTERNAL_TOPICS and request.access.may(Operation.WRITE, ResourceType.TOPIC, topic)


def _not_added(message: AddPartitionsToTxnRequest, codes: dict[str, int]) -> AddPartitionsToTxnResponse:
    response = AddPartitionsToTxnResponse
    return response(
        results_by_topic_v3_and_below=[
            response.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    response.AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=codes[topic.name]
                    )
                    for number in topic.partitions
                ],
            )
            for topic in message.v3_and_below_topics
        ]
    )


def add_offsets(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: AddOffsetsToTxnRequest = request.message
    if not _may(request, Operation.WRITE, message.transactional_id):
        return AddOffsetsToTxnResponse(error_code=TRANSACTION_DENIED)
    if not may_read_group(request, message.group_id):
        return AddOffsetsToTxnResponse(error_code=GROUP_DENIED)
    return handler(broker, request)


def end_txn(handler: Handler, broker: Broker, request: Request) -> Answer:
    if _may(request, Operation.WRITE, request.message.transactional_id):
        return handler(broker, request)
    return EndTxnResponse(error_code=TRANSACTION_DENIED)


def txn_offset_commit(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: TxnOffsetCommitRequest = request.message
    if not _may(request, Operation.WRITE, message.transactional_id):
        return failed_commit(message, TRANSACTION_DENIED)
    if not may_read_group(request, message.group_id):
        return failed_commit(message, GROUP_DENIED)
    allowed, denied = parted(
        message.topics, lambda each: request.access.may(Operation.READ, ResourceType.TOPIC, each.name)
    )
    if not denied:
        return handler(broker, request)
    message.topics = denied
    refused = failed_commit(message, TOPIC_DENIED).topics
    if not allowed:
        return TxnOffsetCommitResponse(topics=refused)
    message.topics = allowed

    def joined(answer: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
        answer.topics.extend(refused)
        return answer

    return then(handler(broker, request), joined)


# ---------------------------------------------------------------------------------------------------------------- tools


def describe_producers(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: DescribeProducersRequest = request.message
    message.topics, denied = parted(
        message.topics, lambda each: request.access.may(Operation.READ, ResourceType.TOPIC, each.name)
    )
    response = DescribeProducersResponse
    refused = [
        response.TopicResponse(
            name=topic.name,
            partitions=[
                response.PartitionResponse(partition_index=number, error_code=TOPIC_DENIED, error_message=TOPIC_MESSAGE)
                for number in topic.partition_indexes
            ],
        )
        for topic in denied
    ]

    def joined(answer: DescribeProducersResponse) -> DescribeProducersResponse:
        answer.topics.extend(refused)
        return answer

    return then(handler(broker, request), joined)


def describe_transactions(handler: Handler, broker: Broker, request: Request) -> Answer:
    message: DescribeTransactionsRequest = request.message
    message.transactional_ids, denied = parted(
        message.transactional_ids, lambda each: _may(request, Operation.DESCRIBE, each)
    )
    state = DescribeTransactionsResponse.TransactionState

    def joined(answer: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for each in answer.transaction_states:
            each.topics = [topic for topic in each.topics if request.access.may_describe(topic.topic)]
        answer.transaction_states.extend(state(transactional_id=each, error_code=TRANSACTION_DENIED) for each in denied)
        return answer

    return then(handler(broker, request), joined)


def list_transactions(handler: Handler, broker: Broker, request: Request) -> Answer:
    def visible(answer: ListTransactionsResponse) -> ListTransactionsResponse:
        answer.transaction_states = [
            each for each in answer.transaction_states if _may(request, Operation.DESCRIBE, each.transactional_id)
        ]
        return answer

    return then(handler(broker, request), visible)
