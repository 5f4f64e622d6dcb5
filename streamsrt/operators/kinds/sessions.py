"""Aggregations over sessions: records of a key that follow each other within a gap.

1. A record makes one session of itself and of all sessions within the gap before and after it. The merger gets the
   initial aggregate first, then the sessions from the oldest on; the aggregator comes last.
2. The merged sessions are deleted before the new one is put, even if it has the bounds of an old one. A forwarded
   result has the time of its session's end and no headers; a changelog record has the time of the record that caused
   it. All functions are called before anything is deleted, and all changes are logged before the first one is forwarded:
   so a failure leaves sessions whole, and in the store what the changelog says. Kafka Streams loses them then.
3. A session that ended before stream time minus gap and grace is closed; a record that would only make such a session
   is late.

Source: org.apache.kafka.streams.kstream.internals.KStreamSessionWindowAggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from streamsrt.operators.engine.compiler import Compiler
from streamsrt.operators.engine.emitter import Flow, Slot, WindowedSlot
from streamsrt.operators.engine.plan import Counters, StreamTime
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.key_slices import KeySlices, if_whatever_it_is
from streamsrt.operators.kinds.aggregate import CLOSES_WITH_HEADERS
from streamsrt.operators.kinds.aggregate_nodes import computation
from streamsrt.operators.kinds.closing import ClosingSessions, closing_sessions
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import cache_of
from streamsrt.state.session_cache import SessionCache, SessionEntry
from topology.graph.nodes import ProcessorNode
from topology.graph.operations import SessionAggregate
from topology.spec.windows import Windowed

pack_times = Struct(">qq").pack


class SessionChange(NamedTuple):
    """The change of a session; ``new`` None: it is deleted. ``raw``: the bytes of ``new``, where the change is logged."""

    start: int
    end: int
    new: object
    old: object
    raw: bytes | None


LATE: Sequence[SessionChange] = []
"""The return value of :meth:`Sessions.update` for a record that is too late."""


def _merging(op: SessionAggregate) -> tuple[Callable[[], object], Callable[[object, object, object], object]]:
    """The initial aggregate, and ``(key, one, other) -> merged``."""
    aggregator, initializer, merger = op.aggregator, op.initializer, op.merger
    if op.aggregation == "count":
        return int, lambda key, one, other: one + other
    assert aggregator is not None
    if op.aggregation == "reduce":
        return lambda: None, lambda key, one, other: other if one is None else aggregator(one, other)
    assert initializer is not None
    assert merger is not None
    return initializer, merger


def _growing(op: SessionAggregate) -> Callable[[object, object, object], object]:
    """``(key, value, before) -> after``: a record that is put into one session, or with None into no other's."""
    compute = computation(op)
    if op.aggregation == "count":
        return lambda key, value, before: compute(key, value, before)[1]
    initial, merge = _merging(op)

    def grow(key: object, value: object, before: object) -> object:
        first = initial() if before is None else merge(key, initial(), before)
        return compute(key, value, first)[1]

    return grow


