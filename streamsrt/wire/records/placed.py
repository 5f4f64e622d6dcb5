"""Records of any sizes where they lie: what restores a store takes keys and values from there, in whatever order.

Rules of this module:
- Several batches are read at once, as numpy takes as long for the first record as for the next hundred. Only the lengths of
  the records are followed one by one.
- Whatever is read here, the codec for any records reads as well, with the same result. Others than those that producers
  usually write, and all with headers, are left to that codec, which also reports errors: this module reports none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from streamsrt.wire.records.columns import Placed
from streamsrt.wire.records.header import BatchHeader
from streamsrt.wire.records.items import WIDTH_MAX, Bytes, Numbers
from streamsrt.wire.records.uniform import BASE_TIMESTAMP_MAX
from streamsrt.wire.records.unlike import ends_of_records, numbers_at

PLACED_RECORDS_MIN = 128
"""Fewer records cost less one by one."""
_SEARCHED_BYTES_MAX = 256
"""Records of more bytes are followed one by one in less time than their bytes are searched."""
_ZEROS_MAX = 12
_LENGTH_MIN = 6
"""Attributes, two deltas, two sizes, and the number of headers."""
BatchRecords: TypeAlias = tuple[memoryview, BatchHeader]
"""The records of one batch, not compressed, and its header."""


def read_placed(batches: Sequence[BatchRecords]) -> Placed | None:
    """All records of these batches, which come in the order of their offsets; None where the codec has to read them."""
    data = b"".join((*(records for records, _ in batches), bytes(WIDTH_MAX)))
    counts = np.array([header.records_count for _, header in batches])
    table = np.frombuffer(data, np.uint8)
    ends = _ends(data, table, batches, counts)
    if ends is None:
        return None
    at = np.empty(len(ends), np.int64)
    at[0], at[1:] = 0, ends[:-1]
    at += 1 + (table.take(at) >> 7)
    if table.take(at, mode="clip").any():
        return None
    deltas, at = numbers_at(table, at + 1)
    offset_deltas, at = numbers_at(table, at)
    key_sizes, keys_at = numbers_at(table, at)
    value_sizes, values_at = numbers_at(table, keys_at + np.maximum(key_sizes, 0))
    at = values_at + np.maximum(value_sizes, 0)
    if min(int(key_sizes.min()), int(value_sizes.min())) < -1 or (at + 1).tobytes() != ends.tobytes():
        return None
    if table.take(at).any():
        return None
    offsets = _offsets(offset_deltas, batches, counts)
    times = _times(deltas, batches, counts)
    if offsets is None or times is None:
        return None
    return Placed(table, keys_at, key_sizes, values_at, value_sizes, times, offsets)


def _ends(data: bytes, table: Bytes, batches: Sequence[BatchRecords], counts: Numbers) -> Numbers | None:
    """Where each record ends, if each batch ends with its last one."""
    sizes = np.array([len(records) for records, _ in batches])
    count, size_bytes = int(counts.sum()), int(sizes.sum())
    ends = _ends_between_zeros(table[:size_bytes], count) if size_bytes < count * _SEARCHED_BYTES_MAX else None
    if ends is None:
        found: list[int] = []
        if not ends_of_records(data, 0, count, found):
            return None
        ends = np.array(found)
    return ends if ends[counts.cumsum() - 1].tobytes() == sizes.cumsum().tobytes() else None


def _ends_between_zeros(table: Bytes, count: int) -> Numbers | None:
    """Where the records end that fill the table, if their beginnings are easy to find: behind the zero that ends the one
    before (no headers), and with a zero behind their length (no attributes)."""
    behind = (table == 0).nonzero()[0]
    if not count <= len(behind) <= _ZEROS_MAX * count or behind[-1] != len(table) - 1:
        return None
    at = np.empty(len(behind), np.int64)
    at[0], at[1:] = 0, behind[:-1] + 1
    first = table.take(at)
    is_start = (table.take(at + 1 + (first >> 7), mode="clip") == 0) & (first >= 2 * _LENGTH_MIN)
    at, first = at[is_start], first[is_start]
    longer = first >> 7
    second = table.take(at + 1, mode="clip") * longer
    if len(at) > count:
        # No length leads to what only looks like a beginning.
        is_reached = np.zeros(len(table) + 1, np.bool_)
        is_reached[np.minimum(_ends_from(at, first, second), len(table))] = is_reached[0] = True
        is_start = is_reached[at]
        at, first, second = at[is_start], first[is_start], second[is_start]
    if len(at) != count or (first & 1 | second >> 7).any():
        return None
    ends = _ends_from(at, first, second)
    return ends if ends[-1] == len(table) and ends[:-1].tobytes() == at[1:].tobytes() else None


def _ends_from(at: Numbers, first: Bytes, second: Bytes) -> Numbers:
    """Where records end that begin there, with these bytes of their lengths; the second one is 0 where there is none."""
    ends: Numbers = second.astype(np.int64) << 6
    ends += at + 1 + (first >> 7) + ((first & 0x7F) >> 1)
    return ends


def _offsets(deltas: Numbers, batches: Sequence[BatchRecords], counts: Numbers) -> Numbers | None:
    """The offsets, if they ascend."""
    bases = np.array([header.base_offset for _, header in batches])
    nexts = np.array([header.next_offset for _, header in batches])
    offsets: Numbers = deltas + bases.repeat(counts)
    last = counts.cumsum()
    if (offsets[:-1] >= offsets[1:]).any() or (offsets[last - 1] >= nexts).any():
        return None
    return None if (deltas[last - counts] < 0).any() else offsets


def _times(deltas: Numbers, batches: Sequence[BatchRecords], counts: Numbers) -> Numbers | None:
    bases = [header.base_timestamp for _, header in batches]
    if not -BASE_TIMESTAMP_MAX < min(bases) <= max(bases) < BASE_TIMESTAMP_MAX:
        return None
    times: Numbers = deltas + np.array(bases).repeat(counts)
    done = 0
    for _, header in batches:
        if header.is_log_append_time:
            times[done : done + header.records_count] = header.max_timestamp
        done += header.records_count
    return times
