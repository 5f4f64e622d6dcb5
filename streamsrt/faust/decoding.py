"""Keys and values from bytes, as the schema of a topic has it.

A custom schema is called for each record, with the message. Faust's own schema only needs the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from faust.serializers.codecs import Codec, get_codec
from faust.serializers.registry import Registry
from faust.serializers.schemas import Schema
from faust.types.models import ModelT
from faust.types.topics import TopicT

from streamsrt.faust.codecs import of_topic, require_codecs
from streamsrt.faust.events import AgentMessage
from streamsrt.faust.records import maker
from streamsrt.wire.records import Headers
from topology.spec.processor import RecordMetadata

if TYPE_CHECKING:
    import faust

Decode = Callable[[bytes | None], object]
_SCALARS = (int, float, Decimal, str, bytes)


class Row(NamedTuple):
    """A record as it was read. ``timestamp``: epoch milliseconds."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    metadata: RecordMetadata

    def message(self) -> AgentMessage:
        """The same as faust knows it."""
        topic, partition, offset = self.metadata
        return AgentMessage(
            topic, partition, offset, self.timestamp / 1000, 0, self.headers or None, self.key, self.value, None
        )


class Decoder:
    """Decodes for one channel."""

    def __init__(self, app: faust.App, channel: faust.ChannelT) -> None:
        schema = channel.schema
        if isinstance(channel, TopicT):
            require_codecs(of_topic(app, channel))
        kind = type(schema)
        is_plain = kind.loads_key is Schema.loads_key and kind.loads_value is Schema.loads_value
        self._app = app
        self._schema = schema
        self._takes_nothing = bool(schema.allow_empty)
        self._key = plain_key(app, schema) if is_plain else None
        self._value = plain_value(app, schema) if is_plain else None

    def decode(self, row: Row) -> tuple[object, object]:
        """Key and value. Raises what the schema raises."""
        takes_nothing = row.value is None and self._takes_nothing
        if self._key is not None and self._value is not None:
            return self._key(row.key), None if takes_nothing else self._value(row.value)
        message = row.message()
        app, schema = self._app, self._schema
        key = schema.loads_key(app, message, loads=app.serializers.loads_key)
        if takes_nothing:
            return key, None
        return key, schema.loads_value(app, message, loads=app.serializers.loads_value)


def plain_key(app: faust.App, schema: faust.SchemaT) -> Decode:
    """What decodes keys by a schema of faust's own."""
    registry, kind, serializer = app.serializers, schema.key_type, schema.key_serializer
    if (serializer or registry.key_serializer) in (None, "raw") and kind in (str, bytes):
        return _text if kind is str else _same
    loads = registry.loads_key

    def decode(raw: bytes | None) -> object:
        return loads(kind, raw, serializer=serializer)

    return decode


def plain_value(app: faust.App, schema: faust.SchemaT) -> Decode:
    """What decodes values by a schema of faust's own."""
    registry, kind, serializer = app.serializers, schema.value_type, schema.value_serializer
    if (serializer or registry.value_serializer) == "raw" and kind in (str, bytes):
        return _text if kind is str else _same
    loads = registry.loads_value
    if isinstance(kind, type) and issubclass(kind, ModelT):
        return _models(loads, kind, serializer, registry._serializer(kind, serializer, registry.value_serializer))

    def decode(raw: bytes | None) -> object:
        return loads(kind, raw, serializer=serializer)

    return decode


def _models(loads: Callable[..., object], kind: type[ModelT], serializer: object, codec: object) -> Decode:
    from_bytes, make = single(get_codec(codec), "loads"), maker(kind)

    def decode(raw: bytes | None) -> object:
        if raw is None:
            return loads(kind, raw, serializer=serializer)
        return make(from_bytes(raw))

    return decode


def unreadable_types(app: faust.App, schema: faust.SchemaT) -> Iterator[tuple[str, object]]:
    """The types of keys and values that faust has no way to make of bytes, each with the name of its option."""
    of_registry, of_schema = type(app.serializers), type(schema)
    for what, kind, loads in (
        ("key_type", schema.key_type, "loads_key"),
        ("value_type", schema.value_type, "loads_value"),
    ):
        is_of_faust = getattr(of_registry, loads) is getattr(Registry, loads) and (
            getattr(of_schema, loads) is getattr(Schema, loads)
            and of_registry._prepare_payload is Registry._prepare_payload
        )
        if is_of_faust and kind is not None and kind not in _SCALARS and not _is_model(kind):
            yield what, kind


def _is_model(kind: object) -> bool:
    if isinstance(kind, type) and issubclass(kind, ModelT):
        # The bases of all models have no fields, and are made of nothing.
        return getattr(kind, "_input_translate_fields", None) is not None
    return callable(getattr(kind, "from_data", None))


def single(codec: object, name: str) -> Callable[[object], object]:
    """What a codec of faust's does in ``loads`` or ``dumps``, without asking each time for those that follow it."""
    if isinstance(codec, Codec) and getattr(type(codec), name) is getattr(Codec, name) and codec.nodes == (codec,):
        return getattr(codec, f"_{name}")  # type: ignore[no-any-return]  # faust is not typed here
    return getattr(codec, name)  # type: ignore[no-any-return]  # nor here


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


def _same(raw: bytes | None) -> bytes | None:
    return raw
