"""Aggregations over sliding windows: a window for each set of records of a key within a time difference.

1. A record creates at most two windows: one that ends at its time, and one that starts just after it, if that would
   contain a record. It is added to every window that contains its time, and it creates the missing right window of the
   last record before it.
2. A window that would start before time 0 starts there: it contains all early records.
3. The timestamp of a row is the latest of its records: so the contents of a window are known without storing records.
4. Windows are updated in the order of Kafka Streams: right to left, except for early records.

Source: org.apache.kafka.streams.kstream.internals.KStreamSlidingWindowAggregate.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from streamsrt.operators.engine.compiler import Compiler
from streamsrt.operators.engine.emitter import Flow, Slot, WindowedSlot
from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.plan import StreamTime
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.kinds.aggregate_nodes import computation, emission
from streamsrt.operators.kinds.closing import closing_windows
from streamsrt.state.cache import Entry
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import cache_of
from streamsrt.state.sliding_cache import SlidingCache
from streamsrt.state.windowed import pack_start
from topology.graph.nodes import ProcessorNode
from topology.graph.operations import SlidingAggregate
from topology.graph.row_windows import closes_after_ms
from topology.spec.windows import Windowed

_by_start = attrgetter("start")


class SlidingChange(NamedTuple):
    """The change of a window. ``timestamp``: of its row; ``logged_ms``: of the changelog's record; ``raw``: the bytes of
    ``new``, where the change is logged."""

    start: int
    new: object
    old: object
    timestamp: int
    logged_ms: int
    raw: bytes | None


_Record = tuple[bytes, object, object, int, Headers]
"""A key's bytes, key, value, timestamp, headers."""
_Row = tuple[object, int]
"""Value and timestamp of a window's row."""


class _Near(NamedTuple):
    """The windows of a key around a record, as they are before it is put into them.

    ``holding``: those that contain its time, from right to left. ``right``: the row of the first one that does not end
    there. ``left``: the row of the last window before all of them. ``previous``: the time of the last record before it.
    ``is_complete``: there is a record of the same time, which made all windows that this one would make.
    """

    holding: list[Entry]
    left: _Row | None
    right: _Row | None
    previous: int | None
    has_own_right: bool
    is_complete: bool


