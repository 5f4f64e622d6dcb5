"""A broker that takes connections and says nothing: an application that waits for it can be stopped."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.runtime.failures import NotCommittedError
from streamsrt.runtime.loop import thread
from streamsrt.runtime.values import State
from tests.fixtures_brokers import BundledBroker
from tests.system.cluster import Row, connected
from tests.system.processes import wait_until
from topology import StreamsBuilder, serdes

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


@pytest.mark.system
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_stop_while_the_brokers_are_silent_gives_the_last_commit_up_once(
    guarantee: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread, "STOP_TIMEOUT_S", 2.0)
    caplog.set_level(logging.INFO)
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out", value=serdes.long)
    broker = BundledBroker(tmp_path / "broker")
    broker.start()
    try:
        with connected(broker) as cluster:
            cluster.make_topics(2, "in", "out")
            cluster.write("in", [Row(b"k", b"v", 1)] * 10, 2, partition=0)
            config = {
                "application.id": "app",
                "bootstrap.servers": cluster.address,
                "state.dir": tmp_path / "state",
                "processing.guarantee": guarantee,
                "commit.interval.ms": 300_000,
                "transaction.timeout.ms": 600_000,
            }
            streams = KafkaStreams(builder.build(), config)
            with ThreadPoolExecutor(1) as threads:
                running = threads.submit(streams.run)
                wait_until(lambda: streams.progress.processed_records == 10, "all are processed")
                os.kill(broker.pid, signal.SIGSTOP)
                streams.stop()
                with pytest.raises(NotCommittedError, match="without a last commit: results could not be written"):
                    running.result(PATIENCE_S)
            os.kill(broker.pid, signal.SIGCONT)
    finally:
        broker.kill()
    messages = caplog.messages[caplog.messages.index("committing and leaving the group") :]
    assert not [each for each in messages if "opened as active" in each], "nobody would process with it"
    assert sum("closed: results could not be written, and this instance ends" in each for each in messages) == 2
    # Once, when it has waited long enough, and only where there is such an id.
    tried = [each for each in messages if "the transactional id can't be initialized" in each]
    assert len(tried) <= (guarantee == "exactly_once_v2")
    assert all(each.endswith("has waited for the cluster long enough.") for each in tried)
