"""Finds and deletes rows whose windows have expired.

1. The store of such a table keeps its rows in the order in which their windows end (:func:`order_of`), so nothing about them
   is kept in memory, whatever the table holds, and a start reads the first row and the last one.
2. Rows expire by wall-clock time, as in Faust, and are deleted :data:`PIECE_ROWS` at a time.
3. ``first_end`` is never later than the end of the first window that the store has: whoever writes a row tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from streamsrt.faust.rows import Rows
from topology.spec.codecs import ORDER_BYTES

if TYPE_CHECKING:
    import faust

PIECE_ROWS = 10_000
_DOUBLE, _BITS = Struct(">d"), Struct(">Q")
_SIGN, _ALL = 1 << 63, (1 << 64) - 1
_NEVER = b"\xff" * ORDER_BYTES


class OrderedRows(Rows, Protocol):
    """Rows of a store that keeps them in an order of its own."""

    def in_order(self, start: bytes = b"", *, reverse: bool = False) -> Iterator[tuple[bytes, object]]: ...


def _packed(end: float) -> bytes:
    """Eight bytes whose order is that of the numbers."""
    bits: int = _BITS.unpack(_DOUBLE.pack(end))[0]
    return _BITS.pack(bits ^ (_ALL if bits & _SIGN else _SIGN))


def _end_of(stored: bytes) -> float:
    bits: int = _BITS.unpack_from(stored)[0]
    end: float = _DOUBLE.unpack(_BITS.pack(bits ^ (_SIGN if bits & _SIGN else _ALL)))[0]
    return end


def order_of(table: faust.Table, read: Callable[[bytes], object]) -> Callable[[bytes], bytes]:
    """What orders the keys of a windowed table: the end of the window. ``read``: makes a key of its bytes.

    A key that is none of a window's never expires.
    """
    is_json = table.key_serializer == "json"

    def order(raw: bytes) -> bytes:
        if is_json and raw.endswith(b"]]"):
            # The window's end is the last number, before the closing brackets.
            try:
                return _packed(float(raw[raw.rindex(b",") + 1 :].rstrip(b"]")))
            except ValueError:
                """It is written in another way."""
        match read(raw):
            case (_, (_, int() | float() as end)):
                return _packed(end)
        return _NEVER

    return order


class RowExpiry:
    """The rows of one table in one task."""

    def __init__(self, table: faust.Table, partition: int, rows: OrderedRows) -> None:
        self._window = table.window
        self._rows = rows
        self._from = b""
        """Where the next piece begins."""
        self.first_end = next((_end_of(stored) for stored, _ in rows.in_order()), inf)
        latest = table._partition_latest_timestamp
        latest.pop(partition, None)
        for stored, _ in rows.in_order(reverse=True):
            if stored[:ORDER_BYTES] != _NEVER:
                latest[partition] = max(latest[partition], _end_of(stored))
                break

    def written(self, end: float) -> None:
        """A row of a window that ends then is written."""
        if end <= self.first_end:
            self.first_end, self._from = end, b""

    def expire(self, now_s: float) -> tuple[list[tuple[object, object]], bool]:
        """Deletes rows that have expired, and returns them, and whether there are more."""
        stale, closed = self._window.stale, list[tuple[object, object]]()
        if self.first_end == inf or not stale(self.first_end, now_s):
            return closed, False
        rows = self._rows
        for stored, key in rows.in_order(self._from):
            end = _end_of(stored) if stored[:ORDER_BYTES] != _NEVER else inf
            if end == inf or not stale(end, now_s):
                self.first_end, self._from = end, b""
                return closed, False
            if len(closed) == PIECE_ROWS:
                self.first_end, self._from = end, stored
                return closed, True
            value = rows.get(key)
            if value is not None:
                closed.append((key, value))
                rows.put(key, None)
        self.first_end, self._from = inf, b""
        return closed, False
