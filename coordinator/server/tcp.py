"""One connection: frames in, answers out, in order.

1. A frame is a four-byte size and that many bytes. A small one is cut out of the receive buffer; a large one is received
   into a buffer of exactly its size, so that record batches are never copied on their way to the log.
2. Requests of a connection are answered in the order of their arrival: the next one is looked at when the answer to the
   one before is written. While one waits (a long poll, an fsync), further frames queue up to a bound in number and in
   bytes; then reading stops.
3. A client that does not read its answers stops being served until it does.
4. What can't be decoded ends the connection: there is no answer in a protocol that the other side does not speak.
5. A handler that fails ends its connection, with a traceback in the log; the others are served on.
6. For a frame that is not whole, memory grows with what has arrived, from one block on: a client that announces a huge
   frame and sends nothing of it costs one block. A connection that waits for a request has no receive buffer.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

logger = logging.getLogger("coordinator.server")

Parts: TypeAlias = "Sequence[bytes | memoryview | bytearray]"
Answer: TypeAlias = "Parts | Awaitable[Parts | None] | None"
Handler: TypeAlias = "Callable[[memoryview | bytes, str], Answer]"
NewHandler: TypeAlias = "Callable[[asyncio.Transport], Handler]"
"""Makes what answers the frames of a new connection. Raises ProtocolViolationError for one that is not let in."""

RECEIVE_BUFFER_BYTES = 1 << 16
QUEUED_FRAMES_MAX = 64
QUEUED_BYTES_MAX = 16 << 20
_FRAME_BYTES_MIN = 8
_FIRST_BLOCK_BYTES = 5 << 18
_SIZE = struct.Struct(">i")


_SPARE_MAX = 16
_spare: list[memoryview] = []
"""Receive buffers that no connection has data in."""


class ProtocolViolationError(Exception):
    """The client sent what can't be answered: the connection is closed. The message is for the log."""


def _not_connected(frame: memoryview | bytes, client_host: str) -> Answer:
    raise ProtocolViolationError("the connection is not let in")


class Door(Protocol):
    """Who the connections belong to."""

    frame_bytes_max: int

    def enter(self, connection: Connection) -> bool:
        """Takes note of a new connection; False if there is no room for it."""

    def leave(self, connection: Connection) -> None:
        """Forgets a connection that is closed."""


