"""Serdes: values to bytes and back, with the bytes of the Java client's serdes.

1. A serde is never given None: a null key or value stays null on both sides.
2. ``serialize`` and ``deserialize`` can be any callables, ideally C functions, as they are called for each record.
3. A wrong type or malformed bytes raise (TypeError, ValueError, struct.error); the runtime adds which record it was.
   Unlike Java's StringDeserializer, :data:`string` refuses bytes that are not UTF-8 instead of replacing them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from typing import Any, ClassVar, Generic, NoReturn, Protocol, TypeAlias, TypeVar, runtime_checkable
from uuid import UUID

import orjson

from topology.spec.errors import TopologyError, call_site
from topology.spec.model_reading import plain_reader, reader_of
from topology.spec.typed_dicts import for_pydantic
from topology.spec.windows import Duration, Windowed, to_ms

T = TypeVar("T")
K = TypeVar("K")

_PYDANTIC_CORE = "pydantic_core._pydantic_core"


@runtime_checkable
class Serde(Protocol[T]):
    """Turns values of one type into bytes and back.

    ``name`` is part of the topology's digest: two serdes of one name must give the same bytes.
    """

    @property
    def name(self) -> str: ...

    def serialize(self, value: T, /) -> bytes: ...

    def deserialize(self, data: bytes, /) -> T: ...


ProgramSerde: TypeAlias = Serde[Any]  # of a type that only the program knows
AnySerde: TypeAlias = ProgramSerde | None
"""A serde, or None for the application's default."""


@dataclass(frozen=True, slots=True, repr=False)
class CallableSerde(Generic[T]):
    """A serde made of two callables: ``CallableSerde("celsius", encode, decode)``."""

    name: str
    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]

    def __repr__(self) -> str:
        return f"serdes.{self.name}"


Rows = tuple[Sequence[bytes], Sequence[bytes | None]]
"""Keys, and the value of each; None: it is deleted."""
Fold = Callable[[Sequence[bytes], Sequence[bytes | None], Callable[[bytes], bytes | None]], Rows]
"""Turns records of a changelog into rows, given a function that returns the row of a key as it is in the store."""
ORDER_BYTES = 8


@dataclass(frozen=True, slots=True, repr=False)
class FoldedKeys(CallableSerde[T]):
    """Keys of a key-value store whose changelog may contain changes of rows instead of rows. ``fold``: applies them when the
    store is restored."""

    fold: Fold


@dataclass(frozen=True, slots=True, repr=False)
class OrderedKeys(CallableSerde[T]):
    """Keys of a key-value store whose rows have a custom order. ``order``: returns for the bytes of a key the
    :data:`ORDER_BYTES` that precede them in the store. ``fold``: that of :class:`FoldedKeys`.
    """

    order: Callable[[bytes], bytes]
    fold: Fold | None = None


@dataclass(frozen=True, slots=True, repr=False)
class RowsOfValues(CallableSerde[T]):
    """Rows of an operator that contain values of the program. ``with_values``: makes the same rows with another serde of
    these values. ``mapped``: the row with each of its values replaced by what a function returns for it.
    """

    with_values: Callable[[ProgramSerde], RowsOfValues[T]]
    mapped: Callable[[T, Callable[[object], object]], T]


def _number(name: str, layout: str) -> CallableSerde[Any]:
    codec = struct.Struct(layout)
    unpack = codec.unpack

    def deserialize(data: bytes) -> Any:
        return unpack(data)[0]

    return CallableSerde(name, codec.pack, deserialize)


def _to_bytes(value: bytes) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"serdes.bytes takes bytes, not {type(value).__name__}")


def _same(data: bytes) -> bytes:
    return data


def _from_boolean(value: bool) -> bytes:
    if value is True:
        return b"\x01"
    if value is False:
        return b"\x00"
    raise TypeError(f"serdes.boolean takes a bool, not {type(value).__name__}")


def _to_boolean(data: bytes) -> bool:
    if data == b"\x01":
        return True
    if data == b"\x00":
        return False
    raise ValueError(f"a boolean is one byte 00 or 01, not {data[:8]!r}")


def _from_uuid(value: UUID) -> bytes:
    if not isinstance(value, UUID):
        raise TypeError(f"serdes.uuid takes a uuid.UUID, not {type(value).__name__}")
    return str(value).encode()


def _to_uuid(data: bytes) -> UUID:
    return UUID(data.decode())


def _no_value(value: object) -> NoReturn:
    raise ValueError("serdes.void has null only")


@dataclass(frozen=True, slots=True, repr=False)
class ModelSerde(CallableSerde[T]):
    """What ``serdes.json(Model)`` returns: ``adapter`` is pydantic's view of the type, which knows its fields."""

    adapter: object


