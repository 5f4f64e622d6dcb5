"""Clients of other kinds at work, on the bundled broker and on Apache Kafka: a Go client, kcat, Kafka's console tools."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka_server import missing_tools, tools_classpath

PATIENCE_S = 120
BUILD_TIMEOUT_S = 900
GO_CLIENT = Path(__file__).resolve().parent / "go"
pytestmark = pytest.mark.system


def require(command: str, package: str) -> None:
    """Skip the test, or fail it in CI, where a command is not installed."""
    if shutil.which(command) is None:
        text = f"{command} is missing: install {package}"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(text)
        pytest.skip(text)


def run(*words: str | Path, stdin: str = "", cwd: Path | None = None, timeout_s: float = PATIENCE_S) -> str:
    """What a command prints."""
    done = subprocess.run(
        [*map(str, words)], input=stdin, capture_output=True, text=True, timeout=timeout_s, cwd=cwd, check=False
    )
    assert done.returncode == 0, done
    return done.stdout


def topic_of(servers: str, partitions: int) -> str:
    name = f"other-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(PATIENCE_S)
    return name


@pytest.fixture(scope="session")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """franz-go with the program in ``go/``; its modules are those of ``go.sum``."""
    return built_go_client(tmp_path_factory.mktemp("go"))


def built_go_client(folder: Path) -> Path:
    require("go", "golang-go")
    program = folder / "client"
    run("go", "build", "-mod=readonly", "-buildvcs=false", "-o", program, ".", cwd=GO_CLIENT, timeout_s=BUILD_TIMEOUT_S)
    return program


def test_a_go_client(go_client: Path, bootstrap_servers: str) -> None:
    """Admin, idempotent producer, a cooperative group of two members, transactions from topic to topic."""
    lines = run(go_client, bootstrap_servers, f"go-{uuid.uuid4().hex}").splitlines()
    told = {line.pop("step"): line for line in map(json.loads, lines)}
    assert told == {
        "admin": {
            "partitions": 4,
            "retention": "86400000",
            "again": "TOPIC_ALREADY_EXISTS: Topic with this name already exists.",
        },
        "produce": {"acknowledged": 40, "end": 40},
        "group": {"seen": 40, "most": 1, "halves": 2, "committed": 40, "protocol": "cooperative-sticky"},
        "transactions": {"aborted": True, "committed": 40, "more": True},
        "deleted": {"topics": 2},
    }


def test_kcat(bootstrap_servers: str) -> None:
    """Produce with keys and headers, consume, a group, metadata, offsets by time."""
    require("kcat", "kcat")
    topic = topic_of(bootstrap_servers, 2)
    kcat = ("kcat", "-b", bootstrap_servers)
    lines = "".join(f"k{number}:v{number}\n" for number in range(20))
    run(*kcat, "-P", "-t", topic, "-K:", "-H", "from=kcat", "-X", "enable.idempotence=true", stdin=lines)
    shown = run(*kcat, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k:%s %h\n")
    assert sorted(shown.splitlines()) == sorted(f"k{number}:v{number} from=kcat" for number in range(20))
    grouped = ("-G", topic, "-X", "auto.offset.reset=earliest", "-c", "20", "-q", "-f", "%k\n", topic)
    assert sorted(run(*kcat, *grouped).split()) == sorted(f"k{number}" for number in range(20))
    metadata = json.loads(run(*kcat, "-L", "-J", "-t", topic))
    assert [len(each["partitions"]) for each in metadata["topics"]] == [2]
    ends = run(*kcat, "-Q", "-t", f"{topic}:0:-1", "-t", f"{topic}:1:-1")
    assert sum(int(line.rpartition(" ")[2]) for line in ends.splitlines()) == 20


@pytest.mark.kafka
def test_kafkas_console_tools(bootstrap_servers: str) -> None:
    """kafka-console-producer writes what kafka-console-consumer reads, in a group and with read_committed."""
    if missing_tools() is not None:
        require("mvn", "a JDK 17 or later and Maven")
    topic = topic_of(bootstrap_servers, 1)
    java = ("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", tools_classpath())
    where = ("--bootstrap-server", bootstrap_servers, "--topic", topic)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    run(*java, "org.apache.kafka.tools.ConsoleProducer", *where, *keyed, stdin="a:1\nb:2\nc:3\n")
    reading = (
        *("--from-beginning", "--max-messages", "3", "--group", topic, "--isolation-level", "read_committed"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"),
    )
    shown = run(*java, "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, *reading)
    assert shown.splitlines() == ["Offset:0\ta\t1", "Offset:1\tb\t2", "Offset:2\tc\t3"]
