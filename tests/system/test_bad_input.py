"""What a user may do wrong: one message that says what, where and what to do; the exit code; and nothing is lost."""

from __future__ import annotations

import re
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.errors import ConfigError
from streamsrt.wire import types
from streamsrt.wire.schema import ApiKey
from tests.fixtures_brokers import require_kafka
from tests.kafka_server import KafkaServer, free_ports
from tests.streamsrt.client.scripted_broker import ScriptedBroker
from tests.system.cluster import Cluster, Row, connected
from tests.system.processes import AppProcess, run_command

IMPATIENT = ("--config", "default.api.timeout.ms=1500")

NUMBERS = """
from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
numbers = builder.stream("numbers", key=serdes.string, value=serdes.integer)
numbers.map_values(lambda number: number + 1).to("results", key=serdes.string, value=serdes.integer)
topology = builder.build()
"""

SUMS = """
from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
numbers = builder.stream("numbers", key=serdes.string, value=serdes.integer)
sums = numbers.group_by_key().reduce(lambda total, number: total + number, store="sums")
sums.to_stream().to("results", key=serdes.string, value=serdes.integer)
topology = builder.build()
"""

CLOSES = """
from topology import Processor, StreamsBuilder, serdes


class AddOne(Processor):
    def init(self, context):
        self.context, self.is_used = context, False

    def process(self, record):
        self.is_used = True
        self.context.forward(record.with_value(record.value + 1))

    def close(self):
        if self.is_used:
            raise OSError("the file is gone")


builder = StreamsBuilder()
numbers = builder.stream("numbers", key=serdes.string, value=serdes.integer)
numbers.process(AddOne).to("results", key=serdes.string, value=serdes.integer)
topology = builder.build()
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A directory with modules of applications."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "numbers_app.py").write_text(NUMBERS, encoding="utf-8")
    (folder / "sums_app.py").write_text(SUMS, encoding="utf-8")
    (folder / "closes_app.py").write_text(CLOSES, encoding="utf-8")
    return folder


@pytest.fixture
def http_port() -> Iterator[int]:
    """A port that answers as a web server does."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.request.recv(1024)
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def write_numbers(cluster: Cluster, values: list[bytes]) -> None:
    cluster.write("numbers", [Row(b"k", value, 1_000) for value in values], 1)


def results(cluster: Cluster) -> list[int]:
    return [int.from_bytes(record.value or b"", "big", signed=True) for record in cluster.read("results")]


def numbers_app(cluster: Cluster, folder: Path, modules: Path, application_id: str, **configs: object) -> AppProcess:
    settings = {"commit.interval.ms": 100, **{key.replace("_", "."): value for key, value in configs.items()}}
    return AppProcess(folder, "numbers_app", application_id, cluster.address, settings, until="quiet", cwd=modules)


# ------------------------------------------------------------------------------------------------------- the cluster


def test_nobody_answers_at_the_address(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = run_command("run", "examples.wordcount", "-a", "app", "-b", address, "--state-dir", tmp_path, *IMPATIENT)
    assert done.returncode == 3
    assert address in done.stderr
    assert "bootstrap.servers" in done.stderr
    assert "Check the address (bootstrap.servers) and that the broker is running" in done.stderr
    assert "Traceback" not in done.stderr


def test_something_else_answers_at_the_address(tmp_path: Path, http_port: int) -> None:
    address = f"127.0.0.1:{http_port}"
    done = run_command("run", "examples.wordcount", "-a", "app", "-b", address, "--state-dir", tmp_path, *IMPATIENT)
    assert done.returncode == 3
    assert address in done.stderr
    assert "HTTP" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("protocol", "missing", "advice"),
    [
        (
            "streams",
            "streams groups (KIP-1071) needs the API STREAMS_GROUP_",
            "Use Apache Kafka 4.2 or later with the feature streams.version=1, or the bundled broker.",
        ),
        ("auto", "needs the API DESCRIBE_GROUPS", "Use a newer broker."),
    ],
)
def test_a_broker_that_is_too_old(tmp_path: Path, modules: Path, protocol: str, missing: str, advice: str) -> None:
    """It serves no request of streams groups, or of any: which API is missing, and which version has it."""
    broker = ScriptedBroker({"numbers": 1, "results": 1})
    del broker.versions[ApiKey.STREAMS_GROUP_HEARTBEAT]
    answer = types.OffsetFetchResponse
    broker.hooks[ApiKey.OFFSET_FETCH] = lambda _: answer(groups=[answer.OffsetFetchResponseGroup(group_id="app")])
    broker.start()
    try:
        where = ("-b", broker.address, "--state-dir", tmp_path / "state")
        done = run_command(
            "run", "numbers_app", "-a", "app", *where, "--config", f"group.protocol={protocol}", cwd=modules
        )
    finally:
        broker.stop()
    assert done.returncode == 3
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("streamsrt: ")]
    assert missing in said
    assert f"the broker at {broker.address} does not serve it" in said
    assert advice in said
    assert "Traceback" not in done.stderr


