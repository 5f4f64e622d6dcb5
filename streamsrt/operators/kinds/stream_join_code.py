"""Code of joins of two streams within windows. The rules are those of :mod:`streamsrt.operators.kinds.stream_joins`."""

from __future__ import annotations

from streamsrt.operators.engine.compiler import Compiler
from streamsrt.operators.engine.emitter import Flow, Slot
from streamsrt.operators.kinds.stream_joins import JoinSide, SelfJoin, own_store_of
from streamsrt.state.duplicates import DuplicatesCache
from streamsrt.state.kinds import cache_of
from topology.graph import operations
from topology.graph.nodes import ProcessorNode


def emit_join_window(c: Compiler, node: ProcessorNode, op: operations.StreamJoinWindow, flow: Flow) -> None:
    e = c.emitter
    spec, cache = c.plan.specs[op.store], cache_of(DuplicatesCache, c.caches, op.store)
    # Set here, so that later steps can use them, too.
    key = e.raw(flow.key, c.plan.key_serde(spec))
    value, raw = e.obj(flow.value), e.written(flow.value, c.plan.value_serde(spec))
    c.children(node, flow)
    with e.block(f"if {key} is not None:"):
        store_key = e.temp("r")
        e.line(f"{store_key} = {e.bind('put', cache.put)}({key}, {flow.time}, {value}, {raw})")
        c.log(op.store, store_key, flow, flow.time, headers=True)
        if node.late is not None:
            kept = e.bind("kept", cache)
            with e.block(f"if {raw} is not None and {flow.time} <= {kept}.newest_ms - {cache.retention_ms}:"):
                c.late(node, flow)


def _observe(c: Compiler, flow: Flow, time: str) -> None:
    with c.emitter.block(f"if {flow.time} > {time}.ms:"):
        c.emitter.line(f"{time}.ms = {flow.time}")


def _drop_if(c: Compiler, test: str) -> None:
    dropped = c.emitter.counter(c.counters, "dropped_null")
    with c.emitter.block(f"if {test}:"):
        c.emitter.line(f"{dropped} += 1")


def _joined(
    c: Compiler,
    node: ProcessorNode,
    op: operations.StreamStreamJoin | operations.StreamSelfJoin,
    key: Slot,
    values: str,
    time: str,
    headers: str | None,
) -> None:
    e = c.emitter
    result = e.temp("v")
    with_key = f"{e.obj(key)}, " if op.with_key else ""
    e.line(f"{result} = {e.bind('joiner', op.joiner)}({with_key}{values})")
    c.children(node, Flow(key, Slot(obj=result), time, headers))


def emit_stream_join(c: Compiler, node: ProcessorNode, op: operations.StreamStreamJoin, flow: Flow) -> None:
    e = c.emitter
    side = JoinSide(c.env, op, own_store_of(c.plan, node))
    _observe(c, flow, e.bind("time", side.time))
    key, value = flow.key.any, flow.value.any
    _drop_if(c, f"{value} is None" if op.emits_unmatched else f"{key} is None or {value} is None")
    with e.block("else:"):
        inside = flow.copy()
        inside.value.not_null = True
        inside.key.not_null = inside.key.not_null or not op.emits_unmatched
        if op.emits_unmatched or side.unmatched is not None:
            _emit_results(c, node, op, side, inside)
        else:
            _emit_matches(c, node, op, side, inside)


def _emit_matches(
    c: Compiler, node: ProcessorNode, op: operations.StreamStreamJoin, side: JoinSide, flow: Flow
) -> None:
    """An inner join: only the matches on the other side."""
    e = c.emitter
    raw, time = e.raw(flow.key, side.key_serde), flow.time
    rows, other_ms, other, at_ms = (e.temp(prefix) for prefix in ("rows", "w", "x", "t"))
    e.line(f"{rows} = {e.bind('cache', side.other)}[{raw}]")
    with e.block(f"if {rows}:"):
        value = e.obj(flow.value)
        if op.with_key:
            e.obj(flow.key)
        until = f"{time} + {op.after_ms}" if op.after_ms >= 0 else f"max(0, {time} - {-op.after_ms})"
        found = f"{e.bind('within', side.other.within)}({rows}, {time} - {op.before_ms}, {until})"
        with e.block(f"for {other_ms}, _, {other} in {found}:"):
            e.line(f"{at_ms} = {time} if {time} > {other_ms} else {other_ms}")
            values = f"{value}, {other}" if side.is_left else f"{other}, {value}"
            _joined(c, node, op, flow.copy().key, values, at_ms, flow.headers)


def _emit_results(
    c: Compiler, node: ProcessorNode, op: operations.StreamStreamJoin, side: JoinSide, flow: Flow
) -> None:
    """A left or outer join: unmatched records that have expired come before the record's own results."""
    e = c.emitter
    raw = e.raw(flow.key, side.key_serde)
    value, raw_value = e.obj(flow.value), e.written(flow.value, side.own_serde) if op.emits_unmatched else "b''"
    if side.unmatched is not None:
        e.finish(f"{e.bind('unmatched', side.unmatched)}.send_changes()")
    of_raw, left, right, at_ms = (e.temp(prefix) for prefix in ("k", "l", "x", "t"))
    call = f"{e.bind('results', side.results)}({raw}, {value}, {raw_value}, {flow.time}, {flow.headers or '()'})"
    with e.block(f"for {of_raw}, {left}, {right}, {at_ms} in {call}:"):
        key = Slot(raw=of_raw, serde=side.key_serde, not_null=flow.key.not_null)
        if flow.key.obj not in (None, flow.key.raw):
            # A key that a function made need not be what its bytes give.
            key.obj = e.temp("k")
            read = e.bind("deserialize", side.key_serde.deserialize)
            own = f"{of_raw} is None or {of_raw} is {raw}"
            e.line(f"{key.obj} = {flow.key.obj} if {own} else {read}({of_raw})")
        _joined(c, node, op, key, f"{left}, {right}", at_ms, flow.headers)


def emit_self_join(c: Compiler, node: ProcessorNode, op: operations.StreamSelfJoin, flow: Flow) -> None:
    e = c.emitter
    join = SelfJoin(c.env, op)
    _drop_if(c, f"{flow.key.any} is None or {flow.value.any} is None")
    with e.block("else:"):
        inside = flow.copy()
        inside.key.not_null = inside.value.not_null = True
        _observe(c, inside, e.bind("time", join.time))
        raw, value = e.raw(inside.key, join.key_serde), e.obj(inside.value)
        left, right, at_ms = (e.temp(prefix) for prefix in ("l", "x", "t"))
        call = f"{e.bind('results', join.results)}({raw}, {value}, {inside.time})"
        with e.block(f"for {left}, {right}, {at_ms} in {call}:"):
            _joined(c, node, op, inside.copy().key, f"{left}, {right}", at_ms, inside.headers)
