"""Brokers for tests: Apache Kafka, and the bundled one as a process of its own.

``bootstrap_servers`` runs a test once over each; its Apache Kafka half carries the mark ``kafka``. Without Java or Maven
that half is skipped, but where the environment says ``CI=true`` it fails: what CI proves must not depend on what is
installed. ``any_version`` runs a test over the bundled broker and over several versions of Apache Kafka, the oldest with
``--full`` only.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.kafka_server import VERSION, KafkaServer, free_ports, missing_tools
from tests.tcp_proxy import TcpProxy
from tests.warm_processes import Started, start_python

QUICK_GROUPS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "200",
    "group.streams.heartbeat.interval.ms": "200",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "4000",
    "group.streams.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.retention.check.interval.ms": "604800000",
}
"""Groups that settle within a second, for both brokers. Records of tests are decades old, so a broker that serves many tests
never looks for expired ones."""

OlderKafka: TypeAlias = Callable[[str], KafkaServer]
ROOT = Path(__file__).resolve().parent.parent


def require_kafka() -> None:
    """Skip the test, or fail it in CI, where Apache Kafka can't be started."""
    reason = missing_tools()
    if reason is None:
        return
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"{reason}. Install a JDK 17 or later and Maven.")
    pytest.skip(f"{reason}: install a JDK 17 or later and Maven to run this test")


class BundledBroker:
    """``python -m coordinator`` on a free port, which stays the same over restarts."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, proxy: TcpProxy | None = None) -> None:
        """``settings`` come in place of those that make groups quick. With a proxy all clients go through that."""
        self.folder = folder
        self.proxy = proxy
        self._settings = dict(QUICK_GROUPS if settings is None else settings)
        (self.port,) = free_ports(1)
        if proxy is not None:
            proxy.target_port = self.port
            self._settings["advertised.port"] = str(proxy.port)
        self._process: Started | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port if self.proxy is None else self.proxy.port}"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        arguments = ["-m", "coordinator", "--data-dir", str(self.folder / "data"), "--port", str(self.port)]
        for key, value in self._settings.items():
            arguments += ["--config", f"{key}={value}"]
        with (self.folder / "server.log").open("a", encoding="utf-8") as log:
            self._process = start_python(arguments, cwd=ROOT, stderr=log)
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        if not address:
            self.kill()
            log_text = (self.folder / "server.log").read_text(encoding="utf-8", errors="replace")
            pytest.fail(f"The bundled broker did not start:\n{log_text[-3000:]}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(scope="session")
def apache_kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One Apache Kafka for all tests of the session. Who wants a bad network goes through its proxy."""
    require_kafka()
    version = request.config.getoption("--kafka-version")
    with TcpProxy() as proxy:
        server = KafkaServer(tmp_path_factory.mktemp("kafka"), QUICK_GROUPS, proxy, version=version)
        server.start()
        yield server
        server.kill()


@pytest.fixture(scope="session")
def bundled_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BundledBroker]:
    """One bundled broker for all tests of the session."""
    broker = BundledBroker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(params=["bundled", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """The address of a running broker: each test runs over the bundled one and over Apache Kafka."""
    name = "apache_kafka" if request.param == "kafka" else "bundled_broker"
    server: KafkaServer | BundledBroker = request.getfixturevalue(name)
    return server.bootstrap_servers


@pytest.fixture(scope="session")
def older_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OlderKafka]:
    """Apache Kafka by its version; each one is started when a test first asks for it, and serves all of the session."""
    require_kafka()
    started: dict[str, KafkaServer] = {}
    with ExitStack() as ending:

        def server_of(version: str) -> KafkaServer:
            if version not in started:
                server = KafkaServer(tmp_path_factory.mktemp("kafka"), QUICK_GROUPS, version=version)
                ending.callback(server.kill)
                server.start()
                started[version] = server
            return started[version]

        yield server_of


@pytest.fixture(
    params=[
        "bundled",
        pytest.param(VERSION, marks=pytest.mark.kafka),
        pytest.param("3.9.1", marks=pytest.mark.kafka),
        pytest.param("2.8.2", marks=[pytest.mark.kafka, pytest.mark.full]),
    ]
)
def any_version(request: pytest.FixtureRequest) -> str:
    """The address of a running broker that has groups of the classic protocol, whatever else it has."""
    if request.param == "bundled":
        bundled: BundledBroker = request.getfixturevalue("bundled_broker")
        return bundled.bootstrap_servers
    server: KafkaServer
    if request.param == VERSION:
        server = request.getfixturevalue("apache_kafka")
    else:
        server = request.getfixturevalue("older_kafka")(request.param)
    return server.bootstrap_servers
