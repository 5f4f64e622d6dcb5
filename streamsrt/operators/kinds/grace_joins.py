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

from streamsrt.operators.engine.plan import StreamTime
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.engine.table_views import table_view_as_of
from streamsrt.state.buffer import Held, HeldFormat, held_record
from streamsrt.state.cache import KeyValueCache
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import cache_of
from streamsrt.state.snapshots import Values
from topology.graph import operations
from topology.graph.nodes import ProcessorNode
from topology.spec.processor import RecordMetadata

_KEY_HEAD = Struct(">bq")
_NUMBER_BYTES = 4
_LAST_NUMBER = 0x7FFFFFFF


def key_of_waiting(store_key: bytes) -> bytes:
    """Extracts the bytes of the record's key from a key of the buffer."""
    return store_key[_KEY_HEAD.size : -_NUMBER_BYTES]


class _Buffer:
    """The records that wait, in the order of time."""

    def __init__(self, builder: PathBuilder, store: str, row_format: HeldFormat) -> None:
        self._env = builder.env
        self._cache = cache_of(KeyValueCache, builder.env.caches, store)
        self._format = row_format
        logs = builder.plan.writes_changelog(store)
        self._changelog = builder.plan.changelog_topic(store) if logs else None
        self._order: list[bytes] = []
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

    def add(self, held: Held) -> None:
        """Lets a record wait."""
        self._load()
        self._number = (self._number + 1) & _LAST_NUMBER
        store_key = _KEY_HEAD.pack(0, held.timestamp) + held.key + self._number.to_bytes(_NUMBER_BYTES, "big")
        insort(self._order, store_key)
        self._write(store_key, self._format.to_bytes(held))

    def first_until(self, time_ms: int) -> tuple[bytes, Held] | None:
        """The earliest record, if it is not later than ``time_ms``, with its key in the store."""
        self._load()
        if not self._order or _KEY_HEAD.unpack_from(self._order[0])[1] > time_ms:
            return None
        store_key = self._order[0]
        return store_key, self._format.from_bytes(key_of_waiting(store_key), self._cache[store_key].value)

    def remove_first(self) -> None:
        """Forgets the earliest record."""
        self._write(self._order.pop(0), None)

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
        if self._changelog is not None:
            env.collect(self._changelog, [store_key], [row], [env.system_time_ms], None, env.task_partition)


def make_stream_table_grace_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.StreamTableGraceJoin)
    env, plan, forward = builder.env, builder.plan, made.forward
    joiner, left, with_key, grace_ms = op.joiner, op.left, op.with_key, op.grace_ms
    row_as_of = table_view_as_of(plan, env.caches, op.table)
    assert row_as_of is not None, "the topology allows a grace period only for joins with versioned tables"
    key_serde = plan.serde_or_default(op.key_serde, "key", node.name)
    value_serde = plan.serde_or_default(op.value_serde, "value", node.name)
    row_format = HeldFormat(op.buffer, value_serde.serialize, value_serde.deserialize)
    buffer = _Buffer(builder, op.buffer, row_format)
    time = env.stream_times.setdefault(node.name, StreamTime())

    def join(key: object, value: object, timestamp: int, headers: Headers) -> None:
        row = None if key is None else row_as_of(key, timestamp)
        if row is not None or left:
            forward(key, joiner(key, value, row) if with_key else joiner(value, row), timestamp, headers)

    def join_what_waited() -> None:
        current = env.metadata
        try:
            while (found := buffer.first_until(time.ms - grace_ms)) is not None:
                _, held = found
                env.metadata = RecordMetadata(*held.origin)
                record = (key_serde.deserialize(held.key), held.new, held.timestamp, tuple(held.headers))
                with env.of_earlier(made.name, *record, partial(held_record, held, row_format.raw)):
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
            time.ms = max(time.ms, timestamp)
            topic, partition, offset = env.metadata or ("", -1, -1)
            raw = key_serde.serialize(key)
            buffer.add(Held(raw, 0, value, None, None, timestamp, headers, (topic, partition, offset)))
            join_what_waited()

    return process
