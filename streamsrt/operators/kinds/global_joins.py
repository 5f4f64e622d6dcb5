"""Joins of a stream with a global table, as processor nodes: each record looks up a row in the copy of this instance.

A record without a value, or for which the key to look up is None, is dropped and counted; a left join keeps a record
that has no key itself.

Source: KStreamGlobalKTableJoin and KStreamKTableJoinProcessor of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamsrt.errors import UserError
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.key_slices import KeySlices, Reach, always, either
from streamsrt.state.columns import Headers
from topology.graph import operations
from topology.graph.nodes import ProcessorNode


def make_stream_global_table_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.StreamGlobalTableJoin)
    env, forward, on, joiner, left, with_key = builder.env, made.forward, op.on, op.joiner, op.left, op.with_key
    if env.global_stores is None:
        raise UserError(f"{node.name} joins with global store {op.store!r}, which is not available here")
    row_of = env.global_stores.view(op.store)

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
