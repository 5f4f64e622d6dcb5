"""Joins of two streams within windows, as processor nodes.

1. A record is joined with what the other side's store has within the window, oldest first, then put into its own store and
   logged there. So two records that match meet once, in whichever order they come.
2. A result has the later timestamp of its two records, and the headers of the one that came last.
3. Both sides observe one stream time. A record of a side that shows unmatched ones and finds none waits, in a store that
   both sides share, until its window and the grace period are over; it is shown at once where its window is over already.
4. What is over is shown when a record moves stream time, before that record is joined: by time, right side before left, by
   key. The scan stops when records of both sides were seen that are still open, and next time it looks no earlier than
   the last one that it saw: so results come when they do in Kafka Streams. Each is deleted after the next one was shown.
5. A record without a key or a value is dropped and counted, but where its side shows unmatched ones a record without a key
   is shown at once. Its value is joined with None then.
6. A window store's changelog has the record's headers, and a record without a value too, though the store keeps none.

Source: KStreamKStreamJoin and KStreamJoinWindow of Kafka Streams.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from streamsrt.operators.plan import StreamTime
from streamsrt.operators.processor_nodes import PathBuilder, PathNode, Process, makes
from streamsrt.state.duplicates import DuplicatesCache
from topology import nodes
from topology.nodes import ProcessorNode

_TIME_AND_SIDE = Struct(">q?")
_LIST_HEAD = Struct(">bi")
_LENGTH = Struct(">i")
_VARIABLE_SIZE = 1
_LEFT, _RIGHT = b"\x01", b"\x00"


def append_to_list(listed: bytes | None, is_left: bool, raw: bytes) -> bytes:
    """A list of values, as Kafka Streams' ListSerde writes it, with one value more."""
    count = 0 if listed is None else _LIST_HEAD.unpack_from(listed)[1]
    rest = b"" if listed is None else listed[_LIST_HEAD.size :]
    side = _LEFT if is_left else _RIGHT
    return _LIST_HEAD.pack(_VARIABLE_SIZE, count + 1) + rest + _LENGTH.pack(len(raw) + 1) + side + raw


def listed_values(listed: bytes) -> Iterator[bytes]:
    """The values of such a list, without their side."""
    position = _LIST_HEAD.size
    for _ in range(_LIST_HEAD.unpack_from(listed)[1]):
        length = _LENGTH.unpack_from(listed, position)[0]
        position += _LENGTH.size
        yield listed[position + 1 : position + length]
        position += length


