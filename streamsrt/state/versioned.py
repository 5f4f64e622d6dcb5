"""A versioned store: the value of a key as of any time within the history retention.

1. A version is valid from its timestamp up to that of the key's next version. A deletion is a version without a value.
   Puts may come in any order of timestamps; at equal timestamps the last one counts.
2. In the changelog a version is a plain record: key, value, and the version's timestamp as the record's.
3. In the store the newest version of a key is under ``00 key``, unless it is a deletion. Every other version is under
   ``01 segment key timestamp``, where the segment is that of the end of its validity (for a deletion: of its own
   timestamp). So whole segments expire by one range deletion, and the newest version never does.
4. Stream time is the latest timestamp ever put. It is stored in the batch that raises it, under the empty key. A put
   that is older than stream time minus retention is dropped and counted. The caller decides whether it is logged.
5. Times are milliseconds since the epoch and not negative.
6. Of a key whose versions come out of order, all versions are read once and then known, so that each put costs about the
   same however many there are. What is known of all keys together is bounded, and forgotten when a write fails.

Source: RocksDBVersionedStore of Kafka Streams (KIP-889).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from streamsrt.errors import StateError
from streamsrt.state.over_bytes import OverBytes
from streamsrt.state.store import BytesStore
from streamsrt.state.windowed import STREAM_TIME_KEY

_TIME = Struct(">q")
_pack_time, _unpack_time = _TIME.pack, _TIME.unpack_from
_TIME_BYTES = 8
_LATEST = b"\0"
_HISTORY = b"\1"
_DELETED = b"\0"
_VALUE = b"\1"
_by_timestamp = attrgetter("timestamp_ms")
_KNOWN_BYTES_MAX = 4 << 20
_ROW_OVERHEAD_BYTES = 200


class RowVersion(NamedTuple):
    """One version of a key. ``valid_to_ms`` None: it is the newest. ``value`` None: a deletion."""

    timestamp_ms: int
    value: bytes | None
    valid_to_ms: int | None


class _Row(NamedTuple):
    """A version as it is stored: where, and up to when it is valid (a deletion: its own timestamp)."""

    key: bytes
    timestamp_ms: int
    value: bytes | None
    valid_to_ms: int


class _Known:
    """All versions of a key but the newest one with a value, oldest first."""

    __slots__ = ("rows", "times")

    def __init__(self, rows: list[_Row]) -> None:
        self.rows = rows
        self.times = [row.timestamp_ms for row in rows]

    def put(self, row: _Row) -> None:
        at = bisect_left(self.times, row.timestamp_ms)
        if at < len(self.times) and self.times[at] == row.timestamp_ms:
            self.rows[at] = row
        else:
            self.times.insert(at, row.timestamp_ms)
            self.rows.insert(at, row)

    def drop(self, timestamp_ms: int) -> None:
        at = bisect_left(self.times, timestamp_ms)
        if at < len(self.times) and self.times[at] == timestamp_ms:
            del self.times[at], self.rows[at]


class VersionedBytesStore(OverBytes):
    """Versions by key over ``store``, which it owns (Kafka's ``RocksDBVersionedStore``)."""

    def __init__(self, store: BytesStore, *, history_retention_ms: int, segment_interval_ms: int) -> None:
        super().__init__(store)
        self.history_retention_ms = history_retention_ms
        self.segment_interval_ms = segment_interval_ms
        self.dropped_rows = 0
        """How many versions were expired when they were put."""
        stored = store.get(STREAM_TIME_KEY)
        self._stream_time_ms = -1 if stored is None else int(_TIME.unpack(stored)[0])
        self._newest_deletion_ms = self._stream_time_ms
        self._oldest_segment = self._first_stored_segment()
        self._batch: dict[bytes, bytes | None] = {}
        self._pending: dict[bytes, list[bytes]] | None = None
        """Where the history in the batch is, by key; None before somebody asks."""
        self._known: dict[bytes, _Known] = {}
        self._known_bytes = 0

    @property
    def stream_time_ms(self) -> int:
        """The latest timestamp ever put; -1 where nothing was."""
        return self._stream_time_ms

    @property
    def newest_deletion_ms(self) -> int:
        """An upper bound of the timestamps, in milliseconds, of deletions that are their key's newest version."""
        return self._newest_deletion_ms

    def _first_stored_segment(self) -> int | None:
        for key, _ in self._store.range(_HISTORY):
            return int(_TIME.unpack_from(key, 1)[0])
        return None

    def _live_segment(self) -> int:
        return max(0, self._stream_time_ms - self.history_retention_ms) // self.segment_interval_ms

    # -------------------------------------------------------------------------------------------------------- writing

    def write(self, puts: Iterable[tuple[bytes, int, bytes | None]], *, changelog_offset: int | None = None) -> None:
        """Puts (key, timestamp, value) in this order, as one atomic batch; None deletes. Expired versions are dropped."""
        before_ms = self._stream_time_ms
        try:
            self._put_all(puts)
            batch = self._batch
            if self._stream_time_ms > before_ms:
                batch[STREAM_TIME_KEY] = _TIME.pack(self._stream_time_ms)
            ordered = sorted(batch)
            rows = zip(ordered, map(batch.__getitem__, ordered), strict=True)
            self._store.write(rows, changelog_offset=changelog_offset)
        except BaseException:
            self._forget_known()
            raise
        finally:
            self._batch = {}
            self._pending = None
        self._delete_expired()
        if self._known_bytes > _KNOWN_BYTES_MAX:
            self._forget_known()

    def _forget_known(self) -> None:
        self._known = {}
        self._known_bytes = 0

    def _known_of(self, key: bytes) -> _Known:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known(self._rows(key))
            self._known_bytes += sum(_size_bytes(row.value) for row in known.rows)
        return known

    def restore_versions(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int], next_offset: int
    ) -> None:
        """Puts columns of the changelog, together with the offset at which restoring continues."""
        self.write(zip(keys, timestamps, values, strict=True), changelog_offset=next_offset)

    def _put_all(self, puts: Iterable[tuple[bytes, int, bytes | None]]) -> None:
        batch, kept_ms, known = self._batch, self.history_retention_ms, self._known
        newest: dict[bytes, tuple[int, bytes, bytes]] = {}
        """The newest versions of keys, as far as they are not in the batch yet: their times, also as bytes, and values."""
        start_ms = end_ms = 0
        stream_time_ms = self._stream_time_ms
        prefix = b""
        for key, timestamp_ms, value in puts:
            before = newest.get(key)
            if before is None and (latest := self._get(_LATEST + key)) is not None:
                before = _unpack_time(latest)[0], latest[:_TIME_BYTES], latest[_TIME_BYTES:]
            if (
                before is None
                or value is None
                or timestamp_ms <= before[0]
                or timestamp_ms < stream_time_ms - kept_ms
                or key in known
            ):
                if before is not None and newest.pop(key, None) is not None:
                    batch[_LATEST + key] = before[1] + before[2]
                self._put(key, timestamp_ms, value)
                stream_time_ms = self._stream_time_ms
                continue
            # Most come in order: the one before is valid up to this one, which is within the retention.
            if timestamp_ms > stream_time_ms:
                self._stream_time_ms = stream_time_ms = timestamp_ms
            if not start_ms <= timestamp_ms < end_ms:
                segment = timestamp_ms // self.segment_interval_ms
                start_ms = segment * self.segment_interval_ms
                end_ms = start_ms + self.segment_interval_ms
                prefix = _HISTORY + _pack_time(segment)
                if self._oldest_segment is None or segment < self._oldest_segment:
                    self._oldest_segment = segment
            packed = _pack_time(timestamp_ms)
            stored_key = prefix + key + before[1]
            batch[stored_key] = packed + _VALUE + before[2]
            if self._pending is not None:
                self._pending.setdefault(key, []).append(stored_key)
            newest[key] = timestamp_ms, packed, value
        batch |= {_LATEST + key: packed + value for key, (_, packed, value) in newest.items()}

    def _put(self, key: bytes, timestamp_ms: int, value: bytes | None) -> None:
        if timestamp_ms < 0:
            raise StateError(f"versioned store {self.name!r}: a version can't begin at {timestamp_ms} ms")
        if timestamp_ms < self._stream_time_ms - self.history_retention_ms:
            self.dropped_rows += 1
            return
        if timestamp_ms > self._stream_time_ms:
            self._stream_time_ms = timestamp_ms
        latest = self._get(_LATEST + key)
        newest_ms = self._newest_deletion_ms if latest is None else int(_TIME.unpack_from(latest)[0])
        if timestamp_ms < newest_ms or (latest is None and timestamp_ms == newest_ms):
            self._insert(key, timestamp_ms, value, None if latest is None else newest_ms)
            return
        if latest is not None and timestamp_ms > newest_ms:
            self._keep(key, newest_ms, _VALUE + latest[_TIME_BYTES:], timestamp_ms)
        self._put_latest(key, timestamp_ms, value)

    def _put_latest(self, key: bytes, timestamp_ms: int, value: bytes | None) -> None:
        if value is not None:
            self._batch[_LATEST + key] = _TIME.pack(timestamp_ms) + value
            return
        self._batch[_LATEST + key] = None
        self._keep(key, timestamp_ms, _DELETED, timestamp_ms)
        self._newest_deletion_ms = max(self._newest_deletion_ms, timestamp_ms)

    def _insert(self, key: bytes, timestamp_ms: int, value: bytes | None, latest_ms: int | None) -> None:
        """Puts a version that may have later ones of its key behind it."""
        known = self._known_of(key)
        at = bisect_left(known.times, timestamp_ms)
        behind = at + (at < len(known.times) and known.times[at] == timestamp_ms)
        next_ms = known.times[behind] if behind < len(known.times) else latest_ms
        # Versions don't overlap: of the others, only the one before may be valid at this time.
        before = known.rows[at - 1] if at else None
        if behind > at:
            self._drop(known.rows[at])
        if before is not None and before.value is not None and timestamp_ms < before.valid_to_ms:
            self._drop(before)
            self._keep(key, before.timestamp_ms, _VALUE + before.value, timestamp_ms)
        if next_ms is None:
            self._put_latest(key, timestamp_ms, value)
        else:
            content, valid_to_ms = (_DELETED, timestamp_ms) if value is None else (_VALUE + value, next_ms)
            self._keep(key, timestamp_ms, content, valid_to_ms)

    def _drop(self, row: _Row) -> None:
        self._change(row.key, row.timestamp_ms, row.valid_to_ms // self.segment_interval_ms, None)
        known = self._known.get(row.key)
        if known is not None:
            known.drop(row.timestamp_ms)

    def _keep(self, key: bytes, timestamp_ms: int, content: bytes, valid_to_ms: int) -> None:
        segment = valid_to_ms // self.segment_interval_ms
        if segment < self._live_segment():
            return
        if self._oldest_segment is None or segment < self._oldest_segment:
            self._oldest_segment = segment
        self._change(key, timestamp_ms, segment, _pack_time(valid_to_ms) + content)
        known = self._known.get(key)
        if known is not None:
            value = content[1:] if content[:1] == _VALUE else None
            known.put(_Row(key, timestamp_ms, value, valid_to_ms))
            self._known_bytes += _size_bytes(value)

    def _change(self, key: bytes, timestamp_ms: int, segment: int, row: bytes | None) -> None:
        stored_key = _HISTORY + _pack_time(segment) + key + _pack_time(timestamp_ms)
        self._batch[stored_key] = row
        if self._pending is not None:
            self._pending.setdefault(key, []).append(stored_key)

    def _changed(self, key: bytes) -> dict[bytes, bytes | None]:
        """The history of a key as far as it is in the batch."""
        if self._pending is None:
            self._pending = {}
            for stored_key in self._batch:
                if stored_key.startswith(_HISTORY):
                    in_it = stored_key[1 + _TIME_BYTES : -_TIME_BYTES]
                    self._pending.setdefault(in_it, []).append(stored_key)
        return {stored_key: self._batch[stored_key] for stored_key in self._pending.get(key, ())}

    def _delete_expired(self) -> None:
        oldest, live = self._oldest_segment, self._live_segment()
        if oldest is not None and oldest < live:
            self._store.delete_range(_HISTORY + _TIME.pack(oldest), _HISTORY + _TIME.pack(live))
            self._oldest_segment = live

    # -------------------------------------------------------------------------------------------------------- reading

    def _get(self, stored_key: bytes) -> bytes | None:
        return self._batch[stored_key] if stored_key in self._batch else self._store.get(stored_key)

    def _rows(self, key: bytes) -> list[_Row]:
        """All versions of a key but the newest one with a value, oldest first."""
        if self._oldest_segment is None:
            return []
        length = 1 + _TIME_BYTES + len(key) + _TIME_BYTES
        newest = self._stream_time_ms // self.segment_interval_ms
        changed = self._changed(key)
        rows: dict[bytes, bytes | None] = {}
        for segment in range(max(self._oldest_segment, self._live_segment()), newest + 1):
            prefix = _HISTORY + _TIME.pack(segment) + key
            # Between two versions of a key there may be those of longer keys that begin with it.
            rows |= {
                stored_key: row
                for stored_key, row in self._store.range(prefix, prefix + b"\x80")
                if len(stored_key) == length
            }
        found = [
            _row(key, int(_TIME.unpack_from(stored_key, length - _TIME_BYTES)[0]), row)
            for stored_key, row in (rows | changed).items()
            if row is not None
        ]
        return sorted(found, key=_by_timestamp)

    def latest(self, key: bytes) -> tuple[int, bytes] | None:
        """Timestamp and value of the newest version; None where there is none or it is a deletion."""
        row = self._store.get(_LATEST + key)
        return None if row is None else (int(_TIME.unpack_from(row)[0]), row[_TIME_BYTES:])

    def versions(self, key: bytes) -> list[RowVersion]:
        """All versions of a key that are still there, oldest first; deletions too."""
        rows = self._rows(key)
        latest = self.latest(key)
        ends: list[int | None] = [row.timestamp_ms for row in rows[1:]]
        if rows:
            ends.append(None if latest is None else latest[0])
        found = [RowVersion(row.timestamp_ms, row.value, end) for row, end in zip(rows, ends, strict=True)]
        return found if latest is None else [*found, RowVersion(*latest, None)]

    def get(self, key: bytes, as_of_ms: int) -> RowVersion | None:
        """The version that was valid at ``as_of_ms``; None where there was none, or that is beyond retention."""
        latest = self.latest(key)
        if latest is not None and latest[0] <= as_of_ms:
            return RowVersion(*latest, None)
        if as_of_ms < self._stream_time_ms - self.history_retention_ms:
            return None
        known = [version for version in self.versions(key) if version.timestamp_ms <= as_of_ms]
        return known[-1] if known and known[-1].value is not None else None

    def latest_rows(self) -> Iterator[tuple[bytes, int, bytes]]:
        """(key, timestamp, value) of the newest version of every key that has a value, by key."""
        for stored_key, row in self._store.range(_LATEST, _HISTORY):
            yield stored_key[1:], int(_TIME.unpack_from(row)[0]), row[_TIME_BYTES:]

    def all_versions(self) -> Iterator[tuple[bytes, RowVersion]]:
        """(key, version) of every version with a value that is still there: the newest by key, then the older ones."""
        for key, timestamp_ms, value in self.latest_rows():
            yield key, RowVersion(timestamp_ms, value, None)
        for stored_key, stored in self._store.range(_HISTORY + _TIME.pack(self._live_segment())):
            at = len(stored_key) - _TIME_BYTES
            row = _row(stored_key[1 + _TIME_BYTES : at], int(_TIME.unpack_from(stored_key, at)[0]), stored)
            if row.value is not None:
                yield row.key, RowVersion(row.timestamp_ms, row.value, row.valid_to_ms)

    def approximate_count(self) -> int:
        return max(0, super().approximate_count() - (self._stream_time_ms >= 0))


def _size_bytes(value: bytes | None) -> int:
    return _ROW_OVERHEAD_BYTES + (0 if value is None else len(value))


def _row(key: bytes, timestamp_ms: int, row: bytes) -> _Row:
    deleted = row[_TIME_BYTES : _TIME_BYTES + 1] == _DELETED
    value = None if deleted else row[_TIME_BYTES + 1 :]
    return _Row(key, timestamp_ms, value, int(_TIME.unpack_from(row)[0]))


def is_stored_version(stored_key: bytes, row: bytes) -> bool:
    """Whether a version can be stored like that; damaged rows are not."""
    if stored_key.startswith(_LATEST):
        return len(row) >= _TIME_BYTES
    history = stored_key.startswith(_HISTORY) and len(stored_key) >= len(_HISTORY) + 2 * _TIME_BYTES
    return history and row[_TIME_BYTES : _TIME_BYTES + 1] in (_DELETED, _VALUE)
