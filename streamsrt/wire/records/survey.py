"""What is in a batch, without making its columns: for whoever only passes it on and vouches that it can be read.

1. A batch passes here if, and only if, ``decode_batch`` reads it: the readers are the same.
2. Of a batch that is not compressed only the largest timestamp is asked as a rule, which costs no object per record.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple, cast

from aiokafka.record.default_records import DefaultRecordBatch

from streamsrt.wire.compression import DECOMPRESSED_LIMIT_BYTES
from streamsrt.wire.primitives import Buffer, DecodeError
from streamsrt.wire.records.decoding import READER_ERRORS, check_count, decode_records, readable
from streamsrt.wire.records.encoding import encode_records
from streamsrt.wire.records.header import HEADER_SIZE_BYTES, NO_TIMESTAMP, BatchHeader, read_header
from streamsrt.wire.records.plain import read_plain
from streamsrt.wire.records.uniform import RECORDS_MIN, survey_uniform

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
    if header.records_count >= RECORDS_MIN and not header.is_log_append_time:
        times, _ = survey_uniform(memoryview(buffer)[HEADER_SIZE_BYTES:], *_shape(header)) or (None, None)
        if times is not None:
            return int(times.max())
    view = readable(buffer, 0, header, DECOMPRESSED_LIMIT_BYTES)
    check_count(header, len(view))
    try:
        return int(max(map(_timestamp, DefaultRecordBatch(view))))
    except (UnicodeDecodeError, TypeError):
        return int(max(survey_batch(buffer, header).timestamps))
    except READER_ERRORS as error:
        raise DecodeError(f"batch at offset {header.base_offset} holds broken records: {error}") from error


def survey_batch(buffer: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> Survey:
    """Reads all records of the batch that fills ``buffer``. DecodeError as of ``decode_batch``; the CRC is not checked."""
    view = readable(buffer, 0, header, limit_bytes)
    check_count(header, len(view))
    if not header.is_log_append_time:
        uniform = survey_uniform(view[HEADER_SIZE_BYTES:], *_shape(header))
        if uniform is not None:
            return Survey(view, uniform[0].tolist(), uniform[1], True)
    offsets: Sequence[int]
    times: Sequence[int | None]
    try:
        offsets, times, keys = zip(*map(_row, DefaultRecordBatch(view)), strict=True)
    except UnicodeDecodeError:
        offsets, times, keys = zip(*(record[:3] for record in read_plain(view, header)), strict=True)
    except READER_ERRORS as error:
        raise DecodeError(f"batch at offset {header.base_offset} holds broken records: {error}") from error
    timestamps = [NO_TIMESTAMP if time is None else time for time in times] if None in times else times
    keyless = [index for index, key in enumerate(keys) if key is None] if None in keys else []
    first = header.base_offset
    return Survey(view, cast(Sequence[int], timestamps), keyless, offsets == tuple(range(first, first + len(offsets))))


def _shape(header: BatchHeader) -> tuple[int, int]:
    return header.records_count, header.base_timestamp


def renumbered_records(batch: Buffer) -> memoryview:
    """The records of a batch that is not compressed, with the offsets 0, 1, 2 ... after the batch's."""
    header = read_header(batch)._replace(attributes=0)
    columns = decode_records(batch, 0, header, True, DECOMPRESSED_LIMIT_BYTES)
    return encode_records(
        columns.keys, columns.values, columns.timestamps, columns.headers, range(len(columns)), header.base_timestamp
    )
