"""State stores as user code sees them: typed keys and values over a task's caches.

``streamsrt.state.kinds`` says which class each kind of store has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from streamsrt.errors import UserError
from streamsrt.state.cache import Entry, KeyValueCache, RowFormat
from streamsrt.state.columns import Headers
from streamsrt.state.duplicates import DuplicatesCache
from streamsrt.state.session_cache import SessionCache, SessionEntry
from streamsrt.state.store import after_prefix
from streamsrt.state.versioned_cache import VersionedCache, VersionPut
from streamsrt.state.window_cache import WindowCache
from topology.spec.codecs import ProgramSerde
from topology.spec.stores import ValueAndTimestamp, VersionedRecord
from topology.spec.timestamps import is_whole_ms
from topology.spec.windows import END_OF_TIME_MS, Windowed

KeySerde: TypeAlias = ProgramSerde
Rows: TypeAlias = Iterator[tuple[Any, Any]]  # keys and values have the types that the program gave its store
WindowedRows: TypeAlias = Iterator[tuple[Windowed[Any], Any]]
StartedRows: TypeAlias = Iterator[tuple[int, Any]]
Version: TypeAlias = VersionedRecord[Any]
Change = TypeVar("Change", bound=Entry | SessionEntry | VersionPut)
OnChange: TypeAlias = Callable[[Change, bytes | None], None]
"""The change, and the bytes of its value."""
Now = Callable[[], tuple[int, Headers, int]]
"""Timestamp and headers of the current record, and the next sequence number."""


def _check_time(store: str, what: str, value: int, *, least_ms: int = 0) -> None:
    """Checks a time that a program gave. Raises UserError here, not at the commit that writes it."""
    if not is_whole_ms(value, least_ms):
        since = "from 0 (1970) on" if least_ms == 0 else "since 1970"
        raise UserError(f"store {store!r}: {what} is {value!r}; give a whole number of milliseconds {since}")


class _Cache(Protocol):
    name: str
    format: RowFormat


StoreCache = TypeVar("StoreCache", bound=_Cache)


class _Access(Generic[StoreCache, Change]):
    """What stores of all kinds have. ``on_change`` logs each change that is not cached."""

    def __init__(self, cache: StoreCache, key_serde: KeySerde, now: Now, *, on_change: OnChange[Change] | None) -> None:
        self.name = cache.name
        self._cache = cache
        self._serde = key_serde
        self._serialize = key_serde.serialize
        self._now = now
        self._on_change = on_change

    def _written(self, value: object) -> bytes | None:
        """The bytes of a value that is to be logged. They are made before the row is changed: a handler may skip a record
        whose value the serde can't write, and the next flush would fail for the row."""
        return None if value is None or self._on_change is None else self._cache.format.serialize(value)


class _TimestampedAccess(_Access[StoreCache, Entry]):
    """A store whose rows a processor sees as values, in a timestamped store with their timestamps."""

    def __init__(
        self,
        cache: StoreCache,
        key_serde: KeySerde,
        now: Now,
        *,
        timestamped: bool,
        on_change: OnChange[Entry] | None,
    ) -> None:
        super().__init__(cache, key_serde, now, on_change=on_change)
        self._timestamped = timestamped
        self._has_timestamps = cache.format.timestamped

    def _result(self, entry: Entry) -> Any:
        if entry.value is None or not self._timestamped:
            return entry.value
        # Rows without timestamps show the one of their last change to nobody.
        return ValueAndTimestamp(entry.value, entry.timestamp if self._has_timestamps else -1)


