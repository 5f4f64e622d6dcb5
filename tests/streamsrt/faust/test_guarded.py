"""What the program must not use of a table ends the application, however it comes to the table."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from mode import Service

from streamsrt.errors import ProcessingError, UserError
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.tables.base import Collection  # noqa: E402
from faust.tables.table import Table  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.guarded import GUARDED  # noqa: E402
from streamsrt.faust.names import REFUSED  # noqa: E402


class Counter:
    """Has a table in an attribute, and a method as the agent."""

    def __init__(self, app: faust.App, name: str) -> None:
        self.table = app.Table("rows", default=int)
        self.name = name
        self.seen: list[int] = []

    async def count(self, stream: Any) -> None:
        async for value in stream:
            self.table["a"] += value
            with suppress(Exception):
                use(self.table, self.name)
            self.seen.append(value)


def use(table: Any, name: str) -> object:
    return getattr(table, name)


PLACE = f"{re.escape(__file__)}:{use.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize("name", GUARDED)
def test_a_name_that_an_agent_reaches_ends_the_application_and_commits_nothing(name: str) -> None:
    app = an_app()
    counter = Counter(app, name)
    app.agent(app.topic("in", value_type=int))(counter.count)
    message = (
        rf"^{name} of table rows \({PLACE}\) is not supported by streamsrt\.faust: .+\. The application ends here$"
    )
    with TestApp(app) as test:
        with pytest.raises(UserError, match=message):
            test.send("in", value=1)
        history = [each.topic for each in test.driver.producer_history]
    assert counter.seen == [1], "whatever the agent makes of it"
    assert "shop-rows-changelog" not in history
    assert type(counter.table) is Table
    assert "on_key_set" not in vars(counter.table)


def in_a_task(app: faust.App, call: Callable[[], object]) -> None:
    @app.task
    async def work() -> None:
        call()


def in_a_timer(app: faust.App, call: Callable[[], object]) -> None:
    @app.timer(0.1)
    async def work() -> None:
        call()


@pytest.mark.parametrize("declare", [in_a_task, in_a_timer])
@pytest.mark.parametrize("make", ["Table", "GlobalTable", "SetTable"])
def test_tasks_and_timers_end_it_too(declare: Any, make: str) -> None:
    app = an_app()
    tables = [getattr(app, make)("rows")]

    @app.agent(app.topic("in"))
    async def work(stream: Any) -> None:
        async for _ in stream:
            pass

    declare(app, lambda: use(tables[0], "copy"))
    with (
        TestApp(app) as test,
        pytest.raises(ProcessingError, match=rf"copy of table rows \({PLACE}\) is not supported"),
    ):
        test.driver.advance_wall_clock_time(200)


def test_all_that_is_refused_of_a_table_is_guarded() -> None:
    assert set(GUARDED) == {name for name in REFUSED[Collection] if not hasattr(Service, name)}


class Own(Table):
    """A table with reading of its own."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) * 10

    def __missing__(self, key: Any) -> Any:
        return len(key)


def test_a_class_of_the_program_keeps_its_methods() -> None:
    app, seen = an_app(Table=Own), list[object]()
    table = app.Table("rows")

    @app.agent(app.topic("in", value_type=int))
    async def work(stream: Any) -> None:
        async for value in stream:
            seen.append(table["abc"])
            table["abc"] = value
            seen.extend([table["abc"], isinstance(table, Own), type(table).__name__, type(table.clone(name="x"))])

    with TestApp(app) as test:
        test.send("in", value=2)
    assert seen == [30, 20, True, "Own", Own]
    assert type(copy.copy(table)) is Own
