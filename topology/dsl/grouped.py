"""Grouped streams and their aggregations, by key, by key and window, by key and session.

Source: org.apache.kafka.streams.kstream.KGroupedStream, TimeWindowedKStream and SessionWindowedKStream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from topology.build.plan import Carried, Plan, Step
from topology.dsl.count_windows import CountWindowedKStream
from topology.dsl.grouping import Group, Windowing
from topology.dsl.tables import KTable
from topology.spec.codecs import Serde, long
from topology.spec.count_windows import CountWindows
from topology.spec.errors import UnsupportedError, call_site
from topology.spec.functions import NOTHING, OF_AGGREGATOR, OF_MERGER, OF_REDUCER, check_function
from topology.spec.stores import Store
from topology.spec.windows import (
    AnyWindows,
    Duration,
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windowed,
)

if TYPE_CHECKING:
    from topology.dsl.cogrouped import CogroupedKStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class KGroupedStream(Generic[K, V]):
    """A stream whose records are grouped by key, ready to be aggregated."""

    __slots__ = ("_group",)

    def __init__(
        self,
        plan: Plan,
        step: Step,
        key: Carried,
        value: Carried,
        sources: frozenset[str],
        repartition_required: bool,
        name: str | None,
    ) -> None:
        self._group = Group(plan, step, key, value, sources, repartition_required, name)

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows | UnlimitedWindows) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: CountWindows) -> CountWindowedKStream[K, V]: ...
    def windowed_by(
        self, windows: AnyWindows | CountWindows
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V] | CountWindowedKStream[K, V]:
        """The group cut into windows of event time, into sessions, or into windows of so many records."""
        if isinstance(windows, CountWindows):
            return CountWindowedKStream(self._group, windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._group, Windowing(windows))
        if not isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
            raise UnsupportedError(
                f"windowed_by() takes TimeWindows, SlidingWindows, UnlimitedWindows, SessionWindows or "
                f"CountWindows, not {windows!r}",
                call_site(),
            )
        return TimeWindowedKStream(self._group, Windowing(windows))

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Begins an aggregation of several groups; ``aggregator(key, value, aggregate)`` is for the values of this one."""
        from topology.dsl.cogrouped import CogroupedKStream

        return CogroupedKStream[K, A](()).cogroup(self, aggregator)

    def count(
        self,
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[int] | None = None,
    ) -> KTable[K, int]:
        """The number of records of each key; records with a null value are not counted."""
        return self._group.aggregate("count", (None, None), Carried(long), (name, store, key, value), Windowing())

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[K, V]:
        """``reducer(aggregate, value)`` over the values of each key; the first value is the first aggregate."""
        check_function(reducer, "reduce", OF_REDUCER)
        options = (name, store, key, value)
        return self._group.aggregate("reduce", (None, reducer), self._group.value, options, Windowing())

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[K, A]:
        """``aggregator(key, value, aggregate)`` over the values of each key, beginning with ``initializer()``.

        A result of None deletes the row. ``value``: serde of the aggregate.
        """
        check_function(initializer, "aggregate", NOTHING)
        check_function(aggregator, "aggregate", OF_AGGREGATOR)
        options, result = (name, store, key, value), self._group.value.changed("aggregate", call_site(), keep=False)
        return self._group.aggregate("aggregate", (initializer, aggregator), result, options, Windowing())


class TimeWindowedKStream(Generic[K, V]):
    """A grouped stream cut into windows. Unlike without windows, null values are aggregated too."""

    __slots__ = ("_group", "_windowing")

    def __init__(self, group: Group, windowing: Windowing) -> None:
        self._group = group
        self._windowing = windowing

    def emit_strategy(
        self, strategy: EmitStrategy, *, idle_timeout: Duration | None = None
    ) -> TimeWindowedKStream[K, V]:
        """The same windows; :class:`EmitStrategy` says when their results are forwarded.

        Raises UnsupportedError for windows that never close. Raises TopologyError for a value that is no strategy.

        ``idle_timeout``, with ``ON_WINDOW_CLOSE``: when the partitions behind the windows have brought no record for so
        long, by the wall clock, all that is open is closed, as if stream time had moved on. What would belong to it is late
        from then on. Timedelta or int milliseconds. Raises WindowError for one below 1 ms.
        """
        return TimeWindowedKStream(self._group, self._windowing.emitting(strategy, idle_timeout))

    def count(
        self,
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[int] | None = None,
    ) -> KTable[Windowed[K], int]:
        """The number of records of each key and window."""
        options = (name, store, key, value)
        return self._group.aggregate("count", (None, None), Carried(long), options, self._windowing)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[Windowed[K], V]:
        """``reducer(aggregate, value)`` over the values of each key and window."""
        check_function(reducer, "reduce", OF_REDUCER)
        options = (name, store, key, value)
        return self._group.aggregate("reduce", (None, reducer), self._group.value, options, self._windowing)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[Windowed[K], A]:
        """``aggregator(key, value, aggregate)`` over the values of each key and window, from ``initializer()`` on."""
        check_function(initializer, "aggregate", NOTHING)
        check_function(aggregator, "aggregate", OF_AGGREGATOR)
        options, result = (name, store, key, value), self._group.value.changed("aggregate", call_site(), keep=False)
        return self._group.aggregate("aggregate", (initializer, aggregator), result, options, self._windowing)


class SessionWindowedKStream(Generic[K, V]):
    """A grouped stream cut into sessions. Unlike without windows, null values are aggregated too."""

    __slots__ = ("_group", "_windowing")

    def __init__(self, group: Group, windowing: Windowing) -> None:
        self._group = group
        self._windowing = windowing

    def emit_strategy(
        self, strategy: EmitStrategy, *, idle_timeout: Duration | None = None
    ) -> SessionWindowedKStream[K, V]:
        """The same sessions; :class:`EmitStrategy` says when their results are forwarded.

        Raises TopologyError for a value that is no strategy.

        ``idle_timeout``, with ``ON_WINDOW_CLOSE``: when the partitions behind the windows have brought no record for so
        long, by the wall clock, all that is open is closed, as if stream time had moved on. What would belong to it is late
        from then on. Timedelta or int milliseconds. Raises WindowError for one below 1 ms.
        """
        return SessionWindowedKStream(self._group, self._windowing.emitting(strategy, idle_timeout))

    def count(
        self,
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[int] | None = None,
    ) -> KTable[Windowed[K], int]:
        """The number of records of each key and session."""
        options = (name, store, key, value)
        return self._group.aggregate("count", (None, None), Carried(long), options, self._windowing)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[Windowed[K], V]:
        """``reducer(aggregate, value)`` over the values of each key and session."""
        check_function(reducer, "reduce", OF_REDUCER)
        options = (name, store, key, value)
        return self._group.aggregate("reduce", (None, reducer), self._group.value, options, self._windowing)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[Windowed[K], A]:
        """``aggregator(key, value, aggregate)`` over the values of each key and session, from ``initializer()`` on.

        Where sessions meet, ``merger(key, aggregate, aggregate)`` makes one of the two, the initial one first.
        """
        check_function(initializer, "aggregate", NOTHING)
        check_function(aggregator, "aggregate", OF_AGGREGATOR)
        check_function(merger, "aggregate", OF_MERGER)
        options, result = (name, store, key, value), self._group.value.changed("aggregate", call_site(), keep=False)
        return self._group.aggregate("aggregate", (initializer, aggregator), result, options, self._windowing, merger)