class KeyValueAccess(_TimestampedAccess[KeyValueCache]):
    """A key-value store (:class:`topology.spec.stores.KeyValueStore`)."""

    def get(self, key: object) -> Any:
        entry = self._cache[self._serialize(key)]
        return self._result(entry) if self._timestamped else entry.value

    def put(self, key: object, value: Any) -> None:
        timestamp, headers, sequence = self._now()
        if self._timestamped and value is not None:
            value, timestamp = value
            _check_time(self.name, "the timestamp of a value", timestamp, least_ms=-END_OF_TIME_MS)
        raw_value = self._written(value)
        entry = self._cache.put(self._serialize(key), value, timestamp, headers, sequence)
        if self._on_change is not None:
            self._on_change(entry, raw_value)

    def put_if_absent(self, key: object, value: object) -> Any:
        before = self.get(key)
        if before is None:
            self.put(key, value)
        return before

    def put_all(self, entries: list[tuple[object, object]]) -> None:
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: object) -> Any:
        before = self.get(key)
        self.put(key, None)
        return before

    def _rows(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Rows:
        deserialize = self._serde.deserialize
        for entry in self._cache.rows(start, end, reverse=reverse):
            yield deserialize(entry.key), self._result(entry)

    def _bounds(self, start: object, end: object) -> tuple[bytes | None, bytes | None]:
        serialize = self._serde.serialize
        return (
            None if start is None else serialize(start),
            None if end is None else serialize(end) + b"\0",
        )

    def range(self, start: object, end: object) -> Rows:
        return self._rows(*self._bounds(start, end))

    def reverse_range(self, start: object, end: object) -> Rows:
        return self._rows(*self._bounds(start, end), reverse=True)

    def all(self) -> Rows:
        return self._rows(None, None)

    def reverse_all(self) -> Rows:
        return self._rows(None, None, reverse=True)

    def prefix_scan(self, prefix: object, serde: KeySerde) -> Rows:
        raw = serde.serialize(prefix)
        return self._rows(raw, after_prefix(raw))

    def approximate_num_entries(self) -> int:
        return sum(1 for _ in self._cache.rows(None, None))


class WindowAccess(_TimestampedAccess[Any]):  # of a WindowCache or a DuplicatesCache: they have no class in common
    """A window store (:class:`topology.spec.stores.WindowStore`). ``size_ms``: of its windows."""

    def __init__(
        self,
        cache: WindowCache | DuplicatesCache,
        key_serde: KeySerde,
        now: Now,
        *,
        size_ms: int,
        timestamped: bool,
        on_change: OnChange[Entry] | None,
    ) -> None:
        super().__init__(cache, key_serde, now, timestamped=timestamped, on_change=on_change)
        self._size_ms = size_ms

    def put(self, key: object, value: Any, window_start: int) -> None:
        timestamp, headers, sequence = self._now()
        if self._timestamped and value is not None:
            value, timestamp = value
            _check_time(self.name, "the timestamp of a value", timestamp, least_ms=-END_OF_TIME_MS)
        _check_time(self.name, "the start of a window", window_start)
        raw_value = self._written(value)
        entry = self._cache.put(self._serialize(key), window_start, value, timestamp, headers, sequence)
        self._cache.count_if_expired(window_start)
        if self._on_change is not None:
            self._on_change(entry, raw_value)

    def fetch(self, key: object, time: int) -> Any:
        newest = self._cache.newest()
        if not newest - self._cache.retention_ms < time <= newest:
            return None
        return self._result(self._cache[time][self._serialize(key)])

    def _entries(self, time_from: int, time_to: int) -> Iterator[Entry]:
        return (entry for entry in self._cache.rows() if time_from <= entry.start <= time_to)

    def fetch_range(self, key: object, time_from: int, time_to: int) -> StartedRows:
        raw = self._serialize(key)
        return ((e.start, self._result(e)) for e in self._entries(time_from, time_to) if e.key == raw)

    def backward_fetch_range(self, key: object, time_from: int, time_to: int) -> StartedRows:
        return iter(list(self.fetch_range(key, time_from, time_to))[::-1])

    def fetch_keys(self, key_from: object, key_to: object, time_from: int, time_to: int) -> WindowedRows:
        low = None if key_from is None else self._serialize(key_from)
        high = None if key_to is None else self._serialize(key_to)
        for entry in self._entries(time_from, time_to):
            if (low is None or low <= entry.key) and (high is None or entry.key <= high):
                yield self._windowed(entry), self._result(entry)

    def _windowed(self, entry: Entry) -> Windowed[object]:
        return Windowed(self._serde.deserialize(entry.key), entry.start, entry.start + self._size_ms)

    def fetch_all(self, time_from: int, time_to: int) -> WindowedRows:
        return ((self._windowed(e), self._result(e)) for e in self._entries(time_from, time_to))

    def all(self) -> WindowedRows:
        return self.fetch_all(0, END_OF_TIME_MS)


class DuplicatesAccess(WindowAccess):
    """A window store that keeps several values of one key and window."""

    def put(self, key: object, value: object, window_start: int) -> None:
        timestamp, _, _ = self._now()
        _check_time(self.name, "the start of a window", window_start)
        raw_key, raw_value = self._serialize(key), None if value is None else self._cache.format.serialize(value)
        self._cache.put(raw_key, window_start, value, raw_value)
        if self._on_change is not None:
            entry = Entry(raw_key, value, timestamp, window_start)
            entry.sequence = self._cache.sequence
            self._on_change(entry, raw_value)

    def fetch(self, key: object, time: int) -> Any:
        """The first value of that key and window."""
        rows = self._cache.fetch(self._serialize(key), time, time)
        return rows[0][2] if rows else None


class SessionAccess(_Access[SessionCache, SessionEntry]):
    """A session store (:class:`topology.spec.stores.SessionStore`)."""

    def put(self, session: Windowed[object], value: object) -> None:
        timestamp, headers, sequence = self._now()
        raw = self._serialize(session.key)
        _check_time(self.name, "the start of a session", session.start_ms)
        _check_time(self.name, "the end of a session", session.end_ms)
        raw_value = self._written(value)
        entry = self._cache.put(raw, session.start_ms, session.end_ms, value, timestamp, headers, sequence)
        self._cache.count_if_expired(session.end_ms)
        if self._on_change is not None:
            self._on_change(entry, raw_value)

    def remove(self, session: Windowed[object]) -> None:
        self.put(session, None)

    def fetch_session(self, key: object, start: int, end: int) -> Any:
        entry = self._cache.session(self._serialize(key), start, end)
        return None if entry is None else entry.value

    def find_sessions(self, key: object, earliest_end: int, latest_start: int) -> WindowedRows:
        found = self._cache.find(self._serialize(key), earliest_end, latest_start)
        return iter([(Windowed(key, e.start, e.end), e.value) for e in found])

    def fetch(self, key: object) -> WindowedRows:
        return self.find_sessions(key, 0, END_OF_TIME_MS)

    def all(self) -> WindowedRows:
        deserialize = self._serde.deserialize
        return ((Windowed(deserialize(e.key), e.start, e.end), e.value) for e in self._cache.rows())


class VersionedAccess(_Access[VersionedCache, VersionPut]):
    """A versioned store (:class:`topology.spec.stores.VersionedKeyValueStore`)."""

    def put(self, key: object, value: object, timestamp: int) -> int | None:
        return self._put(key, value, timestamp).valid_to_ms

    def _put(self, key: object, value: object, timestamp: int) -> VersionPut:
        _, headers, sequence = self._now()
        _check_time(self.name, "the time from which a version is valid", timestamp)
        raw_value = self._written(value)
        put = self._cache.put(self._serialize(key), value, timestamp, headers, sequence)
        if self._on_change is not None:
            self._on_change(put, raw_value)
        return put

    def delete(self, key: object, timestamp: int) -> Version | None:
        before = self.get(key, timestamp)
        return before if self._put(key, None, timestamp).is_stored else None

    def get(self, key: object, as_of: int | None = None) -> Version | None:
        found = self._cache.version(self._serialize(key), as_of)
        return None if found is None else VersionedRecord(*found)

    def versions(self, key: object) -> list[Version]:
        return [VersionedRecord(*found) for found in self._cache.versions(self._serialize(key))]