class Connection(asyncio.BufferedProtocol):
    """Cuts frames, keeps answers in order. ``handler(frame, client_host)`` gives the answer, or something to await."""

    def __init__(self, new_handler: NewHandler, door: Door) -> None:
        self._new_handler = new_handler
        self._handler: Handler = _not_connected
        self._door = door
        self._frame_bytes_max = door.frame_bytes_max
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        self._large: bytearray | None = None
        self._large_size = 0
        self._large_filled = 0
        self._queue: deque[memoryview | bytes] = deque()
        self._queued_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self._reading = True
        self._draining = False
        self.host = ""
        self.was_active = True
        """Set with every byte that arrives; whoever looks for idle connections clears it."""
        self.idle_rounds = 0

    # ------------------------------------------------------------------------------------------------ transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if isinstance(peer, tuple) else "local"
        if not self._door.enter(self):
            transport.abort()
            return
        try:
            self._handler = self._new_handler(transport)
        except ProtocolViolationError as violation:
            logger.warning("closed the connection from %s: %s", self.host, violation)
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        self._queue.clear()
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._work()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._large)[self._large_filled :]
        if self._view is None:
            self._view = _spare.pop() if _spare else memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self.was_active = True
        try:
            if self._large is not None:
                self._fill_large(nbytes)
            else:
                self._end += nbytes
                self._cut_frames()
                if self._end == 0:
                    self._put_back()
        except ProtocolViolationError as violation:
            self._refuse(violation)
            return
        self._work()

    # ----------------------------------------------------------------------------------------------------------- frames

    def _put_back(self) -> None:
        """Lets go of the receive buffer: a connection that waits for a request has none."""
        if self._view is not None and len(_spare) < _SPARE_MAX:
            _spare.append(self._view)
        self._view = None

    def _cut_frames(self) -> None:
        start, end, buffer = self._start, self._end, self._view
        assert buffer is not None
        while end - start >= 4:
            size = _SIZE.unpack_from(buffer, start)[0]
            if not _FRAME_BYTES_MIN <= size <= self._frame_bytes_max:
                raise ProtocolViolationError(
                    f"a frame of {size} bytes is announced, allowed are {_FRAME_BYTES_MIN} to {self._frame_bytes_max} "
                    "(socket.request.max.bytes); does the client speak another protocol?"
                )
            if end - start - 4 < size:
                if size + 4 > RECEIVE_BUFFER_BYTES:
                    self._begin_large(size, start + 4, end)
                    return
                break
            self._queue.append(bytes(buffer[start + 4 : start + 4 + size]))
            self._queued_bytes += size
            start += 4 + size
        if start:
            buffer[: end - start] = buffer[start:end]
        self._start, self._end = 0, end - start

    def _begin_large(self, size: int, start: int, end: int) -> None:
        self._large_size = size
        self._large = bytearray(min(size, _FIRST_BLOCK_BYTES))
        self._large_filled = end - start
        assert self._view is not None
        self._large[: self._large_filled] = self._view[start:end]
        self._start = self._end = 0

    def _fill_large(self, nbytes: int) -> None:
        assert self._large is not None
        self._large_filled += nbytes
        if self._large_filled == self._large_size:
            self._queue.append(memoryview(self._large))
            self._queued_bytes += self._large_size
            self._large = None
        elif self._large_filled == len(self._large):
            grown = bytearray(min(self._large_size, 4 * len(self._large)))
            grown[: self._large_filled] = self._large
            self._large = grown

    # ---------------------------------------------------------------------------------------------------------- answers

    def _work(self) -> None:
        """Answers queued frames until one has to wait."""
        queue = self._queue
        while queue and self._task is None and self._writable and self._transport is not None:
            frame = queue.popleft()
            self._queued_bytes -= len(frame)
            try:
                answer = self._handler(frame, self.host)
            except ProtocolViolationError as violation:
                self._refuse(violation)
                return
            except Exception:
                logger.exception("closed the connection from %s: a handler failed", self.host)
                self._give_up()
                return
            if answer is None:
                continue
            if isinstance(answer, Awaitable):
                self._task = asyncio.ensure_future(self._finish(answer))
            else:
                self._write(answer)
        self._throttle()
        if self._draining and self.is_idle():
            self.close()

    async def _finish(self, answer: Awaitable[Parts | None]) -> None:
        try:
            parts = await answer
        except ProtocolViolationError as violation:
            self._task = None
            self._refuse(violation)
            return
        except Exception:
            logger.exception("closed the connection from %s: a handler failed while it waited", self.host)
            self._task = None
            self._give_up()
            return
        self._task = None
        if parts is not None:
            self._write(parts)
        self._work()

    def _refuse(self, violation: ProtocolViolationError) -> None:
        logger.warning("closed the connection from %s: %s", self.host, violation)
        self._give_up()

    def _give_up(self) -> None:
        """Closes once what was answered before is sent; what waits or is queued behind is not answered."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._queue.clear()
        self._queued_bytes = 0
        self.close()

    def _write(self, parts: Parts) -> None:
        transport = self._transport
        if transport is None:
            return
        if len(parts) == 1:
            transport.write(parts[0])
        elif sum(map(len, parts)) <= RECEIVE_BUFFER_BYTES:
            transport.write(b"".join(parts))
        else:
            for part in parts:
                transport.write(part)

    def _throttle(self) -> None:
        transport = self._transport
        if transport is None or self._draining:
            return
        count, size = len(self._queue), self._queued_bytes
        if self._reading:
            if count >= QUEUED_FRAMES_MAX or size >= QUEUED_BYTES_MAX:
                self._reading = False
                transport.pause_reading()
        elif count < QUEUED_FRAMES_MAX // 2 and size < QUEUED_BYTES_MAX // 2:
            self._reading = True
            transport.resume_reading()

    # ------------------------------------------------------------------------------------------------------------ ending

    def is_idle(self) -> bool:
        """Whether every request that arrived has been answered."""
        return not self._queue and self._task is None

    def drain(self) -> None:
        """Takes no further request; closes once the ones that arrived are answered."""
        self._draining = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        if self.is_idle():
            self.close()

    def close(self) -> None:
        """Closes once what was written is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes at once."""
        if self._transport is not None:
            self._transport.abort()
