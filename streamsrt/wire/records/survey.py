"""The contents of a batch, without its columns: for code that passes the batch on and must know that it can be read.

1. A batch passes here if, and only if, ``decode_batch`` reads it: the readers are the same. There is one exception:
   numbers that are longer than Kafka reads them (:mod:`streamsrt.wire.records.overlong`) are refused here, and read
   there.
2. Of an uncompressed batch, usually only the largest timestamp is needed, which costs no object per record.
3. Large batches and records with many headers do not block other threads: the quick reader reads one piece at a time,
   and a record longer than a piece is skipped field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from streamsrt.wire.compression import DECOMPRESSED_LIMIT_BYTES, SLACK_BYTES
from streamsrt.wire.primitives import Buffer, DecodeError
from streamsrt.wire.records.attributes import has_long_attributes, is_misread
from streamsrt.wire.records.decoding import ascending, check_count, readable, with_largest
from streamsrt.wire.records.header import HEADER_SIZE_BYTES, BatchHeader, read_header
from streamsrt.wire.records.latest import largest_of_simple
from streamsrt.wire.records.overlong import may_be_overlong
from streamsrt.wire.records.plain import check_headers, read_int, read_number, walk_plain, written_number
from streamsrt.wire.records.uniform import BASE_TIMESTAMP_MAX, RECORDS_MIN, survey_uniform
from streamsrt.wire.records.unlike import Unlike, survey_unlike

PIECE_BYTES = 1 << 14
"""The size that is read in one go, in which no other thread gets its turn. It has room for eight thousand headers."""

HEADERS_MAX = DECOMPRESSED_LIMIT_BYTES
"""The largest possible number: no limit except the one for the size."""

END_OF_TIME_MS = (1 << 63) - 1

_Wanted = tuple[Callable[[Any], Any], ...]
_Found = tuple[int, list[Any]]

_SLACK = bytes(SLACK_BYTES)
_COUNT_AT = 57
_times = (attrgetter("timestamp"),)
_times_and_offsets = (*_times, attrgetter("offset"))
_all = (*_times_and_offsets, attrgetter("key"))
_headers = attrgetter("headers")


class Survey(NamedTuple):
    """``batch``: the uncompressed batch, with its original header except for the codec.

    ``timestamps`` are those of the records. ``keyless``: indexes of the records without a key. ``is_in_order``: offsets go
    up by one from the batch's first. ``headers_count``: of all records together.
    """

    batch: memoryview
    timestamps: Sequence[int]
    keyless: Sequence[int]
    is_in_order: bool
    headers_count: int


def largest_timestamp(buffer: Buffer, header: BatchHeader, headers_max: int = HEADERS_MAX) -> tuple[int, int]:
    """The largest timestamp and the number of headers of the uncompressed batch that fills ``buffer``. Reads all
    records.

    If a timestamp is 2**62 ms or more before 1970, returns the maximum timestamp: the caller then checks the records
    one by one. DecodeError as of ``decode_batch``; the CRC is not checked. TooLargeError for more headers
    than ``headers_max``.
    """
    latest = largest_of_simple(buffer, header)
    if latest is not None:
        return latest, 0
    if header.records_count >= RECORDS_MIN and not header.is_log_append_time:
        uniform = survey_uniform(memoryview(buffer)[HEADER_SIZE_BYTES:], *_shape(header))
        if uniform is not None:
            return int(uniform[0].max()), 0
    view = unpacked(buffer, header, DECOMPRESSED_LIMIT_BYTES)
    unlike = _survey_unlike(view, header, headers_max)
    if unlike is not None:
        return int(unlike.timestamps.max()), unlike.headers_count
    largest: list[int] = []
    headers_count = 0
    for count, (times,) in _columns(view, header, _times, headers_max):
        # What lies so far back may have passed the end of time and come round.
        largest.append(max(times) if min(times) > -BASE_TIMESTAMP_MAX else END_OF_TIME_MS)
        headers_count += count
    return max(largest), headers_count


def find_timestamp(buffer: Buffer, position: int, target_ms: int, *, from_offset: int = 0) -> tuple[int, int] | None:
    """(offset, timestamp) of the batch's first record at `target_ms` or later and `from_offset` or after, or None.

    For a batch that can't be read, the header decides: a reader of that batch gets the error.
    """
    header = read_header(buffer, position)
    if header.max_timestamp < target_ms or header.last_offset < from_offset or not header.records_count:
        return None
    try:
        timestamps, offsets = _times_and_offsets_of(
            readable(buffer, position, header, DECOMPRESSED_LIMIT_BYTES), header
        )
    except DecodeError:
        return max(header.base_offset, from_offset), header.max_timestamp
    for timestamp, offset in zip(timestamps, offsets, strict=True):
        if timestamp >= target_ms and offset >= from_offset:
            return offset, timestamp
    return None


def _times_and_offsets_of(view: memoryview, header: BatchHeader) -> tuple[Sequence[int], Sequence[int]]:
    """Returns timestamps and offsets. Offsets are read from the records only if some are missing."""
    check_count(header, len(view))
    is_whole = header.records_count > header.last_offset_delta
    whole = range(header.base_offset, header.base_offset + header.records_count)
    if is_whole and not header.is_log_append_time:
        uniform = survey_uniform(view[HEADER_SIZE_BYTES:], *_shape(header))
        if uniform is not None:
            return uniform[0].tolist(), whole
    timestamps: list[int] = []
    offsets: list[int] = []
    for _, (times, found) in _columns(view, header, _times_and_offsets, HEADERS_MAX):
        timestamps += times
        offsets += found
    if is_whole:
        return timestamps, whole
    return timestamps, ascending(offsets, header)


def survey_batch(buffer: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> Survey:
    """Reads all records of the batch that fills ``buffer``. DecodeError as of ``decode_batch``; the CRC is not checked."""
    return survey_unpacked(unpacked(buffer, header, limit_bytes), header)


def unpacked(buffer: Buffer, header: BatchHeader, limit_bytes: int) -> memoryview:
    """The batch that fills ``buffer``, not compressed. DecodeError for what can't be unpacked or is larger than that."""
    view = readable(buffer, 0, header, limit_bytes)
    check_count(header, len(view))
    return view


