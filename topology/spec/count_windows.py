"""Count windows: a fixed number of records of a key. They close when they are full, or when the program says so.

1. A record belongs to all open windows of its key; a new window opens every ``advance`` records. The aggregate of a
   window is forwarded once, when it closes: with the record that fills it or that makes ``close_when`` true.
2. Count windows do not depend on time: no record is late, and a window that never fills stays open (unless the store
   has a ``ttl``).
3. The open windows of a key are one row of a store with a changelog, written with the aggregate's serde. The row is
   deleted with its last window, and the next record starts a new one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from topology.spec.codecs import ProgramSerde, RowsOfValues
from topology.spec.errors import WindowError, call_site

_ROW = struct.Struct(">ii")
_WINDOW = struct.Struct(">iqi")


@dataclass(frozen=True, slots=True, init=False)
class CountWindows:
    """Windows of ``size`` records of a key, one starting every ``advance`` records.

    ``advance`` None: the size, so that each record is in one window. Raises WindowError unless 0 < advance <= size.
    """

    size: int
    advance: int

    def __init__(self, size: int, advance: int | None = None) -> None:
        step = size if advance is None else advance
        if not 0 < step <= size:
            raise WindowError(f"windows of {size} records can't advance by {step}: 0 < advance <= size", call_site())
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "advance", step)


class OpenWindow(NamedTuple):
    """An open window: its number of records, their latest timestamp, and the aggregate."""

    records: int
    timestamp: int
    aggregate: Any


class OpenWindows(NamedTuple):
    """The open windows of a key, oldest first. ``since``: the number of records since the newest one was opened."""

    since: int
    windows: tuple[OpenWindow, ...]


def open_windows(inner: ProgramSerde) -> RowsOfValues[OpenWindows]:
    """Rows of open windows; ``inner``: of the aggregates, which may be None."""
    serialize_aggregate, deserialize_aggregate = inner.serialize, inner.deserialize

    def serialize(row: OpenWindows) -> bytes:
        parts = [_ROW.pack(row.since, len(row.windows))]
        for records, timestamp, aggregate in row.windows:
            raw = None if aggregate is None else serialize_aggregate(aggregate)
            parts += (_WINDOW.pack(records, timestamp, -1 if raw is None else len(raw)), raw or b"")
        return b"".join(parts)

    def deserialize(data: bytes) -> OpenWindows:
        since, count = _ROW.unpack_from(data)
        at, windows = _ROW.size, []
        for _ in range(count):
            records, timestamp, length = _WINDOW.unpack_from(data, at)
            at += _WINDOW.size
            aggregate = None if length < 0 else deserialize_aggregate(data[at : at + length])
            at += max(0, length)
            windows.append(OpenWindow(records, timestamp, aggregate))
        return OpenWindows(since, tuple(windows))

    return RowsOfValues(f"open_windows({inner.name})", serialize, deserialize, open_windows, _mapped)


def _mapped(row: OpenWindows, function: Callable[[object], object]) -> OpenWindows:
    windows = (
        window if window.aggregate is None else window._replace(aggregate=function(window.aggregate))
        for window in row.windows
    )
    return OpenWindows(row.since, tuple(windows))
