"""A key-value store whose entries expire some time after their last update.

1. An entry expires at its row's timestamp plus ``ttl_ms``. The cache knows which entry is next
   (:meth:`ExpiringCache.first`); the code that advances time deletes it as a program would, with a tombstone in the
   changelog. So a restored store has the same contents.
2. Expiry times are in memory: one per key, in a heap that is built from the store's rows at the first use. A time in
   the heap that is outdated by an update is corrected when it comes up.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from struct import Struct

from streamsrt.state.cache import Entry, KeyValueCache, ReadableBytes, RowFormat
from streamsrt.state.columns import ChangelogColumns, Headers

_unpack_timestamp = Struct(">q").unpack_from


class ExpiringCache(KeyValueCache):
    """The cache of such a store. Its rows have timestamps; times are epoch milliseconds."""

    def __init__(self, name: str, store: ReadableBytes, row_format: RowFormat, *, ttl_ms: int) -> None:
        super().__init__(name, store, row_format)
        self.ttl_ms = ttl_ms
        self._order: list[tuple[int, bytes]] = []
        self._queued: dict[bytes, int] = {}
        """The earliest time in the heap of each key that is there."""
        self._loaded = False

    def put(self, key: bytes, value: object, timestamp: int, headers: Headers, sequence: int) -> Entry:
        """Changes the row and returns its entry; it lives on from ``timestamp``."""
        if not self._loaded:
            self._load()
        if value is not None:
            queued = self._queued.get(key)
            if queued is None or timestamp < queued:
                self._queue(key, timestamp)
        return super().put(key, value, timestamp, headers, sequence)

    def first(self, now_ms: int) -> Entry | None:
        """The entry that expired first, by time, then by key, of those that have at ``now_ms``; None where none has."""
        if not self._loaded:
            self._load()
        order, until = self._order, now_ms - self.ttl_ms
        while order and order[0][0] <= until:
            timestamp, key = order[0]
            if self._queued.get(key) == timestamp:
                entry = self[key]
                if entry.value is not None and entry.timestamp == timestamp:
                    return entry
                del self._queued[key]
                if entry.value is not None:
                    self._queue(key, entry.timestamp)
                    continue
            heappop(order)
        return None

    def _queue(self, key: bytes, timestamp: int) -> None:
        self._queued[key] = timestamp
        heappush(self._order, (timestamp, key))

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            self._queued = {key: _unpack_timestamp(row)[0] for key, row in self.store.range(None, None)}
            self._order = [(timestamp, key) for key, timestamp in self._queued.items()]
            heapify(self._order)

    def restore(self, columns: ChangelogColumns) -> None:
        """Applies records of the changelog to the store."""
        super().restore(columns)
        self._order, self._queued, self._loaded = [], {}, False
