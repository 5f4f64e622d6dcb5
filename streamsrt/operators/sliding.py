"""Aggregations over sliding windows: a window for each set of records of a key within a time difference.

1. A record makes at most two windows of its own: the one that ends at its time, and the one that starts right behind it,
   where that holds a record. It is put into every window that it lies in, and makes the right window of the last record
   before it where that one is missing.
2. A window that would start before time 0 starts there: it takes all early records.
3. The timestamp of a row is the latest of its records: that tells what lies in a window without keeping records.
4. The order in which windows are updated is Kafka Streams': right to left, but for early records.

Source: org.apache.kafka.streams.kstream.internals.KStreamSlidingWindowAggregate.
"""

from __future__ import annotations

from typing import Any

from streamsrt.operators.aggregate_nodes import Update, computation, emission, row_update
from streamsrt.operators.closing import ClosingWindows, closing_windows
from streamsrt.operators.plan import StreamTime
from streamsrt.operators.processor_nodes import PathBuilder, PathNode, Process, makes
from streamsrt.state.cache import WindowCache
from topology.nodes import ProcessorNode
from topology.operations import SlidingAggregate
from topology.windows import Windowed


@makes(SlidingAggregate)
def make_sliding_aggregate(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, SlidingAggregate)
    sliding = _Sliding(builder, node, op, made)
    env, difference, grace = builder.env, op.windows.difference_ms, op.windows.grace_ms
    time = env.stream_times.setdefault(node.name, StreamTime())
    serialize = builder.plan.key_serde(builder.plan.specs[op.store]).serialize
    closing = closing_windows(sliding.cache, difference + grace + 1, time) if op.emit_on_close else None
    emit = None if closing is None else emission(builder, op, closing, made)
    sliding.closing = closing

    def process(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
        if key is None or value is None:
            env.counters.dropped_null += 1
            return
        time.ms = max(time.ms, timestamp)
        sliding.closed_before = time.ms - grace
        if timestamp + difference < sliding.closed_before:
            env.counters.dropped_late += 1
            made.drop_late(key, value, timestamp, headers)
            return
        sliding.is_taken = False
        record = (key, serialize(key), value, timestamp, headers)
        if timestamp < difference:
            sliding.early(record)
        else:
            sliding.late_enough(record)
        if not sliding.is_taken:
            made.drop_late(key, value, timestamp, headers)
        if emit is not None:
            emit(time.ms, headers)

    return process


_Record = tuple[Any, bytes, Any, int, Any]
"""Key, its bytes, value, timestamp, headers."""
_Row = tuple[Any, int]
"""Value and timestamp of a window's row."""


class _Sliding:
    """Which windows a record changes. ``closed_before``: a window that ends before then is closed."""

    def __init__(self, builder: PathBuilder, node: ProcessorNode, op: SlidingAggregate, made: PathNode) -> None:
        cache = builder.env.caches[op.store]
        assert isinstance(cache, WindowCache)
        self.cache = cache
        self.closing: ClosingWindows | None = None
        self.closed_before = -1
        self.is_taken = False
        """Whether some window took the record that is processed."""
        self._env = builder.env
        self._difference = op.windows.difference_ms
        self._update: Update = row_update(builder, node, op, made)
        self._change = builder.change(op.store)
        self._holds_back = builder.plan.is_cached(op.store) or op.emit_on_close
        self._forward = made.forward
        self._compute = computation(op)

    def _put(self, record: _Record, start: int) -> None:
        """Puts the record into a window that is there, or into a new one that was empty."""
        key, raw, value, timestamp, headers = record
        if start + self._difference < self.closed_before:
            self._env.counters.dropped_late += 1
            return
        self.is_taken = True
        self._known(raw, start)
        self._update(key, raw, value, timestamp, headers, start)

    def _known(self, raw: bytes, start: int) -> None:
        self.cache.note_start(raw, start)
        if self.closing is not None:
            self.closing.note(start)

    def _rows(self, raw: bytes, low: int, high: int) -> list[tuple[int, Any, int]]:
        """(start, value, timestamp) of the key's windows that start in ``low``..``high``, by start."""
        cache = self.cache
        rows = []
        for start in cache.starts_of(raw, low, high):
            entry = cache[start][raw]
            if entry.value is not None:
                rows.append((start, entry.value, entry.timestamp))
        return rows

    def early(self, record: _Record) -> None:
        """A record whose window would start before time 0."""
        raw, timestamp = record[1], record[3]
        combined: _Row | None = None
        right: _Row | None = None
        previous: int | None = None
        starts = set()
        for start, value, latest in self._rows(raw, 0, timestamp + 1):
            starts.add(start)
            if start == 0:
                combined = (value, latest)
                if latest < timestamp:
                    previous = latest
            elif start <= timestamp:
                right = (value, latest)
                self._put(record, start)
        if right is None and combined is not None and combined[1] > timestamp:
            right = combined
        self._own_right(record, starts, right)
        if previous is not None and previous + 1 not in starts:
            self._put(record, previous + 1)
        self._put(record, 0)

    def late_enough(self, record: _Record) -> None:
        raw, timestamp = record[1], record[3]
        difference = self._difference
        left: _Row | None = None
        right: _Row | None = None
        previous: int | None = None
        has_left = False
        starts = set()
        for start, value, latest in reversed(self._rows(raw, max(0, timestamp - 2 * difference), timestamp + 1)):
            starts.add(start)
            end = start + difference
            if start == timestamp + 1:
                continue
            if end > timestamp:
                right = right or (value, latest)
                self._put(record, start)
            elif end == timestamp:
                has_left = True
                self._put(record, start)
                if latest >= timestamp:
                    return
                previous = latest
            else:
                left, previous = (value, latest), latest
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + difference >= timestamp:
            self._put(record, previous + 1)
        if not has_left:
            holds_previous = previous is not None and timestamp - difference <= previous
            self._own_left(record, left if holds_previous else None)
        self._own_right(record, starts, right)

    def _own_left(self, record: _Record, before: _Row | None) -> None:
        """Makes the window that ends at the record: with what the window before it holds, where that lies in it too."""
        key, raw, value, timestamp, headers = record
        start = timestamp - self._difference
        if before is None or timestamp < self.closed_before:
            self._put(record, start)
            return
        self.is_taken = True
        self._known(raw, start)
        _, after = self._compute(key, value, before[0])
        self._change(raw, after, timestamp, headers, start)
        if not self._holds_back:
            self._forward(Windowed(key, start, timestamp), after, timestamp, headers, None)

    def _own_right(self, record: _Record, starts: set[int], before: _Row | None) -> None:
        """Makes the window right behind the record, with the later records that some window of now holds."""
        key, raw, _, timestamp, headers = record
        start = timestamp + 1
        if before is None or before[1] <= timestamp or start in starts:
            return
        self._known(raw, start)
        value, latest = before
        self._change(raw, value, latest, headers, start)
        if not self._holds_back:
            self._forward(Windowed(key, start, start + self._difference), value, latest, headers, None)
