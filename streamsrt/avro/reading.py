"""Reads the values of one Avro schema by generated code, at half of the time that fastavro takes for it.

Of Avro's schema resolution there is code for records whose fields are matched by name: some are left out, have a default,
are numbers of a larger type, or optional. Everything else is left to fastavro.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias, cast

from streamsrt.avro.source_code import (
    NO_DEFAULT,
    PRIMITIVES,
    Logical,
    Schema,
    SourceCode,
    Unsupported,
    conversion_of,
    fields_of,
    kind_of,
    optional_of,
    part_of,
    size_of,
    symbols_of,
)

Read: TypeAlias = Callable[[bytes, int], object]
_UNREADABLE = (IndexError, ValueError, struct.error)
_ZIGZAG = [(number >> 1) ^ -(number & 1) for number in range(128)]
_BITS_MAX = 63
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS = ("int", "long", "float", "double")


def generated_reader(writer: Schema, reader: Schema | None, logical: Logical, otherwise: Read) -> Read | None:
    """A function that reads a value in bytes from a position on; None for a schema that it has no code for.

    ``reader``: what the value is read into; None: as it was written. ``otherwise``: reads what the code can't read.
    """
    code = SourceCode("def read(d, at, *):", writer)
    try:
        with code.block("try:"):
            code.line("i = at")
            value = _Reading(code, logical).value(writer, reader)
            code.line("if i > len(d): raise ValueError", f"return {value}")
        # Not in the block of the exception, so that another one has none before it.
        code.line("except unreadable: pass", "return otherwise(d, at)")
        known = {"zigzag": _ZIGZAG, "more": _more, "length": _length, "unreadable": _UNREADABLE, "otherwise": otherwise}
        return cast(Read, code.compiled(known))
    except Unsupported:
        return None


def _more(data: bytes, at: int, number: int, bits: int) -> tuple[int, int]:
    """The rest of a number, of which so many bits are known; and where it ends."""
    while True:
        each = data[at]
        at += 1
        number |= (each & 127) << bits
        if each < 128:
            return number, at
        bits += 7
        if bits >= _BITS_MAX:
            raise ValueError


def _length(data: bytes, at: int, first: int) -> tuple[int, int]:
    """A length that is not in one byte, twice; and where it ends. Raises ValueError where it is negative."""
    number, at = _more(data, at, first & 127, 7) if first > 127 else (first, at)
    if number & 1:
        raise ValueError
    return number, at


class _Reading:
    """Writes the code for values: each method returns the expression that has the value."""

    def __init__(self, code: SourceCode, logical: Logical) -> None:
        self._code = code
        self._logical = logical

    def value(self, writer: Schema, reader: Schema | None) -> str:
        if reader is not None and isinstance(writer, str) and writer not in PRIMITIVES:
            raise Unsupported
        with self._code.defined(writer) as schema:
            into = None if reader is None else _matched(schema, reader)
            found: str = getattr(self, f"_{kind_of(schema)}")(schema, into)
            convert = conversion_of(schema, self._logical)
            if convert is not None:
                call = f"{self._code.bind(convert)}({found}, {self._code.bind(schema)}, {self._code.bind(into)})"
                return self._kept(call)
            if into is not None and kind_of(schema) in ("int", "long") and kind_of(into) in ("float", "double"):
                return self._kept(f"float({found})")
            return found

    def _kept(self, expression: str) -> str:
        name = self._code.name("v")
        self._code.line(f"{name} = {expression}")
        return name

    # ------------------------------------------------------------------------------------------------------ primitives

    def _null(self, writer: Schema, reader: Schema | None) -> str:
        return "None"

    def _boolean(self, writer: Schema, reader: Schema | None) -> str:
        name = self._kept("d[i] != 0")
        self._code.line("i += 1")
        return name

    def _long(self, writer: Schema, reader: Schema | None) -> str:
        name, c = self._code.name("v"), self._code
        c.line("b = d[i]", "i += 1")
        with c.block("if b < 128:"):
            c.line(f"{name} = zigzag[b]")
        with c.block("else:"):
            c.line("c = d[i]", "i += 1", "b += (c << 7) - 128")
            with c.block("if c > 127:"):
                c.line("c = d[i]", "i += 1", "b += (c << 14) - 16384")
                with c.block("if c > 127:"):
                    c.line("b, i = more(d, i, b - 2097152, 21)")
            c.line(f"{name} = ~(b >> 1) if b & 1 else b >> 1")
        return name

    _int = _long

    def _unpacked(self, layout: str) -> str:
        codec = struct.Struct(layout)
        name = self._kept(f"{self._code.bind(codec.unpack_from)}(d, i)[0]")
        self._code.line(f"i += {codec.size}")
        return name

    def _float(self, writer: Schema, reader: Schema | None) -> str:
        return self._unpacked("<f")

    def _double(self, writer: Schema, reader: Schema | None) -> str:
        return self._unpacked("<d")

    def _read_length(self) -> None:
        """``b`` is twice the number of bytes that begin at ``i``."""
        c = self._code
        c.line("b = d[i]", "i += 1")
        with c.block("if b & 129:"):
            c.line("c = d[i]")
            c.line("if b & 1 or c > 127: b, i = length(d, i, b)")
            with c.block("else:"):
                c.line("b += (c << 7) - 128", "i += 1")

    def _bytes(self, writer: Schema, reader: Schema | None) -> str:
        self._read_length()
        return self._kept("d[i : (i := i + (b >> 1))]")

    def _string(self, writer: Schema, reader: Schema | None) -> str:
        self._read_length()
        return self._kept("d[i : (i := i + (b >> 1))].decode()")

    # --------------------------------------------------------------------------------------------------- complex types

    def _fixed(self, writer: Schema, reader: Schema | None) -> str:
        size = size_of(writer)
        name = self._kept(f"d[i:i + {size}]")
        self._code.line(f"i += {size}")
        return name

    def _enum(self, writer: Schema, reader: Schema | None) -> str:
        return self._kept(f"{self._code.bind(symbols_of(writer))}[{self._long(writer, None)}]")

    def _union(self, writer: Schema, reader: Schema | None) -> str:
        null, other = optional_of(writer)
        c, name = self._code, self._code.name("v")
        c.line("b = d[i]", "i += 1")
        with c.block(f"if b == {2 * null}:"):
            c.line(f"{name} = None")
        with c.block(f"elif b == {2 - 2 * null}:"):
            c.line(f"{name} = {self.value(other, None if reader is None else optional_of(reader)[1])}")
        c.line("else: raise ValueError")
        return name

    def _blocks(self, one: Callable[[], None], *, skips: bool = False) -> None:
        """The loop over an array's or map's blocks. ``one``: writes the code for an item. ``skips``: nobody wants them,
        and a block whose size in bytes is there is not looked into."""
        c = self._code
        number = c.name("n")
        with c.block("while True:"):
            c.line(f"{number} = {self._long('long', None)}")
            c.line(f"if not {number}: break")
            with c.block(f"if {number} < 0:"):
                if skips:
                    size = self._long("long", None)
                    c.line(f"if {size} < 0: raise ValueError", f"i += {size}", "continue")
                else:
                    c.line(f"{number} = -{number}")
                    self._skip_long()
            with c.block(f"for _ in range({number}):"):
                one()

    def _array(self, writer: Schema, reader: Schema | None) -> str:
        found = self._kept("[]")
        into = part_of(reader, "items")

        def one() -> None:
            self._code.line(f"{found}.append({self.value(part_of(writer, 'items'), into)})")

        self._blocks(one)
        return found

    def _map(self, writer: Schema, reader: Schema | None) -> str:
        found = self._kept("{}")
        into = part_of(reader, "values")

        def one() -> None:
            key = self._string("string", None)
            self._code.line(f"{found}[{key}] = {self.value(part_of(writer, 'values'), into)}")

        self._blocks(one)
        return found

    def _record(self, writer: Schema, reader: Schema | None) -> str:
        fields: dict[str, str] = {}
        wanted = {field.name: field for field in fields_of(reader)}
        for name, schema, *_ in fields_of(writer):
            if reader is None:
                fields[name] = self.value(schema, None)
            elif name in wanted:
                fields[name] = self.value(schema, wanted.pop(name).schema)
            else:
                self._skip(schema)
        for name, field in wanted.items():
            if field.default is NO_DEFAULT:
                raise Unsupported
            fields[name] = self._code.bind(field.default)
        return self._kept("{" + ", ".join(f"{name!r}: {value}" for name, value in fields.items()) + "}")

    # -------------------------------------------------------------------------------------------------------- skipping

    def _skip(self, writer: Schema) -> None:
        """Passes over a value that nobody wants, as fastavro does: text is not decoded."""
        with self._code.defined(writer) as schema:
            kind = kind_of(schema)
            size = size_of(schema) if kind == "fixed" else _SIZES.get(kind)
            if size is not None:
                self._code.line(f"i += {size}")
                return
            match kind:
                case "int" | "long" | "enum":
                    self._skip_long()
                case "bytes" | "string":
                    self._read_length()
                    self._code.line("i += b >> 1")
                case "record":
                    for field in fields_of(schema):
                        self._skip(field.schema)
                case "array":
                    self._blocks(lambda: self._skip(part_of(schema, "items")), skips=True)
                case "map":
                    self._blocks(lambda: self._skip_item(schema), skips=True)
                case "union":
                    self._skip_union(schema)

    def _skip_item(self, schema: Schema) -> None:
        self._skip("string")
        self._skip(part_of(schema, "values"))

    def _skip_long(self) -> None:
        self._code.line("while d[i] > 127: i += 1", "i += 1")

    def _skip_union(self, union: Schema) -> None:
        null, other = optional_of(union)
        c = self._code
        c.line("b = d[i]", "i += 1")
        with c.block(f"if b == {2 - 2 * null}:"):
            self._skip(other)
        c.line(f"elif b != {2 * null}: raise ValueError")


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
