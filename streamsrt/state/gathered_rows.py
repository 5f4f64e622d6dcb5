"""Rows of a changelog that are gathered before they are written: the last one of each key, in the order of keys.

1. Runs of records are gathered as tables of keys, which numpy puts in order, and bytes with values somewhere in them: a
   row is no object before it is written. Keys are padded with zeros, and followed by their sizes where these differ, which
   gives the same order. Few records at a time, and long keys, are in a dictionary.
2. Keys come out strictly ascending, as a file of RocksDB needs them, and as they are stored.
3. What comes out is made in chunks that fit the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from operator import add, lt
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from streamsrt.state.key_order import positions_in_order
from streamsrt.state.rocksdb_files import DATA
from streamsrt.wire.later_numpy import np
from streamsrt.wire.records.columns import Placed, Tables
from streamsrt.wire.records.items import WIDTH_MAX, Items, bytes_at

if TYPE_CHECKING:
    import numpy.typing as npt

_CHUNK_ROWS = 1024
_TABLE_RECORDS = 32
"""Fewer records cost less one by one, where there is no table yet."""
_KEY_BYTES_MAX = 64
_ROW_OVERHEAD_BYTES = 100
"""Of the dictionary and its objects."""
_COMPARED_ROWS = 64
_WORD_BYTES = 8
_HEAD_BYTES = 6
"""What lies before a placed value, beside its key."""
_DELETED = -1

_Bytes: TypeAlias = "npt.NDArray[np.uint8]"
_Table: TypeAlias = "npt.NDArray[np.uint8]"
"""A row for each record, a column for each byte."""
_Numbers: TypeAlias = "npt.NDArray[np.uint64]"
_Positions: TypeAlias = "npt.NDArray[np.int64]"
_Sizes: TypeAlias = "npt.NDArray[np.int64]"
Chunk: TypeAlias = tuple[Sequence[bytes], Sequence[bytes | None]]
"""Stored keys, and their values."""

_pack_timestamp = Struct(">q").pack


class _Records(NamedTuple):
    """Records as tables. Values lie in ``values``, as :mod:`streamsrt.wire.records.items` wants them, or are a table as well
    (``values_at`` is None); a size of -1 is a deletion."""

    keys: _Table
    key_sizes: _Sizes
    values: _Bytes
    values_at: _Positions | None
    value_sizes: _Sizes

    @property
    def size_bytes(self) -> int:
        return self.keys.size + self.values.size + (16 if self.values_at is None else 24) * len(self.keys)

    def chunks(self, order: _Positions) -> Iterator[Chunk]:
        """Stored keys and values, in that order."""
        prefix = len(DATA)
        count, width = self.keys.shape[0], prefix + self.keys.shape[1]
        stored = np.empty(count * width + WIDTH_MAX, np.uint8)
        table = stored[: count * width].reshape(count, width)
        table[:, :prefix] = np.frombuffer(DATA, np.uint8)
        table[:, prefix:] = self.keys
        keys = Items(stored, np.arange(count) * width, self.key_sizes + prefix)
        values = Items(self.values, self.values_places(), self.value_sizes)
        for start in range(0, len(order), _CHUNK_ROWS):
            chunk = order[start : start + _CHUNK_ROWS]
            # Keys are never None.
            yield keys.taken(chunk), values.taken(chunk)  # type: ignore[misc]

    def values_places(self) -> _Positions:
        if self.values_at is not None:
            return self.values_at
        return np.arange(len(self.value_sizes)) * int(self.value_sizes[0])

    def taken(self, order: _Positions) -> _Records:
        """These of the records."""
        keys, key_sizes, sizes = self.keys[order], self.key_sizes[order], self.value_sizes[order]
        if self.values_at is None:
            values = self.values.reshape(len(self.keys), -1)[order].reshape(-1)
            return _Records(keys, key_sizes, values, None, sizes)
        found = Items(self.values, self.values_at[order], sizes).all()
        return _Records(keys, key_sizes, *_in_turn(b"".join(filter(None, found)), sizes))


class GatheredRows:
    """Rows of one store. ``size_bytes``: about how much memory they take."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._rows: dict[bytes, bytes | None] = {}
        self._tables: list[_Records] = []
        self._table_records = 0
        self._order: _Positions | None = None
        """Of the only table, which has no key twice."""

    def __len__(self) -> int:
        """At most so many rows."""
        return len(self._rows) or self._table_records

    def add(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int] | None = None
    ) -> None:
        """Adds records of the changelog, one or more; None deletes. ``timestamps``: stored before the values, in eight
        bytes."""
        if not self._rows and (self._tables or len(keys) >= _TABLE_RECORDS):
            records = _records(keys, values, timestamps)
            if records is not None:
                self._add_records(records)
                return
        self._leave_tables()
        if timestamps is not None:
            values = _stamped(timestamps, values)
        self._rows.update(zip(keys, values, strict=True))
        self.size_bytes += sum(map(len, keys)) + sum(map(len, filter(None, values))) + _ROW_OVERHEAD_BYTES * len(keys)

    def add_tables(self, tables: Tables) -> bool:
        """Adds records of the changelog with their timestamps before the values, as :meth:`add` does; False where they have
        to be added as columns."""
        if self._rows or not 0 < tables.runs[0][0].shape[1] <= _KEY_BYTES_MAX:
            return False
        self._add_records(_of_tables(tables))
        return True

    def add_placed(self, placed: Placed) -> bool:
        """As :meth:`add_tables`, for records of any sizes."""
        key_sizes = placed.key_sizes
        width, least = int(key_sizes.max()), int(key_sizes.min())
        if self._rows or not _WORD_BYTES - _HEAD_BYTES <= least <= width <= _KEY_BYTES_MAX:
            return False
        keys = bytes_at(placed.data, placed.keys_at, key_sizes, width)
        values, at, sizes = placed.data.copy(), placed.values_at - _WORD_BYTES, placed.value_sizes
        # There is room before each value, where the key was.
        np.ndarray((len(values) - _WORD_BYTES + 1,), ">i8", values, 0, (1,))[at] = placed.times
        self._add_records(_Records(keys, key_sizes, values, at, np.where(sizes < 0, sizes, sizes + _WORD_BYTES)))
        return True

    def _add_records(self, records: _Records) -> None:
        self._tables.append(records)
        self._order = None
        self._table_records += len(records.keys)
        self.size_bytes += records.size_bytes

    def _leave_tables(self) -> None:
        if not self._tables:
            return
        for records in self._tables:
            for keys, values in records.chunks(np.arange(len(records.keys))):
                self._rows.update(zip([key[len(DATA) :] for key in keys], values, strict=True))
        self.size_bytes += _ROW_OVERHEAD_BYTES * self._table_records
        self._tables, self._table_records, self._order = [], 0, None

    def settle(self) -> None:
        """Drops all but the last row of each key, and counts the bytes of what is left."""
        if self._rows:
            left = sum(map(len, self._rows)) + sum(map(len, filter(None, self._rows.values())))
            self.size_bytes = left + _ROW_OVERHEAD_BYTES * len(self._rows)
        elif self._tables:
            records, order = self._ordered()
            if len(order) < len(records.keys):
                records, order = records.taken(order), np.arange(len(order))
            self._tables, self._table_records, self._order = [records], len(records.keys), order
            self.size_bytes = records.size_bytes

    def in_order(self) -> Iterator[Chunk]:
        """Yields the rows in the order of their keys."""
        if self._rows:
            yield from self._rows_in_order()
        elif self._tables:
            records, order = self._ordered()
            yield from records.chunks(order)

    def _rows_in_order(self) -> Iterator[Chunk]:
        keys, values = list(self._rows), list(self._rows.values())
        if not _are_ascending(keys):
            order = positions_in_order(keys)
            ordered = list(map(keys.__getitem__, order))
            if not _are_ascending(ordered):
                order.sort(key=keys.__getitem__)
                ordered = list(map(keys.__getitem__, order))
            keys, values = ordered, list(map(values.__getitem__, order))
        for start in range(0, len(keys), _CHUNK_ROWS):
            chunk = slice(start, start + _CHUNK_ROWS)
            yield [b"d" + key for key in keys[chunk]], values[chunk]

    def _ordered(self) -> tuple[_Records, _Positions]:
        """All records, and where the last one of each key is, in the order of keys."""
        if self._order is not None:
            return self._tables[0], self._order
        records = _joined(self._tables)
        self._tables = [records]
        keys, sizes = records.keys, records.key_sizes
        if int(sizes.min()) < int(sizes.max()):
            keys = np.concatenate((keys, sizes.astype(np.uint8).reshape(-1, 1)), axis=1)
        return records, _last_in_order(keys)


