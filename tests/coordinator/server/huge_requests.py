"""Requests with a huge array: one for each array of each API that the broker has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from coordinator.broker.api_versions import SERVED
from coordinator.server.dispatch import HANDLERS
from streamsrt.wire.compiler import MessageVersion
from streamsrt.wire.messages import REQUEST_VERSIONS, api_class, encode_request
from streamsrt.wire.schema import Field, Struct

_NOTHING = {"string": "", "bytes": b"", "uuid": bytes(16), "bool": False, "float64": 0.0}


class Huge(NamedTuple):
    """An array of an API's request, by the fields that lead to it."""

    api_key: int
    version: int
    path: tuple[Field, ...]

    @property
    def name(self) -> str:
        """For people: ``Metadata v13 topics``."""
        fields = ".".join(field.attribute for field in self.path)
        return f"{api_class(self.api_key, True).NAME.removesuffix('Request')} v{self.version} {fields}"

    def frame(self, count: int, *, distinct: bool = False) -> bytes:
        """The request, without its size. ``distinct``: no two elements are the same."""
        cls = api_class(self.api_key, True)
        plan = MessageVersion(cls.SCHEMA, self.version, {})
        message = at = _smallest(plan, plan.schema.root, cls, cls)
        for field in self.path[:-1]:
            inner = _element(plan, field, cls)
            setattr(at, field.attribute, [inner] if field.is_array else inner)
            at = inner
        field = self.path[-1]
        elements = [_element(plan, field, cls, number=i if distinct else 0) for i in range(count)]
        setattr(at, field.attribute, elements)
        return encode_request(message, self.version, 7, "test")[4:]


def every_array() -> Iterator[Huge]:
    """Every array of every API that is served, in its highest version and in the lowest one."""
    for key in HANDLERS:
        lowest = max(SERVED[key][0], REQUEST_VERSIONS[key][0])
        for version in sorted({lowest, SERVED[key][1]}):
            plan = MessageVersion(api_class(key, True).SCHEMA, version, {})
            yield from (Huge(key, version, path) for path in _arrays(plan, plan.schema.root, ()))


def _arrays(plan: MessageVersion, struct: Struct, before: tuple[Field, ...]) -> Iterator[tuple[Field, ...]]:
    for field in (*plan.fields(struct), *plan.tagged(struct)):
        if field.is_array:
            yield (*before, field)
        if field.element in plan.schema.structs:
            yield from _arrays(plan, plan.struct(field), (*before, field))


def _element(plan: MessageVersion, field: Field, cls: Any, *, number: int = 0) -> Any:
    kind = field.element
    if kind not in plan.schema.structs:
        if kind == "string":
            return f"n{number}" if number else ""
        return number if kind.startswith("int") and kind not in {"int8", "int16"} else _NOTHING.get(kind, 0)
    made = _smallest(plan, plan.struct(field), getattr(cls, kind), cls)
    if number:
        for inner in plan.fields(plan.struct(field)):
            if inner.type in {"string", "int32", "int64"}:
                setattr(made, inner.attribute, f"n{number}" if inner.type == "string" else number)
                break
    return made


def _smallest(plan: MessageVersion, struct: Struct, made: Any, cls: Any) -> Any:
    values: dict[str, Any] = {}
    for field in (*plan.fields(struct), *plan.tagged(struct)):
        if field.is_array:
            values[field.attribute] = []
        elif field.type in plan.schema.structs:
            values[field.attribute] = _smallest(plan, plan.struct(field), getattr(cls, field.type), cls)
    return made(**values)
