from __future__ import annotations

import time

import pytest

from streamsrt.runtime.assembly import wall_clock


def test_a_system_clock_that_is_set_back_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = wall_clock()
    before_ms = clock()
    assert abs(before_ms - time.time_ns() // 1_000_000) < 60_000
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_000_000_000)
    times_ms = [clock() for _ in range(100)]
    assert times_ms == sorted(times_ms)
    assert before_ms <= times_ms[0] < before_ms + 60_000
