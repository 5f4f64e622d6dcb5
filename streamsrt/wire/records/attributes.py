"""Whether the quick reader has misread the attributes of a record.

1. The attributes of a record are one byte, which Kafka reads and ignores. The quick reader reads them as a number of
   any length: from 0x80 on it consumes the following bytes too, and reads the offset as the timestamp, the key's length
   as the offset, and so on. If that does not end with the record it raises, else its result is wrong.
2. So a misread record has its index as the time since the first record. If no record has that, only the first one is
   checked.
3. All records are checked if some are missing, so that indexes are not offsets, and if all have the broker's time.
4. The attributes of a misread record take two bytes or more. So if all values that were read fill the buffer with
   attributes of one byte, no record was misread. This spares large batches whose times are their indexes the check of
   each record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from operator import eq
from typing import TYPE_CHECKING, TypeAlias

from streamsrt.wire.later_numpy import np
from streamsrt.wire.primitives import Buffer, DecodeError
from streamsrt.wire.records.columns import RecordColumns
from streamsrt.wire.records.header import BatchHeader
from streamsrt.wire.records.plain import read_number
from streamsrt.wire.records.uniform import BASE_TIMESTAMP_MAX

if TYPE_CHECKING:
    import numpy.typing as npt

FILLED_MIN = 96
"""Fewer records cost less one by one."""

_FIXED_BYTES = 2  # attributes, header count
_SHORT_DELTAS = 64
"""So many deltas from 0 on take one byte."""

_Sizes: TypeAlias = "npt.NDArray[np.intc]"


@cache
def _number_sizes() -> _Sizes:
    """The number of bytes in which a size is written; from 8,192 on it is three or more."""
    sizes = np.full(8193, 2, np.intc)
    sizes[:_SHORT_DELTAS], sizes[8192] = 1, 3
    return sizes


def is_misread(
    records: Buffer,
    header: BatchHeader,
    timestamps: Sequence[int],
    largest: int,
    first: int = 0,
    columns: RecordColumns | None = None,
) -> bool:
    """Whether some of the records that fill the buffer were misread, judged by the timestamps.

    ``largest`` is one of them. ``first``: the number of records of the batch before these. ``columns``: everything that
    was read.
    """
    count = len(timestamps)
    base_ms = header.base_timestamp + first
    if (
        header.records_count > header.last_offset_delta
        and not header.is_log_append_time
        and -BASE_TIMESTAMP_MAX < header.base_timestamp < BASE_TIMESTAMP_MAX
    ):
        count = min(count, largest - base_ms + 1)
        if count < 2 or not any(map(eq, islice(timestamps, 1, count), range(base_ms + 1, base_ms + count))):
            return has_long_attributes(records, 1)
        if columns is not None and count >= FILLED_MIN and _is_filled(columns, base_ms, len(records)):
            return False
    data = bytes(records)
    return not data.isascii() and has_long_attributes(data, count)


def _is_filled(columns: RecordColumns, base_ms: int, size_bytes: int) -> bool:
    """Whether such records take at least that many bytes; they never take more."""
    count = len(columns)
    limit_ms = base_ms + _SHORT_DELTAS
    if not max(columns.timestamps[:_SHORT_DELTAS]) < limit_ms <= min(columns.timestamps[_SHORT_DELTAS:]):
        return False
    key_sizes, value_sizes = _sizes_of(columns.keys), _sizes_of(columns.values)
    if key_sizes is None or value_sizes is None:
        return False
    sizes = _written_sizes(np.arange(count, dtype=np.intc))
    sizes[_SHORT_DELTAS:] += 1  # the timestamp
    sizes += _FIXED_BYTES + 1
    for each in (key_sizes, value_sizes):
        sizes += _written_sizes(each)
        sizes += each
    sizes += _written_sizes(sizes)
    return int(np.add.reduce(sizes)) == size_bytes


def _sizes_of(items: list[bytes | None]) -> _Sizes | None:
    """The sizes of keys or values; None if some of them, but not all, are null."""
    count = len(items)
    if items[0] is None and items.count(None) == count:
        return np.zeros(count, np.intc)
    try:
        return np.fromiter(map(len, items), np.intc, count)  # type: ignore[arg-type]
    except TypeError:
        return None


def _written_sizes(sizes: _Sizes) -> _Sizes:
    return _number_sizes().take(sizes, mode="clip")


def has_long_attributes(records: Buffer, count: int) -> bool:
    """Whether one of the first ``count`` records has attributes from 0x80 on. Stops at the first record that is not
    whole.

    The result for broken records is undefined.
    """
    at = 0
    try:
        for _ in range(count):
            size = records[at]
            if size < 0x80:
                if records[at + 1] >= 0x80:
                    return True
                at += 1 + (size >> 1)
            elif (second := records[at + 1]) < 0x80:
                if records[at + 2] >= 0x80:
                    return True
                at += (size >> 1) + (second << 6) - 62
            else:
                length, start = read_number(memoryview(records), at)
                if length < 0:
                    return False
                if records[start] >= 0x80:
                    return True
                at = start + length
    except (IndexError, DecodeError):
        pass
    return False
