"""One group with members of Java Kafka Streams and of this runtime: tasks and their state move from one to the other.

Both run the same topology, and are told apart by nothing that the group knows: ``subtopology.id=number`` gives the
subtopologies Java's names.
"""

from __future__ import annotations

import signal

import pytest

from tests.interop.counting import PARTITIONS, Scene

pytestmark = [pytest.mark.system, pytest.mark.kafka]


@pytest.mark.timeout(1200)
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
