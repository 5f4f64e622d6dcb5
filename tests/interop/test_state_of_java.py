"""The state of an application in Java becomes that of one of ours under another name, which goes on exactly there."""

from __future__ import annotations

import pytest

from tests.interop.counting import Scene

pytestmark = [pytest.mark.system, pytest.mark.kafka, pytest.mark.full]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("program", ["topology", "in_more_partitions"])
def test_an_application_takes_over_what_java_has_counted(scene: Scene, program: str) -> None:
    java = scene.java("java")
    scene.feed()
    scene.wait_counted()
    java.stop()
    scene.feed()
    with scene.heir(f"{scene.application}-heir", program) as ours:
        scene.wait_counted()
        scene.feed()
        scene.wait_counted()
        assert ours.terminate() == 0
    scene.assert_exact()
    assert not [line for line in java.lines if "error" in line]
