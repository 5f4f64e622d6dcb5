"""Records of any sizes where they lie: what restores a store takes keys and values from there, in whatever order.

Rules of this module:
- Several batches are read at once, as numpy takes as long for the first record as for the next hundred. Only the lengths of
  the records are followed one by one. The loop in C does all that where it was built (:mod:`streamsrt.wire.kernels`).
- Whatever is read here, the codec for any records reads as well, with the same result. Others than those that producers
  usually write, and all with headers, are left to that codec, which also reports errors: this module reports none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from streamsrt.wire.kernels import place_records
from streamsrt.wire.later_numpy import np
from streamsrt.wire.records.columns import Placed
from streamsrt.wire.records.header import BatchHeader
from streamsrt.wire.records.items import WIDTH_MAX, Bytes, Numbers
from streamsrt.wire.records.uniform import BASE_TIMESTAMP_MAX
from streamsrt.wire.records.unlike import ends_of_records, heads_of, numbers_at

PLACED_RECORDS_MIN = 256
"""Fewer records cost less one by one."""
_SEARCHED_BYTES_MAX = 256
"""Records of more bytes are followed one by one in less time than their bytes are searched."""
_LIKELY_MAX = 4
_PART_BYTES = 1 << 16
_LENGTH_MIN = 6
"""Attributes, two deltas, two sizes, and the number of headers."""
BatchRecords: TypeAlias = tuple[memoryview, BatchHeader]
"""The records of one batch, not compressed, and its header."""


def read_placed(batches: Sequence[BatchRecords]) -> Placed | None:
    """All records of these batches, which come in the order of their offsets; None where the codec has to read them."""
    data = b"".join((*(records for records, _ in batches), bytes(WIDTH_MAX)))
    counts = np.array([header.records_count for _, header in batches])
    table = np.frombuffer(data, np.uint8)
    columns = place_records(data, _known(batches), int(counts.sum()))
    if columns is not None:
        keys_at, key_sizes, values_at, value_sizes, given, offsets = columns
        return Placed(table, keys_at, key_sizes, values_at, value_sizes, _stamped(given, batches), offsets)
    return _read_by_numpy(data, table, batches, counts)


def _known(batches: Sequence[BatchRecords]) -> Numbers:
    """What is known of the batches before their records are read, row by row."""
    return np.array(
        [
            [len(records) for records, _ in batches],
            [header.records_count for _, header in batches],
            [header.base_timestamp for _, header in batches],
            [header.base_offset for _, header in batches],
            [header.next_offset for _, header in batches],
        ]
    )


def _read_by_numpy(data: bytes, table: Bytes, batches: Sequence[BatchRecords], counts: Numbers) -> Placed | None:
    ends = _ends(data, table, batches, counts)
    if ends is None:
        return None
    heads = heads_of(table, ends)
    if heads is None:
        return None
    deltas, offset_deltas, key_sizes, keys_at = heads
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
    ends = _ends_found(table, size_bytes, count) if size_bytes < count * _SEARCHED_BYTES_MAX else None
    if ends is None:
        found: list[int] = []
        if not ends_of_records(data, 0, count, found):
            return None
        ends = np.array(found)
    return ends if ends[counts.cumsum() - 1].tobytes() == sizes.cumsum().tobytes() else None


def _ends_found(table: Bytes, size_bytes: int, count: int) -> Numbers | None:
    """Where the records end that fill so much of the table, if all places are found that look like their beginnings."""
    at = _likely_beginnings(table, size_bytes)
    if not count <= len(at) <= _LIKELY_MAX * count:
        return None
    first = table.take(at)
    longer = first >> 7
    second = table.take(at + 1) * longer
    ends = _ends_from(at, first, second)
    if len(at) > count:
        # No length leads to what only looks like a beginning.
        places = at.searchsorted(ends)
        is_start = np.zeros(len(at), np.bool_)
        is_start[places[at.take(places, mode="clip") == ends]] = is_start[0] = True
        at, first, second, ends = at[is_start], first[is_start], second[is_start], ends[is_start]
    if len(at) != count or (first & 1 | second >> 7).any():
        return None
    return ends if ends[-1] == size_bytes and ends[:-1].tobytes() == at[1:].tobytes() else None


def _likely_beginnings(table: Bytes, size_bytes: int) -> Numbers:
    """The first place, and those behind a zero (no headers) with a length of one or two bytes that are followed by a zero
    (no attributes). Looked for part by part: for much memory at once, the system is asked each time."""
    found = [np.zeros(1, np.int64)]
    for start in range(0, size_bytes, _PART_BYTES):
        part = table[start : min(start + _PART_BYTES, size_bytes) + 3]
        is_zero = part == 0
        likely = is_zero[2:-1] | is_zero[3:]
        likely &= is_zero[:-3]
        likely &= part[1:-2] >= 2 * _LENGTH_MIN
        found.append(likely.nonzero()[0] + (start + 1))
    return np.concatenate(found)


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
    return _stamped(deltas + np.array(bases).repeat(counts), batches)


def _stamped(times: Numbers, batches: Sequence[BatchRecords]) -> Numbers:
    """The times, with those of the broker where these count."""
    done = 0
    for _, header in batches:
        if header.is_log_append_time:
            times[done : done + header.records_count] = header.max_timestamp
        done += header.records_count
    return times
