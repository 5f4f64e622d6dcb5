"""Counts whole runs of records, without a step per record in Python.

1. This is for a source whose records go only into one ``count()``, per key, or per key and tumbling or hopping window.
   Its store must be cached, and no other operation may use it. No user code runs before the flush.
2. A run is counted as a whole, in the cache (:mod:`streamsrt.state.counts`), with the same results as the generated
   function: records without a key (or, without windows, without a value) and late records are dropped, and stream time
   advances.
3. If a run is too short, has headers, or is spread over too many windows, :meth:`Counting.take` leaves it to the
   generated function. From then on the rows are entries until they are flushed: nothing is counted in two ways at once.
"""

from __future__ import annotations

from bisect import bisect_left

from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.node_meter import NodeMeter
from streamsrt.operators.engine.plan import ResolvedSubtopology, StreamTime, same_bytes
from streamsrt.state.cache import KeyValueCache
from streamsrt.state.counts import Keys
from streamsrt.state.window_cache import WindowCache
from streamsrt.wire.kernels import are_ascending
from streamsrt.wire.records import RecordColumns
from streamsrt.wire.records.columns import Times
from topology import serdes
from topology.graph import operations
from topology.graph.nodes import ProcessorNode, SourceNode
from topology.spec.codecs import has_one_form
from topology.spec.windows import TimeWindows

SHORT_RUN_RECORDS = 32
"""A shorter run is not worth what a call in C costs."""
_WINDOW_RECORDS = 16
"""So many records there must be for each window."""

_Columns = tuple[list[bytes], list[int]]


def counting_of(env: Environment, source: str) -> KeyCounting | WindowCounting | None:
    """Returns the counter for runs of that source; None if rule 1 does not apply."""
    node = _counted_node(env.plan, source)
    if node is None:
        return None
    assert isinstance(node.operation, operations.Aggregate)
    cache, windows, meter = env.caches[node.operation.store], node.operation.windows, env.node_meters.get(node.name)
    if windows is None:
        assert isinstance(cache, KeyValueCache)
        return KeyCounting(env, cache, meter)
    if not isinstance(windows, TimeWindows):
        return None
    assert isinstance(cache, WindowCache)
    return WindowCounting(env, cache, meter, windows, env.stream_times.setdefault(node.name, StreamTime()))


def _counted_node(plan: ResolvedSubtopology, source: str) -> ProcessorNode | None:
    start = plan.node(source)
    assert isinstance(start, SourceNode)
    if len(start.children) != 1:
        return None
    node = plan.node(start.children[0])
    if not isinstance(node, ProcessorNode) or not isinstance(node.operation, operations.Aggregate):
        return None
    op = node.operation
    is_simple = op.aggregation == "count" and not op.emit_on_close and node.late is None
    if not is_simple or len(node.parents) != 1:
        return None
    if node.sends_old_values and op.windows is None:
        return None
    used_by = [n.name for n in plan.subtopology.nodes if isinstance(n, ProcessorNode) and op.store in n.stores]
    if used_by not in ([], [node.name]) or not plan.is_cached(op.store) or not plan.is_plain(op.store):
        return None
    key_serde = plan.key_serde(start)
    if not has_one_form(key_serde) or not same_bytes(key_serde, plan.key_serde(plan.specs[op.store])):
        return None
    stays_bytes = not plan.handlers.reads_all or key_serde is plan.value_serde(start) is serdes.bytes
    return node if stays_bytes else None


def _without(columns: RecordColumns, *, values: bool) -> _Columns:
    """The keys and times of the records that have a key, and a value where ``values``."""
    rows = zip(columns.keys, columns.values, columns.timestamps, strict=True)
    kept = [(k, t) for k, v, t in rows if k is not None and not (values and v is None)]
    return [k for k, _ in kept], [t for _, t in kept]


class KeyCounting:
    """A count per key."""

    def __init__(self, env: Environment, cache: KeyValueCache, meter: NodeMeter | None) -> None:
        self.cache = cache
        self.meter = meter
        self._counters = env.counters

    def take(self, columns: RecordColumns) -> bool:
        """Counts a run; False: it is to be counted record by record, and nothing was done."""
        if not _may_count(columns, self.cache):
            return False
        if not any(columns.has_nulls):
            self.cache.count(columns.quick_keys, columns.quick_times)  # type: ignore[arg-type]
            return True
        some, their_times = _without(columns, values=True)
        self._counters.dropped_null += len(columns) - len(some)
        if some:
            self.cache.count(some, their_times)
        return True


