"""A server for this machine only is asked by names that nobody else can point to it."""

from __future__ import annotations

import asyncio
import socket

import pytest
from starlette.types import Message, Receive, Scope, Send

from streamsrt.http.names import OwnNamesOnly, host_of, is_loopback, reached_at


async def _answering(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def asked(host: str, *, listen: str = "127.0.0.1:8080", server: str = "shop-1.example:8080") -> int:
    """The status of a response to that header ``Host``."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    app = OwnNamesOnly(_answering, lambda: is_loopback(host_of(listen)), lambda: {host_of(server)})
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/stores/counts/range",
        "query_string": b"",
        "scheme": "http",
        "server": ("127.0.0.1", 8080),
        "headers": [(b"host", host.encode())],
    }
    asyncio.run(app(scope, receive, send))
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost:9999", 200),
        ("LOCALHOST", 200),
        ("[::1]:8080", 200),
        ("shop-1.example", 200),
        ("Shop-1.example:8080", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:8080", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1@evil.example", 403),
        ("[::1", 200),
        ("[evil.example", 403),
        ("", 200),
    ],
)
def test_what_listens_on_loopback_is_not_asked_by_foreign_names(host: str, status: int) -> None:
    assert asked(host) == status
    assert asked(host, listen="0.0.0.0:8080") == 200, "whoever reaches it may ask"
    assert asked(host, listen="") == 200, "mounted in another server"


LOCAL = {
    "::1": True,
    "127.0.0.1": True,
    "localhost": True,
    "[::1]": True,
    "0.0.0.0": False,
    "10.0.0.1": False,
    "console.example": False,
}


@pytest.mark.parametrize(("host", "expected"), LOCAL.items())
def test_what_is_local(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:0", "127.0.0.1:4711"),
        ("shop-0.shop:8080", "shop-0.shop:4711"),
        ("[fd00::1]:8080", "[fd00::1]:4711"),
        ("0.0.0.0:8080", f"{socket.gethostname()}:4711"),
        ("[::]:8080", f"{socket.gethostname()}:4711"),
        ("[0:0:0:0:0:0:0:0]:8080", f"{socket.gethostname()}:4711"),
    ],
)
def test_others_reach_it_at(listen: str, expected: str) -> None:
    assert reached_at(listen, 4711) == expected
