"""Names that Faust's objects have from ``mode.Service``: they work, or end the application with the line."""

from __future__ import annotations

import re
from typing import Any

import pytest
from mode import Service

from streamsrt.errors import ProcessingError, UserError
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.agents.agent import Agent  # noqa: E402
from faust.streams import Stream  # noqa: E402
from faust.tables.base import Collection  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.names import REFUSED, SERVICE_METHODS  # noqa: E402

PUBLIC = {name for name in dir(Service) if not name.startswith("_")}
OF_EVERY_OBJECT = {
    *("Diag", "abstract", "beacon", "crontab", "from_awaitable", "human_tracebacks", "label", "logger"),
    *("loop", "mundane_level", "on_first_start", "on_init", "on_init_dependencies", "on_restart"),
    *("on_shutdown", "on_start", "on_started", "on_stop", "restart_count", "shortlabel", "shutdown_timeout"),
    *("supervisor", "task", "timer", "tracebacks", "transitions_to"),
}
"""Those that describe a service or belong to its class, and change nothing."""
WORK_IN_AN_APP = {
    *("add_dependency", "add_future", "add_runtime_dependency", "crash", "crash_reason", "crashed"),
    *("itertimer", "should_stop", "sleep", "started", "state", "stop", "wait", "wait_first"),
    *("wait_for_stopped", "wait_many", "wait_until_stopped"),
}


def test_each_name_of_a_service_works_or_is_refused() -> None:
    assert set(REFUSED[faust.App]) & PUBLIC == PUBLIC - OF_EVERY_OBJECT - WORK_IN_AN_APP
    for kind in (Agent, Collection):
        assert set(REFUSED[kind]) & PUBLIC == PUBLIC - OF_EVERY_OBJECT, kind
    assert set(REFUSED[Stream]) & PUBLIC == PUBLIC - {"label", "shortlabel"}


class Helper(Service):
    """A service of the program."""

    def __init__(self, seen: list[str], name: str) -> None:
        super().__init__()
        self.seen = seen
        self.name = name

    async def on_start(self) -> None:
        self.seen.append(f"{self.name} starts")

    async def on_stop(self) -> None:
        self.seen.append(f"{self.name} stops")


def quiet(app: faust.App) -> None:
    @app.agent(app.topic("in"))
    async def read(stream: Any) -> None:
        async for _ in stream:
            pass


def ticks(test: TestApp, count: int = 5) -> None:
    for _ in range(count):
        test.driver.advance_wall_clock_time(10)


def test_dependencies_start_and_stop_with_the_application() -> None:
    seen: list[str] = []
    app = an_app()
    quiet(app)
    app.add_dependency(Helper(seen, "first"))
    with TestApp(app) as test:
        ticks(test)
        assert seen == ["first starts"]
    assert seen == ["first starts", "first stops"]


def test_dependencies_that_are_added_by_on_start_or_later_start_too() -> None:
    seen: list[str] = []

    class Own(faust.App):
        async def on_start(self) -> None:
            self.add_dependency(Helper(seen, "first"))

    app = Own("shop", broker="kafka://localhost:9092")

    @app.agent(app.topic("in"))
    async def read(stream: Any) -> None:
        async for _ in stream:
            await app.add_runtime_dependency(Helper(seen, "second"))

    with TestApp(app) as test:
        ticks(test)
        assert seen == ["first starts"]
        test.send("in", value=1)
        assert seen == ["first starts", "second starts"]
    assert seen[2:] == ["second stops", "first stops"]


def test_a_future_that_an_agent_adds_runs_beside_it() -> None:
    app, seen = an_app(), []

    async def wait() -> None:
        await app.sleep(0.0)
        seen.append((app.started, app.should_stop, app.state))

    @app.agent(app.topic("in"))
    async def read(stream: Any) -> None:
        async for _ in stream:
            app.add_future(wait())

    with TestApp(app) as test:
        test.send("in", value=1)
        ticks(test)
        assert seen == [(True, False, "running")]
    assert not app.started


def test_a_future_that_raises_ends_the_application() -> None:
    app = an_app()

    async def fail() -> None:
        raise ValueError("no more")

    @app.agent(app.topic("in"))
    async def read(stream: Any) -> None:
        async for _ in stream:
            app.add_future(fail())

    with TestApp(app) as test:
        test.send("in", value=1)
        with pytest.raises(ProcessingError, match=r"app\.add_future\(\) raised ValueError: no more"):
            ticks(test)


def test_crash_ends_the_application() -> None:
    app = an_app()
    quiet(app)

    @app.task
    async def fail() -> None:
        await app.crash(ValueError("no more"))

    with (
        TestApp(app) as test,
        pytest.raises(ProcessingError, match=r"^app\.crash\(\) was called: ValueError: no more$"),
    ):
        ticks(test)


@pytest.mark.parametrize("name", SERVICE_METHODS)
@pytest.mark.parametrize("kind", ["agent", "table"])
def test_agents_and_tables_are_no_services(kind: str, name: str) -> None:
    app = an_app()
    table = app.Table("rows")

    @app.agent(app.topic("in"))
    async def read(stream: Any) -> None:
        async for _ in stream:
            getattr(read if kind == "agent" else table, name)(None)

    place = rf"{re.escape(__file__)}:\d+"
    with (
        TestApp(app) as test,
        pytest.raises(UserError, match=rf"^{name}\(\) of {kind} \S+ \({place}\) is not supported .*ends here$"),
    ):
        test.send("in", value=1)
    assert name not in vars(table)


def test_a_use_is_found_at_the_start() -> None:
    app = an_app()
    table = app.Table("rows")

    @app.agent(app.topic("in"))
    async def read(stream: Any) -> None:
        async for _ in stream:
            await table.stop()

    with pytest.raises(UserError, match=rf"^table\.stop \({re.escape(__file__)}:\d+\) in agent read is not supported"):
        streamsrt.faust.topology(app)


def test_crash_ends_an_application_that_has_only_agents() -> None:
    app = an_app()

    @app.agent(app.topic("in"))
    async def work(stream: Any) -> None:
        async for _ in stream:
            await app.crash(KeyError("no more"))

    message = r"^app\.crash\(\) was called: KeyError: 'no more'$"
    with TestApp(app) as test:
        test.send("in", value=1)
        with pytest.raises(ProcessingError, match=message):
            test.driver.advance_wall_clock_time(100)


def test_a_dependency_that_a_service_adds_while_it_starts_starts_too() -> None:
    app, seen = an_app(), []
    quiet(app)

    class Adding(Helper):
        async def on_start(self) -> None:
            await super().on_start()
            await app.add_runtime_dependency(Helper(self.seen, "added"))

    app.add_dependency(Adding(seen, "first"))
    with TestApp(app) as test:
        ticks(test)
        assert seen == ["first starts", "added starts"]
    assert seen[2:] == ["added stops", "first stops"]