@dataclass(frozen=True, slots=True, repr=False)
class AvroSerde(CallableSerde[T]):
    """A serde of Avro's values; ``schema`` is theirs, as fastavro parses it."""

    takes_any: ClassVar[bool] = True  # as for JSON, with whatever a dictionary has in it
    schema: object


@dataclass(frozen=True, slots=True, repr=False)
class ProtobufSerde(CallableSerde[T]):
    """A serde of messages of one type. ``message_of``: makes one of its fields, as Protobuf's mapping to JSON has them."""

    message_of: Callable[[object], T]


class JsonSerde:
    """JSON by orjson: ``serdes.json`` for plain values, ``serdes.json(Model)`` for values of one type.

    JSON has no NaN and no infinity: orjson writes them as ``null``, without an error, and they are read as None.
    The type may be a pydantic model, a dataclass, a TypedDict, or anything else that pydantic's TypeAdapter takes; what is
    read is validated, and a ValidationError (a ValueError) tells what does not fit.
    """

    __slots__ = ()

    name = "json"
    takes_any = True
    """Which values it takes is told by the data, not by their type in the program."""
    serialize = staticmethod(orjson.dumps)
    deserialize = staticmethod(plain_reader(orjson.loads))

    def __call__(self, model: type[T]) -> CallableSerde[T]:
        adapter = _adapter(model)
        name = f"json({getattr(model, '__qualname__', model)})"
        write, read = adapter.dump_json, adapter.validate_json
        # A type whose parts are not defined yet has something else there so far.
        if {type(adapter.validator).__module__, type(adapter.serializer).__module__} == {_PYDANTIC_CORE}:
            # What these methods call: without them a record costs a microsecond less on each side.
            write = _writer(adapter.serializer.to_json, signature(adapter.dump_json).parameters["by_alias"].default)
            read = reader_of(adapter.core_schema, adapter.validator.validate_json)
        return ModelSerde(name, write, read, adapter)

    def __repr__(self) -> str:
        return "serdes.json"


def _writer(to_json: Callable[..., bytes], by_alias: bool | None) -> Callable[..., bytes]:
    """The core's writer of a type. ``by_alias``: how pydantic calls it. Given by name, the argument costs a small model half
    as much again, so it is left out where it is the core's own default. That was another one in earlier versions."""
    try:
        own: object = signature(to_json).parameters["by_alias"].default
    except (KeyError, ValueError):
        own = Parameter.empty
    return to_json if own is by_alias else partial(to_json, by_alias=by_alias)


def _adapter(model: Any) -> Any:
    """Pydantic's view of a type. Raises TopologyError where it takes none of it."""
    from pydantic import PydanticUserError, TypeAdapter  # loaded by programs that have models only

    try:
        return TypeAdapter(for_pydantic(model))
    except PydanticUserError as error:
        reason = str(error).partition("\n")[0]
        raise TopologyError(
            f"serdes.json() takes a type, such as a model, not {model!r}: {reason}", call_site()
        ) from None


def time_windowed(inner: Serde[K], size: Duration) -> CallableSerde[Windowed[K]]:
    """Keys of windows of that size: the inner key's bytes, then the window's start as 8 bytes, big-endian.

    Source: org.apache.kafka.streams.kstream.TimeWindowedSerializer and TimeWindowedDeserializer.
    """
    check_serde(inner, "time_windowed")
    size_ms = to_ms(size, "size")
    start = struct.Struct(">q")
    pack, unpack_from = start.pack, start.unpack_from
    serialize_key, deserialize_key = inner.serialize, inner.deserialize

    def serialize(windowed: Windowed[K]) -> bytes:
        return serialize_key(windowed[0]) + pack(windowed[1])

    def deserialize(data: bytes) -> Windowed[K]:
        if len(data) < 8:
            raise ValueError(f"a windowed key has at least 8 bytes, not {len(data)}")
        (start_ms,) = unpack_from(data, len(data) - 8)
        return Windowed(deserialize_key(data[:-8]), start_ms, start_ms + size_ms)

    return TimeWindowedSerde(f"time_windowed({inner.name}, {size_ms})", serialize, deserialize, inner, size_ms)


@dataclass(frozen=True, slots=True, repr=False)
class TimeWindowedSerde(CallableSerde[Windowed[K]]):
    """What :func:`time_windowed` returns. Sinks partition by the bytes of ``inner`` alone, as Java's do."""

    inner: Serde[K]
    size_ms: int


