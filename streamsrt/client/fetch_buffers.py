"""The buffers of large Fetch responses, used again when nothing reads them any more.

1. The system gives out memory page by page, zeroed: a response of megabytes in new pages takes four times the time that it
   takes to receive. What is freed often does not stay in the process: pieces of other sizes are cut from it, and Protobuf's
   library has malloc return all that is free after every few thousand messages.
2. Python refuses to resize a bytearray of which there are views. So a buffer of which only views were given out is unused
   as soon as it can be resized.
3. They hold ``LIMIT_BYTES`` at most; what is beyond that gets a buffer of its own. They are dropped when no large response
   has come for ``KEEP_S``.
"""

from __future__ import annotations

LARGE_BYTES = 256 * 1024
"""Smaller responses get a buffer of their own."""
LIMIT_BYTES = 32 << 20
KEEP_S = 10.0

_STEP_BYTES = 1 << 20
"""Sizes are rounded up to a multiple of it: the next response is seldom as large to the byte."""


class FetchBuffers:
    """Those of one cluster's connections. Belongs to the network thread's loop."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []
        self._used_at_s = 0.0

    def __len__(self) -> int:
        return len(self._buffers)

    def take(self, size_bytes: int, now_s: float) -> bytearray | memoryview:
        """A buffer of that size, with anything in it, which nobody else has."""
        if size_bytes < LARGE_BYTES:
            if self._buffers and now_s - self._used_at_s > KEEP_S:
                self._buffers.clear()
            return bytearray(size_bytes)
        self._used_at_s = now_s
        unused = [buffer for buffer in self._buffers if _is_unused(buffer)]
        fitting = [buffer for buffer in unused if len(buffer) >= size_bytes]
        if fitting:
            return memoryview(min(fitting, key=len))[:size_bytes]
        room_bytes = -(-size_bytes // _STEP_BYTES) * _STEP_BYTES
        for buffer in unused:
            if self._held_bytes() + room_bytes > LIMIT_BYTES:
                self._buffers = [other for other in self._buffers if other is not buffer]
        if self._held_bytes() + room_bytes > LIMIT_BYTES:
            return bytearray(size_bytes)
        self._buffers.append(bytearray(room_bytes))
        return memoryview(self._buffers[-1])[:size_bytes]

    def _held_bytes(self) -> int:
        return sum(map(len, self._buffers))


def _is_unused(buffer: bytearray) -> bool:
    """Rule 2."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
