"""Topics, channels and events: what is sent, how it is decoded, and what they are derived from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.program import declared_topics  # noqa: E402
from tests.streamsrt.faust.behaviours.hearing import heard  # noqa: E402


class Point(faust.Record):
    """What is sent."""

    x: int


class Packed(faust.Record, serializer="json|binary"):
    """Says by itself how it is written."""

    x: int


async def quiet(stream: Any) -> None:
    """Hears nothing."""
    async for _ in stream:
        pass


@pytest.mark.parametrize("kind", ["topic", "channel"])
def test_a_schema_is_given_as_a_whole_and_in_parts(kind: str) -> None:
    app = an_app()

    def make(**options: Any) -> Any:
        return app.topic("t", **options) if kind == "topic" else app.channel(**options)

    plain = make()
    assert (plain.key_type, plain.value_type, plain.schema.key_serializer) == (None, None, None)
    schema = faust.Schema(key_type=bytes, value_type=bytes, key_serializer="json", value_serializer="json")
    whole = make(schema=schema)
    assert (whole.schema, whole.key_type, whole.value_type) == (schema, bytes, bytes)
    mixed = make(schema=faust.Schema(key_type=bytes, key_serializer="json"), key_type=str)
    assert (mixed.key_type, mixed.schema.key_type, mixed.schema.key_serializer) == (str, str, "json")


def test_a_model_says_how_it_is_written() -> None:
    app = an_app()
    topic = app.topic("in", key_type=Packed, value_type=Packed)
    assert topic.schema.value_serializer == "json|binary"
    seen: list[Any] = []

    @app.agent(topic)
    async def hear(stream: Any) -> None:
        async for key, value in stream.items():
            seen.append((key, value))
            await app.topic("out").send(key=key, value=value)

    with TestApp(app) as test:
        test.send(topic, key=Packed(1), value=Packed(2))
        (row,) = test.driver.output_queue("out")
    assert seen == [(Packed(1), Packed(2))]
    assert (row.key, row.value) == (topic.prepare_key(Packed(1), None)[0], topic.prepare_value(Packed(2), None)[0])


@pytest.mark.parametrize(("allow_empty", "wanted"), [(True, [None, Point(1)]), (False, [Point(1)])])
def test_a_record_without_a_value_is_given_or_passed_over(allow_empty: bool, wanted: list[Any]) -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("in", value_type=Point, value_serializer="json", allow_empty=allow_empty))
    async def hear(stream: Any) -> None:
        async for value in stream:
            seen.append(value)

    with TestApp(app) as test:
        test.driver.pipe_raw("in", b"k", None, 0)
        test.driver.pipe_raw("in", b"k", b'{"x": 1}', 0)
        assert test.driver.counters()["failed_deserialization"] == (0 if allow_empty else 1)
    assert seen == wanted


def test_a_key_that_can_not_be_decoded_passes_over_the_record() -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("in", key_type=int, key_serializer="json"))
    async def hear(stream: Any) -> None:
        async for key, value in stream.items():
            seen.append((key, value))

    with TestApp(app) as test:
        test.driver.pipe_raw("in", b"{", b"1", 0)
        test.driver.pipe_raw("in", b"7", b"2", 0)
    assert seen == [(7, 2)]


def test_topics_are_derived_from_others() -> None:
    app = an_app()
    topic = app.topic("foo", "bar", value_type=Point, value_serializer="json")
    assert topic.derive(key_serializer="raw").topics == ("foo", "bar")
    assert topic.derive(prefix="my-").topics == ["my-foo", "my-bar"]
    assert topic.derive(suffix="-2").value_type is Point
    derived = topic.derive_topic(topics=["other"])
    assert (derived.topics, derived.value_type) == (["other"], Point)
    with pytest.raises(ValueError, match="pattern"):
        app.topic(pattern="a.*").derive(prefix="my-")


def test_a_topic_has_a_name_or_a_pattern() -> None:
    app = an_app()
    with pytest.raises((TypeError, ValueError)):
        app.topic("foo", pattern="a.*")
    with pytest.raises(ValueError, match="zero"):
        app.topic("foo", partitions=0)
    for many in (app.topic(pattern="a.*"), app.topic("foo", "bar")):
        with pytest.raises((TypeError, ValueError)):
            many.get_topic_name()


def test_topics_are_declared_with_their_settings() -> None:
    app = an_app(topic_partitions=5)
    topic = app.topic("in", partitions=3, replicas=2, retention=60, compacting=True, deleting=True, config={"a.b": 1})
    app.agent(topic, name="one")(quiet)
    app.agent(app.topic("plain"), name="two")(quiet)
    first, second = sorted(declared_topics(app))
    assert first == ("in", 3, 2, {"cleanup.policy": "compact,delete", "retention.ms": "60000", "a.b": "1"})
    assert second == ("plain", 5, 1, {})


def test_an_agent_declares_a_topic_when_it_wants_one() -> None:
    app = an_app()

    async def work(stream: Any, seen: list[Any]) -> None:
        await app.topic("more").declare()
        await app.topic("more").maybe_declare()
        async for value in stream:
            seen.append(value)

    assert heard(work, 1, app=app) == [1]


def test_a_channel_has_no_name_and_needs_no_declaration() -> None:
    app = an_app()
    channel = app.channel(value_type=Point, maxsize=7)
    assert channel.derive() is channel
    assert (channel.clone().value_type, channel.clone().maxsize) == (Point, 7)
    with pytest.raises(NotImplementedError):
        channel.get_topic_name()

    async def work(stream: Any, seen: list[Any]) -> None:
        await channel.declare()
        await channel.maybe_declare()
        async for value in stream:
            with pytest.raises(NotImplementedError):
                channel.send_soon(key=b"k", value=value)
            seen.append(str(channel))

    assert len(heard(work, 1, app=app)) == 1


def test_every_agent_of_a_channel_gets_each_message_in_order() -> None:
    app = an_app()
    channel = app.channel(maxsize=1)
    seen: dict[str, list[int]] = {"one": [], "two": []}

    @app.agent(channel, name="one")
    async def one(stream: Any) -> None:
        async for value in stream:
            seen["one"].append(value)

    @app.agent(channel, name="two")
    async def two(stream: Any) -> None:
        async for value in stream:
            seen["two"].append(value)

    @app.agent(app.topic("in"))
    async def fill(stream: Any) -> None:
        async for value in stream:
            for number in range(value):
                await channel.send(value=number)

    with TestApp(app) as test:
        test.send("in", value=50)
        test.driver.commit()
    assert seen == {"one": list(range(50)), "two": list(range(50))}, "whatever maxsize is"


def test_an_event_is_sent_with_its_own_key_and_value_or_with_others() -> None:
    app = an_app()

    @app.agent(app.topic("in", key_type=str, value_type=int))
    async def relay(stream: Any) -> None:
        async for event in stream.events():
            await event.send("out")
            await event.send("out", key="other", value=8, headers={"g": b"y"}, timestamp=9.0)
            await event.forward("out")
            await event.forward("out", value=b"9", key=b"more")

    with TestApp(app) as test:
        test.driver.pipe_raw("in", b"k", b' "7" ', 5_000, (("h", b"x"),))
        rows = [(each.key, each.value, each.headers) for each in test.driver.output_queue("out")]
    given = (("h", b"x"),)
    assert rows == [
        (b"k", b"7", given),
        (b"other", b"8", (("g", b"y"),)),
        (b"k", b' "7" ', given),
        (b"more", b"9", given),
    ]


def test_an_event_says_what_it_is() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async for event in stream.events():
            seen.append(
                (event.key, event.value, event.headers, event.message.tp, event.app.conf.id, "Event" in repr(event))
            )

    assert heard(work, 7) == [("k", 7, {"h": b"x"}, ("in", 0), "shop", True)]


@pytest.mark.parametrize(
    ("key", "raw"), [("text", b"text"), (b"raw", b"raw"), (7, b"7"), ({"a": 1}, b'{"a":1}'), (None, None)]
)
def test_keys_of_any_type_are_sent(key: Any, raw: bytes | None) -> None:
    app = an_app()

    @app.agent(app.topic("in"))
    async def relay(stream: Any) -> None:
        async for value in stream:
            serializer = None if isinstance(key, str | bytes | None) else "json"
            await app.topic("out", key_serializer=serializer).send(key=key, value=value)

    with TestApp(app) as test:
        test.send("in", value=1)
        assert [each.key for each in test.driver.output_queue("out")] == [raw]


def test_a_pattern_reads_the_topics_of_such_names() -> None:
    app = an_app()
    app.agent(app.topic(pattern="in-.*"))(quiet)
    topology = streamsrt.faust.topology(app)
    (subtopology,) = topology.subtopologies
    assert not subtopology.source_topics