class Sliding:
    """The windows of one task's aggregation. ``tell`` is called immediately with the change of each window. ``serialize``:
    writes aggregates for the changelog; None where changes are not logged at once."""

    def __init__(
        self,
        env: Environment,
        name: str,
        op: SlidingAggregate,
        tell: Callable[[SlidingChange], None] | None,
        serialize: Callable[[object], bytes] | None,
    ) -> None:
        cache = cache_of(SlidingCache, env.caches, op.store)
        self.time = env.stream_times.setdefault(name, StreamTime())
        self._cache = cache
        self._tell = tell
        self._serialize = serialize
        self._difference, self._grace = op.windows.difference_ms, op.windows.grace_ms
        lasts_ms = closes_after_ms(op.windows)
        self.closing = closing_windows(cache, lasts_ms, self.time) if op.emit_on_close else None
        self._closed_before = -1
        self.is_taken = False
        """Whether some window took the last record."""
        self._counters = env.counters
        self._sequence = env.sequence
        self._keeps_latest = not env.plan.specs[op.store].plain_rows
        self._compute = computation(op)
        self._only_counts = op.aggregation == "count" and tell is None and self.closing is None

    def update(self, raw: bytes, key: object, value: object, timestamp: int, headers: Headers) -> None:
        """Puts a record with a value into its windows."""
        self.is_taken = False
        if timestamp > self.time.ms:
            self.time.ms = timestamp
        self._closed_before = self.time.ms - self._grace
        if timestamp + self._difference < self._closed_before:
            self._counters.dropped_late += 1
            return
        if self._only_counts and self._count_newest(raw, timestamp, headers):
            return
        record = (raw, key, value, timestamp, headers)
        if timestamp < self._difference:
            self._early(record)
        else:
            self._late_enough(record)

    def _count_newest(self, raw: bytes, timestamp: int, headers: Headers) -> bool:
        """As :meth:`_late_enough`, for a count that nobody is told of and a record that none of its key is later than.

        False: it is another kind of record, and nothing was done.
        """
        entries = self._cache.windows_of(raw)
        own_start = timestamp - self._difference
        if own_start < 0 or timestamp < self._closed_before or own_start < (oldest := self._cache.oldest()):
            return False
        first, left = len(entries), None
        while first:
            entry = entries[first - 1]
            if entry.value is None or entry.start > timestamp or entry.timestamp > timestamp:
                return False
            if entry.start < own_start:
                left = entry if entry.start >= max(own_start - self._difference, oldest) else None
                break
            first -= 1
        holding = entries[first:]
        own = holding[0] if holding and holding[0].start == own_start else None
        is_complete = own is not None and own.timestamp >= timestamp
        last = left or own
        right_start = -1 if last is None else last.timestamp + 1
        before = 0 if left is None or left.timestamp < own_start else left.value
        # None of the windows is closed, since the record itself is not late.
        self.is_taken = True
        dirty, sequence = self._cache.dirty, self._sequence
        for entry in reversed(holding):
            # As the cache's change(), without a call.
            if not entry.dirty:
                entry.dirty = True
                entry.old = entry.value
                dirty.append(entry)
            entry.value += 1
            entry.timestamp = timestamp
            entry.headers = headers
            entry.sequence = next(sequence)
        if is_complete:
            return True
        if right_start >= own_start and all([entry.start != right_start for entry in holding]):
            at = bisect_left(entries, right_start, first, key=_by_start)
            self._insert_count(entries, at, Entry(raw, 1, timestamp, right_start), headers)
        if own is None and right_start != own_start:
            self._insert_count(entries, first, Entry(raw, before + 1, timestamp, own_start), headers)
        return True

    def _insert_count(self, entries: list[Entry], at: int, entry: Entry, headers: Headers) -> None:
        """Adds a window that there was not."""
        self._cache.insert(entries, at, entry)
        self._cache.changed_at(entry.start)
        entry.dirty = True
        self._cache.dirty.append(entry)
        entry.headers = headers
        entry.sequence = next(self._sequence)

    def _put_all(self, record: _Record, entries: Sequence[Entry]) -> None:
        """Puts the record into windows, one after the other."""
        if not self._only_counts or record[3] < self._closed_before:
            for entry in entries:
                self._put(record, entry)
            return
        # The same as above where no window that contains the record is closed, and nobody is told of changes.
        _, _, _, timestamp, headers = record
        dirty, sequence, keeps_latest = self._cache.dirty, self._sequence, self._keeps_latest
        self.is_taken = True
        for entry in entries:
            before = entry.value
            if not entry.dirty:
                entry.dirty = True
                entry.old = before
                dirty.append(entry)
            entry.value = 1 if before is None else before + 1
            if timestamp > entry.timestamp or before is None or not keeps_latest:
                entry.timestamp = timestamp
            entry.headers = headers
            entry.sequence = next(sequence)

    def _put(self, record: _Record, entry: Entry) -> None:
        """Puts the record into a window."""
        _, key, value, timestamp, headers = record
        start, before = entry.start, entry.value
        if start + self._difference < self._closed_before:
            self._counters.dropped_late += 1
            return
        self.is_taken = True
        initial, after = self._compute(key, value, before)
        latest = timestamp
        if before is not None and entry.timestamp > timestamp and self._keeps_latest:
            latest = entry.timestamp
        self._change(entry, after, initial, latest, timestamp if after is None else latest, headers)

    def _change(self, entry: Entry, new: object, old: object, timestamp: int, logged_ms: int, headers: Headers) -> None:
        # A value that can't be written fails here, and the row stays what it was.
        raw_value = None if new is None or self._serialize is None else self._serialize(new)
        self._cache.change(entry, new, logged_ms, headers, next(self._sequence))
        if self.closing is not None:
            self.closing.note(entry.start)
        if self._tell is not None:
            self._tell(SlidingChange(entry.start, new, old, timestamp, logged_ms, raw_value))

    def _put_new(self, record: _Record, entries: list[Entry], start: int) -> None:
        """Puts the record into a window that was empty."""
        if start + self._difference < self._closed_before:
            self._counters.dropped_late += 1
        else:
            self._put_all(record, (self._cache.add(entries, record[0], start),))
            self._cache.changed_at(start)

    def _early(self, record: _Record) -> None:
        """A record whose window would start before time 0."""
        raw, _, _, timestamp, _ = record
        combined: _Row | None = None
        right: _Row | None = None
        previous: int | None = None
        starts = set()
        entries, oldest = self._cache.windows_of(raw), self._cache.oldest()
        for entry in entries:
            start, value, latest = entry.start, entry.value, entry.timestamp
            if value is None or not oldest <= start <= timestamp + 1:
                continue
            starts.add(start)
            if start == 0:
                combined = (value, latest)
                if latest < timestamp:
                    previous = latest
            elif start <= timestamp:
                right = (value, latest)
                self._put(record, entry)
        if right is None and combined is not None and combined[1] > timestamp:
            right = combined
        if timestamp + 1 not in starts:
            self._own_right(record, entries, right)
        if previous is not None and previous + 1 not in starts:
            self._put_new(record, entries, previous + 1)
        self._put_new(record, entries, 0)

    def _late_enough(self, record: _Record) -> None:
        raw, _, _, timestamp, _ = record
        entries = self._cache.windows_of(raw)
        own_start = timestamp - self._difference
        near = self._near(entries, timestamp)
        holding, previous = near.holding, near.previous
        starts = [entry.start for entry in holding]
        if near.has_own_right:
            starts.append(timestamp + 1)
        self._put_all(record, holding)
        if near.is_complete:
            return
        if previous is not None and previous + 1 >= own_start and previous + 1 not in starts:
            self._put_new(record, entries, previous + 1)
        if not holding or holding[-1].start != own_start:
            holds_previous = previous is not None and own_start <= previous
            self._own_left(record, entries, near.left if holds_previous else None)
        if not near.has_own_right:
            self._own_right(record, entries, near.right)

    def _near(self, entries: Sequence[Entry], timestamp: int) -> _Near:
        """What a record with that timestamp finds."""
        own_start = timestamp - self._difference
        oldest = max(own_start - self._difference, self._cache.oldest())
        holding: list[Entry] = []
        left: _Row | None = None
        right: _Row | None = None
        previous: int | None = None
        has_own_right = is_complete = False
        for entry in reversed(entries):
            start = entry.start
            if start < oldest:
                break
            if start > timestamp + 1 or entry.value is None:
                continue
            if start > timestamp:
                has_own_right = True
            elif start > own_start:
                right = right or (entry.value, entry.timestamp)
                holding.append(entry)
            elif start == own_start:
                holding.append(entry)
                previous = entry.timestamp
                if previous >= timestamp:
                    is_complete = True
                    break
            else:
                left, previous = (entry.value, entry.timestamp), entry.timestamp
                break
        return _Near(holding, left, right, previous, has_own_right, is_complete)

    def _own_left(self, record: _Record, entries: list[Entry], before: _Row | None) -> None:
        """Makes the window that ends at the record: with what the window before it holds, where that lies in it too."""
        raw, key, value, timestamp, headers = record
        if timestamp < self._closed_before:
            self._counters.dropped_late += 1
            return
        self.is_taken = True
        entry = self._cache.add(entries, raw, timestamp - self._difference)
        # Not with what the entry holds: where this window is the one right behind the previous record, it has this one.
        initial, after = self._compute(key, value, None if before is None else before[0])
        old = initial if entry.value is None else entry.value
        self._change(entry, after, old if before is None else None, timestamp, timestamp, headers)

    def _own_right(self, record: _Record, entries: list[Entry], before: _Row | None) -> None:
        """Makes the window right behind the record, with the later records that some window of now holds."""
        raw, _, _, timestamp, headers = record
        if before is None or before[1] <= timestamp:
            return
        value, latest = before
        self._change(self._cache.add(entries, raw, timestamp + 1), value, None, latest, latest, headers)


