"""Rows of a ``count()`` that a cache holds as two dictionaries instead of an entry each.

1. A run of keys is counted by one call in C, and so is what their latest times are where time goes forward. Nothing is done
   per record in Python.
2. ``totals`` are rows as they are now, not differences: a key that is new here is adopted, with the row that it has in the
   cache's entries, among what waits to be written, or in the store. From then on its row is here and not among the entries.
3. ``changed`` are the keys counted since the last flush, with their rows' times. They are flushed by time, least recent
   first, and keys of the same time by their first change. Where time goes forward that is the order of the last changes.
4. A row's time is the latest of its records, as for an entry.
5. A cache has rows here only while none of its entries is changed. Whoever works on entries asks the cache to settle first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import TypeAlias

Row: TypeAlias = tuple[bytes, int, int]
"""Key, count and time."""
Adopt: TypeAlias = Callable[[list[bytes]], Iterable[Row]]


class CountedRows:
    """The rows of one window, or of a store without windows. ``older``: rows that were here and may be adopted again."""

    __slots__ = ("_latest_ms", "changed", "older", "times", "totals")

    def __init__(self, older: CountedRows | None = None) -> None:
        self.older = older
        if older is not None:
            older.older = None
        self.totals: Counter[bytes] = Counter()
        self.times: dict[bytes, int] = {}
        """Of rows that were flushed or adopted. Those of changed rows count."""
        self.changed: dict[bytes, int] = {}
        self._latest_ms = -1

    def __len__(self) -> int:
        return len(self.totals)

    def count(self, keys: Sequence[bytes], timestamps: Sequence[int], adopt: Adopt | None) -> None:
        """Counts records. ``adopt`` finds the rows of keys that are new here; None: they have none."""
        totals = self.totals
        known = len(totals)
        totals.update(keys)
        if adopt is not None and len(totals) > known:
            for key, count, time_ms in adopt(list(islice(reversed(totals), len(totals) - known))):
                totals[key] += count
                self.times[key] = time_ms
                if time_ms > self._latest_ms:
                    self._latest_ms = time_ms
        if timestamps[0] >= self._latest_ms and timestamps == sorted(timestamps):
            self.changed.update(zip(keys, timestamps, strict=True))
            self._latest_ms = timestamps[-1]
        else:
            self._note_times(keys, timestamps)

    def _note_times(self, keys: Sequence[bytes], timestamps: Sequence[int]) -> None:
        changed, times = self.changed, self.times
        for key, time_ms in zip(keys, timestamps, strict=True):
            before_ms = changed.get(key)
            if before_ms is None:
                before_ms = times.get(key, -1)
            changed[key] = max(before_ms, time_ms)
        self._latest_ms = max(self._latest_ms, *timestamps)

    def row(self, key: bytes) -> Row | None:
        """The row of a key; None where it is not here."""
        if key not in self.totals:
            return None
        return key, self.totals[key], self.changed[key] if key in self.changed else self.times[key]

    def changes(self) -> Iterator[Row]:
        """The rows that were counted since the last flush."""
        return ((key, self.totals[key], time_ms) for key, time_ms in self.changed.items())

    def take_changes(self) -> tuple[Sequence[bytes], Sequence[int], Sequence[int]]:
        """Keys, counts and times of the changed rows, which are flushed with this."""
        changed, self.changed = self.changed, {}
        self.times.update(changed)
        keys: Sequence[bytes] = list(changed)
        times: Sequence[int] = list(changed.values())
        if len(keys) > 1 and times != sorted(times):
            # Small integers are sorted three times as fast as those of today's times.
            base_ms = min(times)
            since_ms = [time_ms - base_ms for time_ms in times]
            pick = itemgetter(*sorted(range(len(keys)), key=since_ms.__getitem__))
            keys, times = pick(keys), pick(times)
        return keys, list(map(self.totals.__getitem__, keys)), times
