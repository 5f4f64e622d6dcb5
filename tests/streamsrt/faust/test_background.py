"""Tasks, services and signals: what an application runs beside its agents."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import pytest
from mode import Service

from streamsrt.errors import ProcessingError
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app, counting
from tests.streamsrt.faust.needed import require_faust

require_faust()


from streamsrt.faust import TestApp  # noqa: E402


def test_a_task_runs_once_in_a_process_and_commits_do_not_wait_for_it() -> None:
    app = an_app()
    totals, out = counting(app), app.topic("out")
    went_on = asyncio.Event()

    @app.task
    async def greet() -> None:
        await out.send(value="begun", partition=0)
        await went_on.wait()
        await next_turn()
        await out.send(value=dict(totals.items()), partition=0)

    @app.task()
    async def takes_the_app(given: Any) -> None:
        given.topic("out").send_soon(value=given is app, partition=0)
        await asyncio.get_running_loop().create_future()

    with TestApp(app, partitions=2) as test:
        test.driver.advance_wall_clock_time(10)
        assert test.received("out") == [(None, "begun"), (None, True)]
        test.send("orders", value="a", partition=0)
        test.send("orders", value="b", partition=1)
        test.driver.commit()
        went_on.set()
        test.driver.advance_wall_clock_time(10)
        assert test.received("out") == [(None, {"a": 1, "b": 1})]


def test_a_task_of_the_leader_and_one_that_raises() -> None:
    app, ran = an_app(), []
    counting(app)

    @app.task(on_leader=True)
    async def lead() -> None:
        ran.append(app.is_leader())

    with TestApp(app) as test:
        test.driver.advance_wall_clock_time(10)
        test.driver.advance_wall_clock_time(10)
    assert ran == [True]

    @app.task
    async def fragile() -> None:
        await next_turn()
        raise ValueError("no luck")

    with (
        TestApp(app) as test,
        pytest.raises(ProcessingError, match=r"task at \S*test_background.py:\d+ raised ValueError"),
    ):
        test.driver.advance_wall_clock_time(10)


def test_a_task_that_is_not_over_ends_with_the_agents() -> None:
    app, ended = an_app(), []
    counting(app)

    @app.task
    async def forever() -> None:
        try:
            while not app.should_stop:
                await app.sleep(1000.0)
        finally:
            ended.append(1)

    with TestApp(app) as test:
        test.driver.advance_wall_clock_time(10)
        assert ended == []
    assert ended == [1]


def test_a_task_declares_a_topic_and_sleeps_whatever_loop_the_application_had() -> None:
    app, seen = an_app(), []
    counting(app)
    with closing(asyncio.new_event_loop()) as other:
        app.loop = other

        @app.task
        async def send() -> None:
            topic = app.topic("words", value_type=str, partitions=3, retention=10.0)
            await topic.declare()
            await app.sleep(0.0001)
            await topic.send(value="slept")
            seen.append(1)

        with TestApp(app) as test:
            for _ in range(100):
                test.driver.advance_wall_clock_time(10)
                if seen:
                    break
            test.driver.advance_wall_clock_time(10)
            assert test.received("words") == [(None, "slept")]


def test_a_service_starts_and_stops_with_the_application() -> None:
    app, seen = an_app(), []
    counting(app)

    @app.service
    class Feeder(Service):  # type: ignore[misc]  # mode is not typed here
        async def on_start(self) -> None:
            seen.append("start")

        async def on_stop(self) -> None:
            seen.append("stop")

        @Service.task  # type: ignore[untyped-decorator]
        async def feed(self) -> None:
            await app.topic("out").send(value=1, partition=0)

    with TestApp(app) as test:
        test.driver.advance_wall_clock_time(10)
        test.driver.advance_wall_clock_time(10)
        assert test.received("out") == [(None, 1)]
    assert seen == ["start", "stop"]


def test_signals_tell_of_partitions_before_their_records() -> None:
    app, seen = an_app(), []
    totals = counting(app)

    @app.on_partitions_assigned.connect()
    async def assigned(its_app: Any, partitions: Any, **_: Any) -> None:
        await next_turn()
        seen.append(("assigned", its_app is app, sorted(partitions), dict(totals.items())))

    @app.on_partitions_revoked.connect()
    async def revoked(_: Any, partitions: Any, **__: Any) -> None:
        seen.append(("revoked", sorted(partitions)))

    @app.on_rebalance_complete.connect()
    async def complete(_: Any, **__: Any) -> None:
        seen.append("complete")

    @app.on_before_shutdown.connect()
    async def ends(_: Any, **__: Any) -> None:
        seen.append("ends")

    @app.on_worker_init.connect()
    def begins(_: Any, **__: Any) -> None:
        seen.append("begins")

    @totals.on_recover  # type: ignore[untyped-decorator]
    async def recovered() -> None:
        seen.append("recovered")

    both = [("orders", 0), ("orders", 1)]
    with TestApp(app, partitions=2) as test:
        test.send("orders", value="a", partition=0)
        assert seen == ["begins", ("assigned", True, both, {}), "recovered", "complete"]
        seen.clear()
    assert seen == ["ends", ("revoked", both)]


def test_a_listener_that_raises_fails_the_application() -> None:
    app = an_app()
    counting(app)

    @app.on_rebalance_complete.connect()
    async def complete(_: Any, **__: Any) -> None:
        raise ValueError("no luck")

    with (
        TestApp(app) as test,
        pytest.raises(ProcessingError, match="a listener of a signal raised ValueError: no luck"),
    ):
        test.send("orders", value="a")


def test_a_listener_sees_and_marks_each_record_that_is_sent() -> None:
    app = an_app()

    @app.agent(app.topic("orders", value_type=int))
    async def copy(stream: Any) -> None:
        async for number in stream:
            await app.send("out", key="k", value=number)

    @app.on_produce_message.connect()
    def mark(_: Any, key: bytes, value: bytes, headers: Any, **__: Any) -> None:
        headers.append(("seen", key + value))

    with TestApp(app) as test:
        test.send("orders", value=5)
        (record,) = test.driver.output_queue("out")
    assert record.headers == (("seen", b"k5"),)
