"""What a produced byte string must be before the log takes it: whole batches that a producer may send."""

from __future__ import annotations

from collections.abc import Iterable

from crc32c import crc32c

from coordinator.log.config import FOREVER_MS, LogConfig, TimestampType
from coordinator.log.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnsupportedMagicError,
)
from coordinator.log.scan import CRC_START, FRAME_BYTES
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import HEADER_SIZE_BYTES, NO_TIMESTAMP, BatchHeader, decode_batch, read_header

_MAGIC_POSITION = 16
_LOG_APPEND_TIME = 8

Batch = tuple[BatchHeader, memoryview]


def split_batches(buffer: bytes | bytearray | memoryview, config: LogConfig, *, from_coordinator: bool) -> list[Batch]:
    """The batches in ``buffer``, every byte accounted for and every CRC checked.

    ``from_coordinator`` allows control batches, which no client may write, and batches above the limits of size: a
    transaction marker must fit always.
    Raises an :class:`~coordinator.log.errors.AppendRefusedError` that says what is wrong with which batch.
    """
    view = memoryview(buffer)
    size = len(view)
    batches: list[Batch] = []
    position = 0
    while position < size:
        header = _whole_header(view, position)
        end = position + header.size_bytes
        batch = view[position:end]
        too_large = header.size_bytes > min(config.max_message_bytes, config.segment_bytes)
        if too_large and not from_coordinator:
            raise RecordTooLargeError(
                f"the batch has {header.size_bytes} bytes; max.message.bytes is {config.max_message_bytes}, "
                f"segment.bytes {config.segment_bytes}"
            )
        if crc32c(batch[CRC_START:]) != header.crc:
            raise CorruptBatchError(f"the checksum of the batch at byte {position} of the request does not match")
        _check_content(header, from_coordinator=from_coordinator)
        batches.append((header, batch))
        position = end
    if not batches:
        raise InvalidRecordError("there is no record batch in the request")
    if len(batches) > 1 and any(header.producer_id >= 0 for header, _ in batches):
        raise InvalidRecordError("an idempotent producer must send one batch per partition and request")
    return batches


def check_timestamps(batches: Iterable[Batch], config: LogConfig, now_ms: int) -> None:
    """Raises :class:`InvalidTimestampError` for a batch whose producer's clock is too far from the broker's."""
    if config.message_timestamp_type is not TimestampType.CREATE_TIME:
        return
    for header, batch in batches:
        if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
            raise InvalidTimestampError(
                f"timestamp {header.max_timestamp} is {header.max_timestamp - now_ms} ms after the broker's clock; "
                f"message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}"
            )
        if config.message_timestamp_before_max_ms < FOREVER_MS:
            _check_age(batch, config.message_timestamp_before_max_ms, now_ms)


def _check_age(batch: memoryview, before_max_ms: int, now_ms: int) -> None:
    try:
        timestamps = decode_batch(batch, verify_crc=False, headers=False).timestamps
    except DecodeError as error:
        raise InvalidRecordError(f"the records of a batch can't be read: {error}") from error
    oldest = min((each for each in timestamps if each != NO_TIMESTAMP), default=now_ms)
    if now_ms - oldest > before_max_ms:
        raise InvalidTimestampError(
            f"timestamp {oldest} is {now_ms - oldest} ms before the broker's clock; "
            f"message.timestamp.before.max.ms is {before_max_ms}"
        )


def _whole_header(view: memoryview, position: int) -> BatchHeader:
    left_bytes = len(view) - position
    if left_bytes > _MAGIC_POSITION and view[position + _MAGIC_POSITION] in (0, 1):
        raise UnsupportedMagicError(
            f"record format {view[position + _MAGIC_POSITION]} is not supported: "
            "produce with a client of Kafka 0.11 or later"
        )
    if left_bytes < HEADER_SIZE_BYTES:
        raise CorruptBatchError(f"the request ends within a batch header, {left_bytes} bytes into it")
    try:
        header = read_header(view, position)
    except DecodeError as error:
        raise CorruptBatchError(str(error)) from error
    if header.size_bytes > left_bytes:
        raise CorruptBatchError(
            f"a batch length of {header.batch_length} with {left_bytes - FRAME_BYTES} bytes left in the request"
        )
    return header


def _check_content(header: BatchHeader, *, from_coordinator: bool) -> None:
    if header.records_count <= 0 or header.records_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"the batch claims {header.records_count} records and a last offset delta of {header.last_offset_delta}"
        )
    if from_coordinator:
        return
    if header.is_control:
        raise InvalidRecordError("a client may not write control batches")
    if header.attributes & _LOG_APPEND_TIME:
        raise InvalidRecordError("a producer may not stamp a batch with log append time")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecordError("a transactional batch has no producer id")
    if header.producer_id >= 0 and header.producer_epoch < 0:
        raise InvalidRecordError(f"producer {header.producer_id} sent no producer epoch")
