"""Writes and compiles the encoders and decoders of :mod:`streamsrt.wire.messages`.

One Python function for each struct, version and direction. Rules that the generated code obeys:

- Adjacent fields of fixed size are one ``struct`` call.
- A reader may slice past the end of the buffer, because the offset only grows: whoever calls the outermost reader
  compares the final offset with the end. Anything that repeats or allocates by a length from the buffer compares that
  length with the bytes that remain first.
- Readers and writers say nothing about where they failed (:func:`fail`): the slow walk of
  :mod:`streamsrt.wire.inspection` finds the field for the error's text.
- In steps, a reader or writer is a generator: it yields after every few elements of an array, so that others get their
  turn, and a reader yields the length of each array before it makes the elements, so that they can be counted.
- As in Kafka, no string of a request is longer than ``TEXT_BYTES_MAX``. Nor is one of a response that Java's clients
  read: texts that explain something (:data:`EXPLANATIONS`) are cut, as they may name whatever the request does.
- Readers get ``bytes``, except those of messages with a ``records`` field, which also take a ``memoryview`` so that
  records are never copied.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from dataclasses import dataclass, field
from struct import Struct as Layout
from struct import error as layout_error
from struct import pack, unpack_from
from typing import Any, Final, NoReturn

from streamsrt.wire.primitives import TEXT_BYTES_MAX, Buffer, DecodeError, read_uvarint, shortened, write_uvarint
from streamsrt.wire.schema import FRESH, Field, Message, MessageSchema, Struct

FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
SIZES: Final = {name: Layout(">" + code).size for name, code in FORMATS.items()}
SMALL_VARINTS: Final = tuple(write_uvarint(n) for n in range(512))
SMALL_ARRAY: Final = 32

# What generated code raises for bytes or values that do not fit.
READ_FAULTS: Final = (IndexError, layout_error, UnicodeDecodeError, DecodeError, OverflowError)
WRITE_FAULTS: Final = (layout_error, TypeError, AttributeError, ValueError, KeyError, OverflowError)

Reader = Callable[[Buffer, int, int], tuple[Any, int]]
Writer = Callable[[Any, list[Any], list[int]], None]
StepReader = Callable[[Buffer, int, int], Generator[int, None, tuple[Any, int]]]
StepWriter = Callable[[Any, list[Any], list[int]], Generator[None, None, None]]

EXPLANATIONS: Final = frozenset({"error_message", "batch_index_error_message", "status_detail"})

STEP_ELEMENTS: Final = 64
STEP_TAGS_MAX: Final = 32
TAGS_MAX: Final = 1000


def fail(*_: object) -> NoReturn:
    raise DecodeError("a length or a null that does not fit")


def long_text(buffer: Buffer, offset: int) -> tuple[str | None, int]:
    """A string with a length of several bytes. As in Kafka, this includes a null in an overlong encoding."""
    size, offset = read_uvarint(buffer, offset)
    if size == 0:
        return None, offset
    end = offset + size - 1
    return str(buffer[offset:end], "utf-8"), end


def long_request_text(buffer: Buffer, offset: int) -> tuple[str | None, int]:
    """As :func:`long_text`, in a request."""
    if read_uvarint(buffer, offset)[0] - 1 > TEXT_BYTES_MAX:
        fail()
    return long_text(buffer, offset)


def long_bytes(buffer: Buffer, offset: int) -> tuple[bytes | None, int]:
    size, offset = read_uvarint(buffer, offset)
    if size == 0:
        return None, offset
    end = offset + size - 1
    return bytes(buffer[offset:end]), end


def varint(value: int) -> bytes:
    return SMALL_VARINTS[value] if value < 512 else write_uvarint(value)


def write_tags(write: Callable[[bytes], None], known: Iterable[tuple[int, bytes]], unknown: dict[int, bytes]) -> None:
    tags = {**unknown, **dict(known)}
    write(varint(len(tags)))
    for tag, value in sorted(tags.items()):
        write(varint(tag) + varint(len(value)))
        write(value)


def write_records(value: Buffer | Sequence[Buffer | Sized], parts: list[Any], marks: list[int]) -> int:
    """Appends the buffers and notes their positions, so that they can be sent without a copy."""
    buffers: Sequence[Buffer | Sized] = [value] if isinstance(value, bytes | bytearray | memoryview) else value
    size = 0
    for buffer in buffers:
        view = buffer.cast("B") if isinstance(buffer, memoryview) and buffer.itemsize != 1 else buffer
        marks.append(len(parts))
        parts.append(view)
        size += len(view)
    return size


def read_numbers(code: str) -> Callable[[Buffer, int, int], list[Any]]:
    """``read(buffer, offset, n)``: a list of ``n`` numbers of one format."""
    readers = [Layout(f">{n}{code}").unpack_from for n in range(SMALL_ARRAY)]

    def read(buffer: Buffer, offset: int, n: int) -> list[Any]:
        return list(readers[n](buffer, offset) if n < SMALL_ARRAY else unpack_from(f">{n}{code}", buffer, offset))

    return read


def write_numbers(code: str) -> Callable[[Sequence[Any]], bytes]:
    writers = [Layout(f">{n}{code}").pack for n in range(SMALL_ARRAY)]

    def write(values: Sequence[Any]) -> bytes:
        n = len(values)
        return writers[n](*values) if n < SMALL_ARRAY else pack(f">{n}{code}", *values)

    return write


SHARED: Final[dict[str, Any]] = {
    "new": object.__new__,
    "fail": fail,
    "uvarint": read_uvarint,
    "long_text": long_text,
    "long_request_text": long_request_text,
    "long_bytes": long_bytes,
    "varint": varint,
    "V": SMALL_VARINTS,
    "shortened": shortened,
    "write_tags": write_tags,
    "write_records": write_records,
    **{f"read_{name}s": read_numbers(code) for name, code in FORMATS.items() if name not in ("bool", "uuid")},
    **{f"write_{name}s": write_numbers(code) for name, code in FORMATS.items() if name not in ("bool", "uuid")},
}


@dataclass
class Source:
    """The text of one function while it is written."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    pending: list[tuple[str, str]] = field(default_factory=list)

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def block(self, *lines: str) -> None:
        """Lines one level deeper."""
        self.depth += 1
        self.add(*lines)
        self.depth -= 1


