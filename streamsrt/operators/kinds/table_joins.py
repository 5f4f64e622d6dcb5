"""Joins of two tables: their rules, code and processor nodes.

1. A change of one side is joined with the current row of the other side. If the join needs that row and it does not
   exist, nothing is forwarded; nor if the change does not affect the result.
2. Each result that was forwarded is replaced or deleted, whatever caches hold back. So a side that was deleted forwards a
   deletion where the other side's row is gone only since the last flush, or comes from the same store. Kafka Streams
   keeps the result of an inner join then.
3. A side is joined with the other side's row as it was last forwarded, without what a cache still holds back, where that
   shows: where old values are sent, which would else be of results that nobody has seen (KAFKA-4609), and where changes
   of this side are not held back themselves. Kafka Streams takes the newest row.
4. A result has the later timestamp of the two sides. A change without a key is dropped and counted.

Source: KTableKTableInnerJoin, -LeftJoin, -RightJoin, -OuterJoin and -JoinMerger of Kafka Streams.
"""

from __future__ import annotations

from typing import Any

from streamsrt.operators.engine.compiler import Compiler, TooComplex
from streamsrt.operators.engine.emitter import Flow, Slot, WindowedSlot
from streamsrt.operators.engine.plan import ResolvedSubtopology, table_lookup
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.engine.table_views import stores_of_rows, table_view, view_as_forwarded
from streamsrt.operators.kinds.tables import keep, own_old
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import table_cache
from topology.graph import operations
from topology.graph.nodes import ProcessorNode
from topology.graph.store_kinds import RowsOfKey, rows_of


def needs_other(op: operations.TableTableJoin) -> bool:
    """Whether there is no result without a row on the other side."""
    return op.kind == "inner" or (op.kind == "left" and op.side == "right")


def joins_none(op: operations.TableTableJoin) -> bool:
    """Whether the other side's row gives a result when this side has none."""
    return op.kind == "outer" or (op.kind == "left" and op.side == "right")


def _joins_forwarded(plan: ResolvedSubtopology, node: ProcessorNode, op: operations.TableTableJoin) -> bool:
    """Whether a side is joined with the other side's row as it was last forwarded (rule 3)."""
    own, other = stores_of_rows(plan, node.parents[0]), stores_of_rows(plan, op.table)
    held_back = any(map(plan.is_cached, other))
    return held_back and (node.sends_old_values or not all(map(plan.is_cached, own)))


def _deletes_both(plan: ResolvedSubtopology, node: ProcessorNode, op: operations.TableTableJoin) -> bool:
    """Whether this side deletes the result where both sides' rows are made out of one store's, and so are gone together.

    One side of an inner join is enough; the left one of a left or outer join deletes its results anyway.
    """
    if op.kind != "inner" or op.side != "left":
        return False
    return not stores_of_rows(plan, node.parents[0]).isdisjoint(stores_of_rows(plan, op.table))


def make_table_table_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.TableTableJoin)
    env, forward, joiner = builder.env, made.forward, op.joiner
    forwarded_row = view_as_forwarded(env.plan, env.caches, op.table)
    other_row = forwarded_row if _joins_forwarded(env.plan, node, op) else table_view(env.plan, env.caches, op.table)
    deletes_both = _deletes_both(env.plan, node, op)
    needs, none_too, sends_old = needs_other(op), joins_none(op), node.sends_old_values
    is_left = op.side == "left"
    newest_only = builder.plan.is_versioned(node.parents[0])

    def joined(own: object, other: object) -> Any:
        if own is None and (other is None or not none_too):
            return None
        return joiner(own, other) if is_left else joiner(other, own)

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if key is None:
            env.counters.dropped_null += 1
            return
        if newest_only and not env.is_latest:
            env.counters.dropped_outdated += 1
            return
        other, other_time = other_row(key)
        if other is None and (needs or (value is None and old is None)):
            if value is None and needs and (deletes_both or forwarded_row(key)[0] is not None):
                forward(key, None, timestamp, headers, None)
            return
        before = joined(old, other) if sends_old else None
        forward(key, joined(value, other), max(timestamp, other_time), headers, before)

    return process


def make_table_join_merge(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.TableJoinMerge)
    env, forward, store = builder.env, made.forward, op.store
    if store is None:
        return forward
    serialize = env.plan.key_serde(env.plan.specs[store]).serialize
    change, cache = builder.change(store), table_cache(env.caches, store)
    cached = env.plan.is_cached(store)
    sends_old = node.sends_old_values and not cached

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        raw = serialize(key)
        before = cache[raw].value if sends_old else None
        change(raw, value, timestamp, headers, -1)
        if not cached:
            forward(key, value, timestamp, headers, before)

    return process


