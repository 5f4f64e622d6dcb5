"""Records that all have the same sizes: a batch of them is a few tables of bytes, which numpy reads column by column.

Rules of this module:
- A run consists of consecutive records with the same layout: equal record lengths, sizes of numbers, lengths of key and
  value, and no headers. Offset deltas alone split a batch into two runs: the first 64 take one byte, the next 8,128 two.
  Other batches are left to the general codec, which also reports errors: this module reports none.
- The result equals that of the general codec for all bytes, not only for those that a producer writes.
- The first records show whether a batch is not uniform; the check costs less than decoding ten records.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from streamsrt.wire.later_numpy import np
from streamsrt.wire.records.columns import Table, Tables

if TYPE_CHECKING:
    import numpy.typing as npt

RECORDS_MIN = 384
"""Fewer records cost less one by one."""

_SAMPLE_RECORDS = 8
_RUN_RECORDS = 128
_SHORT_RUNS = 4
_HEAD_BYTES_MAX = 21  # an attribute byte and four numbers of up to five bytes
_NUMBER_BYTES_MAX = 5
_KNOWN_RECORDS_MAX = 1 << 13
BASE_TIMESTAMP_MAX = 1 << 62
_HIGH = bytes(range(0x80, 0x100))

_BYTE: Final = "u1"
_WRITTEN_TIMES: Final = {1: _BYTE, 2: "<u2"}
_bytes_of = lru_cache(maxsize=4096)(lambda size: np.dtype((np.void, size)))


@cache
def short_deltas() -> npt.NDArray[np.int16]:
    """What the two bytes of a number mean, read as one word; up to 127 it is what the first one means alone."""
    words = np.arange(1 << 16)
    numbers = words & 0x7F | words >> 1 & 0x3F80
    return (numbers >> 1 ^ -(numbers & 1)).astype(np.int16)


class _Run(NamedTuple):
    """A run of records with the same layout: positions within each record, and sizes in bytes; -1 is null.

    ``columns``: the bytes before the key, column by column.
    """

    position: int
    length: int
    size: int
    time_at: int
    offset_at: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int
    columns: bytes


class Uniform(NamedTuple):
    """Records whose keys and values are read when somebody asks for them."""

    records: memoryview
    runs: list[_Run]
    times: npt.NDArray[np.int64]

    def keys(self) -> list[bytes | None]:
        found: list[bytes | None] = []
        for run in self.runs:
            found += _column(self.records, run, run.key_at, run.key_size)
        return found

    def values(self) -> list[bytes | None]:
        found: list[bytes | None] = []
        for run in self.runs:
            found += _column(self.records, run, run.value_at, run.value_size)
        return found

    def tables(self) -> Tables | None:
        """The records as tables, which take no object for any of them; None where keys or values are null, or their sizes
        differ between runs."""
        sizes = {(run.key_size, run.value_size) for run in self.runs}
        if len(sizes) > 1 or min(sizes.pop()) < 0:
            return None
        records = self.records
        parts = [
            (_table(records, run, run.key_at, run.key_size), _table(records, run, run.value_at, run.value_size))
            for run in self.runs
        ]
        return Tables(parts, self.times)

    @property
    def unread_keys(self) -> None:
        """Keys of equal sizes are bytes quickly."""

    @property
    def has_null_keys(self) -> bool:
        return any(run.key_size < 0 for run in self.runs)

    @property
    def has_null_values(self) -> bool:
        return any(run.value_size < 0 for run in self.runs)


def read_uniform(records: memoryview, count: int, base_timestamp: int) -> Uniform | None:
    """``count`` records that fill the buffer; None where they are not uniform."""
    # Not every caller knows that there can be as many.
    if not RECORDS_MIN <= count < len(records) or not _looks_uniform(records):
        return None
    runs = _runs(records, count)
    if runs is None or not -BASE_TIMESTAMP_MAX < base_timestamp < BASE_TIMESTAMP_MAX:
        return None
    return Uniform(records, runs, _timestamps(records, runs, base_timestamp))


def _table(records: memoryview, run: _Run, at: int, size: int) -> Table:
    return np.ndarray((run.length, size), _BYTE, records, run.position + at, (run.size, 1))


def survey_uniform(
    records: memoryview, count: int, base_timestamp: int
) -> tuple[npt.NDArray[np.int64], list[int]] | None:
    """The timestamps of ``count`` records that fill the buffer, and which have no key; None where they are not uniform."""
    uniform = read_uniform(records, count, base_timestamp)
    if uniform is None:
        return None
    keyless: list[int] = []
    done = 0
    for run in uniform.runs:
        if run.key_size < 0:
            keyless += range(done, done + run.length)
        done += run.length
    return uniform.times, keyless


def _looks_uniform(records: memoryview) -> bool:
    """Whether the first records begin alike."""
    first = records[0]
    size = (first >> 1) + 1
    if first >= 0x80:
        size = (first & 0x7F | records[1] << 7) // 2 + 2
    return records[: _SAMPLE_RECORDS * size : size] == bytes((first,)) * _SAMPLE_RECORDS


def _runs(records: memoryview, count: int) -> list[_Run] | None:
    runs: list[_Run] = []
    position = done = 0
    end = len(records)
    while done < count:
        # A batch of which even the first runs are short has many of them: it is left to the general codec early.
        is_scattered = len(runs) >= _SHORT_RUNS + done // _RUN_RECORDS
        run = None if is_scattered else _run(records, position, done, count)
        if run is None:
            return None
        runs.append(run)
        position += run.length * run.size
        done += run.length
    return runs if position == end else None


def _run(records: memoryview, position: int, index: int, count: int) -> _Run | None:
    """The records of one shape at ``position``, the first of which has this index in the batch."""
    head = bytes(records[position : position + _HEAD_BYTES_MAX])
    length, length_size = _number(head, 0)
    time_at = length_size + 1
    offset_at = _number(head, time_at)[1]
    key_length_at = _number(head, offset_at)[1]
    key_size, key_at = _number(head, key_length_at)
    if not time_at < offset_at < key_length_at < key_at or head[length_size] >= 0x80 or length < 0 or key_size < -1:
        return None
    size = length_size + length
    value_length_at = key_at + max(key_size, 0)
    start = position + value_length_at
    value_length = bytes(records[start : start + _NUMBER_BYTES_MAX])
    value_size, value_length_size = _number(value_length, 0)
    value_at = value_length_at + value_length_size
    if value_length_size == 0 or value_size < -1 or value_at + max(value_size, 0) + 1 != size:
        return None
    offset_size = key_length_at - offset_at
    # Where offset deltas grow by a byte, the run ends.
    limit = min(count, 1 << 7 * offset_size - 1) - index
    limit = min(limit, (len(records) - position) // size)
    if limit <= 0:
        return None
    probed = records[position : position + limit * size : size * (limit // _SAMPLE_RECORDS or 1)]
    if probed != head[:1] * len(probed):
        # Only the records before the first one of another size need a look.
        limit = _alike(_columns(records, position, limit, size, 0, 1), head[0])
    columns = _columns(records, position, limit, size, 0, key_at)
    fixed = [*range(time_at), *range(key_length_at, key_at)]
    expected = b"".join([head[at : at + 1] * limit for at in fixed])
    if columns[: time_at * limit] + columns[key_length_at * limit :] != expected:
        limit = min(_alike(columns[at * limit : (at + 1) * limit], head[at]) for at in fixed)
        columns = _columns(records, position, limit, size, 0, key_at)
    behind = _columns(records, position, limit, size, value_length_at, value_at)
    expected = b"".join([value_length[at : at + 1] * limit for at in range(value_length_size)])
    if (
        behind != expected
        or _columns(records, position, limit, size, size - 1, size) != bytes(limit)
        or columns[offset_at * limit : key_length_at * limit] != _offset_columns(index, limit, offset_size)
        or columns[time_at * limit : (offset_at - 1) * limit].translate(None, _HIGH)
        or not columns[(offset_at - 1) * limit : offset_at * limit].isascii()
    ):
        return None
    return _Run(position, limit, size, time_at, offset_at, key_at, key_size, value_at, value_size, columns)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The number at that position, and its end: 0 if no number of up to five bytes is there."""
    if at < len(data) and data[at] < 0x80:
        return data[at] >> 1 ^ -(data[at] & 1), at + 1
    value = shift = 0
    for byte in data[at : at + _NUMBER_BYTES_MAX]:
        at += 1
        if byte < 0x80:
            value |= byte << shift
            return value >> 1 ^ -(value & 1), at
        value |= (byte & 0x7F) << shift
        shift += 7
    return 0, 0


