"""Timers and crontabs, by the clock of the driver."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from streamsrt.errors import ProcessingError
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app, counting
from tests.streamsrt.faust.needed import require_faust

require_faust()


from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.timers import Timer  # noqa: E402

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("crontab", "by_ms", "moved_ms"),
    [
        ("", DAY_MS, 10_000 + DAY_MS),
        ("", -DAY_MS, 10_000 - DAY_MS),
        ("0 * * * *", 1_800_000, 3_600_000),
        ("0 * * * *", -50, 3_600_000),
        ("0 * * * *", -DAY_MS, 3_600_000 - DAY_MS),
    ],
)
def test_a_timer_goes_on_when_the_clock_is_set(crontab: str, by_ms: int, moved_ms: int) -> None:
    """It has run at the full hour, which is 0 here."""

    async def run() -> None: ...

    timer, began_ms = Timer(run, 10.0, on_leader=False, crontab=crontab), 20_000 * DAY_MS
    due_ms = timer.next_ms(began_ms)
    assert timer.moved(due_ms, by_ms, began_ms + 10 + by_ms) == began_ms + moved_ms


def test_a_timer_sees_all_rows_and_what_it_sends_goes_out() -> None:
    app = an_app()
    totals, report = counting(app), app.topic("report")

    @app.timer(interval=10.0)
    async def tell() -> None:
        await next_turn()
        await report.send(value=dict(totals.items()), partition=0)

    with TestApp(app, partitions=2) as test:
        test.send("orders", value="a", partition=0)
        test.send("orders", value="b", partition=1)
        test.driver.advance_wall_clock_time(9_000)
        assert test.received("report") == []
        test.driver.advance_wall_clock_time(2_000)
        assert test.received("report") == [(None, {"a": 1, "b": 1})], "once, and not for each partition"
        test.driver.advance_wall_clock_time(10_000)
        assert len(test.received("report")) == 1


def test_that_of_the_leader_runs_in_the_task_of_the_first_partition() -> None:
    app = an_app()
    counting(app)

    @app.timer(1.0, on_leader=True)
    async def lead(its_app: Any) -> None:
        assert its_app is app
        app.topic("report").send_soon(value=1, partition=0)

    with TestApp(app, partitions=3) as test:
        test.driver.advance_wall_clock_time(1_000)
        assert test.received("report") == [(None, 1)]


def test_a_crontab_runs_when_it_says() -> None:
    app = an_app()
    counting(app)
    ran: list[int] = []

    @app.crontab("30 18 * * *")
    async def evening() -> None:
        ran.append(test.driver.now_ms)

    began = datetime(2024, 1, 1, 18, 0, tzinfo=UTC)
    with TestApp(app, now_ms=round(began.timestamp() * 1000)) as test:
        for _ in range(60):
            test.driver.advance_wall_clock_time(60_000)
    assert [datetime.fromtimestamp(each / 1000, tz=UTC).time().isoformat() for each in ran] == ["18:30:00"]


def test_a_timer_that_raises_goes_on_and_one_that_writes_is_told() -> None:
    app = an_app()
    totals = counting(app)
    ran: list[int] = []

    @app.timer(1.0)
    async def fragile() -> None:
        ran.append(1)
        raise ValueError("no luck")

    with TestApp(app) as test:
        test.driver.advance_wall_clock_time(1_000)
        test.driver.advance_wall_clock_time(1_000)
    assert ran == [1, 1]

    @app.timer(1.0)
    async def write() -> None:
        totals["a"] = 1

    with TestApp(app) as test, pytest.raises(ProcessingError, match="table totals can't be changed by the timer at "):
        test.driver.advance_wall_clock_time(1_000)
