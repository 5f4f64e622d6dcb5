"""The cache of a sliding aggregation's window store: the windows of each key, in a list ordered by start.

1. A record of a key changes the windows of that key that are near it in time, and hardly two windows of different keys
   start in the same millisecond: so there is one list per key, not one dictionary per window. A list is loaded as a
   whole, with what the store has within retention.
2. A key without a list has no stored windows that start after ``_stored``. Once all that start before are beyond
   retention, no store is asked.
3. Windows that are beyond retention can be found until the next write: they may still have to be emitted.
4. Otherwise the rules of :mod:`streamsrt.state.window_cache` hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Protocol

from streamsrt.state.cache import Entry, Flushed, RowFormat
from streamsrt.state.columns import Headers
from streamsrt.state.window_cache import WindowByteStore, WindowCache, WindowRows
from streamsrt.state.windowed import split_window_key, window_key, window_keys

_by_start = attrgetter("start")
_LATEST_MS = 2**63 - 1
_TRIMS_PER_RETENTION = 4


class KeyedWindowByteStore(WindowByteStore, Protocol):
    """The part of a byte store that this cache uses."""

    def write_logged(self, rows: Mapping[bytes, bytes | None], *, changelog_offset: int | None = None) -> None: ...


class _RowsAt(WindowRows):
    """The rows of one window, for those who look for single ones. It holds none itself."""

    def __missing__(self, key: bytes) -> Entry:
        assert isinstance(self._cache, SlidingCache)
        return self._cache.find(key, self.start) or Entry(key, None, -1, self.start)


class SlidingCache(WindowCache):
    """The cache of a window store that is read by key."""

    store: KeyedWindowByteStore

    def __init__(
        self,
        name: str,
        store: KeyedWindowByteStore,
        row_format: RowFormat,
        *,
        retention_ms: int,
        newest_stored_start: int | None,
    ) -> None:
        super().__init__(name, store, row_format, retention_ms=retention_ms, newest_stored_start=newest_stored_start)
        self._of_key: dict[bytes, list[Entry]] = {}
        self._unwritten: dict[bytes, bytes | None] = {}
        """By key in the changelog."""
        self._gone_before = 0
        """Windows that start before were beyond retention at the last write."""
        self._trimmed_to = 0
        self._at: dict[int, list[Entry]] | None = None

    def __missing__(self, start: int) -> WindowRows:
        return _RowsAt(self, start, fresh=False)

    @property
    def pending(self) -> Mapping[int, Mapping[bytes, bytes | None]]:
        found: dict[int, dict[bytes, bytes | None]] = {}
        for store_key, row in self._unwritten.items():
            key, start = split_window_key(store_key)
            found.setdefault(start, {})[key] = row
        return found

    def oldest(self) -> int:
        """The least start, in milliseconds, that a window within retention can have."""
        newest, stored = self.newest_start, self._stored
        if stored is not None and stored > newest:
            newest = stored
        return newest - self.retention_ms + 1

    # ------------------------------------------------------------------------------------------------------- entries

    def row(self, key: bytes, start: int) -> bytes | None:
        store_key = window_key(key, start)
        return self._unwritten[store_key] if store_key in self._unwritten else self.store.get(key, start)

    def windows_of(self, key: bytes) -> list[Entry]:
        """The windows of a key, in order; some may start before :meth:`oldest`. Not to be changed but by :meth:`add`."""
        entries = self._of_key.get(key)
        if entries is None:
            entries = self._of_key[key] = []
            if self._stored is None or self._stored >= self._gone_before:
                load = self.format.load
                entries += [load(key, row, start) for start, row in self.store.fetch(key, 0, _LATEST_MS)]
                self._adopt(entries)
        elif entries and entries[0].start < self._gone_before:
            self._trim(entries)
        return entries

    def _adopt(self, entries: list[Entry]) -> None:
        self.entries += len(entries)
        if self._at is not None:
            for entry in entries:
                self._at.setdefault(entry.start, []).append(entry)

    def add(self, entries: list[Entry], key: bytes, start: int) -> Entry:
        """The entry of a window that is perhaps not among ``entries``, which are all of that key."""
        at = len(entries)
        if entries and entries[-1].start >= start:
            at = bisect_left(entries, start, key=_by_start)
            if entries[at].start == start:
                return entries[at]
        entry = Entry(key, None, -1, start)
        self.insert(entries, at, entry)
        return entry

    def insert(self, entries: list[Entry], at: int, entry: Entry) -> None:
        """Puts an entry at its place among ``entries``, where there is none with its start."""
        entries.insert(at, entry)
        self.entries += 1
        if self._at is not None:
            self._at.setdefault(entry.start, []).append(entry)

    def put(self, key: bytes, start: int, value: object, timestamp: int, headers: Headers, sequence: int) -> Entry:
        entry = self.add(self.windows_of(key), key, start)
        self.change(entry, value, timestamp, headers, sequence)
        return entry

    def cached(self, key: bytes, start: int) -> Entry | None:
        return self.find(key, start) if key in self._of_key else None

    def cached_of_key(self, key: bytes, from_ms: int, to_ms: int) -> Iterator[Entry]:
        return (entry for entry in self._of_key.get(key, ()) if from_ms <= entry.start <= to_ms)

    def find(self, key: bytes, start: int) -> Entry | None:
        """The entry of a window, where there is one."""
        entries = self.windows_of(key)
        at = bisect_left(entries, start, key=_by_start)
        if at == len(entries) or entries[at].start != start:
            return None
        return entries[at]

    def rows_at(self, start: int) -> list[Entry]:
        if self._at is None:
            self._at = {}
            for entries in self._of_key.values():
                for entry in entries:
                    self._at.setdefault(entry.start, []).append(entry)
        found = {entry.key: entry for entry in self._at.get(start, ())}
        if self._stored is None or start <= self._stored:
            for key, _, _ in self.store.fetch_all(start, start):
                if key not in found and (stored := self.find(key, start)) is not None:
                    found[key] = stored
        return [found[key] for key in sorted(found) if found[key].value is not None]

    # ------------------------------------------------------------------------------------------------- flush and write

    def flush(self, *, forwards: bool = True) -> Flushed | None:
        changed = self._take_changed(forwards=forwards)
        if not changed:
            return None
        starts = [entry.start for entry in changed]
        store_keys = window_keys([entry.key for entry in changed], starts)
        flushed = Flushed.of(changed, self.format.serialize, store_keys, starts)
        self._unwritten.update(zip(store_keys, self._rows_of(flushed), strict=True))
        return flushed

    def write(self, changelog_offset: int | None) -> None:
        oldest = self.oldest()
        if self._unwritten or changelog_offset is not None:
            self.store.write_logged(self._unwritten, changelog_offset=changelog_offset)
            self._unwritten = {}
        self.store.expire(self.newest_start)
        self._gone_before = max(self._gone_before, oldest)
        if oldest - self._trimmed_to > self.retention_ms // _TRIMS_PER_RETENTION:
            self._trim_all()
        if self._at is not None:
            for start in [start for start in self._at if start < oldest]:
                del self._at[start]

    def _trim(self, entries: list[Entry]) -> None:
        gone = bisect_left(entries, self._gone_before, key=_by_start)
        self.entries -= gone
        del entries[:gone]

    def _trim_all(self) -> None:
        """Forgets what was beyond retention at the last write."""
        self._trimmed_to = gone_before = self._gone_before
        for entries in self._of_key.values():
            if entries and entries[0].start < gone_before:
                self._trim(entries)
        for key in [key for key, entries in self._of_key.items() if not entries]:
            del self._of_key[key]

    def evict(self, limit_bytes: int) -> None:
        """Drops keys until at most ``limit_bytes`` are held, those first whose windows are the oldest."""
        if self.dirty or self._unwritten or self.size_bytes() <= limit_bytes:
            return
        self._trim_all()
        last = {key: entries[-1].start for key, entries in self._of_key.items()}
        for key in sorted(last, key=last.__getitem__):
            if self.size_bytes() <= limit_bytes:
                break
            self.entries -= len(self._of_key.pop(key))
            if self._stored is not None and last[key] > self._stored:
                self._stored = last[key]
        self._at = None

    def forget(self, newest_stored_start: int | None) -> None:
        super().forget(newest_stored_start)
        self._of_key = {}
        self._unwritten = {}
        self._at = None
        self._gone_before = self._trimmed_to = 0
