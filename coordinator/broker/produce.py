"""Produce.

1. A batch goes to the log as it came: its bytes are checked there and passed through. Each partition gets exactly one
   batch, of a codec that the version of the request allows, as Apache Kafka demands.
2. ``acks=0`` has no answer at all; an error ends the connection, so that the client looks again where its partitions
   are. ``acks=1`` and ``acks=all`` are the same on one node: the answer is given when the
   append is as safe as ``log.fsync`` promises.
3. Each partition succeeds or fails by itself.
4. A batch that takes long to read, because it is large when it is unpacked or has very many records, is read on another
   thread; so are those behind it in the request. Nothing of the same connection comes in between.
5. A transactional batch is taken only from the current producer of its transactional id, in an open transaction that
   holds the partition: any other one would keep read_committed readers waiting for ever.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from coordinator.broker.broker import Answer, Broker, DisconnectError, Handler, Request
from coordinator.broker.topics import Topic
from coordinator.log import (
    AppendInfo,
    AppendRefusedError,
    CorruptRecordError,
    Fsync,
    LogError,
    PartitionLog,
    RecordTooLargeError,
)
from coordinator.log.contents import RECORD_COST_BYTES, Admitted, admit
from coordinator.log.errors import UnpackedTooLargeError
from coordinator.log.scan import FRAME_BYTES
from coordinator.machine.values import ProducerIdAndEpoch
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import HEADER_SIZE_BYTES, Compression, read_header
from streamsrt.wire.records.header import CODEC_MASK, MAGIC
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import ProduceRequest, ProduceResponse

TOPIC_ID_VERSION = 13
ZSTD_VERSION = 7
TURN_BYTES = 1 << 20
"""What the batches of a request may hold unpacked to be read at once."""
BATCHES_PER_REQUEST = 4
"""All batches of a request together may hold as much as so many that are as large as they may be."""
_VALID_ACKS = (-1, 0, 1)
_MAGIC, _ATTRIBUTES = 16, 22
_TRANSACTIONAL = 16
_COST_PER_BYTE = RECORD_COST_BYTES // 7
"""No record that is not packed has fewer than seven bytes."""
_LENGTH, _COUNT = slice(8, FRAME_BYTES), slice(57, HEADER_SIZE_BYTES)


@dataclass(slots=True)
class _Work:
    """One request, with the remaining limits of its batches' unpacked size: in this slice, and in total."""

    broker: Broker
    request: Request
    slice_bytes: int
    request_bytes: int
    written: list[PartitionLog] = field(default_factory=list)
    later: list[_Later] = field(default_factory=list)


class _Later(NamedTuple):
    """A batch that takes long to read: its response is the one with that index in ``answers``."""

    answers: list[ProduceResponse.PartitionProduceResponse]
    answer_index: int
    topic: Topic
    data: ProduceRequest.PartitionProduceData


def handle_produce(broker: Broker, request: Request) -> Answer:
    message: ProduceRequest = request.message
    by_id = request.header.api_version >= TOPIC_ID_VERSION
    limit_bytes = broker.integer("message.max.unpacked.bytes")
    work = _Work(broker, request, TURN_BYTES, limit_bytes * BATCHES_PER_REQUEST)
    responses = []
    for data in message.topic_data:
        topic = broker.topics.by_id(data.topic_id) if by_id else broker.topics.get(data.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers: list[ProduceResponse.PartitionProduceResponse] = []
        for partition in data.partition_data:
            answers.append(_append(work, topic, partition, unknown, answers))
        responses.append(
            ProduceResponse.TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers)
        )
    answer = ProduceResponse(responses=responses)
    if work.later:
        return _when_read(work, answer)
    if message.acks == 0:
        _check_unanswered(responses)
        return None
    if work.written and broker.fsync is Fsync.GROUP:
        return _when_durable(broker, work.written, answer)
    return answer


async def _when_read(work: _Work, answer: ProduceResponse) -> ProduceResponse | None:
    for later in work.later:
        later.answers[later.answer_index] = await _append_later(work, later)
    if work.request.message.acks == 0:
        _check_unanswered(answer.responses)
        return None
    if work.broker.fsync is Fsync.GROUP:
        return await _when_durable(work.broker, work.written, answer)
    return answer


def _check_unanswered(responses: list[ProduceResponse.TopicProduceResponse]) -> None:
    for response in responses:
        for partition in response.partition_responses:
            if partition.error_code:
                code = ErrorCode(partition.error_code)
                raise DisconnectError(f"acks=0 and {code.name} for {response.name or 'a topic'}-{partition.index}")


async def _when_durable(broker: Broker, written: list[PartitionLog], answer: ProduceResponse) -> ProduceResponse:
    try:
        await broker.durable(written)
    except LogError as error:
        for response in answer.responses:
            for partition in response.partition_responses:
                if not partition.error_code:
                    partition.error_code, partition.base_offset = error.error_code, -1
                    partition.error_message = str(error)
    return answer


def _append(
    work: _Work,
    topic: Topic | None,
    data: ProduceRequest.PartitionProduceData,
    unknown: int,
    answers: list[ProduceResponse.PartitionProduceResponse],
) -> ProduceResponse.PartitionProduceResponse:
    if topic is None:
        return _failed(data.index, unknown, None)
    refusal = _refusal(work.request, topic, data) or _transactional_refusal(work, topic, data)
    if refusal is not None:
        return _failed(data.index, *refusal)
    assert data.records is not None
    log = topic.partitions[data.index]
    now_ms = work.broker.surroundings.now_ms()
    cost_bytes = min(
        int.from_bytes(data.records[_COUNT], "big") * RECORD_COST_BYTES, len(data.records) * _COST_PER_BYTE
    )
    try:
        if cost_bytes <= work.slice_bytes:
            found = admit(data.records, log.config, now_ms, log.name, work.slice_bytes)
            work.slice_bytes -= max(found.unpacked_bytes, cost_bytes)
            return _write(work, log, found, data.index, now_ms)
    except UnpackedTooLargeError:
        pass
    except LogError as error:
        return _refused(data.index, error, log)
    work.slice_bytes = 0
    work.later.append(_Later(answers, len(answers), topic, data))
    return _failed(data.index, ErrorCode.UNKNOWN_SERVER_ERROR, None)


