"""One group with members of Java Kafka Streams and of this runtime: tasks and their state move from one to the other.

Both run the same topology, and are told apart by nothing that the group knows: ``subtopology.id=number`` gives the
subtopologies Java's names. Every update of a count is written (no caches), so that each word's results are 1, 2, 3 and so on
just if each member went on from exactly the state that the one before had committed.
"""

from __future__ import annotations

import signal
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures_brokers import require_kafka
from tests.interop.java_instances import JavaInstance
from tests.system.cluster import Cluster, Row, Server, connected
from tests.system.processes import AppProcess, wait_until

pytestmark = [pytest.mark.system, pytest.mark.kafka]
PATIENCE_S = 120.0
PARTITIONS = 4
WORDS = [f"word-{number}" for number in range(40)]
EXACTLY_ONCE = {
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": "100",
    # Who takes over from a killed member waits until its transaction is aborted.
    "transaction.timeout.ms": "3000",
    "statestore.cache.max.bytes": "0",
}
OURS = {**EXACTLY_ONCE, "subtopology.id": "number"}
JAVAS = {**EXACTLY_ONCE, "group.protocol": "streams", "num.stream.threads": "1", "metadata.max.age.ms": "1000"}


class Scene:
    """A cluster, the members of a group, and the results to be expected."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.application = f"mixed-{uuid.uuid4().hex[:12]}"
        self.expected: Counter[str] = Counter()
        self._cluster = cluster
        self._folder = folder
        self._javas: list[JavaInstance] = []
        self._topics = {"COUNTING_INPUT": f"{self.application}-in", "COUNTING_OUTPUT": f"{self.application}-out"}
        cluster.make_topics(PARTITIONS, *self._topics.values())
        self.ours = AppProcess(
            folder / "ours",
            "tests.interop.counting_app",
            self.application,
            cluster.address,
            OURS,
            surroundings=self._topics,
        )

    def java(self, name: str) -> JavaInstance:
        made = JavaInstance(self._folder, name, self._cluster.address, self.application, name, JAVAS)
        self._javas.append(made)
        return made

    def feed(self, count: int = 400) -> None:
        words = [WORDS[number * number % len(WORDS)] for number in range(count)]
        self.expected.update(words)
        rows = [Row(str(number).encode(), word.encode()) for number, word in enumerate(words)]
        self._cluster.write(self._topics["COUNTING_INPUT"], rows, PARTITIONS)

    def wait_counted(self) -> None:
        """Everything is processed and committed."""
        inputs = (self._topics["COUNTING_INPUT"], f"{self.application}-by-value-repartition")
        self._wait(lambda: self._ends_are_committed(inputs), "everything is committed")

    def _ends_are_committed(self, topics: tuple[str, ...]) -> bool:
        committed = self._cluster.committed(self.application)
        return all(
            committed.get(place, 0) >= end for topic in topics for place, end in self._cluster.ends(topic).items()
        )

    def wait_shared(self, *counts: int) -> None:
        """The group has so many members, stable and with so many active tasks each, and our process runs its own."""
        self._wait(lambda: self.shares() == sorted(counts), f"members with {counts} active tasks")

    def shares(self) -> list[int]:
        (group,) = self._cluster.network.admin.describe_streams_groups([self.application])
        if group.group_state != "Stable":
            return []
        return sorted(sum(len(task.partitions) for task in member.assignment.active_tasks) for member in group.members)

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        try:
            wait_until(holds, what, timeout_s=PATIENCE_S)
        except AssertionError as error:
            (group,) = self._cluster.network.admin.describe_streams_groups([self.application])
            ours = self.ours.stderr[-3000:] if (self._folder / "ours").exists() else ""
            javas = "\n".join(f"{each.lines} {each.log}" for each in self._javas)
            raise AssertionError(f"{error}\n{group}\n{ours}\n{javas}") from None

    def assert_exact(self) -> None:
        """Each word's counts are 1 to n, each once and in this order."""
        found: dict[str, list[int]] = defaultdict(list)
        for record in self._cluster.read(self._topics["COUNTING_OUTPUT"]):
            assert record.key is not None
            assert record.value is not None
            found[record.key.decode()].append(int(record.value))
        assert found == {word: list(range(1, count + 1)) for word, count in self.expected.items()}

    def close(self) -> None:
        self.ours.kill()
        for each in self._javas:
            each.stop(signal.SIGKILL)


@pytest.fixture(params=["bundled", "kafka"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    require_kafka()
    server: Server = request.getfixturevalue("apache_kafka" if request.param == "kafka" else "bundled_broker")
    with connected(server) as cluster:
        made = Scene(cluster, tmp_path)
        yield made
        made.close()


@pytest.mark.timeout(600)
def test_tasks_and_their_state_move_between_java_and_python(scene: Scene) -> None:
    first = scene.java("first")
    scene.feed()
    scene.wait_counted()
    with scene.ours as ours:
        scene.wait_shared(PARTITIONS, PARTITIONS)
        ours.wait_running(tasks=PARTITIONS)
        scene.feed()
        scene.wait_counted()
        first.stop(signal.SIGKILL)
        scene.feed()
        ours.wait_running(tasks=2 * PARTITIONS)
        scene.wait_counted()
        # It has counters that Java has filled.
        assert ours.progress["restored_records"] > 0
        # This one has an empty state directory: all that it knows comes out of what Python has written.
        second = scene.java("second")
        scene.wait_shared(PARTITIONS, PARTITIONS)
        scene.feed()
        scene.wait_counted()
        assert ours.terminate() == 0
    scene.wait_shared(2 * PARTITIONS)
    scene.feed()
    scene.wait_counted()
    second.stop()
    scene.assert_exact()
    assert not [line for each in (first, second) for line in each.lines if "error" in line]
