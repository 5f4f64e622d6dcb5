"""The basics of the protocol: unsigned varints, UUIDs as text, and the errors of this package.

Rules: a peer's bytes can only raise :class:`DecodeError`; a caller's values can only raise :class:`EncodeError`.
Lengths are checked against the available bytes before anything is allocated.
"""

from __future__ import annotations

import base64
import re

Buffer = bytes | bytearray | memoryview

ZERO_UUID = bytes(16)
MAX_UVARINT = 0xFFFF_FFFF
TEXT_BYTES_MAX = (1 << 15) - 1
# Kafka writes a UUID as the 22 characters of its unpadded base64url form (org.apache.kafka.common.Uuid).
UUID_TEXT_LENGTH = 22
UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


class WireError(ValueError):
    """Bytes and values that do not fit the protocol."""


class DecodeError(WireError):
    """The peer's bytes are not a message. The connection that they came from cannot be used any longer.

    ``next_offset``: the offset after a record batch that can't be read; -1 if it is unknown.
    """

    next_offset = -1


class UnsupportedVersionError(DecodeError):
    """A request for an API or a version that this code does not speak.

    A server answers ApiVersions with error 35 in version 0 and closes the connection for all others, as Kafka does.
    """

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"API key {api_key} in version {api_version} is not supported")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class NewerRecordError(DecodeError):
    """A coordinator record of a type or version that is not in the schemas: a newer broker has written it."""


class UnknownRecordTypeError(NewerRecordError):
    """A coordinator record of an unknown type."""

    def __init__(self, record_type: int) -> None:
        super().__init__(f"coordinator record type {record_type} is not known")
        self.record_type = record_type


class EncodeError(WireError):
    """A message has a value that its schema does not allow, or does not exist in the requested version."""


def write_uvarint(value: int) -> bytes:
    """The unsigned LEB128 form of ``value`` (0 to 2**32 - 1), one to five bytes. Source: KIP-482."""
    if not 0 <= value <= MAX_UVARINT:
        raise EncodeError(f"{value} does not fit an unsigned varint (0 to {MAX_UVARINT})")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """The unsigned varint at ``offset`` and the offset behind it.

    Raises IndexError where the buffer ends too early: callers inside this package turn it into DecodeError.
    """
    value = buffer[offset]
    offset += 1
    if value < 128:
        return value, offset
    value &= 127
    for shift in (7, 14, 21, 28):
        byte = buffer[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > MAX_UVARINT:
                break
            return value, offset
    raise DecodeError(f"the varint that ends before byte {offset} is larger than {MAX_UVARINT}")


def shortened(text: bytes) -> bytes:
    """As much of a text in UTF-8 as clients read."""
    if len(text) <= TEXT_BYTES_MAX:
        return text
    return text[: TEXT_BYTES_MAX - 3].decode(errors="ignore").encode() + b"..."


def uuid_to_text(value: bytes) -> str:
    """Kafka's text form of a 16-byte UUID: base64url without padding, 22 characters."""
    if len(value) != 16:
        raise EncodeError(f"a UUID has 16 bytes, not {len(value)}")
    return base64.urlsafe_b64encode(value)[:UUID_TEXT_LENGTH].decode()


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes of a UUID in Kafka's text form; ValueError (DecodeError) for any other text."""
    if UUID_TEXT.fullmatch(text) is None:
        raise DecodeError(f"not a UUID of {UUID_TEXT_LENGTH} characters in base64url: {text[:64]!r}")
    return base64.urlsafe_b64decode(text + "==")
