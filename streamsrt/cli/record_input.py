"""Records from the lines of a file: plain lines, JSON lines and CSV.

1. A plain line is bytes: what is not UTF-8 is written as it is.
2. A JSON line is an object with ``value``, and maybe ``key``, ``timestamp``, ``partition`` and ``headers``: what ``consume
   --json --headers`` prints.
3. CSV has a first line with the names of its columns. The value of a record is the JSON object of its row, its key and
   timestamp are columns that are named.
4. If a line can't be read, the error has its number. Everything before it is written, and nothing after it.
5. Lines may come slowly, from a person or a log: what has come does not wait for more.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO, NamedTuple, TypeVar, cast

from streamsrt.cli.record_formats import UNREADABLE, Encode
from streamsrt.errors import ConfigError
from streamsrt.wire.records import Headers

_SHOWN = 60
_FIELDS = ("key", "value", "timestamp", "partition", "headers", "offset")


class InputRecord(NamedTuple):
    """A record to write. ``timestamp``: epoch milliseconds; None: not said. ``partition`` None: by the key."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    partition: int | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How lines become records."""

    key: Encode
    value: Encode
    separator: str | None = None
    key_column: str | None = None
    timestamp_column: str | None = None
    partitions: int | None = None
    """How many the topic has."""


T = TypeVar("T")
Read = Callable[[BinaryIO, LineFormat], Iterator[InputRecord]]


class AsItComes(io.RawIOBase):
    """A stream that may make its reader wait. ``before_waiting`` is called before each time."""

    def __init__(self, stream: io.BufferedIOBase, before_waiting: Callable[[], None]) -> None:
        self._stream = stream
        self._before_waiting = before_waiting

    def readable(self) -> bool:
        return True

    def readinto(self, room: memoryview) -> int:  # type: ignore[override]  # what io.BufferedReader gives
        self._before_waiting()
        data = self._stream.read1(len(room))
        room[: len(data)] = data
        return len(data)


def read_lines(stream: BinaryIO, reading: LineFormat) -> Iterator[InputRecord]:
    """A record for each line, with the key before the separator, if one is given."""
    between = None if reading.separator is None else reading.separator.encode()
    for number, line in enumerate(stream, 1):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        key: bytes | None = None
        if between is not None:
            before, found, text = text.partition(between)
            if not found:
                raise ConfigError(
                    f"line {number} of stdin has no key separator {reading.separator!r}: {shown_text(before)}"
                )
            key = _encoded_bytes(reading.key, before, f"the key in line {number}")
        yield InputRecord(key, _encoded_bytes(reading.value, text, f"the value in line {number}"))


def _encoded_bytes(encode: Encode, data: bytes, what: str) -> bytes:
    """Text that is not UTF-8 can only be written as it is."""
    try:
        return _encoded(encode, data.decode(), what)
    except UnicodeDecodeError:
        return data


def read_json(stream: BinaryIO, reading: LineFormat) -> Iterator[InputRecord]:
    """A record for each JSON object."""
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"line {number} of stdin is not JSON ({error}): {shown_text(line)}") from None
        if not isinstance(row, dict) or "value" not in row or (unknown := set(row) - set(_FIELDS)):
            what = f"unknown: {', '.join(sorted(unknown))}" if isinstance(row, dict) and "value" in row else "no value"
            raise ConfigError(
                f"line {number} of stdin is not a record ({what}): a JSON line has a value, and optionally key, "
                f"timestamp, partition and headers: {shown_text(line)}"
            )
        yield InputRecord(
            _optional(reading.key, row.get("key"), f"the key in line {number}"),
            _optional(reading.value, row["value"], f"the value in line {number}"),
            _timestamp(row.get("timestamp"), number),
            _partition(row.get("partition"), number, reading.partitions),
            _headers(row.get("headers"), number),
        )


def read_csv(stream: BinaryIO, reading: LineFormat) -> Iterator[InputRecord]:
    """A record for each row."""
    rows = csv.DictReader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""), strict=True)
    columns = [name for names in _lines(map(_names, [rows]), rows) for name in names]
    if twice := sorted({column for column in columns if columns.count(column) > 1}):
        raise ConfigError(f"line 1 of stdin has a column twice: {', '.join(twice)}")
    for option, column in (("--key-column", reading.key_column), ("--timestamp-column", reading.timestamp_column)):
        if column is not None and column not in columns:
            raise ConfigError(
                f"{option} {column}: there is no such column; the columns are: {', '.join(columns) or 'none'}"
            )
    for row in _lines(rows, rows):
        number = rows.line_num
        if None in row or None in row.values():
            raise ConfigError(f"line {number} of stdin does not have {len(columns)} fields like line 1")
        key = None if reading.key_column is None else row[reading.key_column]
        at = None if reading.timestamp_column is None else row[reading.timestamp_column]
        yield InputRecord(
            _optional(reading.key, key, f"the key in line {number}"),
            json.dumps(row, ensure_ascii=False).encode(),
            _timestamp(at, number),
        )


def _names(rows: csv.DictReader[str]) -> list[str]:
    return list(rows.fieldnames or ())


def _lines(found: Iterable[T], rows: csv.DictReader[str]) -> Iterator[T]:
    try:
        yield from found
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"line {rows.line_num + 1} of stdin is not CSV in UTF-8: {error}") from None


READERS: dict[str, Read] = {"lines": read_lines, "json": read_json, "csv": read_csv}


def _optional(encode: Encode, value: object, what: str) -> bytes | None:
    return None if value is None else _encoded(encode, value, what)


def _encoded(encode: Encode, value: object, what: str) -> bytes:
    try:
        return encode(value)
    except UNREADABLE as error:
        raise ConfigError(f"{what} of stdin is not in the given format: {error}") from None


def _timestamp(value: object, number: int) -> int | None:
    """Epoch milliseconds, or an ISO time, which is UTC where it does not say otherwise."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            found = int(value) if value.isdecimal() else _epoch_ms(datetime.fromisoformat(value))
            if 0 <= found < 1 << 63:
                return found
    raise ConfigError(
        f"the timestamp in line {number} of stdin is {value!r}: give epoch milliseconds, or a time like 2026-01-31T12:00:00"
    )


def _epoch_ms(at: datetime) -> int:
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _partition(value: object, number: int, partitions: int | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < (partitions or value + 1):
        return value
    most = "" if partitions is None else f" to {partitions - 1}"
    raise ConfigError(f"the partition in line {number} of stdin is {value!r}: give a number from 0{most or ' on'}")


def _headers(value: object, number: int) -> Headers:
    """``{"name": "text"}``, or a list of pairs where a name comes twice; ``{"hex": "ff00"}`` is a value that is no text."""
    pairs: object = list(value.items()) if isinstance(value, dict) else value
    if pairs is None:
        return ()
    if isinstance(pairs, list) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        with suppress(ValueError):
            return tuple((_name(name), _header(found)) for name, found in cast("list[tuple[str, object]]", pairs))
    raise ConfigError(f"the headers in line {number} of stdin are {value!r}: give an object whose values are texts")


def _name(text: str) -> str:
    """Raises ValueError for half of a surrogate pair, which JSON can have and a record can't."""
    text.encode()
    return text


def _header(value: object) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    if isinstance(value, dict) and isinstance(found := value.get("hex"), str) and len(value) == 1:
        return bytes.fromhex(found)
    raise ValueError(value)


def shown_header(value: bytes | None) -> object:
    """A header's value as it is read again."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()} if value is not None else None


def shown_text(data: bytes) -> str:
    return repr(data[:_SHOWN].decode(errors="backslashreplace"))
