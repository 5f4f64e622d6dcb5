"""Two instances of Java Kafka Streams, exactly once, in either protocol: one is killed, and nothing is lost or doubled."""

from __future__ import annotations

import signal

import pytest

from tests.interop.counting import EXACTLY_ONCE, JAVAS, PARTITIONS, Scene

pytestmark = [pytest.mark.system, pytest.mark.kafka]
CLASSIC = {
    **EXACTLY_ONCE,
    "group.protocol": "classic",
    "num.stream.threads": "1",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_one_of_two_instances_is_killed(scene: Scene, protocol: str) -> None:
    settings = CLASSIC if protocol == "classic" else JAVAS
    instances = [scene.java(name, settings) for name in ("first", "second")]
    scene.feed()
    if protocol == "classic":
        scene.wait_members(2)
    else:
        scene.wait_shared(PARTITIONS, PARTITIONS)
    scene.wait_counted()
    scene.feed()
    instances[0].stop(signal.SIGKILL)
    scene.feed()
    scene.wait_counted()
    instances[1].stop()
    scene.assert_exact()
    assert not [line for each in instances for line in each.lines if "error" in line]
