"""The listening socket and all connections of it: how many there may be, which are idle, and their end.

1. ``max.connections`` bounds their number; one more is closed at once.
2. A connection on which nothing arrives for ``connections.max.idle.ms`` is closed, but not while a request of it waits.
3. Draining: no new connection; what arrived is answered; what is not done in time is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

from coordinator.server.tcp import Connection, NewHandler

logger = logging.getLogger("coordinator.server")

DRAIN_TIMEOUT_S = 10.0
BACKLOG = 1024
_DRAIN_POLL_S = 0.01


class Listener:
    """One listening socket. ``new_handler`` makes what answers the frames of a connection; ``tls`` None: no TLS."""

    def __init__(
        self,
        new_handler: NewHandler,
        *,
        frame_bytes_max: int,
        connections_max: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._new_handler = new_handler
        self._tls = tls
        self._connections_max = connections_max
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    def __len__(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listens; the address and port that were bound. Raises ``OSError``."""
        loop = asyncio.get_running_loop()
        # One address only: with port 0, each of several would get a port of its own.
        family, _, _, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
        self._server = await loop.create_server(
            lambda: Connection(self._new_handler, self),
            str(address[0]),
            port,
            family=family,
            backlog=BACKLOG,
            ssl=self._tls,
        )
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    def enter(self, connection: Connection) -> bool:
        if len(self._connections) >= self._connections_max:
            logger.warning("refused a connection from %s: max.connections is reached", connection.host)
            return False
        self._connections.add(connection)
        return True

    def leave(self, connection: Connection) -> None:
        self._connections.discard(connection)

    async def close_idle(self, idle_ms: int) -> None:
        """Closes idle connections, for as long as it runs."""
        while True:
            await asyncio.sleep(idle_ms / 2000)
            for connection in list(self._connections):
                connection.idle_rounds = 0 if connection.was_active else connection.idle_rounds + 1
                connection.was_active = False
                if connection.idle_rounds > 1 and connection.is_idle():
                    connection.abort()

    async def drain(self, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """Takes nothing new, answers what arrived, closes."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self._connections and loop.time() < deadline:
            await asyncio.sleep(_DRAIN_POLL_S)
        for connection in list(self._connections):
            connection.abort()
