"""Joins of two streams within windows: their rules, and their processor nodes.

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

from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.plan import ResolvedSubtopology, StreamTime
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.state.cache import Entry, KeyValueCache
from streamsrt.state.columns import Headers
from streamsrt.state.duplicates import DuplicatesCache
from streamsrt.state.kinds import cache_of
from streamsrt.state.snapshots import Values
from topology.graph import operations
from topology.graph.nodes import ProcessorNode

_TIME_AND_SIDE = Struct(">q?")
_LIST_HEAD = Struct(">bi")
_LENGTH = Struct(">i")
_VARIABLE_SIZE = 1
_LEFT, _RIGHT = b"\x01", b"\x00"


def append_to_list(listed: bytes | None, is_left: bool, raw: bytes) -> bytes:
    """Appends a value to a list in the format of Kafka Streams' ListSerde; ``listed`` None: to an empty one."""
    count = 0 if listed is None else _LIST_HEAD.unpack_from(listed)[1]
    rest = b"" if listed is None else listed[_LIST_HEAD.size :]
    side = _LEFT if is_left else _RIGHT
    return _LIST_HEAD.pack(_VARIABLE_SIZE, count + 1) + rest + _LENGTH.pack(len(raw) + 1) + side + raw


def listed_values(listed: bytes) -> Iterator[bytes]:
    """Yields the values of a list of :func:`append_to_list`, without their sides."""
    position = _LIST_HEAD.size
    for _ in range(_LIST_HEAD.unpack_from(listed)[1]):
        length = _LENGTH.unpack_from(listed, position)[0]
        position += _LENGTH.size
        yield listed[position + 1 : position + length]
        position += length


def key_of_unmatched(store_key: bytes) -> bytes:
    """Extracts the bytes of the record's key from a key of the store of unmatched records."""
    return store_key[_TIME_AND_SIDE.size :]


class Unmatched:
    """The records of one join that have no match and whose windows are open: the rows of the shared store, in order.

    Changes are collected. Callers that cause some call :meth:`send_changes` afterwards, which logs them.
    """

    def __init__(self, env: Environment, store: str) -> None:
        plan = env.plan
        self._env = env
        self._cache = cache_of(KeyValueCache, env.caches, store)
        logs = plan.writes_changelog(store) and not plan.is_cached(store)
        self._changelog = plan.changelog_topic(store) if logs else None
        self._changes: list[tuple[bytes, bytes | None, int]] = []
        self._interval_ms = plan.outer_join_emit_interval_ms
        self._next_emit_ms = 0
        self._least_ms: int | None = None
        """No record that waits is older, or None where that is not known."""
        self._order: list[bytes] = []
        """Keys of the store in their order, and some that are deleted already."""
        self._known: set[bytes] = set()
        self._loaded = False
        env.snapshots.add(f"unmatched {store}", self)

    def _change(self, store_key: bytes, listed: bytes | None, timestamp: int, headers: Headers) -> None:
        self._cache.put(store_key, listed, timestamp, headers, next(self._env.sequence))
        if self._changelog is not None:
            self._changes.append((store_key, listed, timestamp))

    def send_changes(self) -> None:
        """Writes the changes that were collected to the changelog, if the store has one."""
        if self._changes:
            changes, self._changes = self._changes, []
            keys, values, times = map(list, zip(*changes, strict=True))
            assert self._changelog is not None
            self._env.collect(self._changelog, keys, values, times, None, self._env.task_partition)

    def add(self, raw: bytes, is_left: bool, timestamp: int, value: bytes, headers: Headers) -> None:
        """Stores a record that has no match yet. ``raw``: the bytes of its key; ``timestamp``: its own, in milliseconds."""
        self._load()
        if self._least_ms is None or timestamp < self._least_ms:
            self._least_ms = timestamp
        store_key = _TIME_AND_SIDE.pack(timestamp, is_left) + raw
        if store_key not in self._known:
            self._known.add(store_key)
            if store_key not in self._cache:
                # All rows of the store are in memory, so no lookup is needed.
                self._cache[store_key] = Entry(store_key, None, -1)
            if self._order and store_key < self._order[-1]:
                insort(self._order, store_key)
            else:
                self._order.append(store_key)
        self._change(store_key, append_to_list(self._cache[store_key].value, is_left, value), timestamp, headers)

    def discard(self, raw: bytes, is_left: bool, of_ms: int, timestamp: int, headers: Headers) -> None:
        """Deletes the records of this key and side with the timestamp ``of_ms``: they have had a match, at ``timestamp``."""
        self._load()
        store_key = _TIME_AND_SIDE.pack(of_ms, is_left) + raw
        if store_key in self._known and self._cache[store_key].value is not None:
            self._change(store_key, None, timestamp, headers)

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            self._order = [entry.key for entry in self._cache.rows(None, None)]
            self._known = set(self._order)

    def snapshot(self) -> Values:
        """The time of the next scan for expired records, and the bounds of the oldest one."""
        return [self._next_emit_ms, *([] if self._least_ms is None else [self._least_ms])]

    def resume_from(self, values: Values) -> None:
        self._next_emit_ms, *known = map(int, values)
        self._least_ms = known[0] if known else None

    def may_be_over(self, after_ms: int, time_ms: int) -> bool:
        """Whether :meth:`over` should be called: a record may be over, and the time between two scans has passed."""
        if self._least_ms is not None and self._least_ms + after_ms >= time_ms:
            return False
        return self._env.system_time_ms >= self._next_emit_ms

    def over(
        self, open_ms: tuple[int, int], time_ms: int, timestamp: int, headers: Headers
    ) -> Iterator[tuple[bytes, bool, int, bytes]]:
        """Yields key, side, time and value of records that have expired at the stream time ``time_ms``. Each is deleted when
        the next one is requested.

        ``open_ms``: how long records of the right and of the left side are open.
        """
        self._load()
        self._next_emit_ms = self._env.system_time_ms + self._interval_ms
        self._least_ms = None
        seen_open = [False, False]
        kept: list[bytes] = []
        scanned = 0
        shown: bytes | None = None
        for store_key in self._order:
            listed = self._cache[store_key].value
            if listed is None:
                scanned += 1
                continue
            of_ms, is_left = _TIME_AND_SIDE.unpack_from(store_key)
            self._least_ms = of_ms
            if all(seen_open):
                break
            scanned += 1
            if of_ms + open_ms[is_left] >= time_ms:
                seen_open[is_left] = True
                kept.append(store_key)
                continue
            for value in listed_values(listed):
                yield store_key[_TIME_AND_SIDE.size :], is_left, of_ms, value
                if shown is not None and shown != store_key:
                    self._change(shown, None, timestamp, headers)
                shown = store_key
        if shown is not None:
            self._change(shown, None, timestamp, headers)
        self._known.difference_update(self._order[:scanned])
        self._known.update(kept)
        self._order[:scanned] = kept


