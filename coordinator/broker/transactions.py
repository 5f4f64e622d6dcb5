"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit; what tools ask about transactions.

1. Clients add the partitions of a transaction themselves: ``transaction.version`` is 1, so that they leave it
   to the broker neither to add partitions nor to raise the epoch after each transaction (KIP-890).
2. A producer writes records and offsets only to what its transaction holds; everything else is refused before the log.
3. An answer to a producer is given when what it tells of is as safe as ``log.fsync`` promises.
4. A fenced producer gets INVALID_PRODUCER_EPOCH if its version of the API has no PRODUCER_FENCED.
"""

from __future__ import annotations

from collections.abc import Generator

from coordinator.broker.broker import Answer, Broker, Handler, Request, then
from coordinator.broker.groups import context_of
from coordinator.broker.slices import ITEMS_PER_STEP, in_steps, whole
from coordinator.broker.topics import OFFSETS_TOPIC, Topic
from coordinator.group.transactional import failed_commit
from coordinator.log import Fsync, LogError, PartitionLog
from coordinator.machine.values import ProducerIdAndEpoch
from coordinator.shard.journal import AppendFailedError
from coordinator.txn.describe import described, listed, unknown_states
from coordinator.txn.values import AddPartitions, EndTransaction, InitProducer, TopicPartition
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import ControlRecord, ControlType, encode_control_batch
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_FENCED_VERSION = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""From which version on an API may answer PRODUCER_FENCED."""

NO_COORDINATOR_EPOCH = -1
_ADDED_AT_ONCE = 500


def _code(request: Request, code: int) -> int:
    fenced_version = _FENCED_VERSION[ApiKey(request.header.api_key)]
    if code == ErrorCode.PRODUCER_FENCED and request.header.api_version < fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# ----------------------------------------------------------------------------------------------------------- a producer


def handle_init_producer_id(broker: Broker, request: Request) -> Answer:
    message: InitProducerIdRequest = request.message
    answer = InitProducerIdResponse(error_code=0, producer_id=-1, producer_epoch=-1)
    if message.transactional_id is None:
        try:
            answer.producer_id, answer.producer_epoch = broker.producer_ids.allocate(), 0
        except LogError as error:
            answer.error_code = error.error_code
        return broker.acknowledged(answer)
    expected = ProducerIdAndEpoch(message.producer_id, message.producer_epoch)
    reply = broker.transactions.execute(
        InitProducer(message.transactional_id, message.transaction_timeout_ms, expected)
    )
    answer.error_code = _code(request, reply.code)
    answer.producer_id, answer.producer_epoch = reply.producer
    return broker.acknowledged(answer, broker.transactions.logs_of(message.transactional_id))


def handle_add_partitions(broker: Broker, request: Request) -> Answer:
    message: AddPartitionsToTxnRequest = request.message
    steps = _added(broker, request, message)
    count = sum(1 + len(entry.partitions) for entry in message.v3_and_below_topics)
    answer = whole(steps) if count <= _ADDED_AT_ONCE else broker.slices.run_alone(steps)
    return broker.acknowledged(answer, broker.transactions.logs_of(message.v3_and_below_transactional_id))


