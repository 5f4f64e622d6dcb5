"""The rows of one store of one task, as bytes: the cache's changes over the contents of the byte store.

1. Nothing here changes a cache: what was not cached before is not cached afterwards.
2. A cached entry without changes equals its row in the store (or the pending one), so a scan reads changed entries
   only.
3. Functions are called, and their iterators read, only by the holder of the lock (:mod:`streamsrt.queries.gate`).
4. A row of a timestamped store is 8 bytes of timestamp and the value's bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any, NamedTuple

from streamsrt.state.cache import Entry, KeyValueCache, RowFormat
from streamsrt.state.session_cache import SessionCache
from streamsrt.state.versioned_cache import VersionedCache
from streamsrt.state.window_cache import WindowCache

_TIME = Struct(">q")


class RawRow(NamedTuple):
    """``row``: the stored bytes. ``start``, ``end``: of the window or session, or from when to when (-1: still) a version is
    valid, in milliseconds; 0 in a key-value store."""

    key: bytes
    row: bytes
    start: int = 0
    end: int = 0


def _row_of(entry: Entry, row_format: RowFormat) -> bytes | None:
    if entry.value is None:
        return None
    value = row_format.serialize(entry.value)
    return _TIME.pack(entry.timestamp) + value if row_format.timestamped else value


def key_row(cache: KeyValueCache, key: bytes) -> bytes | None:
    """Returns the row of a key."""
    entry = cache.cached(key)
    if entry is not None:
        return _row_of(entry, cache.format)
    return cache.pending[key] if key in cache.pending else cache.store.get(key)


def key_rows(cache: KeyValueCache, start: bytes | None, end: bytes | None, *, reverse: bool) -> Iterator[RawRow]:
    """Yields current rows with ``start`` <= key < ``end``, in the order of keys."""

    def within(key: bytes) -> bool:
        return (start is None or start <= key) and (end is None or key < end)

    changed: dict[bytes, RawRow | None] = {
        key: None if row is None else RawRow(key, row) for key, row in cache.pending.items() if within(key)
    }
    for entry in cache.changes():
        if within(entry.key):
            row = _row_of(entry, cache.format)
            changed[entry.key] = None if row is None else RawRow(entry.key, row)
    stored = ((key, RawRow(key, row)) for key, row in cache.store.range(start, end, reverse=reverse))
    return _merged(stored, sorted(changed.items(), reverse=reverse, key=_first), reverse=reverse)


def windows_of_key(cache: WindowCache, key: bytes, from_ms: int, to_ms: int, *, reverse: bool) -> Iterator[RawRow]:
    """Yields a key's current rows in the windows that start in ``from_ms``..``to_ms``, by start."""
    from_ms, to_ms = max(from_ms, _oldest_live_ms(cache)), min(to_ms, cache.newest())
    changed: dict[Any, RawRow | None] = {
        start: None if (row := rows[key]) is None else RawRow(key, row, start)
        for start, rows in cache.pending.items()
        if from_ms <= start <= to_ms and key in rows
    }
    for entry in cache.cached_of_key(key, from_ms, to_ms):
        row = _row_of(entry, cache.format)
        changed[entry.start] = None if row is None else RawRow(key, row, entry.start)
    store: Any = cache.store
    stored = ((start, RawRow(key, row, start)) for start, row in store.fetch(key, from_ms, to_ms, reverse=reverse))
    return _merged(stored, sorted(changed.items(), reverse=reverse, key=_first), reverse=reverse)


