"""Aggregations in count windows, as processor nodes. The rules are in :mod:`topology.spec.count_windows`."""

from __future__ import annotations

from collections.abc import Callable

from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.state.cache import KeyValueCache
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import cache_of
from topology.graph import nodes
from topology.graph.operations import CountWindowAggregate
from topology.spec.count_windows import OpenWindow, OpenWindows

Step = Callable[[object, object, int, OpenWindows | None], tuple[OpenWindows | None, list[OpenWindow]]]


def step_of(op: CountWindowAggregate) -> Step:
    """``(key, value, timestamp, row) -> (row afterwards, the windows that closed)``; a row of None: no open window."""
    size, advance, initializer, aggregator = op.size, op.advance, op.initializer, op.aggregator
    closes = op.close_when

    def step(
        key: object, value: object, timestamp: int, row: OpenWindows | None
    ) -> tuple[OpenWindows | None, list[OpenWindow]]:
        since, windows = row or (0, ())
        if not windows or since == advance:
            since, windows = 0, (*windows, OpenWindow(0, -1, initializer()))
        still_open: list[OpenWindow] = []
        closed: list[OpenWindow] = []
        for records, latest, before in windows:
            window = OpenWindow(records + 1, max(latest, timestamp), aggregator(key, value, before))
            is_over = window.records == size or (closes is not None and bool(closes(key, window.aggregate)))
            (closed if is_over else still_open).append(window)
        # Without an open window the next record opens one, whatever came before.
        return (OpenWindows(since + 1, tuple(still_open)) if still_open else None), closed

    return step


def make_count_window_aggregate(builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode) -> Process:
    op, env = node.operation, builder.env
    assert isinstance(op, CountWindowAggregate)
    cache = cache_of(KeyValueCache, env.caches, op.store)
    serialize = builder.plan.key_serde(builder.plan.specs[op.store]).serialize
    change, step = builder.change(op.store), step_of(op)

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if key is None or value is None:
            env.counters.dropped_null += 1
            return
        raw = serialize(key)
        before = cache[raw].value
        after, closed = step(key, value, timestamp, before)
        if before is not None or after is not None:
            change(raw, after, timestamp, (), -1)
        for window in closed:
            made.forward(key, window.aggregate, window.timestamp, headers)

    return process
