"""Window stores that keep several records of one key and time, for stream-stream joins.

1. Every record has a sequence number after its key and timestamp (``retain_duplicates``). It counts the records that
   are written to the changelog, per store, from 1 on; the store remembers the last one, so the numbers continue after a
   restart. In Kafka Streams they start again, and a record may then overwrite another one.
2. The cache holds records by key in the order of time. Records are stored as they arrive: nothing is dirty, and their
   bytes are pending until :meth:`DuplicatesCache.write`. Records that are no longer visible by then are not written at
   all: they are in the changelog, and a store restored from it does not show them either.
3. The latest timestamp ever put decides which records are visible: those that are ``retention_ms`` or more before it
   are not, though they may still be in memory or on disk.
4. Records that are not in memory are looked up on disk only if they may be there: not in an empty store, nor in one
   whose records from before the cache was last emptied are all beyond retention.

Source: RocksDBWindowStore and InMemoryWindowStore of Kafka Streams.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from struct import Struct
from typing import Any, Protocol

from streamsrt.state.cache import ENTRY_OVERHEAD_BYTES, Entry, RowFormat
from streamsrt.state.columns import ChangelogColumns
from streamsrt.state.snapshots import Values
from streamsrt.state.windowed import WindowBytesStore

_SEGMENT = Struct(">q")
_SUFFIX = Struct(">qI")
_pack_suffix = _SUFFIX.pack
_SAMPLE = 200
_LAST_SEQUENCE = 0x7FFFFFFF
_PRUNED_ROWS = 8
_LOOKED_AT_ROWS = 256

Row = tuple[int, int, Any]
"""Timestamp, sequence number, value."""
Pending = tuple[int, bytes, bytes]
"""Timestamp, key in the changelog, and value of a row that is not written yet."""
_timestamp_of = itemgetter(0)


class DuplicatesBytesStore(WindowBytesStore):
    """Rows by key, timestamp and sequence number. ``last_sequence``: the number of the latest record; 0 before the first."""

    def write_rows(
        self, rows: Collection[Pending], last_sequence: int, newest_ms: int, *, changelog_offset: int | None = None
    ) -> None:
        """Writes (timestamp, key in the changelog, value) as one atomic batch. Expired rows are dropped.

        ``newest_ms``: the latest timestamp that a row had, though it be none of ``rows``.
        """
        if newest_ms > self._stream_time_ms:
            self._advance(newest_ms)
        interval_ms, live = self.segment_interval_ms, self._live_segment
        prefixes: dict[int, bytes] = {}
        stored: list[tuple[bytes, bytes | None]] = []
        for timestamp_ms, store_key, value in rows:
            segment = timestamp_ms // interval_ms
            if segment < live:
                self.dropped_rows += 1
                continue
            prefix = prefixes.get(segment)
            if prefix is None:
                prefix = prefixes[segment] = _SEGMENT.pack(segment)
            stored.append((prefix + store_key, value))
        if prefixes and (self._oldest_segment is None or min(prefixes) < self._oldest_segment):
            self._oldest_segment = min(prefixes)
        stored.sort()
        self.last_sequence = last_sequence
        self._write(stored, changelog_offset)

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int) -> None:
        """Writes columns of the changelog. A record without a value has a number, but is not kept; the row of that number,
        if there is one, has moved to another partition."""
        # The highest one, since a changelog may have been written in another order than the records came in.
        latest = max((int.from_bytes(key[-4:], "big") for key in keys), default=0)
        self.last_sequence = max(self.last_sequence, latest & _LAST_SEQUENCE)
        if None not in values:
            super().restore(keys, values, next_offset)
            return
        rows = dict(zip(keys, values, strict=True))
        kept = {key: value for key, value in rows.items() if value is not None}
        super().restore(list(kept), list(kept.values()), next_offset)
        stored = [self._stored_key(key) for key, value in rows.items() if value is None]
        moved = [key for key in stored if self._store.get(key) is not None]
        self._store.restore(moved, [None] * len(moved), next_offset)

    def _stored_key(self, key: bytes) -> bytes:
        timestamp_ms, _ = _SUFFIX.unpack_from(key, len(key) - _SUFFIX.size)
        return _SEGMENT.pack(timestamp_ms // self.segment_interval_ms) + key

    def rows_of(self, key: bytes) -> Iterator[tuple[int, int, bytes]]:
        """(timestamp, sequence, value) of a key, oldest first, as far as they are within retention."""
        for row_key, value in self._fetch_rows(key, 0, self.stream_time_ms):
            timestamp_ms, sequence = _SUFFIX.unpack_from(row_key, len(row_key) - _SUFFIX.size)
            yield timestamp_ms, sequence, value

    def all_rows(self) -> Iterator[tuple[bytes, int, int, bytes]]:
        """(key, timestamp, sequence, value) of everything within retention, by segment, key and timestamp."""
        low_ms, high_ms = self._bounds(0, self.stream_time_ms)
        for row_key, value in self._store.range(*self._segments(low_ms, high_ms)) if low_ms <= high_ms else ():
            timestamp_ms, sequence = _SUFFIX.unpack_from(row_key, len(row_key) - _SUFFIX.size)
            if low_ms <= timestamp_ms:
                yield row_key[8 : -_SUFFIX.size], timestamp_ms, sequence, value


class _Store(Protocol):
    """The part of a store that the cache uses: :class:`DuplicatesBytesStore`."""

    @property
    def stream_time_ms(self) -> int: ...

    @property
    def last_sequence(self) -> int: ...

    def write_rows(
        self, rows: Collection[Pending], last_sequence: int, newest_ms: int, *, changelog_offset: int | None = None
    ) -> None: ...

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int) -> None: ...

    def rows_of(self, key: bytes) -> Iterable[tuple[int, int, bytes]]: ...

    def all_rows(self) -> Iterable[tuple[bytes, int, int, bytes]]: ...


class DuplicatesCache(dict[bytes, list[Row]]):
    """The cache of a store with duplicates. ``cache[key]``: the key's rows in the order of time; never a KeyError."""

    def __init__(self, name: str, store: _Store, row_format: RowFormat, *, retention_ms: int) -> None:
        super().__init__()
        self.name = name
        self.store = store
        self.format = row_format
        self.retention_ms = retention_ms
        self.dirty: list[Entry] = []
        """Always empty: records are logged when they are put."""
        self.pending: list[Pending] = []
        self.newest_ms = store.stream_time_ms
        self.none_moves_time = False
        """Whether a record without a value moves stream time, as in Kafka Streams' stores in memory."""
        self.sequence = store.last_sequence
        self._unknown_until_ms = store.stream_time_ms
        self._pruned_at_ms = store.stream_time_ms
        self._newest_row_ms = store.stream_time_ms
        """The latest timestamp of a row, of those of ``pending`` as far as they were looked at."""
        self._looked_at = 0
        self._rows = 0
        self._row_bytes = 64

    def __missing__(self, key: bytes) -> list[Row]:
        rows: list[Row] = []
        if self._unknown_until_ms > self.newest_ms - self.retention_ms:
            read = self.format.read
            rows = [(time, number, read(key, value)) for time, number, value in self.store.rows_of(key)]
            self._rows += len(rows)
        self[key] = rows
        return rows

    def put(self, key: bytes, timestamp_ms: int, value: object, raw: bytes | None) -> bytes:
        """Keeps a record, and returns its key in the changelog. A record without a value only gets a number."""
        sequence = self.sequence = (self.sequence + 1) & _LAST_SEQUENCE
        store_key = key + _pack_suffix(timestamp_ms, sequence)
        if raw is None:
            if self.none_moves_time and timestamp_ms > self.newest_ms:
                self.newest_ms = timestamp_ms
            return store_key
        rows = self[key]
        if timestamp_ms > self.newest_ms:
            self.newest_ms = timestamp_ms
        row = (timestamp_ms, sequence, value)
        if not rows:
            rows.append(row)
        elif rows[-1][0] > timestamp_ms:
            insort(rows, row, key=_time_and_sequence)
        else:
            if rows[-1][0] <= self.newest_ms - self.retention_ms:
                # Where a key is rare, that is so nearly always.
                self._rows -= len(rows)
                rows.clear()
            rows.append(row)
        self._rows += 1
        if len(rows) > _PRUNED_ROWS and rows[0][0] <= self.newest_ms - self.retention_ms:
            self._prune(rows)
        self.pending.append((timestamp_ms, store_key, raw))
        if not sequence % _LOOKED_AT_ROWS:
            self._forget_over()
        return store_key

    def _forget_over(self) -> None:
        """Lets go what nobody can see any more, of what is not written yet, as far as it comes first.

        What came long ago is out of the processor's cache, so it is cheaper to let it go soon than with the commit. The last
        row stays: it says that there is something to commit.
        """
        pending = self.pending
        self._look()
        low_ms, last = self._newest_row_ms - self.retention_ms, len(pending) - 1
        over = 0
        while over < last and pending[over][0] <= low_ms:
            over += 1
        if over:
            del pending[:over]
            self._looked_at = len(pending)

    def _look(self) -> None:
        """Finds the latest timestamp. Not that of ``newest_ms``, which the store does not know of."""
        fresh = self.pending[self._looked_at :]
        self._newest_row_ms = max(self._newest_row_ms, max(map(_timestamp_of, fresh), default=-1))
        self._looked_at = len(self.pending)

    def fetch(self, key: bytes, from_ms: int, to_ms: int) -> list[Row]:
        """The rows of ``key`` from ``from_ms`` to ``to_ms``, both included, in the order of time."""
        rows = self[key]
        return self.within(rows, from_ms, to_ms) if rows else rows

    def within(self, rows: list[Row], from_ms: int, to_ms: int) -> list[Row]:
        """As :meth:`fetch`, where ``rows``, at least one, are all those of a key."""
        low_ms = self.newest_ms - self.retention_ms + 1
        if low_ms < from_ms:
            low_ms = from_ms
        if rows[-1][0] < low_ms:
            return []
        if rows[0][0] >= low_ms and rows[-1][0] <= to_ms:
            return rows[:]
        return rows[bisect_left(rows, (low_ms,)) : bisect_left(rows, (to_ms + 1,))]

    def _prune(self, rows: list[Row]) -> None:
        expired = bisect_left(rows, (self.newest_ms - self.retention_ms + 1,))
        if expired:
            del rows[:expired]
            self._rows -= expired

    def flush(self, *, forwards: bool = True) -> None:
        """Nothing: records are logged when they are put."""

    def write(self, changelog_offset: int | None) -> None:
        """Writes all pending rows to the store as one batch, and drops expired ones."""
        if self.pending or changelog_offset is not None:
            if self.pending:
                some = self.pending[:_SAMPLE]
                self._row_bytes = sum(len(row[1]) + len(row[2]) for row in some) // len(some)
            self._look()
            newest_ms, low_ms = self._newest_row_ms, self._newest_row_ms - self.retention_ms
            rows = [row for row in self.pending if row[0] > low_ms]
            self.store.write_rows(rows, self.sequence, newest_ms, changelog_offset=changelog_offset)
            self._forget_pending()
        if self.newest_ms - self._pruned_at_ms > self.retention_ms:
            self._pruned_at_ms = self.newest_ms
            for kept in self.values():
                self._prune(kept)
            for key in [key for key, kept in self.items() if not kept]:
                del self[key]

    def _forget_pending(self) -> None:
        self.pending = []
        self._looked_at = 0

    def size_bytes(self) -> int:
        return (self._rows + len(self)) * (ENTRY_OVERHEAD_BYTES + self._row_bytes)

    def evict(self, limit_bytes: int) -> None:
        """Drops everything, where there are more than ``limit_bytes`` of it."""
        if not self.pending and self.size_bytes() > limit_bytes:
            self._empty()

    def _empty(self) -> None:
        self.clear()
        self._rows = 0
        self._unknown_until_ms = self.newest_ms

    def restore(self, columns: ChangelogColumns) -> None:
        """Applies records of the changelog to the store."""
        self.store.restore(columns.keys, columns.values, columns.next_offset)
        self.forget()

    def forget(self) -> None:
        """Drops everything: the store was rewritten from its changelog."""
        self._forget_pending()
        self.newest_ms = self._newest_row_ms = self.store.stream_time_ms
        self.sequence = self.store.last_sequence
        self._empty()

    def snapshot(self) -> Values:
        """The number and the time of the latest record: one without a value leaves neither in the store."""
        return [self.sequence, self.newest_ms]

    def resume_from(self, values: Values) -> None:
        self.sequence, self.newest_ms = map(int, values)

    def rows(self) -> Iterator[Entry]:
        """Yields every row within retention by key, timestamp and sequence number, including unwritten ones."""
        read, low_ms = self.format.read, self.newest_ms - self.retention_ms
        pending = (
            (store_key[: -_SUFFIX.size], *_SUFFIX.unpack(store_key[-_SUFFIX.size :]), raw)
            for _, store_key, raw in self.pending
        )
        found = {(k, t, n): raw for k, t, n, raw in chain(self.store.all_rows(), pending) if t > low_ms}
        for (key, timestamp_ms, sequence), raw in sorted(found.items()):
            entry = Entry(key, read(key, raw), -1, timestamp_ms)
            entry.sequence = sequence
            yield entry


def _time_and_sequence(row: Row) -> tuple[int, int]:
    return row[0], row[1]
