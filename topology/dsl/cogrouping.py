"""Several grouped streams aggregated into one table.

1. Each group has an aggregator of its own; they share the initializer, the store and the windows.
2. All groups must be partitioned alike. A group whose key may have changed is read through a repartition topic, which
   must then have the partition count of the others. The topic of the first such group without a name has the store's
   name, as in Kafka Streams; those of the others have a number appended.

Source: org.apache.kafka.streams.kstream.CogroupedKStream and CogroupedStreamAggregateBuilder.
"""

from __future__ import annotations

from typing import TypeAlias

from topology.build.materialize import Materialized, as_store, generated_store_name, given_serdes
from topology.build.plan import LateSource, PlannedSerde, PlannedStore, Step, TableState, TableStep
from topology.build.planned import PlannedGroup, PlannedTable
from topology.dsl.grouping import Windowing
from topology.graph.operations import Function, Operation, TableMerge
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import NOTHING, OF_AGGREGATOR, OF_MERGER, check_function
from topology.spec.names import check_name

_PREFIX = "COGROUPKSTREAM-AGGREGATE-"
Member: TypeAlias = tuple[PlannedGroup, Function]
"""A group and its aggregator."""


def add_member(members: tuple[Member, ...], group: PlannedGroup, aggregator: Function) -> tuple[Member, ...]:
    """The members with one more. Raises TopologyError where it is one already, or of another builder."""
    check_function(aggregator, "cogroup", OF_AGGREGATOR)
    if any(group is known for known, _ in members):
        raise TopologyError("this group is cogrouped already: give each group one aggregator", call_site())
    if members and group.plan is not members[0][0].plan:
        raise TopologyError("cogroup() takes streams of one StreamsBuilder", call_site())
    return (*members, (group, aggregator))


def aggregate(
    members: tuple[Member, ...], initializer: Function, options: Materialized, windowing: Windowing
) -> PlannedTable:
    """An aggregation of all members."""
    check_function(initializer, "aggregate", NOTHING)
    return _aggregate(members, initializer, options, windowing)


def aggregate_sessions(
    members: tuple[Member, ...],
    initializer: Function,
    merger: Function,
    options: Materialized,
    windowing: Windowing,
) -> PlannedTable:
    """An aggregation of all members whose sessions ``merger`` makes one of two."""
    check_function(initializer, "aggregate", NOTHING)
    check_function(merger, "aggregate", OF_MERGER)
    return _aggregate(members, initializer, options, windowing, merger)


def _aggregate(
    members: tuple[Member, ...],
    initializer: Function,
    options: Materialized,
    windowing: Windowing,
    merger: Function | None = None,
) -> PlannedTable:
    name, store, key_given, value_given = options
    first = members[0][0]
    plan, wanted, site = first.plan, as_store(store), call_site()
    given = None if name is None else check_name(name, "step")
    store_name = wanted.name or generated_store_name(plan, _PREFIX)
    key_given, value_given = given_serdes(wanted, key_given, value_given, "aggregate")
    own_key = first.key.or_given(key_given)
    own_value = PlannedSerde().changed("aggregate", site).or_given(value_given)
    planned = windowing.store(wanted, store_name, own_key, own_value)
    parents, sources = _parents(members, store_name)
    plan.copartitioned.append((sources, site))
    steps: list[TableStep] = []
    for index, ((_, aggregator), parent) in enumerate(zip(members, parents, strict=True)):
        node = plan.named(given and f"{given}-cogroup-agg-{index}", _PREFIX)
        operation = windowing.operation(store_name, "aggregate", (initializer, aggregator), merger)
        steps.append(TableStep(name=node, site=site, parents=(parent,), table=_side(node, planned, operation)))
        plan.add(steps[-1])
    node = plan.named(given and f"{given}-cogroup-merge", "COGROUPKSTREAM-MERGE-")
    merge = TableMerge(store=store_name, windows=windowing.windows)
    table = TableState(
        kind="join",
        name=node,
        store=None,
        materialized=False,
        make=lambda _: merge,
        sides=tuple(step.table for step in steps),
        closes_after_ms=windowing.closes_after_ms,
        session_gap_ms=windowing.session_gap_ms,
        queryable_name=store_name,
    )
    step = TableStep(name=node, site=site, parents=tuple(steps), table=table)
    if windowing.closes_after_ms is not None:
        late_value = first.value if all(group.value == first.value for group, _ in members) else PlannedSerde()
        table.late = LateSource(tuple(steps), first.key, late_value, sources)
    plan.add(step)
    return PlannedTable(plan, step, table, windowing.key(own_key), own_value, sources)


def _side(node: str, store: PlannedStore, operation: Operation) -> TableState:
    return TableState(kind="aggregate", name=node, store=store, materialized=True, make=lambda _: operation)


def _parents(members: tuple[Member, ...], store_name: str) -> tuple[list[Step], frozenset[str]]:
    """For each group the step behind which its records are where those of all are, and the names of all sources."""
    parents: list[Step] = []
    sources: frozenset[str] = frozenset()
    unnamed = 0
    for group, _ in members:
        prefix = store_name
        if group.repartition_required and group.name is None:
            unnamed += 1
            prefix = store_name if unnamed == 1 else f"{store_name}-{unnamed}"
        parent, own = group.repartitioned(prefix)
        parents.append(parent)
        sources |= own
    return parents, sources
