"""The listening socket and its connections: how many there may be, which are closed, and draining.

1. ``max.connections`` bounds their number, ``max.connections.per.ip`` that of one address (with exceptions in
   ``max.connections.per.ip.overrides``); one more is closed at once. With TLS they are counted before the handshake.
2. A connection on which nothing arrives or leaves for ``connections.max.idle.ms`` is closed, but not while a request of it
   waits.
3. While somebody waits for memory (``queued.max.request.bytes``), connections that hold such memory and stand still are
   closed: clients that read slowly do not block clients that send requests. Time in which the broker itself was busy
   does not count. When more than is allowed waits to be sent, those that have not read for longest are closed, of the
   address that holds most.
4. Draining: no new connection; what arrived is answered; what is not done in time is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import ssl
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from coordinator.broker.queued_bytes import QueuedBytes
from coordinator.server.fair_queue import FairQueue, queue_of
from coordinator.server.tcp import Connection, NewHandler, host_of

logger = logging.getLogger("coordinator.server")

DRAIN_TIMEOUT_S = 10.0
HANDSHAKE_TIMEOUT_S = 15.0
BACKLOG = 1024
ACCEPTED_PER_TURN = 8
_DRAIN_POLL_S = 0.01
STALLED_CHECK_S = 0.5
_REFUSALS_LOGGED_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may take: bytes of a frame, connections in all and from one address."""

    frame_bytes_max: int
    connections_max: int
    connections_per_ip_max: int
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)

    def of_address(self, host: str) -> int:
        """How many connections may come from there."""
        return self.connections_per_ip_overrides.get(host, self.connections_per_ip_max)


