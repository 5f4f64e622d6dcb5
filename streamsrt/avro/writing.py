"""Writes the values of one Avro schema by generated code, at a fraction of the time that fastavro takes for it.

It takes only values of the very types that are read. Others, and those that are wrong, are left to fastavro.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias, cast

from streamsrt.avro.source_code import (
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

Write: TypeAlias = Callable[[object, bytes], bytes]
_UNWRITABLE = (KeyError, TypeError, ValueError, OverflowError, struct.error)
_SMALL = [bytes((number,)) for number in range(128)]
_INT_MAX, _LONG_MAX = 1 << 31, 1 << 63


def generated_writer(schema: Schema, logical: Logical, otherwise: Write) -> Write | None:
    """A function that returns the bytes of a value behind others (the head of the message); None for a schema that it has
    no code for. ``otherwise``: writes what the code can't write."""
    code = SourceCode("def write(value, head, *):", schema)
    try:
        with code.block("try:"):
            code.line("parts = [head]", "v = value")
            _Writing(code, logical).value(schema, "v")
            code.line("return join(parts)")
        # Not in the block of the exception, so that another one has none before it.
        code.line("except unwritable: pass", "return otherwise(value, head)")
        known = {"join": b"".join, "small": _SMALL, "sizes": _SIZES, "varint": _varint, "encode": str.encode}
        return cast(Write, code.compiled({**known, "unwritable": _UNWRITABLE, "otherwise": otherwise}))
    except Unsupported:
        return None


def _varint(number: int) -> bytes:
    """A number that is not negative, seven bits in each byte."""
    if number < 16384:
        return bytes((number & 127 | 128, number >> 7)) if number > 127 else _SMALL[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_SIZES = [_varint(size << 1) for size in range(1024)]


class _Writing:
    """Writes the code that appends the parts of a value to ``parts``."""

    def __init__(self, code: SourceCode, logical: Logical) -> None:
        self._code = code
        self._logical = logical

    def value(self, writer: Schema, value: str) -> None:
        """``value``: the variable that has it, which is assigned anew where the type is a logical one."""
        with self._code.defined(writer) as schema:
            kind = kind_of(schema)
            if part_of(schema, "logicalType") is not None and kind not in PRIMITIVES:
                raise Unsupported
            prepare = conversion_of(schema, self._logical)
            if prepare is not None:
                self._code.line(f"{value} = {self._code.bind(prepare)}({value}, {self._code.bind(schema)})")
            getattr(self, f"_{kind}")(schema, value)

    def _refuse(self, test: str) -> None:
        self._code.line(f"if {test}: raise ValueError")

    def _null(self, schema: Schema, value: str) -> None:
        self._refuse(f"{value} is not None")

    def _boolean(self, schema: Schema, value: str) -> None:
        self._refuse(f"type({value}) is not bool")
        self._code.line(f"parts.append(small[{value}])")

    def _int(self, schema: Schema, value: str, limit: int = _INT_MAX) -> None:
        c = self._code
        self._refuse(f"type({value}) is not int or not {-limit} <= {value} < {limit}")
        c.line(f"z = {value} << 1 if {value} >= 0 else ~({value} << 1)")
        c.line("parts.append(small[z] if z < 128 else varint(z))")

    def _long(self, schema: Schema, value: str) -> None:
        self._int(schema, value, _LONG_MAX)

    def _packed(self, layout: str, value: str) -> None:
        c = self._code
        self._refuse(f"type({value}) is not float and type({value}) is not int")
        c.line(f"parts.append({c.bind(struct.Struct(layout).pack)}({value}))")

    def _float(self, schema: Schema, value: str) -> None:
        self._packed("<f", value)

    def _double(self, schema: Schema, value: str) -> None:
        self._packed("<d", value)

    def _bytes(self, schema: Schema, value: str) -> None:
        self._refuse(f"type({value}) is not bytes")
        self._sized(value)

    def _string(self, schema: Schema, value: str) -> None:
        self._code.line(f"e = encode({value})")
        self._sized("e")

    def _length(self, value: str) -> None:
        self._code.line(f"n = len({value})", f"parts.append(sizes[n] if n < {len(_SIZES)} else varint(n << 1))")

    def _sized(self, raw: str) -> None:
        self._length(raw)
        self._code.line(f"parts.append({raw})")

    def _fixed(self, schema: Schema, value: str) -> None:
        self._refuse(f"type({value}) is not bytes or len({value}) != {size_of(schema)}")
        self._code.line(f"parts.append({value})")

    def _enum(self, schema: Schema, value: str) -> None:
        places = {symbol: _varint(place << 1) for place, symbol in reversed(list(enumerate(symbols_of(schema))))}
        self._refuse(f"type({value}) is not str")
        self._code.line(f"parts.append({self._code.bind(places)}[{value}])")

    def _union(self, schema: Schema, value: str) -> None:
        null, other = optional_of(schema)
        with self._code.block(f"if {value} is None:"):
            self._code.line(f"parts.append(small[{2 * null}])")
        with self._code.block("else:"):
            self._code.line(f"parts.append(small[{2 - 2 * null}])")
            self.value(other, value)

    def _array(self, schema: Schema, value: str) -> None:
        c = self._code
        self._refuse(f"type({value}) is not list")
        item = c.name("v")
        with c.block(f"if {value}:"):
            self._length(value)
            with c.block(f"for {item} in {value}:"):
                self.value(part_of(schema, "items"), item)
        c.line("parts.append(small[0])")

    def _map(self, schema: Schema, value: str) -> None:
        c = self._code
        self._refuse(f"type({value}) is not dict")
        key, item = c.name("k"), c.name("v")
        with c.block(f"if {value}:"):
            self._length(value)
            with c.block(f"for {key}, {item} in {value}.items():"):
                self._string("string", key)
                self.value(part_of(schema, "values"), item)
        c.line("parts.append(small[0])")

    def _record(self, schema: Schema, value: str) -> None:
        c = self._code
        self._refuse(f"type({value}) is not dict")
        for field in fields_of(schema):
            name = c.name("v")
            c.line(f"{name} = {value}[{field.name!r}]")
            self.value(field.schema, name)
