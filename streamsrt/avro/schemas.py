"""What Avro's schemas are made of, as fastavro parses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

Schema: TypeAlias = object
"""As fastavro parses it: the name of a type, a list of types (a union), or a dict."""
Logical: TypeAlias = Mapping[str, Callable[..., object]]
"""Fastavro's functions for logical types."""

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_KINDS = PRIMITIVES | {"fixed", "enum", "union", "array", "map", "record"}


class Unsupported(Exception):
    """Such a schema is left to fastavro."""


def kind_of(schema: Schema) -> str:
    """``union``, or the type's name. Raises Unsupported for other types than Avro's."""
    if isinstance(schema, list):
        return "union"
    found: object = schema["type"] if isinstance(schema, dict) else schema
    if not isinstance(found, str) or found not in _KINDS:
        raise Unsupported
    return found


class RecordField(NamedTuple):
    """A field of a record. ``default``: :data:`NO_DEFAULT` where there is none."""

    name: str
    schema: Schema
    default: object
    has_aliases: bool


NO_DEFAULT = object()


def part_of(schema: Schema, name: str) -> Schema:
    """``items``, ``values``, ``symbols`` or ``name`` of a type; None where it has none."""
    return schema.get(name) if isinstance(schema, dict) else None


def fields_of(record: Schema) -> list[RecordField]:
    fields = part_of(record, "fields")
    if not isinstance(fields, list):
        return []
    return [RecordField(f["name"], f["type"], f.get("default", NO_DEFAULT), "aliases" in f) for f in fields]


def symbols_of(enum: Schema) -> tuple[str, ...]:
    symbols = part_of(enum, "symbols")
    return tuple(symbols) if isinstance(symbols, list | tuple) else ()


def size_of(fixed: Schema) -> int:
    """Raises Unsupported where it is no size: it becomes part of the code."""
    size = part_of(fixed, "size")
    if type(size) is not int or size < 0:
        raise Unsupported
    return size


def conversion_of(schema: Schema, logical: Logical) -> Callable[..., object] | None:
    """Fastavro's function for the logical type of values, where there is one."""
    name = part_of(schema, "logicalType")
    return None if name is None else logical.get(f"{kind_of(schema)}-{name}")


def optional_of(union: Schema) -> tuple[int, Schema]:
    """The place of null in a union of two types, and the other type. Raises Unsupported for any other union."""
    if not isinstance(union, list) or len(union) != 2 or "null" not in union:
        raise Unsupported
    at = union.index("null")
    other = union[1 - at]
    if other == "null" or isinstance(other, list):
        raise Unsupported
    return at, other
