"""Joins of tables: what a KTable can be joined with, and the steps of such a join.

1. Both sides have a store, because a change of one side looks up the row of the other. A left or outer join also needs
   old values from the sides whose rows can be results alone, to tell a deletion from a row that never existed.
2. The result has a store if the program gives one (``store=``); else its rows are computed when they are read.

Source: KTableImpl.doJoin of Kafka Streams.
"""

from __future__ import annotations

from topology.build.materialize import Materialized, as_store, generated_store_name, given_serdes, key_value_store
from topology.build.plan import Plan, PlannedSerde, TableJoinStep, TableState
from topology.build.planned import PlannedTable
from topology.dsl.foreign_key_joins import ForeignKeyJoin, add_foreign_key_join
from topology.graph.operations import Function, TableJoinMerge, TableTableJoin
from topology.graph.operations.joins import JoinKind
from topology.spec.codecs import check_keys
from topology.spec.errors import TopologyError, UnsupportedError, call_site
from topology.spec.functions import OF_JOINER, OF_PARTITIONER, OF_VALUE, check_function
from topology.spec.names import check_name


def join(
    left: PlannedTable,
    operator: str,
    kind: JoinKind,
    other: object,
    joiner: Function,
    options: Materialized,
    foreign_key: Function | None = None,
    other_partitioner: Function | None = None,
) -> PlannedTable:
    """The join of two tables, by their keys or by a foreign key. Raises UnsupportedError where ``other`` is none."""
    right = _right_side(left.plan, operator, other)
    check_function(joiner, operator, OF_JOINER)
    name, store, key_given, value_given = options
    plan, wanted, site = left.plan, as_store(store), call_site()
    given = None if name is None else check_name(name, "step")
    if foreign_key is not None:
        return _join_foreign(left, operator, right, (joiner, foreign_key, other_partitioner), kind, options)
    if other_partitioner is not None:
        raise TopologyError(f"{operator}(other_partitioner=) is for joins with foreign_key=", site)
    store_name = wanted.name
    if store is not None and store_name is None:
        store_name = generated_store_name(plan, "KTABLE-MERGE-")
    key_given, value_given = given_serdes(wanted, key_given, value_given, operator)
    own_key = left.key.or_given(key_given)
    own_value = PlannedSerde().changed(operator, site, keep=False).or_given(value_given)
    merge = plan.named(given, "KTABLE-MERGE-")
    sources = left.sources | right.sources
    check_keys(operator, left.key.serde, right.key.serde)
    plan.copartitioned.append((sources, site))
    if kind != "inner":
        left.table.send_old_values(force=True)
    if kind == "outer":
        right.table.send_old_values(force=True)
    this, that = (plan.suffixed(given, f"-join-{side}", f"KTABLE-JOIN{side.upper()}-") for side in ("this", "other"))
    planned = None if store_name is None else key_value_store(wanted, store_name, own_key, own_value)
    table = TableState(
        kind="join",
        name=merge,
        store=planned,
        materialized=planned is not None,
        make=lambda own: TableJoinMerge(store=own),
        sides=(left.table, right.table),
    )
    step = TableJoinStep(
        name=merge,
        site=site,
        parents=(left.step, right.step),
        table=table,
        this_name=this,
        other_name=that,
        this_operation=TableTableJoin(table=right.table.name, joiner=joiner, kind=kind, side="left"),
        other_operation=TableTableJoin(table=left.table.name, joiner=joiner, kind=kind, side="right"),
        this_stores=left.table.materialize(),
        other_stores=right.table.materialize(),
    )
    plan.add(step)
    return PlannedTable(plan, step, table, own_key, own_value, sources)


def _join_foreign(
    left: PlannedTable,
    operator: str,
    right: PlannedTable,
    functions: tuple[Function, Function, Function | None],
    kind: JoinKind,
    options: Materialized,
) -> PlannedTable:
    joiner, foreign_key, other_partitioner = functions
    check_function(foreign_key, operator, OF_VALUE)
    if other_partitioner is not None:
        check_function(other_partitioner, operator, OF_PARTITIONER)
    name, store, key_given, value_given = options
    wanted, site = as_store(store), call_site()
    key_given, value_given = given_serdes(wanted, key_given, value_given, operator)
    join = ForeignKeyJoin(
        foreign_key=foreign_key,
        joiner=joiner,
        left=kind == "left",
        name=name,
        store=wanted,
        key=left.key.or_given(key_given),
        value=PlannedSerde().changed(operator, site, keep=False).or_given(value_given),
        site=site,
        other_partitioner=other_partitioner,
    )
    return add_foreign_key_join(left, right, join)


def _right_side(plan: Plan, operator: str, other: object) -> PlannedTable:
    if not isinstance(other, PlannedTable):
        raise UnsupportedError(f"{operator}() joins a KTable with a KTable, not with {other!r}", call_site())
    if other.plan is not plan:
        raise TopologyError(f"{operator}() needs both sides from one StreamsBuilder", call_site())
    return other
