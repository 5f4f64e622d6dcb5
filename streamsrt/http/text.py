"""Keys from text, and rows as what becomes JSON.

Text is converted for the store's key serde: numbers, UUIDs and booleans are parsed, ``bytes`` are UTF-8 or, with the
prefix ``0x``, hexadecimal digits. For every other serde the text is parsed as JSON, or used as it is if it is not JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
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
