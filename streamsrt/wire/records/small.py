"""Small records of many sizes: numpy finds where each of them begins, and reads them column by column.

Rules of this module:
- A record begins after the zero that ends the previous one (no headers), and its length of one byte is followed by a zero
  (no attributes). Text contains no other such places, and random bytes hardly any. So these places are the starts of the
  records if there are as many as records, and each length leads to the next one. Otherwise (binary numbers, headers, long
  records) the batch is left to the general codec, which also reports errors: this module reports none.
- The result equals that of the general codec for all bytes, not only for those that a producer writes.
- A key with the same bytes as its value is created once.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from streamsrt.wire.later_numpy import np
from streamsrt.wire.records.uniform import BASE_TIMESTAMP_MAX, short_deltas

if TYPE_CHECKING:
    import numpy.typing as npt

RECORDS_MIN = 768
"""Fewer records cost less one by one."""

_RECORD_BYTES_MAX = 64  # of one with a length of one byte
_AVERAGE_BYTES_MAX = 40  # larger records gain nothing
_SAMPLE_BYTES = 512
_MISTAKEN_SHARE = 8  # one in so many positions may look like a record and be none
_RECORD_ZEROS_MAX = 3  # attributes, a timestamp's delta, header count
_RECORDS_MAX = 1 << 13  # whose offset deltas take two bytes
_AT_LENGTH_MIN = 6  # attributes, two deltas, two lengths, header count
_NUMBER_BYTES_MAX = 5
_WORD = 8
PADDING = bytes(_RECORD_BYTES_MAX + _WORD)

Small: TypeAlias = "tuple[list[bytes | None], list[bytes | None], npt.NDArray[np.int64]]"
"""Keys, values and timestamps."""
_Numbers: TypeAlias = "npt.NDArray[np.int64]"
_Bytes: TypeAlias = "npt.NDArray[np.uint8]"
_Words: TypeAlias = "npt.NDArray[np.uint64]"


@cache
def _lowest_bytes() -> _Words:
    """Of a word."""
    return np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)


def read_small(records: memoryview, count: int, base_timestamp: int) -> Small | None:
    """The columns of ``count`` records that fill the buffer; None unless they are as in the first rule."""
    end = len(records)
    if not RECORDS_MIN <= count <= _RECORDS_MAX or end > count * _AVERAGE_BYTES_MAX:
        return None
    zeros = bytes(records[:_SAMPLE_BYTES]).count(0)
    if zeros > 2 * _RECORD_ZEROS_MAX * _SAMPLE_BYTES * count // end:
        return None
    if not -BASE_TIMESTAMP_MAX < base_timestamp < BASE_TIMESTAMP_MAX:
        return None
    data = b"".join((records, PADDING))
    table = np.frombuffer(data, np.uint8)
    found = _starts(table, end, count)
    if found is None:
        return None
    starts, ends = found
    deltas, offset_at = _deltas(data, table, starts + 2)
    key_length_at = _behind_offsets(data, offset_at, count)
    if key_length_at is None:
        return None
    keys_at, key_sizes = _sized(table, key_length_at)
    values_at, value_sizes = _sized(table, keys_at + key_sizes)
    ends -= 1
    if not _are_equal(values_at + value_sizes, ends):
        return None
    key_words, value_words = words_of(data, keys_at, key_sizes), words_of(data, values_at, value_sizes)
    keys = _items(data, table, key_words, keys_at, key_sizes)
    if _are_equal(key_words, value_words) and _are_equal(table[keys_at - 1], table[values_at - 1]):
        values = keys.copy()
    else:
        values = _items(data, table, value_words, values_at, value_sizes)
    deltas += base_timestamp
    return keys, values, deltas


def _starts(table: _Bytes, end: int, count: int) -> tuple[_Numbers, _Numbers] | None:
    """Where records begin and end, if exactly these are found by the first rule."""
    zeros = table[:end] == 0
    if not zeros[1] or not zeros[-1]:
        return None
    starts = (zeros[:-2] & zeros[2:]).nonzero()[0]
    # Both deltas of the first record may be zero, which looks like a record.
    starts = starts[starts.searchsorted(int(table[0]) >> 1) :]
    starts += 1
    if count <= len(starts) <= count + count // _MISTAKEN_SHARE:
        starts = _reached(starts, table, end)
    if len(starts) != count - 1:
        return None
    starts = np.concatenate(([0], starts))
    lengths = table[starts]
    if np.bitwise_or.reduce(lengths) & 0x81 or np.minimum.reduce(lengths) < 2 * _AT_LENGTH_MIN:
        return None
    ends = starts + 1 + (lengths >> 1)
    if ends[-1] != end or not _are_equal(starts[1:], ends[:-1]):
        return None
    return starts, ends


def _reached(starts: _Numbers, table: _Bytes, end: int) -> _Numbers:
    """Removes positions that only look like the start of a record: no length leads there, except from another such
    position."""
    is_reached = np.zeros(end + 256, np.bool_)
    is_reached[starts + 1 + (table[starts] >> 1)] = True
    is_reached[1 + (int(table[0]) >> 1)] = True
    return starts[is_reached[starts]]


def _deltas(data: bytes, table: _Bytes, at: _Numbers) -> tuple[_Numbers, _Numbers]:
    """The timestamp deltas, and the positions after them. Overlong deltas result in positions that match no record."""
    words = _pairs(data)[at]
    longer = words & 0x80
    if not ((words & 0x8080) == 0x8080).any():
        # A number of one byte is that byte alone.
        words &= longer * 0x1FE | 0xFF
        return short_deltas().take(words).astype(np.int64), at + 1 + (longer >> 7)
    deltas = np.zeros(len(at), np.int64)
    rest, at = np.arange(len(at)), at.copy()
    for shift in range(0, 7 * _NUMBER_BYTES_MAX, 7):
        some = table[at[rest]]
        deltas[rest] |= (some & 0x7F).astype(np.int64) << shift
        at[rest] += 1
        rest = rest[some >= 0x80]
    at[rest] = 0
    return deltas >> 1 ^ -(deltas & 1), at


def _pairs(data: bytes) -> npt.NDArray[np.uint16]:
    """Two bytes from each byte on."""
    return np.ndarray((len(data) - 1,), "<u2", data, 0, (1,))


def _behind_offsets(data: bytes, at: _Numbers, count: int) -> _Numbers | None:
    """Returns the position after the offset deltas, if they are 0, 1, 2 and so on."""
    expected, mask, sizes = _written_offsets(count)
    return at + sizes if _are_equal(_pairs(data)[at] & mask, expected) else None


@lru_cache(maxsize=64)
def _written_offsets(count: int) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16], _Numbers]:
    """Offset deltas as they are written, the bits that these take, and their sizes."""
    doubled = np.arange(count, dtype=np.int64) << 1
    is_short = doubled < 0x80
    written = np.where(is_short, doubled, doubled & 0x7F | 0x80 | doubled >> 7 << 8)
    return written.astype(np.uint16), np.where(is_short, 0xFF, 0xFFFF).astype(np.uint16), np.where(is_short, 1, 2)


@cache
def _sizes() -> _Numbers:
    """The size that a one-byte length stands for: 0 for null, and beyond any record for invalid lengths."""
    sizes = np.full(256, 1 << 20, np.int64)
    sizes[:0x80:2] = np.arange(64)
    sizes[1] = 0
    return sizes


def _sized(table: _Bytes, at: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Where the bytes begin whose length is at that position, and their number."""
    return at + 1, _sizes().take(table.take(at, mode="clip"))