class WindowCounting:
    """A count per key and window."""

    def __init__(
        self, env: Environment, cache: WindowCache, meter: NodeMeter | None, windows: TimeWindows, time: StreamTime
    ) -> None:
        self.cache = cache
        self.meter = meter
        self._counters = env.counters
        self._size_ms = windows.size_ms
        self._advance_ms = windows.advance_ms
        self._lasts_ms = windows.size_ms + windows.grace_ms
        self._overlap = -(-windows.size_ms // windows.advance_ms)
        self._time = time

    def take(self, columns: RecordColumns) -> bool:
        """Counts a run; False: it is to be counted record by record, and nothing was done."""
        if not _may_count(columns, self.cache):
            return False
        keys: Keys = columns.quick_keys  # type: ignore[assignment]
        times = columns.quick_times
        first_ms, last_ms, in_order = int(times[0]), int(times[-1]), _is_in_order(times)
        if not in_order:
            first_ms, last_ms = columns.timestamp_min, columns.timestamp_max
        windows = self._starts(first_ms, last_ms)
        if len(windows) - self._overlap > len(columns) * self._overlap // _WINDOW_RECORDS:
            return False
        has_nulls = columns.has_nulls[0]
        if has_nulls:
            keys, times = _without(columns, values=False)
            self._counters.dropped_null += len(columns) - len(keys)
        if in_order:
            self._count_in_order(keys, times)
        elif not has_nulls and self._are_in_all(windows, first_ms, last_ms):
            self._time.ms = max(self._time.ms, last_ms)
            for start in windows:
                self.cache.count(start, keys, times)
        else:
            self._count_each(keys, times if isinstance(times, list) else times.tolist())
        self.cache.end_run(len(keys))
        return True

    def _starts(self, first_ms: int, last_ms: int) -> range:
        """When the windows start that contain one of these times or a time between them."""
        advance_ms = self._advance_ms
        oldest = max(0, first_ms - self._size_ms + advance_ms) // advance_ms * advance_ms
        return range(oldest, last_ms + 1, advance_ms)

    def _are_in_all(self, windows: range, first_ms: int, last_ms: int) -> bool:
        """Whether each time from ``first_ms`` to ``last_ms`` is in each of the windows, and none is closed."""
        oldest = windows[0]
        return windows[-1] <= first_ms and last_ms < oldest + self._size_ms and oldest + self._lasts_ms > self._time.ms

    def _count_in_order(self, keys: Keys, times: Times) -> None:
        """Counts records that are in the order of time: none closes a window that contains it."""
        if not keys:
            return
        time, size_ms, lasts_ms = self._time, self._size_ms, self._lasts_ms
        first_ms, last_ms = int(times[0]), int(times[-1])
        for start in self._starts(first_ms, last_ms):
            low = 0 if start <= first_ms else _position(times, start)
            high = len(keys) if last_ms < start + size_ms else _position(times, start + size_ms)
            if start + lasts_ms <= time.ms:
                self._counters.dropped_late += high - low
            elif high - low == len(keys):
                self.cache.count(start, keys, times)
            elif low < high:
                self.cache.count(start, keys[low:high], times[low:high], low)
        time.ms = max(time.ms, last_ms)

    def _count_each(self, keys: Keys, timestamps: list[int]) -> None:
        """Counts records that are in no order, one by one."""
        lasts_ms, now_ms = self._lasts_ms, self._time.ms
        windows: dict[int, tuple[list[bytes], list[int], list[int]]] = {}
        late = 0
        for index, (key, time_ms) in enumerate(zip(keys, timestamps, strict=True)):
            if time_ms > now_ms:
                now_ms = time_ms
            for start in self._starts(time_ms, time_ms):
                if start + lasts_ms <= now_ms:
                    late += 1
                    continue
                window = windows.get(start)
                if window is None:
                    window = windows[start] = ([], [], [])
                window[0].append(key)
                window[1].append(time_ms)
                window[2].append(index)
        self._time.ms = now_ms
        self._counters.dropped_late += late
        for start, columns in windows.items():
            self.cache.count(start, *columns)


def _is_in_order(times: Times) -> bool:
    """Whether none is earlier than the one before. That is seen more quickly than the least and the greatest."""
    if isinstance(times, list):
        return times == sorted(times)
    return are_ascending(times)


def _position(times: Times, ms: int) -> int:
    """The first of these times, which are in order, that is not before ``ms``."""
    return bisect_left(times, ms) if isinstance(times, list) else int(times.searchsorted(ms))


def _may_count(columns: RecordColumns, cache: KeyValueCache | WindowCache) -> bool:
    if columns.headers is not None or cache.dirty:
        return False
    return len(columns) >= SHORT_RUN_RECORDS or bool(cache.counts)
