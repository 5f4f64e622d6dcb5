"""Tables and windows over the stores of a task, in faust's bytes."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from streamsrt.errors import UserError
from tests.streamsrt.faust.apps import an_app, counting, summing
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.tables import TableRows, store_of  # noqa: E402


class Order(faust.Record):
    """What is ordered."""

    item: str
    amount: int
    at: float = 0.0


def test_rows_are_changed_deleted_and_restored() -> None:
    app = an_app()
    totals = app.Table("totals", default=int)
    seen: list[Any] = []

    @app.agent(app.topic("orders", value_type=Order))
    async def count(orders: Any) -> None:
        async for order in orders:
            if order.amount < 0:
                seen.append((totals.pop(order.item, None), order.item in totals, sorted(totals), len(totals)))
            else:
                totals[order.item] += order.amount

    with TestApp(app) as test:
        for item, amount in (("a", 1), ("b", 2), ("a", 3), ("b", -1)):
            test.send("orders", value=Order(item, amount))
        assert test.table("totals") == {"a": 4}
        test.driver.restart()
        test.send("orders", value=Order("a", 10))
        assert test.table("totals") == {"a": 14}
        log = [(each.key, each.value) for each in test.driver.producer_history if each.topic == "shop-totals-changelog"]
    assert log == [(b'"a"', b"1"), (b'"b"', b"2"), (b'"a"', b"4"), (b'"b"', None), (b'"a"', b"14")]
    assert seen == [(2, False, ["a"], 1)]


def test_models_are_rows() -> None:
    app = an_app()
    last = app.Table("last", key_type=str, value_type=Order)

    @app.agent(app.topic("orders", value_type=Order))
    async def keep(orders: Any) -> None:
        async for order in orders:
            last[order.item] = order

    with TestApp(app) as test:
        test.send("orders", value=Order("a", 1))
        test.driver.restart()
        assert test.table("last") == {"a": Order("a", 1)}


def test_each_partition_has_its_own_rows() -> None:
    app = an_app()
    totals = app.Table("totals", default=int)
    summing(app, totals, Order)

    with TestApp(app, partitions=2) as test:
        test.send("orders", value=Order("a", 1), partition=0)
        test.send("orders", value=Order("a", 2), partition=1)
        assert (test.table("totals"), test.table("totals", partition=1)) == ({"a": 1}, {"a": 2})


@pytest.mark.parametrize("kind", ["tumbling", "hopping"])
def test_windows_by_the_time_of_the_record(kind: str) -> None:
    app = an_app()
    table = app.Table("totals", default=int)
    totals = table.tumbling(10, expires=60) if kind == "tumbling" else table.hopping(10, 5, expires=60)
    seen: list[Any] = []

    @app.agent(app.topic("orders", value_type=Order))
    async def count(orders: Any) -> None:
        async for order in orders:
            totals[order.item] += order.amount
            seen.append((totals[order.item].current(), totals[order.item].delta(10)))

    with TestApp(app) as test:
        for at in (0.0, 3.0, 12.0):
            test.send("orders", value=Order("a", 1), timestamp=at)
        windows = {key[1][0]: value for key, value in test.table("totals").items()}
        keys = {each.key for each in test.driver.producer_history if each.topic == "shop-totals-changelog"}
    if kind == "tumbling":
        assert windows == {0.0: 2, 10.0: 1}
        assert seen == [(1, 0), (2, 0), (1, 2)]
        assert keys == {b'["a",[0.0,9.9]]', b'["a",[10.0,19.9]]'}
    else:
        assert windows == {-5.0: 2, 0.0: 2, 5.0: 1, 10.0: 1}


def test_windows_by_a_field() -> None:
    app = an_app()
    totals = app.Table("totals", default=int).tumbling(10, expires=60).relative_to_field(Order.at)
    seen: list[int] = []

    @app.agent(app.topic("orders", value_type=Order))
    async def count(orders: Any) -> None:
        async for order in orders:
            totals[order.item] += order.amount
            seen.append(totals[order.item].value())

    with TestApp(app) as test:
        for at in (5.0, 25.0, 6.0):
            test.send("orders", value=Order("a", 1, at))
        assert sorted(key[1][0] for key in test.table("totals")) == [0.0, 20.0]
    assert seen == [1, 1, 2]


def test_windows_expire_by_the_wall_clock_after_a_restart_too() -> None:
    app = an_app(table_cleanup_interval=1.0)
    totals = app.Table("totals", default=int).tumbling(10, expires=60)
    summing(app, totals, Order)

    with TestApp(app) as test:
        test.send("orders", value=Order("old", 1), timestamp=0.0)
        test.send("orders", value=Order("new", 1), timestamp=65.0)
        test.driver.restart()
        test.driver.advance_wall_clock_time(60_000)
        assert len(test.table("totals")) == 2, "the end of the first window is 9.9"
        test.driver.advance_wall_clock_time(15_000)
        assert [key[0] for key in test.table("totals")] == ["new"]
        last = test.driver.producer_history[-1]
    assert (orjson.loads(last.key or b""), last.value) == (["old", [0.0, 9.9]], None)


def test_each_window_that_closes_is_told_with_its_value_in_every_partition() -> None:
    app, told = an_app(table_cleanup_interval=1.0), []
    out = app.topic("out")

    async def closed(key: Any, value: Any) -> None:
        told.append((key, value))
        await out.send(key=key[0], value=value)
        if value == 15:
            raise ValueError("no luck")

    totals = app.Table("totals", default=int, on_window_close=closed).tumbling(10, expires=60)
    summing(app, totals, Order)

    with TestApp(app, partitions=2) as test:
        for item, amount, at, partition in (
            ("a", 13, 1, 0),
            ("a", 2, 3, 0),
            ("c", 1, 3, 0),
            ("b", 5, 2, 1),
            ("a", 4, 65, 0),
        ):
            test.send("orders", value=Order(item, amount), timestamp=at, partition=partition)
        test.driver.restart()
        test.driver.advance_wall_clock_time(75_000)
        assert sorted(told) == [(("a", (0.0, 9.9)), 15), (("b", (0.0, 9.9)), 5), (("c", (0.0, 9.9)), 1)]
        assert sorted(test.received("out"), key=str) == [(b"a", 15), (b"b", 5), (b"c", 1)]
        test.driver.restart(clean=False)
        test.driver.advance_wall_clock_time(75_000)
        assert told[3:] == [(("a", (60.0, 69.9)), 4)], "the others are gone with their rows"


def test_an_application_gets_its_tables_back() -> None:
    app = an_app()
    totals = app.Table("totals", default=int)
    summing(app, totals, Order)

    own, send = vars(totals).copy(), faust.topics.Topic.send
    attachments = app._attachments
    with TestApp(app) as test:
        test.send("orders", value=Order("a", 1))
        assert app._attachments is not attachments
        assert faust.topics.Topic.send is not send
    assert {name: value for name, value in vars(totals).items() if name in own} == own
    assert app._attachments is attachments
    assert faust.topics.Topic.send is send


def test_a_table_keeps_its_rows_in_the_changelog_that_it_is_given() -> None:
    app = an_app()
    log = app.topic("shop-former-changelog", key_type=str, value_type=int, compacting=True)
    totals = app.Table("totals", default=int, changelog_topic=log)

    @app.agent(app.topic("in", key_type=str, value_type=int))
    async def add(stream: Any) -> None:
        async for key, value in stream.items():
            totals[key] += value

    with TestApp(app) as test:
        test.send("in", key="a", value=1)
        test.driver.restart()
        test.send("in", key="a", value=2)
        assert test.table(totals) == {"a": 3}
        assert {each.topic for each in test.driver.producer_history} == {"shop-former-changelog"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"compacting": True, "retention": 60.0}, {}),
        ({"compacting": True, "deleting": True}, {"cleanup.policy": "compact,delete"}),
        ({"deleting": True, "retention": 60.0}, {"cleanup.policy": "delete", "retention.ms": "60000"}),
        (
            {"deleting": True, "retention": 60.0, "config": {"retention.ms": 5, "segment.ms": 7}},
            {"cleanup.policy": "delete", "retention.ms": "5", "segment.ms": "7"},
        ),
    ],
)
def test_the_changelog_is_kept_for_as_long_as_its_topic_says(given: Any, kept: dict[str, str]) -> None:
    app = an_app()
    log = app.topic("shop-totals-changelog", internal=True, partitions=3, **given)
    assert store_of(app.Table("totals", changelog_topic=log)).changelog_config == kept


@pytest.mark.parametrize("given", [{}, {"expires": 60.0}])
def test_changelogs_of_windows_are_compacted_only(given: Any) -> None:
    """Their records have the time of the event: a broker would delete windows that have not expired."""
    app = an_app()
    totals = app.Table("totals", default=int).tumbling(10.0, **given)

    @app.agent(app.topic("orders", value_type=str))
    async def count(orders: Any) -> None:
        async for order in orders:
            totals[order] += 1

    with TestApp(app) as test:
        test.send("orders", value="tea", timestamp=1_000)
        log = [each.timestamp for each in test.driver.producer_history if each.topic == "shop-totals-changelog"]
    assert set(log) == {1_000_000}
    assert store_of(app.tables["totals"]).changelog_config == {}


def test_a_changelog_that_can_not_be_used_is_refused_with_what_to_do() -> None:
    app = an_app()
    counting(app)
    app.Table("sums", changelog_topic=app.topic("my-sums"))
    with pytest.raises(
        UserError, match=r"^changelog_topic='my-sums' of table sums.* copy its records to shop-sums-changelog"
    ):
        TestApp(app)


def test_an_application_runs_once_at_a_time() -> None:
    app = an_app()
    counting(app)
    with TestApp(app) as test:
        with pytest.raises(UserError, match="the application shop runs in this process already"):
            TestApp(app)
        test.send("orders", value="a")
        assert test.table("totals") == {"a": 1}
    with TestApp(app) as again:
        again.send("orders", value="a")


def test_a_table_is_cleared_with_one_look_at_its_rows() -> None:
    class Kept:
        def __init__(self) -> None:
            self.rows: dict[Any, Any] = dict.fromkeys(range(100), 1)
            self.looks = 0

        def get(self, key: object, /) -> object:
            return self.rows.get(key)

        def put(self, key: object, value: object, /) -> None:
            assert value is None
            del self.rows[key]

        def all(self) -> Any:
            self.looks += 1
            return iter(list(self.rows.items()))

        def approximate_num_entries(self) -> int:
            return len(self.rows)

    kept = Kept()
    TableRows(lambda: kept, lambda _: None).clear()
    assert (kept.rows, kept.looks) == ({}, 1)
