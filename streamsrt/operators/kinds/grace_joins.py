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
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from streamsrt.errors import RecordError, StateError
from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.plan import StreamTime
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.engine.table_views import table_view_as_of
from streamsrt.state.buffer import HeldFormat, HeldRecord
from streamsrt.state.cache import KeyValueCache, RowFormat
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import cache_of
from streamsrt.state.snapshots import Values
from topology import serdes
from topology.graph import operations
from topology.graph.nodes import ProcessorNode
from topology.spec.processor import RecordMetadata

_KEY_HEAD = Struct(">bq")
_pack_head, _pack_number = _KEY_HEAD.pack, Struct(">i").pack
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

    @property
    def metadata(self) -> RecordMetadata:
        return RecordMetadata(*self.origin)

    @property
    def source(self) -> HeldRecord:
        return HeldRecord(self.key, self.value, self.headers, self.timestamp)


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
        if not self._loaded:
            self._load()
        key, value, timestamp, headers, origin = record
        number = self._number = (self._number + 1) & _LAST_NUMBER
        store_key = _pack_head(0, timestamp) + key + _pack_number(number)
        order = self._order
        if not order or store_key > order[-1]:
            order.append(store_key)
        else:
            insort(order, store_key, self._start)
        if len(self._records) < _RECORDS_MAX:
            self._records[store_key] = record
        row = self._format.record_row(value, timestamp, headers, origin)
        # No row has its number.
        self._cache.put_new(store_key, row)
        if self._log is not None:
            self._log(store_key, row, self._env.plan.clock.at(self._env.system_time_ms), ())

    def first_until(self, time_ms: int) -> _Waiting | None:
        """The earliest record, if it is not later than ``time_ms``."""
        if not self._loaded:
            self._load()
        if self._start == len(self._order):
            return None
        store_key = self._order[self._start]
        found = self._records.get(store_key)
        if found is not None:
            return found if found.timestamp <= time_ms else None
        if _KEY_HEAD.unpack_from(store_key)[1] > time_ms:
            return None
        held = self._format.from_bytes(key_of_waiting(store_key), self._cache[store_key].value)
        return _Waiting(held.key, held.new, held.timestamp, tuple(held.headers), held.origin)

    def remove_first(self) -> None:
        """Forgets the earliest record."""
        store_key = self._order[self._start]
        self._start += 1
        if self._start > _GONE_MAX:
            del self._order[: self._start]
            self._start = 0
        self._records.pop(store_key, None)
        self._cache.delete_new(store_key)
        if self._log is not None:
            self._log(store_key, None, self._env.plan.clock.at(self._env.system_time_ms), ())

    def snapshot(self) -> Values:
        """The number of the last record that waited, though none may wait now."""
        self._load()
        return [self._number]

    def resume_from(self, values: Values) -> None:
        self._load()
        (self._number,) = map(int, values)


def _letting_go(
    env: Environment,
    node: str,
    buffer: _Buffer,
    from_key: Callable[[bytes], object] | None,
    read: Callable[[bytes, bytes], object] | None,
    join: Callable[[object, object, int, Headers], None],
) -> Callable[[int], None]:
    """What joins all records up to a time, in their order. ``from_key``, ``read``: make objects of the bytes; None: these
    stay as they are."""

    def let_go(until_ms: int) -> None:
        found = buffer.first_until(until_ms)
        if found is None:
            return
        before = env.place
        try:
            while found is not None:
                # Failures are its own, not those of the record that lets it go.
                env.position = found
                raw, raw_value, timestamp, headers, _ = found
                key = raw if from_key is None else from_key(raw)
                value = raw_value if read is None else read(raw, raw_value)
                try:
                    join(key, value, timestamp, headers)
                except (RecordError, StateError):
                    raise
                except BaseException as error:  # noqa: BLE001  # a user's function may raise anything
                    env.failed(node, error, key, value, timestamp, headers)
                buffer.remove_first()
                found = buffer.first_until(until_ms)
        finally:
            env.place = before

    return let_go


def make_stream_table_grace_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.StreamTableGraceJoin)
    env, plan, forward = builder.env, builder.plan, made.forward
    joiner, left, with_key, grace_ms = op.joiner, op.left, op.with_key, op.grace_ms
    row_as_of = table_view_as_of(plan, env.caches, op.table)
    assert row_as_of is not None, "the topology allows a grace period only for joins with versioned tables"
    key_serde = plan.serde_or_default(op.key_serde, "key", node.name)
    value_serde = plan.serde_or_default(op.value_serde, "value", node.name)
    serialize_key, serialize = key_serde.serialize, value_serde.serialize
    # Bytes stay as they are.
    raw_key_type, raw_type = (bytes if serde is serdes.bytes else None for serde in (key_serde, value_serde))
    buffer = _Buffer(builder, op.buffer, HeldFormat(op.buffer, bytes, bytes))
    time = env.stream_times.setdefault(node.name, StreamTime())

    from_key = None if raw_key_type else key_serde.deserialize
    read = None if raw_type else RowFormat(serialize, value_serde.deserialize, store=op.buffer).read

    def join(key: object, value: object, timestamp: int, headers: Headers) -> None:
        row = None if key is None else row_as_of(key, timestamp)
        if row is not None or left:
            forward(key, joiner(key, value, row) if with_key else joiner(value, row), timestamp, headers)

    let_go = _letting_go(env, made.name, buffer, from_key, read, join)

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if value is None or (key is None and not left):
            env.counters.dropped_null += 1
        elif key is None or time.ms - grace_ms > timestamp:
            join(key, value, timestamp, headers)
        else:
            if timestamp > time.ms:
                time.ms = timestamp
            origin = env.metadata or ("", -1, -1)
            raw_key = key if type(key) is raw_key_type else serialize_key(key)
            raw = value if type(value) is raw_type else serialize(value)
            buffer.add(_Waiting(raw_key, raw, timestamp, tuple(headers), origin))
            let_go(time.ms - grace_ms)

    return process
