"""A schema registry over HTTP for tests and benchmarks: schemas by id, and their registration under subjects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit


class Registry(ThreadingHTTPServer):
    """Remembers schemas, and what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.login: str | None = None
        self.failure: int | None = None
        """The HTTP code of all answers, while it has one."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing is printed."""

    def do_GET(self) -> None:
        place = int(urlsplit(self.path).path.rpartition("/")[2]) - 1
        known = 0 <= place < len(self.server.schemas)
        self.answer(200 if known else 404, self.server.schemas[place] if known else {"error_code": 40403})

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        body = {"subject": path.split("/")[2], **json.loads(self.rfile.read(int(self.headers["Content-Length"])))}
        if body not in self.server.schemas:
            if not path.endswith("/versions"):
                self.answer(404, {"error_code": 40403, "message": "Schema not found"})
                return
            self.server.schemas.append(body)
        self.answer(200, {"id": self.server.schemas.index(body) + 1, "version": 1, **body})

    def answer(self, status: int, content: dict[str, Any]) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        if self.server.failure is not None:
            status, content = self.server.failure, {"error_code": self.server.failure, "message": "an outage"}
        self.server.login = self.headers.get("Authorization")
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def running_registry() -> Iterator[Registry]:
    """A registry on a free port of the loopback interface."""
    registry = Registry()
    thread = Thread(target=registry.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        registry.shutdown()
        thread.join()
        registry.server_close()
