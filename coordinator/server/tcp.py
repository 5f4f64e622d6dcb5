"""One connection: frames in, answers out, in order.

1. A frame is a four-byte size and that many bytes. A small one is cut out of the receive buffer; a large one is received
   into a buffer of exactly its size, so that record batches are never copied on their way to the log.
2. Requests of a connection are answered in the order of their arrival: the next one is cut out when the answer to the one
   before is written. While one waits (a long poll, an fsync), what arrives stays as it came: one receive buffer, or one
   large frame and a receive buffer. Then reading stops.
3. A client that does not read its answers is neither served nor read from until it does. One that is gone is not served.
   The transport gets a large answer piece by piece, when the connection is served: it copies what the network does not take
   at once. Records in files are read with their piece, so a client that does not read a response of 50 MB costs two pieces.
   The more clients have not read theirs, the smaller is a piece.
4. What can't be decoded ends the connection: there is no answer in a protocol that the other side does not speak.
5. A handler that fails ends its connection, with a traceback in the log; the others are served on.
6. A large frame is read when its whole size is granted (:class:`~coordinator.broker.queued_bytes.QueuedBytes`). While it is
   not whole, memory grows with what has arrived, from one block on: a client that announces a huge frame and sends nothing
   of it costs one block. A connection that waits for a request has no receive buffer.
7. When a connection is served, and for how long, is a matter of :class:`~coordinator.server.fair_queue.FairQueue`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import groupby
from typing import Protocol, TypeAlias

from coordinator.broker.queued_bytes import QueuedBytes
from coordinator.log import FileRecords, LogStorageError
from coordinator.server.fair_queue import QUANTUM_S, FairQueue

logger = logging.getLogger("coordinator.server")

Part: TypeAlias = "bytes | memoryview | bytearray | FileRecords"
Parts: TypeAlias = "Sequence[Part]"
Answer: TypeAlias = "Parts | Awaitable[Parts | None] | None"
Handler: TypeAlias = "Callable[[memoryview | bytes, str], Answer]"

RECEIVE_BUFFER_BYTES = 1 << 16
STALLED_AFTER_S = 5.0
STALLED_BYTES_PER_S = 256 << 10
_FRAME_BYTES_MIN = 8
_FIRST_BLOCK_BYTES = 5 << 18
_BLOCK_BYTES = 1 << 20
_BLOCK_BYTES_MIN = 1 << 15
_TURN_BYTES = 4 << 20
"""About how much of all large frames together is read in one turn of the event loop, and of all responses sent."""
PIECE_BYTES = 1 << 16
LARGE_PIECE_BYTES = 1 << 20
"""While little waits to be sent: fewer reads and writes for clients that read."""
_PIECE_PARTS = 256
_JOINED_BYTES_MAX = 1 << 14
OTHER_FRAME_BYTES_MAX = 8 << 20
"""No request but a Produce is larger."""
_PRODUCE = bytes(2)
_SIZE = struct.Struct(">i")


_SPARE_MAX = 16
_spare: list[memoryview] = []
"""Receive buffers that no connection has data in."""


class ProtocolViolationError(Exception):
    """The client sent what can't be answered: the connection is closed. The message is for the log."""


def _not_connected(frame: memoryview | bytes, client_host: str) -> Answer:
    raise ProtocolViolationError("the connection was refused")


class Peer(Protocol):
    """What the handler of a connection may know and set of it."""

    frame_bytes_max: int
    """No larger frame is read."""

    def extra_info(self, name: str) -> object:
        """What the transport knows by this name (asyncio's names), or None."""


NewHandler: TypeAlias = "Callable[[Peer], Handler]"
"""Makes what answers the frames of a new connection. Raises ProtocolViolationError for one that is not let in."""


class Door(Protocol):
    """Who the connections belong to."""

    frame_bytes_max: int
    memory: QueuedBytes

    @property
    def queue(self) -> FairQueue: ...

    def enter(self, connection: Connection) -> bool:
        """Takes note of a new connection; False if there is no room for it."""

    def leave(self, connection: Connection) -> None:
        """Forgets a connection that is closed."""

    def relieve(self) -> None:
        """Closes connections that do not read their answers, until there is memory again."""


