"""The cache of a window store: the rules are those of :mod:`streamsrt.state.cache`, with one dictionary for each window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat
from operator import add
from struct import Struct
from typing import Protocol

from streamsrt.state.cache import (
    ENTRY_OVERHEAD_BYTES,
    ChangedEntries,
    Entry,
    Flushed,
    RowFormat,
    average_bytes,
    changed_entries,
)
from streamsrt.state.columns import ChangelogColumns, Headers
from streamsrt.state.counts import CountedRows, Keys, Positions, Row
from streamsrt.wire.later_numpy import np
from streamsrt.wire.records.columns import Times

_pack_timestamp = Struct(">q").pack
_ROWS_OF_COLUMNS = 4
"""What the columns of a window's counted rows take by being there, in rows."""


class WindowRows(dict[bytes, Entry]):
    """The rows of the window that starts at ``start``. A ``fresh`` window is newer than all stored ones: no look-ups."""

    __slots__ = ("_cache", "fresh", "start")

    def __init__(self, cache: WindowCache, start: int, *, fresh: bool) -> None:
        super().__init__()
        self._cache = cache
        self.start = start
        self.fresh = fresh

    def __missing__(self, key: bytes) -> Entry:
        entry = Entry(key, None, -1, self.start) if self.fresh else self._cache.load(key, self.start)
        self._cache.entries += 1
        self[key] = entry
        return entry


class WindowByteStore(Protocol):
    """The part of a byte store that a window cache uses."""

    def get(self, key: bytes, start_ms: int, /) -> bytes | None: ...

    def write_windows(
        self, windows: Mapping[int, Mapping[bytes, bytes | None]], *, changelog_offset: int | None = None
    ) -> None: ...

    def fetch_all(self, from_ms: int, to_ms: int, /) -> Iterable[tuple[bytes, int, bytes]]: ...

    def fetch(self, key: bytes, from_ms: int, to_ms: int, /) -> Iterable[tuple[int, bytes]]: ...

    def expire(self, stream_time_ms: int, /) -> object: ...

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int, /) -> None: ...

    @property
    def stream_time_ms(self) -> int: ...


