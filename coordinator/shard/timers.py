"""Deadlines by key. Setting one again is a dictionary write: the heap catches up when the old deadline is reached.

Deadlines are by the machine's clock. When it is set, all of them move with it (:meth:`Timers.move`): what lasts ten seconds
lasts ten seconds whatever the clock shows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from coordinator.machine.values import CancelTimer, Timer, TimerChange, TimerKey

RETRY_MS = 1_000
RETRY_MAX_MS = 300_000


class Timers:
    """The timers of one shard, in virtual time: the caller requests the due ones."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []
        self._queued: dict[TimerKey, int] = {}
        self._postponed: dict[TimerKey, int] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: TimerKey, deadline_ms: int) -> None:
        """Sets or moves a timer."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queued[key] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, key))

    def cancel(self, key: TimerKey) -> None:
        self._deadlines.pop(key, None)
        self._postponed.pop(key, None)

    def postpone(self, key: TimerKey, now_ms: int) -> int:
        """Sets a timer that expired in vain, each time in a row twice as far; returns by how much."""
        delay_ms = min(self._postponed.get(key, RETRY_MS // 2) * 2, RETRY_MAX_MS)
        self._postponed[key] = delay_ms
        self.set(key, now_ms + delay_ms)
        return delay_ms

    def succeeded(self, key: TimerKey) -> None:
        """The timer expired, and was handled."""
        self._postponed.pop(key, None)

    def move(self, by_ms: int) -> None:
        """Moves all deadlines: the clock was set forward by so much; negative: back."""
        self._deadlines = {key: deadline_ms + by_ms for key, deadline_ms in self._deadlines.items()}
        self._queued = dict(self._deadlines)
        self._heap = [(deadline_ms, key) for key, deadline_ms in self._deadlines.items()]
        heapq.heapify(self._heap)

    def carry_out(self, changes: Iterable[TimerChange]) -> None:
        """Applies a decision's changes of timers."""
        for change in changes:
            match change:
                case Timer(key, deadline_ms):
                    self.set(key, deadline_ms)
                case CancelTimer(key):
                    self.cancel(key)

    def has_earlier(self, known_ms: int | None) -> bool:
        """Whether a timer may be due before ``known_ms``, the last result of :meth:`next_deadline_ms`."""
        return bool(self._heap) and (known_ms is None or self._heap[0][0] < known_ms)

    def next_deadline_ms(self) -> int | None:
        """Returns when the next timer expires; None without timers."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> TimerKey | None:
        """Removes and returns the timer with the earliest deadline, if it is due."""
        self._settle()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, key = heapq.heappop(self._heap)
        del self._queued[key]
        del self._deadlines[key]
        return key

    def as_dict(self) -> dict[TimerKey, int]:
        return dict(self._deadlines)

    def _settle(self) -> None:
        """Brings the entry at the top up to date: drops cancelled timers and moves postponed ones back."""
        while self._heap:
            deadline_ms, key = self._heap[0]
            if self._queued.get(key) != deadline_ms:
                heapq.heappop(self._heap)
                continue
            wanted = self._deadlines.get(key)
            if wanted == deadline_ms:
                return
            heapq.heappop(self._heap)
            del self._queued[key]
            if wanted is not None:
                self._queued[key] = wanted
                heapq.heappush(self._heap, (wanted, key))
