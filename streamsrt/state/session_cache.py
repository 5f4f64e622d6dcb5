"""The write-back cache of a session store: the sessions of each key, in a list ordered by end and start.

1. ``cache[key]`` loads all sessions of a key from the store. A removed session stays in the list with the value None
   until it is written; readers of the list skip it.
2. A session's bounds are part of its key: a session that grows is removed, and another one is put.
3. The timestamp of an entry is that of the record that changed it, for the changelog; the forwarded timestamp is the
   session's end.
4. Otherwise the rules of :mod:`streamsrt.state.cache` hold.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from streamsrt.state.cache import ENTRY_OVERHEAD_BYTES, ChangedEntries, Entry, Flushed, RowFormat, average_bytes
from streamsrt.state.columns import ChangelogColumns, Headers
from streamsrt.state.sessions import session_keys, split_session_key

SessionKey = tuple[bytes, int, int]
"""Key, end, start."""


class SessionEntry(Entry):
    """One session; ``start`` and ``end`` are included."""

    __slots__ = ("end",)

    def __init__(self, key: bytes, value: Any, start: int, end: int) -> None:
        self.key = key
        self.value = value
        self.timestamp = -1
        self.start = start
        self.end = end
        self.dirty = False
        self.sequence = 0
        self.old: Any = None  # values have the type that the store's serde has
        self.headers: Headers = ()


class SessionByteStore(Protocol):
    """The part of a byte store that a session cache uses."""

    @property
    def stream_time_ms(self) -> int: ...

    def sessions(self, key: bytes, /) -> Iterable[tuple[int, int, bytes]]: ...

    def all_sessions(self) -> Iterable[tuple[bytes, int, int, bytes]]: ...

    def write_logged(self, rows: Mapping[bytes, bytes | None], *, changelog_offset: int | None = None) -> None: ...

    def expire(self, stream_time_ms: int, /) -> object: ...

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int, /) -> None: ...


def _by_end(entry: SessionEntry) -> tuple[int, int]:
    return entry.end, entry.start


class SessionCache(ChangedEntries[SessionEntry], dict[bytes, list[SessionEntry]]):
    """The cache of a session store. ``newest_end`` is the latest end that was ever seen here, -1 before the first."""

    def __init__(self, name: str, store: SessionByteStore, row_format: RowFormat, *, retention_ms: int) -> None:
        super().__init__()
        self.name = name
        self.store = store
        self.format = row_format
        self.retention_ms = retention_ms
        self.dirty = []
        self._unwritten: dict[bytes, bytes | None] = {}
        """By key in the changelog. The sessions of their record keys are all in memory."""
        self._flushed_keys: set[bytes] = set()
        """Record keys with changes since the last write."""
        self.newest_end = store.stream_time_ms
        self._stored = self.newest_end
        """No stored session of a key that is not in memory ends later."""
        self.expired_puts = 0
        self.expires_by_ms = 1
        """How much of what is beyond retention goes at once."""
        self._row_bytes = 64
        self._expired_to = self.newest_end

    def __missing__(self, key: bytes) -> list[SessionEntry]:
        entries = self[key] = []
        # By the time of the last write: until the next one a session that expires may still have to be emitted.
        if self._stored >= self.store.stream_time_ms - self.retention_ms:
            read = self.format.read
            rows = self.store.sessions(key)
            entries += [SessionEntry(key, read(key, row), start, end) for start, end, row in rows]
            entries.sort(key=_by_end)
        return entries

    @property
    def pending(self) -> Mapping[SessionKey, bytes | None]:
        """The unwritten changes."""
        found: dict[SessionKey, bytes | None] = {}
        for store_key, row in self._unwritten.items():
            key, start, end = split_session_key(store_key)
            found[key, end, start] = row
        return found

    def find(self, key: bytes, earliest_end: int, latest_start: int) -> list[SessionEntry]:
        """The sessions of ``key`` that end at ``earliest_end`` or later and start at ``latest_start`` or before, by end."""
        low = max(earliest_end, self.newest_end - self.retention_ms)
        return [e for e in self[key] if e.end >= low and e.start <= latest_start and e.value is not None]

    def put(
        self, key: bytes, start: int, end: int, value: object, timestamp: int, headers: Headers, sequence: int
    ) -> SessionEntry:
        """Changes the session of ``key`` with these bounds; ``value`` None removes it."""
        entries = self[key]
        if end > self.newest_end:
            self.newest_end = end
        if not entries or end > entries[-1].end:
            entry = SessionEntry(key, None, start, end)
            entries.append(entry)
        else:
            found = next((e for e in entries if e.start == start and e.end == end), None)
            entry = found or SessionEntry(key, None, start, end)
            if found is None:
                insort(entries, entry, key=_by_end)
        self.change(entry, value, timestamp, headers, sequence)
        return entry

    def last(self, key: bytes) -> SessionEntry | None:
        """The session of ``key`` that ends last; None where there is none, or where that needs :meth:`find`."""
        entries = self[key]
        if not entries or entries[-1].value is None or entries[-1].end < self.newest_end - self.retention_ms:
            return None
        return entries[-1]

    def may_end_later(self, entry: SessionEntry) -> bool:
        """Whether nobody knows of the session yet: it was made since the last flush."""
        return entry.dirty and entry.old is None

    def extend(self, entry: SessionEntry, end: int) -> None:
        """Lets the last session of a key end later, which it must be free to do."""
        entry.end = end
        if end > self.newest_end:
            self.newest_end = end

    def count_if_expired(self, end: int) -> None:
        """Counts a session that was just put where it is beyond retention."""
        live = max(0, self.newest_end - self.retention_ms + (self.expires_by_ms == 1))
        if end // self.expires_by_ms < live // self.expires_by_ms:
            self.expired_puts += 1

    def flush(self, *, forwards: bool = True) -> Flushed | None:
        """Takes the dirty entries out; None where there are none (see :meth:`KeyValueCache.flush`)."""
        changed = self._take_changed(forwards=forwards)
        if not changed:
            return None
        starts, ends = [e.start for e in changed], [e.end for e in changed]
        keys = session_keys([e.key for e in changed], starts, ends)
        flushed = Flushed.of(list(changed), self.format.serialize, keys, starts)
        flushed.ends = ends
        self._unwritten.update(zip(keys, flushed.raw_values, strict=True))
        self._flushed_keys.update(flushed.keys)
        self._row_bytes = average_bytes(flushed.store_keys, flushed.raw_values)
        return flushed

    def read_olds(self, flushed: Flushed) -> None:
        """Fills in ``olds``: every session was read before it was changed."""
        flushed.olds = [entry.old for entry in flushed.entries]

    def write(self, changelog_offset: int | None) -> None:
        """Writes all pending changes to the store, as one batch in key order, and drops expired rows."""
        # Not before: until the commit a session that expires may still have to be emitted.
        oldest = self.newest_end - self.retention_ms
        if self._unwritten or changelog_offset is not None:
            self.store.write_logged(self._unwritten, changelog_offset=changelog_offset)
            self._unwritten = {}
        for key in self._flushed_keys:
            entries = self.get(key)
            if entries and (len(entries) > 1 or entries[0].value is None or entries[0].end < oldest):
                self[key] = [e for e in entries if e.dirty or (e.value is not None and e.end >= oldest)]
        self._flushed_keys = set()
        self.store.expire(self.newest_end)
        if self.newest_end - self._expired_to > max(self.retention_ms // 2, 1):
            self._drop_expired()

    def _drop_expired(self) -> None:
        self._expired_to = self.newest_end
        oldest = self.newest_end - self.retention_ms
        for key in [key for key, entries in self.items() if all(e.end < oldest and not e.dirty for e in entries)]:
            del self[key]

    def session(self, key: bytes, start: int, end: int) -> SessionEntry | None:
        """The session of ``key`` with these bounds, also where it is beyond retention by now; None where there is none."""
        return next((e for e in self[key] if e.start == start and e.end == end and e.value is not None), None)

    def forwarded(self, key: bytes, start: int, end: int) -> object:
        """The value that the session with these bounds had when it was last forwarded; None where it was not."""
        entry = next((e for e in self[key] if e.start == start and e.end == end), None)
        if entry is None:
            return None
        return entry.old if entry.dirty else entry.value

    def unexpired(self, earliest_end: int) -> list[SessionEntry]:
        """All sessions that end then or later."""
        return [entry for entry in self._all() if entry.end >= earliest_end and entry.value is not None]

    def size_bytes(self) -> int:
        return len(self) * (2 * ENTRY_OVERHEAD_BYTES + self._row_bytes)

    def evict(self, limit_bytes: int) -> None:
        """Drops all entries where they are more than ``limit_bytes``."""
        if not self.dirty and not self._unwritten and self.size_bytes() > limit_bytes:
            self.clear()
            self._stored = self.newest_end

    def forget(self) -> None:
        """Drops every entry: the store was rewritten from its changelog."""
        self.clear()
        self.dirty = []
        self._unwritten = {}
        self._flushed_keys = set()
        self.newest_end = self._expired_to = self._stored = self.store.stream_time_ms

    def restore(self, columns: ChangelogColumns) -> None:
        """Applies records of the changelog to the store."""
        self.store.restore(columns.keys, columns.values, columns.next_offset)
        self.forget()

    def rows(self) -> Iterator[SessionEntry]:
        """Yields every session within retention by key, then end, including unflushed ones."""
        oldest = self.newest_end - self.retention_ms
        return (entry for entry in self._all() if entry.value is not None and entry.end >= oldest)

    def _all(self) -> Iterator[SessionEntry]:
        read = self.format.read
        found = {(k, e, s): SessionEntry(k, read(k, row), s, e) for k, s, e, row in self.store.all_sessions()}
        for (key, end, start), row in self.pending.items():
            found[key, end, start] = SessionEntry(key, None if row is None else read(key, row), start, end)
        found |= {(e.key, e.end, e.start): e for e in self.dirty}
        return (found[each] for each in sorted(found))
