"""Suppression: of the changes of a row within a time, only the last one is forwarded.

1. A change is suppressed until stream time is ``wait_ms`` beyond its time: the end of its window, or the time of the
   first suppressed change of its row. It is forwarded with its own timestamp, headers and origin.
2. If the buffer is full, the oldest changes are forwarded early, or the application stops.
3. The old value of a change is the one that was forwarded before, not one that was suppressed in between.
4. Final results of windows do not include deletions.
5. Windows that were closed by the wall clock stay closed: later changes of them are dropped as late.

Source: org.apache.kafka.streams.kstream.internals.suppress.KTableSuppressProcessorSupplier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from struct import Struct
from typing import Any

from streamsrt.errors import UserError
from streamsrt.operators.engine.compiler import Compiler
from streamsrt.operators.engine.emitter import Flow, Slot, WindowedSlot
from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.plan import ResolvedSubtopology, StreamTime, same_bytes
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.key_slices import KeySlices
from streamsrt.operators.kinds.closing import ClosedMark
from streamsrt.state.buffer import Held, SuppressionBuffer, Written, held_record
from streamsrt.state.columns import Headers
from streamsrt.wording import counted
from topology import serdes
from topology.graph.nodes import ProcessorNode
from topology.graph.operations import Suppress
from topology.graph.operations.traits import own_store
from topology.spec.codecs import ProgramSerde
from topology.spec.processor import RecordMetadata
from topology.spec.windows import END_OF_TIME_MS

_START = Struct(">q")
_END_AND_START = Struct(">qq")

NO_ORIGIN = RecordMetadata("", -1, -1)
LATE: Iterator[Held] = iter(())
"""What :meth:`Suppression.hold` returns for a change that comes too late."""
NOTHING: Iterator[Held] = iter(())
"""What it returns where a change lets none go."""


def _buffer(env: Environment, op: Suppress) -> SuppressionBuffer:
    buffer = env.caches[op.store]
    assert isinstance(buffer, SuppressionBuffer)
    return buffer


class Suppression:
    """What one task holds back."""

    def __init__(self, env: Environment, name: str, op: Suppress) -> None:
        self._op = op
        self._wait_ms = op.wait_ms
        self._is_limited = op.max_records is not None or op.max_bytes is not None
        self._buffer = _buffer(env, op)
        self._time = env.stream_times.setdefault(name, StreamTime())
        self._name = name
        self._counters = env.counters
        self._closed = None if op.closed is None else ClosedMark(env, op.closed)

    def hold(
        self,
        raw: bytes,
        at_ms: int,
        new: object,
        old: object,
        timestamp: int,
        headers: Headers,
        origin: RecordMetadata,
        written: Written | None,
    ) -> Iterator[Held]:
        """Holds a change back, and lets go what nothing holds back any more. What has no value is for the caller to drop.
        ``written``: as of the buffer."""
        if self._op.max_bytes is not None and not self._buffer.counts_bytes:
            self._buffer.count_bytes()
        if self._closed is not None and at_ms + self._wait_ms <= self._closed.ms:
            self._counters.dropped_late += 1
            return LATE
        if timestamp > self._time.ms:
            self._time.ms = timestamp
        next_ms = self._buffer.put(Held(raw, at_ms, new, old, old, timestamp, headers, origin), written)
        if self._is_limited:
            return self._evict_and_shrink()
        until_ms = self._time.ms - self._wait_ms
        return self._let_go(until_ms) if next_ms <= until_ms else NOTHING

    def _let_go(self, until_ms: int) -> Iterator[Held]:
        """The changes up to that time. Each is held back no more once it is taken."""
        self._time.lets_go = True
        yield from self._buffer.evict_until(until_ms)
        self._time.lets_go = False

    def _evict_and_shrink(self) -> Iterator[Held]:
        buffer = self._buffer
        yield from self._let_go(self._time.ms - self._wait_ms)
        if not self._is_full():
            return
        if self._op.shuts_down:
            size = "" if self._op.max_bytes is None else f" of {buffer.size_in_bytes} bytes"
            raise UserError(
                f"{self._name} holds back {counted(len(buffer), 'change')}{size}, more than its buffer can hold: raise "
                "max_records or max_bytes, or let it emit early"
            )
        self._time.lets_go = True
        while self._is_full() and (first := buffer.take_first()) is not None:
            yield first
        self._time.lets_go = False

    def pass_time(self, ms: int) -> Iterator[Held]:
        """Moves stream time on without a change, in milliseconds, and lets go what nothing holds back any more."""
        self._time.ms = max(self._time.ms, ms)
        return self._let_go(self._time.ms - self._wait_ms)

    def evict_all(self) -> Iterator[Held]:
        """Lets everything go, in order, since no more records come. Windows are closed then, but those that never close."""
        last = -1
        for held in self._let_go(END_OF_TIME_MS - (self._wait_ms if self._op.by_window else 0)):
            last = held.time_ms
            yield held
        if self._closed is not None and last >= 0:
            self._closed.move(min(last + self._op.session_gap_ms + self._op.wait_ms, END_OF_TIME_MS))

    def _is_full(self) -> bool:
        records, size = self._op.max_records, self._op.max_bytes
        if records is not None and len(self._buffer) > records:
            return True
        return size is not None and self._buffer.size_in_bytes > size


def _may_fail(plan: ResolvedSubtopology, node: ProcessorNode, op: Suppress) -> bool:
    """Whether the serde of the buffer may refuse a value, which then has to fail before it is held back: when it is logged,
    nobody knows whose it is. It may not where the table before has written all values by the same serde."""
    table = plan.node(node.parents[0])
    store = own_store(table.operation) if isinstance(table, ProcessorNode) else None
    if store is None or not (plan.is_cached(store) or plan.writes_changelog(store)):
        return True
    return not same_bytes(plan.value_serde(plan.specs[store]), plan.value_serde(plan.specs[op.store]))


def make_suppress(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, Suppress)
    env = builder.env
    suppression = Suppression(env, node.name, op)
    flow_on = flowing(builder, node, made)
    serde, to_raw = builder.plan.key_serde(builder.plan.specs[op.store]), _buffer(env, op).raw
    may_fail = _may_fail(builder.plan, node, op)

    def process(key: Any, value: object, timestamp: int, headers: Headers, old: object) -> None:
        at_ms = key.end_ms if op.by_window else timestamp
        origin = env.metadata or NO_ORIGIN
        raw, written = serde.serialize(key), (to_raw(value), to_raw(old)) if may_fail else None
        found = suppression.hold(raw, at_ms, value, old, timestamp, headers, origin, written)
        if found is LATE:
            made.drop_late(key, value, timestamp, headers)
        else:
            flow_on(found)

    return process


def flowing(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Callable[[Iterable[Held]], None]:
    """Forwards what is held back no more."""
    op, env = node.operation, builder.env
    assert isinstance(op, Suppress)
    deserialize = builder.plan.key_serde(builder.plan.specs[op.store]).deserialize
    buffer = _buffer(env, op)

    def flow_on(found: Iterable[Held]) -> None:
        for held in found:
            if op.by_window and held.new is None:
                continue
            before = env.place
            env.place = None, RecordMetadata(*held.origin), partial(held_record, held, buffer.raw)
            try:
                prior = held.prior if node.sends_old_values else None
                made.forward(deserialize(held.key), held.new, held.timestamp, tuple(held.headers), prior)
            finally:
                env.place = before

    return flow_on


def emit_suppress(c: Compiler, node: ProcessorNode, op: Suppress, flow: Flow) -> None:
    e = c.emitter
    inside = flow.copy()
    serde = c.plan.key_serde(c.plan.specs[op.store])
    raw, value = e.raw(inside.key, serde), e.obj(inside.value)
    old = "None" if inside.old is None else e.obj(inside.old)
    written = "None"
    if _may_fail(c.plan, node, op):
        value_serde = c.plan.value_serde(c.plan.specs[op.store])
        raw_old = "None" if inside.old is None else e.written(inside.old, value_serde)
        written = f"({e.written(inside.value, value_serde)}, {raw_old})"
    at_ms = inside.time
    if op.by_window:
        at_ms = inside.key.end if isinstance(inside.key, WindowedSlot) else f"{e.obj(inside.key)}.end_ms"
    origin = e.bind("no_origin", NO_ORIGIN) if c.is_flush else f"{e.bind('origin', c.env.origin)}()"
    hold = e.bind("hold", Suppression(c.env, node.name, op).hold)
    held, key, new, time = (e.temp(prefix) for prefix in ("h", "k", "v", "t"))
    call = f"{hold}({raw}, {at_ms}, {value}, {old}, {inside.time}, {inside.headers or '()'}, {origin}, {written})"
    if node.late is not None:
        found = e.temp("found")
        e.line(f"{found} = {call}")
        call = found
        with e.block(f"if {found} is {e.bind('late', LATE)}:"):
            c.late(node, inside)
    env, to_raw = e.bind("env", c.env), e.bind("to_raw", _buffer(c.env, op).raw)
    with e.block(f"for {held} in {call}:"):
        if op.by_window:
            with e.block(f"if {held}.new is None:"):
                e.line("continue")
        e.line(f"{env}.evicted = {held}, {to_raw}")
        e.line(f"{key}, {new}, {time} = {held}.key, {held}.new, {held}.timestamp")
        result = Flow(_key(c, key, serde), Slot(obj=new), time, None)
        if inside.headers is not None:
            result.headers = e.temp("h")
            e.line(f"{result.headers} = tuple({held}.headers)")
        if node.sends_old_values:
            result.old = Slot(obj=e.temp("b"))
            e.line(f"{result.old.obj} = {held}.prior")
        c.children(node, result)
        e.line(f"{env}.evicted = None")


def _key(c: Compiler, raw: str, serde: ProgramSerde) -> Slot:
    """A key that was held back as bytes. Windowed ones are partitioned by what is windowed."""
    e = c.emitter
    if not isinstance(serde, serdes.TimeWindowedSerde | serdes.SessionWindowedSerde):
        return Slot(raw=raw, serde=serde, not_null=True)
    start, inner = e.temp("w"), e.temp("k")
    if isinstance(serde, serdes.TimeWindowedSerde):
        e.line(
            f"({start},) = {e.bind('window_start', _START.unpack_from)}({raw}, len({raw}) - {_START.size})",
            "deserialization",
        )
        end, suffix_bytes = f"{start} + {serde.size_ms}", _START.size
    else:
        end, suffix_bytes = e.temp("x"), _END_AND_START.size
        unpack = e.bind("session", _END_AND_START.unpack_from)
        e.line(f"{end}, {start} = {unpack}({raw}, len({raw}) - {suffix_bytes})", "deserialization")
    e.line(f"{inner} = {raw}[:-{suffix_bytes}]")
    key = Slot(raw=inner, serde=serde.inner, not_null=True)
    return WindowedSlot(raw=raw, serde=serde, not_null=True, inner=key, start=start, end=end)


# -------------------------------------------------------------------------------------- records of other keys, in a slice


def _refusal(op: Suppress) -> str | None:
    if not op.by_window:
        return "lets changes go by time, in whichever state they are then. until_window_closes() can be sliced"
    if op.max_records is not None or op.max_bytes is not None:
        return "has a buffer with a limit for all keys together. Without a limit it can be sliced"
    return None


def _passing(builder: PathBuilder, node: ProcessorNode) -> Callable[[int], None]:
    op = node.operation
    assert isinstance(op, Suppress)
    suppression, flow_on = Suppression(builder.env, node.name, op), flowing(builder, node, builder.node(node.name))
    return lambda ms: flow_on(suppression.pass_time(ms))


def _slack_ms(op: Suppress) -> int:
    """As that of the windows whose changes are held back; not of sessions, which a record may continue that is later."""
    return op.wait_ms


IN_SLICES = KeySlices(pass_time=_passing, slack_ms=_slack_ms, refusal_of=_refusal)
