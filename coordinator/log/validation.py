"""Checks produced bytes before the log accepts them: whole batches with headers that a producer may send.

1. The decisions are those of Apache Kafka (``UnifiedLog.analyzeAndValidateRecords``, ``LogValidator.validateBatch``),
   with its error codes; :mod:`coordinator.log.contents` checks the records.
2. Unlike in Kafka, bytes after the last whole batch refuse the request: an acknowledgement covers everything that was
   sent.
"""

from __future__ import annotations

from coordinator.log.config import LogConfig
from coordinator.log.errors import (
    AppendRefusedError,
    CorruptRecordError,
    InvalidRecordError,
    RecordTooLargeError,
    UnsupportedMagicError,
)
from coordinator.log.scan import CRC_START, FRAME_BYTES
from streamsrt.checksum import crc32c
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import HEADER_SIZE_BYTES, BatchHeader, read_header
from streamsrt.wire.records.header import MAGIC

_MAGIC_POSITION = 16
_LENGTH = slice(8, FRAME_BYTES)
_LENGTH_MIN = 14  # of a batch of the oldest format, by which Kafka takes a length for one

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
            raise CorruptRecordError(f"the checksum of the batch at byte {position} of the request does not match")
        _check_content(header, from_coordinator=from_coordinator)
        batches.append((header, batch))
        position = end
    if not batches:
        raise InvalidRecordError("there is no record batch in the request")
    if len(batches) > 1 and any(header.producer_id >= 0 for header, _ in batches):
        raise InvalidRecordError("an idempotent producer must send one batch per partition and request")
    return batches


def _whole_header(view: memoryview, position: int) -> BatchHeader:
    try:
        header = read_header(view, position)
    except DecodeError as error:
        _check_frame(view, position)
        raise _unreadable(view, position, str(error)) from error
    if header.size_bytes > len(view) - position:
        _check_frame(view, position)
    return header


def _check_frame(view: memoryview, position: int) -> None:
    """Raises what is wrong where there is no whole batch of the one format by its length."""
    left_bytes = len(view) - position
    length = 0
    if left_bytes >= FRAME_BYTES:
        length = int.from_bytes(view[position:][_LENGTH], "big", signed=True)
        if length < _LENGTH_MIN:
            raise CorruptRecordError(f"Record size {length} is less than the minimum record overhead ({_LENGTH_MIN})")
    if left_bytes > _MAGIC_POSITION and view[position + _MAGIC_POSITION] != MAGIC:
        magic = view[position + _MAGIC_POSITION]
        if magic > MAGIC:
            raise CorruptRecordError(f"Invalid magic found in record: {magic - (magic >> 7 << 8)}")
        raise UnsupportedMagicError(
            f"record format {magic} is not supported: produce with a client of Kafka 0.11 or later"
        )
    if left_bytes < HEADER_SIZE_BYTES or left_bytes < FRAME_BYTES + length:
        kind = CorruptRecordError if position else InvalidRecordError
        raise kind(f"the request ends within a batch, {left_bytes} bytes into it")


def _unreadable(view: memoryview, position: int, reason: str) -> AppendRefusedError:
    """What was garbled on its way may be sent again; what was made so may not."""
    length = int.from_bytes(view[position:][_LENGTH], "big")
    crc = int.from_bytes(view[position + CRC_START - 4 : position + CRC_START], "big")
    is_garbled = crc32c(view[position + CRC_START : position + FRAME_BYTES + length]) != crc
    return CorruptRecordError(reason) if is_garbled else InvalidRecordError(reason)


def _check_content(header: BatchHeader, *, from_coordinator: bool) -> None:
    if header.records_count <= 0 or header.records_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"the batch claims {header.records_count} records and a last offset delta of {header.last_offset_delta}"
        )
    if from_coordinator:
        return
    if header.base_offset:
        raise InvalidRecordError(f"a producer's batch begins at offset 0, not at {header.base_offset}")
    if header.is_control:
        raise InvalidRecordError("a client may not write control batches")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecordError("a transactional batch has no producer id")