class Unmatched:
    """The records of one join that no match was found for and whose windows are open: the shared store and its order."""

    def __init__(self, builder: PathBuilder, store: str, time: StreamTime) -> None:
        self._cache = builder.env.caches[store]
        self._change = builder.change(store)
        self._time = time
        self._interval_ms = builder.plan.outer_join_emit_interval_ms
        self._next_emit_ms = 0
        self._least_ms: int | None = None
        """No record that waits is older, or None where that is not known."""
        self._order: list[bytes] = []
        """Keys of the store in their order, and some that are deleted already."""
        self._known: set[bytes] = set()
        self._loaded = False

    def add(self, raw: bytes, is_left: bool, timestamp: int, value: bytes, headers: Any) -> None:
        """Lets a record wait."""
        self._load()
        if self._least_ms is None or timestamp < self._least_ms:
            self._least_ms = timestamp
        place = _TIME_AND_SIDE.pack(timestamp, is_left) + raw
        if place not in self._known:
            self._known.add(place)
            insort(self._order, place)
        self._change(place, append_to_list(self._cache[place].value, is_left, value), timestamp, headers, -1)

    def discard(self, raw: bytes, is_left: bool, of_ms: int, timestamp: int, headers: Any) -> None:
        """Forgets the records of that key, side and time: a match was found at ``timestamp``."""
        place = _TIME_AND_SIDE.pack(of_ms, is_left) + raw
        if self._cache[place].value is not None:
            self._change(place, None, timestamp, headers, -1)

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            self._order = [entry.key for entry in self._cache.rows(None, None)]
            self._known = set(self._order)

    def may_be_over(self, after_ms: int, now_ms: int) -> bool:
        """Whether it is worth a scan."""
        if self._least_ms is not None and self._least_ms + after_ms >= self._time.ms:
            return False
        return now_ms >= self._next_emit_ms

    def show_over(
        self,
        show: Callable[[bytes, bool, int, bytes], None],
        open_ms: tuple[int, int],
        now_ms: int,
        timestamp: int,
        headers: Any,
    ) -> None:
        """Shows what is over. ``open_ms``: how long records of the right and of the left side are open."""
        self._load()
        self._next_emit_ms = now_ms + self._interval_ms
        self._least_ms = None
        seen_open = [False, False]
        kept: list[bytes] = []
        scanned = 0
        shown: bytes | None = None
        for place in self._order:
            listed = self._cache[place].value
            if listed is None:
                scanned += 1
                continue
            of_ms, is_left = _TIME_AND_SIDE.unpack_from(place)
            self._least_ms = of_ms
            if all(seen_open):
                break
            scanned += 1
            if of_ms + open_ms[is_left] >= self._time.ms:
                seen_open[is_left] = True
                kept.append(place)
                continue
            for value in listed_values(listed):
                show(place[_TIME_AND_SIDE.size :], is_left, of_ms, value)
                if shown is not None and shown != place:
                    self._change(shown, None, timestamp, headers, -1)
                shown = place
        if shown is not None:
            self._change(shown, None, timestamp, headers, -1)
        self._known.difference_update(self._order[:scanned])
        self._known.update(kept)
        self._order[:scanned] = kept


def joiner_of(op: nodes.StreamStreamJoin | nodes.StreamSelfJoin) -> Callable[[Any, Any, Any], Any]:
    """``(key, left, right) -> result``."""
    joiner = op.joiner
    return joiner if op.with_key else lambda key, left, right: joiner(left, right)


