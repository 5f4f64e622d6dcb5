"""Rows that can't be read stop the application, and no record is passed over for them."""

from __future__ import annotations

from typing import Any

import pytest

from streamsrt.errors import UserError
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.unreadable import UnreadableRowError, reading  # noqa: E402


class Total(faust.Record):
    """What a row is."""

    amount: int


named = an_app()
rows = named.Table("rows", value_type=int)


def test_the_message_names_the_line_of_the_table() -> None:
    with pytest.raises(
        UnreadableRowError, match=r"^a row of table rows \(.*test_unreadable\.py:\d+\) can't be read"
    ) as raised:
        reading(rows, int)(b"many")
    assert "ValueError" in str(raised.value)
    assert str(raised.value.of_key("k")).startswith("a row with key 'k' of table rows (")


def adding(*, hides: bool) -> tuple[faust.App, list[Any]]:
    """An agent whose rows are models. ``hides``: it lets no exception out."""
    app, seen = an_app(), []
    totals = app.Table("totals", value_type=Total)

    @app.agent(app.topic("in", key_type=str, value_type=str))
    async def add(stream: Any) -> None:
        async for key, value in stream.items():
            try:
                if key in totals:
                    seen.append(totals[key])
            except Exception:
                if not hides:
                    raise
            # Faust writes whatever it is given.
            totals[key] = value

    return app, seen


@pytest.mark.parametrize("hides", [False, True])
def test_the_application_stops_with_table_key_and_line(hides: bool) -> None:
    app, seen = adding(hides=hides)
    with (
        pytest.raises(UserError, match=r"^a row with key 'a' of table totals.* can't be read: TypeError"),
        TestApp(app) as test,
    ):
        _restart_between(test, "a")
    assert seen == []


def _restart_between(test: TestApp, key: str) -> None:
    test.send("in", key="a", value="no model")
    test.driver.restart()
    test.send("in", key=key, value="next")


def test_a_set_that_can_not_be_read_stops_it_too() -> None:
    app = an_app()
    groups = app.SetTable("groups")

    @app.agent(app.topic("in", key_type=str, value_type=str))
    async def add(stream: Any) -> None:
        async for key, value in stream.items():
            # In JSON, a tuple becomes a list, which no set can have.
            groups[key].add((value, 1))

    with (
        pytest.raises(UserError, match=r"^a row with key 'a' of table groups.* can't be read: TypeError"),
        TestApp(app) as test,
    ):
        _restart_between(test, "a")


def test_an_iteration_over_such_rows_stops_it_too() -> None:
    app = an_app()
    totals = app.Table("totals", value_type=Total)

    @app.agent(app.topic("in", key_type=str, value_type=str))
    async def add(stream: Any) -> None:
        async for key, value in stream.items():
            list(totals)
            totals[key] = value

    with pytest.raises(UserError, match=r"^a row of table totals.* can't be read"), TestApp(app) as test:
        _restart_between(test, "b")
