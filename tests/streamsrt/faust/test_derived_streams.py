"""``group_by`` and ``through``: streams by another topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import chain, product, repeat
from typing import Any

import pytest

from streamsrt.errors import UserError
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.agents import HELD_MAX, WORKING  # noqa: E402
from streamsrt.faust.program import declared_topics  # noqa: E402


class Order(faust.Record):
    """What is ordered."""

    item: str
    account: str
    amount: int


ORDERS = [Order(f"item-{number % 2}", f"account-{number % 3}", number) for number in range(6)]


def test_records_are_grouped_by_a_field() -> None:
    app = an_app(topic_partitions=4)
    totals = app.Table("totals", key_type=str, default=int)
    calls: list[str] = []

    @app.agent(app.topic("orders", value_type=Order), name="shop.regroup")
    async def regroup(stream: Any) -> None:
        calls.append("began")
        async for event in stream.group_by(Order.account).events():
            assert faust.current_event() is event
            totals[event.key.decode()] += event.value.amount

    topic = "shop.regroup-orders-Order.account-repartition"
    assert {each.name: each.partitions for each in declared_topics(app)} == {"orders": 4, topic: 4}
    calls.clear()
    with TestApp(app) as test:
        assert calls == ["began"], "once without records, to see what it derives"
        for order in ORDERS:
            test.send("orders", key="k", value=order)
        assert test.table("totals") == {"account-0": 3, "account-1": 5, "account-2": 7}
        assert [row.key for row in test.driver.output_queue(topic)] == [b"account-%d" % (n % 3) for n in range(6)]
        test.driver.restart()
        test.send("orders", value=Order("item", "account-0", 1))
        assert test.table("totals")["account-0"] == 4


def test_by_a_function_after_another_topic() -> None:
    app = an_app()
    chosen = app.topic("chosen", value_type=Order)

    async def item(order: Order) -> str:
        if order.amount == 3:
            raise ValueError("no item")
        return order.item

    @app.agent(app.topic("orders", value_type=Order), name="shop.items", sink=[chosen])
    async def items(stream: Any) -> AsyncIterator[Order]:
        async for order in stream.filter(lambda order: order.amount > 1).through("copies").group_by(item, name="item"):
            yield order

    with TestApp(app) as test:
        for order in ORDERS:
            test.send("orders", value=order)
        assert len(test.driver.output_queue("copies")) == 6, "what was added before goes with the derived stream"
        assert [row.key for row in test.driver.output_queue("copies-item-repartition")] == [
            b"item-0",
            b"item-1",
            b"item-0",
            b"item-0",
            b"item-1",
        ]
        assert test.received("chosen") == [(None, order) for order in ORDERS if order.amount > 1 and order.amount != 3]


def test_an_agent_that_raises_is_called_again_on_both_sides() -> None:
    app = an_app()
    seen: list[int] = []

    @app.agent(app.topic("orders", value_type=Order))
    async def fragile(stream: Any) -> None:
        async for order in stream.group_by(Order.item):
            if order.amount == 2:
                raise ValueError("two")
            seen.append(order.amount)

    with TestApp(app) as test:
        test.driver.pipe_raw("orders", None, b"{", 0)
        for order in ORDERS:
            test.send("orders", value=order)
        counters = test.driver.counters()
    assert seen == [0, 1, 3, 4, 5]
    assert (counters["failed_processing"], counters["failed_deserialization"]) == (1, 1)


def _two(app: faust.App) -> None:
    @app.agent(app.topic("orders", value_type=Order))
    async def two(stream: Any) -> None:
        stream.group_by(Order.item)
        async for _ in stream.group_by(Order.account):
            pass


def _unnamed(app: faust.App) -> None:
    @app.agent(app.topic("orders", value_type=Order))
    async def unnamed(stream: Any) -> None:
        async for _ in stream.group_by(len):
            pass


def _at_once(app: faust.App) -> None:
    @app.agent(app.topic("orders", value_type=Order), concurrency=2)
    async def at_once(stream: Any) -> None:
        async for _ in stream.group_by(Order.item):
            pass


def _ambiguous(app: faust.App) -> None:
    @app.agent(app.topic("orders", "others", value_type=Order))
    async def ambiguous(stream: Any) -> None:
        async for _ in stream.group_by(Order.item):
            pass


def _broken(app: faust.App) -> None:
    @app.agent(app.topic("orders", value_type=Order))
    async def broken(stream: Any) -> None:
        grouped = stream.group_by(Order.item)
        raise ValueError(f"no connection to {type(grouped).__name__}")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (_two, "derives two streams from one"),
        (_unnamed, "needs name="),
        (_at_once, r"at_once .*test_derived_streams\.py:\d+\) has concurrency=2"),
        (_ambiguous, r"ambiguous .* derives a stream for .*, which is not one topic"),
        (_broken, r"broken .*test_derived_streams\.py:\d+\) raised ValueError: no connection to AgentStream before"),
    ],
)
def test_mistakes_are_told_at_the_start(declare: Any, message: str) -> None:
    app = an_app()
    declare(app)
    with pytest.raises(UserError, match=message):
        streamsrt.faust.topology(app)


Steps = Mapping[str, Callable[[Any, faust.App], Any]]
STEPS: Steps = {
    "by a field": lambda stream, app: stream.group_by(Order.account),
    "by a function": lambda stream, app: stream.group_by(lambda order: order.item, name="item"),
    "by a topic": lambda stream, app: stream.group_by(Order.item, topic=app.topic("own", value_type=Order)),
    "through a name": lambda stream, app: stream.through("copies"),
    "through a topic": lambda stream, app: stream.through(app.topic("others", value_type=Order)),
}
KEYS: Mapping[str, Callable[[str, Order], str]] = {
    "by a field": lambda key, order: order.account,
    "by a function": lambda key, order: order.item,
    "by a topic": lambda key, order: order.item,
    "through a name": lambda key, order: key,
    "through a topic": lambda key, order: key,
}


async def names_of_faust(steps: Sequence[str]) -> list[str]:
    """The topics that Faust's own streams derive."""
    app = an_app()
    stream = app.stream(app.topic("orders", value_type=Order), prefix="shop.chained")
    found = []
    for step in steps:
        stream = STEPS[step](stream, app)
        found.append(stream.channel.get_topic_name())
    return found