def joiner_of(
    op: operations.StreamStreamJoin | operations.StreamSelfJoin,
) -> Callable[[object, object, object], object]:
    """Returns the joiner as ``(key, left, right) -> result``, whether or not the program's takes the key."""
    joiner = op.joiner
    return joiner if op.with_key else lambda key, left, right: joiner(left, right)


def make_stream_join_window(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.StreamJoinWindow)
    env, plan, forward = builder.env, builder.plan, made.forward
    cache = cache_of(DuplicatesCache, env.caches, op.store)
    spec = plan.specs[op.store]
    serialize, serialize_value = plan.key_serde(spec).serialize, plan.value_serde(spec).serialize
    topic = plan.changelog_topic(op.store) if plan.writes_changelog(op.store) else None
    log = None if topic is None else env.output.to(topic, env.task_partition).append

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        # A value that can't be written fails here: it is neither joined nor kept.
        raw = None if key is None or value is None else serialize_value(value)
        forward(key, value, timestamp, headers)
        if key is None:
            return
        store_key = cache.put(serialize(key), timestamp, value, raw)
        if raw is not None and timestamp <= cache.newest_ms - cache.retention_ms:
            made.drop_late(key, value, timestamp, headers)
        if log is not None:
            log(store_key, raw, timestamp, headers)

    return process


Result = tuple[bytes | None, object, object, int]
"""The key's bytes, the left and the right value, and the time."""


class JoinSide:
    """One side of a join: the results of each of its records."""

    def __init__(self, env: Environment, op: operations.StreamStreamJoin, own_store: str) -> None:
        plan = env.plan
        self.op = op
        self.is_left = op.side == "left"
        self.other = cache_of(DuplicatesCache, env.caches, op.store)
        self.time = env.stream_times.setdefault(op.time, StreamTime())
        own, other = plan.specs[own_store], plan.specs[op.store]
        self.key_serde = plan.key_serde(own)
        self.own_serde = plan.value_serde(own)
        self._serdes = (plan.value_serde(other), self.own_serde)
        if not self.is_left:
            self._serdes = (self.own_serde, plan.value_serde(other))
        own_ms, other_ms = op.after_ms + op.grace_ms, op.before_ms + op.grace_ms
        self._open_ms = (other_ms, own_ms) if self.is_left else (own_ms, other_ms)
        self.unmatched: Unmatched | None = None
        if op.shared is not None:
            known = env.shared_states.get(op.shared)
            self.unmatched = env.shared_states[op.shared] = known or Unmatched(env, op.shared)

    def raw_of(self, left: object, right: object) -> bytes:
        """The bytes of the only value that a record without a match has."""
        return self._serdes[left is not None].serialize(right if left is None else left)

    def results(
        self, raw: bytes | None, value: object, raw_value: bytes, timestamp: int, headers: Headers
    ) -> Iterator[Result]:
        """Returns the results of a record with a value, at the stream time that it has advanced; without a key it is
        unmatched."""
        op, is_left, unmatched, time_ms = self.op, self.is_left, self.unmatched, self.time.ms
        if raw is None:
            yield (None, value, None, timestamp) if is_left else (None, None, value, timestamp)
            return
        if timestamp == time_ms and unmatched is not None and unmatched.may_be_over(op.after_ms + op.grace_ms, time_ms):
            for over, of_left, of_ms, listed in unmatched.over(self._open_ms, time_ms, timestamp, headers):
                read = self._serdes[of_left].deserialize(listed)
                yield (over, read, None, of_ms) if of_left else (over, None, read, of_ms)
        rows = self.other.fetch(raw, max(0, timestamp - op.before_ms), max(0, timestamp + op.after_ms))
        for other_ms, _, other in rows:
            if unmatched is not None:
                unmatched.discard(raw, not is_left, other_ms, timestamp, headers)
            at_ms = max(timestamp, other_ms)
            yield (raw, value, other, at_ms) if is_left else (raw, other, value, at_ms)
        if not rows and op.emits_unmatched:
            if unmatched is None or max(0, timestamp + op.after_ms) < time_ms:
                yield (raw, value, None, timestamp) if is_left else (raw, None, value, timestamp)
            else:
                unmatched.add(raw, is_left, timestamp, raw_value, headers)


