"""Many short texts, each of them the key and the value of a record: numpy reads and writes all of them at once.

Rules of this module:
- A text has 1 to 24 bytes, none of which is zero. Other texts are left to the general codec.
- A batch equals that of :func:`streamsrt.wire.records.encoding.encode_batch`, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

from streamsrt.wire.compression import Compression, compress
from streamsrt.wire.later_numpy import np
from streamsrt.wire.primitives import Buffer
from streamsrt.wire.records.encoding import assemble
from streamsrt.wire.records.header import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
)
from streamsrt.wire.records.small import PADDING, words_of
from streamsrt.wire.records.uniform import BASE_TIMESTAMP_MAX

if TYPE_CHECKING:
    import numpy.typing as npt

SEPARATOR = "\0"
TEXT_BYTES_MAX = 24

_RECORDS_MAX = 1 << 13  # whose offset deltas take two bytes
_TIME_BYTES_MAX = 5
_WORD = 8
_FIXED_BYTES = 4  # attributes, two lengths, header count

Times: TypeAlias = "npt.NDArray[np.int64]"
_Bytes: TypeAlias = "npt.NDArray[np.uint8]"


class Texts:
    """Short texts as columns. ``words``: a row for each, its bytes in words of eight bytes, padded with zeros."""

    __slots__ = ("sizes", "words")

    def __init__(self, words: npt.NDArray[np.uint64], sizes: npt.NDArray[np.int64]) -> None:
        self.words = words
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, some: slice | npt.NDArray[np.intp]) -> Texts:
        return Texts(self.words[some], self.sizes[some])

    def tolist(self) -> list[bytes | None]:
        """Each as bytes."""
        count, width = self.words.shape
        found: list[bytes | None] = np.ascontiguousarray(self.words).view(f"S{_WORD * width}").reshape(count).tolist()
        return found

    @classmethod
    def joined(cls, parts: Sequence[Texts]) -> Texts:
        """All of them in one."""
        width = max(part.words.shape[1] for part in parts)
        padded = [np.pad(part.words, ((0, 0), (0, width - part.words.shape[1]))) for part in parts]
        return cls(np.concatenate(padded), np.concatenate([part.sizes for part in parts]))


def read_texts(data: bytes) -> Texts | None:
    """The texts of ``data``, which have a :data:`SEPARATOR` between them; None where one of them is empty or too long."""
    padded = data + PADDING
    table = np.frombuffer(padded, np.uint8)
    ends = (table[: len(data) + 1] == 0).nonzero()[0]
    starts = np.empty_like(ends)
    starts[0] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    sizes = ends - starts
    if np.minimum.reduce(sizes) < 1 or np.maximum.reduce(sizes) > TEXT_BYTES_MAX:
        return None
    return Texts(words_of(padded, starts, sizes), sizes)


def encode_texts(
    texts: Texts, times: Times, *, compression: Compression = Compression.NONE, transactional: bool = False
) -> bytes | None:
    """A batch of at least one record for each text, which is both its key and its value; None for what is left to the
    general codec."""
    base = int(times[0])
    if len(texts) > _RECORDS_MAX or base == NO_TIMESTAMP or not -BASE_TIMESTAMP_MAX < base < BASE_TIMESTAMP_MAX:
        return None
    found = _records(texts, times - base)
    if found is None:
        return None
    records: Buffer = found if compression is Compression.NONE else compress(compression, found, None)
    header = BatchHeader(
        0,
        0,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        (TRANSACTIONAL if transactional else 0) | compression,
        len(texts) - 1,
        base,
        int(times.max()),
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        len(texts),
    )
    return assemble(header, records)


def _records(texts: Texts, deltas: Times) -> memoryview | None:
    """The records: rows that are wide enough for each of them, without the bytes that a record does not have."""
    count, width = texts.words.shape
    numbers = deltas << 1 ^ deltas >> 63
    time_bytes = max(1, -(-int(numbers.max()).bit_length() // 7))
    if time_bytes > _TIME_BYTES_MAX or int(numbers.min()) < 0:
        return None
    shapes = texts.sizes * time_bytes
    for at in range(1, time_bytes):
        shapes += numbers >= 1 << 7 * at
    shapes <<= 1
    offsets, are_long = _written_offsets()
    shapes += are_long[:count]
    every_row, every_used = _rows(time_bytes, width)
    rows, used = every_row.take(shapes, axis=0), every_used.take(shapes, axis=0)
    for at in range(time_bytes):
        part = numbers >> 7 * at
        rows[:, 2 + at] = part & 0x7F | (part > 0x7F) << 7
    offset_at, text_bytes = 2 + time_bytes, _WORD * width
    rows[:, offset_at : offset_at + 2] = offsets[:count]
    as_bytes = np.ascontiguousarray(texts.words).view(np.uint8)
    for at in (offset_at + 3, offset_at + 4 + text_bytes):
        rows[:, at : at + text_bytes] = as_bytes
    # An index of the bytes is several times faster than a mask of them.
    return rows.ravel().take(used.ravel().nonzero()[0]).data


@lru_cache(maxsize=32)
def _rows(time_bytes: int, width: int) -> tuple[_Bytes, npt.NDArray[np.bool_]]:
    """What is the same in all records of a shape, and which bytes of a row it uses.

    The shape is the size of the text, of the timestamp's delta and of the offset's.
    """
    text_bytes = _WORD * width
    sizes, times, offsets = np.indices((text_bytes + 1, time_bytes, 2)).reshape(3, -1, 1)
    times, offsets = times + 1, offsets + 1
    key_at, value_at = time_bytes + 5, time_bytes + 6 + text_bytes
    at = np.arange(value_at + text_bytes + 1)
    used = (at < 2 + times) | ((at >= 2 + time_bytes) & (at < 2 + time_bytes + offsets))
    used |= ((at >= key_at - 1) & (at < key_at + sizes)) | ((at >= value_at - 1) & (at < value_at + sizes))
    used[:, -1] = True
    rows = np.zeros(used.shape, np.uint8)
    rows[:, :1] = 2 * (_FIXED_BYTES + times + offsets + 2 * sizes)
    rows[:, key_at - 1 : key_at] = rows[:, value_at - 1 : value_at] = 2 * sizes
    return rows, used


@cache
def _written_offsets() -> tuple[_Bytes, npt.NDArray[np.int64]]:
    """Offset deltas as they are written, and whether they take two bytes."""
    numbers = np.arange(_RECORDS_MAX) << 1
    long = numbers > 0x7F
    return np.stack((numbers & 0x7F | long << 7, numbers >> 7), axis=1).astype(np.uint8), long.astype(np.int64)
