"""Stream-table joins with a grace period, as processor nodes. Their code: :mod:`streamsrt.operators.kinds.grace_join_code`.

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
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from streamsrt.errors import RecordError, StateError
from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.plan import StreamTime
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.engine.table_views import table_view_as_of
from streamsrt.state.buffer import HeldChange, HeldFormat, HeldRecord
from streamsrt.state.cache import KeyValueCache, RowFormat
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import cache_of
from streamsrt.state.snapshots import Values
from topology import serdes
from topology.graph import operations
from topology.graph.nodes import ProcessorNode
from topology.spec.processor import RecordMetadata

_KEY_HEAD = Struct(">bq")
pack_head, pack_number = _KEY_HEAD.pack, Struct(">i").pack
_NUMBER_BYTES = 4
LAST_NUMBER: Final = 0x7FFFFFFF
FAR_MS: Final = 1 << 63
_RECORDS_MAX = 10_000
GONE_MAX: Final = 1_000
GONE: Final = (b"", -1)
"""In place of a row that is gone, until it is removed with those before it: it may have been large."""


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


Whole = tuple[bytes, int, bytes, bytes, Headers, tuple[str, int], int]
"""The key of the row and the time of a record that waits; its key, value and headers; topic, partition and offset."""
Row = Whole | tuple[bytes, int]
"""Of some, the key of the row and the time are in memory only."""
_store_key_of = itemgetter(0)
_new = tuple.__new__
"""What a named tuple does to make one, at a third of the time."""


class WaitingRecords:
    """The records that wait, in the order of time.

    Generated code has what :meth:`begin` gives as variables of its own, adds and removes records itself as :meth:`add` and
    :meth:`remove_first` do, and brings the variables back with :meth:`end`.
    """

    def __init__(self, env: Environment, store: str) -> None:
        plan = env.plan
        self._env = env
        self.cache = cache_of(KeyValueCache, env.caches, store)
        self.format = HeldFormat(store, bytes, bytes)
        topic = plan.changelog_topic(store) if plan.writes_changelog(store) else None
        self._log = None if topic is None else env.output.to(topic, env.task_partition).append
        self._rows: list[Row] = []
        self._start = 0
        """How many of the first rows are gone already."""
        self._number = 0
        self._has_bare = False
        """Whether some rows may be in memory with their times only."""
        self._loaded = False
        self.evicted: tuple[HeldChange, Callable[[object], bytes | None]] = _First(self), _as_it_is
        """What :attr:`Environment.evicted` is while the earliest record is joined."""
        env.snapshots.add(f"buffer {store}", self)

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            keys = [entry.key for entry in self.cache.rows(None, None)]
            self._rows = [(store_key, _KEY_HEAD.unpack_from(store_key)[1]) for store_key in keys]
            self._has_bare = bool(keys)
            self._number = max((int.from_bytes(store_key[-_NUMBER_BYTES:], "big") for store_key in keys), default=0)

    def add(self, key: bytes, value: bytes, timestamp: int, headers: Headers, origin: tuple[str, int, int]) -> None:
        """Lets a record wait, as bytes. ``origin``: topic, partition and offset."""
        if not self._loaded:
            self._load()
        number = self._number = (self._number + 1) & LAST_NUMBER
        store_key = pack_head(0, timestamp) + key + pack_number(number)
        if len(self._rows) - self._start < _RECORDS_MAX:
            self.insert((store_key, timestamp, key, value, headers, origin[:2], origin[2]), self._start)
        else:
            self._has_bare = True
            self.insert((store_key, timestamp), self._start)
        row = self.format.record_row(value, timestamp, headers, origin)
        # No row has its number.
        self.cache.put_new(store_key, row)
        if self._log is not None:
            self._log(store_key, row, self._env.program_time_ms, ())

    def insert(self, row: Row, start: int) -> None:
        """Adds a row at its place behind the first ``start`` ones."""
        rows = self._rows
        if len(rows) == start or row[0] > rows[-1][0]:
            rows.append(row)
        else:
            insort(rows, row, start, key=_store_key_of)

    def whole(self, row: Row) -> Whole:
        """The row with all that it has."""
        if len(row) != 2:  # the key and the time
            return row
        store_key, timestamp = row
        held = self.format.from_bytes(key_of_waiting(store_key), self.cache[store_key].value)
        # It is read once.
        del self.cache[store_key]
        return store_key, timestamp, held.key, held.new, tuple(held.headers), held.origin[:2], held.origin[2]

    def first(self) -> _Waiting:
        """The earliest record."""
        _, timestamp, key, value, headers, place, offset = self.whole(self._rows[self._start])
        return _new(_Waiting, (key, value, timestamp, headers, (*place, offset)))

    def first_until(self, time_ms: int) -> _Waiting | None:
        """The earliest record, if it is not later than ``time_ms``."""
        if not self._loaded:
            self._load()
        rows, start = self._rows, self._start
        return None if start == len(rows) or rows[start][1] > time_ms else self.first()

    def remove_first(self) -> None:
        """Forgets the earliest record."""
        store_key = self._rows[self._start][0]
        self._rows[self._start] = GONE
        self._start += 1
        if self._start > GONE_MAX:
            del self._rows[: self._start]
            self._start = 0
        self.cache.delete_new(store_key)
        if self._log is not None:
            self._log(store_key, None, self._env.program_time_ms, ())

    def begin(self, count: int) -> tuple[list[Row], int, int, int, int, bool, bool, dict[bytes, bytes | None]]:
        """The rows, how many of them are gone, the last number, the times of the earliest and of the latest record (far from
        all others if none waits), whether ``count`` more may be in memory as a whole, whether not all are, and what is to be
        written to the store."""
        self._load()
        rows, start = self._rows, self._start
        waits = start < len(rows)
        if not waits:
            self._has_bare = False
        holds = len(rows) - start + count <= _RECORDS_MAX
        self._has_bare = self._has_bare or not holds
        first_ms, last_ms = (rows[start][1], rows[-1][1]) if waits else (FAR_MS, -1)
        return rows, start, self._number, first_ms, last_ms, holds, self._has_bare, self.cache.pending

    def end(self, start: int, number: int) -> None:
        """Takes back what changed of that."""
        if start > GONE_MAX:
            del self._rows[:start]
            start = 0
        self._start, self._number = start, number

    def snapshot(self) -> Values:
        """The number of the last record that waited, though none may wait now."""
        self._load()
        return [self._number]

    def resume_from(self, values: Values) -> None:
        self._load()
        (self._number,) = map(int, values)


def _as_it_is(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None


class _First:
    """The earliest record that waits, as a change that is held back."""

    def __init__(self, waiting: WaitingRecords) -> None:
        self._waiting = waiting

    @property
    def key(self) -> bytes:
        return self._waiting.first().key

    @property
    def new(self) -> bytes:
        return self._waiting.first().value

    @property
    def timestamp(self) -> int:
        return self._waiting.first().timestamp

    @property
    def headers(self) -> Headers:
        return self._waiting.first().headers

    @property
    def origin(self) -> tuple[str, int, int]:
        return self._waiting.first().origin


def waiting_records(env: Environment, store: str) -> WaitingRecords:
    """Those of a buffer, which generated code and processor nodes share."""
    name = f"buffer {store}"
    found: WaitingRecords | None = env.shared_states.get(name)
    if found is None:
        found = env.shared_states[name] = WaitingRecords(env, store)
    return found


def _letting_go(
    env: Environment,
    node: str,
    buffer: WaitingRecords,
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
    buffer = waiting_records(env, op.buffer)
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
            buffer.add(raw_key, raw, timestamp, tuple(headers), origin)
            let_go(time.ms - grace_ms)

    return process
