"""``GET /metrics`` over HTTP, for Prometheus. Everything else is refused, and every connection is closed after its
response.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from coordinator.broker.metrics import CONTENT_TYPE

PATH = "/metrics"
_REQUEST_BYTES_MAX = 8192
_PATIENCE_S = 5


class MetricsEndpoint:
    """Listens on an address and answers with what ``text`` gives."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> str:
        """Begins to listen; the address of the metrics. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_REQUEST_BYTES_MAX)
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        return (
            f"http://[{bound_host}]:{bound_port}{PATH}"
            if ":" in bound_host
            else f"http://{bound_host}:{bound_port}{PATH}"
        )

    def close(self) -> None:
        """No longer listens."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
        with contextlib.suppress(*gone):
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, target, *_ = [*head.split(b"\r\n", 1)[0].decode("latin-1").split(" "), "", ""]
        if target.split("?", 1)[0] != PATH:
            return _response("404 Not Found", f"The metrics are at {PATH}\n")
        if method not in {"GET", "HEAD"}:
            return _response("405 Method Not Allowed", "GET only\n")
        answer = _response("200 OK", self._text())
        return answer if method == "GET" else answer[: answer.index(b"\r\n\r\n") + 4]


def _response(status: str, text: str) -> bytes:
    body = text.encode()
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode() + body
