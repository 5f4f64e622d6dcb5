"""Codecs: keys and values in bytes, by type, by codec, and by what the application says for all topics."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from streamsrt.errors import StreamsError
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.serializers import codecs  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402


class User(faust.Record):
    """A part of another model."""

    name: str


class Account(faust.Record):
    """What is written."""

    id: str
    user: User


ACCOUNT = Account("A1", User("tea"))
WRITTEN = ACCOUNT.dumps(serializer="json")
PLAIN = b'{"id":"A1","user":{"name":"tea"}}'
DATA = {"str": "str", "int": 1, "float": 0.3, "list": [1, 2], "dict": {"a": 1}}


class Reversed(codecs.Codec):
    """A codec of the program's own."""

    def _dumps(self, obj: Any) -> bytes:
        return bytes(reversed(obj))

    def _loads(self, raw: bytes) -> Any:
        return bytes(reversed(raw))


def through(
    value: Any = None, key: Any = None, raw: tuple[Any, Any] | None = None, app: Any = None, **options: Any
) -> Any:
    """What an agent hears of a record, and the bytes that it sends on to a topic with the same options."""
    app = an_app() if app is None else app
    topic, out = app.topic("in", **options), app.topic("out", **options)
    seen: list[Any] = []

    @app.agent(topic)
    async def relay(stream: Any) -> None:
        async for event in stream.events():
            seen.append((event.key, event.value))
            await out.send(key=event.key, value=event.value)

    with TestApp(app) as test:
        if raw is None:
            test.send(topic, key=key, value=value)
        else:
            test.driver.pipe_raw("in", *raw, 0)
        rows = [(each.key, each.value) for each in test.driver.output_queue("out")]
    assert len(seen) == len(rows) == 1
    return seen[0], rows[0]


@pytest.mark.filterwarnings("ignore::faust.exceptions.SecurityWarning")
@pytest.mark.parametrize("codec", ["json", "pickle", "pickle_restricted", "yaml", "json|binary", "pickle|binary"])
def test_data_comes_back_from_each_codec(codec: str) -> None:
    if codec == "yaml":
        pytest.importorskip("yaml")
    (_, value), (_, raw) = through(DATA, value_serializer=codec)
    assert value == DATA
    assert raw == codecs.dumps(codec, DATA)


def test_bytes_come_back_from_raw_and_binary() -> None:
    assert through(b"\xff\x00", value_serializer="raw") == ((None, b"\xff\x00"), (None, b"\xff\x00"))
    (_, value), (_, raw) = through(raw=(None, base64.b64encode(b"\xff")), value_serializer="binary")
    assert (value, raw) == (b"\xff", b"\xff"), "bytes are sent as they are, whatever the codec"


def test_codecs_of_the_programs_own_and_one_after_the_other() -> None:
    codecs.register("reversed", Reversed())
    try:
        (_, value), (_, raw) = through(raw=(None, b"cba"), value_serializer="reversed")
        assert (value, raw) == (b"abc", b"abc")
        (_, value), (_, raw) = through({"a": 1}, value_serializer="json|reversed")
        assert (value, raw) == ({"a": 1}, b'}1:"a"{')
        (_, value), _ = through({"a": 1}, value_serializer=codecs.get_codec("json") | Reversed())
        assert value == {"a": 1}
    finally:
        del codecs.codecs["reversed"]


@pytest.mark.parametrize("of", ["key", "value"])
@pytest.mark.parametrize(
    ("raw", "kind", "codec", "wanted"),
    [
        (WRITTEN, None, "json", ACCOUNT),
        (PLAIN, Account, "json", ACCOUNT),
        (WRITTEN, Account, "json", ACCOUNT),
        (b'{"id":"A1","user":{"name":"tea"},"more":[1]}', Account, "json", ACCOUNT),
        (PLAIN, None, "json", {"id": "A1", "user": {"name": "tea"}}),
        (b'"text"', None, "json", "text"),
        (b"text", None, "raw", b"text"),
        (b'"text"', bytes, "json", b"text"),
        (b'"text"', str, "json", "text"),
        (b"text", bytes, "raw", b"text"),
        (b"text", str, "raw", "text"),
        (b'"12"', int, "json", 12),
        (None, None, "json", None),
    ],
)
def test_a_type_and_a_codec_make_a_value(of: str, raw: bytes | None, kind: Any, codec: str, wanted: Any) -> None:
    (key, value), _ = through(
        raw=(raw, b"null") if of == "key" else (b"k", raw),
        key_type=kind if of == "key" else bytes,
        key_serializer=codec if of == "key" else "raw",
        value_type=kind if of == "value" else None,
        value_serializer=codec if of == "value" else "json",
    )
    found = key if of == "key" else value
    assert (found, type(found)) == (wanted, type(wanted))


@pytest.mark.parametrize("of", ["key", "value"])
def test_a_model_that_is_not_there_can_not_be_decoded(of: str) -> None:
    app, seen = an_app(), []
    serialized = {f"{of}_type": Account, f"{of}_serializer": "json"}

    @app.agent(app.topic("in", **serialized))
    async def hear(stream: Any) -> None:
        async for value in stream:
            seen.append(value)

    with TestApp(app) as test:
        test.driver.pipe_raw("in", None if of == "key" else b"1", None if of == "value" else b"1", 0)
        assert test.driver.counters()["failed_deserialization"] == 1
    assert not seen


def test_the_application_names_the_codecs_of_all_topics() -> None:
    app = an_app(key_serializer="json", value_serializer="raw")
    (key, value), raw = through(b"value", {"k": 1}, app=app)
    assert (key, value) == ({"k": 1}, b"value")
    assert raw == (b'{"k":1}', b"value")


def test_one_send_names_its_own_codecs() -> None:
    app = an_app()

    @app.agent(app.topic("in"))
    async def relay(stream: Any) -> None:
        async for value in stream:
            await app.topic("out").send(key=value, value=value, key_serializer="json", value_serializer="json|binary")
            await app.send("out", value=b"x", schema=faust.Schema(value_type=bytes, value_serializer="raw"))

    with TestApp(app) as test:
        test.send("in", value=[1])
        rows = [(each.key, each.value) for each in test.driver.output_queue("out")]
    assert rows == [(b"[1]", base64.b64encode(b"[1]")), (None, b"x")]


def test_a_codec_that_nobody_knows_stops_the_application() -> None:
    app = an_app()

    @app.agent(app.topic("in", value_type=Account, value_serializer="nothing"))
    async def hear(stream: Any) -> None:
        async for _ in stream:
            pass

    with pytest.raises((StreamsError, KeyError, ImportError), match="nothing"), TestApp(app) as test:
        test.driver.pipe_raw("in", None, b"1", 0)
