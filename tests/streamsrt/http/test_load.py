"""Queries that are many, long or absurd: what they cost, and that probes are answered beside them."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from typing import Any, cast

import orjson
import pytest

from streamsrt.config import StreamsConfig
from streamsrt.errors import UserError
from streamsrt.http.forwarding import FORWARDED
from streamsrt.http.instance import Instance
from streamsrt.http.pages import PIECE_ROWS, Page, QueryRefusedError, Row
from streamsrt.http.questions import LIMIT_ROWS, Question
from streamsrt.http.server import HttpServer, application, bound_socket
from streamsrt.membership.values import Endpoint
from streamsrt.queries.routing import Routing, StoreDirectory
from streamsrt.queries.values import (
    FailureReason,
    HostInfo,
    Position,
    Query,
    QueryResult,
    StateQueryResult,
    TimestampedKeyQuery,
)
from streamsrt.runtime.values import Progress, State
from tests.system.processes import wait_until
from topology import StreamsBuilder, serdes
from topology.spec.stores import ValueAndTimestamp

PATIENCE_S = 60
ROWS = [(f"key-{number}", number) for number in range(3_000)]


class Store:
    """An instance with one partition, whose queries wait for the test."""

    def __init__(self) -> None:
        builder = StreamsBuilder()
        builder.table("in", key=serdes.string, value=serdes.long, store="counts")
        self.topology = builder.build()
        self.config = StreamsConfig.of({"application.id": "app", "http.max.rows": 2_500})
        self.store_directory = StoreDirectory(self.topology, "app")
        self.routing = Routing(self.store_directory, lambda _: 1)
        self.state, self.progress = State.RUNNING, Progress()
        self.let_go = threading.Event()
        self.asked = threading.Semaphore(0)
        self.breaks_after: int | None = None
        self.has_it = True
        self.padding = ""
        self.rows_there = len(ROWS)
        self.behind = False

    def query(self, store: str, query: Query, **_: Any) -> StateQueryResult[Any]:
        self.asked.release()
        if self.behind:
            return StateQueryResult(
                {
                    0: QueryResult(
                        failure_reason=FailureReason.NOT_UP_TO_BOUND, failure_message="in-0 is at no known offset"
                    )
                }
            )
        if not self.has_it:
            return StateQueryResult(
                {0: QueryResult(failure_reason=FailureReason.NOT_ACTIVE, failure_message="elsewhere")}
            )
        assert self.let_go.wait(PATIENCE_S)
        if isinstance(query, TimestampedKeyQuery):
            return StateQueryResult({0: QueryResult(ValueAndTimestamp(7, 1), Position({"in": {0: 7}}))})
        return StateQueryResult({0: QueryResult(self.rows(), Position({"in": {0: 7}}))})

    def rows(self) -> Iterator[tuple[str, int]]:
        for number, row in enumerate(ROWS[: self.rows_there]):
            if number == self.breaks_after:
                raise QueryRefusedError((503, {"error": "Gone", "message": "its task went elsewhere"}))
            yield row[0] + self.padding, row[1]

    def reported_metrics(self) -> list[Any]:
        return []

    def why_not_alive(self) -> list[str]:
        return []

    def why_not_ready(self) -> list[str]:
        return []


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def address(store: Store) -> Iterator[str]:
    listening = bound_socket("127.0.0.1:0")
    host, port = listening.getsockname()
    server = HttpServer(application(cast(Instance, store)), listening)
    yield f"{host}:{port}"
    store.let_go.set()
    server.stop()


def get(address: str, path: str, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, orjson.loads(response.read())


def test_probes_and_what_others_ask_are_answered_while_queries_wait(store: Store, address: str) -> None:
    """Without a sleep: all that may wait does, then comes the rest."""
    with ThreadPoolExecutor(120) as pool:
        waiting = [pool.submit(get, address, "/stores/counts/range") for _ in range(120)]
        for _ in range(4):
            assert store.asked.acquire(timeout=PATIENCE_S)
        busy = list(islice(as_completed(waiting, PATIENCE_S), 52))
        assert {(status, body["error"]) for status, body in (each.result() for each in busy)} == {(503, "Busy")}
        assert get(address, "/healthz") == (200, {"alive": True, "state": "RUNNING", "why": []})
        assert get(address, "/readyz")[0] == 200
        assert get(address, "/stores")[0] == 200
        forwarded = pool.submit(get, address, "/stores/counts/range", **{FORWARDED: "1"})
        assert store.asked.acquire(timeout=PATIENCE_S), "it has a line of its own"
        store.let_go.set()
        assert forwarded.result()[0] == 200
        assert sorted(each.result()[0] for each in waiting) == [200] * 68 + [503] * 52


@pytest.mark.parametrize("path", ["/stores/counts/keys/a", "/stores/counts/range"])
def test_what_a_standby_does_not_contain_comes_from_the_active_task(store: Store, address: str, path: str) -> None:
    """A standby does not know how far the input was read, whatever it contains."""
    params = "stale=true&position=%7B%22in%22%3A%7B%220%22%3A7%7D%7D"
    store.behind = True
    status, body = get(address, f"{path}?{params}")
    assert (status, body["error"]) == (412, "NOT_UP_TO_BOUND"), "nobody else has it"
    store.routing.own_host = HostInfo("127.0.0.1", 8080)
    store.routing.update({Endpoint("127.0.0.1", 8080): (frozenset({("in", 0)}), frozenset())})
    assert get(address, f"{path}?{params}") == (status, body), "the active task is here, and behind"
    listening = bound_socket("127.0.0.1:0")
    active = Store()
    active.let_go.set()
    server = HttpServer(application(cast(Instance, active)), listening)
    try:
        store.routing.update({Endpoint(*listening.getsockname()): (frozenset({("in", 0)}), frozenset())})
        assert get(address, f"{path}?{params}")[0] == 200
        assert get(address, path + "?position=%7B%22in%22%3A%7B%220%22%3A7%7D%7D")[0] == 412, "here is the active one"
    finally:
        server.stop()
    assert get(address, f"{path}?{params}") == (status, body), "the active task can't be asked"


@pytest.mark.parametrize("path", ["/stores/counts/keys/a", "/stores/counts/range"])
def test_two_instances_with_one_address_are_named(store: Store, address: str, path: str) -> None:
    """The group knows the partition at this instance's own address, and it is not here."""
    store.let_go.set()
    store.has_it = False
    assert get(address, path)[1]["message"] == "elsewhere"
    store.routing.own_host = HostInfo("127.0.0.1", 8080)
    store.routing.update({Endpoint("127.0.0.1", 8080): (frozenset({("in", 0)}), frozenset())})
    status, body = get(address, path)
    assert status == 503
    assert body["message"].startswith("the group knows partition 0 of store 'counts' at 127.0.0.1:8080, which is")
    assert "another instance has the same application.server" in body["message"]


