"""Rows of a ``count()`` that a cache holds as columns instead of one entry each.

1. A key has a number here, and a run of records takes a few calls in C: keys to numbers, and additions to the columns.
   Nothing is done per record in Python, whatever the order of the timestamps.
2. Rows are totals, not differences: a key that is new here is *adopted*, with its row from the cache's entries, the
   pending writes, or the store. From then on its row is only here.
3. A row's timestamp is the latest of its records, as for an entry. Rows are flushed from the least to the most recently
   changed. Windows of one store share the *positions* that records have, since a record may be in several of them.
4. A cache has rows here only while none of its entries is changed. Code that works on entries asks the cache to settle
   first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from streamsrt.wire.kernels import UnreadItems, add_counts, key_numbers
from streamsrt.wire.later_numpy import np
from streamsrt.wire.records.columns import Times

if TYPE_CHECKING:
    from numpy.typing import NDArray

Row: TypeAlias = tuple[bytes, int, int]
"""Key, count and time."""
Adopt: TypeAlias = Callable[[list[bytes]], Iterable[Row]]
Keys: TypeAlias = Sequence[bytes] | UnreadItems
"""Of records; none is null."""
_Column: TypeAlias = "NDArray[np.int64]"
Positions: TypeAlias = _Column

_LEAST_ROWS: Final = 16


class CountedChanges(NamedTuple):
    """Changed rows as columns. ``positions``: of the records that changed them last; ``olds``: their counts at the flush
    before, 0 for what was no row then."""

    keys: list[bytes]
    totals: list[int]
    times: list[int]
    positions: Positions
    olds: list[int]


class CountedRows:
    """The rows of one window, or of a store without windows.

    ``adopt`` finds the rows of keys that are new here. ``older``: rows that were here and may be adopted again.
    """

    __slots__ = (
        "_adopt",
        "_changed_at",
        "_flushed",
        "_flushed_totals",
        "_keys",
        "_numbers",
        "_taken",
        "_times",
        "_totals",
        "older",
    )

    def __init__(self, adopt: Adopt, older: CountedRows | None = None) -> None:
        self.older = older
        self._adopt = adopt
        self._numbers = key_numbers()
        self._keys: list[bytes] = []
        self._totals: _Column = np.zeros(_LEAST_ROWS, np.int64)
        self._flushed_totals: _Column = np.zeros(_LEAST_ROWS, np.int64)
        self._times: _Column = np.full(_LEAST_ROWS, -1, np.int64)
        self._changed_at: _Column = np.full(_LEAST_ROWS, -1, np.int64)
        """The position of the record that changed a row last."""
        self._taken = 0
        """The next record's position, at least."""
        self._flushed = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def has_changes(self) -> bool:
        """Whether something was counted since the last flush."""
        return self._taken > self._flushed

    def take(self, keys: Keys, timestamps: Times, positions: Positions | int | None = None) -> None:
        """Counts records. ``positions``: theirs, which increase, or that of the first one of records that follow each other;
        without, they are behind all that came before."""
        records = len(keys)
        times = timestamps if isinstance(timestamps, np.ndarray) else np.fromiter(timestamps, np.int64, records)
        numbers = np.empty(records, np.int64)
        known = self._numbers
        new = keys.numbered(known, numbers) if isinstance(keys, UnreadItems) else known.numbers(keys, numbers)
        if new:
            self._add_new(new)
        at = self._taken if positions is None else positions
        add_counts(numbers, times, at, self._totals, self._times, self._changed_at)
        self._taken = at + records if isinstance(at, int) else int(at[-1]) + 1

    def _add_new(self, new: list[bytes]) -> None:
        self._keys += new
        missing = len(self._keys) - len(self._totals)
        if missing > 0:
            missing = max(missing, len(self._totals))
            self._totals = np.append(self._totals, np.zeros(missing, np.int64))
            self._flushed_totals = np.append(self._flushed_totals, np.zeros(missing, np.int64))
            self._times = np.append(self._times, np.full(missing, -1, np.int64))
            self._changed_at = np.append(self._changed_at, np.full(missing, -1, np.int64))
        for key, total, time_ms in self._adopt(new):
            number = self._numbers.get(key)
            self._totals[number] = self._flushed_totals[number] = total
            self._times[number] = time_ms

    def row(self, key: bytes) -> Row | None:
        """The row of a key; None where it is not here."""
        number = self._numbers.get(key)
        return None if number is None else (key, int(self._totals[number]), int(self._times[number]))

    def changes(self) -> Iterator[Row]:
        """The rows that were counted since the last flush."""
        changes = self._changes(self._changed())
        return zip(changes.keys, changes.totals, changes.times, strict=True)

    def take_changes(self) -> CountedChanges:
        """The changed rows, which are flushed with this."""
        changed = self._changed()
        changes = self._changes(changed)
        self._flushed = self._taken
        self._flushed_totals[changed] = self._totals[changed]
        return changes

    def _changed(self) -> NDArray[np.intp]:
        changed = np.flatnonzero(self._changed_at >= self._flushed)
        return changed[np.argsort(self._changed_at[changed])]

    def _changes(self, changed: NDArray[np.intp]) -> CountedChanges:
        keys = list(map(self._keys.__getitem__, changed.tolist()))
        totals, olds, times = (column[changed].tolist() for column in (self._totals, self._flushed_totals, self._times))
        return CountedChanges(keys, totals, times, self._changed_at[changed], olds)
