"""How the values of one schema are read and written, as steps: a tree, of which Python code or a table in C is made.

Of Avro's schema resolution there are steps for records whose fields are matched by name: some are left out, have a default,
are numbers of a larger type, or optional. Every other schema is :class:`Unsupported`, and left to fastavro.

Steps that read a value, by their ``kind``:

- ``null``, ``boolean``, ``long`` (``int`` too), ``float``, ``double``, ``bytes``, ``string``; ``array`` and ``map``, whose
  part is an item
- ``fixed``       ``number`` bytes
- ``enum``        ``known``: the symbols
- ``union``       of null, whose place is ``number``, and its part
- ``record``      ``known``: the name of the field that each part reads; None: the part skips one
- ``constant``    the object in ``known``; nothing is read
- ``convert``     what the function in ``known`` makes of its part, of the schema and of the one into which it is read
- ``float_of``    its part as a float

Steps that skip what nobody wants:

- ``skip``        ``number`` bytes
- ``skip_long``   a number
- ``skip_sized``  bytes whose size comes before them
- ``skip_union``  as ``union``
- ``skip_blocks`` blocks of items, which are passed over by all parts; a block that has its size is not looked into
- ``skip_record`` all parts

Steps that write a value have the same names, with two more and two others:

- ``int``         as ``long``, of 32 bits
- ``place``       an enum. ``known``: a dict with the bytes that are written for each symbol
- ``record``      ``known``: the names of its fields
- ``prepare``     its part, of what the function in ``known`` makes of the value and of the schema
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from sys import intern
from typing import NamedTuple

from streamsrt.avro.schemas import (
    NO_DEFAULT,
    PRIMITIVES,
    Logical,
    Schema,
    Unsupported,
    conversion_of,
    fields_of,
    kind_of,
    optional_of,
    part_of,
    size_of,
    symbols_of,
)

STEPS_MAX = 5_000
DEPTH_MAX = 60
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS = ("int", "long", "float", "double")


class AvroStep(NamedTuple):
    """See above."""

    kind: str
    parts: tuple[AvroStep, ...] = ()
    number: int = 0
    known: tuple[object, ...] = ()


def reading(writer: Schema, reader: Schema | None, logical: Logical) -> AvroStep:
    """How a value is read. ``reader``: what it is read into; None: as it was written. Raises Unsupported."""
    return _Reading(writer, logical).value(writer, reader)


def writing(schema: Schema, logical: Logical) -> AvroStep:
    """How a value is written. Raises Unsupported."""
    return _Writing(schema, logical).value(schema)


def varint(number: int) -> bytes:
    """A number that is not negative, seven bits in each byte."""
    if number < 16384:
        return bytes((number & 127 | 128, number >> 7)) if number > 127 else bytes((number,))
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def least_bytes(step: AvroStep) -> int:
    """The bytes of a value that a step reads or skips are never fewer."""
    match step.kind:
        case "fixed" | "skip":
            return step.number
        case "constant":
            return 0
        case "record" | "skip_record" | "convert" | "float_of":
            return sum(map(least_bytes, step.parts))
        case kind:
            return _SIZES.get(kind, 1)


def has_one_size(step: AvroStep) -> bool:
    """Whether all values that a step skips have as many bytes."""
    return step.kind == "skip" or (step.kind == "skip_record" and all(map(has_one_size, step.parts)))


class _Walk:
    """Goes through a schema and the types that it names."""

    def __init__(self, schema: Schema, logical: Logical) -> None:
        self.logical = logical
        self._named: Mapping[str, Schema] = schema.get("__named_schemas", {}) if isinstance(schema, dict) else {}
        self._inside: list[str | None] = []
        self._steps = 0

    @contextmanager
    def defined(self, schema: Schema) -> Iterator[Schema]:
        """The schema itself where ``schema`` is the name of a type. Raises Unsupported for a type in itself, and for too
        many of them."""
        found = self._named.get(schema, schema) if isinstance(schema, str) and schema not in PRIMITIVES else schema
        own = found.get("name") if isinstance(found, dict) else None
        self._steps += 1
        if self._steps > STEPS_MAX or len(self._inside) >= DEPTH_MAX or (own is not None and own in self._inside):
            raise Unsupported
        self._inside.append(own)
        yield found
        self._inside.pop()


class _Reading(_Walk):
    def value(self, writer: Schema, reader: Schema | None) -> AvroStep:
        if reader is not None and isinstance(writer, str) and writer not in PRIMITIVES:
            raise Unsupported
        with self.defined(writer) as schema:
            into = None if reader is None else _matched(schema, reader)
            kind = kind_of(schema)
            step = self._of_kind(kind, schema, into)
            convert = conversion_of(schema, self.logical)
            if convert is not None:
                return AvroStep("convert", (step,), known=(convert, schema, into))
            if into is not None and kind in ("int", "long") and kind_of(into) in ("float", "double"):
                return AvroStep("float_of", (step,))
            return step

    def _of_kind(self, kind: str, schema: Schema, into: Schema | None) -> AvroStep:
        match kind:
            case "int":
                return AvroStep("long")
            case "fixed":
                return AvroStep(kind, number=size_of(schema))
            case "enum":
                return AvroStep(kind, known=symbols_of(schema))
            case "union":
                null, other = optional_of(schema)
                return AvroStep(kind, (self.value(other, None if into is None else optional_of(into)[1]),), null)
            case "array":
                return AvroStep(kind, (self.value(part_of(schema, "items"), part_of(into, "items")),))
            case "map":
                return AvroStep(kind, (self.value(part_of(schema, "values"), part_of(into, "values")),))
            case "record":
                return self._record(schema, into)
            case _:
                return AvroStep(kind)

    def _record(self, writer: Schema, reader: Schema | None) -> AvroStep:
        names: list[str | None] = []
        parts = []
        wanted = {field.name: field for field in fields_of(reader)}
        for name, schema, *_ in fields_of(writer):
            is_wanted = reader is None or name in wanted
            names.append(intern(name) if is_wanted else None)
            if not is_wanted:
                parts.append(self._skip(schema))
            else:
                parts.append(self.value(schema, None if reader is None else wanted.pop(name).schema))
        for name, field in wanted.items():
            if field.default is NO_DEFAULT:
                raise Unsupported
            names.append(intern(name))
            parts.append(AvroStep("constant", known=(field.default,)))
        return AvroStep("record", tuple(parts), known=tuple(names))

    def _skip(self, writer: Schema) -> AvroStep:
        """As fastavro passes over a value: text is not decoded."""
        with self.defined(writer) as schema:
            kind = kind_of(schema)
            size = size_of(schema) if kind == "fixed" else _SIZES.get(kind)
            if size is not None:
                return AvroStep("skip", number=size)
            match kind:
                case "bytes" | "string":
                    return AvroStep("skip_sized")
                case "record":
                    return AvroStep("skip_record", tuple(self._skip(field.schema) for field in fields_of(schema)))
                case "array":
                    return AvroStep("skip_blocks", (self._skip(part_of(schema, "items")),))
                case "map":
                    return AvroStep("skip_blocks", (AvroStep("skip_sized"), self._skip(part_of(schema, "values"))))
                case "union":
                    null, other = optional_of(schema)
                    return AvroStep("skip_union", (self._skip(other),), null)
                case _:
                    return AvroStep("skip_long")


class _Writing(_Walk):
    def value(self, schema: Schema) -> AvroStep:
        with self.defined(schema) as found:
            kind = kind_of(found)
            if part_of(found, "logicalType") is not None and kind not in PRIMITIVES:
                raise Unsupported
            step = self._of_kind(kind, found)
            prepare = conversion_of(found, self.logical)
            return step if prepare is None else AvroStep("prepare", (step,), known=(prepare, found))

    def _of_kind(self, kind: str, schema: Schema) -> AvroStep:
        match kind:
            case "fixed":
                return AvroStep(kind, number=size_of(schema))
            case "enum":
                places = reversed(list(enumerate(symbols_of(schema))))
                return AvroStep("place", known=({symbol: varint(place << 1) for place, symbol in places},))
            case "union":
                null, other = optional_of(schema)
                return AvroStep(kind, (self.value(other),), null)
            case "array":
                return AvroStep(kind, (self.value(part_of(schema, "items")),))
            case "map":
                return AvroStep(kind, (self.value(part_of(schema, "values")),))
            case "record":
                fields = fields_of(schema)
                names = tuple(intern(field.name) for field in fields)
                return AvroStep(kind, tuple(self.value(field.schema) for field in fields), known=names)
            case _:
                return AvroStep(kind)


def _matched(writer: Schema, reader: Schema) -> Schema:
    """The schema into which a value is read. Raises Unsupported where Avro's rules say more than that."""
    kind, other = kind_of(writer), kind_of(reader)
    if other == "union" and kind != "union":
        reader = optional_of(reader)[1]
        other = kind_of(reader)
        if other not in PRIMITIVES or kind != other:
            raise Unsupported
    if kind == other == "union":
        if optional_of(writer)[1] != optional_of(reader)[1]:
            raise Unsupported
        return reader
    if kind in PRIMITIVES:
        is_larger = kind in _NUMBERS and other in _NUMBERS and _NUMBERS.index(kind) < _NUMBERS.index(other)
        if kind != other and not is_larger:
            raise Unsupported
        return reader
    if kind != other:
        raise Unsupported
    if kind in ("record", "enum", "fixed"):
        has_aliases = part_of(reader, "aliases") is not None or any(field.has_aliases for field in fields_of(reader))
        is_same = all(part_of(writer, part) == part_of(reader, part) for part in ("symbols", "size"))
        if has_aliases or not is_same or _unqualified(writer) != _unqualified(reader):
            raise Unsupported
    return reader


def _unqualified(schema: Schema) -> str:
    return f"{part_of(schema, 'name')}".rpartition(".")[2]
