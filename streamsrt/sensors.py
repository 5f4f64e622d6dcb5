"""Statistics of measurements: their number, their sum, and recent rates, means and maxima.

1. Nothing here has a clock: the caller passes the time. Units are the caller's, including that of time.
2. Recent means the last 30 to 60 seconds: there are two windows, of which the older one is dropped.
3. One thread adds, and another may read at any time: each number is consistent, but two of them may be from different
   moments.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf, nan
from typing import Final, NamedTuple

WINDOW_MS: Final = 30_000
WINDOW_NS: Final = 30_000_000_000


class SensorReading(NamedTuple):
    """Statistics of recent numbers; NaN if there were none, as in Kafka's metrics."""

    mean: float
    low: float
    high: float


NOTHING: Final = SensorReading(nan, nan, nan)


class Spread:
    """Numbers that were measured. ``window``: half a minute in the caller's unit of time."""

    __slots__ = ("_began", "_high", "_high_before", "_low", "_low_before", "_marks", "_window", "count", "total")

    def __init__(self, window: int = WINDOW_MS) -> None:
        self._window = window
        self.count = 0
        """How many there were since the start."""
        self.total: float = 0
        """Their sum since the start."""
        self._began = 0
        # Counts and sums at the start of the window, and of the one before.
        self._marks: tuple[int, float, int, float] = (0, 0, 0, 0)
        self._low = self._low_before = inf
        self._high = self._high_before = -inf

    def add(self, now: int, count: int, total: float, low: float, high: float) -> None:
        """So many numbers with that sum, of which the least and the greatest are these."""
        if now - self._began > self._window:
            self._rotate(now)
        self.count += count
        self.total += total
        if low < self._low:
            self._low = low
        if high > self._high:
            self._high = high

    def one(self, now: int, value: float) -> None:
        """One number."""
        self.add(now, 1, value, value, value)

    def _rotate(self, now: int) -> None:
        is_next = now - self._began <= 2 * self._window
        first, first_total = self._marks[:2] if is_next else (self.count, self.total)
        self._marks = (self.count, self.total, first, first_total)
        self._low_before, self._high_before = (self._low, self._high) if is_next else (inf, -inf)
        self._low, self._high = inf, -inf
        self._began = now

    def read(self, now: int) -> SensorReading:
        """What they were like lately."""
        if now - self._began > self._window:
            self._rotate(now)
        _, _, count, total = self._marks
        count, total = self.count - count, self.total - total
        if not count:
            return NOTHING
        return SensorReading(total / count, min(self._low, self._low_before), max(self._high, self._high_before))


class Work:
    """One kind of work: how often, how long, and how much of it was done. Times in nanoseconds."""

    __slots__ = ("_before", "_now", "_window_began_ns", "count", "items", "time_ns")

    def __init__(self) -> None:
        self.count = 0
        self.items = 0
        self.time_ns = 0
        self._window_began_ns = 0
        self._now = (0, 0)
        self._before = (0, 0)

    def add(self, began_ns: int, ended_ns: int, items: int) -> None:
        """It was done once, for so many records."""
        took_ns = ended_ns - began_ns
        self.count += 1
        self.items += items
        self.time_ns += took_ns
        now = self._now
        if ended_ns - self._window_began_ns > WINDOW_NS:
            self._window_began_ns, self._before, self._now = ended_ns, now, (took_ns, items)
        elif took_ns > now[0] or items > now[1]:
            self._now = (max(now[0], took_ns), max(now[1], items))

    @property
    def longest_ns(self) -> int:
        """The longest one of the last half minute to minute."""
        return max(self._now[0], self._before[0])

    @property
    def most_items(self) -> int:
        """How much was done at most at once, in the last half minute to minute."""
        return max(self._now[1], self._before[1])


class Rates:
    """How quickly totals grow, per second, between those who ask: over half a minute at least, once there was that much.

    ``started_ns``: when all totals were 0. Who asks says what it is that grows. Safe where several threads ask: what may
    come of that is a rate over a shorter time.
    """

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self._known: dict[Hashable, tuple[int, float, int, float]] = {}

    def of(self, what: Hashable, total: float, now_ns: int) -> float:
        """The increase per second. A total that is smaller than before was reset."""
        began_ns, before, next_ns, later = self._known.get(what, (self._started_ns, 0.0, self._started_ns, 0.0))
        if total < later:
            began_ns, before, next_ns, later = next_ns, 0.0, now_ns, total
        elif now_ns - next_ns >= WINDOW_NS:
            began_ns, before, next_ns, later = next_ns, later, now_ns, total
        self._known[what] = (began_ns, before, next_ns, later)
        return (total - before) * 1e9 / max(1, now_ns - began_ns)

    def forget(self, unless: set[Hashable]) -> None:
        """Drops what is gone: all but these."""
        for what in [known for known in self._known if known not in unless]:
            self._known.pop(what, None)