def _added(
    broker: Broker, request: Request, message: AddPartitionsToTxnRequest
) -> Generator[None, None, AddPartitionsToTxnResponse]:
    """Adds all of the partitions or none, by one record; looks at them, and answers, in steps."""
    name = message.v3_and_below_transactional_id
    wanted = message.v3_and_below_topics
    refused: dict[tuple[str, int], int] = {}
    partitions: set[TopicPartition] = set()
    for entry in wanted:
        topic = broker.topics.get(entry.name)
        for count, partition in enumerate(entry.partitions, 1):
            if code := _not_writable(topic, partition):
                refused[entry.name, partition] = code
            else:
                partitions.add(TopicPartition(entry.name, partition))
            if not count % ITEMS_PER_STEP:
                yield
        yield
    overall: int = ErrorCode.OPERATION_NOT_ATTEMPTED
    if not refused:
        producer = ProducerIdAndEpoch(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
        event = AddPartitions(name, producer, frozenset(partitions))
        overall = _code(request, broker.transactions.execute(event).code)
    response = AddPartitionsToTxnResponse
    answer = response(results_by_topic_v3_and_below=[])
    for entry in wanted:
        results = (
            response.AddPartitionsToTxnPartitionResult(
                partition_index=number, partition_error_code=refused.get((entry.name, number), overall)
            )
            for number in entry.partitions
        )
        answered = response.AddPartitionsToTxnTopicResult(
            name=entry.name, results_by_partition=(yield from in_steps(results))
        )
        answer.results_by_topic_v3_and_below.append(answered)
        yield
    return answer


def _not_writable(topic: Topic | None, partition: int) -> int:
    if topic is None or not 0 <= partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION if topic.is_internal else ErrorCode.NONE


def handle_add_offsets(broker: Broker, request: Request) -> Answer:
    message: AddOffsetsToTxnRequest = request.message
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of(message.group_id))
    producer = ProducerIdAndEpoch(message.producer_id, message.producer_epoch)
    event = AddPartitions(message.transactional_id, producer, frozenset({partition}))
    code = _code(request, broker.transactions.execute(event).code)
    logs = broker.transactions.logs_of(message.transactional_id)
    return broker.acknowledged(AddOffsetsToTxnResponse(error_code=code), logs)


def handle_end_txn(broker: Broker, request: Request) -> Answer:
    message: EndTxnRequest = request.message
    name = message.transactional_id
    producer = ProducerIdAndEpoch(message.producer_id, message.producer_epoch)
    reply = broker.transactions.execute(EndTransaction(name, producer, message.committed))
    answer = EndTxnResponse(error_code=_code(request, reply.code))
    if broker.fsync is not Fsync.GROUP:
        return _when_finished(broker, name, answer) if broker.transactions.is_finishing(name) else answer
    return broker.acknowledged(_when_finished(broker, name, answer), broker.transactions.logs_of(name))


async def _when_finished(broker: Broker, transactional_id: str, answer: EndTxnResponse) -> EndTxnResponse:
    """Responds after the markers are written, so that the next transaction need not wait for them."""
    await broker.transactions.finished(transactional_id)
    return answer


def handle_txn_offset_commit(broker: Broker, request: Request) -> Answer:
    message: TxnOffsetCommitRequest = request.message
    code = broker.transactions.check_write(
        message.transactional_id,
        ProducerIdAndEpoch(message.producer_id, message.producer_epoch),
        OFFSETS_TOPIC,
        broker.groups.partition_of(message.group_id),
    )
    if code:
        return failed_commit(message, code)
    refused = _without_unknown(broker, message)
    answer = then(
        broker.groups.execute(message.group_id, message, context_of(request)), lambda answer: _merged(answer, refused)
    )
    return broker.acknowledged(answer, [broker.groups.log_of(message.group_id)])


