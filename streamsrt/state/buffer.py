"""The suppressed changes of a table, ordered by time.

1. All of it is in memory; the changelog survives the process. A change keeps the position of the first suppressed
   change of its row.
2. A row of the changelog contains the context of the last record (timestamp, offset, topic, partition, headers), the
   value that was forwarded last (``prior``), the old and the new value of the change, and the time by which it is
   ordered. Its record has a header ``v`` = 03; a deletion has none.
3. A flush logs what has changed since the last one: the last state of each row, or a deletion.
4. Sizes are computed as in Kafka Streams, so that a limit in bytes means the same.
5. Changes are ordered by time, then by key. Windows give many changes one time, so the keys of a time are sorted once, when
   it is due.

Source: InMemoryTimeOrderedKeyValueChangeBuffer, BufferValue and ProcessorRecordContext of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from struct import Struct, error
from typing import Any, NamedTuple, Protocol

from streamsrt.errors import StateError
from streamsrt.state.cache import Deserialize, Serialize
from streamsrt.state.columns import ChangelogColumns, Headers
from streamsrt.state.snapshots import Values
from topology.spec.row_versions import unreadable
from topology.spec.windows import END_OF_TIME_MS

_CONTEXT = Struct(">qqi")
_INTS = Struct(">ii")
_INT = Struct(">i")
_TIME = Struct(">q")
_NONES = Struct(">iiii")
NO_TIME = _TIME.pack(0)
_NONE, _SAME_AS_PRIOR = -1, -2
_VERSION_HEADER = "v"
VERSION_HEADERS = ((_VERSION_HEADER, b"\x03"),)


@dataclass(slots=True)
class Held:
    """A change that is held back. ``origin``: topic, partition and offset of the record that made it.

    ``is_first``: of its row there was no change before it that is held back, so that ``old`` is ``prior``.
    """

    key: bytes
    time_ms: int
    new: Any  # of the type that the table's serde has
    old: Any
    prior: Any
    timestamp: int
    headers: Headers
    origin: tuple[str, int, int]
    is_first: bool = True


Written = tuple[bytes | None, bytes | None]
"""The bytes of a change's new and old value."""


class HeldRecord(NamedTuple):
    """What an operator held back, as bytes: not the record that the task read, but what had become of it."""

    key: bytes
    value: bytes | None
    headers: Headers
    timestamp: int


class HeldChange(Protocol):
    """What is read of a change that is held back, to tell where it came from."""

    @property
    def key(self) -> bytes: ...
    @property
    def new(self) -> object: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def origin(self) -> tuple[str, int, int]: ...


def held_record(held: HeldChange, to_raw: Callable[[object], bytes | None]) -> HeldRecord:
    """A change that was held back, as bytes. ``to_raw`` serialises its value."""
    return HeldRecord(held.key, to_raw(held.new), tuple(held.headers), held.timestamp)


class BytesRows(Protocol):
    """The part of a byte store that a buffer uses."""

    def range(self, start: bytes | None = None, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]: ...

    def write(self, puts: Iterable[tuple[bytes, bytes | None]], *, changelog_offset: int | None = None) -> None: ...

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int, /) -> None: ...


class HeldFormat:
    """The format of a change in the changelog of the buffer ``name``; (de)serializes values."""

    def __init__(self, name: str, serialize: Serialize, deserialize: Deserialize) -> None:
        self.name = name
        self._serialize = serialize
        self._deserialize = deserialize

    def raw(self, value: object) -> bytes | None:
        """The bytes of a value; None for none."""
        return None if value is None else self._serialize(value)

    def _read(self, key: bytes, value: bytes) -> object:
        try:
            return self._deserialize(value)
        except Exception as error:
            raise unreadable(self.name, key, value, error) from error

    def to_bytes(self, change: Held, written: Written | None = None) -> bytes:
        """A row of the changelog."""
        topic, partition, offset = change.origin
        raw_topic = topic.encode()
        parts = [_CONTEXT.pack(change.timestamp, offset, len(raw_topic)), raw_topic]
        parts.append(_INTS.pack(partition, len(change.headers)))
        for name, value in change.headers:
            raw_name = name.encode()
            parts += [_INT.pack(len(raw_name)), raw_name, _sized(value)]
        new, old = (self.raw(change.new), self.raw(change.old)) if written is None else written
        prior = old if change.prior is change.old else self.raw(change.prior)
        same = old is not None and old == prior
        parts += [_sized(prior), _INT.pack(_SAME_AS_PRIOR) if same else _sized(old), _sized(new)]
        # A window may end after the last timestamp that there is: it never closes, and the bytes have no later time.
        return b"".join(parts) + _TIME.pack(min(change.time_ms, END_OF_TIME_MS))

    def record_row(self, value: bytes, timestamp: int, headers: Headers, origin: tuple[str, int, int]) -> bytes:
        """As :meth:`to_bytes` of a record that replaces nothing, and has no time by which it is ordered."""
        if headers:
            raw = HeldFormat(self.name, bytes, bytes)
            return raw.to_bytes(Held(b"", 0, value, None, None, timestamp, headers, origin))
        topic, partition, offset = origin
        pack, place = record_place(topic, partition)
        return pack(timestamp, offset, place, len(value)) + value + NO_TIME

    def from_bytes(self, key: bytes, row: bytes) -> Held:
        """The change in a row of the changelog. Raises StateError."""
        reader = _Reader(row)
        try:
            timestamp, offset = reader.time(), reader.time()
            topic = (reader.sized() or b"").decode()
            partition = reader.integer()
            headers = [((reader.sized() or b"").decode(), reader.sized()) for _ in range(max(reader.integer(), 0))]
            prior = reader.sized()
            old = reader.sized(prior)
            new = reader.sized()
            time_ms = reader.time()
        except (error, UnicodeDecodeError) as damage:
            raise StateError(
                f"buffer {self.name!r} can't read its record of key {key!r} ({damage}): its changelog is damaged, or "
                "something else writes to it. Reset the application, or start it with an empty changelog."
            ) from damage
        old_value, new_value, prior_value = (None if v is None else self._read(key, v) for v in (old, new, prior))
        origin = (topic, partition, offset)
        return Held(key, time_ms, new_value, old_value, prior_value, timestamp, headers, origin, old == prior)


