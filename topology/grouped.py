"""Grouped streams and their aggregations.

1. Where the key may have changed, the aggregation reads from a repartition topic. A named group has one topic for all of its
   aggregations; an unnamed group has one for each, named by the aggregation's store.
2. An aggregation always has a store. It takes its generated store name before its step's name.

Source: org.apache.kafka.streams.kstream.KGroupedStream, TimeWindowedKStream and GroupedStreamAggregateBuilder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

from topology.codecs import Serde, long, time_windowed
from topology.errors import UnsupportedError, call_site
from topology.functions import check_function
from topology.materialize import as_store, generated_store_name, given_serdes, key_value_store, window_store
from topology.names import check_name
from topology.nodes import Aggregate, Function
from topology.plan import Carried, Plan, RepartitionStep, Step, TableState, TableStep
from topology.stores import Store
from topology.streams import add_repartition
from topology.tables import KTable
from topology.windows import TimeWindows, Windowed

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

Aggregation = Literal["count", "reduce", "aggregate"]


class _Group:
    """What the aggregations of one group share."""

    __slots__ = ("key", "name", "plan", "repartition", "repartition_required", "sources", "step", "value")

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
        self.plan = plan
        self.step = step
        self.key = key
        self.value = value
        self.sources = sources
        self.repartition_required = repartition_required
        self.name = name
        self.repartition: RepartitionStep | None = None

    def aggregate(
        self,
        aggregation: Aggregation,
        functions: tuple[Function | None, Function | None],
        result: Carried,
        options: tuple[str | None, str | Store | None, Serde[Any] | None, Serde[Any] | None],
        windows: TimeWindows | None,
    ) -> KTable[Any, Any]:
        """Adds an aggregation; ``functions``: initializer and aggregator."""
        name, store, key_given, value_given = options
        plan, wanted = self.plan, as_store(store)
        prefix = "KSTREAM-REDUCE-" if aggregation == "reduce" else "KSTREAM-AGGREGATE-"
        store_name = wanted.name or generated_store_name(plan, prefix)
        key_given, value_given = given_serdes(wanted, key_given, value_given, aggregation)
        own_key, own_value = self.key.or_given(key_given), result.or_given(value_given)
        node = plan.named(None if name is None else check_name(name, "step"), prefix)
        if windows is None:
            planned = key_value_store(wanted, store_name, own_key, own_value)
        else:
            planned = window_store(wanted, store_name, own_key, own_value, windows)
        initializer, aggregator = functions
        operation = Aggregate(
            store=store_name, aggregation=aggregation, initializer=initializer, aggregator=aggregator, windows=windows
        )
        table = TableState(kind="aggregate", name=node, store=planned, materialized=True, make=lambda _: operation)
        parent, sources = self._repartitioned(store_name)
        step = TableStep(name=node, site=call_site(), parents=(parent,), table=table)
        plan.add(step)
        return KTable(plan, step, table, _table_key(own_key, windows), own_value, sources)

    def _repartitioned(self, store_name: str) -> tuple[Step, frozenset[str]]:
        if not self.repartition_required:
            return self.step, self.sources
        step = add_repartition(self.plan, self.step, self.name or store_name, self.key, self.value)
        if self.repartition is None or self.name is None:
            self.repartition = step
        self.plan.add(self.repartition)
        return self.repartition, frozenset((self.repartition.name,))


def _table_key(key: Carried, windows: TimeWindows | None) -> Carried:
    if windows is None:
        return key
    size_ms = windows.size_ms
    return key.wrapped(lambda serde: time_windowed(serde, size_ms))


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
        self._group = _Group(plan, step, key, value, sources, repartition_required, name)

    def windowed_by(self, windows: TimeWindows) -> TimeWindowedKStream[K, V]:
        """The group cut into windows of event time."""
        if not isinstance(windows, TimeWindows):
            raise UnsupportedError(f"windowed_by() takes TimeWindows; {windows!r} is not supported", call_site())
        return TimeWindowedKStream(self._group, windows)

    def count(
        self,
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[int] | None = None,
    ) -> KTable[K, int]:
        """The number of records of each key; records with a null value are not counted."""
        return self._group.aggregate("count", (None, None), Carried(long), (name, store, key, value), None)

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
        check_function(reducer, "reduce")
        options = (name, store, key, value)
        return self._group.aggregate("reduce", (None, reducer), self._group.value, options, None)

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
        check_function(initializer, "aggregate")
        check_function(aggregator, "aggregate")
        options, result = (name, store, key, value), self._group.value.changed("aggregate", call_site(), keep=False)
        return self._group.aggregate("aggregate", (initializer, aggregator), result, options, None)


class TimeWindowedKStream(Generic[K, V]):
    """A grouped stream cut into windows. Unlike without windows, null values are aggregated too."""

    __slots__ = ("_group", "_windows")

    def __init__(self, group: _Group, windows: TimeWindows) -> None:
        self._group = group
        self._windows = windows

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
        return self._group.aggregate("count", (None, None), Carried(long), options, self._windows)

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
        check_function(reducer, "reduce")
        options = (name, store, key, value)
        return self._group.aggregate("reduce", (None, reducer), self._group.value, options, self._windows)

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
        check_function(initializer, "aggregate")
        check_function(aggregator, "aggregate")
        options, result = (name, store, key, value), self._group.value.changed("aggregate", call_site(), keep=False)
        return self._group.aggregate("aggregate", (initializer, aggregator), result, options, self._windows)