def chained(app: faust.App, steps: Sequence[str]) -> list[tuple[str, int]]:
    """An agent that derives its stream in these steps. Returns what it sees."""
    seen: list[tuple[str, int]] = []

    @app.agent(app.topic("orders", value_type=Order), name="shop.chained")
    async def see(stream: Any) -> None:
        # The start looks for these names.
        assert callable(stream.group_by)
        assert callable(stream.through)
        for step in steps:
            stream = STEPS[step](stream, app)
        async for event in stream.events():
            seen.append((event.key.decode(), event.value.amount))

    return seen


@pytest.mark.filterwarnings("ignore:coroutine 'Stream._passive_drainer' was never awaited")
@pytest.mark.parametrize("first", STEPS)
def test_every_chain_has_the_topics_of_faust_and_loses_nothing(first: str) -> None:
    for steps in [(first, *rest) for length in range(3) for rest in product(STEPS, repeat=length)]:
        names, app = asyncio.run(names_of_faust(steps)), an_app()
        seen = chained(app, steps)
        if len(set(names)) < len(names):
            with pytest.raises(UserError, match="would go round for ever"):
                streamsrt.faust.topology(app)
            continue
        with TestApp(app) as test:
            for order in ORDERS:
                test.send("orders", key="k", value=order)
            sent = {name: [record.key for record in test.driver.output_queue(name)] for name in names}
        keys, expected = ["k"] * len(ORDERS), {}
        for name, step in zip(names, steps, strict=True):
            keys = [KEYS[step](key, order) for key, order in zip(keys, ORDERS, strict=True)]
            expected[name] = [key.encode() for key in keys]
        assert sent == expected, steps
        assert seen == [(key, order.amount) for key, order in zip(keys, ORDERS, strict=True)], steps


def test_streams_that_are_not_those_of_the_start_end_the_application() -> None:
    app, keys = an_app(), chain([Order.item], repeat(Order.account))

    @app.agent(app.topic("orders", value_type=Order), name="shop.fickle")
    async def fickle(stream: Any) -> None:
        async for _ in stream.group_by(next(keys)):
            pass

    with (
        TestApp(app) as test,
        pytest.raises(
            UserError, match=r"shop\.fickle .* derives a stream for .*Order\.account.* at the start one for .*item"
        ),
    ):
        test.send("orders", value=ORDERS[0])


def test_what_an_agent_does_before_its_loop_does_not_make_its_records_few() -> None:
    app = an_app()
    rooms: dict[str, list[int]] = {"relay": [], "agent": []}

    def key(order: Order) -> str:
        rooms["relay"].append(WORKING.get().node.room)
        return order.account

    @app.agent(app.topic("orders", value_type=Order))
    async def late(stream: Any) -> None:
        for _ in range(10):
            await next_turn()
        async for _ in stream.group_by(key, name="account"):
            rooms["agent"].append(WORKING.get().node.room)

    with TestApp(app) as test:
        for order in ORDERS:
            test.send("orders", value=order)
    assert {name: seen[-1] for name, seen in rooms.items()} == {"relay": HELD_MAX - 1, "agent": HELD_MAX - 1}


def regrouped(stream: Any) -> Any:
    """A function that an agent calls."""
    return stream.group_by(Order.item)


def test_a_function_that_the_agent_calls_may_derive_its_stream() -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("orders", value_type=Order))
    async def work(stream: Any) -> None:
        async for order in regrouped(stream):
            seen.append(order.item)

    with TestApp(app) as test:
        for order in ORDERS:
            test.send("orders", value=order)
    assert sorted(seen) == sorted(order.item for order in ORDERS)


@pytest.mark.parametrize("groups_first", [True, False])
def test_an_agent_that_derives_other_streams_later_ends_the_application(groups_first: bool) -> None:
    app, seen = an_app(), []
    conditions = iter([groups_first])

    @app.agent(app.topic("orders", value_type=Order))
    async def work(stream: Any) -> None:
        if next(conditions, not groups_first):
            stream = stream.group_by(Order.item)
        async for order in stream:
            seen.append(order)

    with (
        TestApp(app) as test,
        pytest.raises(
            UserError, match=r"agent .*work.* (does not derive|derives) a stream .* at the start: call group_by"
        ),
    ):
        test.send("orders", value=ORDERS[0])
    assert not seen


def test_an_agent_may_group_where_a_setting_says_so() -> None:
    for groups in (True, False):
        app, seen = an_app(), []

        @app.agent(app.topic("orders", value_type=Order))
        async def work(stream: Any, groups: bool = groups, seen: list[Any] = seen) -> None:
            if groups:
                stream = stream.group_by(Order.item)
            async for event in stream.events():
                seen.append(event.message.topic)

        with TestApp(app) as test:
            test.send("orders", value=ORDERS[0])
        assert len(seen) == 1
        assert (seen[0] == "orders") is not groups
