"""The page and what it asks for, over HTTP (Starlette).

1. Nothing can be changed by a GET. A change is a POST of JSON from the page itself with the token, and is refused where the
   console was not started for changes.
2. The page is served to everybody who reaches it, what it shows to those who have the token, where there is one.
3. A browser gets everything from here and may ask nobody else; other sites can neither read nor frame it, nor get at it by a
   name that they have pointed to this address.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Final

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamsrt.cli.console.changes import MOST_LETTERS
from streamsrt.cli.console.instances import Json
from streamsrt.cli.console.snapshots import Snapshots
from streamsrt.cli.dlq import position_of
from streamsrt.client.values import CallAbandonedError
from streamsrt.dead_letters.letters import LetterOutcome, Position
from streamsrt.errors import BrokerError, ConfigError, MissingTopicError, StreamsError
from streamsrt.http import key_path
from streamsrt.http.forwarding import InstanceUnreachableError
from streamsrt.http.names import called_by, is_loopback
from streamsrt.json_text import to_json

_AT_ONCE = 4
_LARGEST_CHANGE_BYTES = 64 << 10
_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
    "/graph.js": ("graph.js", "text/javascript; charset=utf-8"),
}
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
Endpoint = Callable[[Request], Awaitable[Response]]


class Site:
    """``token``: what a request must have; None: nothing, and nothing may be changed. ``host``: the name by which the
    console listens."""

    def __init__(self, snapshots: Snapshots, *, token: str | None, host: str, allows_changes: bool = False) -> None:
        assert token is not None or not allows_changes, "what may be changed needs a token"
        self._snapshots = snapshots
        self._allows_changes = allows_changes
        self._token = token
        self._host = host
        self._limiter: CapacityLimiter | None = None

    def application(self) -> Starlette:
        """The ASGI application."""
        key_path.register()
        routes = [Route(path, self._file(*what), methods=["GET"]) for path, what in _FILES.items()]
        routes += [
            Route(path, self._asked(make), methods=["GET"])
            for path, make in (
                ("/api/groups", lambda _: self._snapshots.overview()),
                ("/api/groups/{group}", lambda request: self._snapshots.group(request.path_params["group"])),
                ("/api/groups/{group}/stores/{store}/keys/{key:key}", self._key),
                ("/api/letters/{topic}", self._letters),
            )
        ]
        routes += [
            Route(f"/api/letters/{{topic}}/{path}", self._changed(outcome), methods=["POST"])
            for path, outcome in (("replay", LetterOutcome.REPLAYED), ("drop", LetterOutcome.DROPPED))
        ]
        return Starlette(routes=routes)

    def _key(self, request: Request) -> Json:
        params: dict[str, str] = request.path_params
        return self._snapshots.rows_of_key(params["group"], params["store"], params["key"])

    def _letters(self, request: Request) -> Json:
        return {**self._snapshots.letters(request.path_params["topic"]), "allows_changes": self._allows_changes}

    def _file(self, name: str, media_type: str) -> Endpoint:
        content = files("streamsrt.cli.console").joinpath("page", name).read_bytes()

        async def endpoint(request: Request) -> Response:
            return Response(content, 200, _HEADERS, media_type)

        return endpoint

    def _asked(self, make: Callable[[Request], Json]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            refused = self._refused(request)
            if refused is not None:
                return _json(*refused)
            self._limiter = self._limiter or CapacityLimiter(_AT_ONCE)
            return _json(*await to_thread.run_sync(_answered, make, request, limiter=self._limiter))

        return endpoint

    def _changed(self, outcome: LetterOutcome) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            refused = self._refused_change(request) or self._refused(request)
            if refused is not None:
                return _json(*refused)
            positions = _positions(await request.body())
            if isinstance(positions, str):
                return _json(400, {"message": positions})
            found: frozenset[Position] = positions

            def make(_: Request) -> Json:
                return self._snapshots.change_letters(request.path_params["topic"], outcome, found)

            self._limiter = self._limiter or CapacityLimiter(_AT_ONCE)
            return _json(*await to_thread.run_sync(_answered, make, request, limiter=self._limiter))

        return endpoint

    def _refused_change(self, request: Request) -> tuple[int, Json] | None:
        if not self._allows_changes:
            return 403, {"message": "changes are not allowed: start the console with --allow-changes"}
        if not _is_from_here(request):
            return 403, {"message": "changes are accepted only from the console's own page"}
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, {"message": "a change must be JSON, with Content-Type: application/json"}
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > _LARGEST_CHANGE_BYTES:
            return 413, {"message": f"a change needs a Content-Length of at most {_LARGEST_CHANGE_BYTES} bytes"}
        return None

    def _refused(self, request: Request) -> tuple[int, Json] | None:
        if self._token is None:
            called = called_by(request)
            if not called or called == self._host.lower() or is_loopback(called):
                return None
            return 403, {"message": f"{called!r} is not an address of this console: open the address that it printed"}
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self._token.encode()):
            return None
        return 401, {"message": "the token is missing or wrong: open the address that the console printed"}


def _is_from_here(request: Request) -> bool:
    """Whether a page that a browser got from here sends the request, or a program that is no browser. A proxy may have
    changed the header ``Host``; what browsers say of themselves is not touched by it."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    # At plain addresses beyond loopback, browsers leave that header out.
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == request.headers.get("host", "").lower()


def _answered(make: Callable[[Request], Json], request: Request) -> tuple[int, Json]:
    try:
        found = make(request)
    except (BrokerError, CallAbandonedError, InstanceUnreachableError) as error:
        return 503, {"message": str(error)}
    except (ConfigError, MissingTopicError) as error:
        return 404, {"message": str(error)}
    except StreamsError as error:
        return 500, {"message": str(error)}
    return 200, found


def _positions(body: bytes) -> frozenset[Position] | str:
    """The letters that a change names, else what is wrong with it."""
    try:
        told = json.loads(body)
    except ValueError as error:
        return f"the change is not JSON: {error}"
    named = told.get("letters") if isinstance(told, dict) else None
    if (
        not isinstance(named, list)
        or not 0 < len(named) <= MOST_LETTERS
        or not all(isinstance(each, str) for each in named)
    ):
        return f'a change names 1 to {MOST_LETTERS} dead letters: {{"letters": ["PARTITION:OFFSET", ...]}}'
    try:
        return frozenset(map(position_of, named))
    except ConfigError as error:
        return str(error)


def _json(status: int, body: Json) -> Response:
    return Response(to_json(body), status, _HEADERS, "application/json")
