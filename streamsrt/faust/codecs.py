"""Codecs that an application names: faust must know each of them before anything is read.

1. A record whose codec nobody knows is not a record that can't be decoded: skipping it would lose all of them.
2. What the start can see is refused there, with its line. What only a send names stops the application.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from faust.serializers.codecs import codecs, get_codec
from faust.types.models import ModelT

from streamsrt.errors import UserError
from streamsrt.faust.locations import declared_at, line_of, made_at

if TYPE_CHECKING:
    import faust

TABLES = ("Table", "GlobalTable", "SetTable", "SetGlobalTable")
"""The methods of an application that make tables."""


class Named(NamedTuple):
    """A codec, and what names it. ``location``: where that is, which takes long to find out."""

    codec: object
    what: str
    location: Callable[[], str]


def known_codec(codec: object, what: str, location: Callable[[], str]) -> object:
    """The codec of that name. ``what``, ``location``: what names it, and where. Raises UserError where faust knows none."""
    try:
        return get_codec(codec)
    except (KeyError, TypeError):
        names = sorted(codecs)
        unknown = next((each for each in str(codec).split("|") if each not in codecs), str(codec))
        meant = difflib.get_close_matches(unknown, names, n=1)
        question = f": did you mean {meant[0]!r}?" if meant else "."
        raise UserError(
            f"{what}{location()} is {codec!r}, but faust has no codec {unknown!r}{question} Its codecs are "
            f"{', '.join(names)}; faust.serializers.codecs.register() adds others"
        ) from None


def require_codecs(named: Iterable[Named]) -> None:
    """Raises UserError for the first one that faust does not know."""
    for codec, what, location in named:
        if codec:
            known_codec(codec, what, location)


def of_application(app: faust.App, tables: Iterable[faust.Table]) -> Iterator[Named]:
    """Those of its settings and of its tables."""
    at_app = partial(declared_at, app)
    yield Named(app.conf.key_serializer, f"key_serializer= of the application {app.conf.id}", at_app)
    yield Named(app.conf.value_serializer, f"value_serializer= of the application {app.conf.id}", at_app)
    for table in tables:
        # A model that a table has names the codec of its rows.
        yield from _of_types((table.key_type, table.value_type))
        at_table = partial(_place_of, app, table, table.name, TABLES)
        if table.schema is not None:
            yield from _of_schema(table.schema, f"table {table.name}", at_table)
        yield Named(table.key_serializer, f"the serializer of the keys of table {table.name}", at_table)
        yield Named(table.value_serializer, f"the serializer of the values of table {table.name}", at_table)


def of_topic(app: faust.App, topic: faust.TopicT, agent: faust.Agent | None = None) -> Iterator[Named]:
    """Those of a topic. ``agent``: reads it."""
    name = topic.pattern.pattern if topic.pattern else ", ".join(topic.topics)
    yield from _of_schema(topic.schema, f"topic {name}", partial(_place_of, app, topic, name, ("topic",), agent))


def of_send(
    topic: str, key_serializer: object, value_serializer: object, schema: faust.SchemaT | None
) -> Iterator[Named]:
    """Those that one send names for itself."""
    yield Named(key_serializer, f"key_serializer= of a send to {topic}", str)
    yield Named(value_serializer, f"value_serializer= of a send to {topic}", str)
    if schema is not None:
        yield from _of_schema(schema, f"a send to {topic}", str)


def at_class(kind: type) -> str:
    """Where the program has a class."""
    try:
        return f" ({inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]})"
    except (OSError, TypeError):
        return ""


def _place_of(
    app: faust.App, wanted: object, name: str, methods: Collection[str], agent: faust.Agent | None = None
) -> str:
    assigned = declared_at(wanted)
    if assigned:
        return assigned
    made = made_at(app, name, methods)
    if made is not None:
        return f" ({made})"
    return "" if agent is None else f" of agent {agent.name} ({line_of(agent.fun)})"


def _of_schema(schema: faust.SchemaT, of: str, location: Callable[[], str]) -> Iterator[Named]:
    yield from _of_types((schema.key_type, schema.value_type))
    yield Named(schema.key_serializer, f"key_serializer= of {of}", location)
    yield Named(schema.value_serializer, f"value_serializer= of {of}", location)


def _of_types(kinds: Iterable[object]) -> Iterator[Named]:
    for kind in kinds:
        options = getattr(kind, "_options", None)
        if isinstance(kind, type) and issubclass(kind, ModelT) and options is not None:
            yield Named(options.serializer, f"serializer= of the model {kind.__name__}", partial(at_class, kind))