@dataclass(frozen=True)
class MessageVersion:
    """The common part of both generators: one message in one version, and the names that its functions use."""

    schema: MessageSchema
    version: int
    namespace: dict[str, Any]
    in_steps: bool = False

    @property
    def flexible(self) -> bool:
        return self.version in self.schema.flexible

    def fields(self, struct: Struct) -> list[Field]:
        return [f for f in struct.fields if self.version in f.versions and not self.is_tagged(f)]

    def tagged(self, struct: Struct) -> list[Field]:
        found = [f for f in struct.fields if self.version in f.versions and self.is_tagged(f)]
        return sorted(found, key=lambda f: f.tag or 0)

    def absent(self, struct: Struct) -> list[Field]:
        return [f for f in struct.fields if self.version not in f.versions]

    def is_tagged(self, f: Field) -> bool:
        return self.flexible and self.version in f.tagged

    def has_records(self, struct: Struct) -> bool:
        live = [f for f in struct.fields if self.version in f.versions]
        return any(
            f.type == "records" or (f.element in self.schema.structs and self.has_records(self.struct(f))) for f in live
        )

    def struct(self, f: Field) -> Struct:
        return self.schema.structs[f.element]

    def yields(self, struct: Struct) -> bool:
        """Whether the struct's function is a generator: in stepwise mode, if the struct contains an array."""
        live = [f for f in struct.fields if self.version in f.versions]
        return self.in_steps and any(
            f.is_array or (f.element in self.schema.structs and self.yields(self.struct(f))) for f in live
        )

    def call(self, f: Field, direction: str) -> str:
        """Returns the name of the function for the field's struct."""
        return f"{'yield from ' if self.yields(self.struct(f)) else ''}{direction}_{f.element}"

    def reachable(self, struct: Struct) -> list[Struct]:
        """Structs that are used in this version, innermost first, the given one last."""
        found: list[Struct] = []
        for f in struct.fields:
            if self.version in f.versions and f.element in self.schema.structs:
                found += [s for s in self.reachable(self.struct(f)) if s not in found]
        return [*found, struct]

    def least_size(self, f: Field) -> int:
        """The fewest bytes that an element of the array can take."""
        if f.element in SIZES:
            return SIZES[f.element]
        if f.element in self.schema.structs:
            return max(1, sum(self.least_field(g) for g in self.fields(self.struct(f))) + self.flexible)
        return 1 if self.flexible else 2

    def least_field(self, f: Field) -> int:
        if f.type in SIZES:
            return SIZES[f.type]
        if f.type in self.schema.structs:
            return 1 if self.version in f.nullable else self.least_size(f)
        if self.flexible:
            return 1
        return 2 if f.type == "string" else 4

    def layout(self, codes: str, direction: str) -> str:
        """The name of a compiled ``struct`` format, e.g. ``get_hiq`` or ``put_hiq``."""
        name = f"{direction}_{codes.replace('?', 'o')}"
        if name not in self.namespace:
            made = Layout(">" + codes)
            self.namespace[name] = made.unpack_from if direction == "get" else made.pack
        return name


