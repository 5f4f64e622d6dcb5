"""Joins of a stream with a global table: each record looks up a row in the copy of this instance.

A record without a value, or for which the key to look up is None, is dropped and counted; a left join keeps a record
that has no key itself.

Source: KStreamGlobalKTableJoin and KStreamKTableJoinProcessor of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamsrt.errors import UserError
from streamsrt.operators.engine.compiler import Compiler
from streamsrt.operators.engine.emitter import Flow, Slot
from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.key_slices import KeySlices, Reach, always, either
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import Cache, stored_view
from topology import serdes
from topology.graph import operations
from topology.graph.nodes import ProcessorNode, StoreSpec
from topology.graph.store_kinds import RowsOfKey, rows_of
from topology.spec.codecs import ProgramSerde


def _store(
    env: Environment, node: ProcessorNode, op: operations.StreamGlobalTableJoin
) -> tuple[StoreSpec, Cache, ProgramSerde]:
    if env.global_stores is None:
        raise UserError(f"{node.name} joins with global store {op.store!r}, which is not available here")
    return env.global_stores.store(op.store)


def _row(c: Compiler, node: ProcessorNode, op: operations.StreamGlobalTableJoin, key: str) -> str:
    """The expression for the value of the row with that key."""
    e, (spec, cache, serde) = c.emitter, _store(c.env, node, op)
    if rows_of(spec) is not RowsOfKey.ONE:
        return f"{e.bind('row_of', stored_view(spec, cache, serde))}({key})[0]"
    raw = f"{e.bind('serialize', serde.serialize)}({key})"
    if serde is serdes.bytes:
        # Bytes are keys as they are.
        raw = f"{key} if type({key}) is bytes else {raw}"
    return f"{e.bind('rows', cache)}[{raw}].value"


def emit_stream_global_table_join(
    c: Compiler, node: ProcessorNode, op: operations.StreamGlobalTableJoin, flow: Flow
) -> None:
    e = c.emitter
    dropped = e.counter(c.counters, "dropped_null")
    key, value = e.obj(flow.key), e.obj(flow.value)
    wanted, found, result = e.temp("w"), e.temp("x"), e.temp("v")
    e.line(f"{wanted} = {e.bind('on', op.on)}({key}, {value})")
    missing = f"({wanted} is None and {key} is not None)" if op.left else f"{wanted} is None"
    with e.block(f"if {value} is None or {missing}:"):
        e.line(f"{dropped} += 1")
    with e.block("else:"):
        row = _row(c, node, op, wanted)
        e.line(f"{found} = None if {wanted} is None else {row}" if op.left else f"{found} = {row}")
        inside = flow.copy()
        joiner, arguments = e.bind("joiner", op.joiner), f"{key}, {value}" if op.with_key else value
        if op.left:
            e.line(f"{result} = {joiner}({arguments}, {found})")
            inside.value = Slot(obj=result)
            c.children(node, inside)
            return
        with e.block(f"if {found} is not None:"):
            e.line(f"{result} = {joiner}({arguments}, {found})")
            inside.value = Slot(obj=result)
            c.children(node, inside)


def make_stream_global_table_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.StreamGlobalTableJoin)
    env, forward, on, joiner, left, with_key = builder.env, made.forward, op.on, op.joiner, op.left, op.with_key
    row_of = stored_view(*_store(env, node, op))

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        table_key = on(key, value)
        if value is None or (table_key is None and not (left and key is None)):
            env.counters.dropped_null += 1
            return
        row = None if table_key is None else row_of(table_key)[0]
        if row is not None or left:
            forward(key, joiner(key, value, row) if with_key else joiner(value, row), timestamp, headers)

    return process


# -------------------------------------------------------------------------------------- records of other keys, in a slice


def _through(op: operations.StreamGlobalTableJoin, reaches: Mapping[str, Reach]) -> Reach | None:
    """Only a left join needs no table to know whether there is a result."""
    if not op.left or either(reaches) is not always:
        return None
    on = op.on
    return lambda key, value: value is not None and (key is None or on(key, value) is not None)


IN_SLICES = KeySlices(through=_through)
