"""Generated functions for values of one Avro schema.

1. The code is for what values usually are. Whatever else there is (a value of an unexpected type, bytes that end too soon, a
   union of many types) raises an exception or is :class:`Unsupported`: fastavro does it then, and says what is wrong.
2. So a generated function gives the same result as fastavro, or none.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple, TypeAlias
from zlib import crc32

Schema: TypeAlias = object
"""As fastavro parses it: the name of a type, a list of types (a union), or a dict."""
Logical: TypeAlias = Mapping[str, Callable[..., object]]
"""Fastavro's functions for logical types."""

LINES_MAX = 5_000
PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_KINDS = PRIMITIVES | {"fixed", "enum", "union", "array", "map", "record"}


class Unsupported(Exception):
    """The generator has no code for such a schema."""


class SourceCode:
    """The lines of one function, and the objects that it uses."""

    def __init__(self, head: str, schema: Schema) -> None:
        self._head = head
        self._lines: list[str] = []
        self._depth = 1
        self._numbers = count()
        self._bound: dict[str, object] = {}
        self._named: Mapping[str, Schema] = schema.get("__named_schemas", {}) if isinstance(schema, dict) else {}
        self._inside: list[str] = []

    def line(self, *texts: str) -> None:
        for text in texts:
            self._lines.append("    " * self._depth + text)
        if len(self._lines) > LINES_MAX:
            raise Unsupported

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        """A new variable."""
        return f"{prefix}{next(self._numbers)}"

    def bind(self, value: object) -> str:
        """The name under which the function knows an object."""
        name = self.name("_")
        self._bound[name] = value
        return name

    @contextmanager
    def defined(self, schema: Schema) -> Iterator[Schema]:
        """The schema itself where ``schema`` is the name of a type. A type in itself is Unsupported."""
        found = self._named.get(schema, schema) if isinstance(schema, str) and schema not in PRIMITIVES else schema
        own = found.get("name") if isinstance(found, dict) else None
        if own is not None:
            if own in self._inside:
                raise Unsupported
            self._inside.append(own)
        yield found
        if own is not None:
            self._inside.pop()

    def compiled(self, known: Mapping[str, object]) -> object:
        """The function. ``known``: more names that it uses."""
        names = {**known, **self._bound}
        head = self._head.replace("*", ", ".join(f"{name}={name}" for name in names))
        source = "\n".join([head, *self._lines]) + "\n"
        filename = f"<streamsrt avro #{crc32(source.encode()):08x}>"
        namespace: dict[str, object] = dict(names)
        try:
            exec(compile(source, filename, "exec"), namespace)
        except SyntaxError as error:  # too deep
            raise Unsupported from error
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        return namespace[head.partition("(")[0].removeprefix("def ")]


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
