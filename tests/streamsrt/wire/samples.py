"""Random messages: each field of each struct takes null, empty, its default, extreme and ordinary values."""

from __future__ import annotations

import random
from typing import Any

from streamsrt.wire.compiler import MessageVersion
from streamsrt.wire.schema import Field, Message, Struct

RANGES = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
TEXTS = ("", "a", "word-count", "ключ", "日本", "\U0001f600", "x" * 126, "x" * 127, "x" * 128)
DATA = (b"", b"\0", b"\xff\xfe", b"d" * 127, bytes(range(256)) * 2)
LATEST_ERROR_CODE = 133


class Sampler:
    """Messages of one version. ``plain`` keeps to what an implementation with checked error codes and times takes."""

    def __init__(self, cls: type[Message], version: int, seed: int, *, plain: bool = False) -> None:
        self.cls = cls
        self.plan = MessageVersion(cls.SCHEMA, version, {})
        # String seeds do not depend on the hash seed of the process.
        self.random = random.Random(f"{cls.NAME} {version} {seed}")
        self.plain = plain

    def message(self) -> Message:
        made = self.struct(self.plan.schema.root, self.cls)
        assert isinstance(made, Message)
        return made

    def struct(self, struct: Struct, cls: Any) -> Any:
        values = {}
        for f in [*self.plan.fields(struct), *self.plan.tagged(struct)]:
            if f.tag is not None and self.random.random() < 0.3:
                continue
            values[f.attribute] = self.value(f)
        return cls(**values)

    def value(self, f: Field) -> Any:
        if self.plan.version in f.nullable and self.random.random() < 0.25:
            return None
        if f.is_array:
            n = self.random.choice((0, 1, 1, 2, 3))
            if f.element not in self.plan.schema.structs and self.random.random() < 0.1:
                n = 40
            return [self.element(f) for _ in range(n)]
        return self.element(f)

    def element(self, f: Field) -> Any:
        kind = f.element
        if kind in self.plan.schema.structs:
            return self.struct(self.plan.struct(f), getattr(self.cls, kind))
        if kind in RANGES:
            return self.number(f, *RANGES[kind])
        if kind == "bool":
            return self.random.random() < 0.5
        if kind == "float64":
            return self.random.choice((0.0, -1.5, 1e300, 3.25))
        if kind == "string":
            return self.random.choice(TEXTS)
        if kind == "uuid":
            return self.random.choice((bytes(16), self.random.randbytes(16)))
        return self.random.choice(DATA)

    def number(self, f: Field, low: int, high: int) -> int:
        if self.plain and f.attribute.endswith("error_code"):
            return self.random.randint(-1, LATEST_ERROR_CODE)
        if self.plain and f.attribute.endswith(("_ms", "timestamp", "time")):
            return self.random.choice((0, 1, 1000, 86_400_000))
        return self.random.choice((0, 1, -1 if low < 0 else 2, low, high, self.random.randint(low, high)))
