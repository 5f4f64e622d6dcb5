"""Rows of a ``count()`` that a cache holds as columns instead of an entry each.

1. A key is a number here, given by one dictionary in one call in C for a run of records. The numbers are kept, with the
   records' times, and counted together, which is done in C too: :meth:`CountedRows.fold`. Nothing is done per record in
   Python, whatever the order of the times.
2. It is folded before anybody looks at rows or changes, and when what was taken is much more than there are rows.
3. Rows are what they are in all, not differences: a key that is new here is *adopted* in the fold, with the row that it has
   among the cache's entries, among what waits to be written, or in the store. From then on its row is here alone.
4. A row's time is the latest of its records, as for an entry. Rows are flushed from the least to the most recently changed,
   those of an older window before those of a newer one.
5. A cache has rows here only while none of its entries is changed. Whoever works on entries asks the cache to settle first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Final, TypeAlias

Row: TypeAlias = tuple[bytes, int, int]
"""Key, count and time."""
Adopt: TypeAlias = Callable[[list[bytes]], Iterable[Row]]

TAKEN_MAX: Final = 16384
"""So many records may wait to be folded, and four for each row: some 50 bytes each."""


class CountedRows:
    """The rows of one window, or of a store without windows.

    ``adopt`` finds the rows of keys that are new here. ``older``: rows that were here and may be adopted again.
    """

    __slots__ = ("_adopt", "_changed", "_numbers", "_taken", "_taken_ms", "_times", "_totals", "older")

    def __init__(self, adopt: Adopt, older: CountedRows | None = None) -> None:
        self.older = older
        self._adopt = adopt
        self._numbers: defaultdict[bytes, int] = defaultdict(count().__next__)
        self._totals: list[int] = []
        self._times: list[int] = []
        self._changed: dict[int, None] = {}
        """The rows that were counted since the last flush, the most recently changed one last."""
        self._taken: list[int] = []
        self._taken_ms: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def has_changes(self) -> bool:
        """Whether something was counted since the last flush."""
        return bool(self._taken or self._changed)

    def take(self, keys: Sequence[bytes], timestamps: Sequence[int]) -> None:
        """Counts records."""
        taken = self._taken
        taken += map(self._numbers.__getitem__, keys)
        self._taken_ms += timestamps
        if len(taken) > TAKEN_MAX + 4 * len(self._numbers):
            self.fold()

    def fold(self) -> None:
        """Adds what was taken to the rows."""
        taken, taken_ms = self._taken, self._taken_ms
        if not taken:
            return
        self._adopt_new()
        counted = Counter(reversed(taken))
        order = list(reversed(counted))
        if taken_ms == sorted(taken_ms):
            latest = dict(zip(taken, taken_ms, strict=True))
        else:
            by_time = sorted(range(len(taken)), key=taken_ms.__getitem__)
            latest = dict(zip(map(taken.__getitem__, by_time), map(taken_ms.__getitem__, by_time), strict=True))
        totals, times = self._totals, self._times
        for number in order:
            totals[number] += counted[number]
            time_ms = latest[number]
            if time_ms > times[number]:
                times[number] = time_ms
        changed = self._changed
        if changed:
            for number in order:
                changed.pop(number, None)
        changed.update(dict.fromkeys(order))
        self._taken, self._taken_ms = [], []

    def _adopt_new(self) -> None:
        numbers, known = self._numbers, len(self._totals)
        new = len(numbers) - known
        if new:
            self._totals += [0] * new
            self._times += [-1] * new
            for key, total, time_ms in self._adopt(list(islice(numbers, known, None))):
                number = numbers[key]
                self._totals[number] = total
                self._times[number] = time_ms

    def row(self, key: bytes) -> Row | None:
        """The row of a key; None where it is not here."""
        if key not in self._numbers:
            return None
        self.fold()
        number = self._numbers[key]
        return key, self._totals[number], self._times[number]

    def changes(self) -> Iterator[Row]:
        """The rows that were counted since the last flush."""
        return zip(*self._changes(), strict=True)

    def take_changes(self) -> tuple[list[bytes], list[int], list[int]]:
        """Keys, counts and times of the changed rows, which are flushed with this."""
        columns = self._changes()
        self._changed = {}
        return columns

    def _changes(self) -> tuple[list[bytes], list[int], list[int]]:
        self.fold()
        changed = self._changed
        return (
            list(map(list(self._numbers).__getitem__, changed)),
            list(map(self._totals.__getitem__, changed)),
            list(map(self._times.__getitem__, changed)),
        )
