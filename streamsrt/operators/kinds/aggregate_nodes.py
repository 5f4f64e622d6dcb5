"""``count``, ``reduce`` and ``aggregate`` of a stream, record by record: per key, and per key and window.

This is what runs where there is no generated code (:mod:`streamsrt.operators.kinds.aggregate`), by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from streamsrt.operators.engine.plan import StreamTime
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.kinds.closing import ClosingWindows, closing_windows
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import cache_of
from streamsrt.state.versioned_cache import VersionPut
from streamsrt.state.window_cache import WindowCache
from topology.graph import nodes, operations
from topology.graph.operations import SessionAggregate, SlidingAggregate
from topology.spec.windows import TimeWindows, UnlimitedWindows, Windowed


def computation(
    op: operations.Aggregate | SlidingAggregate | SessionAggregate,
) -> Callable[[object, object, Any], tuple[Any, Any]]:  # an aggregate is what the program makes of it
    """Returns the function that adds a record to an aggregate: ``(key, value, before) -> (initial, after)``.

    ``before``: the aggregate so far, None if there is none; ``initial``: the same, or what a new aggregate starts with.
    """
    aggregator, initializer = op.aggregator, op.initializer
    if op.aggregation == "count":
        return lambda key, value, before: (before or 0, (before or 0) + 1)
    assert aggregator is not None
    if op.aggregation == "reduce":
        return lambda key, value, before: (before, value if before is None else aggregator(before, value))
    assert initializer is not None

    def aggregate(key: object, value: object, before: object) -> tuple[object, object]:
        initial = initializer() if before is None else before
        return initial, aggregator(key, value, initial)

    return aggregate


def starts_of(windows: TimeWindows | UnlimitedWindows) -> Callable[[int], Iterable[int]]:
    """Returns a function from a timestamp to the starts of the windows that contain it, ascending; all in milliseconds."""
    if isinstance(windows, UnlimitedWindows):
        first = windows.start_ms
        return lambda timestamp: (first,) if timestamp >= first else ()
    size, advance = windows.size_ms, windows.advance_ms
    return lambda timestamp: range(max(0, timestamp - size + advance) // advance * advance, timestamp + 1, advance)


Update = Callable[[object, bytes, object, int, Headers, int], None]
"""``(key, its bytes, value, timestamp, headers, start of the window or -1)``."""


def make_aggregate(builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.Aggregate)
    env, update = builder.env, row_update(builder, node, op, made)
    if op.windows is not None:
        return _windowed(builder, node, op, op.windows, update, made)
    serialize = builder.plan.key_serde(builder.plan.specs[op.store]).serialize

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if key is None or value is None:
            env.counters.dropped_null += 1
            return
        update(key, serialize(key), value, timestamp, headers, -1)

    return process


def make_table_merge(builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode) -> Process:
    return made.forward


def row_update(
    builder: PathBuilder, node: nodes.ProcessorNode, op: operations.Aggregate | SlidingAggregate, made: PathNode
) -> Update:
    """Returns the function that puts a value into a row's aggregate, logs the change and forwards it."""
    env = builder.env
    cache: Any = env.caches[op.store]  # by key, or by window and key
    compute = computation(op)
    change = builder.change(op.store)
    plain_rows = builder.plan.specs[op.store].plain_rows
    holds_back = builder.plan.is_cached(op.store) or op.emit_on_close
    size_ms = None if op.windows is None else op.windows.size_ms

    def update(key: object, raw: bytes, value: object, timestamp: int, headers: Headers, start: int) -> None:
        entry = cache[raw] if size_ms is None else cache[start][raw]
        before = entry.value
        initial, after = compute(key, value, before)
        latest = timestamp if before is None or plain_rows else max(timestamp, entry.timestamp)
        put = change(raw, after, timestamp if after is None else latest, headers, start)
        if holds_back:
            return
        if size_ms is not None:
            key = Windowed(key, start, start + size_ms)
        old = initial if node.sends_old_values else None
        if isinstance(put, VersionPut):
            env.forward_version(put, made.forward, key, after, latest, headers, old)
        else:
            made.forward(key, after, latest, headers, old)

    return update


def emission(
    builder: PathBuilder, op: operations.Aggregate | SlidingAggregate, closing: ClosingWindows, made: PathNode
) -> Callable[[int, Headers], None]:
    """Returns ``(stream_time_ms, headers) -> None``, which forwards the rows of the windows that are closed by then."""
    assert op.windows is not None
    size_ms = op.windows.size_ms
    deserialize = builder.plan.key_serde(builder.plan.specs[op.store]).deserialize

    def emit(now_ms: int, headers: Headers) -> None:
        if now_ms >= closing.next_ms:
            for entry in closing.close(now_ms):
                key = Windowed(deserialize(entry.key), entry.start, entry.start + size_ms)
                made.forward(key, entry.value, entry.timestamp, headers)

    return emit


def _windowed(
    builder: PathBuilder,
    node: nodes.ProcessorNode,
    op: operations.Aggregate,
    windows: TimeWindows | UnlimitedWindows,
    update: Update,
    made: PathNode,
) -> Process:
    env = builder.env
    serialize = builder.plan.key_serde(builder.plan.specs[op.store]).serialize
    time = env.stream_times.setdefault(node.name, StreamTime())
    starts, lasts_ms = starts_of(windows), windows.size_ms + windows.grace_ms
    closing = None
    if op.emit_on_close:
        closing = closing_windows(cache_of(WindowCache, env.caches, op.store), lasts_ms, time)
    emit = None if closing is None else emission(builder, op, closing, made)

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if key is None:
            env.counters.dropped_null += 1
            return
        time.ms = max(time.ms, timestamp)
        if emit is not None:
            # Before the record is put: where a step behind fails, the rows that are to be forwarded are still there.
            emit(time.ms, headers)
        raw = serialize(key)
        is_late = False
        for start in starts(timestamp):
            if start + lasts_ms <= time.ms:
                env.counters.dropped_late += 1
                is_late = True
            else:
                is_late = False
                update(key, raw, value, timestamp, headers, start)
                if closing is not None:
                    closing.note(start)
        # The last window is the one that closes last: where it is over, all of them are.
        if is_late:
            made.drop_late(key, value, timestamp, headers)

    return process
