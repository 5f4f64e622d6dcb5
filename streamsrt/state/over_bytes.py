"""Base class of stores that wrap a byte store: name, size, flush and close are delegated."""

from __future__ import annotations

from streamsrt.state.store import BytesStore


class OverBytes:
    """A store that wraps ``store`` and owns it. Subclasses define the format of keys and values."""

    def __init__(self, store: BytesStore) -> None:
        self._store = store

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def below(self) -> BytesStore:
        """The store of bytes that it lies over."""
        return self._store

    @property
    def persistent(self) -> bool:
        return self._store.persistent

    @property
    def is_open(self) -> bool:
        return self._store.is_open

    def changelog_offset(self) -> int | None:
        return self._store.changelog_offset()

    def approximate_count(self) -> int:
        return self._store.approximate_count()

    def approximate_size_bytes(self) -> int:
        return self._store.approximate_size_bytes()

    def flush(self) -> None:
        self._store.flush()

    def close(self) -> None:
        self._store.close()

    def wipe(self) -> None:
        self._store.wipe()
