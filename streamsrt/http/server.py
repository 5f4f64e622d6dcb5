"""Paths and status codes (Starlette), and the socket and thread that they are served on (uvicorn).

Every answer is made on a thread of a pool, since it may wait for the processing thread or for another instance.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from streamsrt.errors import ConfigError, StreamsError
from streamsrt.http import answers
from streamsrt.http.answers import Answer, Question
from streamsrt.http.forwarding import FORWARDED
from streamsrt.http.instance import Instance
from streamsrt.http.text import to_json
from streamsrt.runtime.metrics import prometheus_text
from topology.graph.outline import outline

_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 5.0


def application(instance: Instance) -> Starlette:
    """The ASGI application: mount it, or let :class:`HttpServer` serve it."""

    def metrics(request: Request) -> Response:
        return PlainTextResponse(prometheus_text(instance.metrics()), media_type="text/plain; version=0.0.4")

    def topology(request: Request) -> Response:
        if request.query_params.get("format") == "text":
            return PlainTextResponse(instance.topology.describe())
        return _json((200, outline(instance.topology).to_json()))

    def index(request: Request) -> Response:
        return _json((200, {"application_id": instance.config.application_id, "paths": paths}))

    routes = [Route(path, _view(instance, view)) for path, view in answers.VIEWS.items()]
    routes += [Route(path, _query(instance, query)) for path, query in answers.QUERIES.items()]
    routes += [Route(path, _key_query(instance, query)) for path, query in answers.KEY_QUERIES.items()]
    routes += [Route("/metrics", metrics), Route("/topology", topology)]
    paths = sorted(route.path.replace(":path", "") for route in routes)
    return Starlette(routes=[Route("/", index), *routes])


def _json(answer: Answer) -> Response:
    status, body = answer
    headers = {"retry-after": "1"} if status == 503 else None
    return Response(to_json(body), status, headers, "application/json")


def _answered(make: Callable[[], Answer]) -> Response:
    try:
        return _json(make())
    except StreamsError as error:
        return _json(answers.failure(error))


def _view(instance: Instance, view: Callable[[Instance], Answer]) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        return _answered(lambda: view(instance))

    return endpoint


def _query(instance: Instance, query: Callable[[Instance, str, Question], Answer]) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        return _answered(lambda: query(instance, request.path_params["store"], _question(request)))

    return endpoint


def _key_query(
    instance: Instance, query: Callable[[Instance, str, str, Question], Answer]
) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        params: dict[str, Any] = request.path_params
        return _answered(lambda: query(instance, params["store"], params["key"], _question(request)))

    return endpoint


def _question(request: Request) -> Question:
    return Question.of(dict(request.query_params), forwarded=FORWARDED in request.headers)


def bound_socket(listen: str) -> socket.socket:
    """A socket at ``HOST:PORT``; port 0 takes a free one. Raises ConfigError."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"http.listen={listen!r}: expected HOST:PORT")
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=_family(host))
    except (OSError, OverflowError) as error:
        raise ConfigError(f"http.listen={listen}: {error}. Give another address, or stop who uses it") from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class HttpServer:
    """Serves an instance on a thread of its own, from the start to :meth:`stop`. Takes the socket over."""

    def __init__(self, instance: Instance, listening: socket.socket) -> None:
        self._socket = listening
        self._server = uvicorn.Server(
            uvicorn.Config(
                application(instance),
                log_level="warning",
                access_log=False,
                lifespan="off",
                loop="asyncio",
                http="h11",
                ws="none",
                timeout_graceful_shutdown=2,
            )
        )
        self._thread = threading.Thread(target=self._run, name="streamsrt-http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Answers what is under way, and ends."""
        self._server.should_exit = True
        self._thread.join(_STOP_TIMEOUT_S)
        self._socket.close()