def _of_tables(tables: Tables) -> _Records:
    count = len(tables.times)
    keys = np.concatenate([part for part, _ in tables.runs])
    width = _WORD_BYTES + tables.runs[0][1].shape[1]
    table = np.empty((count, width), np.uint8)
    table[:, :_WORD_BYTES] = tables.times.astype(">i8").view(np.uint8).reshape(count, _WORD_BYTES)
    np.concatenate([part for _, part in tables.runs], out=table[:, _WORD_BYTES:])
    key_sizes, value_sizes = (np.full(count, each.shape[1], np.int64) for each in (keys, table))
    return _Records(keys, key_sizes, table.reshape(-1), None, value_sizes)


def _records(
    keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int] | None
) -> _Records | None:
    """Records as tables; None where a key is long."""
    count = len(keys)
    key_sizes = np.fromiter(map(len, keys), np.int64, count)
    width = int(key_sizes.max())
    if width > _KEY_BYTES_MAX or width == 0:
        return None
    if int(key_sizes.min()) == width:
        table = np.frombuffer(b"".join(keys), np.uint8).reshape(count, width)
    else:
        table = np.array(keys, f"S{width}").view(np.uint8).reshape(count, width)
    rows = values if timestamps is None else _stamped(timestamps, values)
    if None in rows:
        sizes = np.array([_DELETED if row is None else len(row) for row in rows])
        return _Records(table, key_sizes, *_in_turn(b"".join(filter(None, rows)), sizes))
    given: Sequence[bytes] = rows  # type: ignore[assignment]  # none of them is None
    joined, sizes = b"".join(given), np.fromiter(map(len, given), np.int64, count)
    if joined and int(sizes.min()) == int(sizes.max()):
        return _Records(table, key_sizes, np.frombuffer(joined, np.uint8), None, sizes)
    return _Records(table, key_sizes, *_in_turn(joined, sizes))