@pytest.mark.kafka
def test_a_broker_without_streams_groups(tmp_path: Path, modules: Path) -> None:
    require_kafka()
    server = KafkaServer(tmp_path / "kafka", features=["streams.version=0"])
    server.start()
    try:
        with connected(server) as cluster:
            cluster.make_topics(1, "numbers", "results")
            with numbers_app(cluster, tmp_path / "app", modules, "app") as app:
                assert app.wait_end() == 3
                assert "the broker does not serve streams groups (UNSUPPORTED_VERSION)" in app.stderr
                assert "Apache Kafka 4.2 or later with the feature streams.version=1 does" in app.stderr
                assert "Traceback" not in app.stderr
    finally:
        server.kill()


@pytest.mark.slow
def test_a_source_topic_is_missing(bundled: Cluster, tmp_path: Path, modules: Path, application_id: str) -> None:
    bundled.delete_topics("numbers")
    bundled.make_topics(1, "results")
    with numbers_app(bundled, tmp_path / "app", modules, application_id) as app:
        assert app.wait_end() == 2
        assert "source topics" in app.last_words
        assert "numbers" in app.last_words
        assert "streamsrt topics create" in app.last_words
        assert bundled.members(application_id) == []

        # Nothing of the attempt stands in the way of the next one.
        bundled.make_topics(1, "numbers")
        write_numbers(bundled, [number(1)])
        app.start()
        assert app.wait_end() == 0
    assert results(bundled) == [2]


def test_all_topics_that_are_missing_are_named_at_the_start(
    bundled: Cluster, tmp_path: Path, modules: Path, application_id: str
) -> None:
    """That for dead letters, too: the first bad record would find out."""
    bundled.delete_topics("numbers", "results")
    letters = {"errors_dead_letter_queue_topic_name": "wrong-numbers"}
    with numbers_app(bundled, tmp_path / "app", modules, application_id, **letters) as app:
        assert app.wait_end() == 2
        assert "needs topics that don't exist: numbers, results, wrong-numbers" in app.last_words


def test_a_sink_topic_is_missing(bundled: Cluster, tmp_path: Path, modules: Path, application_id: str) -> None:
    bundled.make_topics(1, "numbers")
    bundled.delete_topics("results")
    write_numbers(bundled, [number(1), number(2)])
    with numbers_app(bundled, tmp_path / "app", modules, application_id) as app:
        assert app.wait_end() == 2
        assert "needs topics that don't exist: results" in app.last_words
        assert "streamsrt topics create results" in app.last_words
        assert bundled.committed(application_id) == {}

        bundled.make_topics(1, "results")
        app.start()
        assert app.wait_end() == 0
    assert results(bundled) == [2, 3]


# --------------------------------------------------------------------------------------------------------- the records


def test_a_record_is_not_deserialisable(bundled: Cluster, tmp_path: Path, modules: Path, application_id: str) -> None:
    bundled.make_topics(1, "numbers", "results")
    write_numbers(bundled, [number(n) for n in range(5)] + [b"abc"] + [number(n) for n in range(6, 9)])

    with numbers_app(bundled, tmp_path / "app", modules, application_id) as app:
        assert app.wait_end() == 5
        assert "can't be deserialized" in app.last_words
        assert "numbers-0" in app.last_words
        assert "offset 5" in app.last_words
        assert "deserialization.exception.handler=continue" in app.last_words
        # All before it is done, once, and the next start begins at that very record.
        assert bundled.committed(application_id) == {("numbers", 0): 5}
        assert results(bundled) == [1, 2, 3, 4, 5]
        assert bundled.members(application_id) == []

        app.start()
        assert app.wait_end() == 5
        assert results(bundled) == [1, 2, 3, 4, 5]

    skipping = numbers_app(
        bundled, tmp_path / "app", modules, application_id, deserialization_exception_handler="continue"
    )
    with skipping:
        assert skipping.wait_end() == 0
        assert skipping.history[-1]["counters"]["failed_deserialization"] == 1
    assert results(bundled) == [1, 2, 3, 4, 5, 7, 8, 9]
    assert bundled.committed(application_id) == {("numbers", 0): 9}


# --------------------------------------------------------------------------------------------------------- the program

