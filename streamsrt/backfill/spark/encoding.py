"""Keys and values of a lake that are columns of other types than text and bytes: encoded by the application's own serdes.

1. The serde is that of the source which reads the topic. A worker loads the application by its name; no object of it is
   shipped.
2. The value that a serde gets is what the program would get from it: a model for ``json(Model)``, a message for Protobuf, a
   dict for ``json``, Avro and others. Numbers, texts and times are Python's.
3. A null column is a null key or value, which no serde gets. A null field is given as null where the serde takes that, and
   left out where it does not: then it has its default. Only a model says which of its fields takes no null; for others,
   either all null fields are given or none.
4. A row that the serde refuses ends the plan: nothing is left out, and no text is made of what is none.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast
from uuid import UUID

import pyarrow as pa
from pydantic import ValidationError

from streamsrt.application import load_application
from streamsrt.backfill.errors import ArchiveError
from streamsrt.backfill.plan import BackfillPlan
from streamsrt.backfill.planned_application import configured
from topology.graph.nodes import SourceNode
from topology.graph.topology import Topology
from topology.spec.codecs import ModelSerde, ProgramSerde, ProtobufSerde

if TYPE_CHECKING:
    from pyspark.sql import Column

Part: TypeAlias = Literal["key", "value"]
PARTS: tuple[Part, Part] = ("key", "value")
_Convert: TypeAlias = Callable[[object], object]
_SHOWN = 120
_TEXTS = ("string", "uuid")
_MARK = "a row that its serde does not take: "
_MARKED = re.compile(rf"{_MARK}((key|value) .*? is not of (.+?): .*?)\.$", re.MULTILINE)


class _Adapter(Protocol):
    """The part of pydantic's TypeAdapter that is used here."""

    def validate_python(self, value: object, /) -> object: ...


class RowEncodingError(ArchiveError):
    """The serde of a source refuses a row of its lake. The message has the row and the reason: correct the row, select the
    fields that the serde takes, or leave such rows out."""


@dataclass(frozen=True, slots=True)
class SourceSerdes:
    """The serdes of an application's sources, by the name of the application. ``python_path``: the driver's, if its workers
    are on the same machine."""

    application: str
    application_id: str
    config: tuple[tuple[str, str], ...]
    python_path: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: BackfillPlan, python_path: tuple[str, ...]) -> SourceSerdes:
        """Those of the application of a plan."""
        return cls(plan.application, plan.application_id, tuple(plan.config.items()), python_path)

    def encoded(self, topic: str, part: Part, column: Column) -> Column:
        """The column as bytes: what a producer of the topic would have written."""
        from pyspark.sql.pandas.functions import arrow_udf

        # Its kind is in the annotations; PySpark's stubs want it said twice, at which PySpark warns.
        encode = arrow_udf(_Encoder(self, topic, part).encode, returnType="binary")  # type: ignore[call-overload]
        found: Column = encode(column)
        return found


@dataclass(frozen=True, slots=True)
class _Encoder:
    serdes: SourceSerdes
    topic: str
    part: Part

    def encode(self, column: pa.Array) -> pa.Array:
        return encoded_column(column, serde_of(self.serdes, self.topic, self.part), self.part)


def encoded_column(column: pa.Array, serde: ProgramSerde, part: Part) -> pa.Array:
    """The column as bytes that a serde has written. Raises RowEncodingError."""
    convert, write = _plain(column.type), _writer(serde)

    def one(row: object) -> bytes:
        try:
            return write(convert(row))
        except Exception as error:  # whatever a user's serde raises
            text = repr(row)
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            reason = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
            raise RowEncodingError(f"{_MARK}{part} {shown} is not of {serde.name}: {reason}.") from error

    return pa.array([None if row is None else one(row) for row in column.to_pylist()], pa.binary())


def refused_row(topic: str, text: str) -> RowEncodingError | None:
    """The error to raise for an error of Spark's, if it is that of a row that a serde refuses."""
    found = _MARKED.search(text)
    if found is None:
        return None
    said, part, serde = found.groups()
    taken = "cast(... as string)" if serde in _TEXTS else "struct(...)"
    return RowEncodingError(
        f"the lake of {topic} has {_MARK}{said}. Select what the serde takes, e.g. --lake-column {topic}.{part}='{taken}', "
        "or leave such rows out with --lake-where"
    )


