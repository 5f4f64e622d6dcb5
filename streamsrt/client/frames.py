"""Cuts what a broker sends into frames.

1. Frames arrive in a small buffer that is used again and again: small ones are whole with the first look at the socket, size
   included, and several may come at once. Each is handed over as a copy of its own.
2. A frame that is larger than what has come of it gets a buffer of its exact size, which the owner has, and into which the
   rest of it is read.
3. After a frame whose size can't be right, nothing is read any more.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Protocol

from streamsrt.wire.primitives import Buffer

BUFFER_BYTES = 16 * 1024
"""Most responses are smaller; of larger ones, so much is copied once."""

_SIZE = struct.Struct(">i")
_SIZE_BYTES = 4


class TakesFrames(Protocol):
    """Whom the frames of a connection are for."""

    @property
    def closed(self) -> bool: ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...

    def buffer_of(self, size_bytes: int) -> Buffer: ...

    def frame_received(self, frame: Buffer) -> None: ...

    def not_kafka(self, reason: str) -> None: ...


class Frames(asyncio.BufferedProtocol):
    """Reads frames for ``owner``. ``limit_bytes``: the largest size that is believed."""

    def __init__(self, owner: TakesFrames, limit_bytes: int) -> None:
        self._owner = owner
        self.limit_bytes = limit_bytes
        self._small = bytearray(BUFFER_BYTES)
        self._small_view = memoryview(self._small)
        self._filled = 0
        """How much of the small buffer is the beginning of a size."""
        self._body: Buffer | None = None
        """A frame that is read into a buffer of its own, up to ``_at``."""
        self._body_view = self._small_view
        self._at = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._owner.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.connection_lost(error)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._small_view[self._filled :] if self._body is None else self._body_view[self._at :]

    def buffer_updated(self, nbytes: int) -> None:
        body = self._body
        if body is None:
            self._cut(self._filled + nbytes)
            return
        self._at += nbytes
        if self._at == len(body):
            self._body, self._body_view = None, self._small_view
            self._owner.frame_received(body)

    def _cut(self, end: int) -> None:
        """Hands over the frames in the small buffer, which is filled up to ``end``."""
        small, at = self._small, 0
        self._filled = 0
        while end - at >= _SIZE_BYTES:
            size: int = _SIZE.unpack_from(small, at)[0]
            if not 4 <= size <= self.limit_bytes:
                begins = bytes(small[at : at + _SIZE_BYTES])
                self._owner.not_kafka(f"it announces a frame of {size} bytes ({begins!r})")
                return
            at += _SIZE_BYTES
            if end - at < size:
                self._begin(size, at, end)
                return
            frame = small[at : at + size]
            at += size
            self._owner.frame_received(frame)
            if self._owner.closed:
                return
        self._filled = end - at
        small[: self._filled] = small[at:end]

    def _begin(self, size: int, start: int, end: int) -> None:
        """Has the rest of a frame, of which ``start`` to ``end`` is there, read into a buffer of its own."""
        body = self._owner.buffer_of(size)
        self._at = end - start
        self._body, self._body_view = body, memoryview(body)
        self._body_view[: self._at] = self._small_view[start:end]
