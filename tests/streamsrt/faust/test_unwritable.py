"""Rows with the key None, and keys that can't be written."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from streamsrt.errors import ProcessingError
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402

Make = Callable[[faust.App], Any]
Change = Callable[[Any, Any, int], object]
WINDOW = (None, (0.0, 9.9))


class Point(faust.Record):
    """A key that is a model."""

    x: int


def working(make: Make, change: Change) -> tuple[faust.App, Any]:
    """An application whose agent changes a table."""
    app = an_app()
    rows = make(app)

    @app.agent(app.topic("in", key_type=str, value_type=int))
    async def work(stream: Any) -> None:
        async for key, value in stream.items():
            change(rows, key, value)

    return app, rows


def _add(rows: Any, key: Any, value: int) -> None:
    rows[key] += value


def _put(rows: Any, key: Any, value: int) -> None:
    rows[key].add(value)


@pytest.mark.parametrize("kind", [None, str, int, float, Point])
@pytest.mark.parametrize("make", [faust.App.Table, faust.App.GlobalTable])
def test_a_row_with_the_key_none_is_kept(make: Any, kind: Any) -> None:
    app, rows = working(lambda app: make(app, "rows", key_type=kind, default=int), _add)
    with TestApp(app) as test:
        for value in (1, 2):
            test.send("in", value=value)
        test.driver.restart()
        test.send("in", value=3)
        assert test.table(rows) == {None: 6}
        log = [each.key for each in test.driver.producer_history if each.topic == "shop-rows-changelog"]
        assert set(log) == {b"null"}


def test_windows_and_sets_with_the_key_none_are_kept() -> None:
    windows, counts = working(lambda app: app.Table("rows", default=int).tumbling(10, key_index=True), _add)
    sets, seen = working(lambda app: app.SetTable("rows", key_type=str), _put)
    for app, rows, change in ((windows, counts, {WINDOW: 6}), (sets, seen, {None: {1, 2, 3}})):
        with TestApp(app) as test:
            for value in (1, 2):
                test.send("in", value=value)
            test.driver.restart()
            test.send("in", value=3)
            assert test.table(rows) == change


def test_a_row_with_the_key_none_is_found_and_deleted() -> None:
    found: list[object] = []

    def change(rows: Any, key: Any, value: int) -> None:
        found.append(None in rows)
        rows[None] = value
        found.extend([None in rows, list(rows), rows.pop(None), None in rows])
        rows[None] = value
        del rows[None]

    app, rows = working(lambda app: app.Table("rows"), change)
    with TestApp(app) as test:
        test.send("in", value=5)
        assert test.table(rows) == {}
    assert found == [False, True, [None], 5, False]


def test_faust_reads_the_key_none_of_what_is_written_here() -> None:
    table = an_app().Table("rows", default=int)
    key = table.app.serializers.loads_key(None, b"null", serializer=table.key_serializer)
    assert table._to_key(key) is None


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda app: app.Table("rows", key_type=bytes, default=int), None),
        (lambda app: app.Table("rows", default=int), object),
        (lambda app: app.Table("rows", default=int), {1: 2}.keys()),
        (lambda app: app.GlobalTable("rows", default=int), object),
    ],
)
def test_a_key_that_cannot_be_written_is_told_where_it_is_assigned(make: Make, key: object) -> None:
    def change(rows: Any, _: Any, value: int) -> None:
        assert key not in rows
        assert rows.get(key, 7) in (0, 7)
        assert not list(rows)
        rows[key] = value

    app, rows = working(make, change)
    line = f"{re.escape(__file__)}:{change.__code__.co_firstlineno + 4}"
    message = rf"the key {re.escape(repr(key))} of table rows can't be written: .* \(at {line}\)"
    with (
        TestApp(app, {"processing.exception.handler": "fail"}) as test,
        pytest.raises(ProcessingError, match=message),
    ):
        test.send("in", value=1)
    with TestApp(app) as test:
        test.send("in", value=1)
        assert test.driver.counters()["failed_processing"] == 1
        assert test.table(rows) == {}


@pytest.mark.parametrize(
    "change", [lambda rows, _, value: rows.update({object: value}), lambda rows, _, __: rows.setdefault(object, 1)]
)
def test_other_ways_of_writing_name_the_line_of_the_program(change: Change) -> None:
    app, _ = working(lambda app: app.Table("rows"), change)
    line = f"{re.escape(__file__)}:{change.__code__.co_firstlineno}"
    with (
        TestApp(app, {"processing.exception.handler": "fail"}) as test,
        pytest.raises(ProcessingError, match=rf"the key <class 'object'> of table rows .* \(at {line}\)"),
    ):
        test.send("in", value=1)
