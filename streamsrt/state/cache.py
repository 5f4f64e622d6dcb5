"""The write-back cache between the operators of a task and its byte stores.

1. A store is read and written only through its cache. The cache holds deserialized values under the *serialized* key,
   in entries that the operators change in place: one dictionary lookup per record, and no serialization before the
   flush.
2. A miss loads the entry (``dict.__missing__``). An entry whose ``value`` is None is a key without a row.
3. A changed entry is ``dirty`` and is once in ``dirty``, together with the value that it had before (``old``;
   :data:`UNREAD` if nobody looked it up). ``sequence`` orders entries by their last change: a flush goes from the least
   to the most recently changed one, as in Kafka Streams. Closing windows by stream time depends on this order.
4. :meth:`flush` takes the dirty entries out as columns. Their bytes are *pending* until :meth:`write` puts them into
   the store as one sorted batch, together with the changelog offset. So the store is never ahead of its changelog, with
   or without caching; caching only decides how often changes are forwarded and logged.
5. Values are treated as immutable: a function that changes an aggregate in place changes ``old`` too.
6. Eviction has two generations: entries not used since the :meth:`evict` before last are dropped. Dirty and pending
   entries are never dropped.
7. Rows that only one ``count()`` uses may be held as :mod:`streamsrt.state.counts` instead of entries. ``rows``,
   ``cached`` and ``changes`` include both; code that looks for entries itself calls ``settle`` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add, attrgetter
from struct import Struct
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from streamsrt.state.columns import ChangelogColumns, Headers
from streamsrt.state.counts import CountedRows, Keys, Row
from streamsrt.wire.records.columns import Times
from streamsrt.wording import error_text
from topology.spec.codecs import Fold
from topology.spec.row_versions import unreadable

ENTRY_OVERHEAD_BYTES: Final = 230
UNREAD: Final = object()
_SAMPLE = 200
_COUNTED: Final = -(1 << 62)
"""The sequence of a counted row's first change: those of entries come later."""

_pack_timestamp = Struct(">q").pack
_unpack_timestamp = Struct(">q").unpack_from
_by_sequence = attrgetter("sequence")
_old = attrgetter("old")

Serialize = Callable[[Any], bytes]  # of the type that the program's serde takes
Deserialize = Callable[[bytes], object]


class ReadableBytes(Protocol):
    """The part of a byte store that a cache uses."""

    def get(self, key: bytes, /) -> bytes | None: ...

    def write(self, puts: Iterable[tuple[bytes, bytes | None]], *, changelog_offset: int | None = None) -> None: ...

    def range(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int, /) -> None: ...


class RestoresStamped(Protocol):
    """A byte store that puts timestamps before the values itself."""

    def restore_stamped(self, columns: ChangelogColumns, /) -> None: ...


class Entry:
    """One row. ``timestamp`` is the row's, in milliseconds; ``start`` the window's, where there is one."""

    __slots__ = ("dirty", "headers", "key", "old", "sequence", "start", "timestamp", "value")

    def __init__(self, key: bytes, value: Any, timestamp: int, start: int = 0) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.start = start
        self.dirty = False
        self.sequence = 0
        self.old: Any = None  # values have the type that the store's serde has
        self.headers: Headers = ()


E = TypeVar("E", bound=Entry)


class UnwritableValueError(Exception):
    """The serde of a store can't write ``value`` of the row of ``key``; the cause says why."""

    def __init__(self, key: bytes | None, value: object, cause: Exception) -> None:
        super().__init__(error_text(cause))
        self.key = key
        self.value = value


def _unwritable(
    keys: Sequence[bytes], values: Sequence[object], serialize: Serialize, cause: Exception
) -> UnwritableValueError:
    """Which of ``values`` it was."""
    for key, value in zip(keys, values, strict=True):
        if value is not None:
            try:
                serialize(value)
            except Exception as error:  # noqa: BLE001  # a user's serde may raise anything
                return UnwritableValueError(key, value, error)
    return UnwritableValueError(None, None, cause)


