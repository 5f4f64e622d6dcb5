"""How long an end waits for asynchronous calls, and what it says of them."""

from __future__ import annotations

import pytest

from streamsrt.runtime.loop.last_calls import CALLS_TIMEOUT_MS, LOG_INTERVAL_MS, MEASURED_MS, LastCalls
from streamsrt.tasks.error_policy import CallsGivenUpError


class Clock:
    """Stands still until the test moves it."""

    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def watch(calls: LastCalls, queued: int) -> None:
    calls.watch("t_0", queued, [f"{queued + 10} calls of f"])


def test_a_run_that_ends_by_itself_waits_as_long_as_it_takes(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    calls = LastCalls(clock)
    for _ in range(100):
        watch(calls, 10_000)
        clock.now_ms += LOG_INTERVAL_MS
    assert len(caplog.messages) == 100
    assert caplog.messages[-1].startswith("before it ends, task t_0 waits for 10010 calls of f. A second Ctrl-C")


def test_calls_that_run_have_their_time(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    calls = LastCalls(clock)
    calls.limit()
    clock.now_ms += CALLS_TIMEOUT_MS - 1
    calls.limit()
    watch(calls, 0)
    assert "After another 1 s at most it ends without them" in caplog.messages[0]
    clock.now_ms += 1
    with pytest.raises(CallsGivenUpError, match=r"^task t_0 ends without a last commit: .* for 10 calls of f$"):
        watch(calls, 0)


def test_calls_that_are_too_many_are_given_up_when_that_shows() -> None:
    clock = Clock()
    calls = LastCalls(clock)
    calls.limit()
    for queued in range(1_000, 1_000 - MEASURED_MS // 500, -1):
        watch(calls, queued)
        clock.now_ms += 500
    with pytest.raises(CallsGivenUpError, match=r"1006 calls of f, which would take about 498 s more"):
        watch(calls, 996)
    with pytest.raises(CallsGivenUpError, match="t_1"):
        calls.watch("t_1", 0, ["1 call"])


def test_calls_that_will_be_done_in_time_are_waited_for() -> None:
    clock = Clock()
    calls = LastCalls(clock)
    calls.limit()
    for queued in range(1_000, 0, -50):
        watch(calls, queued)
        clock.now_ms += 500


def test_a_pace_is_that_of_one_task_with_the_same_calls() -> None:
    clock = Clock()
    calls = LastCalls(clock)
    calls.limit()
    watch(calls, 100)
    clock.now_ms += MEASURED_MS
    # What its caches forward brings more of them.
    watch(calls, 500)
    watch(calls, 499)
    clock.now_ms += MEASURED_MS - 1
    calls.watch("t_1", 450, ["calls"])
