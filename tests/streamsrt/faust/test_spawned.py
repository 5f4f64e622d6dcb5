"""Tasks that agents, timers and functions of an application begin with asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamsrt.errors import ProcessingError, UserError
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()


from streamsrt.faust import TestApp  # noqa: E402

TICK_MS = 10


def an_app_that_begins(work: Any) -> tuple[Any, list[asyncio.Task[None]]]:
    """An application whose agent begins ``work(order)`` for each order, and awaits nothing."""
    app, begun = an_app(), []

    @app.agent(app.topic("orders", value_type=str))
    async def take(orders: Any) -> None:
        async for order in orders:
            begun.append(asyncio.create_task(work(app, order)))

    return app, begun


def test_what_an_agent_has_begun_goes_on_without_records_and_its_sends_go_out() -> None:
    go_on = asyncio.Event()

    async def work(app: Any, order: str) -> None:
        await go_on.wait()
        for _ in range(3):
            await next_turn()
        await app.topic("out").send(value=f"{order} is done", partition=0)

    app, begun = an_app_that_begins(work)
    with TestApp(app) as test:
        test.send("orders", value="tea")
        test.driver.commit()
        assert test.received("out") == [], "the record is committed, and nothing waits for the task"
        go_on.set()
        for _ in range(20):
            test.driver.advance_wall_clock_time(TICK_MS)
        assert test.received("out") == [(None, "tea is done")]
        assert begun[0].done()


def test_what_a_timer_has_begun_goes_on() -> None:
    app, done = an_app(), []

    async def work() -> None:
        for _ in range(10):
            await next_turn()
        done.append(1)

    @app.agent(app.topic("orders", value_type=str))
    async def take(orders: Any) -> None:
        async for _ in orders:
            """Nothing."""

    @app.timer(1.0)
    async def now_and_then() -> None:
        asyncio.create_task(work())  # noqa: RUF006  # that nobody holds it is the point

    with TestApp(app) as test:
        test.driver.advance_wall_clock_time(1_000)
        for _ in range(20):
            test.driver.advance_wall_clock_time(TICK_MS)
        assert done == [1]


def test_one_that_begins_another_one_is_followed() -> None:
    done: list[str] = []

    async def second(order: str) -> None:
        for _ in range(10):
            await next_turn()
        done.append(order)

    async def work(app: Any, order: str) -> None:
        await next_turn()
        done.append(f"first of {order}")
        asyncio.create_task(second(order))  # noqa: RUF006

    app, _ = an_app_that_begins(work)
    with TestApp(app) as test:
        test.send("orders", value="tea")
        for _ in range(20):
            test.driver.advance_wall_clock_time(TICK_MS)
        assert done == ["first of tea", "tea"]


def test_tables_that_one_changes_are_those_of_its_task() -> None:
    app = an_app()
    totals = app.Table("totals", default=int)

    async def work(order: str) -> None:
        await next_turn()
        totals[order] += 1

    @app.agent(app.topic("orders", value_type=str))
    async def take(orders: Any) -> None:
        async for order in orders:
            asyncio.create_task(work(order))  # noqa: RUF006

    with TestApp(app, partitions=2) as test:
        test.send("orders", value="tea", partition=0)
        test.send("orders", value="jam", partition=1)
        for _ in range(20):
            test.driver.advance_wall_clock_time(TICK_MS)
        log = {each.key: each.partition for each in test.driver.producer_history if each.topic.endswith("-changelog")}
    assert log == {b'"tea"': 0, b'"jam"': 1}


def test_what_is_not_over_at_the_end_is_cancelled() -> None:
    ended: list[str] = []

    async def work(app: Any, order: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(order)

    app, _ = an_app_that_begins(work)
    with TestApp(app) as test:
        test.send("orders", value="tea")
        assert ended == []
    assert ended == ["tea"]


def test_what_is_refused_in_one_has_the_line_that_began_it() -> None:
    app, name = an_app(), "ask"

    @app.agent(app.topic("answers", value_type=str))
    async def answer(stream: Any) -> None:
        async for value in stream:
            yield value

    @app.agent(app.topic("orders", value_type=str))
    async def take(orders: Any) -> None:
        async for order in orders:
            await asyncio.wait_for(getattr(answer, name)(order), 5.0)

    line = take.fun.__code__.co_firstlineno + 3
    with (
        TestApp(app) as test,
        pytest.raises(
            (UserError, ProcessingError), match=rf"in an agent .*\(\S*test_spawned.py:{line}\) is not supported"
        ),
    ):
        test.send("orders", value="tea")
