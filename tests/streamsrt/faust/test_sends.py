"""What agents send, and in which bytes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from streamsrt.errors import MissingTopicError, UserError
from streamsrt.wire.records import RecordColumns
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.testing.topology_test_driver import TopologyTestDriver  # noqa: E402


class Price(faust.Record, coerce=True):
    """A value within another."""

    amount: Decimal
    currency: str = "EUR"


class Offer(faust.Record, serializer="json"):
    """A value with another in it."""

    item: str
    price: Price


class Event(faust.Record, polymorphic_fields=True):
    """What any of several kinds of values may be in."""

    what: faust.Record


def sent(send: Any, source: Any = None, **options: Any) -> list[Any]:
    """What an agent sends to the topic ``out`` for one record."""
    app = an_app()
    topic = app.topic("in") if source is None else source(app)

    @app.agent(topic)
    async def relay(stream: Any) -> None:
        async for event in stream.events():
            await send(app, event)

    with TestApp(app, partitions={"out": 4}, now_ms=7_000) as test:
        test.send(topic, **{"key": b"k", "value": {"a": 1}, "timestamp": 3.0, **options})
        return [
            (each.key, each.value, each.partition, each.timestamp, each.headers)
            for each in test.driver.output_queue("out")
        ]


def test_a_topic_serialises_as_with_faust() -> None:
    async def send(app: Any, event: Any) -> None:
        await app.topic("out").send(key="text", value="text", partition=0)
        await app.topic("out", key_type=str, value_type=bytes).send(key="text", value=b"raw", partition=0)
        await app.topic("out", value_serializer="raw").send(value="raw", partition=0)
        await app.topic("out", key_type=Price, key_serializer="json").send(
            key=Price(Decimal("1.5")), value=None, partition=0
        )

    rows = sent(send)
    assert [row[:2] for row in rows] == [
        (b"text", b'"text"'),
        (b"text", b"raw"),
        (None, b"raw"),
        (b'{"amount":"1.5","currency":"EUR","__faust":{"ns":"' + Price._options.namespace.encode() + b'"}}', b"null"),
    ]
    assert {row[3] for row in rows} == {7_000}, "without a timestamp it is the wall clock's"


def test_partition_timestamp_and_headers_are_those_given() -> None:
    async def send(app: Any, event: Any) -> None:
        topic = app.topic("out")
        await topic.send(value=1)
        await topic.send(value=2, partition=3, timestamp=1.5, headers={"h": b"x"})
        await app.send("out", value=3, headers=[("g", b"y")], partition=0)
        topic.send_soon(value=4, partition=1)
        await topic.send(value=5, partition=2, force=True)

    assert sent(send) == [
        (None, b"1", 0, 7_000, ()),
        (None, b"2", 3, 1_500, (("h", b"x"),)),
        (None, b"3", 0, 7_000, (("g", b"y"),)),
        (None, b"4", 1, 7_000, ()),
        (None, b"5", 2, 7_000, ()),
    ]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"headers": {"h": 5}}, "the header 'h' is 5, which is int, not bytes"),
        ({"headers": {5: b"x"}}, "the name 5 of a header is int, not str"),
        ({"timestamp": "now"}, "type str doesn't define __round__ method"),
        ({"timestamp": float("nan")}, "cannot convert float NaN to integer"),
        ({"timestamp": 1e300}, "the timestamp 1e+300 of a send is no time: give seconds since 1970"),
        ({"partition": "0"}, "'str' object cannot be interpreted as an integer"),
    ],
)
def test_what_can_not_be_sent_fails_in_the_agent_and_leaves_the_other_sends_alone(given: Any, reason: str) -> None:
    app, failed = an_app(), []
    out = app.topic("out", value_type=int)

    @app.agent(app.topic("numbers", value_type=int))
    async def relay(stream: Any) -> None:
        async for number in stream:
            try:
                await out.send(value=number, **(given if number == 1 else {}))
            except (TypeError, ValueError) as error:
                failed.append(str(error))

    with TestApp(app) as test:
        (task,) = test.driver._tasks
        task.add_batch("numbers", 0, RecordColumns([None] * 3, [b"0", b"1", b"2"], [0] * 3, 0, 3))
        task.process(100, 0, finishes=False)
        test.driver.commit()
        assert test.received("out") == [(None, 0), (None, 2)]
    assert failed == [reason]


def test_events_are_forwarded_as_they_came_and_sent_anew() -> None:
    async def send(app: Any, event: Any) -> None:
        await event.forward("out", partition=0)
        await event.send("out", value=event.value["a"], partition=0)

    headers = (("h", b"x"),)
    assert [(row[1], row[4]) for row in sent(send, headers=headers)] == [(b'{"a":1}', headers), (b"1", headers)]


def test_awaiting_a_send_twice_gives_what_is_known_of_it() -> None:
    found: list[Any] = []

    async def send(app: Any, event: Any) -> None:
        found.append(await (await app.topic("out").send(value=1, partition=2)))

    sent(send)
    assert (found[0].topic, found[0].partition, found[0].offset) == ("out", 2, -1)


def test_models_within_models_are_read_as_they_are_written() -> None:
    seen: list[Any] = []

    async def look(app: Any, event: Any) -> None:
        seen.append(event.value)

    sent(look, lambda app: app.topic("in", value_type=Offer), value=Offer("a", Price(Decimal("1.5"))))
    sent(look, lambda app: app.topic("in", value_type=Event), value=Event(Price(Decimal(2))))
    sent(look, value=Price(Decimal(3)))
    assert seen == [Offer("a", Price(Decimal("1.5"))), Event(Price(Decimal(2))), Price(Decimal(3))]
    assert [type(seen[0].price.amount), type(seen[1].what)] == [Decimal, Price]


@pytest.mark.parametrize(
    ("options", "raw", "value"),
    [
        ({"value_type": int}, b'"12"', 12),
        ({"value_type": float}, b"1.5", 1.5),
        ({"value_type": str}, b'"text"', "text"),
        ({"value_type": str, "value_serializer": "raw"}, b"text", "text"),
        ({"value_type": bytes, "value_serializer": "raw"}, b"\xff", b"\xff"),
        ({"value_serializer": "binary"}, b"aGk=", b"hi"),
        ({"value_type": Price}, b'{"amount": "1.5"}', Price(Decimal("1.5"))),
        ({}, None, None),
    ],
)
def test_values_are_decoded_by_type_and_serializer(options: Any, raw: bytes | None, value: Any) -> None:
    app = an_app()
    seen: list[Any] = []

    @app.agent(app.topic("in", **options))
    async def look(stream: Any) -> None:
        async for each in stream:
            seen.append(each)

    with TestApp(app) as test:
        test.driver.pipe_raw("in", None, raw, 0)
    assert seen == [value]
    assert type(seen[0]) is type(value)


def test_a_schema_of_the_programs_own_sees_the_message() -> None:
    class Upper(faust.Schema):
        def loads_value(self, app: Any, message: Any, **options: Any) -> Any:
            return (message.headers or [("h", b"?")])[0][1] + message.value.upper()

    app = an_app()
    seen: list[Any] = []

    @app.agent(app.topic("in", schema=Upper(key_type=bytes, value_type=bytes)))
    async def look(stream: Any) -> None:
        async for each in stream:
            seen.append(each)

    with TestApp(app) as test:
        test.driver.pipe_raw("in", None, b"abc", 0, (("h", b"x"),))
    assert seen == [b"xABC"]


@pytest.mark.parametrize("how", ["topic", "app", "soon", "event", "forward", "channel"])
def test_a_callback_is_called_when_the_send_is_committed(how: str) -> None:
    app, told = an_app(), []
    out, channel = app.topic("out", value_type=int), app.channel()

    def tell(future: Any) -> None:
        told.append((future.message.callback is tell, future.result().topic, future.result().offset))

    @app.agent(channel)
    async def other(stream: Any) -> None:
        async for _ in stream:
            pass

    @app.agent(app.topic("in", value_type=int))
    async def relay(stream: Any) -> None:
        async for event in stream.events():
            match how:
                case "topic":
                    await out.send(value=event.value, callback=tell)
                case "app":
                    await app.send("out", value=event.value, callback=tell)
                case "soon":
                    out.send_soon(value=event.value, callback=tell)
                case "event":
                    await event.send(out, callback=tell)
                case "forward":
                    await event.forward(out, callback=tell)
                case "channel":
                    await channel.send(value=event.value, callback=tell)

    with TestApp(app) as test:
        (task,) = [each for each in test.driver._tasks if ("in", 0) in each.source_partitions]
        task.add_batch("in", 0, RecordColumns([None], [b"1"], [0], 0, 1))
        task.process(1, 0)
        assert not told, "the record may still be given up"
        task.prepare_commit()
        assert not told
        task.post_commit(None)
        assert told == [(True, "<anon>" if how == "channel" else "out", -1)]
        task.prepare_commit()
        task.post_commit(None)
        assert len(told) == 1


def test_a_callback_of_what_is_given_up_is_not_called() -> None:
    app, told = an_app(), []

    @app.agent(app.topic("in", value_type=int))
    async def relay(stream: Any) -> None:
        async for number in stream:
            await app.send("out", value=number, callback=told.append)

    with TestApp(app) as test:
        task = test.driver._tasks[0]
        task.add_batch("in", 0, RecordColumns([None], [b"1"], [0], 0, 1))
        task.process(1, 0)
        test.driver.restart(clean=False)
        assert not told
        test.send("in", value=2)
        assert [future.message.value for future in told] == [b"2"]


def test_a_callback_may_be_a_coroutine_that_sends(caplog: pytest.LogCaptureFixture) -> None:
    app, told = an_app(), []

    async def tell(future: Any) -> None:
        for _ in range(10):
            await next_turn()
        await app.send("acknowledged", value=future.result().topic)
        told.append(future)
        if len(told) == 2:
            raise ValueError("no luck")

    def fail(future: Any) -> None:
        raise ValueError("none at all")

    @app.agent(app.topic("in", value_type=int))
    async def relay(stream: Any) -> None:
        async for number in stream:
            await app.send("out", value=number, callback=tell)
            await app.send("out", value=number, callback=fail)

    with TestApp(app) as test:
        for number in (1, 2):
            test.send("in", value=number)
            for _ in range(20):
                test.driver.advance_wall_clock_time(10)
        assert test.received("acknowledged") == [(None, "out"), (None, "out")]
        count = len(test.driver.producer_history)
        test.driver.advance_wall_clock_time(1000)
        assert len(test.driver.producer_history) == count
    assert caplog.text.count("the callback of a send raised") == 3


def test_the_partitioner_of_the_application_places_what_is_sent() -> None:
    asked: list[Any] = []

    def last(key: bytes | None, every: list[int], available: list[int]) -> int:
        asked.append((key, every, available))
        return every[-1]

    app = an_app(producer_partitioner=last)
    out = app.topic("out", key_type=str, key_serializer="raw")

    @app.agent(app.topic("in", value_type=int))
    async def send(stream: Any) -> None:
        async for value in stream:
            await out.send(key="k", value=value)
            await out.send(value=value, partition=0)

    with TestApp(app, partitions={"in": 1, "out": 3}) as test:
        test.send("in", value=1)
        found = [(each.partition, each.key) for each in test.driver.output_queue("out")]
    assert sorted(found) == [(0, None), (2, b"k")]
    assert asked == [(None, [0], [0]), (b"k", [0, 1, 2], [0, 1, 2])]


def test_a_partitioner_that_names_no_partition_stops_the_application() -> None:
    app = an_app(producer_partitioner=lambda key, every, available: 3 if len(every) == 3 else 0)

    @app.agent(app.topic("in", value_type=int))
    async def send(stream: Any) -> None:
        async for value in stream:
            await app.send("out", value=value)

    message = (
        r"^producer_partitioner= of the application shop.* gives 3 for key None, which is none of the 3 partitions"
    )
    with pytest.raises(UserError, match=message), TestApp(app, partitions={"in": 1, "out": 3}) as test:
        test.send("in", value=1)


def test_what_is_received_by_name_has_the_types_of_the_topic_that_was_sent_to() -> None:
    app = an_app()

    class Topics:
        """They have no name of a module."""

        texts = app.topic("texts", key_type=str, value_type=str, value_serializer="raw")
        offers = app.topic("offers", key_type=Offer, value_type=Offer)

    offer = Offer("tea", Price(Decimal("1.5")))

    sunk = app.topic("sunk", value_type=bytes, value_serializer="raw")

    @app.agent(app.topic("in", key_type=str, value_type=str), sink=[sunk])
    async def relay(stream: Any) -> Any:
        async for key, value in stream.items():
            await Topics.texts.send(key=key, value=value)
            await Topics.offers.send(key=offer, value=offer)
            await app.send("plain", value=value)
            yield value.encode()

    with TestApp(app) as test:
        test.send("in", key="tea", value="green")
        assert test.received("texts") == [("tea", "green")]
        assert test.received("offers") == [(offer, offer)]
        assert test.received("plain") == [(None, "green")]
        assert test.received("sunk") == [(None, b"green")]


def test_the_handler_is_asked_for_each_record_that_is_not_taken() -> None:
    app = an_app()
    topic = app.topic("in")

    @app.agent(topic)
    async def relay(stream: Any) -> None:
        async for value in stream:
            for number in range(value):
                await app.send("out", key=b"k", value=number)

    def refuse(name: str, _: bytes | None, value: bytes | None) -> Exception | None:
        return MissingTopicError(f"topic {name!r} does not exist") if name == "out" and value != b"1" else None

    settings = {
        "production.exception.handler": "continue",
        "errors.dead.letter.queue.topic.name": "letters",
    }
    with TopologyTestDriver(
        streamsrt.faust.topology(app), {**streamsrt.faust.config(app), **settings}, refuse=refuse
    ) as driver:
        driver.pipe_raw("in", None, b"4", 0)
        driver.advance_wall_clock_time(1000)
        assert [record.value for record in driver.output_queue("out")] == [b"1"]
        assert len(driver.output_queue("letters")) == 3
        assert app.monitor.send_errors == 3