class ReaderSource:
    """Generates ``def read_X(b, o, z) -> (message, offset)``: buffer, offset, end of the buffer."""

    def __init__(self, plan: MessageVersion) -> None:
        self.plan = plan
        # A memoryview has no decode method; bytes are decoded faster with it.
        self.views = plan.has_records(plan.schema.root)
        self.out = Source()

    def text_of(self, slice_: str) -> str:
        return f'str({slice_}, "utf-8")' if self.views else f"{slice_}.decode()"

    def function(self, struct: Struct) -> str:
        out = self.out = Source()
        out.add(f"m = new({struct.name})")
        for f in [*self.plan.absent(struct), *self.plan.tagged(struct)]:
            out.add(f"m.{f.attribute} = {default_source(f)}")
        for f in self.plan.fields(struct):
            self.value(f, f"m.{f.attribute}", self.plan.version in f.nullable)
        self.flush()
        out.add("m.unknown_tags = None")
        if self.plan.flexible:
            self.tags(struct)
        out.add("return m, o")
        return "\n".join([f"def read_{struct.name}(b, o, z):", *out.lines])

    def flush(self) -> None:
        out = self.out
        if not out.pending:
            return
        codes = "".join(code for _, code in out.pending)
        size = Layout(">" + codes).size
        targets = ", ".join(target for target, _ in out.pending)
        if codes == "?":
            out.add(f"{targets} = b[o] != 0")
        else:
            out.add(f"{targets}, = {self.plan.layout(codes, 'get')}(b, o)")
        out.add(f"o += {size}")
        out.pending = []

    def value(self, f: Field, target: str, nullable: bool) -> None:
        if f.is_array:
            self.array(f, target, nullable)
        elif f.type in FORMATS:
            self.out.pending.append((target, FORMATS[f.type]))
        elif f.type in ("string", "bytes"):
            self.text(f.type, target, nullable)
        elif f.type == "records":
            self.records(target, nullable)
        else:
            self.struct(f, target, nullable)

    def null(self, target: str, nullable: bool) -> str:
        return f"{target} = None" if nullable else "fail()"

    def text(self, kind: str, target: str, nullable: bool) -> None:
        out = self.out
        convert = self.text_of if kind == "string" else (lambda slice_: f"bytes({slice_})")
        if self.plan.flexible:
            self.flush()
            out.add("n = b[o]", "if 0 < n < 128:")
            out.block("e = o + n", f"{target} = {convert('b[o + 1:e]')}", "o = e")
            out.add("elif n:")
            out.block(f"{target}, o = {self.long(kind)}(b, o)")
            if not nullable:
                out.block(f"if {target} is None: fail()")
            out.add("else:")
            out.block("o += 1", self.null(target, nullable))
            return
        out.pending.append(("n", "h" if kind == "string" else "i"))
        self.flush()
        out.add("if n >= 0:")
        out.block("e = o + n", f"{target} = {convert('b[o:e]')}", "o = e")
        out.add("elif n == -1:")
        out.block(self.null(target, nullable))
        out.add("else:")
        out.block("fail()")

    def long(self, kind: str) -> str:
        if kind == "bytes":
            return "long_bytes"
        return "long_request_text" if self.plan.schema.kind == "request" else "long_text"

    def length(self) -> None:
        """Leaves the length of an array or of records in ``n``, -1 for null."""
        if self.plan.flexible:
            self.flush()
            self.out.add("n = b[o] - 1", "o += 1", "if n > 126:")
            self.out.block("n, o = uvarint(b, o - 1)", "n -= 1")
        else:
            self.out.pending.append(("n", "i"))
            self.flush()

    def records(self, target: str, nullable: bool) -> None:
        self.length()
        self.out.add("if n >= 0:")
        self.out.block("e = o + n", f"{target} = memoryview(b)[o:e]", "o = e")
        self.out.add("elif n == -1:")
        self.out.block(self.null(target, nullable))
        self.out.add("else:")
        self.out.block("fail()")

    def array(self, f: Field, target: str, nullable: bool) -> None:
        out = self.out
        self.length()
        out.add("if n > 0:")
        out.depth += 1
        out.add(f"if n * {self.plan.least_size(f)} > z - o: fail()")
        self.elements(f, target)
        out.depth -= 1
        out.add("elif n == 0:")
        out.block(f"{target} = []")
        out.add("elif n == -1:")
        out.block(self.null(target, nullable))
        out.add("else:")
        out.block("fail()")

    def elements(self, f: Field, target: str) -> None:
        out = self.out
        if self.plan.in_steps:
            out.add("yield n")
        if f.element == "uuid":
            out.add("e = o + n * 16", f"{target} = [bytes(b[i:i + 16]) for i in range(o, e, 16)]", "o = e")
        elif f.element in FORMATS:
            out.add(f"{target} = read_{f.element}s(b, o, n)", f"o += n * {SIZES[f.element]}")
        else:
            out.add(f"{target} = l = []", "for i in range(n):")
            out.depth += 1
            if self.plan.in_steps:
                out.add(f"if not (i + 1) % {STEP_ELEMENTS}: yield 0")
            if f.element in self.plan.schema.structs:
                out.add(f"x, o = {self.plan.call(f, 'read')}(b, o, z)")
            else:
                self.text(f.element, "x", nullable=False)
            out.add("l.append(x)")
            out.depth -= 1

    def struct(self, f: Field, target: str, nullable: bool) -> None:
        out = self.out
        self.flush()
        read = f"{target}, o = {self.plan.call(f, 'read')}(b, o, z)"
        if not nullable:
            out.add(read)
            return
        # In a tagged field a number says whether it is there, elsewhere the sign of a byte; -1 is read in both.
        out.add("n = b[o]", "o += 1", "if n < 128:" if f.tag is None else "if 0 < n < 128:")
        out.block(read)
        out.add("else:")
        out.block(f"{target} = None")

    def tags(self, struct: Struct) -> None:
        out = self.out
        out.add("n = b[o]", "o += 1", "if n:")
        out.depth += 1
        out.add("if n > 127: n, o = uvarint(b, o - 1)")
        out.add(f"if n > {STEP_TAGS_MAX if self.plan.in_steps else TAGS_MAX}: fail()")
        out.add("for _ in range(n):")
        out.depth += 1
        out.add("t, o = uvarint(b, o)", "n, o = uvarint(b, o)", "g = o + n", "if g > z: fail()")
        word = "if"
        for f in self.plan.tagged(struct):
            out.add(f"{word} t == {f.tag}:")
            out.depth += 1
            self.value(f, f"m.{f.attribute}", self.plan.version in f.nullable)
            self.flush()
            out.add("if o != g: fail()")
            out.depth -= 1
            word = "elif"
        unknown = ("if m.unknown_tags is None: m.unknown_tags = {}", "m.unknown_tags[t] = bytes(b[o:g])", "o = g")
        if word == "elif":
            out.add("else:")
            out.block(*unknown)
        else:
            out.add(*unknown)
        out.depth -= 2