def all_windows(
    cache: WindowCache, from_ms: int, to_ms: int, low: bytes | None, high: bytes | None, *, reverse: bool
) -> Iterator[RawRow]:
    """Yields current rows of the keys from ``low`` to ``high`` (included) in the windows that start in
    ``from_ms``..``to_ms``, by segment, key and start."""
    from_ms, to_ms = max(from_ms, _oldest_live_ms(cache)), min(to_ms, cache.newest())
    store: Any = cache.store
    interval_ms: int = store.segment_interval_ms
    pack = _TIME.pack

    def stored_key(key: bytes, start_ms: int) -> bytes:
        return pack(start_ms // interval_ms) + key + pack(start_ms)

    def within(key: bytes, start_ms: int) -> bool:
        return from_ms <= start_ms <= to_ms and (low is None or low <= key) and (high is None or key <= high)

    changed: dict[bytes, RawRow | None] = {
        stored_key(key, start): None if row is None else RawRow(key, row, start)
        for key, start, row in cache.pending_rows()
        if within(key, start)
    }
    for entry in cache.changes():
        if within(entry.key, entry.start):
            row = _row_of(entry, cache.format)
            changed[stored_key(entry.key, entry.start)] = None if row is None else RawRow(entry.key, row, entry.start)
    stored = (
        (stored_key(key, start), RawRow(key, row, start))
        for key, start, row in store.fetch_all(from_ms, to_ms, reverse=reverse)
        if within(key, start)
    )
    return _merged(stored, sorted(changed.items(), reverse=reverse, key=_first), reverse=reverse)


def sessions_of_key(
    cache: SessionCache, key: bytes, earliest_end: int, latest_start: int, *, reverse: bool
) -> Iterator[RawRow]:
    """Yields the sessions of a key that end at ``earliest_end`` or later and start at ``latest_start`` or before, by end."""
    found: dict[tuple[int, int], bytes | None]
    cached = cache.get(key)
    if cached is not None:
        found = {(e.end, e.start): None if e.value is None else cache.format.serialize(e.value) for e in cached}
    else:
        found = {(end, start): row for start, end, row in cache.store.sessions(key)}
        found |= {(end, start): row for (of_key, end, start), row in cache.pending.items() if of_key == key}
    low = max(earliest_end, cache.newest_end - cache.retention_ms)
    return iter(
        [
            RawRow(key, row, start, end)
            for (end, start), row in sorted(found.items(), reverse=reverse, key=_first)
            if row is not None and end >= low and start <= latest_start
        ]
    )


def all_sessions(cache: SessionCache, earliest_end: int, *, reverse: bool) -> Iterator[RawRow]:
    """Yields all current sessions that end at ``earliest_end`` or later, by key and end."""
    low = max(earliest_end, cache.newest_end - cache.retention_ms)
    found: dict[tuple[bytes, int, int], bytes | None] = {
        (key, end, start): row for key, start, end, row in cache.store.all_sessions() if end >= low
    }
    found |= {each: row for each, row in cache.pending.items() if each[1] >= low}
    for entry in cache.dirty:
        if entry.end >= low:
            row = None if entry.value is None else cache.format.serialize(entry.value)
            found[entry.key, entry.end, entry.start] = row
    return iter(
        [
            RawRow(key, row, start, end)
            for (key, end, start), row in sorted(found.items(), reverse=reverse, key=_first)
            if row is not None
        ]
    )


def version_row(cache: VersionedCache, key: bytes, as_of_ms: int | None) -> RawRow | None:
    """Returns the version of a key that was valid at that time; None: the newest."""
    with _not_kept(cache, key):
        found = cache.version(key, as_of_ms)
        return None if found is None else _version(cache, key, found)


def versions_of_key(
    cache: VersionedCache, key: bytes, from_ms: int, to_ms: int, *, ascending: bool
) -> Iterator[RawRow]:
    """Yields the versions of a key that were valid at some time in between, newest first."""
    with _not_kept(cache, key):
        rows = [
            _version(cache, key, each)
            for each in cache.versions(key)
            if each[1] <= to_ms and (each[2] is None or each[2] > from_ms)
        ]
    return iter(rows[::-1] if ascending else rows)


def _version(cache: VersionedCache, key: bytes, found: tuple[Any, int, int | None]) -> RawRow:
    value, timestamp, valid_to = found
    return RawRow(key, cache.format.serialize(value), timestamp, -1 if valid_to is None else valid_to)


@contextmanager
def _not_kept(cache: VersionedCache, key: bytes) -> Iterator[None]:
    was_cached = key in cache
    yield
    if not was_cached:
        cache.drop(key)


def _oldest_live_ms(cache: WindowCache) -> int:
    return cache.newest() - cache.retention_ms + 1


def _first(item: tuple[Any, Any]) -> Any:
    return item[0]


def _merged(
    stored: Iterator[tuple[Any, RawRow]], changed: Iterable[tuple[Any, RawRow | None]], *, reverse: bool
) -> Iterator[RawRow]:
    """Merges both in order; for equal keys the changed row counts, and None hides the stored one."""
    at = next(stored, None)
    for key, row in changed:
        while at is not None and (at[0] > key if reverse else at[0] < key):
            yield at[1]
            at = next(stored, None)
        if at is not None and at[0] == key:
            at = next(stored, None)
        if row is not None:
            yield row
    while at is not None:
        yield at[1]
        at = next(stored, None)