class Listener:
    """One listening socket. ``new_handler`` makes what answers the frames of a connection; ``tls`` None: no TLS."""

    def __init__(
        self, new_handler: NewHandler, limits: Limits, memory: QueuedBytes, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.frame_bytes_max = limits.frame_bytes_max
        self.memory = memory
        self._limits = limits
        self._new_handler = new_handler
        self._tls = tls
        self._connections: set[Connection] = set()
        self._admitted: Counter[str] = Counter()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._queue: FairQueue | None = None
        self._refusals = 0
        self._quiet_until_s = 0.0
        self._checked_s = self._pressed_since_s = -math.inf

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def queue(self) -> FairQueue:
        assert self._queue is not None
        return self._queue

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listens; the address and port that were bound. Raises ``OSError``."""
        loop = asyncio.get_running_loop()
        self._queue = queue_of(loop)
        # Only one address: with port 0, each address would have a different port.
        family, _, _, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
        self._server = await loop.create_server(
            self._protocol, str(address[0]), port, family=family, backlog=ACCEPTED_PER_TURN
        )
        listening = self._server.sockets[0]
        descriptor = getattr(listening, "fileno", None)
        if descriptor is not None:
            # asyncio takes as many connections in one turn as may wait: few and many are wanted.
            with socket.socket(fileno=os.dup(descriptor())) as same:
                same.listen(BACKLOG)
        bound = listening.getsockname()
        return bound[0], bound[1]

    def _protocol(self) -> asyncio.BaseProtocol:
        return Connection(self._new_handler, self) if self._tls is None else _Doorstep(self)

    # ------------------------------------------------------------------------------------------------------- connections

    def enter(self, connection: Connection) -> bool:
        if self._tls is None and not self.admit(connection.host):
            return False
        self._connections.add(connection)
        return True

    def leave(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self.dismiss(connection.host)

    def admit(self, host: str) -> bool:
        """Counts a connection from there; False if there is no room for it."""
        if self._admitted.total() >= self._limits.connections_max:
            self._refused(host, "max.connections")
            return False
        if self._admitted[host] >= self._limits.of_address(host):
            self._refused(host, "max.connections.per.ip")
            return False
        self._admitted[host] += 1
        return True

    def dismiss(self, host: str) -> None:
        """A connection from there is no more."""
        self._admitted[host] -= 1
        if not self._admitted[host]:
            del self._admitted[host]

    def _refused(self, host: str, setting: str) -> None:
        """Says so in the log, once a second."""
        self._refusals += 1
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._quiet_until_s:
            logger.warning(
                "refused a connection from %s: %s is reached (%d refused so far)", host, setting, self._refusals
            )
            self._quiet_until_s = now_s + _REFUSALS_LOGGED_EVERY_S

    def shake_hands(self, transport: asyncio.Transport, host: str) -> None:
        """Begins TLS on a connection that was admitted."""
        task = asyncio.ensure_future(self._shake_hands(transport, host))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, transport: asyncio.Transport, host: str) -> None:
        assert self._tls is not None
        connection = Connection(self._new_handler, self)
        secured: asyncio.Transport | None = None
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, connection, self._tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except OSError as error:
            logger.debug("the TLS handshake with a client from %s failed: %s", host, error)
        finally:
            if secured is None:
                self.dismiss(host)
                transport.abort()
        if secured is None:
            return
        if secured.is_closing():
            self.dismiss(host)
        else:
            connection.connection_made(secured)

    # -------------------------------------------------------------------------------------------------- those that must go

    async def close_idle(self, idle_ms: int) -> None:
        """Closes idle connections, for as long as it runs."""
        while True:
            await asyncio.sleep(idle_ms / 2000)
            now_s = self.queue.now_s()
            for connection in list(self._connections):
                is_unread = connection.unread_since_s(now_s) is not None
                connection.idle_rounds = 0 if connection.was_active else connection.idle_rounds + 1
                connection.was_active = False
                if connection.idle_rounds > 1 and (connection.is_idle() or is_unread):
                    connection.abort()

    async def close_stalled(self) -> None:
        """Closes connections that hold memory for which others wait and do not get on, for as long as it runs."""
        loop = asyncio.get_running_loop()
        while True:
            await self.memory.pressed.wait()
            if not self.memory.is_pressed:
                self.memory.pressed.clear()
                continue
            self.cut_off_stalled(loop.time())
            await asyncio.sleep(STALLED_CHECK_S)

    def cut_off_stalled(self, now_s: float) -> None:
        """Closes connections that stand still. To be called every half second while memory is waited for."""
        if now_s - self._checked_s > 2 * STALLED_CHECK_S:
            # No connection has waited, or the event loop did not turn.
            self._pressed_since_s = now_s
        self._checked_s = now_s
        for connection in [each for each in self._connections if each.is_stalled(now_s, self._pressed_since_s)]:
            logger.warning(
                "closed the connection from %s: it holds memory and makes no progress (queued.max.request.bytes)",
                connection.host,
            )
            connection.abort()

    def relieve(self) -> None:
        """Closes connections whose responses exceed the memory that is allowed: of the address that holds most, and there
        the one that has not read for longest. The last one stays."""
        now_s = self.queue.now_s()
        unread = [(since_s, each) for each in self._connections if (since_s := each.unread_since_s(now_s)) is not None]
        held: Counter[str] = Counter()
        waiting: dict[str, list[Connection]] = {}
        for _, connection in sorted(unread, key=itemgetter(0), reverse=True):
            held[connection.host] += connection.unsent_in_memory_bytes
            waiting.setdefault(connection.host, []).append(connection)
        excess_bytes = self.memory.excess_bytes
        for _ in unread[1:]:
            if excess_bytes <= 0:
                return
            host = max((host for host in waiting if waiting[host]), key=held.__getitem__)
            connection = waiting[host].pop()
            size_bytes = connection.unsent_in_memory_bytes
            held[host] -= size_bytes
            excess_bytes -= size_bytes
            logger.warning(
                "closed the connection from %s: too many responses wait to be read (queued.max.request.bytes)", host
            )
            connection.abort()
            self.memory.unsent(connection, 0)

    # --------------------------------------------------------------------------------------------------------- the end

    async def drain(self, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """Takes nothing new, answers what arrived, closes."""
        if self._server is not None:
            self._server.close()
        for task in list(self._handshakes):
            task.cancel()
        for connection in list(self._connections):
            connection.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self._connections and loop.time() < deadline:
            await asyncio.sleep(_DRAIN_POLL_S)
        for connection in list(self._connections):
            connection.abort()


class _Doorstep(asyncio.Protocol):
    """A connection on which nothing is known yet: counted, then handed on to TLS."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        host = host_of(transport)
        if self._listener.admit(host):
            # Nothing may be read before TLS does it.
            transport.pause_reading()
            self._listener.shake_hands(transport, host)
        else:
            transport.abort()
