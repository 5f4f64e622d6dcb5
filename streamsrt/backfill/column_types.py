"""The types that columns have for the values of a serde: numbers as numbers, models and Avro records as structs.

1. A column is decided by the serde alone, never by the values that happen to be there.
2. Where a serde does not say which fields its values have, as plain JSON, a column is JSON as text; so is a part of a value
   that may have several types, or any fields.
3. Times are UTC, in microseconds: what Parquet, Spark and Arrow all have. One that no calendar has, such as the end of a
   window that never ends, is null.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Protocol, TypeAlias, cast

import pyarrow as pa
from pydantic import PydanticUserError

from streamsrt.json_text import json_text
from topology.spec.codecs import AvroSerde, ModelSerde, ProgramSerde
from topology.spec.row_versions import VersionedValues

TIME = pa.timestamp("us", tz="UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
"""Of the year 9999."""

Convert: TypeAlias = Callable[[object], object]
Schema: TypeAlias = Mapping[str, object]


class _Adapter(Protocol):
    """The part of pydantic's TypeAdapter that is used here."""

    def json_schema(self, *, mode: str) -> dict[str, object]: ...

    def dump_python(self, value: object, /, *, mode: str) -> object: ...


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column, and the function that converts the program's values to it. ``convert`` is never called with
    None."""

    type: pa.DataType
    convert: Convert

    def of(self, value: object) -> object:
        return None if value is None else self.convert(value)


def time_of_ms(ms: object) -> datetime | None:
    """A time in milliseconds since 1970; None where there is none, or no calendar has it."""
    if not isinstance(ms, int) or not 0 <= ms <= _LAST_MS:
        return None
    return _EPOCH + timedelta(milliseconds=ms)


def ms_of_time(time: datetime | None) -> int | None:
    """The same the other way round."""
    return None if time is None else (time - _EPOCH) // timedelta(milliseconds=1)


def column_type(serde: ProgramSerde | None) -> ColumnType:
    """Returns the type of a column with the values of that serde."""
    if isinstance(serde, VersionedValues):
        serde = serde.inner
    if serde is None:
        return ColumnType(pa.binary(), _same)
    if isinstance(serde, ModelSerde):
        return _of_model(cast("_Adapter", serde.adapter))
    if isinstance(serde, AvroSerde):
        return _of_avro(serde.schema, {})
    return _PLAIN.get(serde.name, _JSON)


def _same(value: object) -> object:
    return value


class UnfitValueError(ValueError):
    """A value that a column has no room for. ``fields``: where it is in the column, from the outside."""

    def __init__(self, reason: str, fields: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.fields = fields

    def inside(self, field: str) -> UnfitValueError:
        """The same error of a value that has that field."""
        return UnfitValueError(str(self), (field, *self.fields))


def _of_64_bits(value: object) -> object:
    """An integer of a model, which may be of any size."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise UnfitValueError(f"the integer {value} does not fit into a column of 64 bits with a sign")
    return value


_JSON = ColumnType(pa.string(), json_text)
_TEXT = ColumnType(pa.string(), str)
_PLAIN = {
    "string": ColumnType(pa.string(), _same),
    "bytes": ColumnType(pa.binary(), _same),
    "short": ColumnType(pa.int16(), _same),
    "integer": ColumnType(pa.int32(), _same),
    "long": ColumnType(pa.int64(), _same),
    "float": ColumnType(pa.float32(), _same),
    "double": ColumnType(pa.float64(), _same),
    "boolean": ColumnType(pa.bool_(), _same),
    "uuid": _TEXT,
}


def _struct(fields: Mapping[str, ColumnType]) -> ColumnType:
    kind = pa.struct([pa.field(name, each.type) for name, each in fields.items()])

    def convert(value: object) -> object:
        found = cast("Mapping[str, object]", value)
        made: dict[str, object] = {}
        for name, each in fields.items():
            try:
                made[name] = each.of(found.get(name))
            except UnfitValueError as error:
                raise error.inside(name) from None
        return made

    return ColumnType(kind, convert)


def _list(items: ColumnType) -> ColumnType:
    return ColumnType(pa.list_(items.type), lambda value: [items.of(each) for each in cast("Sequence[object]", value)])


def _map(values: ColumnType) -> ColumnType:
    def convert(value: object) -> object:
        return [(key, values.of(each)) for key, each in cast("Mapping[str, object]", value).items()]

    return ColumnType(pa.map_(pa.string(), values.type), convert)


# ------------------------------------------------------------------------------------------------------------ models