@makes(nodes.StreamJoinWindow)
def make_stream_join_window(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, nodes.StreamJoinWindow)
    env, plan, forward = builder.env, builder.plan, made.forward
    cache: DuplicatesCache = env.caches[op.store]
    spec = plan.specs[op.store]
    serialize, serialize_value = plan.key_serde(spec).serialize, plan.value_serde(spec).serialize
    topic = plan.changelog_topic(op.store) if plan.writes_changelog(op.store) else None

    def process(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
        forward(key, value, timestamp, headers)
        if key is None:
            return
        raw = None if value is None else serialize_value(value)
        place = cache.put(serialize(key), timestamp, value, raw)
        if topic is not None:
            env.collect(topic, [place], [raw], [timestamp], [headers] if headers else None, env.task_partition)

    return process


class _Join:
    """One side of a join."""

    def __init__(self, builder: PathBuilder, op: nodes.StreamStreamJoin, own_store: str, made: PathNode) -> None:
        plan = builder.plan
        self.env, self.op, self.forward = builder.env, op, made.forward
        self.is_left = op.side == "left"
        self.joined = joiner_of(op)
        self.other: DuplicatesCache = self.env.caches[op.store]
        self.time = self.env.stream_times.setdefault(op.time, StreamTime())
        own, other = plan.specs[own_store], plan.specs[op.store]
        self.key_serde = plan.key_serde(own)
        self.own_serde = plan.value_serde(own)
        self.serdes = (plan.value_serde(other), self.own_serde)
        if not self.is_left:
            self.serdes = (self.own_serde, plan.value_serde(other))
        self.unmatched: Unmatched | None = None
        if op.shared is not None:
            states = self.env.shared_states
            self.unmatched = states.setdefault(op.shared, Unmatched(builder, op.shared, self.time))

    def process(self, key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
        op, time = self.op, self.time
        if timestamp > time.ms:
            time.ms = timestamp
        if op.emits_unmatched and key is None and value is not None:
            self._show_alone(key, value, timestamp, headers)
            return
        if key is None or value is None:
            self.env.counters.dropped_null += 1
            return
        if timestamp == time.ms and self.unmatched is not None:
            self._show_over(self.unmatched, timestamp, headers)
        raw = self.key_serde.serialize(key)
        rows = self.other.fetch(raw, max(0, timestamp - op.before_ms), max(0, timestamp + op.after_ms))
        for other_ms, _, other in rows:
            if self.unmatched is not None:
                self.unmatched.discard(raw, not self.is_left, other_ms, timestamp, headers)
            result = self.joined(key, value, other) if self.is_left else self.joined(key, other, value)
            self.forward(key, result, max(timestamp, other_ms), headers)
        if not rows and op.emits_unmatched:
            if self.unmatched is None or max(0, timestamp + op.after_ms) < time.ms:
                self._show_alone(key, value, timestamp, headers)
            else:
                self.unmatched.add(raw, self.is_left, timestamp, self.own_serde.serialize(value), headers)

    def _show_alone(self, key: Any, value: Any, timestamp: int, headers: Any) -> None:
        result = self.joined(key, value, None) if self.is_left else self.joined(key, None, value)
        self.forward(key, result, timestamp, headers)

    def _show_over(self, unmatched: Unmatched, timestamp: int, headers: Any) -> None:
        op, now_ms = self.op, self.env.system_time_ms
        if not unmatched.may_be_over(op.after_ms + op.grace_ms, now_ms):
            return

        def show(raw: bytes, is_left: bool, of_ms: int, value: bytes) -> None:
            key = self.key_serde.deserialize(raw)
            read = self.serdes[is_left].deserialize(value)
            result = self.joined(key, read, None) if is_left else self.joined(key, None, read)
            self.forward(key, result, of_ms, headers)

        own_ms, other_ms = op.after_ms + op.grace_ms, op.before_ms + op.grace_ms
        open_ms = (other_ms, own_ms) if self.is_left else (own_ms, other_ms)
        unmatched.show_over(show, open_ms, now_ms, timestamp, headers)


@makes(nodes.StreamStreamJoin)
def make_stream_stream_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, nodes.StreamStreamJoin)
    (parent,) = node.parents
    window = builder.plan.node(parent)
    assert isinstance(window, ProcessorNode)
    assert isinstance(window.operation, nodes.StreamJoinWindow)
    return _Join(builder, op, window.operation.store, made).process


@makes(nodes.StreamSelfJoin)
def make_stream_self_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    """Results in the order of a join of two streams: as the left side, with itself, as the right side; by time."""
    op = node.operation
    assert isinstance(op, nodes.StreamSelfJoin)
    env, plan, forward, joined = builder.env, builder.plan, made.forward, joiner_of(op)
    cache: DuplicatesCache = env.caches[op.store]
    serialize = plan.key_serde(plan.specs[op.store]).serialize
    time = env.stream_times.setdefault(op.time, StreamTime())
    before_ms, after_ms = op.before_ms, op.after_ms

    def process(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
        if key is None or value is None:
            env.counters.dropped_null += 1
            return
        time.ms = max(time.ms, timestamp)
        raw = serialize(key)
        for other_ms, _, other in cache.fetch(raw, max(0, timestamp - before_ms), max(0, timestamp + after_ms)):
            forward(key, joined(key, value, other), max(timestamp, other_ms), headers)
        with_itself = timestamp > time.ms - op.retention_ms + 1
        for other_ms, _, other in cache.fetch(raw, max(0, timestamp - after_ms), max(0, timestamp + before_ms)):
            if with_itself and other_ms > timestamp:
                with_itself = False
                forward(key, joined(key, value, value), timestamp, headers)
            forward(key, joined(key, other, value), max(timestamp, other_ms), headers)
        if with_itself:
            forward(key, joined(key, value, value), timestamp, headers)

    return process
