"""``on_changelog_event`` of tables."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.streamsrt.faust.apps import an_app, summing
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

from streamsrt.errors import StreamsError  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.sends import is_bound  # noqa: E402


class Order(faust.Record):
    """What is ordered."""

    item: str
    amount: int


def keeping(app: faust.App, table: faust.Table) -> None:
    """An agent that keeps the last order of each item."""

    @app.agent(app.topic("orders", value_type=Order))
    async def keep(orders: Any) -> None:
        async for order in orders:
            table[order.item] = order


def test_it_is_called_for_each_row_before_the_first_record() -> None:
    heard: list[Any] = []

    async def hear(event: Any) -> None:
        message = event.message
        heard.append((event.key, event.value, message.topic, message.partition, message.key, len(last)))

    app = an_app()
    last = app.Table("last", key_type=str, value_type=Order, on_changelog_event=hear)
    keeping(app, last)
    with TestApp(app, partitions=2) as test:
        for amount, (item, partition) in enumerate((("a", 0), ("b", 1), ("a", 0), ("c", 1))):
            test.send("orders", value=Order(item, amount), partition=partition)
        assert heard == []
        test.driver.restart()
        topic = "shop-last-changelog"
        assert sorted(heard, key=str) == [
            ("a", Order("a", 2), topic, 0, b'"a"', 1),
            ("b", Order("b", 1), topic, 1, b'"b"', 3),
            ("c", Order("c", 3), topic, 1, b'"c"', 3),
        ]


def test_keys_of_windows_are_as_in_the_changelog() -> None:
    heard: list[Any] = []

    async def hear(event: Any) -> None:
        heard.append((event.key, event.value))

    app = an_app()
    counts = app.Table("counts", default=int, on_changelog_event=hear).tumbling(10.0)
    summing(app, counts, Order)

    with TestApp(app) as test:
        test.send("orders", value=Order("a", 5), timestamp=12.0)
        test.driver.restart()
    assert heard == [(["a", [10.0, 19.9]], 5)]


class Heard(faust.Table):
    """A table of the application's own class."""

    async def on_changelog_event(self, event: Any) -> None:
        raise ValueError(event.key)


def test_what_it_raises_is_logged_and_the_next_row_follows(caplog: pytest.LogCaptureFixture) -> None:
    app = an_app(Table=Heard)
    keeping(app, app.Table("last", key_type=str, value_type=Order))
    with TestApp(app) as test:
        for item in "ab":
            test.send("orders", value=Order(item, 1))
        with caplog.at_level(logging.ERROR):
            test.driver.restart()
        test.send("orders", value=Order("c", 1))
        assert len(test.table("last")) == 3
    said = [each.getMessage() for each in caplog.records]
    assert said == [f"on_changelog_event of table last raised for {item}" for item in "ab"]


def test_it_changes_no_rows() -> None:
    async def hear(event: Any) -> None:
        last["b"] = event.value

    app = an_app()
    last = app.Table("last", key_type=str, value_type=Order, on_changelog_event=hear)
    keeping(app, last)
    with TestApp(app) as test:
        test.send("orders", value=Order("a", 1))
        with pytest.raises(StreamsError, match=r"table \S+ can't be changed by what is no agent"):
            test.driver.restart()
    assert not is_bound(app)
