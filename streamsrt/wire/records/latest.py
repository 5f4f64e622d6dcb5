"""The largest timestamp in the most common batch layouts: a single record, or many records of equal size.

1. No object is created per record, and keys and values are not read. The sizes of key and value determine every other byte
   of a batch with that many records, except for the timestamps, which numpy extracts column by column.
2. Only batches that the general codec can read get an answer here. All other layouts are left to that codec.
3. The expected bytes of a shape are computed once: producers send batches of the same sizes again and again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from streamsrt.wire.later_numpy import np
from streamsrt.wire.primitives import Buffer
from streamsrt.wire.records.header import HEADER_SIZE_BYTES, BatchHeader
from streamsrt.wire.records.plain import written_number
from streamsrt.wire.records.uniform import BASE_TIMESTAMP_MAX

EQUAL_MIN = 24
"""Fewer records cost less one by one."""
EQUAL_MAX = 4096
"""More are as quick by :mod:`streamsrt.wire.records.uniform`."""

_SIZE_SHIFT_MAX = 21
_SHORT_OFFSETS = 64
"""So many offset deltas take one byte, more than there can be here take two."""
_BYTE: Final = "u1"
_NO_DELTA = 0xFF
_DELTA_ZERO = 64
_DELTAS = bytes(_DELTA_ZERO + (byte >> 1 ^ -(byte & 1)) if byte < 0x80 else _NO_DELTA for byte in range(256))
"""Numbers of one byte in their order; longer ones are :data:`_NO_DELTA`."""


class _Run(NamedTuple):
    """So many records of one size, with one byte for the timestamp.

    ``start``: the first one's position in the batch. ``columns``: how many bytes there are before the key, the one before
    the record included; ``before`` and ``behind`` are what they must be on both sides of the timestamps, column by column.
    ``value_at``: where the value's length is; ``value_lengths`` what it must be.
    """

    start: int
    records_count: int
    size: int
    columns: int
    before: bytes
    behind: bytes
    value_at: int
    value_lengths: bytes


class _Shape(NamedTuple):
    size_bytes: int
    runs: tuple[_Run, ...]


def largest_of_simple(batch: Buffer, header: BatchHeader) -> int | None:
    """The largest timestamp of the uncompressed batch that fills the buffer; None for other layouts (rule 2).

    Where there is an answer, the offset deltas are 0, 1, 2 and so on.
    """
    count, base_timestamp = header.records_count, header.base_timestamp
    if header.is_log_append_time or not -BASE_TIMESTAMP_MAX < base_timestamp < BASE_TIMESTAMP_MAX:
        return None
    try:
        if count == 1:
            delta_ms = _of_one(batch)
        else:
            delta_ms = _of_equal(batch, count) if EQUAL_MIN <= count <= EQUAL_MAX else None
    except IndexError:
        return None
    return None if delta_ms is None else base_timestamp + delta_ms


def _of_one(batch: Buffer) -> int | None:
    end = len(batch)
    length, start = _size(batch, HEADER_SIZE_BYTES)
    if start + length != end or batch[start] or batch[start + 2]:
        return None
    size, at = _size(batch, start + 3)
    size, at = _size(batch, at + size)
    delta = _DELTAS[batch[start + 1]]
    if at + size + 1 != end or batch[end - 1] or delta == _NO_DELTA:
        return None
    return delta - _DELTA_ZERO


def _size(data: Buffer, at: int) -> tuple[int, int]:
    """The size at that position, and the position after it: null has no size. IndexError for any other number."""
    byte = data[at]
    if byte < 0x80 and (not byte & 1 or byte == 1):
        return byte >> 1, at + 1
    value, shift = byte & 0x7F, 0
    while byte >= 0x80 and shift < _SIZE_SHIFT_MAX:
        at += 1
        shift += 7
        byte = data[at]
        value |= (byte & 0x7F) << shift
    if value & 1 or byte >= 0x80:
        raise IndexError(f"no valid size at byte {at}")
    return value >> 1, at + 1


def _of_equal(batch: Buffer, count: int) -> int | None:
    _, key_length_at = _size(batch, HEADER_SIZE_BYTES)
    key_length_at += 3
    key_size, at = _size(batch, key_length_at)
    value_length_at = at + key_size
    value_size, at = _size(batch, value_length_at)
    key_length = bytes(batch[key_length_at : value_length_at - key_size])
    shape = _shape(count, key_length, key_size, bytes(batch[value_length_at:at]), value_size)
    if shape.size_bytes != len(batch) or batch[-1]:
        return None
    times = b""
    for run in shape.runs:
        start, limit, size = run.start, run.records_count, run.size
        columns = np.ndarray((run.columns, limit), _BYTE, batch, start - 1, (1, size)).tobytes()
        time_at = len(run.before)
        if not columns.startswith(run.before) or not columns.endswith(run.behind):
            return None
        lengths = np.ndarray((len(run.value_lengths) // limit, limit), _BYTE, batch, run.value_at, (1, size))
        if lengths.tobytes() != run.value_lengths:
            return None
        times += columns[time_at : time_at + limit]
    deltas = np.frombuffer(times.translate(_DELTAS), _BYTE)
    largest = int(np.maximum.reduce(deltas))
    return None if largest == _NO_DELTA else largest - _DELTA_ZERO


@lru_cache(maxsize=64)
def _shape(count: int, key_length: bytes, key_size: int, value_length: bytes, value_size: int) -> _Shape:
    """The bytes that a batch must have with that number of records, and keys and values of these sizes."""
    runs = []
    at = HEADER_SIZE_BYTES
    before = count & 0xFF  # The last byte of the header.
    for first, stop, offset_size in ((0, min(count, _SHORT_OFFSETS), 1), (_SHORT_OFFSETS, count, 2)):
        limit = stop - first
        if limit <= 0:
            break
        length = 3 + offset_size + len(key_length) + key_size + len(value_length) + value_size
        head = written_number(length)
        doubled = np.arange(first, stop) << 1
        offsets = doubled.astype(np.uint8).tobytes()
        if offset_size == 2:
            offsets = (doubled & 0x7F | 0x80).astype(np.uint8).tobytes() + (doubled >> 7).astype(np.uint8).tobytes()
        columns = 1 + len(head) + 2 + offset_size + len(key_length)
        runs.append(
            _Run(
                start=at,
                records_count=limit,
                size=len(head) + length,
                columns=columns,
                before=bytes((before,)) + bytes(limit - 1) + _repeated(head, limit) + bytes(limit),
                behind=offsets + _repeated(key_length, limit),
                value_at=at + columns - 1 + key_size,
                value_lengths=_repeated(value_length, limit),
            )
        )
        at += limit * (len(head) + length)
        before = 0
    return _Shape(at, tuple(runs))


def _repeated(data: bytes, count: int) -> bytes:
    return b"".join([data[at : at + 1] * count for at in range(len(data))])
