"""Aggregations of groups in count windows: the rules are in :mod:`topology.spec.count_windows`."""

from __future__ import annotations

from dataclasses import replace

from topology.build.materialize import Materialized, as_store, generated_store_name, given_serdes, key_value_store
from topology.build.plan import OperatorStep, PlannedSerde
from topology.build.planned import PlannedGroup, PlannedStream
from topology.graph.operations import CountWindowAggregate, Function
from topology.graph.store_kinds import RowsOfKey, rows_called
from topology.spec.count_windows import CountWindows, open_windows
from topology.spec.errors import UnsupportedError, call_site
from topology.spec.functions import NOTHING, OF_AGGREGATOR, OF_REDUCER, check_function
from topology.spec.names import check_name


def reduce(
    group: PlannedGroup, windows: CountWindows, reducer: Function, close_when: Function | None, options: Materialized
) -> PlannedStream:
    """An aggregation whose first value is the first aggregate."""
    check_function(reducer, "reduce", OF_REDUCER)

    def add(_: object, value: object, aggregate: object) -> object:
        return value if aggregate is None else reducer(aggregate, value)

    return _aggregate(group, windows, (_nothing, add), group.value, close_when, options, "reduce")


def aggregate(
    group: PlannedGroup,
    windows: CountWindows,
    functions: tuple[Function, Function],
    close_when: Function | None,
    options: Materialized,
) -> PlannedStream:
    """An aggregation; ``functions``: initializer and aggregator."""
    for function, arguments in zip(functions, (NOTHING, OF_AGGREGATOR), strict=True):
        check_function(function, "aggregate", arguments)
    result = group.value.changed("aggregate", call_site(), keep=False)
    return _aggregate(group, windows, functions, result, close_when, options, "aggregate")


def _aggregate(
    group: PlannedGroup,
    windows: CountWindows,
    functions: tuple[Function, Function],
    result: PlannedSerde,
    close_when: Function | None,
    options: Materialized,
    operator: str,
) -> PlannedStream:
    """Adds an aggregation; ``functions``: initializer and aggregator."""
    initializer, aggregator = functions
    name, store, key, value = options
    if close_when is not None:
        check_function(close_when, operator, "key, aggregate")
    wanted = as_store(store)
    if wanted.caching or rows_called(wanted.kind) is not RowsOfKey.ONE or wanted.max_entries is not None:
        raise UnsupportedError(
            "open windows need a key-value store without caching and max_entries, because they are kept only there",
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
            size=windows.size,
            advance=windows.advance,
            initializer=initializer,
            aggregator=aggregator,
            close_when=close_when,
        ),
        stores=(store_name,),
        own_stores=(planned,),
    )
    plan.add(step)
    return PlannedStream(plan, step, own_key, own_value, sources)


def _nothing() -> None:
    return None
