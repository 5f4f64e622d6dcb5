"""As-of joins of two streams, as processor nodes.

1. Both sides observe one stream time. A record of the right side is kept, and logged, until stream time is ``keep_ms``
   beyond it; one that is older than that when it comes is dropped as late.
2. A record of the left side is joined with the latest kept record of its key, at or before its time and ``within_ms`` away
   at most; among equal times with the one that came last. A left record for which that may be gone already, one further
   than ``keep_ms - within_ms`` behind stream time, is dropped as late.
3. With a grace period a left record waits, in a store of its own, until stream time is that far beyond it. What has waited
   is joined in the order of time, then of arrival, by the record of either side that moves stream time, before that one is
   kept or joined: so what it brings, or lets expire, is not seen.
4. A result has the timestamp and headers of its left record. A left record without a key is joined with None at once, where
   unmatched ones are wanted; other records without a key or a value are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from struct import Struct

from streamsrt.operators.engine.plan import StreamTime
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.state.buffer import HeldRecord
from streamsrt.state.cache import Entry, KeyValueCache
from streamsrt.state.columns import Headers
from streamsrt.state.duplicates import DuplicatesCache
from streamsrt.state.kinds import cache_of
from streamsrt.state.snapshots import Values, in_parts
from topology.graph.nodes import ProcessorNode
from topology.graph.operations.joins import AsofJoin, AsofKeep
from topology.spec.processor import RecordMetadata

_KEY_HEAD = Struct(">qq")
_COUNT = Struct(">i")
_NONE = -1

Forward = Callable[[object, object, int, Headers], None]


def pack_row(headers: Headers, value: bytes) -> bytes:
    """Encodes a waiting record without key and timestamp: its headers, each with its length, then its value."""
    parts = [_COUNT.pack(len(headers))]
    for name, content in headers:
        raw = name.encode()
        parts += [_COUNT.pack(len(raw)), raw, _COUNT.pack(_NONE if content is None else len(content)), content or b""]
    return b"".join(parts) + value


def unpack_row(row: bytes) -> tuple[Headers, bytes]:
    """Decodes what :func:`pack_row` has encoded: the headers and the value."""
    at = _COUNT.size
    headers = []
    for _ in range(_COUNT.unpack_from(row)[0]):
        name, at = _sized(row, at)
        content, at = _sized(row, at)
        headers.append(((name or b"").decode(), content))
    return tuple(headers), row[at:]


def _sized(row: bytes, at: int) -> tuple[bytes | None, int]:
    length = _COUNT.unpack_from(row, at)[0]
    at += _COUNT.size
    return (None, at) if length == _NONE else (row[at : at + length], at + length)


def key_of_waiting(store_key: bytes) -> bytes:
    """Extracts the bytes of the record's key from a key of the store of waiting records."""
    return store_key[_KEY_HEAD.size :]


class _Waiting:
    """The left records that wait: rows of a store by time and, among equal times, number of arrival.

    A number follows from the rows alone, so that an interruption does not show in the store.
    """

    def __init__(self, builder: PathBuilder, store: str) -> None:
        self._cache = cache_of(KeyValueCache, builder.env.caches, store)
        self._change = builder.change(store)
        self._order: list[bytes] = []
        self._last: dict[int, int] = {}
        """The highest number of those that wait, by time."""
        self._loaded = False
        self._env = builder.env
        self._origins: dict[bytes, RecordMetadata | None] = {}
        """Where records were read; not of those that have waited since before a restart."""
        self._env.snapshots.add(f"waiting {store}", self)

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            self._order = [entry.key for entry in self._cache.rows(None, None)]
            self._last = dict(sorted(_KEY_HEAD.unpack_from(store_key) for store_key in self._order))
            heapify(self._order)

    def add(self, key: bytes, value: bytes, timestamp: int, headers: Headers) -> None:
        """Lets a record wait."""
        self._load()
        number = self._last[timestamp] = self._last.get(timestamp, 0) + 1
        store_key = _KEY_HEAD.pack(timestamp, number) + key
        heappush(self._order, store_key)
        self._origins[store_key] = self._env.metadata
        if store_key not in self._cache:
            # No row has its number, so no look-up is needed.
            self._cache[store_key] = Entry(store_key, None, -1)
        self._change(store_key, pack_row(tuple(headers), value), timestamp, (), -1)

    def first_until(self, time_ms: int) -> tuple[bytes, bytes, int, Headers, RecordMetadata | None] | None:
        """The earliest record, if it is not later than ``time_ms``: key, value, timestamp, headers, where it was read."""
        self._load()
        if not self._order:
            return None
        store_key = self._order[0]
        timestamp, _ = _KEY_HEAD.unpack_from(store_key)
        if timestamp > time_ms:
            return None
        headers, value = unpack_row(self._cache[store_key].value)
        return key_of_waiting(store_key), value, timestamp, headers, self._origins.get(store_key)

    def remove_first(self, now_ms: int) -> None:
        """The earliest record waits no more."""
        store_key = heappop(self._order)
        self._origins.pop(store_key, None)
        timestamp, _ = _KEY_HEAD.unpack_from(store_key)
        # Not by the number: records of equal number have come together where partitions were divided anew.
        if not self._order or _KEY_HEAD.unpack_from(self._order[0])[0] != timestamp:
            del self._last[timestamp]
        self._change(store_key, None, now_ms, (), -1)

    def snapshot(self) -> Values:
        """Where the records that wait were read."""
        return [
            part
            for store_key, origin in self._origins.items()
            if origin is not None
            for part in (store_key.hex(), *origin)
        ]

    def resume_from(self, values: Values) -> None:
        for store_key, topic, partition, offset in in_parts(values, 4):
            origin = RecordMetadata(str(topic), int(partition), int(offset))
            self._origins[bytes.fromhex(str(store_key))] = origin


