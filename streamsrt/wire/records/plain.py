"""Records that the quick readers refuse though Java's accepts them, with header keys that are not UTF-8; very long records;
and single ones, for which a codec is not worth loading.

1. Such keys are read as Java reads them, with U+FFFD in place of invalid bytes. Everything else is as strict as there.
2. Keys and values are not copied: for long records this is the main cost, and it blocks all threads.
3. ``walk_plain`` makes no object per header, and reads no header before their number is known to be allowed.
4. ``walk_plain`` refuses numbers that are longer than Kafka reads them: all except timestamps have at most five bytes.
   ``read_plain`` accepts them, for logs that contain such batches.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from streamsrt.wire.compression import TooLargeError
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records.columns import Headers
from streamsrt.wire.records.header import HEADER_SIZE_BYTES, BatchHeader

_NUMBER_BYTES_MAX = 10
_INT_BYTES_MAX = 5
_HEADER_BYTES_MIN = 2
_NULL = b"\1"


class PlainRecord(NamedTuple):
    """One record; offset and timestamp are absolute."""

    offset: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None
    headers: Headers


def read_plain(batch: memoryview, header: BatchHeader, wants_headers: bool = True) -> list[PlainRecord]:
    """The records of an uncompressed batch, on request without headers. DecodeError for broken ones."""
    data = batch[HEADER_SIZE_BYTES:]
    try:
        records, end = _records(data, header, wants_headers)
    except IndexError:
        raise DecodeError(f"batch at offset {header.base_offset} ends within a record") from None
    if end != len(data):
        raise DecodeError(f"batch at offset {header.base_offset} has {len(data) - end} bytes after its last record")
    return records


def read_single(data: bytes) -> tuple[bytes | None, bytes | None] | None:
    """Key and value of the only record of a batch, as a producer writes it: with the batch's own timestamp and offset, and
    without headers. None for any other, and for a broken one."""
    try:
        size, at = read_number(data, 0)
        if at + size != len(data) or data[at + 1 : at + 3] != b"\0\0" or data[-1]:
            return None
        key_size, at = read_number(data, at + 3)
        value_at = at + max(key_size, 0)
        value_size, end = read_number(data, value_at)
    except (IndexError, DecodeError):
        return None
    if end + max(value_size, 0) != len(data) - 1:
        return None
    return None if key_size < 0 else data[at:value_at], None if value_size < 0 else data[end:-1]


def _records(data: memoryview, header: BatchHeader, wants_headers: bool) -> tuple[list[PlainRecord], int]:
    records = []
    at = 0
    for _ in range(header.records_count):
        size, at = read_number(data, at)
        end = at + size
        delta_ms, at = read_number(data, at + 1)
        delta, at = read_number(data, at)
        key, at = _sized(data, at)
        value, at = _sized(data, at)
        count, at = read_number(data, at)
        _check_headers_count(count, len(data) - at)
        headers: Headers = ()
        if wants_headers:
            headers, at = _headers(data, at, count)
        else:
            at = _behind_headers(data, at, count)
        if at != end:
            raise DecodeError(f"a record has {size + at - end} bytes, and its size says {size}")
        timestamp = header.max_timestamp if header.is_log_append_time else _long(header.base_timestamp + delta_ms)
        records.append(PlainRecord(header.base_offset + delta, timestamp, key, value, headers))
    return records, at


def _headers(data: memoryview, at: int, count: int) -> tuple[Headers, int]:
    headers = []
    for _ in range(count):
        name, at = _sized(data, at)
        if name is None:
            raise DecodeError("a header has no key")
        content, at = _sized(data, at)
        headers.append((bytes(name).decode(errors="replace"), _bytes(content)))
    return tuple(headers), at


def has_long_record(data: memoryview, size_bytes: int) -> bool:
    """Whether a record of a batch is longer than that, by the sizes in the records. Broken records do not count."""
    at, limit = 0, len(data) - size_bytes
    try:
        while at < limit:
            size = data[at]
            if size < 0x80:
                at += 1 + (size >> 1)
            elif (second := data[at + 1]) < 0x80:
                at += 2 + ((size & 0x7F) >> 1) + (second << 6)
            else:
                length, start = read_number(data, at)
                if length < 0 or length > size_bytes:
                    return length > 0
                at = start + length
    except (IndexError, DecodeError):
        pass
    return False


class WalkedRecord(NamedTuple):
    """The fields of a record except its value; offset and timestamp are absolute."""

    timestamp: int
    headers_count: int
    offset: int
    key: memoryview | None


def walk_plain(data: memoryview, records_count: int, header: BatchHeader, headers_max: int) -> list[WalkedRecord]:
    """Some records of a batch, which fill the buffer. DecodeError for broken ones, TooLargeError for too many headers."""
    try:
        return _walked(data, records_count, header, headers_max)
    except IndexError:
        raise DecodeError(f"batch at offset {header.base_offset} ends within a record") from None


def _walked(data: memoryview, records_count: int, header: BatchHeader, headers_max: int) -> list[WalkedRecord]:
    found = []
    at = held = 0
    for _ in range(records_count):
        size, at = read_int(data, at)
        end = at + size
        delta_ms, at = read_number(data, at + 1)
        delta, at = read_int(data, at)
        key, at = _sized(data, at, _INT_BYTES_MAX)
        _, at = _sized(data, at, _INT_BYTES_MAX)
        count, at = read_int(data, at)
        _check_headers_count(count, len(data) - at)
        held += count
        check_headers(held, headers_max)
        at = _behind_headers(data, at, count, _INT_BYTES_MAX)
        if at != end:
            raise DecodeError(f"a record has {size + at - end} bytes, and its size says {size}")
        timestamp = header.max_timestamp if header.is_log_append_time else _long(header.base_timestamp + delta_ms)
        found.append(WalkedRecord(timestamp, count, header.base_offset + delta, key))
    if at != len(data):
        raise DecodeError(f"batch at offset {header.base_offset} has {len(data) - at} bytes after its last record")
    return found


def check_headers(headers_count: int, headers_max: int) -> None:
    """TooLargeError where there are more than that."""
    if headers_count > headers_max:
        raise TooLargeError(f"the records have {headers_count} headers or more; {headers_max} are allowed")


def _check_headers_count(count: int, left_bytes: int) -> None:
    if not 0 <= count * _HEADER_BYTES_MIN <= left_bytes:
        raise DecodeError(f"a record claims {count} headers in {left_bytes} bytes")


def _behind_headers(data: memoryview, at: int, count: int, bytes_max: int = _NUMBER_BYTES_MAX) -> int:
    limit = len(data)
    for _ in range(count):
        size = data[at]
        if size < 0x80 and not size & 1:
            at += 1 + (size >> 1)
        else:
            number, at = read_number(data, at, bytes_max)
            if number < 0:
                raise DecodeError("a header has no key")
            at += number
        size = data[at]
        if size < 0x80 and not size & 1:
            at += 1 + (size >> 1)
        else:
            number, at = read_number(data, at, bytes_max)
            at += max(number, 0)
        if at > limit:
            raise DecodeError("a header extends beyond its batch")
    return at


def read_number(data: memoryview | bytes, at: int, bytes_max: int = _NUMBER_BYTES_MAX) -> tuple[int, int]:
    """The varint at that position, and the position after it. IndexError beyond the end."""
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise DecodeError(f"a number has more than {bytes_max} bytes")


def read_int(data: memoryview, at: int) -> tuple[int, int]:
    """The same for a number of 32 bits, as Kafka reads it. DecodeError for a longer one."""
    return read_number(data, at, _INT_BYTES_MAX)


def written_number(number: int) -> bytes:
    """A number as a varint of records."""
    number = number << 1 if number >= 0 else ~(number << 1)
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_number = lru_cache(maxsize=4096)(written_number)


def write_plain(key: bytes | None, value: bytes | None, delta_ms: int, delta: int) -> bytes:
    """A record without headers, as it is in a batch."""
    key_size, key = (_NULL, b"") if key is None else (_number(len(key)), key)
    value_size, value = (_NULL, b"") if value is None else (_number(len(value)), value)
    record = b"".join((b"\0", _number(delta_ms), _number(delta), key_size, key, value_size, value, b"\0"))
    return _number(len(record)) + record


def _bytes(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


def _long(number: int) -> int:
    """As 64 bits hold it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _sized(data: memoryview, at: int, bytes_max: int = _NUMBER_BYTES_MAX) -> tuple[memoryview | None, int]:
    size, at = read_number(data, at, bytes_max)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise DecodeError(f"{size} bytes of key, value or header with {len(data) - at} left")
    return data[at : at + size], at + size
