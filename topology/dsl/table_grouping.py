"""Grouped tables and their aggregations.

1. A row of a table belongs to one group at a time. A row that leaves a group is removed from its aggregate, so an
   aggregation has a subtractor as well as an adder.
2. The rows always go through a repartition topic, as changes; a named group has one for all of its aggregations.
3. An aggregation always has a store. It takes its generated store name before its step's name.

Source: org.apache.kafka.streams.kstream.KGroupedTable and KGroupedTableImpl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from topology.build.materialize import (
    Materialized,
    as_store,
    generated_store_name,
    given_serdes,
    key_value_store,
)
from topology.build.plan import Plan, PlannedSerde, RepartitionStep, Step, TableState, TableStep
from topology.build.planned import PlannedTable
from topology.graph.operations import Function, TableAggregate
from topology.spec.changes import change
from topology.spec.codecs import long
from topology.spec.errors import call_site
from topology.spec.functions import NOTHING, OF_AGGREGATOR, OF_REDUCER, check_function
from topology.spec.names import REPARTITION_SUFFIX, check_name

Aggregation = Literal["count", "reduce", "aggregate"]


@dataclass(slots=True, eq=False)
class PlannedTableGroup:
    """A table whose rows are grouped under another key. ``name``: of its repartition topic."""

    plan: Plan
    step: Step
    key: PlannedSerde
    value: PlannedSerde
    name: str | None
    repartition: RepartitionStep | None = None

    def repartitioned(self, sink: str, source: str, topic: str) -> RepartitionStep:
        """The step that the rows come through: a named group has one for all of its aggregations."""
        if self.repartition is None or self.name is None:
            self.repartition = RepartitionStep(
                name=source,
                site=call_site(),
                parents=(self.step,),
                topic=topic + REPARTITION_SUFFIX,
                sink_name=sink,
                filter_name=None,
                key=self.key,
                value=self.value.wrapped(change),
            )
        self.plan.add(self.repartition)
        return self.repartition


def count(group: PlannedTableGroup, options: Materialized) -> PlannedTable:
    """The number of rows."""
    return _aggregate(group, "count", (None, None, None), PlannedSerde(long), options)


def reduce(group: PlannedTableGroup, adder: Function, subtractor: Function, options: Materialized) -> PlannedTable:
    """An aggregation whose first value is the first aggregate."""
    check_function(adder, "reduce", OF_REDUCER)
    check_function(subtractor, "reduce", OF_REDUCER)
    return _aggregate(group, "reduce", (None, adder, subtractor), group.value, options)


def aggregate(
    group: PlannedTableGroup, functions: tuple[Function, Function, Function], options: Materialized
) -> PlannedTable:
    """An aggregation; ``functions``: initializer, adder and subtractor."""
    for function, arguments in zip(functions, (NOTHING, OF_AGGREGATOR, OF_AGGREGATOR), strict=True):
        check_function(function, "aggregate", arguments)
    result = group.value.changed("aggregate", call_site(), keep=False)
    return _aggregate(group, "aggregate", functions, result, options)


def _aggregate(
    group: PlannedTableGroup,
    aggregation: Aggregation,
    functions: tuple[Function | None, Function | None, Function | None],
    result: PlannedSerde,
    options: Materialized,
) -> PlannedTable:
    """Adds an aggregation; ``functions``: initializer, adder and subtractor."""
    name, store, key_given, value_given = options
    plan, wanted = group.plan, as_store(store)
    given = None if name is None else check_name(name, "step")
    store_name = wanted.name or generated_store_name(plan, "KTABLE-AGGREGATE-")
    key_given, value_given = given_serdes(wanted, key_given, value_given, aggregation)
    own_key, own_value = group.key.or_given(key_given), result.or_given(value_given)
    sink = plan.named(given and f"{given}-sink", "KSTREAM-SINK-")
    source = plan.named(given and f"{given}-source", "KSTREAM-SOURCE-")
    node = plan.named(given, "KTABLE-REDUCE-" if aggregation == "reduce" else "KTABLE-AGGREGATE-")
    initializer, adder, subtractor = functions
    operation = TableAggregate(
        store=store_name, aggregation=aggregation, initializer=initializer, adder=adder, subtractor=subtractor
    )
    planned = key_value_store(wanted, store_name, own_key, own_value)
    parent = group.repartitioned(sink, source, group.name or store_name)
    table = TableState(kind="aggregate", name=node, store=planned, materialized=True, make=lambda _: operation)
    step = TableStep(name=node, site=call_site(), parents=(parent,), table=table)
    plan.add(step)
    return PlannedTable(plan, step, table, own_key, own_value, frozenset((parent.name,)))
