"""Messages name the line of the agent, table or timer that they are about, whoever builds the topology."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from streamsrt.errors import MissingTopicError, ProcessingError, ProductionError, UserError
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402

TEXT = """import faust
app = faust.App("lines", broker="kafka://localhost:9092")
totals = app.Table("totals", default=int)
sums = {"all": app.Table("sums", default=int)}


@app.agent(app.topic("in"))
async def count(stream):
    async for value in stream:
        totals["x"] += value
"""


def test_steps_and_stores_have_the_lines_of_agents_and_tables(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "app_with_lines.py"
    path.write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = __import__("app_with_lines")
    try:
        (part,) = streamsrt.faust.topology(module.app).subtopologies
    finally:
        del sys.modules["app_with_lines"]
    assert {str(node.site) for node in part.nodes} == {f"{path}:7"}
    assert {spec.name: str(spec.site) for spec in part.stores} == {"totals": f"{path}:3", "sums": f"{path}:4"}


async def _never() -> None:
    """A function at no time."""


async def _nothing(stream: Any) -> None:
    async for _ in stream:
        pass


@pytest.mark.parametrize("crontab", ["99 * * * *", "soon", "* * * *"])
def test_a_crontab_that_says_no_time_is_refused_with_its_line(crontab: str) -> None:
    app = an_app()
    app.agent(app.topic("in"))(_nothing)
    app.crontab(crontab)(_never)
    place = f"{__file__}:{_never.__code__.co_firstlineno}"
    message = f"^{re.escape(place)}: the crontab {re.escape(repr(crontab))} of _never is invalid"
    for start in (streamsrt.faust.topology, streamsrt.faust.config):
        with pytest.raises(UserError, match=message):
            start(app)


def test_a_stream_without_async_says_so() -> None:
    app = an_app()

    def loops(stream: Any) -> None:
        for _ in stream:
            pass

    app.agent(app.topic("in"))(loops)
    with pytest.raises(ProcessingError, match="is not iterable: write 'async for'"), TestApp(app) as test:
        test.send("in", value=1)


def test_what_a_timer_or_a_task_sends_is_not_blamed_on_an_agent() -> None:
    for declare, what in ((lambda app: app.timer(0.1), "the timer at"), (lambda app: app.task, "the task at")):
        app = an_app()
        app.agent(app.topic("in"), name="innocent")(_nothing)

        async def send() -> None:
            await app.send("out", value=1)  # noqa: B023

        declare(app)(send)
        place = re.escape(f"{__file__}:{send.__code__.co_firstlineno}")
        with pytest.raises(ProductionError, match=rf", in {what} {place}\)") as raised:
            _run_for_a_second(app)
        assert "innocent" not in str(raised.value)


def _run_for_a_second(app: faust.App) -> None:
    def refuse(topic: str, key: bytes | None, value: bytes | None) -> Exception | None:
        return MissingTopicError(f"topic {topic!r} does not exist")

    with TopologyTestDriver(streamsrt.faust.topology(app), streamsrt.faust.config(app), refuse=refuse) as driver:
        driver.pipe_raw("in", None, b"1", 0)
        driver.advance_wall_clock_time(1000)


def _joins(stream: Any) -> object:
    return getattr(stream, "left_" + "join")


def _sleeps(stream: Any) -> object:
    return stream.sleep(0.1)


def _derives(stream: Any) -> object:
    return stream.group_by(len, name="length")


def _is_unknown(stream: Any) -> object:
    return stream.evnets


@pytest.mark.parametrize("use", [_joins, _sleeps, _derives, _is_unknown])
def test_what_an_agent_wants_of_its_stream_by_another_name_is_told_with_the_line(use: Any) -> None:
    app, uses = an_app(), [use]

    @app.agent(app.topic("in"))
    async def work(stream: Any) -> None:
        async for _ in stream:
            uses[0](stream)

    place = rf"\({re.escape(__file__)}:{use.__code__.co_firstlineno + 1}\)"
    with TestApp(app) as test, pytest.raises(UserError, match=place):
        test.send("in", value=1)


@pytest.mark.parametrize("declare", [lambda app: app.timer(0.1), lambda app: app.task])
def test_who_changes_a_table_and_is_no_agent_is_told_with_the_line(declare: Any) -> None:
    app = an_app()
    rows = app.Table("rows", default=int)
    app.agent(app.topic("in"))(_nothing)

    async def change() -> None:
        rows["a"] = 1

    declare(app)(change)
    first = change.__code__.co_firstlineno
    who = rf"the (timer|task) at {re.escape(__file__)}:{first} \({re.escape(__file__)}:{first + 1}\)"
    with (
        TestApp(app) as test,
        pytest.raises(ProcessingError, match=f"^table rows can't be changed by {who}: only agents"),
    ):
        test.driver.advance_wall_clock_time(200)