def _without_unknown(broker: Broker, message: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Removes partitions that do not exist from the request, and returns the response to them: a topic that is created
    later under the name has records of its own."""
    known, unknown = [], []
    for wanted in message.topics:
        topic = broker.topics.get(wanted.name)
        there = range(0 if topic is None else len(topic.partitions))
        absent = [each for each in wanted.partitions if each.partition_index not in there]
        if absent:
            unknown.append(TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=wanted.name, partitions=absent))
            wanted.partitions = [each for each in wanted.partitions if each.partition_index in there]
        if topic is not None:
            wanted.topic_id = topic.id
            known.append(wanted)
    message.topics = known
    return failed_commit(TxnOffsetCommitRequest(topics=unknown), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _merged(answer: TxnOffsetCommitResponse, refused: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
    topics = {topic.name: topic for topic in answer.topics}
    for topic in refused.topics:
        if topic.name in topics:
            topics[topic.name].partitions.extend(topic.partitions)
        else:
            answer.topics.append(topic)
    return answer


# ---------------------------------------------------------------------------------------------------------------- tools


def handle_list_transactions(broker: Broker, request: Request) -> ListTransactionsResponse:
    message: ListTransactionsRequest = request.message
    now_ms = broker.surroundings.now_ms()
    found = [entry for state in broker.transactions.states() for entry in listed(state, message, now_ms)]
    return ListTransactionsResponse(
        unknown_state_filters=unknown_states(message),
        transaction_states=sorted(found, key=lambda entry: entry.transactional_id),
    )


def handle_describe_transactions(broker: Broker, request: Request) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            entry
            for name in request.message.transactional_ids
            for entry in described(broker.transactions.state_of(name), [name])
        ]
    )


def handle_describe_producers(broker: Broker, request: Request) -> DescribeProducersResponse:
    message: DescribeProducersRequest = request.message
    answer = DescribeProducersResponse()
    for wanted in message.topics:
        topic = broker.topics.get(wanted.name)
        partitions = []
        for number in wanted.partition_indexes:
            entry = answer.PartitionResponse(partition_index=number)
            partitions.append(entry)
            if topic is None or not 0 <= number < len(topic.partitions):
                entry.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                entry.active_producers = _producers(topic.partitions[number])
        answer.topics.append(answer.TopicResponse(name=wanted.name, partitions=partitions))
    return answer


def handle_write_txn_markers(broker: Broker, request: Request) -> Answer:
    """Ends transactions on partitions, regardless of the coordinator's state: aborts hanging ones (KIP-664)."""
    message: WriteTxnMarkersRequest = request.message
    response = WriteTxnMarkersResponse
    written: list[PartitionLog] = []
    answer = response(markers=[])
    for marker in message.markers:
        kind = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
        control = ControlRecord(kind, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch)
        result = response.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[])
        answer.markers.append(result)
        for topic in marker.topics:
            partitions = [
                response.WritableTxnMarkerPartitionResult(
                    partition_index=number, error_code=_mark(broker, topic.name, number, control, written)
                )
                for number in topic.partition_indexes
            ]
            result.topics.append(response.WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
    return broker.acknowledged(answer, written)


def _mark(broker: Broker, name: str, number: int, control: ControlRecord, written: list[PartitionLog]) -> int:
    topic = broker.topics.get(name)
    if topic is None or not 0 <= number < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log = topic.partitions[number]
    now_ms = broker.surroundings.now_ms()
    try:
        if name == OFFSETS_TOPIC:
            broker.groups.end_transaction(number, control)
        else:
            log.append(encode_control_batch(control, timestamp_ms=now_ms), now_ms=now_ms, from_coordinator=True)
            broker.appended(log)
    except LogError as error:
        return error.error_code
    except AppendFailedError:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    written.append(log)
    return 0


def _producers(log: PartitionLog) -> list[DescribeProducersResponse.ProducerState]:
    return [
        DescribeProducersResponse.ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_append_ms,
            coordinator_epoch=NO_COORDINATOR_EPOCH,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for producer_id, entry in log.producers.entries.items()
    ]


HANDLERS: dict[int, Handler] = {
    ApiKey.INIT_PRODUCER_ID: handle_init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: handle_add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: handle_add_offsets,
    ApiKey.END_TXN: handle_end_txn,
    ApiKey.TXN_OFFSET_COMMIT: handle_txn_offset_commit,
    ApiKey.LIST_TRANSACTIONS: handle_list_transactions,
    ApiKey.DESCRIBE_TRANSACTIONS: handle_describe_transactions,
    ApiKey.DESCRIBE_PRODUCERS: handle_describe_producers,
    ApiKey.WRITE_TXN_MARKERS: handle_write_txn_markers,
}
