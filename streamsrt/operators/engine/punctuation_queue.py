"""When punctuations are due, in the order of Kafka Streams.

Schedules that are due at the same time run in the order of a binary heap, which is not that of scheduling. Programs can see
that order, so the heap is that of ``java.util.PriorityQueue``, step for step (:mod:`heapq` sifts differently).
"""

from __future__ import annotations

from collections.abc import Callable

from topology.spec.processor import PunctuationType


class PunctuationSchedule:
    """A punctuation: its next time stays on the grid of its interval. Times are milliseconds."""

    __slots__ = ("callback", "cancelled", "interval_ms", "next_ms", "node", "type")

    def __init__(
        self, type_: PunctuationType, next_ms: int, interval_ms: int, callback: Callable[[int], None], node: str
    ) -> None:
        self.type = type_
        self.next_ms = next_ms
        self.interval_ms = interval_ms
        self.callback = callback
        self.node = node
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def advance(self, now_ms: int) -> None:
        """Moves on to the first time of the grid after ``now_ms``."""
        self.next_ms += ((now_ms - self.next_ms) // self.interval_ms + 1) * self.interval_ms


def anchored(start_ms: int, interval_ms: int, now_ms: int) -> int:
    """When a punctuation is due first that is to run at ``start_ms`` and every ``interval_ms`` from there.

    A start that is over counts on to the first such time after ``now_ms``. Source: KIP-1146.
    """
    return start_ms if start_ms >= now_ms else start_ms + ((now_ms - start_ms) // interval_ms + 1) * interval_ms


class PunctuationQueue:
    """Schedules of one kind of time."""

    def __init__(self) -> None:
        self._heap: list[PunctuationSchedule] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, schedule: PunctuationSchedule) -> None:
        heap = self._heap
        heap.append(schedule)
        index = len(heap) - 1
        while index > 0:
            parent = (index - 1) // 2
            if schedule.next_ms >= heap[parent].next_ms:
                break
            heap[index] = heap[parent]
            index = parent
        heap[index] = schedule

    def _poll(self) -> PunctuationSchedule:
        heap = self._heap
        first, last = heap[0], heap.pop()
        size = len(heap)
        if not size:
            return first
        index = 0
        while index < size // 2:
            child = 2 * index + 1
            if child + 1 < size and heap[child].next_ms > heap[child + 1].next_ms:
                child += 1
            if last.next_ms <= heap[child].next_ms:
                break
            heap[index] = heap[child]
            index = child
        heap[index] = last
        return first

    def run_due(self, now_ms: int, punctuate: Callable[[PunctuationSchedule], None]) -> int:
        """Calls ``punctuate`` for what is due at ``now_ms``, each schedule once. Returns how many ran."""
        ran = 0
        while self._heap and self._heap[0].next_ms <= now_ms:
            schedule = self._poll()
            if schedule.cancelled:
                continue
            try:
                punctuate(schedule)
            finally:
                if not schedule.cancelled:
                    schedule.advance(now_ms)
                    self.add(schedule)
            ran += 1
        return ran