class Sessions:
    """The sessions of one task's aggregation. ``quiet``: nobody asks what :meth:`update` did, the cache knows.
    ``serialize``: writes aggregates for the changelog; None where changes are not logged at once."""

    def __init__(
        self,
        op: SessionAggregate,
        cache: SessionCache,
        time: StreamTime,
        counters: Counters,
        next_sequence: Callable[[], int],
        *,
        quiet: bool,
        serialize: Callable[[object], bytes] | None,
    ) -> None:
        self.time = time
        self._serialize = serialize
        self._quiet = quiet
        self.closing = closing_sessions(cache, op.windows.retention_ms, time) if op.emit_on_close else None
        self._cache = cache
        self._gap = op.windows.gap_ms
        self._closes_after = op.windows.retention_ms
        self._counters = counters
        self._next_sequence = next_sequence
        self._initial, self._merge = _merging(op)
        self._compute = computation(op)
        self._grow = _growing(op)
        counts_only = quiet and op.aggregation == "count" and not op.emit_on_close
        self.take = self._count if counts_only else self.update
        """As :meth:`update`, on the shortest way that there is."""

    def _count(
        self, raw: bytes, key: object, value: object, timestamp: int, headers: Headers
    ) -> Sequence[SessionChange]:
        """As :meth:`update`, for a count that nobody is told of: most records lie behind all others of their key."""
        time, cache = self.time, self._cache
        now_ms = time.ms
        if timestamp > now_ms:
            time.ms = now_ms = timestamp
        if timestamp < now_ms - self._closes_after:
            return self.update(raw, key, value, timestamp, headers)
        entries = cache[raw]
        entry = entries[-1] if entries else None
        if entry is None or timestamp > entry.end + self._gap:
            # Sessions of a key are more than a gap apart: no other one is near.
            entry = SessionEntry(raw, 1, timestamp, timestamp)
            entries.append(entry)
            entry.dirty = True
            cache.dirty.append(entry)
            if timestamp > cache.newest_end:
                cache.newest_end = timestamp
        elif (
            timestamp < entry.end
            or not entry.dirty
            or entry.value is None
            or entry.old is not None
            or entry.end < cache.newest_end - cache.retention_ms
        ):
            return self.update(raw, key, value, timestamp, headers)
        else:
            # Its bounds are not known to anybody: it was made since the last flush.
            entry.value += 1
            entry.end = timestamp
            if timestamp > cache.newest_end:
                cache.newest_end = timestamp
        entry.timestamp = timestamp
        entry.headers = headers
        entry.sequence = self._next_sequence()
        return ()

    def update(
        self, raw: bytes, key: object, value: object, timestamp: int, headers: Headers
    ) -> Sequence[SessionChange]:
        """Puts a record into its session. Returns the changes of sessions in order; none where ``quiet`` allows that."""
        if timestamp > self.time.ms:
            self.time.ms = timestamp
        last, closed = self._cache.last(raw), self.time.ms - self._closes_after
        found: Sequence[SessionEntry]
        if last is None or timestamp < last.start:
            found = self._cache.find(raw, timestamp - self._gap, timestamp + self._gap)
        elif timestamp > last.end + self._gap:
            found = ()
        elif (
            self._quiet
            and max(last.end, timestamp) >= closed
            and (timestamp <= last.end or self._cache.may_end_later(last))
        ):
            # Sessions of a key are more than a gap apart: no other one is near.
            aggregate = self._grow(key, value, last.value)
            if timestamp > last.end:
                self._extend(last, timestamp)
            self._cache.change(last, aggregate, timestamp, headers, self._next_sequence())
            return ()
        else:
            found = (last,)
        if not found and self._quiet and timestamp >= closed:
            aggregate = self._grow(key, value, None)
            self._cache.put(raw, timestamp, timestamp, aggregate, timestamp, headers, self._next_sequence())
            if self.closing is not None:
                self.closing.note(raw, timestamp, timestamp)
            return ()
        return self._merged(raw, key, value, timestamp, headers, found)

    def _extend(self, last: SessionEntry, end: int) -> None:
        self._cache.extend(last, end)
        if self.closing is not None:
            self.closing.note(last.key, last.start, end)

    def _merged(
        self, raw: bytes, key: object, value: object, timestamp: int, headers: Headers, found: Sequence[SessionEntry]
    ) -> Sequence[SessionChange]:
        """Makes one session of the record and of those that are near."""
        start = end = timestamp
        aggregate = self._initial()
        for entry in found:
            aggregate = self._merge(key, aggregate, entry.value)
            start, end = min(start, entry.start), max(end, entry.end)
        if end < self.time.ms - self._closes_after:
            self._counters.dropped_late += 1
            return LATE
        # Before anything is changed: a record that fails leaves the sessions as they are.
        _, aggregate = self._compute(key, value, aggregate)
        raw_value = None if aggregate is None or self._serialize is None else self._serialize(aggregate)
        changes = []
        if start != end or start != timestamp:
            for entry in found:
                changes.append(SessionChange(entry.start, entry.end, None, entry.value, None))
                self._cache.change(entry, None, timestamp, headers, self._next_sequence())
        self._cache.put(raw, start, end, aggregate, timestamp, headers, self._next_sequence())
        if self.closing is not None:
            self.closing.note(raw, start, end)
        changes.append(SessionChange(start, end, aggregate, None, raw_value))
        return changes


def _emission(
    closing: ClosingSessions, deserialize: Callable[[bytes], object], made: PathNode
) -> Callable[[int, Headers], None]:
    """Returns ``(stream_time_ms, headers) -> None``, which forwards the sessions that are closed by then."""

    def emit(now_ms: int, headers: Headers) -> None:
        if now_ms >= closing.next_ms:
            for entry in closing.close(now_ms):
                made.forward(Windowed(deserialize(entry.key), entry.start, entry.end), entry.value, entry.end, headers)

    return emit


def make_session_aggregate(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, SessionAggregate)
    env, plan = builder.env, builder.plan
    cache = env.caches[op.store]
    assert isinstance(cache, SessionCache)
    time = env.stream_times.setdefault(node.name, StreamTime())
    serde, log = plan.key_serde(plan.specs[op.store]), builder.row_log(op.store)
    sessions = Sessions(
        op,
        cache,
        time,
        env.counters,
        env.sequence.__next__,
        quiet=plan.is_cached(op.store),
        serialize=None if log is None else log.serialize,
    )
    forwards = not (plan.is_cached(op.store) or op.emit_on_close)
    emit = None if sessions.closing is None else _emission(sessions.closing, serde.deserialize, made)

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if key is None:
            env.counters.dropped_null += 1
            return
        raw = serde.serialize(key)
        if emit is not None:
            # Before the record is put: where a step behind fails, the sessions that are to be forwarded are still there.
            time.ms = max(time.ms, timestamp)
            emit(time.ms, headers)
        changes = sessions.take(raw, key, value, timestamp, headers)
        if changes is LATE:
            made.drop_late(key, value, timestamp, headers)
        if log is not None:
            for start, end, _, _, raw_value in changes:
                log.log_row(raw + pack_times(end, start), raw_value, timestamp, headers)
        if forwards:
            for start, end, new, before, _ in changes:
                session = Windowed(key, start, end)
                made.forward(session, new, end, (), before if node.sends_old_values else None)

    return process