def _alike(column: bytes, byte: int) -> int:
    """Returns how many leading bytes have this value."""
    return len(column) - len(column.lstrip(bytes((byte,))))


def _columns(records: memoryview, position: int, count: int, size: int, start: int, stop: int) -> bytes:
    """Bytes ``start`` to ``stop`` of each record, column by column: first byte ``start`` of every record, and so on."""
    return np.ndarray((stop - start, count), _BYTE, records, position + start, (1, size)).tobytes()


def _offset_columns(first: int, count: int, size: int) -> bytes:
    """Offset deltas from ``first`` on as they are written, column by column."""
    # Those of a million records would take megabytes, which are made as quickly as the records are read.
    return (_known_offset_columns if count <= _KNOWN_RECORDS_MAX else _made_offset_columns)(first, count, size)


def _made_offset_columns(first: int, count: int, size: int) -> bytes:
    doubled = np.arange(first, first + count, dtype=np.int64) << 1
    columns = [doubled >> 7 * at & 0x7F | (0x80 if at < size - 1 else 0) for at in range(size)]
    return np.array(columns).astype(np.uint8).tobytes()


_known_offset_columns = lru_cache(maxsize=256)(_made_offset_columns)


def _column(records: memoryview, run: _Run, at: int, size: int) -> list[Any]:
    if size <= 0:
        return [None if size < 0 else b""] * run.length
    items = np.ndarray((run.length,), _bytes_of(size), records, run.position + at, (run.size,))
    return cast(list[Any], items.tolist())


def _timestamps(records: memoryview, runs: list[_Run], base_timestamp: int) -> npt.NDArray[np.int64]:
    written: list[npt.NDArray[Any]] = []
    for run in runs:
        kind = _WRITTEN_TIMES.get(run.offset_at - run.time_at)
        if kind is None:
            written.append(_long_deltas(run))
        else:
            words = np.ndarray((run.length,), kind, records, run.position + run.time_at, (run.size,))
            written.append(short_deltas().take(words))
    deltas = written[0] if len(written) == 1 else np.concatenate(written)
    return cast("npt.NDArray[np.int64]", np.add(deltas, base_timestamp, dtype=np.int64))


def _long_deltas(run: _Run) -> npt.NDArray[np.int64]:
    """Timestamps after the first one where they take more than two bytes each."""
    deltas = np.zeros(run.length, np.int64)
    for at in range(run.offset_at - 1, run.time_at - 1, -1):
        deltas <<= 7
        deltas |= np.frombuffer(run.columns, _BYTE, run.length, at * run.length) & 0x7F
    return deltas >> 1 ^ -(deltas & 1)