def _in_turn(values: bytes, sizes: _Sizes) -> tuple[_Bytes, _Positions, _Sizes]:
    """Values one after the other, where they are, and their sizes."""
    positive = np.maximum(sizes, 0)
    return np.frombuffer(values + bytes(WIDTH_MAX), np.uint8), positive.cumsum() - positive, sizes


def _stamped(timestamps: Sequence[int], values: Sequence[bytes | None]) -> list[bytes | None]:
    if None in values:
        return [
            None if value is None else _pack_timestamp(timestamp) + value
            for timestamp, value in zip(timestamps, values, strict=True)
        ]
    return list(map(add, map(_pack_timestamp, timestamps), values))


def _joined(tables: list[_Records]) -> _Records:
    if len(tables) == 1:
        return tables[0]
    width = max(records.keys.shape[1] for records in tables)
    keys = np.concatenate([_widened(records.keys, width) for records in tables])
    key_sizes = np.concatenate([records.key_sizes for records in tables])
    value_sizes = np.concatenate([records.value_sizes for records in tables])
    values = [records.values for records in tables]
    are_tables = all(records.values_at is None for records in tables)
    if are_tables and len({int(records.value_sizes[0]) for records in tables}) == 1:
        return _Records(keys, key_sizes, np.concatenate(values), None, value_sizes)
    starts = accumulate(map(len, values), initial=0)
    places = [records.values_places() + start for records, start in zip(tables, starts, strict=False)]
    values.append(np.zeros(WIDTH_MAX, np.uint8))
    return _Records(keys, key_sizes, np.concatenate(values), np.concatenate(places), value_sizes)


