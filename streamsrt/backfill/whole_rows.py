"""The rows of a byte store without damaged ones, which the layout of a kind of store can't take apart."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol


class StoredBytes(Protocol):
    """The part of a byte store that is read: files on disk have it, too."""

    def get(self, key: bytes, /) -> bytes | None: ...

    def range(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...


class WholeRows:
    """A byte store to read from, over ``store``. ``is_whole``: whether the key and the value of a row are not damaged;
    ``own_keys``: what the store keeps for itself. ``on_damaged`` is told the keys of damaged rows that are passed over."""

    persistent = True

    def __init__(
        self,
        store: StoredBytes,
        name: str,
        is_whole: Callable[[bytes, bytes], bool],
        own_keys: Collection[bytes],
    ) -> None:
        self.name = name
        self._store = store
        self._is_whole = is_whole
        self._own_keys = own_keys
        self.on_damaged: Callable[[bytes], None] | None = None

    def get(self, key: bytes, /) -> bytes | None:
        return self._store.get(key)

    def range(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for key, row in self._store.range(start, end, reverse=reverse):
            if key in self._own_keys or self._is_whole(key, row):
                yield key, row
            elif self.on_damaged is not None:
                self.on_damaged(key)
