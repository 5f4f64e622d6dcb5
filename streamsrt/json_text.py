"""Values of programs as JSON: of exports, of HTTP, and of what the command line prints.

1. Integers have all their digits, however many. NaN and the infinities are the texts ``"NaN"``, ``"Infinity"`` and
   ``"-Infinity"``.
2. Bytes are text where they are UTF-8, else hexadecimal digits after ``0x``; so are those that begin with ``0x`` themselves.
3. A timedelta is ISO 8601, as pydantic writes it; so are dates and times.
4. Models have their fields, dataclasses too; tuples and sets are lists.
5. Messages of Protobuf are what its own mapping makes of them, with the field names of the schema: integers of 64 bits are
   texts there, bytes are in base 64, enums are names. A field that has no presence is there with its default, too.
6. Anything else is its text, and so is what lies too deep. There is always an answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from math import isfinite, isnan
from typing import Protocol, runtime_checkable

import orjson


@runtime_checkable
class _Model(Protocol):
    """The part of pydantic's models that is used here."""

    def model_dump(self, *, mode: str = "python") -> dict[str, object]: ...


_DEPTH_MAX = 200
"""Lists and mappings in each other; orjson takes 254."""
_INT_MAX = (1 << 63) - 1
_HEX = "0x"


def to_json(value: object) -> bytes:
    """A value as JSON on one line."""
    try:
        text = orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        text = b""
    # Of NaN and the infinities orjson makes null.
    if text and b"null" not in text:
        return text
    return orjson.dumps(_writable(value, 0), option=orjson.OPT_NON_STR_KEYS)


def json_text(value: object) -> str:
    """The same as text."""
    return to_json(value).decode()


def _writable(value: object, depth: int) -> object:
    """The value without what orjson refuses or makes null of."""
    if _is_plain(value):
        return value
    if isinstance(value, float):
        return _number(value)
    if depth == _DEPTH_MAX:
        return _text(value)
    if isinstance(value, Mapping):
        return {
            key if _is_plain(key) else _key(key): each if _is_plain(each) else _writable(each, depth + 1)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_writable(each, depth + 1) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        shown = (each.name for each in fields(value) if not each.name.startswith("_"))
        return {name: _writable(getattr(value, name), depth + 1) for name in shown}
    if _is_encodable(value):
        return value
    if isinstance(value, int | str):
        return orjson.Fragment(json.dumps(value))
    return _writable(_plain(value), depth + 1)


def _key(key: object) -> object:
    if isinstance(key, float):
        return _number(key)
    if _is_encodable({key: None}):
        return key
    plain = str(key) if isinstance(key, str) else _plain(key)
    return _text(plain if isinstance(plain, str) else key)


def _is_plain(value: object) -> bool:
    """Whether it is one of the values that most are, which need no closer look."""
    if type(value) is str:
        return value.isascii()
    if type(value) is int:
        return -_INT_MAX <= value <= _INT_MAX
    return value is None or value is True or value is False


def _is_encodable(value: object) -> bool:
    try:
        orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        return False
    return True


def _text(value: object) -> str:
    return str(value).encode(errors="backslashreplace").decode()


def _number(value: float) -> float | str:
    if isfinite(value):
        return float(value)
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain(value: object) -> object:
    """What stands for a value that orjson has no form for."""
    if isinstance(value, bytes | bytearray | memoryview):
        return _of_bytes(bytes(value))
    if isinstance(value, timedelta):
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, _Model):
        return _of_model(value)
    # Who has a message has loaded this.
    messages = sys.modules.get("google.protobuf.message")
    if messages is not None and isinstance(value, messages.Message):
        return _of_message(value)
    return dict(value) if isinstance(value, Mapping) else str(value)


def _of_bytes(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""
    return text if not value or (text and not text.startswith(_HEX)) else _HEX + value.hex()


def _of_model(model: _Model) -> object:
    try:
        return model.model_dump(mode="json")
    except ValueError:
        # Bytes that are not UTF-8, for one.
        return model.model_dump()


def _of_message(message: object) -> object:
    from google.protobuf.json_format import Error, MessageToDict

    try:
        return MessageToDict(message, always_print_fields_with_no_presence=True, preserving_proto_field_name=True)
    except (Error, TypeError, ValueError):
        # An Any of a type that this process does not have, or a time that no calendar has.
        return str(message)
