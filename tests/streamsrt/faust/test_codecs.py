"""Codecs that faust does not know: refused wherever an application names one, before a record is lost."""

from __future__ import annotations

import re
from typing import Any

import pytest

from streamsrt.errors import UserError
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402


class Odd(faust.Record, serializer="jsn"):
    """A model whose codec is misspelt."""

    a: int


async def nothing(stream: Any) -> None:
    """An agent that only reads."""
    async for _ in stream:
        pass


def _reads(**options: Any) -> Any:
    return lambda app: app.agent(app.topic("odd", **options))(nothing)


def _set_of_table(app: faust.App, name: str) -> None:
    setattr(app.Table("rows", default=int), name, "jsn")


NAMED = {
    "value of a topic": (_reads(value_serializer="jsn"), "value_serializer= of topic odd"),
    "key of a topic": (_reads(key_serializer="jsn"), "key_serializer= of topic odd"),
    "schema of a topic": (_reads(schema=faust.Schema(value_serializer="jsn")), "value_serializer= of topic odd"),
    "last of several": (_reads(value_serializer="binary|jsn"), "value_serializer= of topic odd"),
    "first of several": (_reads(value_serializer="jsn|binary"), "value_serializer= of topic odd"),
    "model of a topic": (_reads(value_type=Odd), "serializer= of the model Odd"),
    "sink": (
        lambda app: app.agent(app.topic("fine"), sink=[app.topic("odd", value_serializer="jsn")])(_yields),
        "value_serializer= of topic odd",
    ),
    "key of a table": (lambda app: _set_of_table(app, "key_serializer"), "the serializer of the keys of table rows"),
    "value of a table": (
        lambda app: _set_of_table(app, "value_serializer"),
        "the serializer of the values of table rows",
    ),
    "model of a table": (lambda app: app.Table("rows", value_type=Odd), "serializer= of the model Odd"),
    "table of sets": (
        lambda app: setattr(app.SetTable("sets"), "value_serializer", "jsn"),
        "of the values of table sets",
    ),
}


async def _yields(stream: Any) -> Any:
    async for value in stream:
        yield value


@pytest.mark.parametrize("where", NAMED)
def test_wherever_a_codec_is_named_it_must_be_known(where: str) -> None:
    declare, what = NAMED[where]
    app = an_app()
    app.agent(app.topic("in"), name="plain")(nothing)
    declare(app)
    with pytest.raises(
        UserError, match=rf"{re.escape(what)}.* is '.*jsn.*', but faust has no codec 'jsn': did you mean 'json'\?"
    ):
        streamsrt.faust.topology(app)


def test_the_line_is_that_of_the_topic_or_of_its_agent_or_of_the_model() -> None:
    for options, line in (
        ({"value_serializer": "jsn"}, nothing.__code__.co_firstlineno),
        ({"value_type": Odd}, nothing.__code__.co_firstlineno - 6),
    ):
        app = an_app()
        _reads(**options)(app)
        with pytest.raises(UserError, match=rf"\({re.escape(__file__)}:{line}\) is 'jsn'"):
            streamsrt.faust.topology(app)


@pytest.mark.parametrize(
    "send",
    [
        lambda app: app.topic("out").send(value=1, value_serializer="jsn"),
        lambda app: app.topic("out").send(key=1, value=1, key_serializer="jsn"),
        lambda app: app.topic("out").send(value=1, schema=faust.Schema(value_serializer="jsn")),
        lambda app: app.send("out", value=1, value_serializer="binary|jsn"),
        lambda app: app.topic("out", value_serializer="jsn").send(value=1),
        lambda app: app.topic("out").send(value=Odd(a=1)),
    ],
)
def test_a_codec_that_only_a_send_names_stops_the_application(send: Any) -> None:
    app = an_app()

    @app.agent(app.topic("in"))
    async def relay(stream: Any) -> None:
        async for _ in stream:
            await send(app)

    with pytest.raises(UserError, match="faust has no codec 'jsn': did you mean 'json'"), TestApp(app) as test:
        test.send("in", value=1)


@pytest.mark.parametrize("name", ["key_serializer", "value_serializer"])
def test_the_codecs_of_the_application_must_be_known_too(name: str) -> None:
    app = an_app(**{name: "jsn"})
    app.agent(app.topic("in"))(nothing)
    with pytest.raises(UserError, match=rf"{name}= of the application shop is 'jsn', but faust has no codec 'jsn'"):
        streamsrt.faust.topology(app)
