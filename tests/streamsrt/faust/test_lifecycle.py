"""Methods of an application's own class, and what is sent at its end."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from mode import Service

from streamsrt.errors import ProcessingError, UserError
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import counting
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.lifecycle import CALLED  # noqa: E402

HOOKS = {name for name in dir(faust.App) if name.startswith("on_") and callable(getattr(faust.App, name))}
SIGNALS = {name for name in HOOKS if hasattr(getattr(faust.App, name), "connect")}


def made(kind: type[faust.App]) -> faust.App:
    return kind("shop", broker="kafka://localhost:9092")


def recording(name: str, seen: list[str], *, calls_faust: bool) -> Any:
    """A method that notes its name, and sends it."""

    async def hook(self: Any) -> None:
        seen.append(name)
        await next_turn()
        await self.topic("out", value_serializer="json").send(value=name, partition=0)
        if calls_faust:
            await getattr(faust.App, name)(self)

    return hook


@pytest.mark.parametrize("calls_faust", [True, False])
def test_methods_of_the_class_are_called_once_and_may_send(calls_faust: bool) -> None:
    seen: list[str] = []
    kind = type("Shop", (faust.App,), {name: recording(name, seen, calls_faust=calls_faust) for name in CALLED})
    app = made(kind)
    totals = counting(app)

    @app.agent(app.topic("looks"))
    async def look(stream: Any) -> None:
        async for _ in stream:
            seen.append(f"record, {len(totals)} rows")

    @app.on_before_shutdown.connect()
    async def goodbye(_: Any, **__: Any) -> None:
        seen.append("on_before_shutdown")

    with TestApp(app) as test:
        test.send("looks", value=1)
        assert seen == ["on_first_start", "on_start", "record, 0 rows"]
        test.driver.advance_wall_clock_time(10)
        assert seen[3:] == ["on_started"]
    assert seen[4:] == ["on_stop", "on_before_shutdown", "on_shutdown"]
    assert [value for _, value in test.received("out")] == list(CALLED)
    assert faust.App.on_start is not type(app).on_start
    assert "lifecycle" not in faust.App.on_start.__module__


def test_what_on_start_makes_is_there_for_the_first_record_and_a_method_of_a_service_runs() -> None:
    class Shop(faust.App):  # type: ignore[misc]  # faust is not typed here
        async def on_start(self) -> None:
            self.rate = 7
            await super().on_start()

        @Service.task  # type: ignore[untyped-decorator]
        async def beside(self) -> None:
            await self.topic("out").send(value="beside", partition=0)

    app = made(Shop)

    @app.agent(app.topic("in", value_type=int))
    async def work(stream: Any) -> None:
        async for number in stream:
            await app.send("out", value=number * app.rate)

    with TestApp(app) as test:
        test.send("in", value=6)
        assert test.received("out") == [(None, 42)]
        test.driver.advance_wall_clock_time(10)
        assert test.received("out") == [(None, "beside")]


def test_an_application_that_begins_again_is_not_begun_for_the_first_time() -> None:
    seen: list[str] = []
    app = made(type("Shop", (faust.App,), {name: recording(name, seen, calls_faust=True) for name in CALLED}))
    counting(app)
    with TestApp(app) as test:
        seen.clear()
        test.driver.restart()
        assert seen == ["on_stop", "on_shutdown", "on_start"]


def test_on_start_that_raises_is_one_error_and_the_application_can_run_again() -> None:
    class Shop(faust.App):  # type: ignore[misc]  # faust is not typed here
        fails = True

        async def on_start(self) -> None:
            if self.fails:
                raise ValueError("no luck")

    app = made(Shop)
    counting(app)
    with pytest.raises(ProcessingError, match=r"on_start \(\S*test_lifecycle.py:\d+\) raised ValueError: no luck"):
        TestApp(app)
    app.fails = False
    with TestApp(app) as test:
        test.send("orders", value="a")
        assert test.table("totals") == {"a": 1}


@pytest.mark.parametrize(
    "name", [*sorted(HOOKS - SIGNALS - {"on_init", "on_webserver_init", *CALLED}), "start", "stop"]
)
def test_each_other_method_that_nobody_would_call_is_refused(name: str) -> None:
    async def hook(self: Any, *_: Any, **__: Any) -> None:
        """Never called."""

    app = made(type("Shop", (faust.App,), {name: hook}))
    counting(app)
    place = rf"{re.escape(__file__)}:{hook.__code__.co_firstlineno}"
    with pytest.raises(UserError, match=rf"^method {name} of Shop \({place}\) is not supported .*on_first_start"):
        streamsrt.faust.topology(app)


def test_what_is_sent_at_the_end_is_in_the_last_commit(caplog: pytest.LogCaptureFixture) -> None:
    app = made(faust.App)
    totals = counting(app)
    out = app.topic("out", value_serializer="json")

    @app.on_before_shutdown.connect()
    async def goodbye(_: Any, **__: Any) -> None:
        await next_turn()
        await out.send(value=dict(totals.items()), partition=0)

    @app.on_before_shutdown.connect()
    def breaks(_: Any, **__: Any) -> None:
        raise ValueError("no luck")

    @app.on_partitions_revoked.connect()
    async def gone(*_: Any, **__: Any) -> None:
        await out.send(value="revoked", partition=0)

    with TestApp(app, partitions=2) as test:
        test.send("orders", value="a", partition=0)
        test.send("orders", value="b", partition=1)
        caplog.set_level(logging.ERROR)
    assert test.received("out") == [(None, {"a": 1, "b": 1}), (None, "revoked")]
    (found,) = [record for record in caplog.records if record.name.startswith("streamsrt.faust")]
    line = breaks.__code__.co_firstlineno
    assert re.fullmatch(
        rf"breaks \(\S*test_lifecycle.py:{line}\), which listens to on_before_shutdown, raised ValueError "
        rf"\(\S*test_lifecycle.py:{line + 2}\): no luck",
        found.getMessage(),
    )
    assert found.exc_info is None


def test_after_a_failure_those_who_listen_are_still_called() -> None:
    app, seen = made(faust.App), []
    counting(app)

    @app.task
    async def fragile() -> None:
        raise ValueError("no luck")

    @app.on_before_shutdown.connect()
    async def goodbye(_: Any, **__: Any) -> None:
        await app.send("out", value=1)
        seen.append(1)

    with TestApp(app) as test, pytest.raises(ProcessingError, match="no luck"):
        test.driver.advance_wall_clock_time(10)
    assert seen == [1]
    assert test.received("out") == []
