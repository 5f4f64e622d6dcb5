"""Code of aggregations, per key and per key and window.

Windows: a record belongs to each window that contains its timestamp; it is late for a window, dropped and counted, when
the window's end plus grace is not later than stream time. Stream time is tracked per record, this record included; a record
without a key is dropped before it can advance it, one without a value is aggregated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamsrt.operators.engine.compiler import Compiler
from streamsrt.operators.engine.emitter import Flow, Slot, WindowedSlot
from streamsrt.operators.engine.plan import StreamTime
from streamsrt.operators.engine.processor_nodes import PathBuilder
from streamsrt.operators.key_slices import KeySlices, Reach, if_whatever_it_is
from streamsrt.operators.kinds.closing import closing_windows
from streamsrt.operators.kinds.tables import mark_last
from streamsrt.state.kinds import cache_of
from streamsrt.state.window_cache import WindowCache
from streamsrt.state.windowed import pack_start
from topology.graph import operations
from topology.graph.nodes import Node, ProcessorNode
from topology.graph.operations import TableMerge
from topology.spec.windows import END_OF_TIME_MS, TimeWindows, UnlimitedWindows, Windows


def emit_aggregate(c: Compiler, node: ProcessorNode, op: operations.Aggregate, flow: Flow) -> None:
    e = c.emitter
    dropped = e.counter(c.counters, "dropped_null")
    key, value = flow.key.any, flow.value.any
    windows = op.windows
    with e.block(f"if {key} is None{'' if windows else f' or {value} is None'}:"):
        e.line(f"{dropped} += 1")
    with e.block("else:"):
        inside = flow.copy()
        inside.key.not_null = True
        if windows is None:
            inside.value.not_null = True
            raw = e.raw(inside.key, c.plan.key_serde(c.plan.specs[op.store]))
            entry = e.temp("e")
            e.line(f"{entry} = {e.bind('cache', c.caches[op.store])}[{raw}]")
            _update(c, node, op, inside, entry, raw)
        else:
            _emit_windows(c, node, op, windows, inside)


def emit_table_merge(c: Compiler, node: ProcessorNode, op: TableMerge, flow: Flow) -> None:
    c.children(node, flow)


def _emit_windows(c: Compiler, node: ProcessorNode, op: operations.Aggregate, windows: Windows, flow: Flow) -> None:
    e = c.emitter
    time = c.stream_time(node.name)
    with e.block(f"if {flow.time} > {time}:"):
        e.line(f"{time} = {flow.time}")
    if op.emit_on_close:
        # Before the record is put: where a step behind fails, the rows that are to be forwarded are still there.
        _emit_closed(c, node, op, windows, flow)
    raw = e.raw(flow.key, c.plan.key_serde(c.plan.specs[op.store]))
    _read_arguments(c, op, flow)
    start = e.temp("w")
    came = flow.copy()
    if isinstance(windows, UnlimitedWindows):
        with e.block(f"if {flow.time} >= {windows.start_ms}:"):
            e.line(f"{start} = {windows.start_ms}")
            _emit_window(c, node, op, windows, flow.copy(), raw, start)
    elif windows.advance_ms == windows.size_ms:
        inside = flow.copy() if op.emit_on_close else flow
        if _is_reached_once(c, node):
            _emit_tumbling(c, node, op, windows, inside, raw, start)
        else:
            e.line(f"{start} = {flow.time} - {flow.time} % {windows.size_ms}")
            _emit_window(c, node, op, windows, inside, raw, start)
    else:
        back_ms, advance_ms = windows.size_ms - windows.advance_ms, windows.advance_ms
        first = f"max(0, {flow.time} - {back_ms}) // {advance_ms} * {advance_ms}"
        with e.block(f"for {start} in range({first}, {flow.time} + 1, {advance_ms}):"):
            _emit_window(c, node, op, windows, flow.copy(), raw, start)
    if node.late is not None:
        # The last window is the one that closes last: where it is over, all of them are.
        last = f"{flow.time} // {_advance_ms(windows)} * {_advance_ms(windows)}"
        with e.block(f"if {last} + {windows.size_ms + windows.grace_ms} <= {time}:"):
            c.late(node, came)


def _advance_ms(windows: Windows) -> int:
    assert isinstance(windows, TimeWindows), "other windows never close"
    return windows.advance_ms


def _closing(c: Compiler, node: ProcessorNode, op: operations.Aggregate, windows: Windows) -> str:
    lasts_ms, cache = windows.size_ms + windows.grace_ms, cache_of(WindowCache, c.caches, op.store)
    return c.emitter.bind("closing", closing_windows(cache, lasts_ms, c.stream_time_of(node.name)))


def _emit_closed(c: Compiler, node: ProcessorNode, op: operations.Aggregate, windows: Windows, flow: Flow) -> None:
    """Forwards the windows that are closed now."""
    e = c.emitter
    closing, now = _closing(c, node, op, windows), c.stream_time(node.name)
    entry, raw, start, value, time = (e.temp(prefix) for prefix in ("e", "k", "w", "v", "t"))
    with e.block(f"if {now} >= {closing}.next_ms:"), e.block(f"for {entry} in {closing}.close({now}):"):
        e.line(f"{raw}, {start}, {value}, {time} = {entry}.key, {entry}.start, {entry}.value, {entry}.timestamp")
        inner = Slot(raw=raw, serde=c.plan.key_serde(c.plan.specs[op.store]), not_null=True)
        key = WindowedSlot(not_null=True, inner=inner, start=start, end=f"{start} + {windows.size_ms}")
        c.children(node, Flow(key, Slot(obj=value, not_null=True), time, flow.headers))


def _read_arguments(c: Compiler, op: operations.Aggregate, flow: Flow) -> None:
    if op.aggregation != "count":
        c.emitter.obj(flow.value)
    if op.aggregation == "aggregate":
        c.emitter.obj(flow.key)


def _emit_tumbling(
    c: Compiler, node: ProcessorNode, op: operations.Aggregate, windows: TimeWindows, flow: Flow, raw: str, start: str
) -> None:
    """Computes everything that depends only on the window when a record's window differs from that of the previous record.

    That includes whether it is over: what moves stream time past its end is a record of another window.
    """
    e = c.emitter
    end, rows, suffix = e.temp("end"), e.temp("rows"), e.temp("suffix")
    e.setup(f"{start} = {end} = -1", f"{rows} = {suffix} = None")
    with e.block(f"if not {start} <= {flow.time} < {end}:"):
        e.line(f"{start} = {flow.time} - {flow.time} % {windows.size_ms}")
        e.line(f"{end} = {start} + {windows.size_ms}")
        e.line(f"{rows} = None")
        with e.block(f"if {end} + {windows.grace_ms} > {c.stream_time(node.name)}:"):
            _open_window(c, node, op, windows, start, rows, suffix)
    late = e.counter(c.counters, "dropped_late")
    with e.block(f"if {rows} is None:"):
        e.line(f"{late} += 1")
    with e.block("else:"):
        _update_window(c, node, op, flow, raw, start, end, rows, suffix)


def _is_reached_once(c: Compiler, node: ProcessorNode) -> bool:
    """Whether there is one way to the node: on a second one stream time would move between two records of the first."""
    at: Node = node
    while isinstance(at, ProcessorNode):
        if len(at.parents) != 1:
            return False
        at = c.plan.node(at.parents[0])
    return True


def _emit_window(
    c: Compiler, node: ProcessorNode, op: operations.Aggregate, windows: Windows, flow: Flow, raw: str, start: str
) -> None:
    e = c.emitter
    late = e.counter(c.counters, "dropped_late")
    with e.block(f"if {start} + {windows.size_ms + windows.grace_ms} <= {c.stream_time(node.name)}:"):
        e.line(f"{late} += 1")
    with e.block("else:"):
        current, rows, suffix = e.temp("current"), e.temp("rows"), e.temp("suffix")
        e.setup(f"{current} = {rows} = {suffix} = None")
        with e.block(f"if {start} != {current}:"):
            e.line(f"{current} = {start}")
            _open_window(c, node, op, windows, start, rows, suffix)
        _update_window(c, node, op, flow, raw, start, f"{start} + {windows.size_ms}", rows, suffix)


def _open_window(
    c: Compiler, node: ProcessorNode, op: operations.Aggregate, windows: Windows, start: str, rows: str, suffix: str
) -> None:
    e = c.emitter
    e.line(f"{rows} = {e.bind('cache', c.caches[op.store])}[{start}]")
    if op.emit_on_close:
        e.line(f"{_closing(c, node, op, windows)}.note({start})")
    if not c.plan.is_cached(op.store):
        e.line(f"{suffix} = {e.bind('pack_start', pack_start)}({start}) + b'\\0\\0\\0\\0'")


def _update_window(
    c: Compiler,
    node: ProcessorNode,
    op: operations.Aggregate,
    flow: Flow,
    raw: str,
    start: str,
    end: str,
    rows: str,
    suffix: str,
) -> None:
    e = c.emitter
    entry, store_key, logs = e.temp("e"), raw, not c.plan.is_cached(op.store)
    e.line(f"{entry} = {rows}[{raw}]")
    if logs:
        store_key = e.temp("r")
        e.line(f"{store_key} = {raw} + {suffix}")
    inside = flow.copy()
    windowed = WindowedSlot(not_null=True, inner=inside.key, start=start, end=end)
    windowed.store_key = store_key if logs else None
    _update(c, node, op, inside, entry, store_key, windowed)


def _update(
    c: Compiler,
    node: ProcessorNode,
    op: operations.Aggregate,
    flow: Flow,
    entry: str,
    store_key: str,
    windowed: WindowedSlot | None = None,
) -> None:
    """Computes the new aggregate, writes it to the entry, and forwards it where the store is not cached."""
    e = c.emitter
    cached = c.plan.is_cached(op.store)
    if cached and op.aggregation == "count":
        _count(c, op, flow, entry)
        return
    before, after, time = e.temp("b"), e.temp("a"), e.temp("t")
    e.line(f"{before} = {entry}.value")
    # ``before`` may have been replaced by the initial value, so it can't serve as the row's old value.
    was = before if not (node.sends_old_values and not cached) else f"{entry}.value"
    _compute(c, op, flow, before, after, initial_is_old=node.sends_old_values and not cached)
    result = Flow(windowed or flow.key, Slot(obj=after), time, flow.headers)
    c.write_first(op.store, result.value)
    _mark_dirty(c, op, entry, was)
    # A deleted row starts over, regardless of its old timestamp. A deletion has its record's timestamp.
    deletes = op.aggregation != "count"
    anew = f" or {after} is None" if deletes and cached else ""
    with e.block(f"if {flow.time} > {entry}.timestamp or {was} is None{anew}:"):
        e.line(f"{entry}.timestamp = {flow.time}")
    e.line(f"{entry}.value = {after}")
    mark_last(c, op.store, entry, flow.headers)
    if cached:
        return
    e.line(f"{time} = {entry}.timestamp")
    logged = time
    if deletes:
        logged = e.temp("t")
        e.line(f"{logged} = {flow.time} if {after} is None else {time}")
    if node.sends_old_values:
        result.old = Slot(obj=before)
    c.log(op.store, store_key, result, logged)
    if not op.emit_on_close:
        c.children(node, result)


def _count(c: Compiler, op: operations.Aggregate, flow: Flow, entry: str) -> None:
    """A count that a cache holds back: the same as the general case, with one test less."""
    e = c.emitter
    before = e.temp("b")
    e.line(f"{before} = {entry}.value")
    with e.block(f"if {before} is None:"):
        e.line(f"{entry}.value = 1")
        e.line(f"{entry}.timestamp = {flow.time}")
    with e.block("else:"):
        e.line(f"{entry}.value = {before} + 1")
        with e.block(f"if {flow.time} > {entry}.timestamp:"):
            e.line(f"{entry}.timestamp = {flow.time}")
    _mark_dirty(c, op, entry, before)
    mark_last(c, op.store, entry, flow.headers)


def _mark_dirty(c: Compiler, op: operations.Aggregate, entry: str, was: str) -> None:
    e = c.emitter
    dirty = c.dirty_list(op.store)
    with e.block(f"if not {entry}.dirty:"):
        e.line(f"{entry}.dirty = True")
        e.line(f"{entry}.old = {was}")
        e.line(f"{dirty}({entry})")
        if op.windows is not None:
            cache = cache_of(WindowCache, c.caches, op.store)
            changed_at = e.bind("changed_at", cache.changed_at)
            newest = f"newest_{changed_at}"
            e.setup(f"{newest} = -1")
            with e.block(f"if {entry}.start > {newest}:"):
                e.line(f"{newest} = {entry}.start")
                e.line(f"{changed_at}({newest})")


def _compute(
    c: Compiler, op: operations.Aggregate, flow: Flow, before: str, after: str, *, initial_is_old: bool
) -> None:
    e = c.emitter
    if op.aggregation == "count":
        if initial_is_old:
            with e.block(f"if {before} is None:"):
                e.line(f"{before} = 0")
            e.line(f"{after} = {before} + 1")
        else:
            e.line(f"{after} = 1 if {before} is None else {before} + 1")
        return
    value = e.obj(flow.value)
    if op.aggregation == "reduce":
        e.line(f"{after} = {value} if {before} is None else {e.bind('reducer', op.aggregator)}({before}, {value})")
        return
    initial = before if initial_is_old else e.temp("i")
    if initial != before:
        e.line(f"{initial} = {before}")
    with e.block(f"if {initial} is None:"):
        e.line(f"{initial} = {e.bind('initializer', op.initializer)}()")
    e.line(f"{after} = {e.bind('aggregator', op.aggregator)}({e.obj(flow.key)}, {value}, {initial})")


# -------------------------------------------------------------------------------------- records of other keys, in a slice

CLOSES_WITH_HEADERS = (
    "forwards windows when they close, with the headers of the record that closes them, which may be one of any key. "
    "suppress(Suppressed.until_window_closes()) can be sliced"
)


def _refusal(op: operations.Aggregate) -> str | None:
    return CLOSES_WITH_HEADERS if op.emit_on_close else None


def _through(op: operations.Aggregate, reaches: Mapping[str, Reach]) -> Reach | None:
    """A record that moves stream time on is late for no window of fixed size."""
    return if_whatever_it_is(op, reaches) if isinstance(op.windows, TimeWindows) else None


def _passing(builder: PathBuilder, node: ProcessorNode) -> Callable[[int], None]:
    op = node.operation
    assert isinstance(op, operations.Aggregate)
    time = builder.env.stream_times.setdefault(node.name, StreamTime())
    cache, windows = cache_of(WindowCache, builder.env.caches, op.store), op.windows

    def pass_time(ms: int) -> None:
        time.ms = max(time.ms, ms)
        # The window that the record would have opened: rows expire by it.
        if isinstance(windows, TimeWindows):
            cache.newest_start = max(cache.newest_start, ms - ms % windows.advance_ms)
        elif isinstance(windows, UnlimitedWindows) and ms >= windows.start_ms:
            cache.newest_start = max(cache.newest_start, windows.start_ms)

    return pass_time


def _slack_ms(op: operations.Aggregate) -> int:
    """Each window of a record ends behind it, and closes when its grace is over."""
    return op.windows.grace_ms if isinstance(op.windows, TimeWindows) else END_OF_TIME_MS


IN_SLICES = KeySlices(through=_through, pass_time=_passing, slack_ms=_slack_ms, refusal_of=_refusal)
