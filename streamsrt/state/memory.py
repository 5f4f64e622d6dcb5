"""An in-memory store: lost with the process, and restored from its changelog as a whole.

1. The rules of :mod:`streamsrt.state.store` hold.
2. Keys are in a dictionary; their order is computed when it is needed, and again after keys were added or deleted.
3. An iterator copies what it will return when it is created.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from streamsrt.state.store import StoreClosedError, after_prefix


class MemoryStore:
    """A :class:`~streamsrt.state.store.BytesStore` in memory (Kafka's ``InMemoryKeyValueStore``)."""

    persistent = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._values: dict[bytes, bytes] | None = {}
        self._ordered: list[bytes] | None = []
        self._changelog_offset: int | None = None
        self._size_bytes = 0

    @property
    def is_open(self) -> bool:
        return self._values is not None

    def _data(self) -> dict[bytes, bytes]:
        if self._values is None:
            raise StoreClosedError(self.name)
        return self._values

    def get(self, key: bytes) -> bytes | None:
        return self._data().get(key)

    def write(self, puts: Iterable[tuple[bytes, bytes | None]], *, changelog_offset: int | None = None) -> None:
        data = self._values
        if data is None:
            raise StoreClosedError(self.name)
        count_before = len(data)
        size_bytes = self._size_bytes
        gone = False
        # A list first: an iterable that raises halfway must leave the store as it was.
        for key, value in list(puts):
            old = data.get(key)
            if value is not None:
                data[key] = value
                size_bytes += len(value) - len(old) if old is not None else len(key) + len(value)
            elif old is not None:
                del data[key]
                size_bytes -= len(key) + len(old)
                gone = True
        self._size_bytes = size_bytes
        if gone or len(data) != count_before:
            self._ordered = None
        if changelog_offset is not None:
            self._changelog_offset = changelog_offset

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int) -> None:
        self.write(zip(keys, values, strict=True), changelog_offset=next_offset)

    def changelog_offset(self) -> int | None:
        self._data()
        return self._changelog_offset

    def _keys(self, start: bytes | None, end: bytes | None) -> list[bytes]:
        data = self._data()
        ordered = self._ordered
        if ordered is None:
            ordered = self._ordered = sorted(data)
        low = 0 if start is None else bisect_left(ordered, start)
        high = len(ordered) if end is None else bisect_left(ordered, end)
        return ordered[low:high]

    def range(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        data = self._data()
        keys = self._keys(start, end)
        if reverse:
            keys.reverse()
        return self._rows([(key, data[key]) for key in keys])

    def _rows(self, rows: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for row in rows:
            if self._values is None:
                raise StoreClosedError(self.name)
            yield row

    def prefix(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.range(prefix, after_prefix(prefix))

    def delete_range(self, start: bytes | None = None, end: bytes | None = None) -> None:
        self.write([(key, None) for key in self._keys(start, end)])

    def approximate_count(self) -> int:
        return len(self._data())

    def approximate_size_bytes(self) -> int:
        self._data()
        return self._size_bytes

    def flush(self) -> None:
        self._data()

    def close(self) -> None:
        self._values = None
        self._ordered = None
        self._size_bytes = 0

    def wipe(self) -> None:
        self.close()
        self._changelog_offset = None
