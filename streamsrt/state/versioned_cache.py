"""Typed versions between the operators of a task and its versioned store.

1. Versions of the keys in use are here with deserialized values. For a key that is only read and put in order, these are
   its newest version and those that were put since; the rest is loaded when an older one is read or put.
2. A put that is usual changes the entry itself: a value that is newer than the entry's newest version and not older than any
   put before it. It appends to ``dirty``, to both lists of the entry, and moves ``stream_time_ms`` on. That is what
   :meth:`VersionedCache.add` does, and generated code itself. :meth:`VersionedCache.put` does the rest.
3. The caller logs and forwards a put immediately: versions are never held back. :meth:`VersionedCache.write` writes the
   puts since the last call to the store, in their order, with the changelog offset.
4. Only versions that are in the store are dropped from here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Any, Final, cast

from streamsrt.state.cache import ENTRY_OVERHEAD_BYTES, Flushed, RowFormat
from streamsrt.state.columns import ChangelogColumns, Headers
from streamsrt.state.versioned import VersionedBytesStore
from topology.spec import serdes

_VERSION_BYTES: Final = 100
_RAW: Final = frozenset({bytes, type(None)})
_value_of = itemgetter(2)
MANY_VERSIONS: Final = 64
"""With more of them, an entry forgets those that are over."""


class VersionPut:
    """The result of a put. ``is_stored`` False: it was older than the retention. ``valid_to_ms`` None: it is the newest
    version."""

    __slots__ = ("headers", "is_stored", "key", "timestamp", "valid_to_ms", "value")

    def __init__(self, key: bytes, value: Any, timestamp: int, headers: Headers) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.headers = headers
        self.valid_to_ms: int | None = None
        self.is_stored = True

    @property
    def is_latest(self) -> bool:
        return self.valid_to_ms is None


class VersionedEntry:
    """Versions of one key, oldest first; ``complete``: no older ones are in the store."""

    __slots__ = ("complete", "key", "timestamps", "values")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.timestamps: list[int] = []
        self.values: list[object] = []
        self.complete = False

    @property
    def value(self) -> Any:
        """The newest version's value; None where there is none, or it is a deletion."""
        return self.values[-1] if self.values else None

    @property
    def timestamp(self) -> int:
        return self.timestamps[-1] if self.timestamps else -1


