"""Writes the values of one Avro schema by generated code, at a fraction of the time that fastavro takes for it.

It takes only values of the very types that are read. Others, and those that are wrong, are left to fastavro.
"""

from __future__ import annotations

import struct
from typing import cast

from streamsrt.avro.kernels import Write
from streamsrt.avro.schemas import Unsupported
from streamsrt.avro.source_code import SourceCode
from streamsrt.avro.steps import AvroStep, varint

_UNWRITABLE = (KeyError, TypeError, ValueError, OverflowError, struct.error)
_SMALL = [bytes((number,)) for number in range(128)]
_INT_MAX, _LONG_MAX = 1 << 31, 1 << 63
_STRING = AvroStep("string")


def generated_writer(step: AvroStep, otherwise: Write) -> Write | None:
    """A function that returns the bytes of a value behind others (the head of the message); None where it would be too long
    or too deep. ``otherwise``: writes what the code can't write."""
    code = SourceCode("def write(value, head, *):")
    try:
        with code.block("try:"):
            code.line("parts = [head]", "v = value")
            _Writing(code).value(step, "v")
            code.line("return join(parts)")
        # Not in the block of the exception, so that another one has none before it.
        code.line("except unwritable: pass", "return otherwise(value, head)")
        known = {"join": b"".join, "small": _SMALL, "sizes": _SIZES, "varint": varint, "encode": str.encode}
        return cast(Write, code.compiled({**known, "unwritable": _UNWRITABLE, "otherwise": otherwise}))
    except Unsupported:
        return None


_SIZES = [varint(size << 1) for size in range(1024)]


class _Writing:
    """Writes the code that appends the parts of a value to ``parts``."""

    def __init__(self, code: SourceCode) -> None:
        self._code = code

    def value(self, step: AvroStep, value: str) -> None:
        """``value``: the variable that has it, which is assigned anew where it is prepared."""
        getattr(self, f"_{step.kind}")(step, value)

    def _prepare(self, step: AvroStep, value: str) -> None:
        prepare, schema = map(self._code.bind, step.known)
        self._code.line(f"{value} = {prepare}({value}, {schema})")
        self.value(step.parts[0], value)

    def _refuse(self, test: str) -> None:
        self._code.line(f"if {test}: raise ValueError")

    def _null(self, step: AvroStep, value: str) -> None:
        self._refuse(f"{value} is not None")

    def _boolean(self, step: AvroStep, value: str) -> None:
        self._refuse(f"type({value}) is not bool")
        self._code.line(f"parts.append(small[{value}])")

    def _int(self, step: AvroStep, value: str, limit: int = _INT_MAX) -> None:
        c = self._code
        self._refuse(f"type({value}) is not int or not {-limit} <= {value} < {limit}")
        c.line(f"z = {value} << 1 if {value} >= 0 else ~({value} << 1)")
        c.line("parts.append(small[z] if z < 128 else varint(z))")

    def _long(self, step: AvroStep, value: str) -> None:
        self._int(step, value, _LONG_MAX)

    def _packed(self, layout: str, value: str) -> None:
        c = self._code
        self._refuse(f"type({value}) is not float and type({value}) is not int")
        c.line(f"parts.append({c.bind(struct.Struct(layout).pack)}({value}))")

    def _float(self, step: AvroStep, value: str) -> None:
        self._packed("<f", value)

    def _double(self, step: AvroStep, value: str) -> None:
        self._packed("<d", value)

    def _bytes(self, step: AvroStep, value: str) -> None:
        self._refuse(f"type({value}) is not bytes")
        self._sized(value)

    def _string(self, step: AvroStep, value: str) -> None:
        self._code.line(f"e = encode({value})")
        self._sized("e")

    def _length(self, value: str) -> None:
        self._code.line(f"n = len({value})", f"parts.append(sizes[n] if n < {len(_SIZES)} else varint(n << 1))")

    def _sized(self, raw: str) -> None:
        self._length(raw)
        self._code.line(f"parts.append({raw})")

    def _fixed(self, step: AvroStep, value: str) -> None:
        self._refuse(f"type({value}) is not bytes or len({value}) != {step.number}")
        self._code.line(f"parts.append({value})")

    def _place(self, step: AvroStep, value: str) -> None:
        self._refuse(f"type({value}) is not str")
        self._code.line(f"parts.append({self._code.bind(step.known[0])}[{value}])")

    def _union(self, step: AvroStep, value: str) -> None:
        null = step.number
        with self._code.block(f"if {value} is None:"):
            self._code.line(f"parts.append(small[{2 * null}])")
        with self._code.block("else:"):
            self._code.line(f"parts.append(small[{2 - 2 * null}])")
            self.value(step.parts[0], value)

    def _array(self, step: AvroStep, value: str) -> None:
        c = self._code
        self._refuse(f"type({value}) is not list")
        item = c.name("v")
        with c.block(f"if {value}:"):
            self._length(value)
            with c.block(f"for {item} in {value}:"):
                self.value(step.parts[0], item)
        c.line("parts.append(small[0])")

    def _map(self, step: AvroStep, value: str) -> None:
        c = self._code
        self._refuse(f"type({value}) is not dict")
        key, item = c.name("k"), c.name("v")
        with c.block(f"if {value}:"):
            self._length(value)
            with c.block(f"for {key}, {item} in {value}.items():"):
                self._string(_STRING, key)
                self.value(step.parts[0], item)
        c.line("parts.append(small[0])")

    def _record(self, step: AvroStep, value: str) -> None:
        c = self._code
        self._refuse(f"type({value}) is not dict")
        for field, part in zip(step.known, step.parts, strict=True):
            name = c.name("v")
            c.line(f"{name} = {value}[{field!r}]")
            self.value(part, name)
