"""Keys from text, and keys and values as JSON.

Text is converted for the store's key serde: numbers, UUIDs and booleans are parsed, ``bytes`` are UTF-8 or, with the
prefix ``0x``, hexadecimal digits. For every other serde the text is parsed as JSON, or used as it is if it is not JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast
from uuid import UUID

import orjson

from streamsrt.errors import UserError
from topology.graph.nodes import StoreSpec
from topology.spec.stores import ValueAndTimestamp, VersionedRecord
from topology.spec.windows import Windowed


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()


def _json_or_text(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


_DEPTH_MAX = 100
"""Lists and mappings in each other; orjson takes 254."""

_READERS: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "short": int,
    "integer": int,
    "long": int,
    "float": float,
    "double": float,
    "boolean": _truth,
    "uuid": UUID,
    "bytes": _bytes,
}


def key_of(spec: StoreSpec, text: str) -> Any:
    """Parses a key. Raises UserError."""
    name = getattr(spec.key_serde, "name", "")
    try:
        return _READERS.get(name, _json_or_text)(text)
    except (ValueError, KeyError):
        raise UserError(f"{text!r} is not a key of store {spec.name!r}: its keys have the serde {name!r}") from None


def row_json(key: object, value: object) -> dict[str, Any]:
    """One row: the key (with its window), the value, and its timestamp where there is one."""
    row: dict[str, Any] = {}
    if isinstance(key, Windowed):
        row.update(key=key.key, start=key.start_ms, end=key.end_ms)
    else:
        row["key"] = key
    if isinstance(value, ValueAndTimestamp):
        row.update(value=value.value, timestamp=value.timestamp)
    elif isinstance(value, VersionedRecord):
        row.update(value=value.value, timestamp=value.timestamp, valid_to=value.valid_to)
    else:
        row["value"] = value
    return row


def to_json(value: object) -> bytes:
    """Encodes JSON; other values become text: bytes are UTF-8, or hexadecimal digits after ``0x``."""
    try:
        return _encoded(value)
    except orjson.JSONEncodeError:
        return _encoded(_writable(value, 0))


def _encoded(value: object) -> bytes:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)


def _writable(value: object, depth: int) -> object:
    """The value without what orjson refuses before it asks :func:`_plain`. Integers of more than 64 bits, and halves of
    surrogate pairs in texts, are written as JSON has them; keys such as tuples, and what lies too deep, become texts."""
    if depth == _DEPTH_MAX:
        return _text(value)
    if isinstance(value, dict):
        return {_key_or_text(key): _writable(each, depth + 1) for key, each in value.items()}
    if type(value) in (list, tuple):
        return [_writable(each, depth + 1) for each in cast("list[object]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _writable(getattr(value, each.name), depth + 1) for each in fields(value)}
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return _writable(dump(mode="json"), depth + 1)
    if _is_encodable(value):
        return value
    return orjson.Fragment(json.dumps(value)) if isinstance(value, int | str) else _text(value)


def _key_or_text(key: object) -> object:
    return key if _is_encodable({key: None}) else _text(_plain(key))


def _is_encodable(value: object) -> bool:
    try:
        _encoded(value)
    except orjson.JSONEncodeError:
        return False
    return True


def _text(value: object) -> str:
    return str(value).encode(errors="backslashreplace").decode()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)
