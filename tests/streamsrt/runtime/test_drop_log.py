"""Dropped records in the log: by task and reason, with the count, and not one line each."""

from __future__ import annotations

import pytest

from streamsrt.membership.values import Tasks
from streamsrt.runtime.drop_log import INTERVAL_MS, DropLog
from tests.streamsrt.rig import Rig, number


def test_a_reason_is_told_at_most_once_an_interval_with_the_count() -> None:
    log = DropLog()

    def lines(late: int, null: int, now_ms: int) -> list[str]:
        return log.lines([("a_0", "in-0", {"dropped_late": late, "dropped_null": null})], now_ms)

    late = "they came after their window had closed, or after a newer one of the same key"
    assert lines(0, 0, 0) == []
    assert lines(3, 0, 100) == [f"task a_0: 3 records of in-0 were dropped: {late}"]
    assert lines(9, 0, INTERVAL_MS) == []
    assert lines(9, 4, INTERVAL_MS + 1) == ["task a_0: 4 records of in-0 were dropped: of a null key or value"]
    assert lines(10, 4, INTERVAL_MS + 100) == [f"task a_0: 7 records of in-0 were dropped: {late}"]
    assert lines(10, 4, 9 * INTERVAL_MS) == []


def test_a_task_that_is_opened_again_counts_from_zero() -> None:
    log = DropLog()
    assert len(log.lines([("a_0", "in-0", {"dropped_null": 5})], 0)) == 1
    again = log.lines([("a_0", "in-0", {"dropped_null": 2})], INTERVAL_MS)
    assert again == ["task a_0: 2 records of in-0 were dropped: of a null key or value"]


def test_the_loop_tells_what_its_tasks_dropped(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.network.write(("in", 0), [(None, number(1)), (None, number(2)), (b"a", number(1))])
    rig.give(Tasks(active=rig.tasks(0)))
    for _ in range(5):
        rig.clock_ms += 1_000
        rig.turn()
    told = [line for line in caplog.messages if "dropped" in line]
    assert told == [f"task {next(iter(rig.manager))}: 2 records of in-0 were dropped: of a null key or value"]