@lru_cache(maxsize=1024)
def record_place(topic: str, partition: int) -> tuple[Callable[[int, int, bytes, int], bytes], bytes]:
    """What packs timestamp, offset, a place and the size of its value into the beginning of a record's row (the value and
    ``NO_TIME`` end it), and that place: of a record without headers that replaces nothing."""
    raw_topic = topic.encode()
    place = _INT.pack(len(raw_topic)) + raw_topic + _NONES.pack(partition, 0, _NONE, _NONE)
    return Struct(f">qq{len(place)}si").pack, place


class SuppressionBuffer:
    """The buffer of one task. ``size_in_bytes`` is kept after :meth:`count_bytes` only."""

    def __init__(self, name: str, store: BytesRows, serialize: Serialize, deserialize: Deserialize) -> None:
        self.name = name
        self.store = store
        self.dirty: dict[bytes, Written | None] = {}
        """The keys of what changed since the last time that it was logged."""
        self.pending: dict[bytes, bytes | None] = {}
        self.size_in_bytes = 0
        self.counts_bytes = False
        self._format = HeldFormat(name, serialize, deserialize)
        self._held: dict[bytes, Held] = {}
        self._times: list[int] = []
        """A heap of the times that ``_keys`` has."""
        self._keys: dict[int, list[bytes]] = {}
        self._sorted: set[int] = set()
        """Times whose keys are sorted, the last one first."""
        self._loaded = False

    def raw(self, value: object) -> bytes | None:
        """The bytes of a value; None for none."""
        return self._format.raw(value)

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: bytes) -> Held | None:
        """The change of that row that is held back."""
        self._load()
        return self._held.get(key)

    def put(self, change: Held, written: Written | None = None) -> int:
        """Holds a change back; one of the same row that is there gives it its position and what was forwarded before.
        ``written``: its values as they will be logged; None: they are written then.

        Returns the time of the change that goes next.
        """
        if not self._loaded:
            self._load()
        key = change.key
        before = self._held.get(key)
        if before is not None:
            change.prior, change.time_ms, change.is_first = before.prior, before.time_ms, False
            if self.counts_bytes:
                self.size_in_bytes -= self._size_of(before)
        else:
            self._queue(key, change.time_ms)
        if self.counts_bytes:
            self.size_in_bytes += self._size_of(change)
        self._held[key] = change
        self.dirty[key] = written
        return self._times[0]

    def _queue(self, key: bytes, time_ms: int) -> None:
        keys = self._keys.get(time_ms)
        if keys is None:
            self._keys[time_ms] = [key]
            heappush(self._times, time_ms)
        else:
            keys.append(key)
            if self._sorted:
                self._sorted.discard(time_ms)

    def evict_until(self, until_ms: int) -> Iterator[Held]:
        """The changes whose times are not later, in order. Each is held back no more once it is taken."""
        if not self._loaded:
            self._load()
        times, held, dirty = self._times, self._held, self.dirty
        while times and times[0] <= until_ms:
            time_ms = times[0]
            keys = self._in_order(time_ms)
            while keys:
                key = keys.pop()
                if not keys:
                    self._forget(time_ms)
                gone = held.pop(key)
                if self.counts_bytes:
                    self.size_in_bytes -= self._size_of(gone)
                dirty[key] = None
                yield gone

    def take_first(self) -> Held | None:
        """The change that goes next, which is held back no more; None where there is none."""
        self._load()
        return next(self.evict_until(self._times[0]), None) if self._times else None

    def _in_order(self, time_ms: int) -> list[bytes]:
        """The keys of a time, the last one first."""
        keys = self._keys[time_ms]
        if time_ms not in self._sorted:
            keys.sort(reverse=True)
            self._sorted.add(time_ms)
        return keys

    def _forget(self, time_ms: int) -> None:
        heappop(self._times)
        del self._keys[time_ms]
        self._sorted.discard(time_ms)

    def count_bytes(self) -> None:
        """Keeps ``size_in_bytes`` from now on."""
        self._load()
        self.counts_bytes = True
        self.size_in_bytes = sum(map(self._size_of, self._held.values()))

    def _size_of(self, change: Held) -> int:
        prior, old, new = (self._format.raw(value) for value in (change.prior, change.old, change.new))
        size = 8 + len(change.key) + 20 + len(change.origin[0]) + len(prior or b"") + len(new or b"")
        if not change.is_first:
            size += len(old or b"")
        return size + sum(len(name) + len(value or b"") for name, value in change.headers)

    # ------------------------------------------------------------------------------------------------------ changelog

    def take_changes(self) -> tuple[list[bytes], list[bytes | None], list[Headers]]:
        """Keys, values and headers for the changelog of what changed since the last time, by key."""
        keys, dirty = sorted(self.dirty), self.dirty
        self.dirty = {}
        values: list[bytes | None] = []
        for key in keys:
            held = self._held.get(key)
            values.append(None if held is None else self._format.to_bytes(held, dirty[key]))
        self.pending.update(zip(keys, values, strict=True))
        return keys, values, [() if value is None else VERSION_HEADERS for value in values]

    def write(self, changelog_offset: int | None) -> None:
        """Puts everything pending into the store."""
        if self.pending or changelog_offset is not None:
            self.store.write(list(self.pending.items()), changelog_offset=changelog_offset)
            self.pending = {}

    def restore(self, columns: ChangelogColumns) -> None:
        """Applies records of the changelog to the store."""
        headers = columns.headers or [()] * len(columns.keys)
        for value, header in zip(columns.values, headers, strict=True):
            if value is not None and dict(header).get(_VERSION_HEADER) != b"\x03":
                raise StateError(
                    f"the changelog of suppression {self.name!r} has a record below offset {columns.next_offset} in another "
                    "format than that of Kafka Streams 2.6 and later. Let a later Kafka Streams "
                    "version emit the buffered records, or reset the application."
                )
        self.store.restore(columns.keys, columns.values, columns.next_offset)
        self.dirty, self.pending = {}, {}
        self._held, self._times, self._keys, self._sorted, self._loaded = {}, [], {}, set(), False

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for key, row in self.store.range(None, None):
            held = self._held[key] = self._format.from_bytes(key, row)
            self._queue(key, held.time_ms)

    def snapshot(self) -> Values:
        """Of what sizes count, the keys whose changes a row does not tell from first ones."""
        if not self.counts_bytes:
            return []
        return sorted(key.hex() for key, held in self._held.items() if not held.is_first and self._seems_first(held))

    def _seems_first(self, change: Held) -> bool:
        return self._format.raw(change.old) == self._format.raw(change.prior)

    def resume_from(self, values: Values) -> None:
        self._load()
        for key in values:
            self._held[bytes.fromhex(str(key))].is_first = False
        # Only what counts has values to carry: it counts before its first record, too, so that it carries them again.
        if values or self.counts_bytes:
            self.count_bytes()

    # ------------------------------------------------------------------------------------------------------- as a cache

    def size_bytes(self) -> int:
        """About how much memory it takes. What is held back can't be evicted, so it does not count against the caches."""
        return 0

    def evict(self, limit_bytes: int) -> None:
        """Nothing here can be read again from somewhere else."""

    def rows(self) -> list[Held]:
        """Returns the held changes, in order."""
        self._load()
        return [self._held[key] for time_ms in sorted(self._times) for key in sorted(self._keys[time_ms])]


def _sized(value: bytes | None) -> bytes:
    return _INT.pack(_NONE) if value is None else _INT.pack(len(value)) + value


class _Reader:
    def __init__(self, row: bytes) -> None:
        self._row = row
        self._at = 0

    def time(self) -> int:
        self._at += 8
        return int(_TIME.unpack_from(self._row, self._at - 8)[0])

    def integer(self) -> int:
        self._at += 4
        return int(_INT.unpack_from(self._row, self._at - 4)[0])

    def sized(self, same: bytes | None = None) -> bytes | None:
        length = self.integer()
        if length == _SAME_AS_PRIOR:
            return same
        if length < 0:
            return None
        self._at += length
        if self._at > len(self._row):
            raise error("a value extends beyond the end of the row")
        return self._row[self._at - length : self._at]
