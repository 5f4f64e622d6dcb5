from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from streamsrt.runtime.steady_clock import CHANGE_MIN_MS, SteadyClock

HOUR_MS = 3_600_000
MS = 1_000_000
BOOT_MS = 1_700_000_000_000


class Machine:
    """Its clocks. ``set_ms``: by how much the one that tells the time was set."""

    def __init__(self) -> None:
        self.steady_ms = 5_000
        self.set_ms = 0
        self.lost: Iterator[int] = repeat(0)
        """How many milliseconds pass whenever the time is read."""

    def steady_ns(self) -> int:
        return self.steady_ms * MS

    def system_ns(self) -> int:
        self.steady_ms += next(self.lost)
        return (BOOT_MS + self.steady_ms + self.set_ms) * MS


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def clock(machine: Machine) -> SteadyClock:
    return SteadyClock(machine.steady_ns, machine.system_ns)


def test_it_begins_with_the_time_of_the_machine() -> None:
    assert abs(SteadyClock()() - time.time_ns() // MS) < 60_000
    assert abs(SteadyClock().ahead_ms()) < 60_000


def test_a_clock_that_is_set_changes_nothing_but_how_far_it_is_ahead(
    machine: Machine, clock: SteadyClock, caplog: pytest.LogCaptureFixture
) -> None:
    for set_ms, said in (
        (HOUR_MS, "forward by 3600.0 s"),
        (-24 * HOUR_MS, "back by 90000.0 s"),
        (0, "forward by 86400.0 s"),
    ):
        machine.set_ms = set_ms
        machine.steady_ms += 10
        assert [clock.ahead_ms(), clock.ahead_ms()] == [set_ms] * 2
        assert clock() == BOOT_MS + machine.steady_ms
        (message,) = caplog.messages
        assert said in message
        caplog.clear()


def test_it_does_not_jitter(machine: Machine, clock: SteadyClock, caplog: pytest.LogCaptureFixture) -> None:
    machine.set_ms = CHANGE_MIN_MS - 1
    assert clock.ahead_ms() == 0
    machine.set_ms = CHANGE_MIN_MS
    assert clock.ahead_ms() == CHANGE_MIN_MS
    assert not caplog.messages, "that is what a clock does that is kept right"


def test_a_thread_that_was_interrupted_between_both_looks_again(machine: Machine, clock: SteadyClock) -> None:
    machine.lost = chain([500], repeat(0))
    machine.set_ms = HOUR_MS
    assert clock.ahead_ms() == 0
    assert clock.ahead_ms() == HOUR_MS
