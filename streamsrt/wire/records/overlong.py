"""Detects varints that are too long for Kafka but accepted by the quick reader.

1. Kafka reads each number of a record as 32 bits, in at most five bytes. The timestamp is an exception: 64 bits, in at
   most ten bytes. The quick reader accepts ten bytes for every number.
2. A number of six bytes or more contains five bytes in a row that are 0x80 or larger. Buffers without such a run need no
   further check.
3. Such runs also occur in text that is not ASCII and in binary values, so then the records themselves are checked: an
   overlong size or count either is padded with zeros or is that of a null; an offset may be large. The answer may be a
   false alarm: the caller then reads the records one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from streamsrt.wire.later_numpy import np

_WORD = "<u2"
_HIGH = 0x8080
_FILLED_UP = b"\x80\x80\0"
_NEAR = 1 << 20
"""Smaller numbers take three bytes or fewer. So they have such bytes where they are filled up to six or more."""

_keys, _values, _offsets, _headers = map(attrgetter, ("key", "value", "offset", "headers"))


def may_be_overlong(records: bytes, rows: Sequence[object], base_offset: int) -> bool:
    """Whether the buffer may contain such a varint, given the records that the quick reader returned."""
    if records.isascii() or not _has_high_run(records):
        return False
    if _FILLED_UP in records:
        return True
    return _has_null(rows) or not _are_near(rows, base_offset)


def _has_high_run(data: bytes) -> bool:
    """Whether there may be five bytes in a row from 0x80 on: such a run covers two words."""
    words = np.frombuffer(data, _WORD, len(data) >> 1) & _HIGH
    is_high = (words == _HIGH).tobytes()
    # A search for one byte is much quicker than one for two.
    return b"\1" in is_high and b"\1\1" in is_high


def _has_null(rows: Sequence[object]) -> bool:
    if None in map(_keys, rows) or None in map(_values, rows):
        return True
    return any(value is None for headers in filter(None, map(_headers, rows)) for _, value in headers)


def _are_near(rows: Sequence[object], base_offset: int) -> bool:
    offsets: list[int] = list(map(_offsets, rows))
    return base_offset - _NEAR < min(offsets) and max(offsets) < base_offset + _NEAR