class VersionedCache(dict[bytes, VersionedEntry]):
    """``cache[key]`` is the key's entry, whose ``value`` and ``timestamp`` are those of the newest version."""

    def __init__(self, name: str, store: VersionedBytesStore, row_format: RowFormat) -> None:
        super().__init__()
        self.name = name
        self.store = store
        self.format = row_format
        self.dirty: list[tuple[bytes, int, object]] = []
        """Keys, timestamps and values of what was put since the last flush."""
        self.pending: list[tuple[bytes, int, bytes | None]] = []
        self.expired_puts = 0
        self.stream_time_ms = store.stream_time_ms
        self._newest_deletion_ms = store.newest_deletion_ms
        self._versions = 0
        """How many there are in the entries, less those in ``dirty``."""

    def __missing__(self, key: bytes) -> VersionedEntry:
        entry = self[key] = VersionedEntry(key)
        latest = self.store.latest(key)
        if latest is not None:
            entry.timestamps.append(latest[0])
            entry.values.append(self.format.read(key, latest[1]))
            self._versions += 1
        elif self._newest_deletion_ms < 0:
            # A key whose newest version is no value has been deleted, or has no version at all.
            entry.complete = True
        return entry

    def _complete(self, entry: VersionedEntry) -> None:
        """Loads the versions that are older than those which the entry has."""
        if entry.complete:
            return
        entry.complete = True
        oldest = entry.timestamps[0] if entry.timestamps else None
        older = [v for v in self.store.versions(entry.key) if oldest is None or v.timestamp_ms < oldest]
        read = self.format.read
        entry.timestamps[:0] = [version.timestamp_ms for version in older]
        entry.values[:0] = [None if version.value is None else read(entry.key, version.value) for version in older]
        self._versions += len(older)

    # -------------------------------------------------------------------------------------------------------- writing

    def add(self, key: bytes, value: object, timestamp: int) -> None:
        """As :meth:`put`, where nobody is told what comes of it."""
        entry = self[key]
        times = entry.timestamps
        usual = value is not None and times and timestamp > times[-1] and timestamp >= self.stream_time_ms
        if usual and len(times) < MANY_VERSIONS:
            self.stream_time_ms = timestamp
            self.dirty.append((key, timestamp, value))
            times.append(timestamp)
            entry.values.append(value)
        else:
            self.put(key, value, timestamp, (), 0)

    def put(self, key: bytes, value: object, timestamp: int, headers: Headers, sequence: int) -> VersionPut:
        """Puts a version; ``value`` None: from ``timestamp`` on there is none."""
        put = VersionPut(key, value, timestamp, headers)
        self.dirty.append((key, timestamp, value))
        if timestamp < self.stream_time_ms - self.store.history_retention_ms:
            put.is_stored = False
            self.expired_puts += 1
            self._versions -= 1
            return put
        if timestamp > self.stream_time_ms:
            self.stream_time_ms = timestamp
        entry = self[key]
        timestamps = entry.timestamps
        if value is not None and timestamps and timestamp > timestamps[-1]:
            # Most come in order.
            timestamps.append(timestamp)
            entry.values.append(value)
            if len(timestamps) > MANY_VERSIONS:
                self._forget_expired(entry)
            return put
        newest_ms = timestamps[-1] if timestamps else self._newest_deletion_ms
        if timestamp <= newest_ms:
            self._complete(entry)
        at = bisect_left(timestamps, timestamp)
        if at < len(timestamps) and timestamps[at] == timestamp:
            entry.values[at] = value
            self._versions -= 1
        else:
            timestamps.insert(at, timestamp)
            entry.values.insert(at, value)
        if at + 1 < len(timestamps):
            put.valid_to_ms = timestamps[at + 1]
        elif value is None:
            self._newest_deletion_ms = max(self._newest_deletion_ms, timestamp)
        if len(timestamps) > MANY_VERSIONS:
            self._forget_expired(entry)
        return put

    def _forget_expired(self, entry: VersionedEntry) -> None:
        live_ms = max(0, self.stream_time_ms - self.store.history_retention_ms)
        live_ms -= live_ms % self.store.segment_interval_ms
        over = bisect_left(entry.timestamps, live_ms) - 1
        if over > 0:
            del entry.timestamps[:over], entry.values[:over]
            self._versions -= over

    def flush(self, *, forwards: bool = True) -> Flushed | None:
        """Makes bytes of what was put; nothing is forwarded."""
        serialize, puts = self.format.serialize, self.dirty
        if serialize != serdes.bytes.serialize or not _RAW.issuperset(map(type, map(_value_of, puts))):
            # Bytes are written as they are.
            puts = [(key, timestamp, None if value is None else serialize(value)) for key, timestamp, value in puts]
        self.pending += cast(list[tuple[bytes, int, bytes | None]], puts)
        self._versions += len(puts)
        self.dirty = []
        return None

    def read_olds(self, flushed: Flushed) -> None:
        """Does nothing: a flush of this cache forwards nothing."""

    def write(self, changelog_offset: int | None) -> None:
        """Puts everything pending into the store, as one batch."""
        if self.pending or changelog_offset is not None:
            self.store.write(self.pending, changelog_offset=changelog_offset)
            self.pending = []

    # -------------------------------------------------------------------------------------------------------- reading

    def as_of(self, key: bytes, as_of_ms: int) -> Any:
        """The value that was valid at ``as_of_ms``; None where there was none, or that is beyond retention."""
        entry = self[key]
        timestamps = entry.timestamps
        if timestamps and timestamps[-1] <= as_of_ms:
            return entry.values[-1]
        if as_of_ms < self.stream_time_ms - self.store.history_retention_ms:
            return None
        if not timestamps or as_of_ms < timestamps[0]:
            self._complete(entry)
        at = bisect_right(timestamps, as_of_ms)
        return entry.values[at - 1] if at else None

    def version(self, key: bytes, as_of_ms: int | None = None) -> tuple[object, int, int | None] | None:
        """Value, timestamp and end of the version that was valid at ``as_of_ms`` (None: of the newest)."""
        entry = self[key]
        timestamps = entry.timestamps
        if as_of_ms is None or (timestamps and timestamps[-1] <= as_of_ms):
            return None if entry.value is None else (entry.value, entry.timestamp, None)
        if as_of_ms < self.stream_time_ms - self.store.history_retention_ms:
            return None
        if not timestamps or as_of_ms < timestamps[0]:
            self._complete(entry)
        at = bisect_right(timestamps, as_of_ms) - 1
        if at < 0 or entry.values[at] is None:
            return None
        return entry.values[at], timestamps[at], timestamps[at + 1] if at + 1 < len(timestamps) else None

    def versions(self, key: bytes) -> list[tuple[object, int, int | None]]:
        """Value, timestamp and end of every version of a key that is still there, newest first; without deletions."""
        entry = self[key]
        self._complete(entry)
        live_ms = max(0, self.stream_time_ms - self.store.history_retention_ms)
        live_ms -= live_ms % self.store.segment_interval_ms
        ends: list[int | None] = [*entry.timestamps[1:], None]
        # A key without versions has no end either.
        found = zip(entry.values, entry.timestamps, ends, strict=False)
        return [row for row in found if row[0] is not None and (row[2] is None or row[2] >= live_ms)][::-1]

    # ---------------------------------------------------------------------------------------------------------- memory

    def size_bytes(self) -> int:
        return len(self) * ENTRY_OVERHEAD_BYTES + (self._versions + len(self.dirty)) * _VERSION_BYTES

    def evict(self, limit_bytes: int) -> None:
        """Drops all entries where they take more than ``limit_bytes``."""
        if not self.dirty and not self.pending and self.size_bytes() > limit_bytes:
            self._drop_all()

    def drop(self, key: bytes) -> None:
        """Drops the entry of a key that was loaded just now, and not changed."""
        self._versions -= len(self.pop(key).timestamps)

    def _drop_all(self) -> None:
        self.clear()
        self._versions = 0

    def forget(self) -> None:
        """Drops every entry, changed ones too: the store was rewritten from its changelog."""
        self._drop_all()
        self.dirty = []
        self.pending = []
        self.stream_time_ms = self.store.stream_time_ms
        self._newest_deletion_ms = self.store.newest_deletion_ms

    def restore(self, columns: ChangelogColumns) -> None:
        """Applies records of the changelog to the store."""
        self.store.restore_versions(columns.keys, columns.values, columns.timestamps, columns.next_offset)
        self.forget()
