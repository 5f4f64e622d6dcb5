"""``KTable.group_by`` and its aggregations, and ``transform_values``: operations that need the replaced value.

1. When a change moves a row to another group, its removal from the old group is forwarded before its addition to the
   new one.
2. The subtractor only runs if there is an aggregate; without one, a change that adds nothing deletes the row again.
3. A result has the latest timestamp of the records that it is computed from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamsrt.errors import UserError
from streamsrt.operators.engine.compiler import Compiler
from streamsrt.operators.engine.emitter import Flow, Slot
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.kinds.tables import change_entry, log_and_forward
from streamsrt.operators.kinds.user_processors import Context, begins_with_its_task
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import table_cache
from topology.graph.nodes import ProcessorNode
from topology.graph.operations import GroupTable, TableAggregate, TableTransformValues
from topology.spec.changes import Change
from topology.spec.processor import Record

Changes = tuple[tuple[object, Change], ...]


def regrouping(op: GroupTable) -> Callable[[object, object, object], Changes]:
    """``(key, new, old) -> ((group, change), ...)``."""
    fn, splits = op.fn, op.splits_changes

    def regroup(key: object, new: object, old: object) -> Changes:
        old_group = new_group = None
        if new is not None:
            new_group, new = fn(key, new)
        if old is not None:
            old_group, old = fn(key, old)
        comes = new_group is not None and new is not None
        goes = old_group is not None and old is not None
        if not goes:
            return ((new_group, Change(new, None)),) if comes else ()
        if not comes:
            return ((old_group, Change(None, old)),)
        if new_group == old_group and not splits:
            return ((new_group, Change(new, old)),)
        return (old_group, Change(None, old)), (new_group, Change(new, None))

    return regroup


def make_group_table(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    assert isinstance(node.operation, GroupTable)
    env, regroup = builder.env, regrouping(node.operation)
    newest_only = builder.plan.is_versioned(node.parents[0])

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if newest_only and not env.is_latest:
            return
        for group, change in regroup(key, value, old):
            made.forward(group, change, timestamp, headers)

    return process


def emit_group_table(c: Compiler, node: ProcessorNode, op: GroupTable, flow: Flow) -> None:
    e = c.emitter
    group, change = e.temp("k"), e.temp("v")
    old = "None" if flow.old is None else e.obj(flow.old)
    regroup = e.bind("regroup", regrouping(op))
    with e.block(f"for {group}, {change} in {regroup}({e.obj(flow.key)}, {e.obj(flow.value)}, {old}):"):
        key, value = Slot(obj=group, not_null=True), Slot(obj=change, not_null=True)
        c.children(node, Flow(key, value, flow.time, flow.headers))


# --------------------------------------------------------------------------------------------------------- aggregations


def _adding(
    op: TableAggregate,
) -> tuple[
    Callable[[object, object, Any], object], Callable[[object, object, Any], object]
]:  # aggregates are the program's
    """``(key, value, aggregate) -> aggregate`` for what comes, where the aggregate may be None, and for what goes."""
    adder, subtractor, initializer = op.adder, op.subtractor, op.initializer
    if op.aggregation == "count":
        return (lambda key, value, before: (before or 0) + 1), (lambda key, value, before: before - 1)
    assert adder is not None
    assert subtractor is not None
    if op.aggregation == "reduce":

        def add(key: object, value: object, before: object) -> object:
            return value if before is None else adder(before, value)

        return add, lambda key, value, before: subtractor(before, value)
    assert initializer is not None
    return (lambda key, value, before: adder(key, value, initializer() if before is None else before)), subtractor


def make_table_aggregate(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, TableAggregate)
    add, subtract = _adding(op)
    cache = table_cache(builder.env.caches, op.store)
    serialize = builder.plan.key_serde(builder.plan.specs[op.store]).serialize
    change_row = builder.change(op.store)
    cached = builder.plan.is_cached(op.store)

    def process(key: object, value: Change, timestamp: int, headers: Headers, old: object) -> None:
        raw = serialize(key)
        entry = cache[raw]
        before = after = entry.value
        comes, goes = value
        latest = timestamp
        if goes is not None and before is not None:
            after = subtract(key, goes, after)
            latest = max(timestamp, entry.timestamp)
        if comes is not None:
            after = add(key, comes, after)
            if before is not None:
                latest = max(timestamp, entry.timestamp)
        change_row(raw, after, latest, headers, -1)
        if not cached:
            made.forward(key, after, latest, headers, before if node.sends_old_values else None)

    return process


def emit_table_aggregate(c: Compiler, node: ProcessorNode, op: TableAggregate, flow: Flow) -> None:
    e = c.emitter
    add, subtract = _adding(op)
    raw = e.raw(flow.key, c.plan.key_serde(c.plan.specs[op.store]))
    key = "None" if op.aggregation != "aggregate" else e.obj(flow.key)
    value = e.obj(flow.value)
    entry, before, after, time = e.temp("e"), e.temp("b"), e.temp("a"), e.temp("t")
    comes, goes = e.temp("n"), e.temp("o")
    e.line(f"{comes}, {goes} = {value}")
    e.line(f"{entry} = {e.bind('cache', c.caches[op.store])}[{raw}]")
    e.line(f"{before} = {after} = {entry}.value")
    e.line(f"{time} = {flow.time}")
    with e.block(f"if {goes} is not None and {before} is not None:"):
        call = f"{e.bind('subtract', subtract)}({key}, {goes}, {before})"
        e.line(f"{after} = {before} - 1" if op.aggregation == "count" else f"{after} = {call}")
        e.line(f"if {entry}.timestamp > {time}: {time} = {entry}.timestamp")
    with e.block(f"if {comes} is not None:"):
        call = f"{e.bind('add', add)}({key}, {comes}, {after})"
        e.line(f"{after} = ({after} or 0) + 1" if op.aggregation == "count" else f"{after} = {call}")
        e.line(f"if {before} is not None and {entry}.timestamp > {time}: {time} = {entry}.timestamp")
    result = Flow(flow.key, Slot(obj=after), time, flow.headers)
    c.write_first(op.store, result.value)
    change_entry(c, op.store, entry, after, time, flow.headers)
    if node.sends_old_values:
        result.old = Slot(obj=before)
    log_and_forward(c, node, op.store, result, raw)


# ---------------------------------------------------------------------------------------------------------- transformers


class _TransformerContext(Context):
    """A transformer returns its value: it forwards nothing."""

    def forward(self, record: Record[object, object], child: str | None = None) -> None:
        raise UserError(f"{self.node_name}: a transformer of values returns its result, it does not forward()")


def make_table_transform_values(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, TableTransformValues)
    transformer = op.supplier()
    context = _TransformerContext(builder, node, made, fixed_key=True)

    begins_with_its_task(builder, "a transformer", transformer, lambda: transformer.init(context), made)
    store = op.store
    cache = None if store is None else table_cache(builder.env.caches, store)
    serialize = None if store is None else builder.plan.key_serde(builder.plan.specs[store]).serialize
    change_row = None if store is None else builder.change(store)
    cached = store is not None and builder.plan.is_cached(store)

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        before, context.current = context.current, Record(key, value, timestamp, tuple(headers))
        try:
            new = transformer.transform(key, value)
            old_value = None
            if node.sends_old_values:
                old_value = (
                    transformer.transform(key, old)
                    if cache is None or serialize is None
                    else cache[serialize(key)].value
                )
        finally:
            context.current = before
        if change_row is not None and serialize is not None:
            change_row(serialize(key), new, timestamp, headers, -1)
        if not cached:
            made.forward(key, new, timestamp, headers, old_value)

    return process
