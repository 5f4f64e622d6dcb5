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


HOUR_MS = 3_600_000


def hourly(start_ms: int, now_ms: int) -> PunctuationSchedule:
    first = anchored(start_ms, HOUR_MS, now_ms)
    return PunctuationSchedule(
        PunctuationType.WALL_CLOCK_TIME, first, HOUR_MS, lambda now: None, "hourly", start_ms=start_ms
    )


@pytest.mark.parametrize("by_ms", [HOUR_MS, -24 * HOUR_MS, 400 * 24 * HOUR_MS, -50])
def test_the_pauses_of_an_interval_stay_when_the_clock_is_set(by_ms: int) -> None:
    queue, began_ms = PunctuationQueue(), 1_000 * 24 * HOUR_MS
    queue.add(schedule("a", began_ms + 1_000, 1_000))
    queue.add(schedule("b", began_ms + 1_500, 1_500))
    assert run(queue, began_ms + 1_500) == ["a", "b"]
    now_ms = began_ms + by_ms
    queue.follow(by_ms, now_ms + 1_600)
    assert [run(queue, now_ms + after) for after in (1_600, 1_999, 2_000, 3_000)] == [[], [], ["a"], ["b", "a"]]
    queue.follow(0, began_ms + 3_100)
    assert [run(queue, began_ms + after) for after in (3_100, 3_999, 4_000)] == [[], [], ["a"]]


@pytest.mark.parametrize(
    ("by_ms", "after_ms"),
    [
        (-50, HOUR_MS + 50 - 10),
        (-HOUR_MS, 2 * HOUR_MS - 10),
        (-2 * HOUR_MS, HOUR_MS - 10),
        (-24 * HOUR_MS - 60_000, 60_000 - 10),
        (30 * 60_000, 30 * 60_000 - 10),
        (HOUR_MS + 60_000, 0),
    ],
    ids=["a moment back", "an hour back", "two hours back", "a day back", "half an hour on", "more than an hour on"],
)
def test_what_runs_on_the_hour_does_so_by_the_new_time(by_ms: int, after_ms: int) -> None:
    queue, nine = PunctuationQueue(), 9 * HOUR_MS + 400 * 24 * HOUR_MS
    queue.add(hourly(nine % HOUR_MS, nine - 1))
    assert run(queue, nine) == ["hourly"]
    now_ms = nine + 10 + by_ms
    queue.follow(by_ms, now_ms)
    if after_ms:
        assert run(queue, now_ms) == run(queue, now_ms + after_ms - 1) == []
    assert run(queue, now_ms + after_ms) == ["hourly"]
    assert run(queue, now_ms + after_ms) == []
    assert queue.waiting[0].next_ms % HOUR_MS == 0
    assert 0 < queue.waiting[0].next_ms - now_ms - after_ms <= HOUR_MS


def test_a_start_that_is_to_come_is_waited_for() -> None:
    queue, first_ms = PunctuationQueue(), 50 * HOUR_MS
    queue.add(hourly(first_ms, 10 * HOUR_MS))
    queue.follow(-HOUR_MS, 9 * HOUR_MS)
    assert queue.waiting[0].next_ms == first_ms
    queue.follow(45 * HOUR_MS, 55 * HOUR_MS)
    assert run(queue, 55 * HOUR_MS) == ["hourly"]


def test_what_was_scheduled_by_the_new_time_stays() -> None:
    queue = PunctuationQueue()
    queue.add(
        PunctuationSchedule(PunctuationType.WALL_CLOCK_TIME, HOUR_MS, 10, lambda now: None, "new", ahead_ms=-HOUR_MS)
    )
    queue.add(schedule("old", 2 * HOUR_MS + 20, 10))
    queue.follow(-HOUR_MS, HOUR_MS)
    assert [each.next_ms for each in queue.waiting] == [HOUR_MS, HOUR_MS + 20]
    assert run(queue, HOUR_MS) == ["new"]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.booleans()), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 200), st.integers(-500, 500)), max_size=8),
)
def test_none_runs_twice_at_a_time_or_stops_however_the_clock_is_set(
    made: list[tuple[int, bool]], jumps: list[tuple[int, int]]
) -> None:
    steady_ms, ahead_ms = 100_000, 0
    queue = PunctuationQueue()
    for number, (interval_ms, is_anchored) in enumerate(made):
        start_ms = 7 if is_anchored else None
        first = anchored(7, interval_ms, steady_ms) if is_anchored else steady_ms + interval_ms
        queue.add(
            PunctuationSchedule(
                PunctuationType.WALL_CLOCK_TIME, first, interval_ms, lambda _: None, str(number), start_ms=start_ms
            )
        )
    for passes_ms, by_ms in jumps:
        ahead_ms += by_ms
        for _ in range(passes_ms + 1):
            now_ms = steady_ms + ahead_ms
            queue.follow(ahead_ms, now_ms)
            ran = run(queue, now_ms)
            assert len(ran) == len(set(ran))
            for each in queue.waiting:
                waits = 2 if each.start_ms is not None else 1
                assert 0 < each.next_ms - now_ms <= waits * each.interval_ms
            steady_ms += 1


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