def survey_unpacked(
    view: memoryview, header: BatchHeader, headers_max: int = HEADERS_MAX, *, in_order_only: bool = False
) -> Survey:
    """``survey_batch`` of what ``unpacked`` gave. TooLargeError for more headers than ``headers_max``.

    ``in_order_only``: DecodeError at the first piece whose offsets do not go up by one.
    """
    if not header.is_log_append_time:
        uniform = survey_uniform(view[HEADER_SIZE_BYTES:], *_shape(header))
        if uniform is not None:
            return Survey(view, uniform[0].tolist(), uniform[1], True, 0)
    unlike = _survey_unlike(view, header, headers_max)
    if unlike is not None:
        return Survey(view, unlike.timestamps.tolist(), unlike.keyless.tolist(), True, unlike.headers_count)
    timestamps: list[int] = []
    keyless: list[int] = []
    is_in_order = True
    headers_count = 0
    for count, (times, offsets, keys) in _columns(view, header, _all, headers_max):
        start = len(timestamps)
        timestamps += times
        headers_count += count
        if None in keys:
            keyless += [index for index, key in enumerate(keys, start) if key is None]
        first = header.base_offset + start
        is_in_order = is_in_order and offsets == tuple(range(first, first + len(offsets)))
        if in_order_only and not is_in_order:
            raise DecodeError(f"batch at offset {header.base_offset} has offsets that do not go up by one")
    return Survey(view, timestamps, keyless, is_in_order, headers_count)


def _survey_unlike(view: memoryview, header: BatchHeader, headers_max: int) -> Unlike | None:
    if header.is_log_append_time:
        return None
    unlike = survey_unlike(view[HEADER_SIZE_BYTES:], *_shape(header))
    if unlike is not None:
        check_headers(unlike.headers_count, headers_max)
    return unlike


def _columns(view: memoryview, header: BatchHeader, wanted: _Wanted, headers_max: int) -> Iterator[_Found]:
    """Piece by piece: how many headers all records have, and what is wanted of them, column by column."""
    held = done = 0
    for piece, records, count in _pieces(view, header):
        found = _quick_columns(piece(), records, header, done, wanted) if len(records) <= PIECE_BYTES else None
        if found is None:
            rows = walk_plain(records, count, header, headers_max - held)
            found = sum(row.headers_count for row in rows), [tuple(map(each, rows)) for each in wanted]
        held += found[0]
        check_headers(held, headers_max)
        done += count
        yield found