def _as_kept(key: bytes, value: bytes, timestamp: int, headers: Headers) -> HeldRecord:
    return HeldRecord(key, value, headers, timestamp)


class _Asof:
    """One join, for both sides."""

    def __init__(self, builder: PathBuilder, node: ProcessorNode, op: AsofJoin) -> None:
        plan = builder.plan
        self.op = op
        self.name = node.name
        self.env = builder.env
        self.time = self.env.stream_times.setdefault(op.time, StreamTime())
        self.rights = cache_of(DuplicatesCache, self.env.caches, op.store)
        self.waiting = None if op.waiting is None else _Waiting(builder, op.waiting)
        self.key_serde = plan.serde_or_default(op.key_serde, "key", node.name)
        self.value_serde = plan.serde_or_default(op.value_serde, "value", node.name)

    def observe(self, timestamp: int, forward: Forward) -> None:
        """Moves stream time, and joins what has waited long enough."""
        if timestamp <= self.time.ms:
            return
        if self.waiting is not None:
            self._let_go(self.waiting, timestamp, forward)
        # Not before: where that fails, the record lets go again what still waits when it is read again.
        self.time.ms = timestamp

    def _let_go(self, waiting: _Waiting, timestamp: int, forward: Forward) -> None:
        env = self.env
        while (found := waiting.first_until(timestamp - self.op.grace_ms)) is not None:
            raw, value, of_ms, headers, origin = found
            record = (self.key_serde.deserialize(raw), self.value_serde.deserialize(value), of_ms, headers)
            with env.of_earlier(self.name, *record, partial(_as_kept, raw, value, of_ms, headers), origin):
                env.came_unknown = origin is None
                self.join(raw, *record, forward)
            waiting.remove_first(timestamp)

    def join(
        self, raw: bytes | None, key: object, value: object, timestamp: int, headers: Headers, forward: Forward
    ) -> None:
        """Joins a left record with the stored right records."""
        op = self.op
        rows = () if raw is None else self.rights.fetch(raw, max(0, timestamp - op.within_ms), timestamp)
        if rows or op.left:
            other = rows[-1][2] if rows else None
            result = op.joiner(key, value, other) if op.with_key else op.joiner(value, other)
            forward(key, result, timestamp, headers)


def _asof(builder: PathBuilder, node: ProcessorNode) -> _Asof:
    """The join of that left node, once for both sides."""
    op, states = node.operation, builder.env.shared_states
    assert isinstance(op, AsofJoin)
    if op.time not in states:
        states[op.time] = _Asof(builder, node, op)
    found: _Asof = states[op.time]
    return found


def make_asof_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    asof, forward, counters = _asof(builder, node), made.forward, builder.env.counters
    op, time, waiting = asof.op, asof.time, asof.waiting

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if value is None or (key is None and not op.left):
            counters.dropped_null += 1
            return
        if key is None:
            asof.join(None, key, value, timestamp, headers, forward)
            return
        asof.observe(timestamp, forward)
        if timestamp < time.ms - (op.keep_ms - op.within_ms):
            counters.dropped_late += 1
            made.drop_late(key, value, timestamp, headers)
            return
        raw = asof.key_serde.serialize(key)
        if waiting is None or timestamp <= time.ms - op.grace_ms:
            asof.join(raw, key, value, timestamp, headers, forward)
        else:
            waiting.add(raw, asof.value_serde.serialize(value), timestamp, headers)

    return process


def make_asof_keep(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, AsofKeep)
    joins = builder.plan.node(op.join)
    assert isinstance(joins, ProcessorNode)
    asof, forward, env, plan = _asof(builder, joins), made.forward, builder.env, builder.plan
    cache, time, keep_ms = asof.rights, asof.time, asof.op.keep_ms
    spec = plan.specs[op.store]
    serialize, serialize_value = plan.key_serde(spec).serialize, plan.value_serde(spec).serialize
    topic = plan.changelog_topic(op.store) if plan.writes_changelog(op.store) else None
    log = None if topic is None else env.output.to(topic, env.task_partition).append

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if key is None or value is None:
            env.counters.dropped_null += 1
            return
        asof.observe(timestamp, forward)
        if timestamp < time.ms - keep_ms:
            env.counters.dropped_late += 1
            made.drop_late(key, value, timestamp, headers)
            return
        raw = serialize_value(value)
        store_key = cache.put(serialize(key), timestamp, value, raw)
        if log is not None:
            log(store_key, raw, timestamp, headers)

    return process