def unread(address: str, path: str) -> socket.socket:
    """A client that asks and does not read."""
    host, port = address.split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.settimeout(PATIENCE_S)
    client.connect((host, int(port)))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    return client


@pytest.mark.parametrize("rows", [PIECE_ROWS - 1, 2 * PIECE_ROWS], ids=["whole", "in pieces"])
def test_a_client_that_does_not_read_is_disconnected(store: Store, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsrt.http.server._SENDING_S", 0.2)
    store.let_go.set()
    store.padding = "x" * 10_000
    listening = bound_socket("127.0.0.1:0")
    host, port = listening.getsockname()
    server = HttpServer(application(cast(Instance, store)), listening)
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        client = stack.enter_context(unread(f"{host}:{port}", f"/stores/counts/range?limit={rows}"))
        assert client.recv(1) == b"H"
        connections = server._server.server_state.connections
        wait_until(lambda: not connections, "it is disconnected")
        found = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(1 << 20):
                found += len(piece)
        assert found < rows * len(store.padding)


def test_answers_that_nobody_reads_are_few(store: Store, address: str) -> None:
    store.let_go.set()
    store.padding = "x" * 3_000
    path = "/stores/counts/range?limit="
    with contextlib.ExitStack() as stack:
        for _ in range(70):
            assert stack.enter_context(unread(address, f"{path}1000")).recv(1) == b"H"
        assert get(address, f"{path}1")[0] == 503
    wait_until(lambda: get(address, f"{path}1")[0] == 200, "they are gone")


def test_an_answer_has_no_more_rows_than_the_setting_allows(store: Store, address: str) -> None:
    store.let_go.set()
    status, body = get(address, "/stores/counts/range?limit=1000000")
    assert (status, len(body["rows"]), body["truncated"], body["position"]) == (200, 2_500, True, {"in": {"0": 7}})
    assert [row["key"] for row in body["rows"]] == [key for key, _ in ROWS[:2_500]]


def test_the_rows_of_a_partition_that_is_named_twice_come_once(store: Store, address: str) -> None:
    store.let_go.set()
    store.rows_there = 10
    once, twice = (get(address, f"/stores/counts/{path}")[1]["rows"] for path in ("range", "range?partition=0,0"))
    assert twice == once


@pytest.mark.parametrize("begun", [True, False])
def test_what_goes_wrong_is_a_status_as_long_as_there_is_one_and_never_a_whole_answer(
    store: Store, address: str, begun: bool
) -> None:
    store.let_go.set()
    store.breaks_after = PIECE_ROWS + 100 if begun else 100
    if begun:
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            get(address, "/stores/counts/range?limit=2000")
    else:
        assert get(address, "/stores/counts/range?limit=2000") == (
            503,
            {"error": "Gone", "message": "its task went elsewhere"},
        )


@pytest.mark.parametrize("count", [0, 1, PIECE_ROWS - 1, PIECE_ROWS, PIECE_ROWS + 1, 2 * PIECE_ROWS])
@pytest.mark.parametrize("limit", [0, 1, PIECE_ROWS, 10_000])
def test_pieces_are_one_answer_and_made_one_by_one(count: int, limit: int) -> None:
    made: list[int] = []

    def rows() -> Iterator[Row]:
        for number in range(count):
            made.append(number)
            yield {"key": number}

    page = Page(limit, lambda page: page.up_to_limit(rows()), {"partition": 3})
    pieces = page.pieces()
    first = next(pieces)
    assert len(made) <= PIECE_ROWS
    answer = orjson.loads(b"".join([first, *pieces]))
    assert answer == {
        "rows": [{"key": number} for number in range(min(count, limit))],
        "truncated": count > limit,
        "partition": 3,
        "position": {},
    }
    assert PIECE_ROWS > LIMIT_ROWS


@pytest.mark.parametrize(
    "params",
    [
        {"limit": "9" * 5_000},
        {"limit": str(1 << 63)},
        {"partition": "9" * 5_000},
        {"partition": "0," + "9" * 5_000},
        {"position": '{"in":{"0":' + "9" * 5_000 + "}}"},
    ],
)
def test_numbers_of_thousands_of_digits_are_mistakes(params: dict[str, str]) -> None:
    with pytest.raises(UserError) as mistake:
        Question.of(params, forwarded=False, max_rows=10)
    assert len(str(mistake.value)) < 300


def test_such_numbers_are_mistakes_over_http_too(store: Store, address: str) -> None:
    store.let_go.set()
    digits = "9" * 5_000
    for path in (f"range?limit={digits}", f"windows?from={digits}", f"keys/a?partition={digits}"):
        assert get(address, f"/stores/counts/{path}")[0] == 400, path
