"""Reads the values of one Avro schema by generated code, at half of the time that fastavro takes for it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import cast

from streamsrt.avro.item_counts import ITEMS_MAX
from streamsrt.avro.kernels import Read
from streamsrt.avro.schemas import Unsupported
from streamsrt.avro.source_code import SourceCode
from streamsrt.avro.steps import AvroStep, has_one_size, least_bytes

_UNREADABLE = (IndexError, ValueError, struct.error)
_ZIGZAG = [(number >> 1) ^ -(number & 1) for number in range(128)]
_BITS_MAX = 63
_SLICED = ("fixed", "bytes", "string")
_LONG, _STRING = AvroStep("long"), AvroStep("string")


def generated_reader(step: AvroStep, otherwise: Read) -> Read | None:
    """A function that reads a value in bytes from a position on; None where it would be too long or too deep.

    ``otherwise``: reads what the code can't read.
    """
    code = SourceCode("def read(d, at, *):")
    try:
        with code.block("try:"):
            code.line("i = at")
            value = _Reading(code).value(step)
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
    """Writes the code for steps: each method returns the expression that has the value, or skips it."""

    def __init__(self, code: SourceCode) -> None:
        self._code = code

    def value(self, step: AvroStep) -> str:
        found: str = getattr(self, f"_{step.kind}")(step)
        return found

    def skip(self, step: AvroStep) -> None:
        getattr(self, f"_{step.kind}")(step)

    def _kept(self, expression: str) -> str:
        name = self._code.name("v")
        self._code.line(f"{name} = {expression}")
        return name

    # ------------------------------------------------------------------------------------------------------ primitives

    def _null(self, step: AvroStep) -> str:
        return "None"

    def _boolean(self, step: AvroStep) -> str:
        name = self._kept("d[i] != 0")
        self._code.line("i += 1")
        return name

    def _long(self, step: AvroStep) -> str:
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

    def _unpacked(self, layout: str) -> str:
        codec = struct.Struct(layout)
        name = self._kept(f"{self._code.bind(codec.unpack_from)}(d, i)[0]")
        self._code.line(f"i += {codec.size}")
        return name

    def _float(self, step: AvroStep) -> str:
        return self._unpacked("<f")

    def _double(self, step: AvroStep) -> str:
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

    def _bytes(self, step: AvroStep) -> str:
        self._read_length()
        return self._kept("d[i : (i := i + (b >> 1))]")

    def _string(self, step: AvroStep) -> str:
        self._read_length()
        return self._kept("d[i : (i := i + (b >> 1))].decode()")

    # --------------------------------------------------------------------------------------------------- complex types

    def _fixed(self, step: AvroStep) -> str:
        name = self._kept(f"d[i:i + {step.number}]")
        self._code.line(f"i += {step.number}")
        return name

    def _enum(self, step: AvroStep) -> str:
        return self._kept(f"{self._code.bind(step.known)}[{self._long(_LONG)}]")

    def _union(self, step: AvroStep) -> str:
        null, c, name = step.number, self._code, self._code.name("v")
        c.line("b = d[i]", "i += 1")
        with c.block(f"if b == {2 * null}:"):
            c.line(f"{name} = None")
        with c.block(f"elif b == {2 - 2 * null}:"):
            c.line(f"{name} = {self.value(step.parts[0])}")
        c.line("else: raise ValueError")
        return name

    def _blocks(self, one: Callable[[], None], least: int, *, skips: bool = False, exactly: bool = False) -> None:
        """The loop over an array's or map's blocks. ``one``: writes the code for an item. ``least``: the bytes that each
        has. ``skips``: nobody wants them, and a block whose size in bytes is there is not looked into; one whose items have
        ``exactly`` so many bytes neither."""
        c = self._code
        number = c.name("n")
        with c.block("while True:"):
            c.line(f"{number} = {self._long(_LONG)}")
            c.line(f"if not {number}: break")
            with c.block(f"if {number} < 0:"):
                if skips:
                    size = self._long(_LONG)
                    c.line(f"if {size} < 0: raise ValueError", f"i += {size}", "continue")
                else:
                    c.line(f"{number} = -{number}")
                    self._skip_long(_LONG)
            # Slices past the end are no error, so their items would go on for as long as a damaged number says.
            too_many = f"{number} * {least} > len(d) - i" if least else f"{number} > {ITEMS_MAX}"
            c.line(f"if {too_many}: raise ValueError")
            if exactly:
                c.line(f"i += {number} * {least}")
                return
            with c.block(f"for _ in range({number}):"):
                one()

    def _array(self, step: AvroStep) -> str:
        found = self._kept("[]")
        item = step.parts[0]
        self._blocks(lambda: self._code.line(f"{found}.append({self.value(item)})"), least_bytes(item))
        return found

    def _map(self, step: AvroStep) -> str:
        found = self._kept("{}")

        def one() -> None:
            key = self._string(_STRING)
            self._code.line(f"{found}[{key}] = {self.value(step.parts[0])}")

        self._blocks(one, 1 + least_bytes(step.parts[0]))
        return found

    def _record(self, step: AvroStep) -> str:
        fields: dict[object, str] = {}
        for name, part in zip(step.known, step.parts, strict=True):
            if name is None:
                self.skip(part)
            else:
                fields[name] = self.value(part)
        return self._kept("{" + ", ".join(f"{name!r}: {value}" for name, value in fields.items()) + "}")

    def _constant(self, step: AvroStep) -> str:
        return self._code.bind(step.known[0])

    def _convert(self, step: AvroStep) -> str:
        found = self.value(step.parts[0])
        if step.parts[0].kind in _SLICED:
            # The function would be given what is left of it.
            self._code.line("if i > len(d): raise ValueError")
        convert, schema, into = map(self._code.bind, step.known)
        return self._kept(f"{convert}({found}, {schema}, {into})")

    def _float_of(self, step: AvroStep) -> str:
        return self._kept(f"float({self.value(step.parts[0])})")

    # -------------------------------------------------------------------------------------------------------- skipping

    def _skip(self, step: AvroStep) -> None:
        self._code.line(f"i += {step.number}")

    def _skip_long(self, step: AvroStep) -> None:
        self._code.line("while d[i] > 127: i += 1", "i += 1")

    def _skip_sized(self, step: AvroStep) -> None:
        self._read_length()
        self._code.line("i += b >> 1")

    def _skip_union(self, step: AvroStep) -> None:
        c = self._code
        c.line("b = d[i]", "i += 1")
        with c.block(f"if b == {2 - 2 * step.number}:"):
            self.skip(step.parts[0])
        c.line(f"elif b != {2 * step.number}: raise ValueError")

    def _skip_blocks(self, step: AvroStep) -> None:
        least = sum(map(least_bytes, step.parts))
        self._blocks(lambda: self._skip_record(step), least, skips=True, exactly=all(map(has_one_size, step.parts)))

    def _skip_record(self, step: AvroStep) -> None:
        for part in step.parts:
            self.skip(part)
