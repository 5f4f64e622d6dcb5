"""One classic group with members of Java's Kafka Streams and of ours, either one leading; and an application of Java that is
taken over by a rolling restart, exactly once.

Who shares what is up to the members: of the two brokers a run has one for each test, another one for the next test or run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from streamsrt.membership.classic.stream_layout import STREAM_PROTOCOL
from streamsrt.membership.classic.values import PROTOCOL_NAME
from tests.fixtures_brokers import OlderKafka, require_kafka
from tests.interop.counting import EXACTLY_ONCE, PARTITIONS, PATIENCE_S, Scene
from tests.interop.java_instances import JavaInstance
from tests.kafka_server import STREAMS_VERSION, VERSION
from tests.system.cluster import Cluster, Server, connected
from tests.system.processes import AppProcess

pytestmark = [pytest.mark.system, pytest.mark.kafka, pytest.mark.long, pytest.mark.share(2), pytest.mark.timeout(1200)]

GROUP = {"group.protocol": "classic", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
OURS = {**EXACTLY_ONCE, **GROUP, "subtopology.id": "number"}
JAVAS = {
    **EXACTLY_ONCE,
    **GROUP,
    "num.stream.threads": "1",
    "metadata.max.age.ms": "1000",
    # By default a member of Java's that is closed is waited for until its session is over.
    "internal.leave.group.on.close": "true",
}
OF_2_8 = {
    **{key: value for key, value in JAVAS.items() if key not in {"group.protocol", "statestore.cache.max.bytes"}},
    "processing.guarantee": "exactly_once_beta",
    "cache.max.bytes.buffering": "0",
}
TASKS = 2 * PARTITIONS
NO_MORE: Mapping[str, str] = {}


class ClassicScene(Scene):
    """Instances of both kinds, by name."""

    def __init__(self, cluster: Cluster, folder: Path, java_version: str = STREAMS_VERSION) -> None:
        super().__init__(cluster, folder)
        self._java_version = java_version
        self._all_ours: list[AppProcess] = []
        self._admin = AdminClient({"bootstrap.servers": cluster.address})

    def start_java(self, name: str, more: Mapping[str, str] = NO_MORE) -> JavaInstance:
        settings = {**(JAVAS if self._java_version == STREAMS_VERSION else OF_2_8), **more}
        made = JavaInstance(
            self._folder, name, self._cluster.address, self.application, name, settings, self._java_version
        )
        self._javas.append(made)
        return made

    def start_ours(self, name: str, more: Mapping[str, str] = NO_MORE) -> AppProcess:
        made = AppProcess(
            self._folder / name,
            "tests.interop.counting_app",
            self.application,
            self._cluster.address,
            {**OURS, **more},
            surroundings=self._topics,
        )
        self._all_ours.append(made)
        return made.start()

    def wait_shared_by(self, count: int, protocol: str = STREAM_PROTOCOL) -> None:
        """So many members share all tasks, each with some, in a stable group with this layout."""
        self._wait(lambda: self._is_shared(count, protocol), f"{count} members with tasks by {protocol}")

    def _is_shared(self, count: int, protocol: str) -> bool:
        (group,) = self._cluster.network.admin.describe_classic_groups([self.application])
        if (group.group_state, group.protocol_data) != ("Stable", protocol):
            return False
        described = self._admin.describe_consumer_groups([self.application])[self.application].result(PATIENCE_S)
        shares = [len(m.assignment.topic_partitions) if m.assignment else 0 for m in described.members]
        return len(shares) == count and all(shares) and sum(shares) == TASKS

    def _seen(self) -> str:
        (group,) = self._cluster.network.admin.describe_classic_groups([self.application])
        return "\n".join([str(group), *(each.stderr[-3000:] for each in self._all_ours)])

    def close(self) -> None:
        for each in self._all_ours:
            each.kill()
        super().close()


@pytest.fixture(
    params=[
        ("bundled", STREAMS_VERSION),
        ("3.9.1", STREAMS_VERSION),
        pytest.param((VERSION, STREAMS_VERSION), marks=pytest.mark.full),
        pytest.param(("3.9.1", "2.8.2"), marks=pytest.mark.full),
        pytest.param(("2.8.2", "2.8.2"), marks=pytest.mark.full),
    ],
    ids=lambda versions: f"broker {versions[0]}, Kafka Streams {versions[1]}",
)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClassicScene]:
    require_kafka()
    broker_version, java_version = request.param
    server: Server
    if broker_version in {VERSION, "bundled"}:
        server = request.getfixturevalue("apache_kafka" if broker_version == VERSION else "bundled_broker")
    else:
        older: OlderKafka = request.getfixturevalue("older_kafka")
        server = older(broker_version)
    with connected(server) as cluster:
        made = ClassicScene(cluster, tmp_path, java_version)
        yield made
        made.close()


class Load:
    """Words are written while instances come and go."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(0.2):
            self._scene.feed(100)


def test_an_application_of_java_is_taken_over_by_a_rolling_restart(scene: ClassicScene) -> None:
    first, second = scene.start_java("java-1"), scene.start_java("java-2")
    with Load(scene):
        scene.wait_shared_by(2)
        # Java leads.
        one = scene.start_ours("ours-1")
        scene.wait_shared_by(3)
        first.stop()
        scene.wait_shared_by(2)
        two = scene.start_ours("ours-2")
        scene.wait_shared_by(3)
        second.stop()
        scene.wait_shared_by(2, PROTOCOL_NAME)
    scene.wait_counted()
    scene.assert_exact()
    assert one.terminate() == 0
    assert two.terminate() == 0
    assert not [line for each in (first, second) for line in each.lines if "error" in line]


def test_java_joins_a_group_that_we_lead_and_is_killed(scene: ClassicScene) -> None:
    ours = scene.start_ours("ours-1")
    with Load(scene):
        scene.wait_shared_by(1, PROTOCOL_NAME)
        java = scene.start_java("java-1")
        scene.wait_shared_by(2)
        other = scene.start_java("java-2")
        scene.wait_shared_by(3)
        other.stop(signal.SIGKILL)
        scene.wait_shared_by(2)
        # Then Java leads.
        ours.kill()
        scene.wait_shared_by(1)
        ours = scene.start_ours("ours-2")
        scene.wait_shared_by(2)
        java.stop()
        scene.wait_shared_by(1, PROTOCOL_NAME)
    scene.wait_counted()
    scene.assert_exact()
    assert not [line for each in (java, other) for line in each.lines if "error" in line]


def test_static_members_with_standby_tasks_come_back_whoever_leads(scene: ClassicScene) -> None:
    def settings(name: str) -> dict[str, str]:
        return {"group.instance.id": name, "num.standby.replicas": "1", "session.timeout.ms": "15000"}

    java = scene.start_java("java-1", settings("j"))
    with Load(scene):
        scene.wait_shared_by(1)
        ours = scene.start_ours("ours-1", settings("o"))
        scene.wait_shared_by(2)
        # Java leads.
        ours.kill()
        ours.start()
        ours.wait_running()
        scene.wait_shared_by(2)
        java.stop(signal.SIGKILL)
        scene.wait_shared_by(1, PROTOCOL_NAME)
        # Now ours leads.
        java = scene.start_java("java-2", settings("j"))
        scene.wait_shared_by(2)
        java.stop(signal.SIGKILL)
        java = scene.start_java("java-2", settings("j"))
        scene.wait_shared_by(2)
        assert ours.terminate() == 0
        scene.wait_shared_by(1)
    scene.wait_counted()
    scene.assert_exact()
    assert not [line for line in java.lines if "error" in line]
