"""What the processor nodes of sliding windows, sessions, count windows, ``cogroup`` and ``suppress`` compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from topology.graph.operations.basic import Function
from topology.spec.windows import AnyWindows, SessionWindows, SlidingWindows


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingAggregate:
    """Aggregates a grouped stream per key and sliding window; functions as in :class:`Aggregate`."""

    store: str
    aggregation: Literal["count", "reduce", "aggregate"]
    windows: SlidingWindows
    initializer: Function | None = None
    aggregator: Function | None = None
    emit_on_close: bool = False
    idle_timeout_ms: int | None = None
    """After how long without a record, by the wall clock, all that is open closes."""
    closed: str | None = None
    """The store that remembers up to when windows were closed that way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAggregate:
    """Aggregates a grouped stream per key and session; functions as in :class:`Aggregate`.

    ``merger(key, aggregate, aggregate)`` makes one aggregate of two sessions'; count and reduce need none.
    """

    store: str
    aggregation: Literal["count", "reduce", "aggregate"]
    windows: SessionWindows
    initializer: Function | None = None
    aggregator: Function | None = None
    merger: Function | None = None
    emit_on_close: bool = False
    idle_timeout_ms: int | None = None
    """After how long without a record, by the wall clock, all that is open closes."""
    closed: str | None = None
    """The store that remembers up to when windows were closed that way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMerge:
    """The table that several aggregations make together: their changes, from the store that they share."""

    store: str
    windows: AnyWindows | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppress:
    """Holds changes of a table back in the buffer ``store``, and forwards the last one of each row.

    ``wait_ms``: stream time after the end of the change's window (``by_window``), or after its timestamp.
    """

    store: str
    wait_ms: int
    by_window: bool = False
    max_records: int | None = None
    max_bytes: int | None = None
    shuts_down: bool = False
    idle_timeout_ms: int | None = None
    """After how long without a record, by the wall clock, all that is held back flows on."""
    closed: str | None = None
    """The store that remembers up to when windows were closed that way: their later changes are dropped."""
    session_gap_ms: int = 0
    """How far behind the end of a session it is still the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountWindowAggregate:
    """Aggregates a grouped stream per key and window of ``size`` records, one beginning every ``advance`` records.

    A window's aggregate is forwarded when it is full, or when ``close_when(key, aggregate)`` holds after one of its records.
    ``store``: the open windows of each key.
    """

    store: str
    size: int
    advance: int
    initializer: Function
    aggregator: Function
    close_when: Function | None = None
