"""Instances of Java Kafka Streams roll from the classic protocol to the streams protocol, and lose nothing.

Apache Kafka 4.4 refuses a member of the one protocol while there are members of the other.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamsrt.wire import types
from tests.coordinator.server.processes import Wire
from tests.fixtures_brokers import BundledBroker, require_kafka
from tests.interop.java_instances import PATIENCE_S, JavaInstance

pytestmark = [pytest.mark.system, pytest.mark.kafka]
PARTITIONS = 4
SETTINGS = {
    "num.stream.threads": "1",
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": "200",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "metadata.max.age.ms": "1000",
}


def settings_of(protocol: str) -> dict[str, str]:
    settings = {**SETTINGS, "group.protocol": protocol}
    if protocol == "streams":
        # Both are the broker's to say.
        settings = {key: value for key, value in settings.items() if not key.endswith(("timeout.ms", "interval.ms"))}
        settings["commit.interval.ms"] = SETTINGS["commit.interval.ms"]
    return settings


class Scene:
    """A broker, the instances on it, and the results that are to be expected."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = BundledBroker(folder / "broker")
        self.broker.start()
        self.application = f"app-{uuid.uuid4().hex[:8]}"
        self.instances: list[JavaInstance] = []
        self.expected: Counter[str] = Counter()
        self.found: dict[str, int] = {}
        self._pause = threading.Event()
        servers = self.broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        topics = [NewTopic(f"{self.application}-{name}", PARTITIONS, 1) for name in ("in", "out")]
        for future in admin.create_topics(topics).values():
            future.result(PATIENCE_S)
        self._producer = Producer({"bootstrap.servers": servers})
        self._results = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"{self.application}-results",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._results.subscribe([f"{self.application}-out"])

    def start(self, name: str, protocol: str) -> JavaInstance:
        instance = JavaInstance(
            self.folder,
            name,
            self.broker.bootstrap_servers,
            self.application,
            f"{name}-{protocol}",
            settings_of(protocol),
        )
        self.instances.append(instance)
        return instance

    def produce(self, count: int = 200) -> None:
        """Values of ten kinds over all partitions."""
        for number in range(count):
            value = f"word-{number % 10}"
            self.expected[value] += 1
            self._producer.produce(f"{self.application}-in", value.encode(), partition=number % PARTITIONS)
        assert self._producer.flush(PATIENCE_S) == 0

    def until_counted(self) -> None:
        """Waits until each value was counted as often as it was produced; counts that go beyond are found too."""
        self.until(self._is_counted, "everything is counted once")

    def _is_counted(self) -> bool:
        for record in self._results.consume(500, 0.5):
            assert record.error() is None
            count = int(record.value())
            name = record.key().decode()
            assert count > self.found.get(name, 0), "a count went back"
            self.found[name] = count
            assert count <= self.expected[name], "something was counted twice"
        return self.found == self.expected

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                seen = "\n".join(f"{each.lines} {each.log}" for each in self.instances)
                raise AssertionError(f"not in {PATIENCE_S:g} s: {what}\n{self.group()}\n{self.found}\n{seen}")
            self._pause.wait(0.1)

    def group(self) -> Any:
        with Wire(self.broker.port) as wire:
            return wire.ask(types.StreamsGroupDescribeRequest(group_ids=[self.application])).groups[0]

    def kinds(self) -> list[bool]:
        """For each member of the streams group, whether it is a classic one."""
        return sorted(member.is_classic for member in self.group().members)

    def is_stable(self, protocol: str, members: int) -> bool:
        """Whether the group is of this type, stable, and has so many members."""
        with Wire(self.broker.port) as wire:
            groups = wire.ask(types.ListGroupsRequest()).groups
            kinds = [(each.group_type, each.group_state) for each in groups if each.group_id == self.application]
            (classic,) = wire.ask(types.DescribeGroupsRequest(groups=[self.application])).groups
        count = len(classic.members) if protocol == "classic" else self.kinds().count(False)
        return kinds == [(protocol, "Stable")] and count == members

    def close(self) -> None:
        for instance in self.instances:
            instance.stop(signal.SIGKILL)
        self._results.close()
        self.broker.stop()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    require_kafka()
    made = Scene(tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("SG-334", "SG-335", "SG-341", "SG-425")
@pytest.mark.parametrize(("old", "new"), [("classic", "streams"), ("streams", "classic")])
def test_instances_roll_to_the_other_protocol_one_after_the_other(scene: Scene, old: str, new: str) -> None:
    first, second = scene.start("first", old), scene.start("second", old)
    scene.produce()
    scene.until_counted()
    scene.until(lambda: scene.is_stable(old, 2), "two instances of the old protocol")
    second.stop()
    scene.produce()
    scene.start("second", new)
    scene.until(lambda: scene.kinds() == [False, True], "one instance of each protocol")
    scene.until_counted()
    scene.produce()
    scene.until_counted()
    first.stop()
    scene.start("first", new)
    scene.until(lambda: scene.is_stable(new, 2), "two instances of the new protocol")
    scene.produce()
    scene.until_counted()
    assert not [line for each in scene.instances for line in each.lines if "error" in line]
