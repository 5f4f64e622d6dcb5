"""The names under which a server is reached: the address that other instances get, and the names that a server on loopback
accepts.

1. A server on loopback is reached by programs of this machine, and a browser is one of them. Any page that it shows may let
   its own name point to 127.0.0.1, and then send requests by that name, with the rights of a page of this server (DNS
   rebinding). So such a server answers only to names that nobody else can point anywhere.
2. A server that other machines reach has other protection, or none.
3. "Every address" (``0.0.0.0``) is no address to send a request to: a server that listens there is reached by the name of
   its machine. The name of a container is known in its network.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from streamsrt.json_text import to_json

_LOOPBACK_NAME: Final = "localhost"


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach what listens there: a host without its port."""
    plain = host.strip("[]")
    if plain == _LOOPBACK_NAME:
        return True
    try:
        return ipaddress.ip_address(plain).is_loopback
    except ValueError:
        return False


def host_of(address: str) -> str:
    """The host of ``HOST:PORT``, without brackets."""
    return address.rpartition(":")[0].strip("[]")


def reached_at(listen: str, port: int) -> str:
    """``HOST:PORT`` at which other machines reach what listens at ``listen``, where nobody has set another address."""
    host = listen.rpartition(":")[0]
    return f"{socket.gethostname() if _is_every_address(host) else host}:{port}"


def _is_every_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def called_by(request: Request) -> str:
    """The name by which a request calls the server: its header ``Host`` without the port. It may be any text. Empty if there
    is no such header: every browser sends one."""
    given = request.headers.get("host", "").lower()
    return given[1:].partition("]")[0] if given.startswith("[") else given.partition(":")[0]


class OwnNamesOnly:
    """Refuses requests by other names than loopback ones and those that ``names`` returns, while ``is_meant()``."""

    def __init__(self, app: ASGIApp, is_meant: Callable[[], bool], names: Callable[[], set[str]]) -> None:
        self._app = app
        self._is_meant = is_meant
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._is_meant():
            called = called_by(Request(scope))
            if called and not is_loopback(called) and called not in {name.lower() for name in self._names()}:
                await _refused(called)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _refused(called: str) -> Response:
    message = (
        f"{called!r} is not a name of this instance, which listens on loopback (http.listen): ask it at 127.0.0.1 or "
        "localhost. If a proxy passes on the name by which it was called, let it send the instance's own one, or set "
        "application.server to that name and the proxy's port"
    )
    return Response(to_json({"error": "ForeignHost", "message": message}), 403, media_type="application/json")
