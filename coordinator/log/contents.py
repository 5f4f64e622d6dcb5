"""Checks the records of a produced batch, and prepares the batch for the log.

1. Acknowledged records can be read: all of them are read here, by the reader of our own clients. Header fields that
   follow from the records are corrected (the largest timestamp; the timestamp type, which the topic determines).
2. As Apache Kafka decides (``LogValidator``), with its error codes and texts: all records at fault are named. Where it
   answers UNKNOWN_SERVER_ERROR for what it can't unpack, this is INVALID_RECORD. Linked LZ4 blocks, and frames behind the
   first one, are such: our own reader takes them, others do not.
3. Offsets within a batch that are not 0, 1, 2 ... mean nothing to readers who count, so they pass; where a batch is packed
   anew they are made right, and packed by the producer they are refused, both as in Kafka.
4. What a batch may hold unpacked is bounded (``unpacked_bytes_max``), its records and their headers counted with what each
   costs a reader. Of what is not packed only the headers count: they alone cost far more than their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coordinator.log.config import FOREVER_MS, LogConfig, TimestampType
from coordinator.log.errors import InvalidRecordError, InvalidTimestampError, UnpackedTooLargeError
from coordinator.log.recompression import in_codec
from coordinator.log.validation import Batch, split_batches
from streamsrt.wire.compression import DECOMPRESSED_LIMIT_BYTES, Compression, TooLargeError, check_lz4_frame
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    Survey,
    largest_of_simple,
    largest_timestamp,
    read_header,
    rewrite_log_append_time,
    rewrite_timestamps,
    survey_unpacked,
    unpacked,
)
from streamsrt.wire.records.header import CODEC_MASK

RECORD_COST_BYTES = 64
"""What each record, and each header of one, counts beside its bytes."""
RECORD_ERRORS_MAX = 1000
"""How many records an answer names."""
_SHOWN = 3
_MISDATED = "One or more records have been rejected due to invalid timestamp"
_EARLY_MS = -(1 << 62)
"""Before that, message.timestamp.before.max.ms refuses some timestamps whatever it is."""


class Admitted(NamedTuple):
    """Batches as they are to be written, with LogAppendTime not stamped yet. ``unpacked_bytes``: what packed ones held,
    and what the headers of any cost a reader.
    """

    batches: list[Batch]
    unpacked_bytes: int


def admit(
    records: bytes | bytearray | memoryview, config: LogConfig, now_ms: int, log_name: str, unpacked_bytes_max: int
) -> Admitted:
    """What is to be written of what a producer sent; any thread may ask.

    ``log_name`` is the topic's and the partition's, for messages; ``unpacked_bytes_max`` is for all batches together.
    Raises :class:`~coordinator.log.errors.AppendRefusedError`.
    """
    result: list[Batch] = []
    left_bytes = unpacked_bytes_max
    for batch in split_batches(records, config, from_coordinator=False):
        made, size_bytes = _admitted(batch, config, now_ms, log_name, left_bytes)
        result.append(made)
        left_bytes -= size_bytes
    return Admitted(result, unpacked_bytes_max - left_bytes)


def _admitted(batch: Batch, config: LogConfig, now_ms: int, log_name: str, limit_bytes: int) -> tuple[Batch, int]:
    header, data = batch
    if header.is_log_append_time:
        _check_producers_time(header, config)
    try:
        if _is_plain(header, config):
            largest, headers_count = largest_timestamp(data, header, limit_bytes // RECORD_COST_BYTES)
            if largest <= now_ms + config.message_timestamp_after_max_ms:
                return _with_right_times(batch, largest), headers_count * RECORD_COST_BYTES
        return _surveyed(batch, config, now_ms, log_name, limit_bytes)
    except TooLargeError as error:
        raise UnpackedTooLargeError(f"{error} (message.max.unpacked.bytes)") from error
    except DecodeError as error:
        raise InvalidRecordError(f"the records of the batch can't be read: {error}") from error


def _check_producers_time(header: BatchHeader, config: LogConfig) -> None:
    """Refuses LogAppendTime of a producer where Kafka does: if it would stay, or if there is no other time."""
    if config.message_timestamp_type is TimestampType.CREATE_TIME and header.max_timestamp != NO_TIMESTAMP:
        return
    raise InvalidTimestampError(
        _MISDATED,
        [
            (
                index,
                f"Invalid timestamp type in message {index}. Producer should not set timestamp type to LogAppendTime.",
            )
            for index in range(min(header.records_count, RECORD_ERRORS_MAX))
        ],
    )


def _is_plain(header: BatchHeader, config: LogConfig) -> bool:
    """Whether its records are to be written as they are if they can be read and do not lie in the future."""
    return (
        not (header.attributes & CODEC_MASK or config.compression)
        and header.base_timestamp > _EARLY_MS
        and _needs_times_only(config)
    )


def _needs_times_only(config: LogConfig) -> bool:
    return not (
        config.is_compacted
        or config.message_timestamp_before_max_ms < FOREVER_MS
        or config.message_timestamp_type is not TimestampType.CREATE_TIME
    )


def _surveyed(batch: Batch, config: LogConfig, now_ms: int, log_name: str, limit_bytes: int) -> tuple[Batch, int]:
    header, data = batch
    given = header.compression
    codec = given if config.compression is None else config.compression
    cost_bytes = 0
    if given:
        _check_cost(header.records_count, 0, limit_bytes)
        if given is Compression.LZ4:
            check_lz4_frame(data[HEADER_SIZE_BYTES:])
        view = unpacked(data, header, limit_bytes)
        cost_bytes = _check_cost(header.records_count, len(view), limit_bytes)
        if codec is given and _needs_times_only(config):
            largest = largest_of_simple(view, header)
            if largest is not None and largest <= now_ms + config.message_timestamp_after_max_ms:
                return _with_right_times(batch, largest), cost_bytes
    else:
        view = unpacked(data, header, DECOMPRESSED_LIMIT_BYTES)
    is_repacked = codec is not given
    survey = survey_unpacked(
        view,
        header,
        (limit_bytes - cost_bytes) // RECORD_COST_BYTES,
        in_order_only=given is not Compression.NONE and not is_repacked,
    )
    cost_bytes += survey.headers_count * RECORD_COST_BYTES
    is_producers_time = config.message_timestamp_type is TimestampType.CREATE_TIME
    _check_records(survey, config, now_ms if is_producers_time else None, log_name)
    if is_repacked:
        batch = in_codec(header, survey, codec, config)
    return (_with_right_times(batch, max(survey.timestamps)) if is_producers_time else batch), cost_bytes


def _check_cost(records_count: int, size_bytes: int, limit_bytes: int) -> int:
    cost_bytes = size_bytes + records_count * RECORD_COST_BYTES
    if cost_bytes > limit_bytes:
        raise UnpackedTooLargeError(
            f"{records_count} records hold {cost_bytes} bytes or more unpacked, {RECORD_COST_BYTES} for each of them "
            f"included; the limit is {limit_bytes} (message.max.unpacked.bytes)"
        )
    return cost_bytes


def _check_records(survey: Survey, config: LogConfig, now_ms: int | None, log_name: str) -> None:
    faults: dict[int, str] = {}
    if now_ms is not None:
        low, high = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
        if max(survey.timestamps) > high or min(survey.timestamps) < low:
            faults = _misdated(survey.timestamps, low, high)
    is_misdated = bool(faults)
    if config.is_compacted:
        text = f"Compacted topic cannot accept message without key in topic partition {log_name}"
        faults.update((index, text) for index in survey.keyless[:RECORD_ERRORS_MAX])
    if not faults:
        return
    errors = sorted(faults.items())[:RECORD_ERRORS_MAX]
    if is_misdated:
        raise InvalidTimestampError(_MISDATED, errors)
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:_SHOWN])
    raise InvalidRecordError(
        f"One or more records have been rejected due to {len(survey.keyless)} record errors in total, and only showing "
        f"the first three errors at most: [{shown}]",
        errors,
    )


def _misdated(timestamps: Sequence[int], low: int, high: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for index, timestamp in enumerate(timestamps):
        if timestamp != NO_TIMESTAMP and not low <= timestamp <= high:
            found[index] = (
                f"Timestamp {timestamp} of message with offset {index} is out of range. "
                f"The timestamp should be within [{low}, {high}]"
            )
            if len(found) == RECORD_ERRORS_MAX:
                break
    return found


def _with_right_times(batch: Batch, largest: int) -> Batch:
    header, data = batch
    largest = max(largest, NO_TIMESTAMP)
    if header.max_timestamp == largest and not header.is_log_append_time:
        return batch
    made = memoryview(rewrite_timestamps(data, largest))
    return read_header(made), made


def stamped(batches: list[Batch], now_ms: int) -> list[Batch]:
    """The batches with the broker's time on every record."""
    made = [memoryview(rewrite_log_append_time(data, now_ms)) for _, data in batches]
    return [(read_header(data), data) for data in made]
