"""A session store: rows by key, end and start of session, kept for a retention time.

1. In the changelog a row's key is the record's key, 8 bytes of end and 8 bytes of start, as in Kafka Streams
   (``SessionKeySchema``). In the store, 8 bytes of segment come before that: the end divided by the segment interval.
2. Stream time is the latest end ever written here. A session that ended before stream time minus retention is not read.
3. Otherwise the rules of :mod:`streamsrt.state.windowed` hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import add
from struct import Struct

from streamsrt.errors import StateError
from streamsrt.state.windowed import SEGMENT_BYTES, WindowBytesStore

_TIME = Struct(">q")
_TIMES = Struct(">qq")
_TIMES_BYTES = 16
_LAST = b"\xff" * 9


def session_key(key: bytes, start_ms: int, end_ms: int) -> bytes:
    """The changelog's key of a session."""
    return key + _TIMES.pack(end_ms, start_ms)


def session_keys(keys: Iterable[bytes], starts_ms: Iterable[int], ends_ms: Iterable[int]) -> list[bytes]:
    """:func:`session_key` of each key, start and end."""
    return list(map(add, keys, map(_TIMES.pack, ends_ms, starts_ms)))


def split_session_key(session_key: bytes) -> tuple[bytes, int, int]:
    """Splits a key of the changelog into the bytes of the record's key, and the session's start and end in milliseconds."""
    end_ms, start_ms = _TIMES.unpack_from(session_key, len(session_key) - _TIMES_BYTES)
    return session_key[:-_TIMES_BYTES], start_ms, end_ms


class SessionBytesStore(WindowBytesStore):
    """Sessions over ``store``, which it owns (Kafka's ``RocksDBSessionStore``)."""

    _time_from_end = _TIMES_BYTES

    def _oldest_live_ms(self) -> int:
        return max(0, self._stream_time_ms - self.retention_ms)

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int) -> None:
        """Writes columns of the changelog, together with the offset at which restoring continues. Expired rows are
        dropped.
        """
        stored_keys: list[bytes] = []
        stored_values: list[bytes | None] = []
        for key, value in zip(keys, values, strict=True):
            packed = key[-16:-8]
            if len(packed) != 8:
                raise StateError(
                    f"the changelog of session store {self.name!r} has a key of {len(key)} bytes below offset {next_offset}"
                    f", but a session's key ends with {_TIMES_BYTES} bytes of end and start. Something else writes to that "
                    "topic, or another store once had this name: reset the application, or give the store another name."
                )
            prefix = self._prefix(packed)
            if prefix is None:
                self.dropped_rows += 1
            else:
                stored_keys.append(prefix + key)
                stored_values.append(value)
        self._restore_rows(stored_keys, stored_values, next_offset)

    def get(self, key: bytes, start_ms: int, end_ms: int) -> bytes | None:  # type: ignore[override]
        """The value of the session of ``key`` with these bounds; None where there is none or it is expired."""
        if end_ms < self._oldest_live_ms():
            return None
        return self._store.get(_TIME.pack(end_ms // self.segment_interval_ms) + key + _TIMES.pack(end_ms, start_ms))

    def sessions(self, key: bytes) -> Iterator[tuple[int, int, bytes]]:
        """(start, end, value) of all sessions of ``key``, by end, then start."""
        low_ms, high_ms = self._bounds(0, self._stream_time_ms)
        if low_ms > high_ms:
            return iter(())
        interval_ms = self.segment_interval_ms
        low, high = key + _TIMES.pack(low_ms, 0), key + _TIME.pack(high_ms) + _LAST
        scans = [
            self._store.range(prefix + low, prefix + high)
            for prefix in map(_TIME.pack, range(low_ms // interval_ms, high_ms // interval_ms + 1))
        ]
        return _times_and_values(chain.from_iterable(scans), len(key) + SEGMENT_BYTES + _TIMES_BYTES)

    def all_sessions(self) -> Iterator[tuple[bytes, int, int, bytes]]:
        """(key, start, end, value) of all sessions, by segment, key, end and start."""
        low_ms, high_ms = self._bounds(0, self._stream_time_ms)
        if low_ms > high_ms:
            return iter(())
        interval_ms = self.segment_interval_ms
        rows = self._store.range(_TIME.pack(low_ms // interval_ms), _TIME.pack(high_ms // interval_ms + 1))
        return _sessions(rows, low_ms)


def _times_and_values(rows: Iterable[tuple[bytes, bytes]], row_key_bytes: int) -> Iterator[tuple[int, int, bytes]]:
    for row_key, value in rows:
        # Between two sessions of a key there may be sessions of longer keys that begin with it.
        if len(row_key) == row_key_bytes:
            end_ms, start_ms = _TIMES.unpack_from(row_key, row_key_bytes - _TIMES_BYTES)
            yield start_ms, end_ms, value


def _sessions(rows: Iterable[tuple[bytes, bytes]], low_ms: int) -> Iterator[tuple[bytes, int, int, bytes]]:
    for row_key, value in rows:
        key, start_ms, end_ms = split_session_key(row_key[SEGMENT_BYTES:])
        if end_ms >= low_ms:
            yield key, start_ms, end_ms, value
