"""Ctrl-C where something keeps the application waiting.

A slow asynchronous function that works on a backlog: calls that run are finished and committed, no more, and the next start
makes the others. A server that never answers: nothing is.
"""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.system.cluster import Cluster, Row
from tests.system.processes import AppProcess

RECORDS = 4_000
QUEUED = 16
PATIENCE_S = 120
PROGRAM = """
import asyncio
from topology import StreamsBuilder

async def slow(value):
    answer = asyncio.get_running_loop().create_future()
    answer.get_loop().call_later(0.1, answer.set_result, value)
    return await answer

builder = StreamsBuilder()
builder.stream("TOPIC-in").map_async(slow, concurrency=4).to("TOPIC-out")
topology = builder.build()
"""
SERDES = {"default.key.serde": "string", "default.value.serde": "string"}


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_an_end_waits_for_the_calls_that_are_under_way(
    bundled: Cluster, application_id: str, tmp_path: Path, guarantee: str, number: signal.Signals, code: int
) -> None:
    (tmp_path / "slow_program.py").write_text(PROGRAM.replace("TOPIC", application_id))
    source, sink = f"{application_id}-in", f"{application_id}-out"
    bundled.make_topics(1, source, sink)
    rows = [Row(str(each).encode(), b"x", 1_000) for each in range(RECORDS)]
    bundled.write(source, rows, 1)
    settings = {**SERDES, "processing.guarantee": guarantee, "commit.interval.ms": 5_000}
    with AppProcess(
        tmp_path / "app",
        "slow_program:topology",
        application_id,
        bundled.server.bootstrap_servers,
        settings,
        cwd=tmp_path,
    ) as app:
        # It takes 100 seconds for all of them, and says how far it is.
        app.wait_for(lambda line: line["tasks"] and line["processed_records"] >= 40, "40 records are processed")
        app.send(number)
        assert app.wait_end() == code, app.stderr
        processed = app.progress["processed_records"]
    assert processed < RECORDS // 2
    assert list(bundled.committed(application_id).values()) == [processed]
    assert [record.key for record in bundled.read(sink)] == [row.key for row in rows[:processed]]


QUEUED_PROGRAM = """
import asyncio
from pathlib import Path
from topology import StreamsBuilder

async def slow(value):
    with Path("calls").open("a") as calls:
        calls.write(value + "\\n")
    may_end, loop = asyncio.Event(), asyncio.get_running_loop()

    def look():
        may_end.set() if Path("go").exists() else loop.call_later(0.05, look)

    look()
    await may_end.wait()
    return value

builder = StreamsBuilder()
stream = builder.stream("TOPIC-in").flat_map_values(lambda value: [f"{value}-{part}" for part in range(8)])
stream.map_async(slow, concurrency=8).to("TOPIC-out")
topology = builder.build()
"""


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_calls_that_have_not_begun_are_left_to_the_next_start(
    bundled: Cluster, application_id: str, tmp_path: Path, guarantee: str, number: signal.Signals, code: int
) -> None:
    """16 records are 128 calls, 8 of which run when the signal comes."""
    (tmp_path / "queued_program.py").write_text(QUEUED_PROGRAM.replace("TOPIC", application_id))
    source, sink = f"{application_id}-in", f"{application_id}-out"
    bundled.make_topics(1, source, sink)
    bundled.write(source, [Row(b"k", str(each).encode(), 1_000) for each in range(QUEUED)], 1)
    settings = {**SERDES, "processing.guarantee": guarantee, "commit.interval.ms": 5_000}

    def app(name: str) -> AppProcess:
        address = bundled.server.bootstrap_servers
        return AppProcess(tmp_path / name, "queued_program:topology", application_id, address, settings, cwd=tmp_path)

    expected = [f"{each}-{part}" for each in range(QUEUED) for part in range(8)]
    with app("first") as first:
        first.wait_for(lambda line: line["pending_calls"] == len(expected), "all calls are under way or wait")
        first.send(number)
        first.wait_for(lambda line: line["state"] == "PENDING_SHUTDOWN", "it is stopping")
        (tmp_path / "go").touch()
        assert first.wait_end() == code, first.stderr
    calls = (tmp_path / "calls").read_text().split()
    assert calls == expected[:8]
    assert list(bundled.committed(application_id).values()) == [1]
    with app("second") as second:
        second.wait_for(
            lambda line: line["processed_records"] == QUEUED - 1 and not line["pending_calls"], "the rest is processed"
        )
        second.send(signal.SIGTERM)
        assert second.wait_end() == 0, second.stderr
    assert [record.value.decode() for record in bundled.read(sink)] == expected


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_server_that_never_answers_keeps_nobody(
    application_id: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with AppProcess(tmp_path / "app", "examples.wordcount:topology", application_id, address) as app:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                assert connection.recv(1), "it has asked"
                app.send(number)
                assert app.wait_end() == code, app.stderr
    # Later it would have given the server up, and ended with an error.
    assert "stopped before the cluster answered" in app.stderr
