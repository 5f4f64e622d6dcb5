"""Grouped streams in windows of so many records: the rules stand in :mod:`topology.spec.count_windows`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from topology.build.materialize import as_store, generated_store_name, given_serdes, key_value_store
from topology.build.plan import Carried, OperatorStep
from topology.graph.operations.windowed import CountWindowAggregate
from topology.spec.codecs import Serde
from topology.spec.count_windows import CountWindows, open_windows
from topology.spec.errors import UnsupportedError, call_site
from topology.spec.functions import NOTHING, OF_AGGREGATOR, OF_REDUCER, Predicate, check_function
from topology.spec.names import check_name
from topology.spec.stores import Store

if TYPE_CHECKING:
    from topology.dsl.grouping import Group, Options
    from topology.dsl.streams import KStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


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
        from topology.dsl.streams import KStream

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