def _widened(keys: _Table, width: int) -> _Table:
    if keys.shape[1] == width:
        return keys
    wide = np.zeros((len(keys), width), np.uint8)
    wide[:, : keys.shape[1]] = keys
    return wide


def _are_ascending(keys: list[bytes]) -> bool:
    return all(map(lt, keys, islice(keys, 1, None)))


def _last_in_order(keys: _Table) -> _Positions:
    """Where the last row of each key is, in the order of keys."""
    count = len(keys)
    differing = _differing(keys)
    if not len(differing):
        return np.array([count - 1])
    first, end = int(differing[0]), int(differing[-1]) + 1
    words = [_words(keys[:, at : min(at + _WORD_BYTES, end)]) for at in range(first, end, _WORD_BYTES)]
    greatest = words[0]
    if (greatest[:-1] < greatest[1:]).all():
        return np.arange(count)
    # Keys often differ in their first eight bytes, after those that all of them begin with.
    order = _in_order(keys, first, min(first + _WORD_BYTES, end))
    is_last = _differ(words[:1], order)
    if len(words) > 1 and not is_last.all():
        order = _in_order(keys, first, end)
        is_last = _differ(words, order)
    return order[is_last]


def _differing(keys: _Table) -> _Positions:
    """The columns that are not the same in all rows. Rows are taken together first: numpy takes as long for the first byte
    of a row as for the next hundred."""
    count, width = keys.shape
    whole = count - count % _COMPARED_ROWS
    together = np.ascontiguousarray(keys[:whole]).reshape(-1, _COMPARED_ROWS * width)
    found = []
    for reduced in (np.bitwise_or.reduce, np.bitwise_and.reduce):
        rows = reduced(together, axis=0).reshape(_COMPARED_ROWS, width)
        found.append(reduced(np.concatenate((rows, keys[whole:])), axis=0))
    differing: _Positions = (found[0] != found[1]).nonzero()[0]
    return differing


def _words(parts: _Table) -> _Numbers:
    """Up to eight bytes of each row as a number, in the order of these bytes."""
    padded = np.zeros((len(parts), _WORD_BYTES), np.uint8)
    padded[:, : parts.shape[1]] = parts
    return padded.view(">u8").reshape(len(parts)).astype(np.uint64)


def _in_order(keys: _Table, first: int, end: int) -> _Positions:
    """Where the keys are, in the order of their bytes from ``first`` to before ``end``; equal ones as they come.

    By two bytes at a time, the last ones first: numpy does not compare such small numbers, but counts them.
    """
    order: _Positions | None = None
    for at in reversed(range(first, end, 2)):
        part = keys[:, at].astype(np.uint16) << 8
        if at + 1 < end:
            part |= keys[:, at + 1]
        if order is None:
            order = part.argsort(kind="stable")
        else:
            order = order.take(part.take(order).argsort(kind="stable"))
    assert order is not None
    return order


def _differ(words: list[_Numbers], order: _Positions) -> npt.NDArray[np.bool_]:
    """Which keys, in order, are others than those that follow them."""
    found = np.ones(len(order), np.bool_)
    found[:-1] = False
    for word in words:
        ordered = word.take(order)
        found[:-1] |= ordered[:-1] != ordered[1:]
    return found
