"""Agents over channels in memory: in the task of their sender, and in its commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

import streamsrt.faust
from streamsrt.errors import UserError
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402


class Order(faust.Record):
    """What goes through a channel as it is."""

    item: str
    amount: int


def test_messages_go_from_agent_to_agent_with_the_tables_of_the_partition() -> None:
    app = an_app()
    totals = app.Table("totals", default=int)
    orders, checked = app.topic("orders", key_type=str, value_type=Order), app.channel(value_type=Order)
    given: list[Any] = []

    @app.agent(orders)
    async def check(stream: Any) -> None:
        async for key, order in stream.items():
            given.append(order)
            await checked.send(key=key, value=order)

    @app.agent(checked)
    async def count(stream: Any) -> None:
        async for event in stream.events():
            assert event.value is given.pop()
            place = event.message.topic, event.message.partition, event.message.timestamp
            totals[event.key] += event.value.amount
            await app.send("results", key=event.key, value=[*place, totals[event.key]])

    with TestApp(app, partitions=2) as test:
        for number in range(3):
            test.send(orders, key="a", value=Order(item="tea", amount=number), timestamp=number, partition=1)
        assert test.table("totals", partition=1) == {"a": 3}
        assert not test.table("totals", partition=0)
        assert test.received("results") == [
            (b"a", ["orders", 1, 0.0, 0]),
            (b"a", ["orders", 1, 1.0, 1]),
            (b"a", ["orders", 1, 2.0, 3]),
        ]


def test_sinks_echoes_and_casts_end_in_channels() -> None:
    app = an_app()
    first, second = app.channel(), app.channel()
    seen: list[Any] = []

    @app.agent(second)
    async def end(stream: Any) -> None:
        async for value in stream:
            seen.append(("end", value))

    @app.agent(first, sink=[second])
    async def middle(stream: Any) -> AsyncIterator[Any]:
        async for value in stream.filter(lambda value: value != "b"):
            yield value * 2

    @app.agent(app.topic("lines", value_type=str, value_serializer="raw"))
    async def begin(stream: Any) -> None:
        async for value in stream.echo(first):
            await end.cast(value)

    with TestApp(app) as test:
        for value in "abc":
            test.send("lines", value=value)
    assert sorted(seen) == [("end", "a"), ("end", "aa"), ("end", "b"), ("end", "c"), ("end", "cc")]


def test_agents_and_timers_are_functions_with_some_arguments_given() -> None:
    app = an_app()
    first, second = app.topic("first", value_type=int), app.channel(value_type=int)
    seen: list[Any] = []

    async def add(to: Any, stream: Any) -> AsyncIterator[int]:
        async for value in stream:
            yield value + to

    async def hear(into: list[Any], stream: Any) -> None:
        async for value in stream:
            into.append(value)

    async def send(value: int) -> None:
        await first.send(value=value)

    app.agent(second, name="hear")(partial(hear, seen))
    app.agent(first, name="add", sink=[second])(partial(add, 10))
    app.timer(1.0)(partial(send, 5))
    with TestApp(app) as test:
        test.send(first, value=1)
        test.driver.advance_wall_clock_time(1000)
        test.driver.advance_wall_clock_time(1)
    assert seen == [11, 15]


def test_a_commit_waits_for_what_is_in_a_channel() -> None:
    app = an_app()
    channel = app.channel()

    async def looked_up(value: Any) -> Any:
        for _ in range(5):
            await next_turn()
        return value * 10

    @app.agent(app.topic("numbers", value_type=int))
    async def pass_on(stream: Any) -> None:
        async for value in stream:
            await channel.send(value=value)

    @app.agent(channel, concurrency=2)
    async def slow(stream: Any) -> None:
        async for value in stream:
            await app.send("results", value=await looked_up(value))

    with TestApp(app) as test:
        for number in range(20):
            test.send("numbers", value=number)
        test.driver.commit()
        assert sorted(value for _, value in test.received("results")) == [number * 10 for number in range(20)]


def test_lists_and_errors_of_agents_over_channels(caplog: pytest.LogCaptureFixture) -> None:
    app = an_app()
    channel = app.channel()
    lists: list[Any] = []

    @app.agent(app.topic("numbers", value_type=int))
    async def pass_on(stream: Any) -> None:
        async for value in stream:
            await channel.send(value=value)

    @app.agent(channel)
    async def gather(stream: Any) -> None:
        async for values in stream.take(3, within=100):
            if 7 in values:
                raise ValueError("no luck")
            lists.append(values)

    with TestApp(app) as test:
        for number in range(11):
            test.send("numbers", value=number)
            test.driver.commit()
        assert [value for values in lists for value in values] == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]
    assert "raised an exception and continues after the record at numbers-0 offset 7" in caplog.text


def test_timers_and_tasks_send_to_channels() -> None:
    app = an_app()
    channel = app.channel()
    seen: list[Any] = []

    @app.agent(app.topic("lines", value_type=str, value_serializer="raw"))
    async def read(stream: Any) -> None:
        async for value in stream:
            seen.append(value)

    @app.agent(channel)
    async def hear(stream: Any) -> None:
        async for value in stream:
            seen.append(value)

    @app.timer(1.0)
    async def tick() -> None:
        await channel.send(value="tick")

    @app.task
    async def task() -> None:
        await channel.send(value="task")

    with TestApp(app) as test:
        test.send("lines", value="line")
        test.driver.advance_wall_clock_time(1500)
        test.driver.advance_wall_clock_time(100)
    assert sorted(seen) == ["line", "task", "tick"]
    assert "send" not in vars(channel)


def test_a_task_iterates_over_a_channel_that_no_agent_reads() -> None:
    app = an_app()
    channel = app.channel()
    seen: list[Any] = []

    @app.agent(app.topic("lines", value_type=str, value_serializer="raw"))
    async def read(stream: Any) -> None:
        async for value in stream:
            await channel.send(value=value)

    @app.task
    async def hear() -> None:
        async for event in channel:
            seen.append(event.value)

    with TestApp(app) as test:
        test.driver.advance_wall_clock_time(100)
        for value in "abc":
            test.send("lines", value=value)
        test.driver.advance_wall_clock_time(100)
    assert seen == ["a", "b", "c"]


@pytest.mark.parametrize("derived", ["noack", "through"])
def test_what_needs_a_topic_is_refused_for_a_channel(derived: str) -> None:
    app = an_app()

    @app.agent(app.topic("lines"))
    async def read(stream: Any) -> None:
        async for _ in stream:
            pass

    async def by_hand(stream: Any) -> None:
        async for event in stream.noack().events():
            event.ack()

    async def relay(stream: Any) -> None:
        async for _ in stream.through("elsewhere"):
            pass

    app.agent(app.channel())(by_hand if derived == "noack" else relay)
    with pytest.raises(UserError, match=rf"{derived} \(.*test_channels.py:\d+\) of agent .* over a channel, and not"):
        streamsrt.faust.topology(app)


def test_an_application_needs_a_topic() -> None:
    app = an_app()

    @app.agent(app.channel())
    async def read(stream: Any) -> None:
        async for _ in stream:
            pass

    with pytest.raises(UserError, match=r"all agents of the application shop are over channels, as agent .*give the"):
        streamsrt.faust.topology(app)
