"""Joins of two tables: their rules, code and processor nodes.

1. A change of one side is joined with the current row of the other side. If the join needs that row and it does not
   exist, nothing is forwarded; nor if the change does not affect the result.
2. If the rows of both sides were deleted between two flushes of their caches, the first one to be flushed finds no row
   on the other side, although there was a result. It forwards a deletion. Kafka Streams does not, and keeps the result.
3. A result has the later timestamp of the two sides. A change without a key is dropped and counted.

Source: KTableKTableInnerJoin, -LeftJoin, -RightJoin, -OuterJoin and -JoinMerger of Kafka Streams.
"""

from __future__ import annotations

from typing import Any

from streamsrt.operators.engine.compiler import Compiler, TooComplex
from streamsrt.operators.engine.emitter import Flow, Slot, WindowedSlot
from streamsrt.operators.engine.plan import table_lookup
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.engine.table_views import table_view, view_before_flush
from streamsrt.operators.kinds.tables import keep
from streamsrt.state.columns import Headers
from topology.graph import operations
from topology.graph.nodes import ProcessorNode
from topology.graph.store_kinds import RowsOfKey, rows_of


def needs_other(op: operations.TableTableJoin) -> bool:
    """Whether there is no result without a row on the other side."""
    return op.kind == "inner" or (op.kind == "left" and op.side == "right")


def joins_none(op: operations.TableTableJoin) -> bool:
    """Whether the other side's row gives a result when this side has none."""
    return op.kind == "outer" or (op.kind == "left" and op.side == "right")


def make_table_table_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.TableTableJoin)
    env, forward, joiner = builder.env, made.forward, op.joiner
    other_row = table_view(env.plan, env.caches, op.table)
    before_flush = view_before_flush(env.plan, env.caches, op.table)
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
            if value is None and needs and before_flush(key)[0] is not None:
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
    change = builder.change(store)
    cached = env.plan.is_cached(store)

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        change(serialize(key), value, timestamp, headers, -1)
        if not cached:
            forward(key, value, timestamp, headers, old)

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
    other, other_ms = _emit_look_up(c, op, flow)
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
            before_flush = e.bind("before_flush", view_before_flush(c.plan, c.caches, op.table))
            flows_on = f"{value} is None and {before_flush}({e.obj(flow.copy().key)})[0] is not None"
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


def _emit_look_up(c: Compiler, op: operations.TableTableJoin, flow: Flow) -> tuple[str, str]:
    """The variables that hold the other side's value and timestamp."""
    e = c.emitter
    other, other_ms = e.temp("x"), e.temp("t")
    lookup = table_lookup(c.plan, op.table)
    plain = lookup is not None and not lookup.steps and rows_of(c.plan.specs[lookup.store]) is RowsOfKey.ONE
    if lookup is None or not plain or isinstance(flow.key, WindowedSlot):
        row_of = e.bind("row_of", table_view(c.plan, c.caches, op.table))
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
    else:
        keep(c, node, op.store, flow)
