"""Agents are asked by tasks and timers; agents themselves may not ask."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamsrt.errors import UserError
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402


def doubling(app: faust.App) -> Any:
    """An agent that answers with the double."""

    @app.agent(app.topic("numbers", value_type=int))
    async def double(numbers: Any) -> AsyncIterator[int]:
        async for number in numbers:
            await next_turn()
            yield number * 2

    return double


def ticks(test: TestApp, count: int) -> None:
    """The clock goes on, and the application with it."""
    for _ in range(count):
        test.driver.advance_wall_clock_time(10)


def test_a_task_asks_and_maps_and_joins() -> None:
    app, seen = an_app(), []
    double = doubling(app)

    @app.task
    async def ask() -> None:
        seen.append(await double.ask(4))
        seen.append(await double.join([1, 2, 3]))
        seen.append(sorted([value async for value in double.map([5, 6])]))
        seen.append(await double.kvjoin([("a", 7), ("b", 8)]))
        seen.append(sorted([value async for value in double.kvmap([("a", 9)], reply_to="own-replies")]))

    with TestApp(app) as test:
        ticks(test, 40)
    assert seen == [8, [2, 4, 6], [10, 12], [14, 16], [18]]


def test_what_is_no_answer_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """Others may write to the topic. The answer that came with it is not lost."""
    app, seen = an_app(), []
    other = app.topic("own-replies", value_serializer="raw")

    @app.agent(app.topic("numbers", value_type=int))
    async def double(numbers: Any) -> AsyncIterator[int]:
        async for number in numbers:
            for raw in (b"{", b"[]", b'{"value": {"__faust": {"ns": "no.such.Model"}}, "correlation_id": "1"}'):
                await other.send(value=raw)
            yield number * 2

    @app.task
    async def ask() -> None:
        async for value in double.map([4], reply_to="own-replies"):
            seen.append(value)

    with TestApp(app) as test:
        ticks(test, 20)
    assert seen == [8]
    assert "can't be read as one, and is passed over: b'{'" in caplog.text


def test_a_timer_that_waits_for_an_answer_does_not_begin_again() -> None:
    """With faust, it has one call at a time, too. Each would ask anew."""
    app, seen = an_app(), []

    @app.agent(app.topic("numbers", value_type=int))
    async def silent(numbers: Any) -> AsyncIterator[int]:
        async for number in numbers:
            seen.append(number)
            if number < 0:
                yield number

    @app.timer(1.0)
    async def ask() -> None:
        await silent.ask(4)

    with TestApp(app) as test:
        for _ in range(3):
            test.driver.advance_wall_clock_time(1_000)
    assert seen == [4]


def test_a_commit_does_not_wait_for_a_timer_that_asks() -> None:
    app, seen = an_app(), []
    double = doubling(app)

    @app.timer(1.0)
    async def ask() -> None:
        seen.append("asks")
        seen.append(await double.ask(4))
        await app.topic("out").send(value="told", partition=0)

    with TestApp(app) as test:
        test.driver.advance_wall_clock_time(1_000)
        test.driver.commit()
        assert seen == ["asks"]
        for _ in range(5):
            test.driver.advance_wall_clock_time(100)
        assert seen == ["asks", 8]
        test.driver.advance_wall_clock_time(100)
        assert test.received("out") == [(None, "told")]


def test_what_nobody_waits_for_any_more_is_forgotten() -> None:
    app, seen = an_app(), []
    double = doubling(app)

    @app.agent(app.topic("others", value_type=int))
    async def answers_nothing(numbers: Any) -> None:
        async for _ in numbers:
            """It only takes them."""

    @app.task
    async def ask() -> None:
        waits = asyncio.ensure_future(double.ask(4))
        for number in range(300):
            asked = asyncio.ensure_future(answers_nothing.ask(number))
            for _ in range(3):
                await next_turn()
            asked.cancel()
        seen.append(await waits)

    with TestApp(app) as test:
        ticks(test, 400)
        assert seen == [8]
        assert len(app._reply_consumer._waiting) < 100


def test_models_are_asked_for_and_answered() -> None:
    class Point(faust.Record, namespace="test.Point"):
        x: int

    app, seen = an_app(), []

    @app.agent(app.topic("points", value_type=Point))
    async def mirror(points: Any) -> AsyncIterator[Point]:
        async for point in points:
            yield Point(x=-point.x)

    @app.task
    async def ask() -> None:
        seen.append(await mirror.ask(Point(x=3)))

    with TestApp(app) as test:
        ticks(test, 8)
    assert seen == [Point(x=-3)]


APP = faust.App("asking", broker="kafka://localhost:9092")
DOUBLE = doubling(APP)


async def helps(number: int) -> object:
    """A function that asks."""
    return await DOUBLE.ask(number)


async def asks_through_another(numbers: Any) -> None:
    """An agent that does."""
    async for number in numbers:
        await helps(number)


def test_a_function_that_asks_for_an_agent_is_named_at_the_start() -> None:
    APP.agent(APP.topic("through"))(asks_through_another)
    line = helps.__code__.co_firstlineno + 2
    place = rf"{re.escape(__file__)}:{line}"
    with pytest.raises(
        UserError, match=rf"^DOUBLE\.ask \({place}\) in helps, which is called by agent .*through_another "
    ):
        streamsrt.faust.topology(APP)


def test_an_agent_that_asks_is_told_what_to_do_instead() -> None:
    app = an_app()
    double = doubling(app)

    @app.agent(app.topic("orders", value_type=int))
    async def order(stream: Any) -> None:
        async for number in stream:
            await getattr(double, "as" + "k")(number)

    with TestApp(app) as test, pytest.raises(UserError, match=r"send with agent\.cast\(\) or agent\.send"):
        test.send("orders", value=1)
