"""When punctuations are due, in the order of Kafka Streams.

Schedules that are due at the same time run in the order of a binary heap, which is not that of scheduling. Programs can see
that order, so the heap is that of ``java.util.PriorityQueue``, step for step (:mod:`heapq` sifts differently).
"""

from __future__ import annotations

from collections.abc import Callable

from streamsrt.errors import UserError
from streamsrt.state.snapshots import Values, in_parts
from topology.spec.processor import PunctuationType

MADE_LATER = -1
"""In place of the number of a schedule that was not made at the beginning: what it calls can't be found again."""
_WAITS_MAX = 2
"""How many intervals a schedule with a start waits at most when the clock is set back."""
_VALUES = 5
"""Values of one schedule."""


class PunctuationSchedule:
    """A punctuation: its next time stays on the grid of its interval. Times are milliseconds."""

    __slots__ = ("ahead_ms", "callback", "cancelled", "interval_ms", "next_ms", "node", "number", "start_ms", "type")

    def __init__(
        self,
        type_: PunctuationType,
        next_ms: int,
        interval_ms: int,
        callback: Callable[[int], None],
        node: str,
        *,
        start_ms: int | None = None,
        ahead_ms: int = 0,
    ) -> None:
        """``start_ms``: the time that was asked for as the first one. ``ahead_ms``: how far the program's clock is ahead of
        the steady one, as far as ``next_ms`` knows."""
        self.start_ms = start_ms
        self.ahead_ms = ahead_ms
        self.type = type_
        self.next_ms = next_ms
        self.interval_ms = interval_ms
        self.callback = callback
        self.node = node
        self.cancelled = False
        self.number: int | None = None
        """Which one of its queue it is, in the order of scheduling."""

    def cancel(self) -> None:
        self.cancelled = True

    def advance(self, now_ms: int) -> None:
        """Moves on to the first time of the grid after ``now_ms``."""
        self.next_ms += ((now_ms - self.next_ms) // self.interval_ms + 1) * self.interval_ms

    def follow(self, ahead_ms: int, now_ms: int) -> None:
        """The program's clock was set: it shows ``now_ms``, and is that far ahead of the steady one.

        The pauses of a plain interval stay as long as they are. A schedule with a start goes by the new time, but what has
        run does not run again: it waits for the next time that it has not had. That may be far away where the clock was set
        back; then it begins anew.
        """
        by_ms, self.ahead_ms = ahead_ms - self.ahead_ms, ahead_ms
        if self.start_ms is None:
            self.next_ms += by_ms
        elif self.next_ms - now_ms > _WAITS_MAX * self.interval_ms:
            self.next_ms = anchored(self.start_ms, self.interval_ms, now_ms)


def anchored(start_ms: int, interval_ms: int, now_ms: int) -> int:
    """When a punctuation is due first that is to run at ``start_ms`` and every ``interval_ms`` from there.

    A start that is over counts on to the first such time after ``now_ms``. Source: KIP-1146.
    """
    return start_ms if start_ms >= now_ms else start_ms + ((now_ms - start_ms) // interval_ms + 1) * interval_ms


def scheduled_later(snapshot: Values) -> set[str]:
    """The nodes of schedules that still run and were made after the beginning, in the snapshot of a queue."""
    parts = in_parts(snapshot, _VALUES)
    return {str(node) for number, node, _, _, cancelled in parts if number == MADE_LATER and not cancelled}


class PunctuationQueue:
    """Schedules of one kind of time."""

    def __init__(self) -> None:
        self.waiting: list[PunctuationSchedule] = []
        """A heap; always the same list."""
        self._made = 0
        self._made_at_the_beginning = 0
        self._ahead_ms = 0

    def __len__(self) -> int:
        return len(self.waiting)

    def begun(self) -> None:
        """The user's processors have begun: what comes now is scheduled by what they do later."""
        self._made_at_the_beginning = self._made

    def follow(self, ahead_ms: int, now_ms: int) -> None:
        """Has its schedules follow the program's clock, where that was set (:meth:`PunctuationSchedule.follow`)."""
        if ahead_ms == self._ahead_ms:
            return
        self._ahead_ms = ahead_ms
        before, self.waiting[:] = list(self.waiting), []
        for schedule in before:
            if schedule.ahead_ms != ahead_ms:
                schedule.follow(ahead_ms, now_ms)
            self.add(schedule)

    def snapshot(self) -> Values:
        """Each schedule in the order of the heap: its number, node, interval, next time, and whether it is cancelled."""
        found: Values = []
        for each in self.waiting:
            assert each.number is not None
            number = each.number if each.number < self._made_at_the_beginning else MADE_LATER
            found += [number, each.node, each.interval_ms, each.next_ms, each.cancelled]
        return found

    def resume_from(self, values: Values) -> None:
        """Takes over the times of the same schedules. Raises UserError where others were made."""
        made = {schedule.number: schedule for schedule in self.waiting}
        heap: list[PunctuationSchedule] = []
        for number, node, interval_ms, next_ms, cancelled in in_parts(values, _VALUES):
            schedule = made.get(int(number))
            if cancelled:
                schedule = PunctuationSchedule(
                    PunctuationType.STREAM_TIME, 0, int(interval_ms), lambda _now_ms: None, str(node)
                )
                schedule.number, schedule.cancelled = int(number), True
            elif schedule is None or (schedule.node, schedule.interval_ms) != (node, interval_ms):
                raise UserError(
                    f"{node} does not schedule the same punctuations in init() as before, so they can't be resumed. "
                    "Schedule the same ones each time, or process the whole input again"
                )
            schedule.next_ms = int(next_ms)
            heap.append(schedule)
        self.waiting[:] = heap

    def add(self, schedule: PunctuationSchedule) -> None:
        if schedule.number is None:
            schedule.number = self._made
            self._made += 1
        heap = self.waiting
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
        heap = self.waiting
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
        """Calls ``punctuate`` for each schedule that is due at ``now_ms``, once. Returns how many ran."""
        ran = 0
        while self.waiting and self.waiting[0].next_ms <= now_ms:
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
