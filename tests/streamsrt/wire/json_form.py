"""Messages in the JSON form of Kafka's generated JsonConverter classes, and back."""

from __future__ import annotations

import base64
from typing import Any

from streamsrt.wire.compiler import MessageVersion
from streamsrt.wire.primitives import uuid_from_text, uuid_to_text
from streamsrt.wire.schema import FRESH, Field, Message, Struct, named_class


def json_name(name: str) -> str:
    return name[0].lower() + name[1:]


def to_json(message: Message, version: int) -> dict[str, Any]:
    return struct_to_json(MessageVersion(message.SCHEMA, version, {}), message.SCHEMA.root, message)


def struct_to_json(plan: MessageVersion, struct: Struct, value: Any) -> dict[str, Any]:
    out = {}
    for f in plan.fields(struct):
        out.update(field_to_json(plan, f, getattr(value, f.attribute)))
    for f in plan.tagged(struct):
        part = getattr(value, f.attribute)
        default = f.default
        if default is FRESH:
            default = [] if f.is_array else getattr(named_class(plan.schema.name), f.element)()
        if part != default:
            out.update(field_to_json(plan, f, part))
    return out


def field_to_json(plan: MessageVersion, f: Field, value: Any) -> dict[str, Any]:
    if f.is_array and value is not None:
        return {json_name(f.name): [element_to_json(plan, f, v) for v in value]}
    return {json_name(f.name): None if value is None else element_to_json(plan, f, value)}


def element_to_json(plan: MessageVersion, f: Field, value: Any) -> Any:
    if f.element in plan.schema.structs:
        return struct_to_json(plan, plan.struct(f), value)
    if f.element == "uuid":
        return uuid_to_text(value)
    if f.element in ("bytes", "records"):
        return base64.b64encode(value).decode()
    return value


def from_json(name: str, version: int, data: dict[str, Any]) -> Message:
    cls = named_class(name)
    plan = MessageVersion(cls.SCHEMA, version, {})
    made = struct_from_json(plan, cls, cls, cls.SCHEMA.root, data)
    assert isinstance(made, Message)
    return made


def struct_from_json(plan: MessageVersion, root: Any, cls: Any, struct: Struct, data: dict[str, Any]) -> Any:
    known = {json_name(f.name): f for f in struct.fields}
    values = {}
    for name, value in data.items():
        f = known[name]
        if f.is_array and value is not None:
            values[f.attribute] = [element_from_json(plan, root, f, v) for v in value]
        else:
            values[f.attribute] = None if value is None else element_from_json(plan, root, f, value)
    return cls(**values)


def element_from_json(plan: MessageVersion, root: Any, f: Field, value: Any) -> Any:
    if f.element in plan.schema.structs:
        return struct_from_json(plan, root, getattr(root, f.element), plan.struct(f), value)
    if f.element == "uuid":
        return uuid_from_text(value)
    if f.element in ("bytes", "records"):
        return base64.b64decode(value)
    return value
