"""A classic group of Java's Kafka Streams and of ours changes to the streams protocol and back, member by member.

Under load, on the bundled broker: Apache Kafka refuses members of the other protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsrt.membership.classic.values import PROTOCOL_NAME
from tests.fixtures_brokers import BundledBroker, require_kafka
from tests.interop.counting import JAVAS as STREAMS_JAVAS
from tests.interop.test_java_in_classic_groups import TASKS, ClassicScene, Load
from tests.system.cluster import connected

pytestmark = [pytest.mark.system, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(1200)]


class ChangingScene(ClassicScene):
    """A group that is a streams group part of the time."""

    def wait_streams_group_of(self, classic: int, streams: int) -> None:
        """A streams group with so many members of each protocol, each with some of the tasks."""

        def holds() -> bool:
            (group,) = self._cluster.network.admin.describe_streams_groups([self.application])
            if group.error_code or group.group_state != "Stable":
                return False
            kinds = sorted(member.is_classic for member in group.members)
            shares = [sum(len(t.partitions) for t in m.assignment.active_tasks) for m in group.members]
            return kinds == [False] * streams + [True] * classic and all(shares) and sum(shares) == TASKS

        self._wait(holds, f"a streams group of {classic} classic and {streams} streams members")


@pytest.fixture
def scene(bundled_broker: BundledBroker, tmp_path: Path) -> Iterator[ChangingScene]:
    require_kafka()
    with connected(bundled_broker) as cluster:
        made = ChangingScene(cluster, tmp_path)
        yield made
        made.close()


def test_a_mixed_group_changes_its_protocol_and_back(scene: ChangingScene) -> None:
    java, ours = scene.start_java("java-1"), scene.start_ours("ours-1")
    stays = scene.start_ours("ours-2")
    with Load(scene):
        scene.wait_shared_by(3)
        # One of ours is the first: the other one and Java's go on by the classic protocol.
        assert ours.terminate() == 0
        ours = scene.start_ours("ours-1", {"group.protocol": "streams"})
        scene.wait_streams_group_of(classic=2, streams=1)
        java.stop()
        java = scene.java("java-1-by-streams", STREAMS_JAVAS)
        scene.wait_streams_group_of(classic=1, streams=2)
        # And back.
        java.stop()
        java = scene.start_java("java-2")
        scene.wait_streams_group_of(classic=2, streams=1)
        assert ours.terminate() == 0
        scene.wait_shared_by(2)
        java.stop()
        scene.wait_shared_by(1, PROTOCOL_NAME)
    scene.wait_counted()
    scene.assert_exact()
    assert stays.terminate() == 0