def own_store_of(plan: ResolvedSubtopology, node: ProcessorNode) -> str:
    """The store that keeps the records of a join's side."""
    (parent,) = node.parents
    window = plan.node(parent)
    assert isinstance(window, ProcessorNode)
    assert isinstance(window.operation, operations.StreamJoinWindow)
    return window.operation.store


def make_stream_stream_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.StreamStreamJoin)
    env, forward, joined = builder.env, made.forward, joiner_of(op)
    side = JoinSide(env, op, own_store_of(builder.plan, node))
    time, key_serde, serialize = side.time, side.key_serde, side.own_serde.serialize

    def forward_waited(raw: bytes | None, left: object, right: object, at_ms: int, headers: Headers) -> None:
        """A record without a match. It was read before the record that makes it a result, whose headers it gets."""
        assert raw is not None
        key, value = key_serde.deserialize(raw), right if left is None else left
        with env.of_earlier(node.name, key, value, at_ms, (), lambda: (raw, side.raw_of(left, right), (), at_ms)):
            env.came_unknown = True
            forward(key, joined(key, left, right), at_ms, headers)

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if timestamp > time.ms:
            time.ms = timestamp
        if value is None or (key is None and not op.emits_unmatched):
            env.counters.dropped_null += 1
            return
        raw = None if key is None else key_serde.serialize(key)
        raw_value = serialize(value) if op.emits_unmatched else b""
        try:
            for of_raw, left, right, at_ms in side.results(raw, value, raw_value, timestamp, headers):
                if of_raw is raw:
                    forward(key, joined(key, left, right), at_ms, headers)
                else:
                    forward_waited(of_raw, left, right, at_ms, headers)
        finally:
            if side.unmatched is not None:
                side.unmatched.send_changes()

    return process


class SelfJoin:
    """Results in the order of a join of two streams: as the left side, with itself, as the right side; by time."""

    def __init__(self, env: Environment, op: operations.StreamSelfJoin) -> None:
        self._op = op
        self._cache = cache_of(DuplicatesCache, env.caches, op.store)
        self.key_serde = env.plan.key_serde(env.plan.specs[op.store])
        self.time = env.stream_times.setdefault(op.time, StreamTime())

    def results(self, raw: bytes, value: object, timestamp: int) -> Iterator[tuple[object, object, int]]:
        """Left and right value and time of what a record gives, before it is kept itself."""
        op, fetch = self._op, self._cache.fetch
        for other_ms, _, other in fetch(raw, max(0, timestamp - op.before_ms), max(0, timestamp + op.after_ms)):
            yield value, other, max(timestamp, other_ms)
        with_itself = timestamp > self.time.ms - op.retention_ms + 1
        for other_ms, _, other in fetch(raw, max(0, timestamp - op.after_ms), max(0, timestamp + op.before_ms)):
            if with_itself and other_ms > timestamp:
                with_itself = False
                yield value, value, timestamp
            yield other, value, max(timestamp, other_ms)
        if with_itself:
            yield value, value, timestamp


def make_stream_self_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.StreamSelfJoin)
    env, forward, joined = builder.env, made.forward, joiner_of(op)
    join = SelfJoin(env, op)
    time, serialize = join.time, join.key_serde.serialize

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if key is None or value is None:
            env.counters.dropped_null += 1
            return
        time.ms = max(time.ms, timestamp)
        for left, right, at_ms in join.results(serialize(key), value, timestamp):
            forward(key, joined(key, left, right), at_ms, headers)

    return process
