"""Finds out what is wrong with bytes or values that a generated reader or writer has refused.

Rules: it is called only after a failure, so it may be slow; it walks the schema without building anything from the
bytes, so a hostile length costs nothing; it only raises :class:`Fault`, whose text is part of the error.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Any, NoReturn

from streamsrt.wire.compiler import FORMATS, SIZES, WRITE_FAULTS, MessageVersion
from streamsrt.wire.primitives import TEXT_BYTES_MAX, Buffer, DecodeError, read_uvarint
from streamsrt.wire.schema import Field, Message, Struct


class Fault(Exception):
    """The first fault that was found, with the path of its field."""


def explain_bytes(message: type[Message], version: int, buffer: Buffer, offset: int) -> str:
    """Why ``buffer`` is not this message, e.g. ``FetchRequest v17, topics[0].topic at byte 12: ...``."""
    walk = Walk(MessageVersion(message.SCHEMA, version, {}), memoryview(buffer), offset)
    where = f"{message.NAME} v{version}"
    try:
        walk.struct(message.SCHEMA.root, "")
    except Fault as fault:
        return f"{where}, {fault}"
    return f"{where}: the bytes from {offset} on can't be decoded as this message"


def explain_value(message: Message, version: int) -> str | None:
    """Which field of ``message`` cannot be written, or None if each of them can."""
    try:
        check_struct(MessageVersion(message.SCHEMA, version, {}), message.SCHEMA.root, message, "")
    except Fault as fault:
        return f"{message.NAME} v{version}, {fault}"
    return None


class Walk:
    def __init__(self, plan: MessageVersion, buffer: memoryview, offset: int) -> None:
        self.plan = plan
        self.buffer = buffer
        self.offset = offset
        self.end = len(buffer)

    def refuse(self, path: str, why: str) -> NoReturn:
        raise Fault(f"{path or 'message'} at byte {self.offset}: {why}")

    def take(self, size: int, path: str) -> memoryview:
        left = self.end - self.offset
        if size > left:
            self.refuse(path, f"{size} bytes needed, {left} left")
        start = self.offset
        self.offset += size
        return self.buffer[start : self.offset]

    def uvarint(self, path: str) -> int:
        try:
            value, self.offset = read_uvarint(self.buffer[: self.end], self.offset)
        except IndexError:
            self.refuse(path, "the buffer ends inside a varint")
        except DecodeError as error:
            self.refuse(path, str(error))
        return value

    def length(self, kind: str, path: str) -> int:
        if self.plan.flexible:
            return self.uvarint(path) - 1
        code = ">h" if kind == "string" else ">i"
        size: int = Layout(code).unpack(self.take(2 if kind == "string" else 4, path))[0]
        return size

    def struct(self, struct: Struct, path: str) -> None:
        prefix = path + "." if path else ""
        for f in self.plan.fields(struct):
            self.value(f, f"{prefix}{f.attribute}")
        if self.plan.flexible:
            self.tags({f.tag: f for f in self.plan.tagged(struct)}, prefix)

    def tags(self, known: dict[int | None, Field], prefix: str) -> None:
        for _ in range(self.uvarint(f"{prefix}tags")):
            tag = self.uvarint(f"{prefix}tags")
            path = f"{prefix}{known[tag].attribute if tag in known else f'tag {tag}'}"
            size = self.uvarint(path)
            start = self.offset
            self.take(size, path)
            if tag not in known:
                continue
            self.offset = start
            self.value(known[tag], path)
            if self.offset != start + size:
                self.refuse(path, f"the tagged field has {size} bytes, its value {self.offset - start}")

    def value(self, f: Field, path: str) -> None:
        nullable = self.plan.version in f.nullable
        if f.is_array:
            self.array(f, path, nullable)
        elif f.type in FORMATS:
            self.take(SIZES[f.type], path)
        elif f.type in self.plan.schema.structs:
            if nullable:
                there = self.take(1, path)[0]
                if there > 127 or (there == 0 and f.tag is not None):
                    return
            self.struct(self.plan.struct(f), path)
        else:
            self.text(f.type, path, nullable)

    def checked_length(self, kind: str, path: str, nullable: bool) -> int:
        size = self.length(kind, path)
        if size < -1:
            self.refuse(path, f"negative length {size}")
        if kind == "string" and size > TEXT_BYTES_MAX and self.plan.schema.kind == "request":
            self.refuse(path, f"a string of {size} bytes, at most {TEXT_BYTES_MAX} are allowed in a request")
        if size == -1 and not nullable:
            self.refuse(path, "null, but the field may not be null")
        return max(size, 0)

    def text(self, kind: str, path: str, nullable: bool) -> None:
        data = self.take(self.checked_length(kind, path, nullable), path)
        if kind == "string":
            try:
                str(data, "utf-8")
            except UnicodeDecodeError as error:
                self.refuse(path, f"not UTF-8: {error.reason}")

    def array(self, f: Field, path: str, nullable: bool) -> None:
        count = self.checked_length("array", path, nullable)
        left = self.end - self.offset
        if count * self.plan.least_size(f) > left:
            self.refuse(path, f"an array of {count} elements does not fit the {left} bytes that are left")
        if f.element in FORMATS:
            self.take(count * SIZES[f.element], path)
            return
        for i in range(count):
            if f.element in self.plan.schema.structs:
                self.struct(self.plan.struct(f), f"{path}[{i}]")
            else:
                self.text(f.element, f"{path}[{i}]", nullable=False)


def check_struct(plan: MessageVersion, struct: Struct, value: object, path: str) -> None:
    prefix = path + "." if path else ""
    for f in [*plan.fields(struct), *plan.tagged(struct)]:
        where = f"{prefix}{f.attribute}"
        try:
            field_value = getattr(value, f.attribute)
        except AttributeError:
            raise Fault(f"{path or 'message'}: {struct.name} expected, got {value!r:.100}") from None
        check_value(plan, f, field_value, where)


def check_value(plan: MessageVersion, f: Field, value: Any, path: str) -> None:
    if value is None and plan.version in f.nullable:
        return
    if value is None:
        raise Fault(f"{path} is None, but the field may not be null in this version")
    if not f.is_array:
        check_element(plan, f, value, path)
        return
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        raise Fault(f"{path}: a list expected, got {value!r:.100}")
    for i, element in enumerate(value):
        check_element(plan, f, element, f"{path}[{i}]")


def check_element(plan: MessageVersion, f: Field, value: object, path: str) -> None:
    kind = f.element
    if kind in plan.schema.structs:
        check_struct(plan, plan.schema.structs[kind], value, path)
    elif not fits(plan, kind, value):
        raise Fault(f"{path}: {kind} expected, got {value!r:.100}")


def fits(plan: MessageVersion, kind: str, value: object) -> bool:
    if kind == "uuid":
        return isinstance(value, bytes | bytearray | memoryview) and len(value) == 16
    if kind in FORMATS:
        try:
            Layout(">" + FORMATS[kind]).pack(value)
        except WRITE_FAULTS:
            return False
        return True
    if kind == "string":
        return isinstance(value, str) and text_fits(plan, value)
    if kind == "records" and isinstance(value, list | tuple):
        return all(isinstance(part, bytes | bytearray | memoryview) for part in value)
    return isinstance(value, bytes | bytearray | memoryview)


def text_fits(plan: MessageVersion, value: str) -> bool:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return False
    return plan.flexible or size < 1 << 15