class Connection(asyncio.BufferedProtocol):
    """Cuts frames, keeps answers in order. ``handler(frame, client_host)`` gives the answer, or something to await."""

    def __init__(self, new_handler: NewHandler, door: Door) -> None:
        self._new_handler = new_handler
        self._handler: Handler = _not_connected
        self._door = door
        self._queue = door.queue
        self._memory = door.memory
        self.frame_bytes_max = door.frame_bytes_max
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        self._large: bytearray | None = None
        self._large_size = 0
        self._large_filled = 0
        self._large_since_s = 0.0
        self._is_waiting_for_memory = False
        self._granted = 0
        self._served = 0
        """The bytes of a large frame that is being answered."""
        self._task: asyncio.Task[None] | None = None
        self._is_producing = False
        """Whether what waits is a Produce: its records are written, whether or not somebody still waits for the answer."""
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self._held: deque[Part] = deque()
        """What the transport gets when it has sent what it has."""
        self._held_bytes = 0
        self._held_in_files_bytes = 0
        self._is_closing = False
        self._unread_since_s = 0.0
        self._unread_bytes = 0
        self._reading = True
        self._draining = False
        self.host = ""
        self.used_s = door.queue.newcomers_s()
        self.is_queued = False
        self.has_more = False
        self.was_active = True
        """Set with every byte that arrives or is taken; whoever looks for idle connections clears it."""
        self.idle_rounds = 0

    # ------------------------------------------------------------------------------------------------ transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if transport.get_extra_info("sslcontext") is not None:
            # Asyncio's limit for TLS is eight times that for sockets.
            transport.set_write_buffer_limits(PIECE_BYTES)
        self.host = host_of(transport)
        if not self._door.enter(self):
            transport.abort()
            return
        try:
            self._handler = self._new_handler(self)
        except ProtocolViolationError as violation:
            logger.warning("closed the connection from %s: %s", self.host, violation)
            transport.abort()
            return
        self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        self._transport = None
        self._held.clear()
        self._held_bytes = self._held_in_files_bytes = 0
        self._drop_input()
        self._memory.forget(self)
        self._memory.unsent(self, 0)
        if self._task is not None and not self._is_producing:
            self._task.cancel()

    def eof_received(self) -> bool:
        """The client sends no more. What it has sent is worked off: with acks=0 it waits for no answer before it closes."""
        if self._transport is None or self._transport.is_closing():
            return False
        if not (self._held or self.is_queued or self._holds_frame()):
            return False
        if self._transport.get_extra_info("sslcontext") is None:
            self._draining = True
            return True
        # A TLS connection can't be kept half open.
        while self._task is None and self._may_answer() and self._holds_frame():
            self.serve()
        while self._held and not self._transport.is_closing():
            self._push_piece()
        return False

    def pause_writing(self) -> None:
        self._writable = False
        self._unread_since_s = self._queue.now_s()

    def resume_writing(self) -> None:
        self._writable = True
        self.was_active = True
        self._unread_since_s = self._queue.now_s()
        self._note_unsent()
        self._work()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None and self._large_filled < self._large_size:
            if self._large_filled == len(self._large):
                # In place, so that nothing is copied; there is no view of it at this moment.
                self._large += bytes(min(self._large_size - self._large_filled, self._block_bytes()))
            return memoryview(self._large)[self._large_filled :][: self._block_bytes()]
        if self._view is None:
            self._view = _spare.pop() if _spare else memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        return self._view[self._end :]

    def _block_bytes(self) -> int:
        """How much of a large frame is read at once: less if many are read, as all are read before anything is served."""
        return _share_of_turn(self._memory.holders, _BLOCK_BYTES_MIN, _BLOCK_BYTES)

    def buffer_updated(self, nbytes: int) -> None:
        self.was_active = True
        if self._large is not None and self._large_filled < self._large_size:
            self._large_filled += nbytes
            if self._large_filled < self._large_size:
                return
        else:
            self._end += nbytes
        self._work()

    def extra_info(self, name: str) -> object:
        return None if self._transport is None else self._transport.get_extra_info(name)

    # ----------------------------------------------------------------------------------------------------------- frames

    def _holds_frame(self) -> bool:
        """Whether something is to be done with what has arrived."""
        if self._large is not None:
            return self._large_filled == self._large_size
        buffer, start, held = self._view, self._start, self._end - self._start
        if buffer is None or held < 4:
            return False
        size: int = _SIZE.unpack_from(buffer, start)[0]
        # What is too large or too small is work, too: serving it ends the connection.
        return held - 4 >= size or not _FRAME_BYTES_MIN <= size <= self.frame_bytes_max or self._may_begin(size)

    def _check_size(self) -> None:
        """Raises ProtocolViolationError if what comes behind the frames that were cut out can't be one."""
        held = self._end - self._start
        if self._large is None and self._view is not None and held >= 4:
            self._checked(_SIZE.unpack_from(self._view, self._start)[0])

    def _checked(self, size: int) -> int:
        if not _FRAME_BYTES_MIN <= size <= self.frame_bytes_max:
            raise ProtocolViolationError(
                f"it announces a frame of {size} bytes; {_FRAME_BYTES_MIN} to {self.frame_bytes_max} are allowed "
                "(socket.request.max.bytes; less before the login); does the client speak another protocol?"
            )
        if size > OTHER_FRAME_BYTES_MAX and self._view is not None and self._end - self._start >= 6:
            self._check_large(size, bytes(self._view[self._start + 4 : self._start + 6]))
        return size

    def _check_large(self, size: int, api_key: bytes) -> None:
        if api_key != _PRODUCE:
            raise ProtocolViolationError(
                f"a request of {size} bytes for API {int.from_bytes(api_key, 'big')}: "
                f"requests other than Produce have at most {OTHER_FRAME_BYTES_MAX}"
            )

    def _may_begin(self, size: int) -> bool:
        # With the API key at hand it is known how large the frame may be.
        return size + 4 > RECEIVE_BUFFER_BYTES and self._end - self._start >= 6 and not self._is_waiting_for_memory

    def _next_frame(self) -> memoryview | bytes | None:
        """Cuts out the next frame, if it is whole and a client would get the response."""
        if self._transport is None or self._transport.is_closing():
            self._drop_input()
            return None
        if self._large is not None:
            return self._end_large() if self._large_filled == self._large_size else None
        buffer, start = self._view, self._start
        held = self._end - start
        if buffer is None or held < 4:
            return None
        size = self._checked(_SIZE.unpack_from(buffer, start)[0])
        if held - 4 < size:
            if self._may_begin(size):
                self._begin_large(size)
            return None
        self._start = start + 4 + size
        return bytes(buffer[start + 4 : self._start])

    def _begin_large(self, size: int) -> None:
        """Starts to receive a large frame, if there is memory for it, else as soon as there is."""
        if self._granted < size and not self._memory.take(self, size, lambda: self._on_granted(size)):
            self._is_waiting_for_memory = True
            return
        self._granted = size
        assert self._view is not None
        self._large_size = size
        self._large_since_s = self._queue.now_s()
        self._large = bytearray(min(size, _FIRST_BLOCK_BYTES))
        self._large_filled = self._end - self._start - 4
        self._large[: self._large_filled] = self._view[self._start + 4 : self._end]
        self._start = self._end = 0

    def _on_granted(self, size: int) -> None:
        self._granted = size
        self._is_waiting_for_memory = False
        self._queue.enter(self)

    def _end_large(self) -> memoryview:
        assert self._large is not None
        frame = memoryview(self._large)
        self._large, self._granted, self._served = None, 0, self._large_size
        return frame

    def _end_served(self) -> None:
        """The memory of a large frame is free again when it is answered."""
        if self._served:
            size, self._served = self._served, 0
            self._memory.give_back(size)

    def _drop_input(self) -> None:
        """Forgets what has arrived."""
        self._large = None
        self._start = self._end = 0
        self._put_back()
        if self._granted:
            size, self._granted = self._granted, 0
            self._memory.give_back(size)
        self._end_served()

    def _put_back(self) -> None:
        """Lets go of the receive buffer: a connection that waits for a request has none."""
        if self._view is not None and len(_spare) < _SPARE_MAX:
            _spare.append(self._view)
        self._view = None

    # ---------------------------------------------------------------------------------------------------------- answers

    def _work(self) -> None:
        """Has frames answered if possible; otherwise makes sure that reading stops and resumes in time."""
        if self._may_push() or (self._task is None and self._may_answer() and self._transport is not None):
            self._queue.serve(self)
            if self.is_queued:
                # More may arrive before its turn than there is room for.
                self._settle()
            return
        try:
            self._check_size()
        except ProtocolViolationError as violation:
            self._refuse(violation)
        self._settle()

    def serve(self) -> float:
        """Writes what is held and answers frames, for a moment, or until one has to wait; the seconds that it took."""
        now_s = self._queue.now_s
        begun_s = at_s = now_s()
        self.has_more = False
        try:
            while (may_push := self._may_push()) or (self._task is None and self._may_answer()):
                if at_s - begun_s >= QUANTUM_S and (may_push or self._holds_frame()):
                    self.has_more = True
                    break
                if may_push:
                    self._push_piece()
                    at_s = now_s()
                    continue
                frame = self._next_frame()
                if frame is None:
                    break
                answer = self._handler(frame, self.host)
                if isinstance(answer, Awaitable):
                    self._is_producing = bytes(frame[:2]) == _PRODUCE
                    self._task = asyncio.ensure_future(self._finish(answer))
                else:
                    if self._served:
                        self._end_served()
                    if answer is not None:
                        self._write(answer)
                at_s = now_s()
        except ProtocolViolationError as violation:
            self._refuse(violation)
        except Exception:
            logger.exception("closed the connection from %s: a handler failed", self.host)
            self._close_after_answers()
        self._settle()
        return at_s - begun_s

    def _settle(self) -> None:
        """Leaves everything as it has to be when nothing is done for the connection."""
        transport = self._transport
        if transport is None:
            return
        held = self._end - self._start
        if not held:
            self._start = self._end = 0
            self._put_back()
        elif self._end == RECEIVE_BUFFER_BYTES and self._start:
            assert self._view is not None
            self._view[:held] = self._view[self._start : self._end]
            self._start, self._end = 0, held
        if self._draining:
            if self.is_idle():
                self.close()
            return
        wanted = self._may_answer() and not self._is_waiting_for_memory and self._has_room()
        if wanted is not self._reading and not transport.is_closing():
            self._reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _has_room(self) -> bool:
        return self._end < RECEIVE_BUFFER_BYTES or (self._large is not None and self._large_filled < self._large_size)

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
            self._close_after_answers()
            return
        self._task = None
        self._end_served()
        if parts is not None:
            self._write(parts)
        self._work()

    def _refuse(self, violation: ProtocolViolationError) -> None:
        logger.warning("closed the connection from %s: %s", self.host, violation)
        self._close_after_answers()

    def _close_after_answers(self) -> None:
        """Closes once what was answered before is sent; what waits or came behind is not answered."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._drop_input()
        self.close()

    def _write(self, parts: Parts) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        size_bytes = sum(map(len, parts))
        in_memory = [part for part in parts if not isinstance(part, FileRecords)]
        if size_bytes <= PIECE_BYTES and len(in_memory) == len(parts):
            transport.write(in_memory[0] if len(in_memory) == 1 else b"".join(in_memory))
        else:
            self._held.extend(parts)
            self._held_bytes += size_bytes
            self._held_in_files_bytes += size_bytes - sum(map(len, in_memory))
            self._push_piece()
        if not self._may_answer():
            self._note_unsent()

    def _may_answer(self) -> bool:
        """Whether the client takes what is written."""
        return self._writable and not self._held

    def _may_push(self) -> bool:
        """Whether something is held that the network would take."""
        transport = self._transport
        return bool(self._held) and self._writable and transport is not None and not transport.is_closing()

    def _push_piece(self) -> None:
        """Writes what comes next of what is held; behind the last of it, closes if that is wanted."""
        transport = self._transport
        assert transport is not None
        try:
            pieces = list(self._next_parts())
        except LogStorageError:
            logger.exception("closed the connection from %s: records that it was to get can't be read", self.host)
            transport.abort()
            return
        self._held_bytes -= sum(map(len, pieces))
        # What is large is not copied into one.
        for large, group in groupby(pieces, lambda piece: len(piece) > _JOINED_BYTES_MAX):
            if large:
                for piece in group:
                    transport.write(piece)
            else:
                transport.write(b"".join(group))
        self._note_unsent()
        if self._is_closing and not self._held:
            transport.close()

    def _next_parts(self) -> Iterator[bytes | memoryview | bytearray]:
        """Takes about as much as fits into one piece from what is held."""
        left = self._piece_bytes()
        held, count = self._held, 0
        while held and left and count < _PIECE_PARTS:
            part = held.popleft()
            count += 1
            if isinstance(part, FileRecords):
                if len(part) > left:
                    part, rest = part.split(left)
                    held.appendleft(rest)
                self._held_in_files_bytes -= len(part)
                left -= len(part)
                yield part.read()
            else:
                if len(part) > left:
                    view = memoryview(part)
                    part = view[:left]
                    held.appendleft(view[left:])
                left -= len(part)
                yield part

    def _piece_bytes(self) -> int:
        # What the network takes later, asyncio sends outside of the queue, for all connections in one turn.
        if self._memory.is_half_full:
            return PIECE_BYTES
        return _share_of_turn(self._memory.takers, PIECE_BYTES, LARGE_PIECE_BYTES)

    def _note_unsent(self) -> None:
        self._memory.unsent(self, 0 if self._may_answer() else self.unsent_in_memory_bytes)
        if not self._writable and self._memory.excess_bytes > 0:
            self._door.relieve()

    # ------------------------------------------------------------------------------------------------------------ ending

    def is_idle(self) -> bool:
        """Whether every request that arrived has been answered."""
        return self._task is None and not self.is_queued and not self._holds_frame()

    def is_stalled(self, now_s: float, pressed_since_s: float) -> bool:
        """Whether it holds memory for which others wait and does not get on.

        ``pressed_since_s``: since when somebody waits, and the sockets are looked at. What a connection did not do before
        is not held against it.
        """
        if self._memory.has_waiting and self._large is not None and self._large_filled < self._large_size:
            late_s = now_s - max(self._large_since_s, pressed_since_s) - STALLED_AFTER_S
            return late_s > 0 and self._large_filled < late_s * STALLED_BYTES_PER_S
        since_s = self.unread_since_s(now_s)
        if since_s is None or not (self._memory.is_half_full or self._granted):
            return False
        return now_s - max(since_s, pressed_since_s) > STALLED_AFTER_S

    @property
    def unsent_bytes(self) -> int:
        """How much of the answers the network has not taken, in memory and in files."""
        return 0 if self._transport is None else self._held_bytes + self._transport.get_write_buffer_size()

    @property
    def unsent_in_memory_bytes(self) -> int:
        """How much of them is in memory."""
        return self.unsent_bytes - self._held_in_files_bytes

    def unread_since_s(self, now_s: float) -> float | None:
        """Since when the client has taken nothing of its answers, by the clock of the event loop; None: it has them all."""
        if self._transport is None or self._may_answer():
            return None
        unread_bytes = self.unsent_bytes
        if self._writable or unread_bytes < self._unread_bytes:
            self._unread_since_s = now_s
            self.was_active = True
        self._unread_bytes = unread_bytes
        return self._unread_since_s

    def drain(self) -> None:
        """Takes no further request; closes once the ones that arrived are answered."""
        self._draining = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        if self.is_idle():
            self.close()

    def close(self) -> None:
        """Closes once what was written is sent."""
        self._is_closing = True
        if self._transport is not None and not self._held:
            self._transport.close()

    def abort(self) -> None:
        """Closes at once."""
        if self._transport is not None:
            self._transport.abort()


def _share_of_turn(connections: int, bytes_min: int, bytes_max: int) -> int:
    return max(bytes_min, min(bytes_max, _TURN_BYTES // max(connections, 1)))


def host_of(transport: asyncio.BaseTransport) -> str:
    """The address of who is at the other end."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else "local"
