"""What is in a batch, without making its columns: for whoever only passes it on and vouches that it can be read.

1. A batch passes here if, and only if, ``decode_batch`` reads it: the readers are the same.
2. Of a batch that is not compressed only the largest timestamp is asked as a rule, which costs no object per record.
3. Threads beside this one get their turns, however large the batch is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from aiokafka.record.default_records import DefaultRecordBatch

from streamsrt.wire.compression import DECOMPRESSED_LIMIT_BYTES
from streamsrt.wire.primitives import Buffer, DecodeError
from streamsrt.wire.records.decoding import READER_ERRORS, check_count, decode_records, readable
from streamsrt.wire.records.encoding import encode_records
from streamsrt.wire.records.header import HEADER_SIZE_BYTES, NO_TIMESTAMP, BatchHeader, read_header
from streamsrt.wire.records.latest import largest_of_simple
from streamsrt.wire.records.plain import read_plain
from streamsrt.wire.records.uniform import RECORDS_MIN, survey_uniform

STEP_RECORDS = 4096
"""So many are read in one go, in which no other thread gets its turn."""

LONG_RECORD_BYTES = 1 << 14
"""Longer ones cost more to copy than to walk over."""

_Row: TypeAlias = "tuple[int, int | None, bytes | memoryview | None]"
_timestamp = attrgetter("timestamp")
_row = attrgetter("offset", "timestamp", "key")


class Survey(NamedTuple):
    """``batch`` is not compressed; its header is that of the batch as it came, but for the codec.

    ``timestamps`` are those of the records. ``keyless``: indexes of the records without a key. ``is_in_order``: offsets go
    up by one from the batch's first.
    """

    batch: memoryview
    timestamps: Sequence[int]
    keyless: Sequence[int]
    is_in_order: bool


def largest_timestamp(buffer: Buffer, header: BatchHeader) -> int:
    """Of the records of the batch that fills ``buffer`` and is not compressed, all of which are read.

    DecodeError as of ``decode_batch``; the CRC is not checked.
    """
    latest = largest_of_simple(buffer, header)
    if latest is not None:
        return latest
    if header.records_count >= RECORDS_MIN and not header.is_log_append_time:
        uniform = survey_uniform(memoryview(buffer)[HEADER_SIZE_BYTES:], *_shape(header))
        if uniform is not None:
            return int(uniform[0].max())
    if _are_long(header, len(buffer)):
        return max(record.timestamp for record in read_plain(memoryview(buffer), header))
    view = readable(buffer, 0, header, DECOMPRESSED_LIMIT_BYTES)
    check_count(header, len(view))
    try:
        times = map(_timestamp, DefaultRecordBatch(view))
        largest = max(max(islice(times, size)) for size in _steps(header.records_count))
        next(times, None)  # The reader says now that bytes are left.
        return int(largest)
    except (UnicodeDecodeError, TypeError):
        return int(max(survey_batch(buffer, header).timestamps))
    except READER_ERRORS as error:
        raise DecodeError(f"batch at offset {header.base_offset} holds broken records: {error}") from error


def survey_batch(buffer: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> Survey:
    """Reads all records of the batch that fills ``buffer``. DecodeError as of ``decode_batch``; the CRC is not checked."""
    return survey_unpacked(unpacked(buffer, header, limit_bytes), header)


def unpacked(buffer: Buffer, header: BatchHeader, limit_bytes: int) -> memoryview:
    """The batch that fills ``buffer``, not compressed. DecodeError for what can't be unpacked or is larger than that."""
    view = readable(buffer, 0, header, limit_bytes)
    check_count(header, len(view))
    return view


def survey_unpacked(view: memoryview, header: BatchHeader) -> Survey:
    """``survey_batch`` of what ``unpacked`` gave."""
    if not header.is_log_append_time:
        uniform = survey_uniform(view[HEADER_SIZE_BYTES:], *_shape(header))
        if uniform is not None:
            return Survey(view, uniform[0].tolist(), uniform[1], True)
    if _are_long(header, len(view)):
        return _surveyed(view, iter([record[:3] for record in read_plain(view, header)]), header)
    rows: Iterator[_Row] = map(_row, DefaultRecordBatch(view))
    try:
        return _surveyed(view, rows, header)
    except UnicodeDecodeError:
        return _surveyed(view, iter([record[:3] for record in read_plain(view, header)]), header)
    except READER_ERRORS as error:
        raise DecodeError(f"batch at offset {header.base_offset} holds broken records: {error}") from error


def _surveyed(view: memoryview, rows: Iterator[_Row], header: BatchHeader) -> Survey:
    timestamps: list[int] = []
    keyless: list[int] = []
    is_in_order = True
    for size in _steps(header.records_count):
        start = len(timestamps)
        offsets, times, keys = zip(*islice(rows, size), strict=True)
        timestamps += [NO_TIMESTAMP if time is None else time for time in times] if None in times else times
        if None in keys:
            keyless += [index for index, key in enumerate(keys, start) if key is None]
        first = header.base_offset + start
        is_in_order = is_in_order and offsets == tuple(range(first, first + len(offsets)))
    next(rows, None)  # The reader says now that bytes are left.
    return Survey(view, timestamps, keyless, is_in_order)


def _are_long(header: BatchHeader, size_bytes: int) -> bool:
    return size_bytes > header.records_count * LONG_RECORD_BYTES and not header.is_log_append_time


def _steps(count: int) -> Iterator[int]:
    """So many records as are read in one go each. The reader can't be asked again once it has said that it is done."""
    for start in range(0, count, STEP_RECORDS):
        yield min(STEP_RECORDS, count - start)


def _shape(header: BatchHeader) -> tuple[int, int]:
    return header.records_count, header.base_timestamp


def renumbered_records(batch: Buffer) -> memoryview:
    """The records of a batch that is not compressed, with the offsets 0, 1, 2 ... after the batch's."""
    header = read_header(batch)._replace(attributes=0)
    columns = decode_records(batch, 0, header, True, DECOMPRESSED_LIMIT_BYTES)
    return encode_records(
        columns.keys, columns.values, columns.timestamps, columns.headers, range(len(columns)), header.base_timestamp
    )
