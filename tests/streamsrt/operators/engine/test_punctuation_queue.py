from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.errors import UserError
from streamsrt.operators.engine.punctuation_queue import PunctuationQueue, PunctuationSchedule, anchored
from topology import PunctuationType


def schedule(name: str, next_ms: int, interval_ms: int) -> PunctuationSchedule:
    return PunctuationSchedule(PunctuationType.STREAM_TIME, next_ms, interval_ms, lambda now: None, name)


def run(queue: PunctuationQueue, now_ms: int) -> list[str]:
    ran: list[str] = []
    queue.run_due(now_ms, lambda schedule: ran.append(schedule.node))
    return ran


def test_the_next_time_stays_on_the_grid_and_a_jump_runs_once() -> None:
    queue = PunctuationQueue()
    queue.add(schedule("a", 0, 1000))
    assert [run(queue, now) for now in (1, 999, 1000, 7300, 7999, 8000)] == [["a"], [], ["a"], ["a"], [], ["a"]]


def test_schedules_due_at_once_run_in_the_order_of_javas_heap() -> None:
    queue = PunctuationQueue()
    for name, interval in (("a", 1000), ("b", 1000), ("c", 700)):
        queue.add(schedule(name, 0, interval))
    assert [run(queue, now) for now in (1655, 2976, 3224)] == [["a", "c", "b"], ["a", "b", "c"], ["b", "a"]]


def test_a_cancelled_schedule_does_not_run_again() -> None:
    queue = PunctuationQueue()
    once = schedule("once", 0, 10)
    queue.add(once)
    queue.run_due(5, lambda schedule: schedule.cancel())
    assert run(queue, 100) == []
    assert len(queue) == 0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=12), st.integers(0, 100))
def test_all_that_is_due_runs_by_time(schedules: list[tuple[int, int]], now_ms: int) -> None:
    queue = PunctuationQueue()
    for index, (next_ms, interval_ms) in enumerate(schedules):
        queue.add(schedule(str(index), next_ms, interval_ms))
    due = [schedules[int(name)][0] for name in run(queue, now_ms)]
    assert due == sorted(next_ms for next_ms, _ in schedules if next_ms <= now_ms)
    assert run(queue, now_ms) == []


@given(st.integers(0, 1000), st.integers(1, 50), st.integers(-1, 1000))
def test_an_anchored_schedule_begins_on_its_grid(start_ms: int, interval_ms: int, now_ms: int) -> None:
    first = anchored(start_ms, interval_ms, now_ms)
    assert (first - start_ms) % interval_ms == 0
    assert first == start_ms if start_ms >= now_ms else now_ms < first <= now_ms + interval_ms


def test_other_schedules_than_before_are_refused() -> None:
    before = PunctuationQueue()
    before.add(PunctuationSchedule(PunctuationType.STREAM_TIME, 7, 10, lambda _: None, "tick"))
    before.begun()
    for interval_ms, node in ((20, "tick"), (10, "tock")):
        other = PunctuationQueue()
        other.add(PunctuationSchedule(PunctuationType.STREAM_TIME, 0, interval_ms, lambda _: None, node))
        with pytest.raises(UserError, match=r"tick does not schedule the same punctuations in init\(\)"):
            other.resume_from(before.snapshot())
    same = PunctuationQueue()
    same.add(PunctuationSchedule(PunctuationType.STREAM_TIME, 0, 10, lambda _: None, "tick"))
    same.begun()
    same.resume_from(before.snapshot())
    assert same.snapshot() == before.snapshot()
