"""Ctrl-C where something keeps the application waiting.

A slow asynchronous function that works on a backlog: what is under way is finished and committed, no more. A server that
never answers: nothing is.
"""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.system.cluster import Cluster, Row
from tests.system.processes import AppProcess

RECORDS = 4_000
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
