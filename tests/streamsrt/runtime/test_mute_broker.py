"""A broker that takes connections and says nothing: an application that waits for it can be stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.runtime.values import State
from topology import StreamsBuilder

PATIENCE_S = 60
LONG_MS = 3_600_000


@pytest.fixture
def mute() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def application(mute: socket.socket, folder: Path) -> KafkaStreams:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    config = {
        "application.id": "app",
        "bootstrap.servers": f"127.0.0.1:{mute.getsockname()[1]}",
        "state.dir": folder,
        "default.api.timeout.ms": LONG_MS,
        "request.timeout.ms": LONG_MS,
    }
    return KafkaStreams(builder.build(), config)


def test_stop_is_heard_while_the_cluster_does_not_answer(mute: socket.socket, tmp_path: Path) -> None:
    streams = application(mute, tmp_path)
    running = threading.Thread(target=streams.run)
    running.start()
    connection, _ = mute.accept()
    streams.stop()
    running.join(PATIENCE_S)
    assert (running.is_alive(), streams.state) == (False, State.NOT_RUNNING)
    connection.close()


@pytest.mark.system
def test_a_signal_is_heard_while_the_cluster_does_not_answer(mute: socket.socket, tmp_path: Path) -> None:
    program = (
        "import socket, sys\n"
        "from pathlib import Path\n"
        "from tests.streamsrt.runtime.test_mute_broker import application\n"
        "listening = socket.socket(fileno=int(sys.argv[1]))\n"
        "application(listening, Path(sys.argv[2])).run()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(mute.fileno()), str(tmp_path)],
        pass_fds=[mute.fileno()],
        env=dict(os.environ),
        cwd=Path(__file__).parents[3],
    )
    mute.settimeout(PATIENCE_S)
    connection, _ = mute.accept()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    connection.close()
