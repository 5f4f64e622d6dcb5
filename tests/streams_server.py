"""What listens on asyncio's streams, or runs what others wrote for it, and leaves nothing open when it ends.

asyncio accepts a connection in a task of its own, and serves it in another. One that is cancelled before its first step has
closed nothing: its socket would be found by the garbage collector, in the middle of some other test.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ACCEPTED_WITHIN_S = 1.0
"""So long a TLS handshake that is under way may take at the end."""


async def next_turn() -> None:
    """Returns in the loop's next turn, after what was called soon."""
    turned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turned.set_result, None)
    await turned


def run_and_close(main: Coroutine[Any, Any, T]) -> T:
    """As ``asyncio.run``, for libraries that leave connections open, or on their way to be closed, when they have failed."""

    async def closing() -> T:
        try:
            return await main
        finally:
            # The loop knows its transports by their sockets, in a table of its own.
            transports: Mapping[int, asyncio.Transport] = getattr(asyncio.get_running_loop(), "_transports")  # noqa: B009
            for transport in list(transports.values()):
                transport.abort()
            await next_turn()

    return asyncio.run(closing())


class StreamsServer:
    """Calls ``serve`` for each connection; it need not close the writer."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def listen(
        self,
        host: str | None = None,
        port: int | None = None,
        *,
        sock: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> int:
        """Returns the port."""
        self._server = await asyncio.start_server(self._accepted, host, port, sock=sock, ssl=tls)
        return int(self._server.sockets[0].getsockname()[1])

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._until_closed(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _until_closed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        finally:
            writer.transport.abort()

    def _accepting(self) -> set[asyncio.Task[Any]]:
        return {task for task in asyncio.all_tasks() if "_accept_connection" in repr(task.get_coro())}

    async def close(self) -> None:
        """Every connection is broken, and all that serves one has ended."""
        if self._server is None:
            return
        # What is being accepted is waited for first: a server that is closed meanwhile loses the socket.
        while accepting := self._accepting():
            await asyncio.wait(accepting, timeout=ACCEPTED_WITHIN_S)
            for task in accepting:
                task.cancel()
        self._server.close()
        await next_turn()
        serving = dict(self._connections)
        for task, writer in serving.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None
        # The sockets are closed in the turn after.
        await next_turn()
