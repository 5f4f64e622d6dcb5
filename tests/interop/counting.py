"""A cluster with an application that counts words, of Java's instances and of ours, and the results to be expected.

Every update of a count is written (no caches), so that each word's results are 1, 2, 3 and so on just if each member went on
from exactly the state that the one before had committed.
"""

from __future__ import annotations

import signal
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from tests.interop.java_instances import JavaInstance
from tests.system.cluster import Cluster, Row
from tests.system.processes import IN_PYTHON, ROOT, AppProcess, environment, wait_until
from tests.warm_processes import run_python

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


def take_over(
    program: str, application: str, origin: str, servers: str, plan: Path, surroundings: Mapping[str, str]
) -> None:
    """Gives an application the state of another one, by the command line."""
    for words in (
        ("plan", program, "-a", application, "-b", servers, "--state-of", origin),
        ("run", "--workers", "1"),
        ("commit", "--execute"),
    ):
        done = run_python(
            [*IN_PYTHON, "backfill", *words, "--dir", str(plan)],
            environment={**environment(ROOT), **surroundings},
            cwd=ROOT,
            timeout_s=5 * PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr


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

    def java(self, name: str, settings: Mapping[str, str] = JAVAS) -> JavaInstance:
        made = JavaInstance(self._folder, name, self._cluster.address, self.application, name, settings)
        self._javas.append(made)
        return made

    def heir(self, application: str, program: str = "topology") -> AppProcess:
        """An application of ours that is given the state of what counted here before, by the command line. From here on the
        results are its own."""
        named = f"tests.interop.counting_app:{program}"
        take_over(named, application, self.application, self._cluster.address, self._folder / application, self._topics)
        self.application = application
        self.ours = AppProcess(
            self._folder / "heir", named, application, self._cluster.address, OURS, surroundings=self._topics
        )
        return self.ours

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

    def wait_members(self, count: int) -> None:
        """The classic group has so many members, stable and all with work."""
        admin = AdminClient({"bootstrap.servers": self._cluster.address})

        def share() -> bool:
            group = admin.describe_consumer_groups([self.application])[self.application].result(PATIENCE_S)
            busy = [member for member in group.members if member.assignment and member.assignment.topic_partitions]
            return group.state == ConsumerGroupState.STABLE and len(group.members) == len(busy) == count

        self._wait(share, f"{count} members with tasks")

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        try:
            wait_until(holds, what, timeout_s=PATIENCE_S)
        except AssertionError as error:
            javas = "\n".join(f"{each.lines} {each.log}" for each in self._javas)
            raise AssertionError(f"{error}\n{self._seen()}\n{javas}") from None

    def _seen(self) -> str:
        """What a failure shows of the group and of our instance."""
        groups = self._cluster.network.admin.describe_streams_groups([self.application])
        return f"{groups}\n{self.ours.stderr[-3000:] if (self._folder / 'ours').exists() else ''}"

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
