"""Operations on records, tables and groups, and user processors.

Each is a frozen value that says what the program asked for, not how it runs. The properties of an operation are in
``traits``, its implementation in ``streamsrt.operators.table``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from topology.spec.windows import Windows

Function: TypeAlias = Callable[..., Any]  # what it takes and returns is the program's business


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Keeps the records for which ``predicate(key, value)`` is true (``negate``: false)."""

    predicate: Function
    negate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyNotNull:
    """Drops records without a key, before a repartition sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """``fn(key, value) -> (key, value)``."""

    fn: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectKey:
    """``fn(key, value) -> key``."""

    fn: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValues:
    """``fn(value) -> value``, or ``fn(key, value)`` where ``with_key``."""

    fn: Function
    with_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMap:
    """``fn(key, value) -> iterable of (key, value)``."""

    fn: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMapValues:
    """``fn(value) -> iterable of values``, or ``fn(key, value)`` where ``with_key``."""

    fn: Function
    with_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """Calls ``fn(key, value)`` and passes the record on."""

    fn: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEach:
    """Calls ``fn(key, value)``; nothing flows on."""

    fn: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class PassThrough:
    """Passes records on: a merge, or one branch of a split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Sends a record to the first child whose predicate holds; ``children[i]`` belongs to ``predicates[i]``.

    A predicate that is None always holds (the default branch).
    """

    predicates: tuple[Function | None, ...]
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """Makes changes of a table out of the records of its topic. ``store`` is None where nobody needs the table's state."""

    store: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """Aggregates a grouped stream per key, in event order of arrival.

    ``aggregation`` count: no functions; reduce: ``aggregator(aggregate, value)``;
    aggregate: ``initializer()`` and ``aggregator(key, value, aggregate)``.
    ``windows`` None: per key; else per key and window. ``emit_on_close``: a window is forwarded once, when it is closed.
    """

    store: str
    aggregation: Literal["count", "reduce", "aggregate"]
    initializer: Function | None = None
    aggregator: Function | None = None
    windows: Windows | None = None
    emit_on_close: bool = False
    idle_timeout_ms: int | None = None
    """After how long without a record, by the wall clock, all that is open closes."""
    closed: str | None = None
    """The store that remembers up to when windows were closed that way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFilter:
    """A table of the rows for which the predicate holds; the others are deletions downstream."""

    predicate: Function
    negate: bool = False
    store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMapValues:
    """A table with each value mapped: ``fn(value)``, or ``fn(key, value)`` where ``with_key``."""

    fn: Function
    with_key: bool = False
    store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableToStream:
    """The changes of a table as a stream of its new values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTableJoin:
    """Looks each record's key up in a table: ``joiner(value, table value)``, or with the key first where ``with_key``.

    ``table`` names the table's node: its value is read from its own store, or computed from the nearest ancestor that has
    one. ``left``: records without a match are joined with None; else they are dropped.
    """

    table: str
    joiner: Function
    left: bool = False
    with_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A user's processor: ``supplier()`` makes one per task (:class:`topology.spec.processor.Processor`).

    ``fixed_key``: the processor may not change keys (``process_values``).
    """

    supplier: Function
    fixed_key: bool = False