def default_source(f: Field) -> str:
    if f.default is FRESH:
        return "[]" if f.is_array else f"{f.type}()"
    return repr(f.default)


class WriterSource:
    """Generates ``def write_X(m, w)``, where ``w`` appends to the list of parts; with records also the list itself."""

    def __init__(self, plan: MessageVersion) -> None:
        self.plan = plan
        self.out = Source()

    def arguments(self, struct: Struct) -> str:
        return "w, p, k" if self.plan.has_records(struct) else "w"

    def function(self, struct: Struct) -> str:
        out = self.out = Source()
        for f in self.plan.fields(struct):
            self.value(f, f"m.{f.attribute}", self.plan.version in f.nullable)
        if self.plan.flexible:
            self.tags(struct)
        self.flush()
        if not out.lines:
            out.add("pass")
        return "\n".join([f"def write_{struct.name}(m, {self.arguments(struct)}):", *out.lines])

    def flush(self, tail: str = "") -> None:
        """``tail`` "x" adds a zero byte."""
        out = self.out
        if out.pending:
            codes = "".join(code for _, code in out.pending)
            out.add(f"w({self.plan.layout(codes + tail, 'put')}({', '.join(v for v, _ in out.pending)}))")
            out.pending = []
        elif tail:
            out.add("w(V[0])")

    def value(self, f: Field, value: str, nullable: bool) -> None:
        if f.is_array:
            self.array(f, value, nullable)
        elif f.type in FORMATS:
            if f.type == "uuid":
                self.out.add(f"if len({value}) != 16: fail()")
            self.out.pending.append((value, FORMATS[f.type]))
        elif f.type in ("string", "bytes"):
            self.text(f.type, value, nullable)
        elif f.type == "records":
            self.records(value, nullable)
        else:
            self.struct(f, value, nullable)

    def null_or(self, value: str, nullable: bool, null: str) -> None:
        """Opens the branch of a value that is there."""
        out = self.out
        if nullable:
            out.add(f"if {value} is None:")
            out.block(f"w({null})")
            out.add("else:")
            out.depth += 1

    def close(self, nullable: bool) -> None:
        if nullable:
            self.out.depth -= 1

    def write_length(self, code: str) -> None:
        if self.plan.flexible:
            self.out.add("w(V[n + 1] if n < 511 else varint(n + 1))")
        else:
            self.out.add(f"w({self.plan.layout(code, 'put')}(n))")

    def text(self, kind: str, value: str, nullable: bool) -> None:
        self.flush()
        code = "h" if kind == "string" else "i"
        null = "V[0]" if self.plan.flexible else f"{self.plan.layout(code, 'put')}(-1)"
        out = self.out
        out.add(f"s = {value}")
        self.null_or("s", nullable, null)
        if kind == "string":
            out.add("s = s.encode()")
        if self.plan.schema.kind == "response" and value.rpartition(".")[2] in EXPLANATIONS:
            out.add("s = shortened(s)")
        out.add("n = len(s)")
        self.write_length(code)
        out.add("w(s)")
        self.close(nullable)

    def records(self, value: str, nullable: bool) -> None:
        self.flush()
        out = self.out
        out.add(f"s = {value}")
        self.null_or("s", nullable, "V[0]" if self.plan.flexible else f"{self.plan.layout('i', 'put')}(-1)")
        out.add("i = len(p)", "w(b'')", "n = write_records(s, p, k)")
        out.add("p[i] = varint(n + 1)" if self.plan.flexible else f"p[i] = {self.plan.layout('i', 'put')}(n)")
        self.close(nullable)

    def array(self, f: Field, value: str, nullable: bool) -> None:
        self.flush()
        out = self.out
        out.add(f"s = {value}")
        self.null_or("s", nullable, "V[0]" if self.plan.flexible else f"{self.plan.layout('i', 'put')}(-1)")
        out.add("n = len(s)")
        self.write_length("i")
        if f.element == "uuid":
            out.add("for x in s:")
            out.block("if len(x) != 16: fail()", "w(x)")
            out.add(*self.plan.in_steps * ["yield"])
        elif f.element in FORMATS:
            out.add(*self.plan.in_steps * ["yield"])
            out.add(f"w(write_{f.element}s(s))")
        else:
            self.elements(f)
        self.close(nullable)

    def elements(self, f: Field) -> None:
        """Structs or texts."""
        out = self.out
        if self.plan.in_steps:
            out.add("for j, x in enumerate(s):")
            out.block(f"if not (j + 1) % {STEP_ELEMENTS}: yield")
        else:
            out.add("for x in s:")
        out.depth += 1
        if f.element in self.plan.schema.structs:
            out.add(f"{self.plan.call(f, 'write')}(x, {self.arguments(self.plan.struct(f))})")
        else:
            self.text_element(f.element)
        out.depth -= 1

    def text_element(self, kind: str) -> None:
        out = self.out
        if kind == "string":
            out.add("x = x.encode()")
        out.add("n = len(x)")
        self.write_length("h" if kind == "string" else "i")
        out.add("w(x)")

    def struct(self, f: Field, value: str, nullable: bool) -> None:
        self.flush()
        self.out.add(f"s = {value}")
        self.null_or("s", nullable, "b'\\xff'" if f.tag is None else "V[0]")
        if nullable:
            self.out.add("w(V[1])")
        self.out.add(f"{self.plan.call(f, 'write')}(s, {self.arguments(self.plan.struct(f))})")
        self.close(nullable)

    def tags(self, struct: Struct) -> None:
        out = self.out
        known = self.plan.tagged(struct)
        if known:
            self.flush()
            out.add("u = []")
            for f in known:
                self.known_tag(f)
            out.add("if u or m.unknown_tags:")
            out.block("write_tags(w, u, m.unknown_tags or {})")
            out.add("else:")
            out.block("w(V[0])")
            return
        pending = out.pending[:]
        out.add("if m.unknown_tags:")
        out.depth += 1
        self.flush()
        out.add("write_tags(w, (), m.unknown_tags)")
        out.depth -= 1
        out.add("else:")
        out.depth += 1
        out.pending = pending
        self.flush("x")
        out.depth -= 1

    def differs(self, f: Field, value: str) -> str:
        """An expression that is true if the value is not the default."""
        if f.default is None:
            return f"{value} is not None"
        if f.default is not FRESH:
            return f"{value} != {f.default!r}"
        if f.is_array:
            return f"{value} != []"
        # Field by field: making a struct to compare with would cost ten times as much.
        fields = [self.differs(g, f"{value}.{g.attribute}") for g in self.plan.struct(f).fields]
        either = " or ".join([*fields, f"{value}.unknown_tags"])
        return f"{value} is None or {either}" if self.plan.version in f.nullable else either

    def known_tag(self, f: Field) -> None:
        """A tagged field is left out while it has its default (KIP-482)."""
        out = self.out
        value = f"m.{f.attribute}"
        out.add(f"if {self.differs(f, value)}:")
        out.depth += 1
        out.add("q = []", "v, w = w, q.append")
        self.value(f, value, self.plan.version in f.nullable)
        self.flush()
        out.add("w = v", f"u.append(({f.tag}, b''.join(q)))")
        out.depth -= 1


