"""Windows of so many records of a key, which close when they are full, or when the program says so.

1. A record of a key comes into all of its windows that are open; every ``advance`` records one is opened. What a window made
   of its records is forwarded once, when it closes: with the record that fills it, or after which ``close_when`` holds.
2. Time has no part in it: no record is late, and a window that is never filled stays open (a store with ``ttl`` forgets it).
3. The open windows of a key are one row of a store with a changelog, as the aggregate's serde writes them; the row goes with
   the last of them, where the next record begins anew.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from topology.codecs import CallableSerde, Serde
from topology.errors import UnsupportedError, WindowError, call_site
from topology.functions import NOTHING, OF_AGGREGATOR, OF_REDUCER, Predicate, check_function
from topology.materialize import as_store, generated_store_name, given_serdes, key_value_store
from topology.names import check_name
from topology.operations.windowed import CountWindowAggregate
from topology.plan import Carried, OperatorStep
from topology.stores import Store

if TYPE_CHECKING:
    from topology.grouping import Group, Options
    from topology.streams import KStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

_ROW = struct.Struct(">ii")
_WINDOW = struct.Struct(">iqi")


@dataclass(frozen=True, slots=True, init=False)
class CountWindows:
    """Windows of ``size`` records of a key, one beginning every ``advance`` records.

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
    """A window that takes records: how many it has, the latest of their timestamps, and what was made of them."""

    records: int
    timestamp: int
    aggregate: Any


class OpenWindows(NamedTuple):
    """The open windows of a key, the oldest first. ``since``: how many records came since the youngest was opened."""

    since: int
    windows: tuple[OpenWindow, ...]


def open_windows(inner: Serde[Any]) -> CallableSerde[OpenWindows]:
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

    return CallableSerde(f"open_windows({inner.name})", serialize, deserialize)


class CountWindowedKStream(Generic[K, V]):
    """A grouped stream cut into windows of so many records. Records without a key or a value are dropped."""

    __slots__ = ("_group", "_windows")

    def __init__(self, group: Group, windows: CountWindows) -> None:
        self._group = group
        self._windows = windows

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        close_when: Predicate[K, V] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KStream[K, V]:
        """``reducer(aggregate, value)`` over each window's records, the first value being the first aggregate.

        Forwarded when the window closes, with the latest timestamp of its records. ``close_when(key, aggregate)``: whether
        a window closes before it is full; it is asked after each of its records.
        """
        check_function(reducer, "reduce", OF_REDUCER)

        def add(_: K, value: V, aggregate: Any) -> V:
            return value if aggregate is None else reducer(aggregate, value)

        return self._aggregate(_nothing, add, self._group.value, close_when, (name, store, key, value), "reduce")

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        close_when: Predicate[K, A] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KStream[K, A]:
        """``aggregator(key, value, aggregate)`` over each window's records, from ``initializer()`` on.

        As :meth:`reduce`; ``value``: serde of the aggregate.
        """
        check_function(initializer, "aggregate", NOTHING)
        check_function(aggregator, "aggregate", OF_AGGREGATOR)
        result = self._group.value.changed("aggregate", call_site(), keep=False)
        return self._aggregate(initializer, aggregator, result, close_when, (name, store, key, value), "aggregate")

    def _aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        result: Carried,
        close_when: Predicate[Any, Any] | None,
        options: Options,
        operator: str,
    ) -> KStream[Any, Any]:
        from topology.streams import KStream

        name, store, key, value = options
        if close_when is not None:
            check_function(close_when, operator, "key, aggregate")
        group, wanted = self._group, as_store(store)
        if wanted.caching or wanted.kind != "key_value" or wanted.max_entries is not None:
            raise UnsupportedError(
                "open windows are in a key-value store, without caching and max_entries: they are in no other place",
                call_site(),
            )
        plan = group.plan
        store_name = wanted.name or generated_store_name(plan, "KSTREAM-COUNTWINDOW-")
        key, value = given_serdes(wanted, key, value, operator)
        own_key, own_value = group.key.or_given(key), result.or_given(value)
        node = plan.named(None if name is None else check_name(name, "step"), "KSTREAM-COUNTWINDOW-")
        planned = key_value_store(wanted, store_name, own_key, own_value.wrapped(open_windows))
        serde = planned.value.serde
        planned = replace(planned, spec=replace(planned.spec, caching=False, value_serde=serde))
        parent, sources = group.repartitioned(store_name)
        step = OperatorStep(
            name=node,
            site=call_site(),
            parents=(parent,),
            operation=CountWindowAggregate(
                store=store_name,
                size=self._windows.size,
                advance=self._windows.advance,
                initializer=initializer,
                aggregator=aggregator,
                close_when=close_when,
            ),
            stores=(store_name,),
            own_stores=(planned,),
        )
        plan.add(step)
        return KStream(plan, step, own_key, own_value, sources, False)


def _nothing() -> None:
    return None
