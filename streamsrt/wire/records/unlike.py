"""Reads records of different sizes, with headers or without: numpy reads each field of all records at once.

Rules of this module:
- Only the lengths of the records are followed one by one, which is little work for each. Keys, values and headers are
  skipped, never read.
- Whatever is read here, the codec for any records reads as well, for all bytes. Other records than those that producers
  usually write are left to that codec, which also reports errors: this module reports none.
- A position beyond the end reads as the last byte. Positions only grow, so that such a record does not end where its
  length says.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from streamsrt.wire.later_numpy import np
from streamsrt.wire.primitives import Buffer
from streamsrt.wire.records.uniform import BASE_TIMESTAMP_MAX, short_deltas

if TYPE_CHECKING:
    import numpy.typing as npt

RECORDS_MIN = 160
"""Fewer records cost less one by one."""
RECORDS_MAX = 1 << 13
"""Whose offset deltas take two bytes. No other thread gets its turn while a field of all of them is read."""
HEADERS_EACH_MAX = 8

_NUMBER_BYTES_MAX = 5
_NOWHERE = 1 << 40

_Bytes: TypeAlias = "npt.NDArray[np.uint8]"
_Positions: TypeAlias = "npt.NDArray[np.int64]"


@cache
def _counting() -> _Positions:
    return np.arange(RECORDS_MAX)


class Unlike(NamedTuple):
    """The timestamps, the records without a key, and the number of headers of all records together."""

    timestamps: _Positions
    keyless: _Positions
    headers_count: int


def survey_unlike(records: memoryview, count: int, base_timestamp: int) -> Unlike | None:
    """Surveys ``count`` records that fill the buffer; None for layouts that are left to the general codec."""
    if not RECORDS_MIN <= count <= RECORDS_MAX or not -BASE_TIMESTAMP_MAX < base_timestamp < BASE_TIMESTAMP_MAX:
        return None
    found: list[int] = []
    if not ends_of_records(records, 0, count, found) or found[-1] != len(records):
        return None
    table = np.frombuffer(records, np.uint8)
    ends = np.array(found, np.int64)
    heads = heads_of(table, ends)
    if heads is None:
        return None
    deltas, offsets, key_sizes, at = heads
    sizes_min = int(key_sizes.min())
    if sizes_min < -1 or offsets.tobytes() != _counting()[:count].tobytes():
        return None
    at += key_sizes if sizes_min >= 0 else np.maximum(key_sizes, 0)
    at = _behind_sized(table, at, -1)
    headers, at = numbers_at(table, at)
    if headers.any():
        behind = _behind_headers(table, at, headers)
        if behind is None:
            return None
        at = behind
    if at.tobytes() != ends.tobytes():
        return None
    keyless = (key_sizes < 0).nonzero()[0] if sizes_min < 0 else np.empty(0, np.int64)
    return Unlike(deltas + base_timestamp, keyless, int(headers.sum()))


def ends_of_records(records: Buffer, at: int, count: int, ends: list[int]) -> bool:
    """Adds to ``ends`` where each of ``count`` records ends, of which the first is at that position. Returns whether their
    lengths have one byte or two, and lead there."""
    add = ends.append
    try:
        for _ in range(count):
            size = records[at]
            if size < 0x80:
                at += 1 + (size >> 1)
            else:
                second = records[at + 1]
                if second >= 0x80:
                    return False
                at += 2 + ((size & 0x7F) >> 1) + (second << 6)
            if size & 1:
                return False
            add(at)
    except IndexError:
        return False
    return True


def heads_of(table: _Bytes, ends: _Positions) -> tuple[_Positions, _Positions, _Positions, _Positions] | None:
    """Timestamp deltas, offset deltas and key sizes of records that end there, and where their keys begin; None where a
    record has attributes. Lengths have one byte or two."""
    at = np.empty(len(ends), np.int64)
    at[0], at[1:] = 0, ends[:-1]
    at += 1 + (table.take(at) >> 7)
    if table.take(at, mode="clip").any():
        return None
    deltas, at = numbers_at(table, at + 1)
    offsets, at = numbers_at(table, at)
    return deltas, offsets, *numbers_at(table, at)


def numbers_at(table: _Bytes, at: _Positions) -> tuple[_Positions, _Positions]:
    """The number at each position, and the position after it: far beyond the end if a number takes more than five
    bytes."""
    first = table.take(at, mode="clip")
    behind = at + 1
    longer = first >> 7
    if not longer.any():
        return short_deltas().take(first).astype(np.int64), behind
    second = table.take(behind, mode="clip") * longer
    behind += longer
    if not (second >> 7).any():
        return short_deltas().take(first | second.astype(np.uint16) << 8).astype(np.int64), behind
    return _long_numbers(table, at)


def _long_numbers(table: _Bytes, at: _Positions) -> tuple[_Positions, _Positions]:
    values, at = np.zeros(len(at), np.int64), at.copy()
    rest = np.arange(len(at))
    for shift in range(0, 7 * _NUMBER_BYTES_MAX, 7):
        some = table.take(at[rest], mode="clip")
        values[rest] |= (some & 0x7F).astype(np.int64) << shift
        at[rest] += 1
        rest = rest[some >= 0x80]
    at[rest] = _NOWHERE
    return values >> 1 ^ -(values & 1), at


def _behind_sized(table: _Bytes, at: _Positions, least: int) -> _Positions:
    """The position after the bytes whose size is at that position: far beyond the end if the size is less than
    ``least``."""
    sizes, at = numbers_at(table, at)
    smallest = int(sizes.min())
    if smallest < least:
        at[sizes < least] = _NOWHERE
    return at + (sizes if smallest >= 0 else np.maximum(sizes, 0))


def _behind_headers(table: _Bytes, at: _Positions, counts: _Positions) -> _Positions | None:
    if int(counts.min()) < 0 or int(counts.max()) > HEADERS_EACH_MAX:
        return None
    left = counts.nonzero()[0]
    for done in range(1, HEADERS_EACH_MAX + 1):
        at[left] = _behind_sized(table, _behind_sized(table, at[left], 0), -1)
        left = left[counts[left] > done]
        if not len(left):
            return at
    return None
