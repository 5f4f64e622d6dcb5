"""Formats of keys and values on the command line: bytes as text, and text as bytes."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from streamsrt.errors import ConfigError
from topology import serdes

Decode: TypeAlias = Callable[[bytes], object]
Encode: TypeAlias = Callable[[object], bytes]
"""Of text, or of what JSON holds. Raises one of UNREADABLE."""


class Format(NamedTuple):
    """Both directions of a format; ``encode`` is None for what is only shown."""

    decode: Decode
    encode: Encode | None


def _text(value: object) -> bytes:
    """Text as it is; of JSON anything else is written as JSON."""
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r} is not a number")
    if not isinstance(value, str) and not math.isfinite(value):
        raise ValueError(f'JSON has no such number: write "{value}", as text')
    return float(value)


def _hex(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not hexadecimal")
    return bytes.fromhex(value)


def _json(value: object) -> bytes:
    """Text must be JSON itself."""
    return json.dumps(
        json.loads(value) if isinstance(value, str) else value, ensure_ascii=False, allow_nan=False
    ).encode()


class JsonText(str):
    """A JSON document on one line, with every digit as it was written."""

    __slots__ = ()


_STRING_OR_SPACE = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')


def _json_text(data: bytes) -> JsonText:
    """Numbers stay text: as values of Python, long ones would come out with other digits."""
    text = data.decode()
    json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_json)
    return JsonText(_STRING_OR_SPACE.sub(lambda found: found[1] or "", text))


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _time_windowed_string(data: bytes) -> str:
    if len(data) < 8:
        raise ValueError(f"a windowed key has at least 8 bytes, not {len(data)}")
    return f"{data[:-8].decode()}@{int.from_bytes(data[-8:], 'big')}"


FORMATS: dict[str, Format] = {
    "string": Format(serdes.string.deserialize, _text),
    "json": Format(_json_text, _json),
    "integer": Format(serdes.integer.deserialize, lambda value: struct.pack(">i", _whole(value))),
    "long": Format(serdes.long.deserialize, lambda value: struct.pack(">q", _whole(value))),
    "double": Format(serdes.double.deserialize, lambda value: struct.pack(">d", _number(value))),
    "bytes": Format(bytes.hex, _hex),
    "windowed": Format(_time_windowed_string, None),
}
UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError, struct.error)


def decoder(name: str) -> Decode:
    """Raises ConfigError for an unknown format."""
    return _format(name).decode


def encoder(name: str) -> Encode:
    """Raises ConfigError for an unknown format, and for one that is only shown."""
    encode = _format(name).encode
    if encode is None:
        raise ConfigError(f"format {name!r} is for output only: give one of {', '.join(_written())}")
    return encode


def _format(name: str) -> Format:
    found = FORMATS.get(name)
    if found is None:
        raise ConfigError(f"unknown format {name!r}: give one of {', '.join(FORMATS)}")
    return found


def _written() -> list[str]:
    return [name for name, found in FORMATS.items() if found.encode is not None]