def _quick_columns(
    batch: memoryview, records: memoryview, header: BatchHeader, done: int, wanted: _Wanted
) -> _Found | None:
    """The columns of a piece that follows this many records; None if Kafka would read them differently. The timestamp
    must be the first column."""
    from streamsrt.wire.records.quick import READER_ERRORS, DefaultRecordBatch  # see there

    try:
        rows = list(DefaultRecordBatch(batch))
        headers_count = sum(map(len, filter(None, map(_headers, rows))))
    except UnicodeDecodeError:
        return None
    except READER_ERRORS as error:
        if has_long_attributes(records, header.records_count):
            return None
        raise DecodeError(f"batch at offset {header.base_offset} holds broken records: {error}") from error
    if not rows:
        raise DecodeError(f"batch at offset {header.base_offset} holds no records")
    times, largest = with_largest(list(map(wanted[0], rows)))
    data = bytes(records)
    if is_misread(data, header, times, largest, done) or may_be_overlong(data, rows, header.base_offset):
        return None
    return headers_count, [times, *(tuple(map(each, rows)) for each in wanted[1:])]


def _pieces(view: memoryview, header: BatchHeader) -> Iterator[tuple[Callable[[], memoryview], memoryview, int]]:
    """Batches of some of the records each, these records, and how many they are."""
    records = view[HEADER_SIZE_BYTES:]
    if len(records) <= PIECE_BYTES:
        yield (lambda: view), records, header.records_count
        return
    head = bytes(view[:_COUNT_AT])
    for start, end, count in _spans(records, header):
        part = records[start:end]
        yield partial(_batch, head, part, count), part, count


def _batch(head: bytes, records: memoryview, count: int) -> memoryview:
    made = b"".join((head, count.to_bytes(4, "big"), records, _SLACK))
    return memoryview(made)[: -len(_SLACK)]


def _spans(records: memoryview, header: BatchHeader) -> Iterator[tuple[int, int, int]]:
    """Yields the start and end of each piece, from the sizes in the records, and its number of records."""
    limit = len(records)
    at = start = first = 0
    bound = min(PIECE_BYTES, limit)
    try:
        for index in range(header.records_count):
            size = records[at]
            if size < 0x80 and not size & 1:
                end = at + 1 + (size >> 1)
            elif (second := records[at + 1]) < 0x80 and not size & 1:
                end = at + 2 + ((size & 0x7F) >> 1) + (second << 6)
            else:
                end = _behind(records, at, header)
            if end > bound:
                if end > limit:
                    raise IndexError(end)
                if index > first:
                    yield start, at, index - first
                    start, first = at, index
                bound = min(start + PIECE_BYTES, limit)
            at = end
    except IndexError:
        raise DecodeError(f"batch at offset {header.base_offset} ends within a record") from None
    yield start, at, header.records_count - first
    if at != limit:
        raise DecodeError(f"batch at offset {header.base_offset} has {limit - at} bytes after its last record")


def _behind(records: memoryview, at: int, header: BatchHeader) -> int:
    size, start = read_int(records, at)
    if size < 0:
        raise DecodeError(f"batch at offset {header.base_offset} has a record of {size} bytes")
    return start + size


def _shape(header: BatchHeader) -> tuple[int, int]:
    return header.records_count, header.base_timestamp


def renumbered_records(batch: Buffer, *, at_base_time: bool = False) -> bytearray:
    """The records of a batch that was surveyed, with the offsets 0, 1, 2 ... after the batch's, and without attributes.

    ``at_base_time``: all have the batch's base timestamp.
    """
    records = memoryview(batch)[HEADER_SIZE_BYTES:]
    made = bytearray()
    at = 0
    for offset in range(read_header(batch).records_count):
        size, start = read_number(records, at)
        at = start + size
        _, behind_time = read_number(records, start + 1)
        _, behind_offset = read_number(records, behind_time)
        number = written_number(offset)
        time = b"\0" if at_base_time else records[start + 1 : behind_time]
        made += written_number(1 + len(time) + len(number) + at - behind_offset)
        made.append(0)
        made += time
        made += number
        made += records[behind_offset:at]
    return made
