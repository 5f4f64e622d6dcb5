"""Windowed tables: what one key of them does, whose time counts, and which keys there are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.exceptions import ImproperlyConfigured  # noqa: E402
from faust.windows import HoppingWindow, SlidingWindow, TumblingWindow  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402
from tests.streamsrt.faust.behaviours.hearing import heard  # noqa: E402

LONG_S = 1e12


class Visit(faust.Record):
    """With times of several kinds."""

    page: str
    at: float = 0.0
    day: str = ""
    moment: datetime | None = None


@pytest.mark.parametrize(
    "change",
    [
        operator.iadd,
        operator.isub,
        operator.imul,
        operator.itruediv,
        operator.ifloordiv,
        operator.imod,
        operator.ipow,
        operator.ilshift,
        operator.irshift,
        operator.iand,
        operator.ixor,
        operator.ior,
    ],
)
def test_every_operator_changes_each_window_of_the_time(change: Callable[[Any, Any], Any]) -> None:
    app = an_app()
    table = app.Table("rows", default=lambda: 12).hopping(10, 5)

    async def work(stream: Any, seen: list[Any]) -> None:
        async for value in stream:
            table["k"] = change(table["k"], value)
            seen.append(table["k"].value())

    assert heard(work, 5, 3, app=app) == [change(12, 5), change(change(12, 5), 3)]


def test_a_windows_value_now_then_and_before() -> None:
    app = an_app()
    by_record = app.Table("rows", default=int).tumbling(2)
    by_clock = app.Table("more", default=int).tumbling(LONG_S).relative_to_now()

    async def work(stream: Any, seen: list[Any]) -> None:
        async for value in stream:
            by_record["k"] += value
            by_clock["k"] += value
            row = by_record["k"]
            seen.append((row.value(), row.current(), row.delta(2), row.now(), by_clock["k"].now()))

    assert heard(work, 1, 2, 4, 8, app=app) == [(1, 1, 0, 1, 1), (2, 2, 1, 2, 3), (6, 6, 1, 6, 7), (8, 8, 6, 8, 15)]


def test_one_window_is_read_set_and_deleted_by_its_range() -> None:
    app = an_app()
    table = app.Table("rows", default=int).tumbling(10)
    window = TumblingWindow(10).ranges(1.0)[0]

    async def work(stream: Any, seen: list[Any]) -> None:
        async for event in stream.events():
            row = table["k"]
            row[window] = 5
            seen.append((row[window], row.value(), table["k"][event].value()))
            with pytest.raises(NotImplementedError):
                row[event] = 1
            with pytest.raises(NotImplementedError):
                del row[event]
            del row[window]
            seen.append("k" in table)

    assert heard(work, 1, app=app) == [(5, 5, 5), False]


def test_keys_are_in_the_windows_of_the_time_or_not() -> None:
    app = an_app()
    table = app.Table("rows", default=int).tumbling(2)

    async def work(stream: Any, seen: list[Any]) -> None:
        async for value in stream:
            seen.append("k" in table)
            if value == 1:
                table["k"] = 7
            elif value == 2:
                del table["k"]
            seen.append("k" in table)
            # What an operator gives is set by itself already.
            table["k"] = table["k"]

    assert heard(work, 0, 1, 2, 1, app=app) == [False, False, False, True, True, False, False, True]


@pytest.mark.parametrize(
    ("relative", "windows"),
    [
        (lambda table: table.relative_to_stream(), [0.0, 2.0]),
        (lambda table: table.relative_to_now(), [0.0]),
        (lambda table: table.relative_to(100.0), [100.0]),
        (lambda table: table.relative_to(datetime.fromtimestamp(100, UTC)), [100.0]),
        (lambda table: table.relative_to(lambda event: event.message.timestamp + 10), [10.0, 12.0]),
        (lambda table: table.relative_to_field(Visit.at), [20.0]),
        (lambda table: table.relative_to_field(Visit.day), [1_667_307_600.0]),
        (lambda table: table.relative_to(Visit.at), [20.0]),
    ],
    ids=["stream", "newest", "number", "datetime", "function", "field", "ISO text", "a field as it is"],
)
def test_whose_time_counts(relative: Any, windows: list[float]) -> None:
    app = an_app()
    table = app.Table("rows", default=int)
    windowed = relative(table.tumbling(2))

    @app.agent(app.topic("in", value_type=Visit))
    async def count(stream: Any) -> None:
        async for visit in stream:
            windowed[visit.page] += 1

    with TestApp(app) as test:
        for at in (1.0, 2.0):
            test.send("in", value=Visit("a", 20.5, "2022-11-01T13:00:00+00:00"), timestamp=at)
        assert sorted(key[1][0] for key in test.table("rows")) == windows
        assert not test.driver.counters()["failed_processing"]


def test_a_field_may_be_a_datetime() -> None:
    class Dated(faust.Record, coerce=True):
        at: datetime

    app = an_app()
    table = app.Table("rows", default=int).tumbling(10).relative_to_field(Dated.at)

    @app.agent(app.topic("in", value_type=Dated))
    async def count(stream: Any) -> None:
        async for _ in stream:
            table["k"] += 1

    with TestApp(app) as test:
        test.send("in", value=Dated(at=datetime.fromtimestamp(25, UTC)))
        assert [key[1][0] for key in test.table("rows")] == [20.0]


def test_nothing_else_is_a_time() -> None:
    table = an_app().Table("rows").tumbling(10)
    with pytest.raises(ImproperlyConfigured):
        table.relative_to(object())
    with pytest.raises(RuntimeError, match="outside of stream"):
        table.get_timestamp()


def test_without_an_index_a_windowed_table_does_not_know_its_keys() -> None:
    app = an_app()
    table = app.Table("rows", default=int).tumbling(10)

    async def work(stream: Any, seen: list[Any]) -> None:
        async for _ in stream:
            for use in (len, list, lambda each: list(each.items()), lambda each: each.as_ansitable()):
                with pytest.raises(NotImplementedError):
                    use(table)
            seen.append("refused")

    assert heard(work, 1, app=app) == ["refused"]


def test_an_index_knows_the_keys_of_a_windowed_table() -> None:
    app = an_app()
    table = app.Table("rows", default=int).tumbling(2, key_index=True)

    async def work(stream: Any, seen: list[Any]) -> None:
        async for value in stream:
            table[value] += 1
            items = table.items()
            seen.append(
                (
                    len(table),
                    sorted(table),
                    sorted(table.keys()),
                    sorted(items),
                    sorted(items.current()),
                    sorted(table.values().current()),
                    sorted(items.delta(2)),
                    sorted(items.now()),
                )
            )

    first, second, third = heard(work, "a", "b", "c", app=app)
    assert first == (1, ["a"], ["a"], [("a", 1)], [("a", 1)], [1], [("a", 0)], [("a", 1)])
    assert second[:6] == (2, ["a", "b"], ["a", "b"], [("a", 0), ("b", 1)], [("a", 0), ("b", 1)], [0, 1])
    assert second[6] == [("a", 1), ("b", 0)]
    assert third[:2] == (3, ["a", "b", "c"])
    assert third[3] == [("a", 0), ("b", 1), ("c", 1)]


def test_the_index_is_a_table_that_is_restored() -> None:
    app = an_app()
    table = app.Table("rows", default=int, key_type=str).tumbling(LONG_S, key_index=True)
    seen: list[Any] = []

    @app.agent(app.topic("in", value_type=str, value_serializer="raw"))
    async def count(stream: Any) -> None:
        async for value in stream:
            table[value] += 1
            seen.append((sorted(table.items()), table.relative_to_now().as_ansitable().count("tea")))

    with TestApp(app) as test:
        test.send("in", value="tea")
        test.driver.restart()
        test.send("in", value="milk")
        assert set(test.table("rows-key_index")) == {"tea", "milk"}
    assert seen == [([("tea", 1)], 1), ([("milk", 1), ("tea", 1)], 1)]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_closed_window_is_told_to_a_function_of_either_kind(kind: str) -> None:
    app, told = an_app(table_cleanup_interval=1.0), []

    def now(key: Any, value: Any) -> None:
        told.append((key, value))

    async def later(key: Any, value: Any) -> None:
        told.append((key, value))

    table = app.Table("rows", default=int, on_window_close=now if kind == "function" else later).tumbling(10, expires=5)

    @app.agent(app.topic("in"))
    async def count(stream: Any) -> None:
        async for value in stream:
            table["k"] += value

    with TestApp(app) as test:
        test.send("in", value=3, timestamp=1)
        test.driver.advance_wall_clock_time(10_000)
        assert not told
        test.driver.advance_wall_clock_time(10_000)
        assert told == [(("k", (0.0, 9.9)), 3)]
        assert test.table("rows") == {}


def test_sliding_windows_reach_back_and_forward() -> None:
    app = an_app()
    windowed = app.Table("rows", default=int).using_window(SlidingWindow(10.0, 5.0, 60.0))

    @app.agent(app.topic("in"))
    async def count(stream: Any) -> None:
        async for value in stream:
            windowed["k"] += value

    with TestApp(app) as test:
        test.send("in", value=1, timestamp=20)
        assert test.table("rows") == {("k", (10.0, 25.0)): 1}


@pytest.mark.parametrize("at", [0.0, 6.0, 456.0, 1_603_122_451.544989])
def test_the_windows_of_a_record_are_those_that_faust_computes(at: float) -> None:
    app = an_app()
    table = app.Table("rows", default=int).hopping(57, 23)

    @app.agent(app.topic("in"))
    async def count(stream: Any) -> None:
        async for value in stream:
            table["k"] += value

    with TestApp(app) as test:
        test.send("in", value=1, timestamp=at)
        at_ms = round(at * 1000) / 1000
        assert sorted(key[1] for key in test.table("rows")) == sorted(HoppingWindow(57, 23).ranges(at_ms))
