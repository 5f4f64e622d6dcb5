"""Stream-table joins with a grace period, as processor nodes.

1. A record waits until stream time is the grace period beyond it, so that rows of the table which come late but were valid
   at its time are found: the table keeps versions, and is asked for the one at the record's time.
2. What has waited long enough is joined in the order of time, when the next record comes. A record that is older than the
   grace period when it comes is joined at once.
3. Every record that waits is a row of the buffer: a zero, its timestamp, its key and a number. Its value in the changelog is
   as Kafka Streams writes it, with the topic, partition, offset and headers that it came with. These records have no time of
   their own.
4. A left join joins a record without a key at once, with None. Kafka Streams fails there.

Source: KStreamKTableJoinProcessor and RocksDBTimeOrderedKeyValueBuffer of Kafka Streams (KIP-923).
"""

from __future__ import annotations

from bisect import insort
from functools import partial
from struct import Struct
from typing import NamedTuple

from streamsrt.operators.engine.plan import StreamTime
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.engine.table_views import table_view_as_of
from streamsrt.state.buffer import HeldFormat, HeldRecord
from streamsrt.state.cache import Entry, KeyValueCache, RowFormat
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import cache_of
from streamsrt.state.snapshots import Values
from topology.graph import operations
from topology.graph.nodes import ProcessorNode
from topology.spec.processor import RecordMetadata

_KEY_HEAD = Struct(">bq")
_NUMBER_BYTES = 4
_LAST_NUMBER = 0x7FFFFFFF
_RECORDS_MAX = 10_000
_GONE_MAX = 1_000


def key_of_waiting(store_key: bytes) -> bytes:
    """Extracts the bytes of the record's key from a key of the buffer."""
    return store_key[_KEY_HEAD.size : -_NUMBER_BYTES]


class _Waiting(NamedTuple):
    """A record that waits, as bytes. ``origin``: topic, partition and offset."""

    key: bytes
    value: bytes
    timestamp: int
    headers: Headers
    origin: tuple[str, int, int]


class _Buffer:
    """The records that wait, in the order of time."""

    def __init__(self, builder: PathBuilder, store: str, row_format: HeldFormat) -> None:
        self._env = builder.env
        self._cache = cache_of(KeyValueCache, builder.env.caches, store)
        self._format = row_format
        topic = builder.plan.changelog_topic(store) if builder.plan.writes_changelog(store) else None
        self._log = None if topic is None else builder.env.output.to(topic, builder.env.task_partition).append
        self._order: list[bytes] = []
        self._start = 0
        """How many of the first keys are gone already."""
        self._records: dict[bytes, _Waiting] = {}
        """Those that came last, which need not be read again."""
        self._number = 0
        self._loaded = False
        self._env.snapshots.add(f"buffer {store}", self)

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            self._order = [entry.key for entry in self._cache.rows(None, None)]
            self._number = max(
                (int.from_bytes(store_key[-_NUMBER_BYTES:], "big") for store_key in self._order), default=0
            )

    def add(self, record: _Waiting) -> None:
        """Lets a record wait."""
        self._load()
        self._number = (self._number + 1) & _LAST_NUMBER
        store_key = _KEY_HEAD.pack(0, record.timestamp) + record.key + self._number.to_bytes(_NUMBER_BYTES, "big")
        order = self._order
        if not order or store_key > order[-1]:
            order.append(store_key)
        else:
            insort(order, store_key, self._start)
        if len(self._records) < _RECORDS_MAX:
            self._records[store_key] = record
        if store_key not in self._cache:
            # No row has its number, so no look-up is needed.
            self._cache[store_key] = Entry(store_key, None, -1)
        _, value, timestamp, headers, origin = record
        self._write(store_key, self._format.record_row(value, timestamp, headers, origin))

    def first_until(self, time_ms: int) -> _Waiting | None:
        """The earliest record, if it is not later than ``time_ms``."""
        if not self._loaded:
            self._load()
        if self._start == len(self._order):
            return None
        store_key = self._order[self._start]
        if _KEY_HEAD.unpack_from(store_key)[1] > time_ms:
            return None
        found = self._records.get(store_key)
        if found is None:
            held = self._format.from_bytes(key_of_waiting(store_key), self._cache[store_key].value)
            found = _Waiting(held.key, held.new, held.timestamp, tuple(held.headers), held.origin)
        return found

    def remove_first(self) -> None:
        """Forgets the earliest record."""
        store_key = self._order[self._start]
        self._start += 1
        if self._start > _GONE_MAX:
            del self._order[: self._start]
            self._start = 0
        self._records.pop(store_key, None)
        self._write(store_key, None)

    def snapshot(self) -> Values:
        """The number of the last record that waited, though none may wait now."""
        self._load()
        return [self._number]

    def resume_from(self, values: Values) -> None:
        self._load()
        (self._number,) = map(int, values)

    def _write(self, store_key: bytes, row: bytes | None) -> None:
        env = self._env
        self._cache.put(store_key, row, 0, (), next(env.sequence))
        if self._log is not None:
            self._log(store_key, row, env.system_time_ms, ())


def make_stream_table_grace_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.StreamTableGraceJoin)
    env, plan, forward = builder.env, builder.plan, made.forward
    joiner, left, with_key, grace_ms = op.joiner, op.left, op.with_key, op.grace_ms
    row_as_of = table_view_as_of(plan, env.caches, op.table)
    assert row_as_of is not None, "the topology allows a grace period only for joins with versioned tables"
    key_serde = plan.serde_or_default(op.key_serde, "key", node.name)
    value_serde = plan.serde_or_default(op.value_serde, "value", node.name)
    serialize, from_key = value_serde.serialize, key_serde.deserialize
    buffer = _Buffer(builder, op.buffer, HeldFormat(op.buffer, bytes, bytes))
    time = env.stream_times.setdefault(node.name, StreamTime())

    read = RowFormat(value_serde.serialize, value_serde.deserialize, store=op.buffer).read

    def join(key: object, value: object, timestamp: int, headers: Headers) -> None:
        row = None if key is None else row_as_of(key, timestamp)
        if row is not None or left:
            forward(key, joiner(key, value, row) if with_key else joiner(value, row), timestamp, headers)

    def join_what_waited() -> None:
        current = env.metadata
        try:
            while (found := buffer.first_until(time.ms - grace_ms)) is not None:
                raw, raw_value, timestamp, headers, origin = found
                env.metadata = RecordMetadata(*origin)
                record = (from_key(raw), read(raw, raw_value), timestamp, headers)
                with env.of_earlier(made.name, *record, partial(HeldRecord, raw, raw_value, headers, timestamp)):
                    join(*record)
                buffer.remove_first()
        finally:
            env.metadata = current

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if value is None or (key is None and not left):
            env.counters.dropped_null += 1
        elif key is None or time.ms - grace_ms > timestamp:
            join(key, value, timestamp, headers)
        else:
            if timestamp > time.ms:
                time.ms = timestamp
            origin = env.metadata or ("", -1, -1)
            buffer.add(_Waiting(key_serde.serialize(key), serialize(value), timestamp, tuple(headers), origin))
            join_what_waited()

    return process