COMPILED: Final[dict[tuple[str, str], dict[str, Any]]] = {}


def compile_functions(plan: MessageVersion, source: str, direction: str) -> dict[str, Any]:
    """Versions with the same layout share their functions."""
    key = (plan.schema.name, source)
    made = COMPILED.get(key)
    if made is None:
        file_name = f"<{direction} {plan.schema.name} v{plan.version}>"
        linecache.cache[file_name] = (len(source), None, source.splitlines(keepends=True), file_name)
        made = plan.namespace
        # The text is made from the schema table alone.
        exec(compile(source, file_name, "exec"), made)
        COMPILED[key] = made
    return made


def plan_of(message: type[Message], version: int, *, in_steps: bool = False) -> MessageVersion:
    schema = message.SCHEMA
    namespace = {**SHARED, message.NAME: message, **{name: getattr(message, name) for name in schema.structs}}
    return MessageVersion(schema, version, namespace, in_steps)


def compile_reader(message: type[Message], version: int) -> Reader:
    """The reader of a message in a version that its schema has."""
    plan = plan_of(message, version)
    generator = ReaderSource(plan)
    source = "\n\n".join(generator.function(s) for s in plan.reachable(plan.schema.root)) + "\n"
    reader: Reader = compile_functions(plan, source, "read")[f"read_{message.NAME}"]
    message.READERS[version] = reader
    return reader


