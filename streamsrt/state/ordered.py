"""A key-value store that keeps its rows in the order of its key serde (:class:`~topology.spec.codecs.OrderedKeys`).

1. In the store, the bytes that order a key come before the key's bytes; the changelog only has the bytes of the key.
   Reading the first rows in that order reads only these rows, however many there are, and needs no index in memory.
2. The ordering bytes depend only on the key's bytes.
3. Ranges of keys are ordered by the bytes of the keys, as in every store. They read all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from typing import cast

from streamsrt.state.access import KeyValueAccess
from streamsrt.state.cache import KeyValueCache, RowFormat
from streamsrt.state.over_bytes import OverBytes
from streamsrt.state.store import BytesStore
from topology.spec.codecs import ORDER_BYTES

Order = Callable[[bytes], bytes]


class OrderedBytesStore(OverBytes):
    """A :class:`~streamsrt.state.store.BytesStore` over ``store``, which it owns. ``order``: of a key's bytes."""

    def __init__(self, store: BytesStore, order: Order) -> None:
        super().__init__(store)
        self._order = order

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(self._order(key) + key)

    def write(self, puts: Iterable[tuple[bytes, bytes | None]], *, changelog_offset: int | None = None) -> None:
        order = self._order
        rows = sorted((order(key) + key, value) for key, value in dict(puts).items())
        self._store.write(rows, changelog_offset=changelog_offset)

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int) -> None:
        order = self._order
        self._store.restore([order(key) + key for key in keys], values, next_offset)

    def range(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        rows = (
            (key, value)
            for key, value in ((stored[ORDER_BYTES:], value) for stored, value in self._store.range())
            if (start is None or start <= key) and (end is None or key < end)
        )
        return iter(sorted(rows, reverse=reverse))

    def prefix(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter([row for row in self.range() if row[0].startswith(prefix)])

    def in_order(self, start: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        """Keys from ``start`` on, each behind what orders it."""
        return (stored for stored, _ in self._store.range(start, reverse=reverse))

    def delete_range(self, start: bytes | None = None, end: bytes | None = None) -> None:
        self.write([(key, None) for key, _ in self.range(start, end)])


class OrderedCache(KeyValueCache):
    """The cache of such a store."""

    def __init__(self, name: str, store: OrderedBytesStore, row_format: RowFormat, order: Order) -> None:
        super().__init__(name, store, row_format)
        self._order = order

    def in_order(self, start: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        """Keys from ``start`` on, each behind what orders it; those of changed rows, too, be they deleted or not."""
        order = self._order
        keys = {entry.key for entry in self.changes()}.union(self.pending)
        changed = sorted((each for key in keys if (each := order(key) + key) >= start), reverse=reverse)
        before = None
        for each in merge(
            changed, cast(OrderedBytesStore, self.store).in_order(start, reverse=reverse), reverse=reverse
        ):
            if each != before:
                yield each
            before = each


class OrderedAccess(KeyValueAccess):
    """Such a store as user code sees it."""

    _cache: OrderedCache

    def in_order(self, start: bytes = b"", *, reverse: bool = False) -> Iterator[tuple[bytes, object]]:
        """Keys in the order of the store, from ``start`` on: as they are stored, behind what orders them, and as objects.

        A row that was deleted since the last commit may be among them.
        """
        deserialize = self._serde.deserialize
        for stored in self._cache.in_order(start, reverse=reverse):
            yield stored, deserialize(stored[ORDER_BYTES:])
