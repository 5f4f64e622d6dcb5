"""A key-value store that keeps only the most recently used entries.

1. Reading an entry by its key counts as use, as does putting it; scans do not.
2. An evicted entry is deleted as if the program had deleted it: with a tombstone in the changelog, before the entry
   that takes its place. So a restored store has the same contents, in the order of the last puts. Reads are not in the
   changelog.
3. If ``max_entries`` is lowered, the next put drops what is too much.

Source: MemoryLRUCache of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable

from streamsrt.state.cache import Entry, KeyValueCache, ReadableBytes, RowFormat
from streamsrt.state.columns import ChangelogColumns, Headers
from streamsrt.state.snapshots import Values


class LruCache(KeyValueCache):
    """The cache of such a store. ``on_drop`` is called with each entry that is dropped, unless a flush logs it."""

    def __init__(self, name: str, store: ReadableBytes, row_format: RowFormat, *, max_entries: int) -> None:
        super().__init__(name, store, row_format)
        self._max_entries = max_entries
        self._used: dict[bytes, None] = {}
        """Keys that have a row, least recently used first."""
        self.on_drop: Callable[[Entry], None] | None = None

    def __getitem__(self, key: bytes) -> Entry:
        if key in self._used:
            self._use(key)
        return super().__getitem__(key)

    def _use(self, key: bytes) -> None:
        self._used.pop(key, None)
        self._used[key] = None

    def put(self, key: bytes, value: object, timestamp: int, headers: Headers, sequence: int) -> Entry:
        """Changes the row and returns its entry; drops those used longest ago where there are too many."""
        if value is None:
            self._used.pop(key, None)
        else:
            self._use(key)
            while len(self._used) > self._max_entries:
                oldest = next(iter(self._used))
                del self._used[oldest]
                dropped = super().put(oldest, None, timestamp, headers, sequence)
                if self.on_drop is not None:
                    self.on_drop(dropped)
        return super().put(key, value, timestamp, headers, sequence)

    def restore(self, columns: ChangelogColumns) -> None:
        """Applies records of the changelog to the store."""
        super().restore(columns)
        for key, value in zip(columns.keys, columns.values, strict=True):
            if value is None:
                self._used.pop(key, None)
            else:
                self._use(key)

    def snapshot(self) -> Values:
        """Keys in the order in which they were used."""
        return [key.hex() for key in self._used]

    def resume_from(self, values: Values) -> None:
        self._used = dict.fromkeys(bytes.fromhex(str(key)) for key in values)