def _of_model(adapter: _Adapter) -> ColumnType:
    try:
        schema = adapter.json_schema(mode="serialization")
    except PydanticUserError:
        # A type that pydantic writes as JSON without a schema of it.
        found = _JSON
    else:
        found = _of_schema(schema, cast("Schema", schema.get("$defs", {})), ())
    return ColumnType(found.type, lambda value: found.of(adapter.dump_python(value, mode="json")))


_OF_FORMAT = {
    "date-time": ColumnType(TIME, lambda value: _utc(datetime.fromisoformat(str(value)))),
    "date": ColumnType(pa.date32(), lambda value: date.fromisoformat(str(value))),
}
_OF_TYPE = {
    "string": _PLAIN["string"],
    "integer": ColumnType(pa.int64(), _of_64_bits),
    "number": _PLAIN["double"],
    "boolean": _PLAIN["boolean"],
}


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def _of_schema(schema: Schema, definitions: Schema, inside: tuple[str, ...]) -> ColumnType:
    """Returns the type that a JSON schema of pydantic describes."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        if name in inside:
            # It contains itself: no type of a column does.
            return _JSON
        return _of_schema(cast("Schema", definitions[name]), definitions, (*inside, name))
    if "anyOf" in schema:
        kinds = [each for each in cast("Sequence[Schema]", schema["anyOf"]) if each.get("type") != "null"]
        return _of_schema(kinds[0], definitions, inside) if len(kinds) == 1 else _JSON
    kind = schema.get("type")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return _list(_of_schema(cast("Schema", schema["items"]), definitions, inside))
    if kind == "object":
        return _of_object(schema, definitions, inside)
    if kind == "string" and schema.get("format") in _OF_FORMAT:
        return _OF_FORMAT[str(schema["format"])]
    return _OF_TYPE.get(str(kind), _JSON)


def _of_object(schema: Schema, definitions: Schema, inside: tuple[str, ...]) -> ColumnType:
    properties = cast("Mapping[str, Schema]", schema.get("properties", {}))
    more = schema.get("additionalProperties")
    if properties and not more:
        return _struct({name: _of_schema(each, definitions, inside) for name, each in properties.items()})
    if isinstance(more, dict) and not properties:
        return _map(_of_schema(more, definitions, inside))
    return _JSON


# ------------------------------------------------------------------------------------------------------------- Avro

_OF_AVRO = {
    "string": _PLAIN["string"],
    "bytes": _PLAIN["bytes"],
    "fixed": _PLAIN["bytes"],
    "int": _PLAIN["integer"],
    "long": _PLAIN["long"],
    "float": _PLAIN["float"],
    "double": _PLAIN["double"],
    "boolean": _PLAIN["boolean"],
    "enum": _PLAIN["string"],
}
_TIME = ColumnType(TIME, lambda value: _utc(cast("datetime", value)))
_OF_LOGICAL = {
    "timestamp-millis": _TIME,
    "timestamp-micros": _TIME,
    "local-timestamp-millis": _TIME,
    "local-timestamp-micros": _TIME,
    "date": ColumnType(pa.date32(), _same),
    "uuid": _TEXT,
}


def _of_avro(schema: object, named: dict[str, object]) -> ColumnType:
    """Returns the type that an Avro schema describes, as fastavro parses it. ``named``: the schemas read so far, by name."""
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        return _of_avro(kinds[0], named) if len(kinds) == 1 else _JSON
    if isinstance(schema, str):
        known = named.get(schema)
        # A record that is being read contains itself where it is named.
        return _OF_AVRO.get(schema, _JSON) if known is None else _of_avro(known, named)
    found = cast("Mapping[str, object]", schema)
    kind, logical = found["type"], found.get("logicalType")
    if logical == "decimal":
        precision, scale = cast("int", found["precision"]), cast("int", found.get("scale", 0))
        return ColumnType(pa.decimal128(precision, scale), _same) if precision <= 38 else _TEXT
    if logical is not None:
        # Of others fastavro makes what has a text.
        return _OF_LOGICAL.get(str(logical), _TEXT)
    if kind == "array":
        return _list(_of_avro(found["items"], named))
    if kind == "map":
        return _map(_of_avro(found["values"], named))
    if kind in ("record", "error"):
        return _of_record(found, named)
    if "name" in found:
        named[str(found["name"])] = found
    return _of_avro(kind, named) if not isinstance(kind, str) else _OF_AVRO.get(kind, _JSON)


def _of_record(schema: Mapping[str, object], named: dict[str, object]) -> ColumnType:
    name = str(schema["name"])
    named.pop(name, None)
    fields = cast("Sequence[Mapping[str, object]]", schema["fields"])
    made = _struct({str(each["name"]): _of_avro(each["type"], named) for each in fields})
    named[name] = schema
    return made