MISTAKES = {
    "unknown_store": (
        """
from topology import Processor, StreamsBuilder, serdes

class Lookup(Processor):
    def process(self, record):
        self.context.forward(record)

builder = StreamsBuilder()
builder.stream("numbers", key=serdes.string, value=serdes.integer).process(Lookup, stores=["nowhere"]).to("results")
topology = builder.build()
""",
        ["there is no store 'nowhere'", "add_state_store", "unknown_store.py:9"],
    ),
    "name_twice": (
        """
from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
numbers = builder.stream("numbers", key=serdes.string, value=serdes.integer)
numbers.map_values(abs, name="same").to("results")
numbers.map_values(abs, name="same").to("results")
topology = builder.build()
""",
        ["'same'", "name_twice.py:7", "name_twice.py:6"],
    ),
    "in_a_circle": (
        """
from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
builder.stream("numbers", key=serdes.string, value=serdes.integer).to("numbers")
topology = builder.build()
""",
        ["numbers", "in_a_circle.py:5"],
    ),
    "no_topology": ("builder = None\n", ["no_topology has no 'topology'", "StreamsBuilder().build()"]),
    "other_name": (
        "from topology import StreamsBuilder\nb = StreamsBuilder()\nb.stream('numbers').to('results')\nmine = b.build()\n",
        ["other_name has no 'topology'", "it has mine"],
    ),
    "needs_more": ("import no_such_package\n", ["'needs_more' can't be imported", "no_such_package"]),
}


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_the_topology_has_a_mistake(tmp_path: Path, mistake: str) -> None:
    source, said = MISTAKES[mistake]
    (tmp_path / f"{mistake}.py").write_text(source, encoding="utf-8")
    done = run_command("run", mistake, "-a", "app", "-b", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 2
    for part in said:
        assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_there_is_no_such_module(tmp_path: Path) -> None:
    done = run_command("run", "nowhere.app:topology", "-a", "app", "-b", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no module 'nowhere.app'" in done.stderr
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("threads", [1, 2])
def test_a_processor_can_not_be_closed(
    bundled: Cluster, tmp_path: Path, modules: Path, application_id: str, threads: int
) -> None:
    bundled.make_topics(2, "numbers", "results")
    write_numbers(bundled, [number(1), number(2)])
    settings = {"num.stream.threads": threads}
    with AppProcess(
        tmp_path / "app", "closes_app", application_id, bundled.address, settings, until="quiet", cwd=modules
    ) as app:
        assert app.wait_end() == 5
        assert "close of a processor raised OSError: the file is gone (in node KSTREAM-PROCESSOR-" in app.last_words
        assert "closes_app.py:20)" in app.last_words
        assert "Traceback" not in app.stderr
        assert bundled.members(application_id) == []

        # All is committed: the next start has nothing to do. Of two threads the second one may join when the first has begun
        # to process: then a task fails as it moves, and what was processed beside it may be processed again.
        app.start()
        assert app.wait_end() in ((0,) if threads == 1 else (0, 5))
    assert results(bundled) == [2, 3] if threads == 1 else set(results(bundled)) == {2, 3}


def test_another_topology_at_the_same_epoch(
    cluster: Cluster, tmp_path: Path, modules: Path, application_id: str
) -> None:
    cluster.make_topics(1, "numbers", "results")
    with AppProcess(
        tmp_path / "a", "numbers_app", application_id, cluster.address, {"commit.interval.ms": 100}, cwd=modules
    ) as first:
        first.wait_running()
        with AppProcess(tmp_path / "b", "sums_app", application_id, cluster.address, cwd=modules) as second:
            assert second.wait_end() == 2
            assert application_id in second.last_words
            assert re.search("runs another topology|The topology differs from the one of group", second.last_words)
        # The first one is not disturbed.
        write_numbers(cluster, [number(1)])
        cluster.wait_all_committed(application_id, "numbers")
        assert first.terminate() == 0
    assert results(cluster) == [2]


# --------------------------------------------------------------------------------------- configuration, surroundings


def test_the_state_directory_is_in_use(bundled: Cluster, tmp_path: Path, modules: Path, application_id: str) -> None:
    bundled.make_topics(1, "numbers", "results")
    with AppProcess(tmp_path / "app", "numbers_app", application_id, bundled.address, cwd=modules) as first:
        first.wait_running()
        done = run_command(
            *("run", "numbers_app", "-a", application_id, "-b", bundled.address, "--state-dir", first.state_dir),
            cwd=modules,
        )
        assert done.returncode == 4
        assert f"{first.state_dir}/{application_id} is in use by another process (pid {first.pid})" in done.stderr
        assert "give this one another state.dir" in done.stderr
        assert "Traceback" not in done.stderr
        assert first.terminate() == 0


def test_a_setting_has_a_typing_mistake(tmp_path: Path) -> None:
    done = run_command("run", "examples.wordcount", "-a", "app", "--config", "comit.interval.ms=5", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "streamsrt: unknown setting 'comit.interval.ms': did you mean 'commit.interval.ms'?\n"
    # It was refused before the bundled broker was started.
    assert list(tmp_path.iterdir()) == []


def test_a_setting_has_a_typing_mistake_in_a_program() -> None:
    from examples.wordcount import topology

    with pytest.raises(ConfigError, match=r"unknown setting 'bootstrap\.server': did you mean 'bootstrap\.servers'\?"):
        KafkaStreams(topology, {"application.id": "app", "bootstrap.server": "127.0.0.1:9092"})
