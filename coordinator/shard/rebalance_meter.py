"""Measures how often groups rebalance: a rebalance is a rise of a group's epoch."""

from __future__ import annotations

from collections import deque

WINDOW_MS = 60_000


class RebalanceMeter:
    """Rebalances since the start, and per second of the last minute."""

    def __init__(self) -> None:
        self.count = 0
        self._times_ms: deque[int] = deque()

    def note(self, now_ms: int) -> None:
        """Counts one rebalance."""
        self.count += 1
        self._times_ms.append(now_ms)
        self._forget(now_ms)

    def per_second(self, now_ms: int) -> float:
        """Returns the rate of the last minute."""
        self._forget(now_ms)
        return len(self._times_ms) * 1000 / WINDOW_MS

    def _forget(self, now_ms: int) -> None:
        while self._times_ms and self._times_ms[0] <= now_ms - WINDOW_MS:
            self._times_ms.popleft()