def make_sliding_aggregate(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, SlidingAggregate)
    env, plan, difference = builder.env, builder.plan, op.windows.difference_ms
    log = builder.row_log(op.store)
    forwards = not (plan.is_cached(op.store) or op.emit_on_close)
    current: tuple[object, bytes, Headers] = (None, b"", ())

    def tell(change: SlidingChange) -> None:
        key, raw, headers = current
        start, new, old, timestamp, logged_ms, raw_value = change
        if log is not None:
            log.log_row(raw + pack_start(start) + b"\0\0\0\0", raw_value, logged_ms, headers)
        if forwards:
            window = Windowed(key, start, start + difference)
            made.forward(window, new, timestamp, headers, old if node.sends_old_values else None)

    tells = forwards or log is not None
    sliding = Sliding(env, node.name, op, tell if tells else None, None if log is None else log.serialize)
    serialize, time = plan.key_serde(plan.specs[op.store]).serialize, sliding.time
    emit = None if sliding.closing is None else emission(builder, op, sliding.closing, made)

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        nonlocal current
        if key is None or value is None:
            env.counters.dropped_null += 1
            return
        raw = serialize(key)
        current = (key, raw, headers)
        if emit is not None:
            # Before the record is put: where a step behind fails, the rows that are to be forwarded are still there.
            time.ms = max(time.ms, timestamp)
            emit(time.ms, headers)
        sliding.update(raw, key, value, timestamp, headers)
        if not sliding.is_taken:
            made.drop_late(key, value, timestamp, headers)

    return process


