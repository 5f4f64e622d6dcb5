"""``streamsrt query`` of an instance whose function hangs, and of one with more rows than are asked for."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from streamsrt.http.server import HttpServer, bound_socket
from tests.streamsrt.cli.conftest import Command

TASK = {"task_id": "a_0", "role": "active", "phase": "running", "lag_records": 0, "why": "no input is waiting"}


@pytest.mark.parametrize(
    ("poll", "said"),
    [
        ("skipped: it has been processing records for 12000 ms: app.py:3 in slow", True),
        ("there is no input that can be processed: it waits, up to 100 ms at a time", False),
    ],
)
def test_tasks_are_as_old_as_the_last_poll(command: Command, poll: str, said: bool) -> None:
    async def tasks(request: Request) -> JSONResponse:
        return JSONResponse({"tasks": [TASK], "loops": [{"poll": poll}]})

    listening = bound_socket("127.0.0.1:0")
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    server = HttpServer(Starlette(routes=[Route("/tasks", tasks)]), listening)
    try:
        done = command("query", "tasks", "--server", address)
    finally:
        server.stop()
    assert done.code == 0
    assert ("since the last poll: it has been processing records for 12000 ms: app.py:3 in slow" in done.err) == said


@pytest.mark.parametrize("query", ["range s", "windows s", "windows s k", "sessions s", "versions s k"])
@pytest.mark.parametrize("truncated", [True, False])
def test_a_query_says_that_there_are_more_rows(command: Command, query: str, truncated: bool) -> None:
    async def rows(request: Request) -> JSONResponse:
        return JSONResponse({"rows": [{"key": "k", "value": 1}], "truncated": truncated})

    listening = bound_socket("127.0.0.1:0")
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    server = HttpServer(Starlette(routes=[Route("/stores/{rest:path}", rows)]), listening)
    try:
        done = command("query", *query.split(), "--server", address)
    finally:
        server.stop()
    assert done.code == 0
    assert ("there are more rows than these 1: --limit" in done.err) == truncated