@lru_cache(maxsize=64)
def serde_of(serdes: SourceSerdes, topic: str, part: Part) -> ProgramSerde:
    """The serde of a source's keys or values. Raises ArchiveError where there is none."""
    known = set(sys.path)
    sys.path.extend(entry for entry in serdes.python_path if entry not in known)
    application = load_application(serdes.application)
    topology, _ = configured(application.topology, {**application.config, **dict(serdes.config)}, serdes.application_id)
    source = _source_of(topology, topic)
    serde = source.key_serde if part == "key" else source.value_serde
    if serde is None:
        raise ArchiveError(
            f"the source of {topic} has no serde for its {part}, so it can't be encoded: give one where the topic is read, "
            f"or write text or bytes with --lake-column {topic}.{part}=..."
        )
    return serde


def _source_of(topology: Topology, topic: str) -> SourceNode:
    return next(source for each in topology.subtopologies for source in each.sources if topic in source.topics)


# ----------------------------------------------------------------------------------------------- from columns to values


def _same(value: object) -> object:
    return value


def _plain(kind: pa.DataType) -> _Convert:
    """Turns what Arrow makes of a column of this type into plain values: maps are dicts."""
    if pa.types.is_struct(kind):
        fields = {field.name: _plain(field.type) for field in kind}
        if all(convert is _same for convert in fields.values()):
            return _same
        return lambda value: {
            name: None if each is None else fields[name](each)
            for name, each in cast("Mapping[str, object]", value).items()
        }
    if pa.types.is_map(kind):
        keys, items = _plain(kind.key_type), _plain(kind.item_type)
        return lambda value: {
            keys(key): None if item is None else items(item)
            for key, item in cast("Sequence[tuple[object, object]]", value)
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _plain(kind.value_type)
        if inner is _same:
            return _same
        return lambda value: [None if each is None else inner(each) for each in cast("Sequence[object]", value)]
    return _same


def _writer(serde: ProgramSerde) -> Callable[[object], bytes]:
    """How a serde writes plain values."""
    if isinstance(serde, ModelSerde):
        model_of = _with_model_defaults(cast("_Adapter", serde.adapter).validate_python)
        return lambda value: serde.serialize(model_of(value))
    if isinstance(serde, ProtobufSerde):
        return lambda value: serde.serialize(serde.message_of(_json_fields(value)))
    if serde.name == "uuid":
        return lambda value: serde.serialize(value if isinstance(value, UUID) else UUID(str(value)))
    return _with_defaults(serde.serialize)


def _with_model_defaults(validate: Callable[[object], object]) -> Callable[[object], object]:
    def tried(value: object) -> object:
        try:
            return validate(value)
        except ValidationError as error:
            refused = [each["loc"] for each in error.errors() if each["input"] is None]
            if not refused:
                raise
        return validate(_without(value, refused))

    return tried


def _without(value: object, paths: Sequence[tuple[int | str, ...]]) -> object:
    """The value without its fields at these paths. Steps that pydantic adds for the types of a union lead nowhere."""
    here = {path[0] for path in paths if len(path) == 1}
    below = {path[0]: [each[1:] for each in paths if each[0] == path[0] and len(each) > 1] for path in paths if path}
    if isinstance(value, dict):
        return {key: _without(each, below.get(key, ())) for key, each in value.items() if key not in here}
    if isinstance(value, list):
        return [_without(each, below.get(index, ())) for index, each in enumerate(value)]
    return value


def _with_defaults(write: Callable[[object], bytes]) -> Callable[[object], bytes]:
    def tried(value: object) -> bytes:
        try:
            return write(value)
        except Exception:  # whatever a user's serde raises
            left = _without_nulls(value)
            if left == value:
                raise
        return write(left)

    return tried


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _json_fields(value: object) -> object:
    """A value as Protobuf's JSON has it: bytes in base 64, times as text. Null fields have their default there."""
    if isinstance(value, dict):
        return {key: _json_fields(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_json_fields(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat() + ("Z" if value.tzinfo is None else "")
    return value