def emit_sliding_aggregate(c: Compiler, node: ProcessorNode, op: SlidingAggregate, flow: Flow) -> None:
    e = c.emitter
    told: list[SlidingChange] = []
    tells = not c.plan.is_cached(op.store) and (c.plan.writes_changelog(op.store) or not op.emit_on_close)
    sliding = Sliding(c.env, node.name, op, told.append if tells else None, c.serializer_of_log(op.store))
    dropped = e.counter(c.counters, "dropped_null")
    with e.block(f"if {flow.key.any} is None or {flow.value.any} is None:"):
        e.line(f"{dropped} += 1")
    with e.block("else:"):
        inside = flow.copy()
        inside.key.not_null = inside.value.not_null = True
        raw = e.raw(inside.key, c.plan.key_serde(c.plan.specs[op.store]))
        key = e.obj(inside.key) if op.aggregation == "aggregate" else "None"
        value = "None" if op.aggregation == "count" else e.obj(inside.value)
        if sliding.closing is not None:
            # Before the record is put: where a step behind fails, the rows that are to be forwarded are still there.
            closing, time = e.bind("closing", sliding.closing), e.bind("time", sliding.time)
            e.line(f"if {flow.time} > {time}.ms: {time}.ms = {flow.time}")
            with e.block(f"if {time}.ms >= {closing}.next_ms:"):
                _emit_closed(c, node, op, flow, f"{closing}.close({time}.ms)")
        if tells:
            e.line(f"{e.bind('told', told)}.clear()")
        call = f"{e.bind('update', sliding.update)}({raw}, {key}, {value}, {flow.time}, {flow.headers or '()'})"
        if tells and c.plan.writes_changelog(op.store):
            # Also where a later window of the record fails: what the store has is in its changelog.
            with e.block("try:"):
                e.line(call)
            with e.block("finally:"):
                _emit_log(c, op, inside, e.bind("told", told), raw)
        else:
            e.line(call)
        if tells and not op.emit_on_close:
            _emit_changes(c, node, op, inside, e.bind("told", told), raw)
        if node.late is not None:
            with e.block(f"if not {e.bind('sliding', sliding)}.is_taken:"):
                c.late(node, inside)


def _emit_log(c: Compiler, op: SlidingAggregate, flow: Flow, told: str, raw: str) -> None:
    e = c.emitter
    start, new, logged, raw_value, store_key = (e.temp(prefix) for prefix in ("w", "v", "l", "r", "r"))
    with e.block(f"for {start}, {new}, _, _, {logged}, {raw_value} in {told}:"):
        e.line(f"{store_key} = {raw} + {e.bind('pack_start', pack_start)}({start}) + b'\\0\\0\\0\\0'")
        c.log(op.store, store_key, Flow(flow.key, c.logged_slot(op.store, new, raw_value), logged, None), logged)


def _emit_changes(c: Compiler, node: ProcessorNode, op: SlidingAggregate, flow: Flow, told: str, raw: str) -> None:
    e = c.emitter
    names = "w", "v", "b", "t", "r", "r"
    start, new, old, time, raw_value, store_key = (e.temp(prefix) for prefix in names)
    with e.block(f"for {start}, {new}, {old}, {time}, _, {raw_value} in {told}:"):
        e.line(f"{store_key} = {raw} + {e.bind('pack_start', pack_start)}({start}) + b'\\0\\0\\0\\0'")
        end = f"{start} + {op.windows.difference_ms}"
        key = WindowedSlot(not_null=True, inner=flow.copy().key, start=start, end=end, store_key=store_key)
        result = Flow(key, c.logged_slot(op.store, new, raw_value), time, flow.headers)
        if node.sends_old_values:
            result.old = Slot(obj=old)
        c.children(node, result)


def _emit_closed(c: Compiler, node: ProcessorNode, op: SlidingAggregate, flow: Flow, closed: str) -> None:
    """Forwards the windows that are closed now."""
    e = c.emitter
    entry, raw, start, value, time = (e.temp(prefix) for prefix in ("e", "k", "w", "v", "t"))
    with e.block(f"for {entry} in {closed}:"):
        e.line(f"{raw}, {start}, {value}, {time} = {entry}.key, {entry}.start, {entry}.value, {entry}.timestamp")
        inner = Slot(raw=raw, serde=c.plan.key_serde(c.plan.specs[op.store]), not_null=True)
        key = WindowedSlot(not_null=True, inner=inner, start=start, end=f"{start} + {op.windows.difference_ms}")
        c.children(node, Flow(key, Slot(obj=value, not_null=True), time, flow.headers))
