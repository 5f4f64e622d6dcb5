"""Keys and values to bytes, as the schema of a topic has it.

For Faust's own topic and schema classes, constant results are cached. Custom classes are called for each record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from faust.channels import SerializedChannel
from faust.models.base import Model
from faust.serializers.schemas import Schema
from faust.topics import Topic

from streamsrt.errors import UserError
from streamsrt.faust.codecs import at_class, known_codec, of_topic, require_codecs
from streamsrt.faust.decoding import single

if TYPE_CHECKING:
    import faust

Encode = Callable[[object], object]
_TYPES_MAX = 1000


class Encoder:
    """Encodes for one topic. ``name``: of the topic. Raises UserError for a channel that is none."""

    def __init__(self, app: faust.App, topic: faust.TopicT) -> None:
        if not isinstance(topic, Topic):
            raise UserError(
                f"{topic!r} is a channel that no agent reads, and has no topic: give it an agent, @app.agent(channel), or "
                "use app.topic()"
            )
        self.topic = topic
        self.name: str = topic.get_topic_name()
        kind, schema = type(topic), type(topic.schema)
        self.is_plain = (
            kind.prepare_key is SerializedChannel.prepare_key
            and kind.prepare_value is SerializedChannel.prepare_value
            and schema.dumps_key is Schema.dumps_key
            and schema.dumps_value is Schema.dumps_value
            and schema.on_dumps_key_prepare_headers is Schema.on_dumps_key_prepare_headers
            and schema.on_dumps_value_prepare_headers is Schema.on_dumps_value_prepare_headers
        )
        """Whether keys and values are all that is needed."""
        registry, own = app.serializers, topic.schema
        require_codecs(of_topic(app, topic))
        self.key = _keys(registry.dumps_key, own.key_type, own.key_serializer, registry.key_serializer)
        self.value = _values(registry, own.value_type, own.value_serializer)


def _keys(dumps: Callable[..., object], kind: object, serializer: object, default: object) -> Encode:
    is_text = (serializer or default or ("raw" if kind in (str, bytes) else None)) == "raw"

    def encode(key: object) -> object:
        if key is None or type(key) is bytes:
            return key
        if is_text and type(key) is str:
            return key.encode()
        return dumps(kind, key, serializer=serializer)

    return encode


def _values(registry: faust.Registry, kind: object, serializer: object) -> Encode:
    dumps = registry.dumps_value
    known: dict[type, Encode] = {}

    def of(model: type[Model]) -> Encode:
        """How values of that type are written. What is true of a model is true of all of its kind."""
        if issubclass(model, Model) and model.dumps is Model.dumps:
            own = registry._serializer(kind, model._options.serializer or serializer, registry.value_serializer)
            if own:
                codec = known_codec(own, f"serializer= of the model {model.__name__}", partial(at_class, model))
                return _model(single(codec, "dumps"))
        return partial(dumps, kind, serializer=serializer)

    def encode(value: object) -> object:
        model = type(value)
        if model is bytes:
            return value
        write = known.get(model)
        if write is None:
            if len(known) >= _TYPES_MAX:
                known.clear()
            write = known[model] = of(model)
        return write(value)

    return encode


def _model(dumps: Callable[[object], object]) -> Encode:
    def encode(value: object) -> object:
        return dumps(value.to_representation())  # type: ignore[attr-defined]  # it is a model

    return encode