def words_of(data: bytes, at: _Numbers, sizes: _Numbers) -> _Words:
    """The bytes of each record in words of eight bytes, padded with zeros."""
    width = -(-int(np.maximum.reduce(sizes)) // _WORD)
    wide = np.ndarray((len(data) - _WORD + 1,), "<u8", data, 0, (1,))
    words = np.empty((len(at), width), np.uint64)
    for word in range(width):
        lowest = _lowest_bytes().take(sizes - _WORD * word, mode="clip")
        np.bitwise_and(wide[at + _WORD * word], lowest, out=words[:, word])
    return words


def _items(data: bytes, table: _Bytes, words: _Words, at: _Numbers, sizes: _Numbers) -> list[bytes | None]:
    count, width = words.shape
    if not width:
        return [None if length == 1 else b"" for length in table[at - 1].tolist()]
    # This takes zeros at the end for what filled the words up.
    items: list[Any] = words.view(f"S{_WORD * width}").reshape(count).tolist()
    # Where there are no bytes, the byte before is the length.
    for index in (table[at + sizes - 1] <= 1).nonzero()[0].tolist():
        start, size = int(at[index]), int(sizes[index])
        items[index] = None if size == 0 and data[start - 1] == 1 else data[start : start + size]
    return items


def _are_equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether two columns of the same type are equal; several times faster than numpy's function."""
    return one.tobytes() == other.tobytes()
