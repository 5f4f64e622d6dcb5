"""Grouped tables and their aggregations.

1. A row of a table belongs to one group at a time. What leaves a group is taken out of its aggregate, so an aggregation has
   a subtractor beside its adder.
2. The rows always go through a repartition topic, as changes; a named group has one for all of its aggregations.
3. An aggregation always has a store. It takes its generated store name before its step's name.

Source: org.apache.kafka.streams.kstream.KGroupedTable and KGroupedTableImpl.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

from topology.build.materialize import as_store, generated_store_name, given_serdes, key_value_store
from topology.build.plan import Carried, Plan, RepartitionStep, Step, TableState, TableStep
from topology.dsl.tables import KTable
from topology.graph.operations import Function, TableAggregate
from topology.spec.changes import change
from topology.spec.codecs import Serde, long
from topology.spec.errors import call_site
from topology.spec.functions import NOTHING, OF_AGGREGATOR, OF_REDUCER, check_function
from topology.spec.names import REPARTITION_SUFFIX, check_name
from topology.spec.stores import Store

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

Aggregation = Literal["count", "reduce", "aggregate"]
Options = tuple[str | None, str | Store | None, Serde[Any] | None, Serde[Any] | None]


class KGroupedTable(Generic[K, V]):
    """A table whose rows are grouped under another key, ready to be aggregated."""

    __slots__ = ("_key", "_name", "_plan", "_repartition", "_step", "_value")

    def __init__(self, plan: Plan, step: Step, key: Carried, value: Carried, name: str | None) -> None:
        self._plan = plan
        self._step = step
        self._key = key
        self._value = value
        self._name = name
        self._repartition: RepartitionStep | None = None

    def count(
        self,
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[int] | None = None,
    ) -> KTable[K, int]:
        """The number of rows of each group."""
        return self._aggregate("count", (None, None, None), Carried(long), (name, store, key, value))

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[K, V]:
        """``adder(aggregate, value)`` for each row that comes, ``subtractor(aggregate, value)`` for each that goes."""
        check_function(adder, "reduce", OF_REDUCER)
        check_function(subtractor, "reduce", OF_REDUCER)
        return self._aggregate("reduce", (None, adder, subtractor), self._value, (name, store, key, value))

    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[K, A]:
        """``adder(key, value, aggregate)`` for each row that comes, ``subtractor(...)`` for each that goes.

        It begins with ``initializer()``. ``value``: serde of the aggregate.
        """
        check_function(initializer, "aggregate", NOTHING)
        for function in (adder, subtractor):
            check_function(function, "aggregate", OF_AGGREGATOR)
        result = self._value.changed("aggregate", call_site(), keep=False)
        return self._aggregate("aggregate", (initializer, adder, subtractor), result, (name, store, key, value))

    def _aggregate(
        self,
        aggregation: Aggregation,
        functions: tuple[Function | None, Function | None, Function | None],
        result: Carried,
        options: Options,
    ) -> KTable[Any, Any]:
        name, store, key_given, value_given = options
        plan, wanted = self._plan, as_store(store)
        given = None if name is None else check_name(name, "step")
        store_name = wanted.name or generated_store_name(plan, "KTABLE-AGGREGATE-")
        key_given, value_given = given_serdes(wanted, key_given, value_given, aggregation)
        own_key, own_value = self._key.or_given(key_given), result.or_given(value_given)
        sink = plan.named(given and f"{given}-sink", "KSTREAM-SINK-")
        source = plan.named(given and f"{given}-source", "KSTREAM-SOURCE-")
        node = plan.named(given, "KTABLE-REDUCE-" if aggregation == "reduce" else "KTABLE-AGGREGATE-")
        initializer, adder, subtractor = functions
        operation = TableAggregate(
            store=store_name, aggregation=aggregation, initializer=initializer, adder=adder, subtractor=subtractor
        )
        planned = key_value_store(wanted, store_name, own_key, own_value)
        parent = self._repartitioned(sink, source, self._name or store_name)
        table = TableState(kind="aggregate", name=node, store=planned, materialized=True, make=lambda _: operation)
        step = TableStep(name=node, site=call_site(), parents=(parent,), table=table)
        plan.add(step)
        return KTable(plan, step, table, own_key, own_value, frozenset((parent.name,)))

    def _repartitioned(self, sink: str, source: str, topic: str) -> RepartitionStep:
        if self._repartition is None or self._name is None:
            self._repartition = RepartitionStep(
                name=source,
                site=call_site(),
                parents=(self._step,),
                topic=topic + REPARTITION_SUFFIX,
                sink_name=sink,
                filter_name=None,
                key=self._key,
                value=self._value.wrapped(change),
            )
        self._plan.add(self._repartition)
        return self._repartition