def emit_session_aggregate(c: Compiler, node: ProcessorNode, op: SessionAggregate, flow: Flow) -> None:
    e = c.emitter
    time = c.stream_time_of(node.name)
    cache, quiet = cache_of(SessionCache, c.caches, op.store), c.plan.is_cached(op.store)
    serialize = c.serializer_of_log(op.store)
    sessions = Sessions(op, cache, time, c.counters, c.next_sequence, quiet=quiet, serialize=serialize)
    dropped = e.counter(c.counters, "dropped_null")
    with e.block(f"if {flow.key.any} is None:"):
        e.line(f"{dropped} += 1")
    with e.block("else:"):
        inside = flow.copy()
        inside.key.not_null = True
        raw = e.raw(inside.key, c.plan.key_serde(c.plan.specs[op.store]))
        key = e.obj(inside.key) if op.aggregation == "aggregate" else "None"
        value = "None" if op.aggregation == "count" else e.obj(inside.value)
        if sessions.closing is not None:
            _emit_closed(c, node, op, flow, e.bind("closing", sessions.closing), e.bind("time", time))
        call = f"{e.bind('take', sessions.take)}({raw}, {key}, {value}, {flow.time}, {flow.headers or '()'})"
        if node.late is not None:
            changes = e.temp("changes")
            e.line(f"{changes} = {call}")
            call = changes
            with e.block(f"if {changes} is {e.bind('late', LATE)}:"):
                c.late(node, inside)
        if not c.plan.is_cached(op.store):
            _emit_changes(c, node, op, inside, call, raw)
        elif node.late is None:
            e.line(call)


def _emit_changes(c: Compiler, node: ProcessorNode, op: SessionAggregate, flow: Flow, call: str, raw: str) -> None:
    e = c.emitter
    names = "changes", "s", "x", "v", "b", "r", "r"
    changes, start, end, new, old, store_key, raw_value = (e.temp(prefix) for prefix in names)
    e.line(f"{changes} = {call}")
    value = c.logged_slot(op.store, new, raw_value)
    if c.plan.writes_changelog(op.store):
        with e.block(f"for {start}, {end}, {new}, _, {raw_value} in {changes}:"):
            e.line(f"{store_key} = {raw} + {e.bind('pack_times', pack_times)}({end}, {start})")
            c.log(op.store, store_key, Flow(flow.key, value, end, None), flow.time)
    if op.emit_on_close:
        return
    with e.block(f"for {start}, {end}, {new}, {old}, {raw_value} in {changes}:"):
        e.line(f"{store_key} = {raw} + {e.bind('pack_times', pack_times)}({end}, {start})")
        key = WindowedSlot(not_null=True, inner=flow.copy().key, start=start, end=end, store_key=store_key)
        result = Flow(key, value, end, None if flow.headers is None else "()")
        if node.sends_old_values:
            result.old = Slot(obj=old)
        c.children(node, result)


def _emit_closed(c: Compiler, node: ProcessorNode, op: SessionAggregate, flow: Flow, closing: str, time: str) -> None:
    e = c.emitter
    spec = c.plan.specs[op.store]
    entry, raw, start, end, value = (e.temp(prefix) for prefix in ("e", "k", "s", "x", "v"))
    # Before the record is put: where a step behind fails, the sessions that are to be forwarded are still there.
    e.line(f"if {flow.time} > {time}.ms: {time}.ms = {flow.time}")
    with e.block(f"if {time}.ms >= {closing}.next_ms:"), e.block(f"for {entry} in {closing}.close({time}.ms):"):
        e.line(f"{raw}, {start}, {end}, {value} = {entry}.key, {entry}.start, {entry}.end, {entry}.value")
        inner = Slot(raw=raw, serde=c.plan.key_serde(spec), not_null=True)
        key = WindowedSlot(not_null=True, inner=inner, start=start, end=end)
        c.children(node, Flow(key, Slot(obj=value, not_null=True), end, flow.headers))


# -------------------------------------------------------------------------------------- records of other keys, in a slice


def _refusal(op: SessionAggregate) -> str | None:
    return CLOSES_WITH_HEADERS if op.emit_on_close else None


def _passing(builder: PathBuilder, node: ProcessorNode) -> Callable[[int], None]:
    op = node.operation
    assert isinstance(op, SessionAggregate)
    time = builder.env.stream_times.setdefault(node.name, StreamTime())
    cache = cache_of(SessionCache, builder.env.caches, op.store)

    def pass_time(ms: int) -> None:
        time.ms = max(time.ms, ms)
        # The session of the record that moves stream time on ends then.
        cache.newest_end = max(cache.newest_end, ms)

    return pass_time


def _slack_ms(op: SessionAggregate) -> int:
    """A record may continue a session that ended up to a gap before it."""
    return op.windows.retention_ms - op.windows.gap_ms


IN_SLICES = KeySlices(through=if_whatever_it_is, pass_time=_passing, slack_ms=_slack_ms, refusal_of=_refusal)
