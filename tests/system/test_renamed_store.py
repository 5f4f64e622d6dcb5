"""A version that only renames a store goes on with its changelog and its files, beside old members and after them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.cluster import Cluster
from tests.system.processes import run_command, wait_until
from tests.system.test_hand_over import FIRST, PARTITIONS, Scene

RENAMED = "tests.system.upgrade_app:renamed"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_the_state_goes_forth_and_back_and_forth(
    bundled: Cluster, tmp_path: Path, application_id: str, protocol: str
) -> None:
    scene = Scene(bundled, tmp_path, application_id)
    place = ("--group", application_id, "-b", bundled.address, "--json")
    with scene.app("A", FIRST, protocol=protocol) as a:
        a.wait_running(tasks=PARTITIONS)
        scene.write(10)
        scene.wait_done()
        told = json.loads(run_command("topology", "diff", FIRST, RENAMED, *place).stdout)
        assert [(each["name"], each["fate"]) for each in told["state"]] == [("per-key", "carried over")]
        assert told["state"][0]["reason"].startswith("renamed from counts")
        with scene.app("C", RENAMED, protocol=protocol) as c:
            wait_until(lambda: bool(c.tasks("active", "running")), "the new one has tasks beside the old one")
            scene.write(10)
            scene.wait_done()
            aborted = run_command("upgrade", "abort", FIRST, *place, "--execute")
            assert aborted.returncode == 0, aborted.stderr
            assert c.wait_end() == 2
        a.wait_running(tasks=PARTITIONS)
        scene.write(10)
        scene.wait_done()
        # In the place of the old one, on its files.
        assert a.terminate() == 0
    with scene.app("A", RENAMED, protocol=protocol, epoch=3) as a:
        a.wait_running(tasks=PARTITIONS)
        scene.write(10)
        scene.wait_done()
        assert a.terminate() == 0
    assert {path.name for path in (tmp_path / "A").rglob("stores/*")} == {"counts"}
    scene.assert_exact()
