"""Paths and status codes (Starlette), and the socket and thread that serve them (uvicorn).

1. A request that may wait for the processing thread or for another instance is handled on a thread of a pool. Only a
   few are handled at once, and some wait; others are told to retry.
2. Requests of other instances have a queue of their own: two instances that query each other must not wait for each
   other.
3. Probes wait for nothing: the thread that serves the connections answers them.
4. Rows are sent as fast as the client reads them, but not indefinitely. A client that does not read is disconnected:
   what it leaves unread stays in memory, and its connection open, even if that is closed here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import uvicorn
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamsrt.errors import ConfigError, StreamsError, UserError
from streamsrt.http import answers, key_path
from streamsrt.http.answers import Answer
from streamsrt.http.forwarding import FORWARDED
from streamsrt.http.instance import Instance
from streamsrt.http.names import OwnNamesOnly, host_of, is_loopback
from streamsrt.http.pages import Page
from streamsrt.http.questions import SHOWN_MAX, Question, parameters
from streamsrt.json_text import to_json
from streamsrt.runtime.metrics import prometheus_text
from streamsrt.wording import host_and_port
from topology.graph.outline import chosen_sinks, global_tables, outline

logger = logging.getLogger(__name__)

_STOP_TIMEOUT_S = 5.0
_PORT_MAX = 65_535
_AT_ONCE = 4
_WAITING_MAX = 64
_SENDING_S = 60.0
_SENT_AT_ONCE_BYTES = 64 << 10
"""More waits until the client reads, so that it counts as a response that is not sent yet."""
_BUSY: Answer = (
    503,
    {
        "error": "Busy",
        "message": f"{_WAITING_MAX} queries are already waiting on this instance: try again, or ask another one",
    },
)

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]


class _BusyError(Exception):
    """Too many requests are waiting."""


class _Line:
    """A queue of work on threads, a few at once. ``open``: responses that were started and are not sent yet."""

    def __init__(self) -> None:
        self._limiter: CapacityLimiter | None = None
        self._waiting = 0
        self.open = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Runs ``work`` and returns its result. Raises _BusyError if too many requests are waiting."""
        if self._waiting >= _AT_ONCE + _WAITING_MAX:
            raise _BusyError
        self._limiter = self._limiter or CapacityLimiter(_AT_ONCE)
        self._waiting += 1
        try:
            return await to_thread.run_sync(work, limiter=self._limiter)
        finally:
            self._waiting -= 1

    async def answered(self, make: Callable[[], Answer | Page]) -> Response:
        """Returns the response, or its beginning."""
        try:
            return await self.run(lambda: self._begun(make)) if self.open < _WAITING_MAX else _json(_BUSY)
        except _BusyError:
            return _json(_BUSY)

    def _begun(self, make: Callable[[], Answer | Page]) -> Response:
        try:
            answer = make()
            if not isinstance(answer, Page):
                return _json(answer)
            pieces = answer.pieces()
            first = next(pieces)
        except StreamsError as error:
            return _json(answers.failure(error))
        if answer.is_whole and len(first) <= _SENT_AT_ONCE_BYTES:
            return Response(first, media_type="application/json")
        return _Streamed(self, first, pieces)


