"""Joins of two tables, as processor nodes.

1. A change of one side is joined with the other side's row as it is now. Where the join needs that row and there is none,
   nothing flows; where it does not, and the change is none for the result, nothing flows either.
2. Where both sides' rows were deleted between two flushes of their caches, the first one to be flushed finds no row on the
   other side any more, though there was a result. It sends a deletion then. Kafka Streams does not, and keeps the result.
3. A result has the later timestamp of the two sides. A change without a key is dropped and counted.

Source: KTableKTableInnerJoin, -LeftJoin, -RightJoin, -OuterJoin and -JoinMerger of Kafka Streams.
"""

from __future__ import annotations

from typing import Any

from streamsrt.operators.processor_nodes import PathBuilder, PathNode, Process, makes
from streamsrt.operators.table_views import table_view, view_before_flush
from topology import nodes
from topology.nodes import ProcessorNode


def needs_other(op: nodes.TableTableJoin) -> bool:
    """Whether there is no result without a row on the other side."""
    return op.kind == "inner" or (op.kind == "left" and op.side == "right")


def joins_none(op: nodes.TableTableJoin) -> bool:
    """Whether the other side's row gives a result when this side has none."""
    return op.kind == "outer" or (op.kind == "left" and op.side == "right")


@makes(nodes.TableTableJoin)
def make_table_table_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, nodes.TableTableJoin)
    env, forward, joiner = builder.env, made.forward, op.joiner
    other_row = table_view(env.plan, env.caches, op.table)
    before_flush = view_before_flush(env.plan, env.caches, op.table)
    needs, none_too, sends_old = needs_other(op), joins_none(op), node.sends_old_values
    is_left = op.side == "left"
    newest_only = builder.plan.is_versioned(node.parents[0])

    def joined(own: Any, other: Any) -> Any:
        if own is None and (other is None or not none_too):
            return None
        return joiner(own, other) if is_left else joiner(other, own)

    def process(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
        if key is None:
            env.counters.dropped_null += 1
            return
        if newest_only and not env.is_latest:
            env.counters.dropped_late += 1
            return
        other, other_time = other_row(key)
        if other is None and (needs or (value is None and old is None)):
            if value is None and needs and before_flush(key)[0] is not None:
                forward(key, None, timestamp, headers, None)
            return
        before = joined(old, other) if sends_old else None
        forward(key, joined(value, other), max(timestamp, other_time), headers, before)

    return process


@makes(nodes.TableJoinMerge)
def make_table_join_merge(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, nodes.TableJoinMerge)
    env, forward, store = builder.env, made.forward, op.store
    if store is None:
        return forward
    serialize = env.plan.key_serde(env.plan.specs[store]).serialize
    change = builder.change(store)
    cached = env.plan.is_cached(store)

    def process(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
        change(serialize(key), value, timestamp, headers, -1)
        if not cached:
            forward(key, value, timestamp, headers, old)

    return process