class WindowCache(ChangedEntries[Entry], dict[int, WindowRows]):
    """The cache of a window store: ``cache[start][key]``. One dictionary per window, no composite key per record.

    ``newest_stored_start``: no stored window starts later; None where that is not known.
    """

    def __init__(
        self,
        name: str,
        store: WindowByteStore,
        row_format: RowFormat,
        *,
        retention_ms: int,
        newest_stored_start: int | None,
    ) -> None:
        super().__init__()
        self.name = name
        self.store = store
        self.format = row_format
        self.retention_ms = retention_ms
        self.dirty = []
        self._pending: dict[int, dict[bytes, bytes | None]] = {}
        self.counts: dict[int, CountedRows] = {}
        self._counted: set[int] = set()
        """The windows with rows that were counted since the last flush."""
        self._counted_rows = 0
        self._taken = 0
        """How many records were counted, in whatever windows."""
        self.newest_start = -1
        """The latest start of a window that was changed here: rows expire by it. Look-ups do not move it, so neither does a
        record that fails."""
        self.expired_puts = 0
        self.expires_by_ms = 1
        """How much of what is beyond retention goes at once."""
        self.entries = 0
        self._stored = newest_stored_start
        self._row_bytes = 64

    def __missing__(self, start: int) -> WindowRows:
        rows = self[start] = WindowRows(self, start, fresh=self._stored is not None and start > self._stored)
        return rows

    @property
    def pending(self) -> Mapping[int, Mapping[bytes, bytes | None]]:
        """The unwritten changes, by start of window."""
        return self._pending

    def load(self, key: bytes, start: int) -> Entry:
        return self.format.load(key, self.row(key, start), start)

    def row(self, key: bytes, start: int) -> bytes | None:
        """The row that is stored, or waits for that."""
        pending = self._pending.get(start)
        return pending[key] if pending is not None and key in pending else self.store.get(key, start)

    def forwarded(self, key: bytes, start: int) -> Entry:
        """The row as it was last forwarded, without the changes since the last flush; not to be changed."""
        entry = self[start][key]
        return self.load(key, start) if entry.dirty else entry

    def pending_rows(self) -> Iterator[tuple[bytes, int, bytes | None]]:
        """Key, start and row of what waits to be written."""
        return ((key, start, row) for start, rows in self.pending.items() for key, row in rows.items())

    def put(self, key: bytes, start: int, value: object, timestamp: int, headers: Headers, sequence: int) -> Entry:
        """Changes the row of ``key`` in the window that starts at ``start``; ``value`` None deletes."""
        if self.counts:
            self.settle()
        entry = self[start][key]
        self.change(entry, value, timestamp, headers, sequence)
        return entry

    def changed_at(self, start: int) -> None:
        """A row of the window that starts then has changed."""
        if start > self.newest_start:
            self.newest_start = start

    def change(self, entry: Entry, value: object, timestamp: int, headers: Headers, sequence: int) -> None:
        self.changed_at(entry.start)
        super().change(entry, value, timestamp, headers, sequence)

    def flush(self, *, forwards: bool = True) -> Flushed | None:
        """Takes the dirty entries out; None where there are none (see :meth:`KeyValueCache.flush`)."""
        if self.has_counted:
            return self._flush_counts()
        changed = self._take_changed(forwards=forwards)
        if not changed:
            return None
        starts = [e.start for e in changed]
        suffixes = {start: _suffix(start) for start in set(starts)}
        store_keys = [e.key + suffix for e, suffix in zip(changed, map(suffixes.__getitem__, starts), strict=True)]
        flushed = Flushed.of(changed, self.format.serialize, store_keys, starts)
        for start in suffixes:
            self._pending.setdefault(start, {})
        for entry, row in zip(changed, self._rows_of(flushed), strict=True):
            self._pending[entry.start][entry.key] = row
        return flushed

    def _rows_of(self, flushed: Flushed) -> list[bytes | None]:
        rows = self.format.rows(flushed.timestamps, flushed.raw_values)
        self._row_bytes = average_bytes(flushed.store_keys, rows)
        return rows

    def _flush_counts(self) -> Flushed:
        keys: list[bytes] = []
        values: list[int] = []
        timestamps: list[int] = []
        store_keys: list[bytes] = []
        starts: list[int] = []
        ends: dict[int, int] = {}
        positions: list[Positions] = []
        olds: list[int] = []
        for start in sorted(self._counted):
            some, totals, times, changed_at, some_olds = self.counts[start].take_changes()
            positions.append(changed_at)
            olds += some_olds
            keys += some
            values += totals
            timestamps += times
            store_keys += map(add, some, repeat(_suffix(start)))
            starts += repeat(start, len(some))
            ends[start] = len(keys)
        flushed = Flushed(keys, values, timestamps, self.format.serialize, store_keys, starts)
        rows, done = self._rows_of(flushed), 0
        for start, end in ends.items():
            columns = (keys, rows) if len(ends) == 1 else (keys[done:end], rows[done:end])
            self._pending.setdefault(start, {}).update(zip(*columns, strict=True))
            done = end
        self._counted.clear()
        flushed.olds = [old or None for old in olds]
        _put_in_order(flushed, positions)
        return flushed

    @property
    def has_counted(self) -> bool:
        """Whether rows were counted since the last flush."""
        return bool(self._counted)

    def count(self, start: int, keys: Keys, timestamps: Times, at: int | Sequence[int] = 0) -> None:
        """Adds 1 to a key's row of that window for each time that it is there (see :meth:`KeyValueCache.count`).

        ``at``: which record of the run is the first one, or is each. A run ends with :meth:`end_run`.
        """
        counts = self.counts.get(start)
        if counts is None:
            counts = self.counts[start] = CountedRows(partial(self._adopted, self[start]))
            self._counted_rows += _ROWS_OF_COLUMNS
            self.changed_at(start)
        self._counted_rows -= len(counts)
        counts.take(keys, timestamps, self._taken + (at if isinstance(at, int) else np.array(at)))
        self._counted_rows += len(counts)
        self._counted.add(start)

    def end_run(self, records: int) -> None:
        """A run of so many records was counted."""
        self._taken += records

    def _adopted(self, rows: WindowRows, keys: list[bytes]) -> Iterator[Row]:
        if rows.fresh and not rows:
            return
        for key in keys:
            entry = rows.pop(key, None)
            if entry is not None:
                self.entries -= 1
            elif not rows.fresh:
                entry = self.load(key, rows.start)
            if entry is not None and entry.value is not None:
                yield key, entry.value, entry.timestamp

    def settle(self) -> None:
        """Makes changed entries of what was counted, and forgets the other counted rows."""
        for start, counts in sorted(self.counts.items()):
            rows, changed = self[start], changed_entries(counts, start)
            if len(counts) > len(changed):
                # What is forgotten here is found in the store.
                rows.fresh = False
            rows.update((entry.key, entry) for entry in changed)
            self.entries += len(changed)
            self.dirty += changed
        self._forget_counts()

    def _forget_counts(self) -> None:
        self.counts = {}
        self._counted = set()
        self._counted_rows = 0

    def cached(self, key: bytes, start: int) -> Entry | None:
        """The row of a key and window as far as it is in memory; not to be changed."""
        row = self.counts[start].row(key) if start in self.counts else None
        if row is not None:
            return Entry(*row, start)
        return self[start].get(key) if start in self else None

    def cached_of_key(self, key: bytes, from_ms: int, to_ms: int) -> Iterator[Entry]:
        """The rows of a key, as :meth:`cached`, in the windows that start in ``from_ms``..``to_ms``."""
        for start in self:
            if from_ms <= start <= to_ms and (entry := self.cached(key, start)) is not None:
                yield entry

    def changes(self) -> Sequence[Entry]:
        """The rows that changed since the last flush; not to be changed."""
        if not self.counts:
            return self.dirty
        return [Entry(*row, start) for start in self._counted for row in self.counts[start].changes()]

    def read_olds(self, flushed: Flushed) -> None:
        """Fills in ``olds``: every row of a window was read before it was changed. Counted rows have them."""
        if flushed.entries:
            flushed.olds = [entry.old for entry in flushed.entries]

    def write(self, changelog_offset: int | None) -> None:
        """Writes all pending changes to the store, as one batch in key order, and drops expired rows."""
        pending = self._pending
        if pending or changelog_offset is not None:
            self.store.write_windows(pending, changelog_offset=changelog_offset)
            self._pending = {}
        oldest = self.newest() - self.retention_ms + 1
        # What was counted after the flush is flushed first, however old it is by now.
        for start in [start for start in self if start < oldest and start not in self._counted]:
            self._drop(start)
        self.store.expire(self.newest_start)

    def _drop(self, start: int) -> None:
        self.entries -= len(self.pop(start))
        counts = self.counts.pop(start, None)
        if counts is not None:
            self._counted_rows -= len(counts) + _ROWS_OF_COLUMNS
            self._counted.discard(start)
        if self._stored is not None and start > self._stored:
            self._stored = start

    def size_bytes(self) -> int:
        return (self.entries + self._counted_rows) * (ENTRY_OVERHEAD_BYTES + self._row_bytes)

    def evict(self, limit_bytes: int) -> None:
        """Drops the oldest windows until at most ``limit_bytes`` are held."""
        if self.dirty or self._pending or self.has_counted:
            return
        for start in sorted(self):
            if self.size_bytes() <= limit_bytes:
                return
            self._drop(start)

    def forget(self, newest_stored_start: int | None) -> None:
        """Drops every entry: the store was rewritten from its changelog."""
        self.clear()
        self._forget_counts()
        self.entries = 0
        self.dirty = []
        self._pending = {}
        self._stored = newest_stored_start

    def restore(self, columns: ChangelogColumns) -> None:
        """Applies records of the changelog to the store."""
        self.store.restore(columns.keys, self.format.rows(columns.timestamps, columns.values), columns.next_offset)
        self.forget(self.store.stream_time_ms)

    def count_if_expired(self, start: int) -> None:
        """Counts a row that was just put where its window is beyond retention."""
        live = max(0, self.newest() - self.retention_ms + (self.expires_by_ms == 1))
        if start // self.expires_by_ms < live // self.expires_by_ms:
            self.expired_puts += 1

    def newest(self) -> int:
        """The latest start of a window that was ever seen here."""
        return self.newest_start if self._stored is None else max(self.newest_start, self._stored)

    def starts(self, low: int) -> set[int]:
        """The starts at ``low`` or later of all windows that have rows."""
        found = {start for _, start, _ in self.store.fetch_all(low, 2**63 - 1)}
        found.update(start for _, start, row in self.pending_rows() if row is not None and start >= low)
        found.update(entry.start for entry in self.changes() if entry.start >= low)
        return found

    def rows_at(self, start: int) -> list[Entry]:
        """The rows of the windows that start then, by key, also where they are beyond retention by now."""
        cached = self[start]
        if not cached.fresh:
            keys = {key for key, _, _ in self.store.fetch_all(start, start)}
            keys.update(self._pending.get(start, ()))
            for key in keys:
                cached[key]
        return [cached[key] for key in sorted(cached) if cached[key].value is not None]

    def rows(self) -> Iterator[Entry]:
        """Yields every row within retention by key, then start, including unflushed ones."""
        found = {(k, s): self.format.load(k, row, s) for k, s, row in self.store.fetch_all(0, 2**63 - 1)}
        found |= {(k, s): self.format.load(k, row, s) for k, s, row in self.pending_rows()}
        found |= {(e.key, e.start): e for e in self.changes()}
        newest = max([self.newest(), *(start for _, start in found)])
        for key in sorted(found):
            if found[key].value is not None and key[1] > newest - self.retention_ms:
                yield found[key]


def _put_in_order(flushed: Flushed, positions: list[Positions]) -> None:
    """Orders rows by the positions of their changes. Those of each window are in order."""
    if all(one[-1] <= other[0] for one, other in pairwise(positions)):
        return
    order = np.argsort(np.concatenate(positions), kind="stable").tolist()
    assert flushed.starts is not None
    flushed.keys = list(map(flushed.keys.__getitem__, order))
    flushed.values = list(map(flushed.values.__getitem__, order))
    flushed.timestamps = list(map(flushed.timestamps.__getitem__, order))
    flushed.store_keys = list(map(flushed.store_keys.__getitem__, order))
    flushed.olds = list(map(flushed.olds.__getitem__, order))
    flushed.raw_values = list(map(flushed.raw_values.__getitem__, order))
    flushed.starts = list(map(flushed.starts.__getitem__, order))


def _suffix(start: int) -> bytes:
    """What a window's start is in the keys of rows, with a sequence number of zero."""
    return _pack_timestamp(start) + b"\0\0\0\0"