def emit_table_table_join(c: Compiler, node: ProcessorNode, op: operations.TableTableJoin, flow: Flow) -> None:
    e = c.emitter
    if c.plan.is_versioned(node.parents[0]):
        raise TooComplex(f"{node.name}: only the newest versions are joined")
    dropped = e.counter(c.counters, "dropped_null")
    with e.block(f"if {flow.key.any} is None:"):
        e.line(f"{dropped} += 1")
    with e.block("else:"):
        inside = flow.copy()
        inside.key.not_null = True
        _emit_joined(c, node, op, inside)


def _emit_joined(c: Compiler, node: ProcessorNode, op: operations.TableTableJoin, flow: Flow) -> None:
    e = c.emitter
    other, other_ms = _emit_look_up(c, node, op, flow)
    value = e.obj(flow.value)
    old = "None" if flow.old is None else e.obj(flow.old)
    new, before, at_ms, flows = (e.temp(prefix) for prefix in ("v", "b", "t", "flows"))
    joiner = e.bind("joiner", op.joiner)

    def joined(own: str) -> str:
        if own == "None" and not joins_none(op):
            return "None"
        none = f"{own} is None and {other} is None" if joins_none(op) else f"{own} is None"
        result = f"{joiner}({own}, {other})" if op.side == "left" else f"{joiner}({other}, {own})"
        return f"None if {none} else {result}"

    nothing = f"{other} is None"
    if not needs_other(op):
        nothing += f" and {value} is None and {old} is None"
    with e.block(f"if {nothing}:"):
        e.line(f"{new} = {before} = None")
        e.line(f"{at_ms} = {flow.time}")
        flows_on = "False"
        if needs_other(op):
            flows_on = f"{value} is None"
            if not _deletes_both(c.plan, node, op):
                forwarded = e.bind("forwarded", view_as_forwarded(c.plan, c.caches, op.table))
                flows_on += f" and {forwarded}({e.obj(flow.copy().key)})[0] is not None"
        e.line(f"{flows} = {flows_on}")
    with e.block("else:"):
        e.line(f"{flows} = True")
        if node.sends_old_values:
            e.line(f"{before} = {joined(old)}")
        e.line(f"{new} = {joined(value)}")
        e.line(f"{at_ms} = {flow.time} if {flow.time} > {other_ms} else {other_ms}")
    with e.block(f"if {flows}:"):
        result = flow.copy()
        result.value, result.time, result.old = Slot(obj=new), at_ms, None
        if node.sends_old_values:
            result.old = Slot(obj=before)
        c.children(node, result)


def _emit_look_up(c: Compiler, node: ProcessorNode, op: operations.TableTableJoin, flow: Flow) -> tuple[str, str]:
    """The variables that hold the other side's value and timestamp."""
    e = c.emitter
    other, other_ms = e.temp("x"), e.temp("t")
    view = view_as_forwarded if _joins_forwarded(c.plan, node, op) else table_view
    lookup = table_lookup(c.plan, op.table)
    plain = lookup is not None and not lookup.steps and rows_of(c.plan.specs[lookup.store]) is RowsOfKey.ONE
    if view is view_as_forwarded or lookup is None or not plain or isinstance(flow.key, WindowedSlot):
        row_of = e.bind("row_of", view(c.plan, c.caches, op.table))
        e.line(f"{other}, {other_ms} = {row_of}({e.obj(flow.key)})")
        return other, other_ms
    key, entry = e.raw(flow.key, c.plan.key_serde(c.plan.specs[lookup.store])), e.temp("e")
    e.line(f"{entry} = {e.bind('cache', c.caches[lookup.store])}[{key}]")
    e.line(f"{other} = {entry}.value")
    # What was deleted has no time any more.
    e.line(f"{other_ms} = -1 if {other} is None else {entry}.timestamp")
    return other, other_ms


def emit_table_join_merge(c: Compiler, node: ProcessorNode, op: operations.TableJoinMerge, flow: Flow) -> None:
    if op.store is None:
        c.children(node, flow)
        return
    kept = flow.copy()
    if node.sends_old_values and not c.plan.is_cached(op.store):
        kept.old = own_old(c, op.store, flow)
    keep(c, node, op.store, kept)
