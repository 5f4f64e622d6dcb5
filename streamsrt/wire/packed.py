"""A message as user data of the classic protocol: one byte, 0 plain or 1 compressed with zlib, and then the message."""

from __future__ import annotations

import zlib

from streamsrt.wire.primitives import DecodeError

PLAIN, COMPRESSED = 0, 1
_MAX_BYTES = 64 * 1024 * 1024
"""More than any topology has; less than what a few hostile bytes can decompress to."""


def packed(message: bytes) -> bytes:
    """Encodes the data in whichever form is shorter."""
    compressed = zlib.compress(message)
    if len(compressed) < len(message):
        return bytes([COMPRESSED]) + compressed
    return bytes([PLAIN]) + message


def unpacked(data: bytes | None) -> bytes:
    """Raises DecodeError."""
    if not data:
        raise DecodeError("there is no user data")
    body = bytes(data[1:])
    if data[0] == PLAIN:
        return body
    if data[0] != COMPRESSED:
        raise DecodeError(f"the first byte of the user data is {data[0]}, not 0 or 1")
    reader = zlib.decompressobj()
    try:
        message = reader.decompress(body, _MAX_BYTES)
    except zlib.error as error:
        raise DecodeError(f"the user data is not valid zlib data: {error}") from None
    if not reader.eof:
        raise DecodeError(f"the user data is cut off, or larger than {_MAX_BYTES} bytes")
    return message
