"""The interface of a state store at the level of bytes.

1. Keys and values are bytes, and keys are ordered bytewise. Serdes, timestamps in values and caches are in other
   modules.
2. One ``write`` is one atomic batch. The changelog offset given with it becomes durable with the data or not at all,
   and batches become durable in the order of their writes: after any crash the store contains exactly what its
   changelog had below some offset, and :meth:`ChangelogStore.changelog_offset` is that offset.
3. Nothing is durable before ``flush`` or ``close``, unless the store chooses to flush. The changelog is the log.
4. An iterator sees the store as of the moment when it was requested. It releases its resources when it is exhausted or
   dropped, or when the store is closed. In a closed store, an iterator that is not at its end raises
   :class:`StoreClosedError` when it has to read on: it never just ends.
5. A closed store raises :class:`StoreClosedError` for everything except ``close``, ``wipe`` and ``is_open``.
6. A store that can't be trusted raises :class:`~streamsrt.errors.StoreCorruptedError`, in a scan as in a lookup. It
   never returns less than it was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from streamsrt.errors import StateError


class StoreClosedError(StateError):
    """The store was closed; get it again from its owner."""

    def __init__(self, name: str) -> None:
        super().__init__(f"state store {name!r} is closed. Its task was closed or moved away: look the store up again.")


class ChangelogStore(Protocol):
    """A store that can be written in batches and restored from a changelog: what every kind of store has in common.

    Keys of ``write`` and ``restore`` are those of the changelog.
    """

    @property
    def name(self) -> str:
        """The store's name in the topology."""

    @property
    def persistent(self) -> bool:
        """Whether the data survives a restart of the process."""

    @property
    def is_open(self) -> bool:
        """False once the store was closed or wiped."""

    def write(self, puts: Iterable[tuple[bytes, bytes | None]], *, changelog_offset: int | None = None) -> None:
        """Writes one atomic batch; a value of None deletes, and of several values for one key the last one counts.

        ``changelog_offset``: the changelog holds all of this below that offset, so a restore starts there. None leaves
        the stored offset as it is. Sorted keys are two to three times as fast as shuffled ones.
        """

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int) -> None:
        """Writes columns of the changelog (None deletes), together with the offset at which restoring continues."""

    def changelog_offset(self) -> int | None:
        """The offset from which the changelog must be applied to this store; None: from its start."""

    def approximate_count(self) -> int:
        """About how many entries there are."""

    def approximate_size_bytes(self) -> int:
        """About how many bytes the entries take, on disk and in write buffers."""

    def flush(self) -> None:
        """Makes everything written so far durable (nothing to do where the store is not persistent)."""

    def close(self) -> None:
        """Flushes, releases every iterator and closes. A second call does nothing."""

    def wipe(self) -> None:
        """Closes the store and deletes all that it has, the changelog offset too. It can't be used any more."""


class BytesStore(ChangelogStore, Protocol):
    """An ordered map of bytes to bytes."""

    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``, or None."""

    def range(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``start <= key < end`` in order of keys, or from the last to the first. None: no bound."""

    def prefix(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose keys begin with ``prefix``, in order of keys."""

    def delete_range(self, start: bytes | None = None, end: bytes | None = None) -> None:
        """Deletes the entries with ``start <= key < end``, atomically. The changelog offset stays."""


def after_prefix(prefix: bytes) -> bytes | None:
    """The least key that is greater than every key with this prefix; None if there is no such key.

    >>> after_prefix(b"ab"), after_prefix(b"a\\xff"), after_prefix(b"\\xff")
    (b'ac', b'b', None)
    """
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        return None
    return trimmed[:-1] + bytes((trimmed[-1] + 1,))