class _Streamed(Response):
    """A response in pieces, each created when the previous one is being sent."""

    def __init__(self, line: _Line, first: bytes, rest: Iterator[bytes]) -> None:
        super().__init__(media_type="application/json")
        del self.headers["content-length"]
        self._line = line
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._line.open += 1
        try:
            async with asyncio.timeout(_SENDING_S):
                await self._send(send)
        except (StreamsError, _BusyError, TimeoutError) as error:
            # Without its last piece, the connection is closed: the client sees that the response is incomplete.
            logger.warning("a streamed response was aborted: %s", str(error) or type(error).__name__)
        finally:
            self._line.open -= 1

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        piece: bytes | None = self._first
        while piece is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await self._line.run(lambda: next(self._rest, None))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Site:
    """The endpoints over one instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._views, self._queries, self._forwarded = _Line(), _Line(), _Line()

    def probe(self, view: Callable[[Instance], Answer]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return _json(view(self._instance))

        return endpoint

    def view(self, path: str, view: Callable[[Instance], Answer]) -> Endpoint:
        def made(request: Request) -> Answer:
            _parameters(path, request)
            return view(self._instance)

        async def endpoint(request: Request) -> Response:
            return await self._views.answered(lambda: made(request))

        return endpoint

    def query(self, path: str, query: Callable[[Instance, str, Question], Page]) -> Endpoint:
        def made(request: Request) -> Page:
            return query(self._instance, request.path_params["store"], self._question(path, request))

        return self._on_the_line(made)

    def key_query(self, path: str, query: Callable[[Instance, str, str, Question], Answer | Page]) -> Endpoint:
        def made(request: Request) -> Answer | Page:
            params: dict[str, Any] = request.path_params
            return query(self._instance, params["store"], params["key"], self._question(path, request))

        return self._on_the_line(made)

    async def metrics(self, request: Request) -> Response:
        try:
            text = await self._views.run(lambda: prometheus_text(self._instance.reported_metrics()))
        except _BusyError:
            return _json(_BUSY)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def topology(self, request: Request) -> Response:
        topology = self._instance.topology
        try:
            given = _parameters("/topology", request).get("format", "json")
            if given not in ("json", "text"):
                raise UserError(f"format={given[:SHOWN_MAX]}: give json or text")
        except UserError as error:
            return _json(answers.failure(error))
        if given == "text":
            return PlainTextResponse(topology.describe())
        told = {
            **outline(topology).to_json(),
            "subtopologies_with_chosen_sinks": chosen_sinks(topology),
            "global_tables": global_tables(topology),
        }
        return _json((200, told))

    def _on_the_line(self, made: Callable[[Request], Answer | Page]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            line = self._forwarded if FORWARDED in request.headers else self._queries
            return await line.answered(lambda: made(request))

        return endpoint

    def _question(self, path: str, request: Request) -> Question:
        return Question.of(
            _parameters(path, request),
            forwarded=FORWARDED in request.headers,
            max_rows=self._instance.config.http_max_rows,
        )


def application(instance: Instance) -> Starlette:
    """The ASGI application: mount it, or let :class:`HttpServer` serve it."""
    site = _Site(instance)

    def index(instance: Instance) -> Answer:
        return 200, {"application_id": instance.config.application_id, "paths": paths}

    key_path.register()
    routes = [Route(path, site.probe(view)) for path, view in answers.PROBES.items()]
    routes += [Route(path, site.view(path, view)) for path, view in answers.VIEWS.items()]
    routes += [Route(path, site.query(path, query)) for path, query in answers.QUERIES.items()]
    routes += [Route(path, site.key_query(path, query)) for path, query in answers.KEY_QUERIES.items()]
    routes += [Route("/metrics", site.metrics), Route("/topology", site.topology)]
    paths = sorted(route.path.replace(":key", "") for route in routes)
    own_names = Middleware(
        OwnNamesOnly,
        is_meant=lambda: is_loopback(host_of(instance.config.http_listen)),
        names=lambda: {host_of(instance.config.application_server)},
    )
    return Starlette(routes=[Route("/", site.view("/", index)), *routes], middleware=[own_names])


def _parameters(path: str, request: Request) -> dict[str, str]:
    return parameters(path, request.query_params.multi_items())


def _json(answer: Answer) -> Response:
    status, body = answer
    headers = {"retry-after": "1"} if status == 503 else None
    return Response(to_json(body), status, headers, "application/json")


def bound_socket(listen: str) -> socket.socket:
    """A socket at ``HOST:PORT``; port 0 takes a free one. Raises ConfigError."""
    address = host_and_port(listen)
    if address is None:
        raise ConfigError(f"http.listen={listen!r}: expected HOST:PORT")
    if address[1] > _PORT_MAX:
        raise ConfigError(
            f"http.listen={listen}: port {address[1]} is out of range (0 to {_PORT_MAX}; 0 takes a free one)"
        )
    try:
        return socket.create_server(address, family=_family(address[0]))
    except OSError as error:
        raise ConfigError(
            f"http.listen={listen}: {error}. Give another address, or stop the process that uses it"
        ) from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Connection(H11Protocol):
    """A connection that is dropped if its client leaves unread for too long what was sent."""

    _drop: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._drop_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._keep()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._drop_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._keep()
        super().connection_lost(exc)

    def _drop_later(self) -> None:
        if self._drop is None:
            self._drop = self.loop.call_later(_SENDING_S, self.transport.abort)

    def _keep(self) -> None:
        if self._drop is not None:
            self._drop.cancel()
            self._drop = None


class HttpServer:
    """Serves an ASGI application on its own thread, from the start to :meth:`stop`. Takes over the socket."""

    def __init__(self, served: ASGIApp, listening: socket.socket) -> None:
        self._socket = listening
        self._server = uvicorn.Server(
            uvicorn.Config(
                served,
                log_level="warning",
                access_log=False,
                lifespan="off",
                loop="asyncio",
                http=_Connection,
                ws="none",
                timeout_graceful_shutdown=2,
            )
        )
        self._thread = threading.Thread(target=self._run, name="streamsrt-http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Answers pending requests, and ends."""
        self._server.should_exit = True
        self._thread.join(_STOP_TIMEOUT_S)
        self._socket.close()
