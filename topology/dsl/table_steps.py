"""The steps that the operators of a table, except joins, add to the plan.

1. A table has a store only if the program names one, or if an operator has to read the table: then the nearest table
   upstream that can have a store gets it.
2. Old values are forwarded with the new ones if an operator needs them; a filter uses them if they cost nothing.

Source: KTableImpl, KTableFilter and KTableSource of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from topology.build.materialize import (
    Materialized,
    as_store,
    buffer_store,
    closed_store,
    generated_store_name,
    given_serdes,
    key_value_store,
)
from topology.build.plan import LateSource, OperatorStep, PlannedSerde, PlannedStore, TableState, TableStep
from topology.build.planned import PlannedStream, PlannedTable, checked_step_name
from topology.dsl.stream_steps import named_stores
from topology.dsl.table_grouping import PlannedTableGroup
from topology.graph.operations import (
    Function,
    GroupTable,
    Operation,
    Suppress,
    TableFilter,
    TableMapValues,
    TableToStream,
    TableTransformValues,
)
from topology.spec.codecs import AnySerde
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import NOTHING, OF_RECORD, check_function, of_values
from topology.spec.names import check_name
from topology.spec.stores import Store
from topology.spec.suppressed import Suppressed


def filter_rows(table: PlannedTable, predicate: Function, options: Materialized, *, negate: bool) -> PlannedTable:
    """The rows for which the predicate is true, or false where ``negate``."""
    operator = "filter_not" if negate else "filter"
    check_function(predicate, operator, OF_RECORD)
    return _derived(
        table,
        operator,
        "KTABLE-FILTER-",
        lambda own: TableFilter(predicate=predicate, negate=negate, store=own),
        options,
        table.value,
        takes_old_values=True,
    )


def map_values(table: PlannedTable, fn: Function, with_key: bool, options: Materialized) -> PlannedTable:
    """The table with other values."""
    check_function(fn, "map_values", of_values(with_key))
    return _derived(
        table,
        "map_values",
        "KTABLE-MAPVALUES-",
        lambda own: TableMapValues(fn=fn, with_key=with_key, store=own),
        options,
        table.value.changed("map_values", call_site()),
        takes_old_values=False,
    )


def transform_values(
    table: PlannedTable, supplier: Function, stores: Iterable[str | Store], options: Materialized
) -> PlannedTable:
    """The table with the values of a transformer of the program's."""
    check_function(supplier, "transform_values", NOTHING)
    used, own = named_stores(stores)
    return _derived(
        table,
        "transform_values",
        "KTABLE-TRANSFORMVALUES-",
        lambda own: TableTransformValues(supplier=supplier, store=own),
        options,
        table.value.changed("transform_values", call_site()),
        takes_old_values=False,
        stores=(used, own),
        has_own_rows=True,
    )


def to_stream(table: PlannedTable, mapper: Function | None, name: str | None) -> PlannedStream:
    """The changes of a table as a stream; ``mapper`` is checked before, for what selects another key behind it."""
    if mapper is not None:
        check_function(mapper, "to_stream", OF_RECORD)
    step = OperatorStep(
        name=table.plan.named(checked_step_name(name), "KTABLE-TOSTREAM-"),
        site=call_site(),
        parents=(table.step,),
        operation=TableToStream(),
    )
    table.plan.add(step)
    return PlannedStream(table.plan, step, table.key, table.value, table.sources)


def group_by(table: PlannedTable, fn: Function, name: str | None, key: AnySerde, value: AnySerde) -> PlannedTableGroup:
    """The rows grouped under another key."""
    check_function(fn, "group_by", OF_RECORD)
    given, site = checked_step_name(name), call_site()
    step = OperatorStep(
        name=table.plan.named(given, "KTABLE-SELECT-"),
        site=site,
        parents=(table.step,),
        operation=GroupTable(fn=fn),
    )
    table.plan.add(step)
    table.table.send_old_values(force=True)
    own_key, own_value = table.key.changed("group_by", site), table.value.changed("group_by", site)
    return PlannedTableGroup(table.plan, step, own_key.or_given(key), own_value.or_given(value), name)


def suppress(source: PlannedTable, suppressed: Suppressed, name: str | None) -> PlannedTable:
    """The table without the changes that are held back."""
    if not isinstance(suppressed, Suppressed):
        raise TopologyError(f"suppress() takes Suppressed.until_...(), not {suppressed!r}", call_site())
    plan, buffer, site = source.plan, suppressed.buffer, call_site()
    if source.table.is_versioned():
        raise TopologyError("suppress() is for tables without versions: name another kind of store for this one", site)
    node = plan.number("KTABLE-SUPPRESS-") if name is None else check_name(name, "step")
    store = generated_store_name(plan, "KTABLE-SUPPRESS-") if name is None else f"{node}-store"
    wait_ms = suppressed.wait_ms if suppressed.wait_ms is not None else source.table.closing_ms()
    if wait_ms is None:
        raise TopologyError(
            "suppress() until windows close is for tables of windows that close: this one has none", site
        )
    operation = Suppress(
        store=store,
        wait_ms=wait_ms,
        by_window=suppressed.wait_ms is None,
        max_records=buffer.max_records,
        max_bytes=buffer.max_bytes,
        shuts_down=buffer.when_full == "shut_down",
        idle_timeout_ms=suppressed.idle_timeout_ms,
    )
    planned: tuple[PlannedStore, ...] = (buffer_store(buffer, store, source.key, source.value),)
    closes = operation.by_window and operation.idle_timeout_ms is not None
    if closes:
        planned = (*planned, closed_store(planned[0]))
        operation = replace(operation, closed=planned[1].name, session_gap_ms=source.table.session_gap())
    source.table.send_old_values(force=True)
    table = TableState(
        kind="derived", name=node, store=None, materialized=False, make=lambda _: operation, parent=source.table
    )
    step = TableStep(
        name=node,
        site=site,
        parents=(source.step,),
        table=table,
        stores=tuple(each.name for each in planned),
        own_stores=planned,
    )
    if closes:
        table.late = LateSource((step,), source.key, source.value, source.sources)
    plan.add(step)
    return PlannedTable(plan, step, table, source.key, source.value, source.sources)


def _derived(
    source: PlannedTable,
    operator: str,
    prefix: str,
    make: Callable[[str | None], Operation],
    options: Materialized,
    value: PlannedSerde,
    *,
    takes_old_values: bool,
    stores: tuple[tuple[str, ...], tuple[PlannedStore, ...]] = ((), ()),
    has_own_rows: bool = False,
) -> PlannedTable:
    """A table made of each row of another one; ``stores``: names of those that it uses, and those that it brings."""
    name, store, key_given, value_given = options
    used, own = stores
    plan, wanted = source.plan, as_store(store)
    if store is not None and wanted.name is None:
        generated_store_name(plan, prefix)
    key_given, value_given = given_serdes(wanted, key_given, value_given, operator)
    own_key, own_value = source.key.or_given(key_given), value.or_given(value_given)
    node = plan.named(None if name is None else check_name(name, "step"), prefix)
    planned = None
    if wanted.name is not None:
        planned = key_value_store(wanted, wanted.name, own_key, own_value)
    table = TableState(
        kind="derived",
        name=node,
        store=planned,
        materialized=planned is not None,
        make=make,
        parent=source.table,
        sends_old_values=takes_old_values and source.table.send_old_values(force=False),
        has_own_rows=has_own_rows,
    )
    step = TableStep(name=node, site=call_site(), parents=(source.step,), table=table, stores=used, own_stores=own)
    plan.add(step)
    return PlannedTable(plan, step, table, own_key, own_value, source.sources)