class Flushed:
    """Changed rows as columns, least recently changed first. ``starts`` is None but for windows, ``ends`` but for sessions.

    ``olds`` is empty before ``read_olds``. ``store_keys`` are the keys under which rows are stored and logged,
    ``raw_values`` the serialised values.
    """

    __slots__ = (
        "ends",
        "entries",
        "has_headers",
        "keys",
        "olds",
        "raw_values",
        "starts",
        "store_keys",
        "timestamps",
        "values",
    )

    def __init__(
        self,
        keys: Sequence[bytes],
        values: Sequence[object],
        timestamps: Sequence[int],
        serialize: Serialize,
        store_keys: Sequence[bytes] | None = None,
        starts: Sequence[int] | None = None,
        entries: Sequence[Entry] = (),
    ) -> None:
        self.ends: list[int] | None = None
        self.entries = entries
        self.has_headers = True
        self.keys = keys
        self.values = values
        self.olds: list[object] = []
        self.timestamps = timestamps
        self.starts = starts
        self.store_keys = keys if store_keys is None else store_keys
        self.raw_values: list[bytes | None]
        try:
            if None in values:
                self.raw_values = [None if v is None else serialize(v) for v in values]
            else:
                self.raw_values = list(map(serialize, values))
        except Exception as error:
            raise _unwritable(keys, values, serialize, error) from error

    @classmethod
    def of(
        cls,
        entries: Sequence[Entry],
        serialize: Serialize,
        store_keys: Sequence[bytes] | None = None,
        starts: Sequence[int] | None = None,
    ) -> Flushed:
        """Changed entries as columns."""
        keys = [entry.key for entry in entries]
        values = [entry.value for entry in entries]
        timestamps = [entry.timestamp for entry in entries]
        return cls(keys, values, timestamps, serialize, store_keys, starts, entries)

    @property
    def headers(self) -> list[Headers]:
        """Those with which the changes are forwarded. Counted rows have none."""
        if not self.entries or not self.has_headers:
            return [()] * len(self.keys)
        return [entry.headers for entry in self.entries]

    @property
    def deletions_headers(self) -> list[Headers] | None:
        """Those of deleted rows, with none for all others; None where no deletion has any."""
        each: list[Headers] = [() if entry.value is not None else entry.headers for entry in self.entries]
        return each if any(each) else None

    def __len__(self) -> int:
        return len(self.keys)


class RowFormat:
    """Bytes of a stored row: 8 bytes of timestamp before the value where the store is ``timestamped``."""

    __slots__ = ("deserialize", "serialize", "store", "timestamped")

    def __init__(
        self, serialize: Serialize, deserialize: Deserialize, *, timestamped: bool = True, store: str = ""
    ) -> None:
        self.store = store
        self.serialize = serialize
        self.deserialize = deserialize
        self.timestamped = timestamped

    def load(self, key: bytes, row: bytes | None, start: int = 0) -> Entry:
        if row is None:
            return Entry(key, None, -1, start)
        value, timestamp = (row[8:], _unpack_timestamp(row)[0]) if self.timestamped else (row, -1)
        try:
            return Entry(key, self.deserialize(value), timestamp, start)
        except Exception as error:
            raise unreadable(self.store, key, value, error) from error

    def read(self, key: bytes, value: bytes) -> object:
        """A value that stands alone in the row of ``key``."""
        try:
            return self.deserialize(value)
        except Exception as error:
            raise unreadable(self.store, key, value, error) from error

    def row(self, timestamp: int, raw_value: bytes | None) -> bytes | None:
        return _pack_timestamp(timestamp) + raw_value if self.timestamped and raw_value is not None else raw_value

    def rows(self, timestamps: Sequence[int], raw_values: Sequence[bytes | None]) -> list[bytes | None]:
        if not self.timestamped:
            return list(raw_values)
        if None in raw_values:
            return list(map(self.row, timestamps, raw_values))
        return list(map(add, map(_pack_timestamp, timestamps), raw_values))