def writer_source(plan: MessageVersion) -> str:
    generator = WriterSource(plan)
    root = plan.schema.root
    texts = [generator.function(s) for s in plan.reachable(root)]
    arguments = generator.arguments(root).removeprefix("w")
    call = f"write_{root.name}(m, p.append{arguments})"
    # Without an array, the function is not a generator.
    body = f"yield from {call}" if plan.yields(root) else f"{call}\n    yield" if plan.in_steps else call
    return "\n\n".join([*texts, f"def write(m, p, k):\n    {body}"]) + "\n"


def compile_writer(message: type[Message], version: int) -> Writer:
    """The writer of a message in a version that its schema has: ``write(message, parts, marks)``."""
    plan = plan_of(message, version)
    writer: Writer = compile_functions(plan, writer_source(plan), "write")["write"]
    message.WRITERS[version] = writer
    return writer


STEP_READERS: Final[dict[tuple[str, int], StepReader | None]] = {}
STEP_WRITERS: Final[dict[tuple[str, int], StepWriter]] = {}


def step_reader(message: type[Message], version: int) -> StepReader | None:
    """The reader of a message in steps; None for a message that has no arrays in this version."""
    key = message.NAME, version
    if key not in STEP_READERS:
        plan = plan_of(message, version, in_steps=True)
        STEP_READERS[key] = None
        if plan.yields(plan.schema.root):
            generator = ReaderSource(plan)
            source = "\n\n".join(generator.function(s) for s in plan.reachable(plan.schema.root)) + "\n"
            STEP_READERS[key] = compile_functions(plan, source, "step read")[f"read_{message.NAME}"]
    return STEP_READERS[key]


def step_writer(message: type[Message], version: int) -> StepWriter:
    """The writer of a message in steps."""
    key = message.NAME, version
    if key not in STEP_WRITERS:
        plan = plan_of(message, version, in_steps=True)
        STEP_WRITERS[key] = compile_functions(plan, writer_source(plan), "step write")["write"]
    return STEP_WRITERS[key]