def session_windowed(inner: Serde[K]) -> CallableSerde[Windowed[K]]:
    """Keys of sessions: the inner key's bytes, then the session's end and start, 8 bytes each, big-endian.

    Source: org.apache.kafka.streams.kstream.SessionWindowedSerializer and SessionWindowedDeserializer.
    """
    check_serde(inner, "session_windowed")
    times = struct.Struct(">qq")
    pack, unpack_from = times.pack, times.unpack_from
    serialize_key, deserialize_key = inner.serialize, inner.deserialize

    def serialize(windowed: Windowed[K]) -> bytes:
        return serialize_key(windowed[0]) + pack(windowed[2], windowed[1])

    def deserialize(data: bytes) -> Windowed[K]:
        if len(data) < 16:
            raise ValueError(f"the key of a session has at least 16 bytes, not {len(data)}")
        end_ms, start_ms = unpack_from(data, len(data) - 16)
        return Windowed(deserialize_key(data[:-16]), start_ms, end_ms)

    return SessionWindowedSerde(f"session_windowed({inner.name})", serialize, deserialize, inner)


@dataclass(frozen=True, slots=True, repr=False)
class SessionWindowedSerde(CallableSerde[Windowed[K]]):
    """What :func:`session_windowed` returns. Sinks partition by the bytes of ``inner`` alone, as Java's do."""

    inner: Serde[K]


string: CallableSerde[str] = CallableSerde("string", str.encode, bytes.decode)
"""Text as UTF-8."""
bytes_: CallableSerde[bytes] = CallableSerde("bytes", _to_bytes, _same)
"""Bytes, unchanged."""
short: CallableSerde[int] = _number("short", ">h")
"""An integer in 2 bytes, big-endian, as Java's ``Short``."""
integer: CallableSerde[int] = _number("integer", ">i")
"""An integer in 4 bytes, big-endian, as Java's ``Integer``."""
long: CallableSerde[int] = _number("long", ">q")
"""An integer in 8 bytes, big-endian, as Java's ``Long``."""
float_: CallableSerde[float] = _number("float", ">f")
"""A number in 4 bytes, big-endian (IEEE 754), as Java's ``Float``."""
double: CallableSerde[float] = _number("double", ">d")
"""A number in 8 bytes, big-endian (IEEE 754), as Java's ``Double``."""
boolean: CallableSerde[bool] = CallableSerde("boolean", _from_boolean, _to_boolean)
"""One byte, 1 or 0."""
uuid: CallableSerde[UUID] = CallableSerde("uuid", _from_uuid, _to_uuid)
"""A UUID as its text."""
void: CallableSerde[None] = CallableSerde("void", _no_value, _no_value)
"""Only None; any other value is refused."""
json = JsonSerde()

_BY_NAME: dict[str, ProgramSerde] = {
    each.name: each for each in (string, bytes_, short, integer, long, float_, double, boolean, uuid, void, json)
}
_BY_TYPE = {"str": "string", "int": "long", "float": "double", "bool": "boolean", "UUID": "uuid", "dict": "json"}
_FUNCTIONS = ("time_windowed", "session_windowed")


_ONE_FORM = (string, bytes_, short, integer, long, float_, double, boolean, void)


def has_one_form(serde: ProgramSerde) -> bool:
    """Whether each value has one form in bytes only, and no bytes are read as None. JSON, for one, may have spaces."""
    inner: ProgramSerde = getattr(serde, "inner", serde)
    return any(inner is each for each in _ONE_FORM)


def is_serde(value: object) -> bool:
    """Whether it is a serde: it has a name, and turns values into bytes and back."""
    if not isinstance(getattr(value, "name", None), str):
        return False
    return callable(getattr(value, "serialize", None)) and callable(getattr(value, "deserialize", None))


def check_serde(value: object, function: str) -> None:
    """Raises TopologyError where ``value`` is no serde; the message says which one is probably meant."""
    if not is_serde(value):
        raise TopologyError(
            f"{function}() takes a serde such as serdes.string, not {value!r}{serde_meant(value)}", call_site()
        )


def serde_meant(value: object) -> str:
    """The serde that a program probably means by a name or a type, as the end of a message; empty where nobody knows."""
    called = value if isinstance(value, str) else getattr(value, "__name__", "")
    name = _BY_TYPE.get(called, called)
    if name in _BY_NAME:
        return f": write serdes.{name}{', without quotes' if isinstance(value, str) else ''}"
    return f": write serdes.{name}(...)" if name in _FUNCTIONS else ""


_DIFFERENT_BYTES = frozenset(each.name for each in (string, short, integer, long, float_, double, boolean))
"""Serdes of which no two give the same bytes for keys that are equal."""


def check_keys(operator: str, key: AnySerde, other: AnySerde) -> None:
    """Raises TopologyError where keys of the two serdes, as far as they are known, never meet in a join."""
    if key is None or other is None or key.name == other.name or not {key.name, other.name} <= _DIFFERENT_BYTES:
        return
    raise TopologyError(
        f"{operator}() joins by key, and keys of {key!r} never equal keys of {other!r}. Give both sides keys of one type: "
        "with select_key(), or with key= where the topic is read",
        call_site(),
    )