class ChangedEntries(Generic[E]):
    """What caches have in common whose entries are always read before they are changed."""

    dirty: list[E]
    """Those that changed since the last flush."""

    def change(self, entry: E, value: object, timestamp: int, headers: Headers, sequence: int) -> None:
        """Gives an entry another value; None deletes."""
        if not entry.dirty:
            entry.dirty = True
            entry.old = entry.value
            self.dirty.append(entry)
        entry.value = value
        entry.timestamp = timestamp
        entry.headers = headers
        entry.sequence = sequence

    def _take_changed(self, *, forwards: bool) -> list[E]:
        """Takes them out, in the order of their last changes. Where the flush ``forwards``, what came and went between two
        flushes is left out."""
        entries = self.dirty
        self.dirty = []
        entries.sort(key=_by_sequence)
        for entry in entries:
            entry.dirty = False
        return [e for e in entries if e.value is not None or e.old is not None] if forwards else entries


class KeyValueCache(dict[bytes, Entry]):
    """The cache of a key-value store. ``cache[key]`` never raises KeyError: see rule 2."""

    def __init__(self, name: str, store: ReadableBytes, row_format: RowFormat) -> None:
        super().__init__()
        self.name = name
        self.store = store
        self.format = row_format
        self.dirty: list[Entry] = []
        self.pending: dict[bytes, bytes | None] = {}
        self.counts: CountedRows | None = None
        self.fold: Fold | None = None
        """Turns records of the changelog into rows; None: they are rows."""
        self._previous: dict[bytes, Entry] = {}
        self._row_bytes = 64

    def __missing__(self, key: bytes) -> Entry:
        entry = self._previous.pop(key, None)
        if entry is None:
            entry = self.format.load(key, self._row(key))
        self[key] = entry
        return entry

    def unread(self, key: bytes) -> Entry:
        """The entry to overwrite: without a look-up in the store where it is not cached."""
        entry = self.get(key) or self._previous.pop(key, None)
        if entry is None:
            if key in self.pending:
                return self[key]
            entry = Entry(key, None, -1)
            entry.old = UNREAD
            entry.dirty = True
            self.dirty.append(entry)
        self[key] = entry
        return entry

    def put(self, key: bytes, value: object, timestamp: int, headers: Headers, sequence: int) -> Entry:
        """Changes the row and returns its entry; ``value`` None deletes."""
        if self.counts is not None:
            self.settle()
        entry = self[key]
        if not entry.dirty:
            entry.dirty = True
            entry.old = entry.value
            self.dirty.append(entry)
        entry.value = value
        entry.timestamp = timestamp
        entry.headers = headers
        entry.sequence = sequence
        return entry

    def put_new(self, key: bytes, row: bytes) -> None:
        """Puts the bytes of a row that neither the store nor the cache has, to be written without being cached."""
        self.pending[key] = row

    def delete_new(self, key: bytes) -> None:
        """Deletes a row that was put by :meth:`put_new`, before or after it was written."""
        self.pop(key, None)
        pending = self.pending
        if pending.get(key) is None:
            pending[key] = None
        else:
            # Each is put once, so the store does not have it.
            del pending[key]

    def flush(self, *, forwards: bool = True) -> Flushed | None:
        """Takes the dirty entries out; None where there are none.

        A key that came and went between two flushes is left out, as far as that is known; where the result ``forwards``,
        it is looked up.
        """
        if self.counts is not None and self.counts.has_changes:
            changes = self.counts.take_changes()
            return self._flushed(Flushed(changes.keys, changes.totals, changes.times, self.format.serialize))
        if not self.dirty:
            return None
        entries = self.dirty
        self.dirty = []
        if len(entries) == 1:
            return self._flush_one(entries[0], forwards=forwards)
        entries.sort(key=_by_sequence)
        deleted = False
        for entry in entries:
            entry.dirty = False
            if entry.value is None:
                deleted = True
        changed = entries
        if deleted:
            before = self.value_before if forwards else _old
            changed = [e for e in entries if e.value is not None or before(e) is not None]
        if not changed:
            return None
        return self._flushed(Flushed.of(changed, self.format.serialize))

    def _flush_one(self, entry: Entry, *, forwards: bool) -> Flushed | None:
        """The only changed row, as most commits after a single record have it: what is done for columns costs more."""
        entry.dirty = False
        if entry.value is None and (self.value_before(entry) if forwards else entry.old) is None:
            return None
        key, form = entry.key, self.format
        flushed = Flushed([key], [entry.value], [entry.timestamp], form.serialize, entries=[entry])
        row = form.row(entry.timestamp, flushed.raw_values[0])
        self.pending[key] = row
        self._row_bytes = bytes_of(key, row)
        return flushed

    def _flushed(self, flushed: Flushed) -> Flushed:
        rows = self.format.rows(flushed.timestamps, flushed.raw_values)
        self.pending.update(zip(flushed.keys, rows, strict=True))
        self._row_bytes = average_bytes(flushed.keys, rows)
        return flushed

    @property
    def has_counted(self) -> bool:
        """Whether rows were counted since the last flush."""
        return self.counts is not None and self.counts.has_changes

    def count(self, keys: Keys, timestamps: Times) -> None:
        """Adds 1 to a key's row for each time that it is there. For a cache whose entries are all unchanged."""
        if self.counts is None:
            self.counts = CountedRows(self._adopted)
        self.counts.take(keys, timestamps)

    def _adopted(self, keys: list[bytes]) -> Iterator[Row]:
        """The rows of keys. Those that are entries are none any more."""
        older = None if self.counts is None else self.counts.older
        has_entries, pending, load = bool(self or self._previous), self.pending, self.format.load
        for key in keys:
            if older is not None and (counted := older.row(key)):
                yield counted
                continue
            entry = None
            if has_entries:
                entry = self.pop(key, None) or self._previous.pop(key, None)
            if entry is None:
                row = pending[key] if key in pending else self.store.get(key)
                if row is None:
                    continue
                entry = load(key, row)
            if entry.value is not None:
                yield key, entry.value, entry.timestamp

    def settle(self) -> None:
        """Makes changed entries of what was counted, and forgets the other counted rows."""
        if self.counts is not None:
            self.dirty.extend(changed_entries(self.counts))
            self.update((entry.key, entry) for entry in self.dirty)
            self.counts = None

    def cached(self, key: bytes) -> Entry | None:
        """The row of a key as far as it is in memory; not to be changed."""
        row = None if self.counts is None else self.counts.row(key)
        return self.get(key) if row is None else Entry(*row)

    def changes(self) -> Sequence[Entry]:
        """The rows that changed since the last flush; not to be changed."""
        return self.dirty if self.counts is None else [Entry(*row) for row in self.counts.changes()]

    def forwarded(self, key: bytes) -> Entry:
        """The row as it was last forwarded, without the changes since the last flush; not to be changed."""
        entry = self[key]
        if not entry.dirty:
            return entry
        return self.format.load(key, self._row(key))

    def _row(self, key: bytes) -> bytes | None:
        """The row that is stored, or waits for that."""
        return self.pending[key] if key in self.pending else self.store.get(key)

    def value_before(self, entry: Entry) -> Any:
        """What a changed entry's row was before it was changed, since the last flush."""
        if entry.old is UNREAD:
            key = entry.key
            entry.old = self.format.load(key, self._row(key)).value
        return entry.old

    def read_olds(self, flushed: Flushed) -> None:
        """Fills in ``olds``, and looks up entries that were not read so far. Call it before :meth:`write`."""
        for entry in flushed.entries:
            if entry.old is UNREAD:
                entry.old = self.format.load(entry.key, self.store.get(entry.key)).value
        flushed.olds = [entry.old for entry in flushed.entries]

    def write(self, changelog_offset: int | None) -> None:
        """Puts everything pending into the store, as one batch in key order."""
        pending = self.pending
        if pending or changelog_offset is not None:
            rows = [(key, pending[key]) for key in sorted(pending)] if len(pending) > 1 else list(pending.items())
            self.store.write(rows, changelog_offset=changelog_offset)
            self.pending = {}

    def size_bytes(self) -> int:
        rows = len(self) + len(self._previous) + len(self.pending)
        if self.counts is not None:
            rows += len(self.counts) + len(self.counts.older or ())
        return rows * (ENTRY_OVERHEAD_BYTES + self._row_bytes)

    def evict(self, limit_bytes: int) -> None:
        """Drops entries that were not used lately, where there are more than ``limit_bytes`` of them."""
        if self.size_bytes() <= limit_bytes or self.dirty or self.pending or self.has_counted:
            return
        kept = len(self) + len(self.counts or ())
        keeps = kept * (ENTRY_OVERHEAD_BYTES + self._row_bytes) <= limit_bytes
        self._previous = dict(self) if keeps else {}
        self.clear()
        if self.counts is not None:
            self.counts.older = None
            self.counts = CountedRows(self._adopted, self.counts if keeps else None)

    def forget(self) -> None:
        """Drops every entry, changed ones too: the store was rewritten from its changelog."""
        self.clear()
        self._previous = {}
        self.counts = None
        self.dirty = []
        self.pending = {}

    def restore(self, columns: ChangelogColumns) -> None:
        """Applies records of the changelog to the store."""
        store = self.store
        # isinstance() takes 40 us for a protocol.
        if self.fold is None and self.format.timestamped and hasattr(store, "restore_stamped"):
            cast(RestoresStamped, store).restore_stamped(columns)
        elif self.fold is None:
            rows = self.format.rows(columns.timestamps, columns.values)
            store.restore(columns.keys, rows, columns.next_offset)
        else:
            self.store.restore(*self.fold(columns.keys, columns.values, self.store.get), columns.next_offset)
        self.forget()

    def rows(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Entry]:
        """Yields rows with ``start`` <= key < ``end`` in the order of the key's bytes, including unflushed ones."""
        changed = {e.key: e for e in self.changes() if _within(e.key, start, end)}
        pending = {k: r for k, r in self.pending.items() if k not in changed and _within(k, start, end)}
        load = self.format.load
        found = {k: load(k, r) for k, r in self.store.range(start, end) if k not in changed and k not in pending}
        found |= {k: load(k, r) for k, r in pending.items()}
        found |= changed
        for key in sorted(found, reverse=reverse):
            if found[key].value is not None:
                yield found[key]


def _within(key: bytes, start: bytes | None, end: bytes | None) -> bool:
    return (start is None or start <= key) and (end is None or key < end)


def changed_entries(counts: CountedRows, start: int = 0) -> list[Entry]:
    """The changed rows in the order of their changes, before all that changes later."""
    keys, totals, times, positions, olds = counts.take_changes()
    entries = [Entry(*row, start) for row in zip(keys, totals, times, strict=True)]
    for entry, position, old in zip(entries, positions.tolist(), olds, strict=True):
        entry.dirty = True
        entry.old = old or None
        entry.sequence = _COUNTED + position
    return entries


def bytes_of(key: bytes, row: bytes | None) -> int:
    """What they take in memory, as Python's objects."""
    return len(key) + len(row or b"") + 33


def average_bytes(keys: Sequence[bytes], rows: list[bytes | None]) -> int:
    """Bytes of a key and its row, estimated from a few, with what Python adds to each object."""
    if len(rows) == 1:
        return bytes_of(keys[0], rows[0])
    some = keys[:_SAMPLE]
    return (sum(map(len, some)) + sum(map(len, filter(None, rows[:_SAMPLE])))) // len(some) + 33
