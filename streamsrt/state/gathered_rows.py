"""Rows of a changelog that are gathered before they are written: the last one of each key, in the order of keys.

1. Where all keys have one size and all values have one, rows are gathered as tables of bytes, which numpy puts in order: no
   object is made of a row before it is written. Other rows are in a dictionary, so that of many values for one key only the
   last one costs more than an update of it.
2. Keys come out strictly ascending, as a file of RocksDB needs them, and as they are stored.
3. What comes out is made in chunks that fit the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import add, lt
from struct import Struct
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from streamsrt.state.key_order import positions_in_order
from streamsrt.state.rocksdb_files import DATA

_CHUNK_ROWS = 1024
_TABLE_RECORDS = 32
"""Fewer records cost less one by one, where there is no table yet."""
_ROW_OVERHEAD_BYTES = 100
"""Of the dictionary and its objects."""
_WORD_BYTES = 8

_Table: TypeAlias = npt.NDArray[np.uint8]
"""A row for each record, a column for each byte."""
_Numbers: TypeAlias = npt.NDArray[np.uint64]
_Positions: TypeAlias = npt.NDArray[np.int64]
Chunk: TypeAlias = tuple[Sequence[bytes], Sequence[bytes | None]]
"""Stored keys, and their values."""

_pack_timestamp = Struct(">q").pack


class GatheredRows:
    """Rows of one store. ``size_bytes``: about how much memory they take."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._rows: dict[bytes, bytes | None] = {}
        self._keys: list[_Table] = []
        self._values: list[_Table] = []
        self._records = 0

    def __len__(self) -> int:
        """At most so many rows."""
        return len(self._rows) or self._records

    def add(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int] | None = None
    ) -> None:
        """Adds records of the changelog; None deletes. ``timestamps``: stored before the values, in eight bytes."""
        if not self._rows and self._add_to_tables(keys, values, timestamps):
            return
        self._leave_tables()
        if timestamps is not None:
            values = _stamped(timestamps, values)
        self._rows.update(zip(keys, values, strict=True))
        self.size_bytes += sum(map(len, keys)) + sum(map(len, filter(None, values))) + _ROW_OVERHEAD_BYTES * len(keys)

    def _add_to_tables(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int] | None
    ) -> bool:
        """Returns whether the records are of one size, that of those before them."""
        if len(keys) < _TABLE_RECORDS and not self._keys:
            return False
        key_table, value_table = _table(keys), _table(values)
        if key_table is None or value_table is None:
            return False
        if timestamps is not None:
            stamps = np.array(timestamps, ">i8").view(np.uint8).reshape(len(keys), _WORD_BYTES)
            value_table = np.concatenate((stamps, value_table), axis=1)
        if self._keys and (
            key_table.shape[1] != self._keys[0].shape[1] or value_table.shape[1] != self._values[0].shape[1]
        ):
            return False
        self._keys.append(key_table)
        self._values.append(value_table)
        self._records += len(keys)
        self.size_bytes += key_table.size + value_table.size
        return True

    def _leave_tables(self) -> None:
        if not self._keys:
            return
        for key_table, value_table in zip(self._keys, self._values, strict=True):
            self._rows.update(zip(_items(key_table).tolist(), _items(value_table).tolist(), strict=True))
        self.size_bytes += _ROW_OVERHEAD_BYTES * self._records
        self._forget_tables()

    def _forget_tables(self) -> None:
        self._keys, self._values, self._records = [], [], 0

    def settle(self) -> None:
        """Drops all but the last row of each key, and counts the bytes of what is left."""
        if self._rows:
            left = sum(map(len, self._rows)) + sum(map(len, filter(None, self._rows.values())))
            self.size_bytes = left + _ROW_OVERHEAD_BYTES * len(self._rows)
        elif self._keys:
            keys, values, order = self._ordered()
            if len(order) < len(keys):
                keys, values = keys[order], values[order]
            self._keys, self._values, self._records = [keys], [values], len(keys)
            self.size_bytes = keys.size + values.size

    def in_order(self) -> Iterator[Chunk]:
        """Yields the rows in the order of their keys."""
        return self._rows_in_order() if self._rows else self._tables_in_order()

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

    def _tables_in_order(self) -> Iterator[Chunk]:
        if not self._keys:
            return
        keys, values, order = self._ordered()
        stored = np.empty((len(keys), len(DATA) + keys.shape[1]), np.uint8)
        stored[:, : len(DATA)] = np.frombuffer(DATA, np.uint8)
        stored[:, len(DATA) :] = keys
        key_items, value_items = _items(stored), _items(values)
        for start in range(0, len(order), _CHUNK_ROWS):
            chunk = order[start : start + _CHUNK_ROWS]
            yield key_items.take(chunk).tolist(), value_items.take(chunk).tolist()

    def _ordered(self) -> tuple[_Table, _Table, _Positions]:
        """All rows, and where the last one of each key is, in the order of keys."""
        keys, values = _joined(self._keys), _joined(self._values)
        self._keys, self._values = [keys], [values]
        return keys, values, _last_in_order(keys)


def _stamped(timestamps: Sequence[int], values: Sequence[bytes | None]) -> list[bytes | None]:
    if None in values:
        return [
            None if value is None else _pack_timestamp(timestamp) + value
            for timestamp, value in zip(timestamps, values, strict=True)
        ]
    return list(map(add, map(_pack_timestamp, timestamps), values))


def _table(items: Sequence[bytes | None]) -> _Table | None:
    """The bytes of items that have one size, which is not 0."""
    if None in items:
        return None
    size = len(items[0] or b"")
    if size == 0 or set(map(len, items)) != {size}:  # type: ignore[arg-type]  # none of them is None
        return None
    return np.frombuffer(b"".join(items), np.uint8).reshape(len(items), size)  # type: ignore[arg-type]


def _items(table: _Table) -> npt.NDArray[np.void]:
    """The rows of a table as one item each."""
    return np.ascontiguousarray(table).view(np.dtype((np.void, table.shape[1]))).reshape(len(table))


def _joined(tables: list[_Table]) -> _Table:
    return tables[0] if len(tables) == 1 else np.concatenate(tables)


def _are_ascending(keys: list[bytes]) -> bool:
    return all(map(lt, keys, islice(keys, 1, None)))


def _last_in_order(keys: _Table) -> _Positions:
    """Where the last row of each key is, in the order of keys."""
    count = len(keys)
    differing = np.bitwise_or.reduce(keys ^ keys[0], axis=0).nonzero()[0]
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