async def _append_later(work: _Work, later: _Later) -> ProduceResponse.PartitionProduceResponse:
    data, broker = later.data, work.broker
    assert data.records is not None
    log = later.topic.partitions[data.index]
    now_ms = broker.surroundings.now_ms()
    limit_bytes = min(log.config.unpacked_bytes_max, work.request_bytes)
    reading = partial(admit, data.records, log.config, now_ms, log.name, limit_bytes)
    try:
        found = await asyncio.get_running_loop().run_in_executor(broker.readers, reading)
        work.request_bytes -= found.unpacked_bytes
        refusal = _transactional_refusal(work, later.topic, data)
        if refusal is not None:
            return _failed(data.index, *refusal)
        return _write(work, log, found, data.index, now_ms)
    except UnpackedTooLargeError as error:
        work.request_bytes -= limit_bytes // 2
        return _refused(data.index, error, log)
    except LogError as error:
        return _refused(data.index, error, log)


def _write(
    work: _Work, log: PartitionLog, found: Admitted, index: int, now_ms: int
) -> ProduceResponse.PartitionProduceResponse:
    info = log.append_admitted(found.batches, now_ms)
    work.broker.appended(log)
    work.written.append(log)
    return _succeeded(index, info)


def _refusal(
    request: Request, topic: Topic, data: ProduceRequest.PartitionProduceData
) -> tuple[int, str | None] | None:
    if not 0 <= data.index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    acks = request.message.acks
    if acks not in _VALID_ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is not one of -1, 0, 1"
    if topic.is_internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"only the broker writes to {topic.name}"
    if not data.records:
        return ErrorCode.INVALID_RECORD, "the data of the partition has no record batch"
    return _frame_refusal(data.records, request.header.api_version)


def _transactional_refusal(
    work: _Work, topic: Topic, data: ProduceRequest.PartitionProduceData
) -> tuple[int, str] | None:
    if data.records is None or not is_transactional(data.records):
        return None
    code = _check_transaction(work.broker, work.request.message, topic, data.index, data.records)
    return (code, "the batch does not belong to an open transaction of this producer") if code else None


def _frame_refusal(records: bytes | memoryview, version: int) -> tuple[int, str] | None:
    """Kafka's ``ProduceRequest.validateRecords``; what is wrong within the batch is the log's matter."""
    size_bytes = FRAME_BYTES + int.from_bytes(records[_LENGTH], "big", signed=True)
    if size_bytes == len(records) and size_bytes > _ATTRIBUTES and records[_MAGIC] == MAGIC:
        if version < ZSTD_VERSION and records[_ATTRIBUTES] & CODEC_MASK == Compression.ZSTD:
            text = f"Produce requests with version {version} are not allowed to use ZStandard compression"
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text
        return None
    behind = records[size_bytes:] if size_bytes > 0 else b""
    only = f"Produce requests with version {version}"
    if size_bytes > len(records) or len(records) < FRAME_BYTES:
        return ErrorCode.INVALID_RECORD, f"{only} must have at least one record batch per partition"
    if len(records) > _MAGIC and records[_MAGIC] < MAGIC:
        return ErrorCode.INVALID_RECORD, f"{only} are only allowed to contain record batches with magic version 2"
    if len(behind) >= FRAME_BYTES and len(behind) >= FRAME_BYTES + int.from_bytes(behind[_LENGTH], "big"):
        return ErrorCode.INVALID_RECORD, f"{only} are only allowed to contain exactly one record batch per partition"
    return None


def is_transactional(records: bytes | memoryview | None) -> bool:
    """Whether the (first, and with a producer id only) batch is transactional; batches that are too short are checked by
    the log."""
    return records is not None and len(records) > _ATTRIBUTES and bool(records[_ATTRIBUTES] & _TRANSACTIONAL)


def _check_transaction(
    broker: Broker, message: ProduceRequest, topic: Topic, partition: int, records: bytes | memoryview
) -> int:
    if message.transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if len(records) < HEADER_SIZE_BYTES:
        return ErrorCode.INVALID_RECORD
    try:
        header = read_header(records)
    except DecodeError:
        return ErrorCode.CORRUPT_MESSAGE
    producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
    return broker.transactions.check_write(message.transactional_id, producer, topic.name, partition)


def _succeeded(index: int, info: AppendInfo) -> ProduceResponse.PartitionProduceResponse:
    return ProduceResponse.PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=info.base_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


def _refused(index: int, error: LogError, log: PartitionLog) -> ProduceResponse.PartitionProduceResponse:
    """Kafka tells the log's start with what is wrong with records, not with what is wrong with a batch's frame."""
    is_framing = isinstance(error, CorruptRecordError | RecordTooLargeError)
    answer = _failed(index, error.error_code, str(error), -1 if is_framing else log.log_start_offset)
    if isinstance(error, AppendRefusedError):
        answer.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=text)
            for at, text in error.record_errors
        ]
    return answer


def _failed(
    index: int, code: int, text: str | None, log_start_offset: int = -1
) -> ProduceResponse.PartitionProduceResponse:
    return ProduceResponse.PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, log_start_offset=log_start_offset, error_message=text
    )


HANDLERS: dict[int, Handler] = {ApiKey.PRODUCE: handle_produce}
