"""An upgrade whose instances were killed is sent back: the old instance has all tasks long before their sessions end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.system.cluster import Cluster
from tests.system.processes import run_command, wait_until
from tests.system.test_hand_over import FIRST, PARTITIONS, SECOND, Scene

SESSION_S = 40


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_instances_are_removed_at_once_and_stay_out(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    scene = Scene(bundled, tmp_path, application_id)
    configs = {"streams.session.timeout.ms": str(SESSION_S * 1_000)}
    bundled.network.admin.alter_group_configs(application_id, configs)
    with scene.app("A", FIRST) as a:
        a.wait_running(tasks=PARTITIONS)
        scene.write(10)
        scene.wait_done()
        with scene.app("C", SECOND) as c:
            wait_until(lambda: len(c.tasks("active", "running")) == 2, "it has its share")
            scene.write(10)
            c.kill()
            killed_at = time.monotonic()
            abort = ("upgrade", "abort", FIRST, "--group", application_id, "-b", bundled.address, "--execute", "--json")
            done = run_command(*abort)
            assert done.returncode == 0, done.stderr
            told = json.loads(done.stdout)
            assert (told["topology_epoch"], len(told["removed"]), len(told["staying"])) == (2, 1, 1)
            a.wait_running(tasks=PARTITIONS)
            assert time.monotonic() - killed_at < SESSION_S
            scene.write(10)
            scene.wait_done()
            # Whoever starts it again does not bring it back.
            c.start()
            assert c.wait_end() == 2
            assert "Topology epoch 1 is behind the topology epoch 2" in c.stderr
        scene.write()
        scene.wait_done()
        assert a.terminate() == 0
    scene.assert_exact()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_after_a_rollback_nobody_is_told_to_roll_back_again(
    bundled: Cluster, tmp_path: Path, application_id: str, protocol: str
) -> None:
    scene = Scene(bundled, tmp_path, application_id)
    place = ("--group", application_id, "-b", bundled.address)

    def status() -> dict[str, Any]:
        return json.loads(run_command("upgrade", "status", *place, "--once", "--json").stdout)

    with scene.app("A", FIRST, protocol=protocol) as a:
        a.wait_running(tasks=PARTITIONS)
        with scene.app("C", SECOND, protocol=protocol) as c:
            wait_until(lambda: len(c.tasks("active", "running")) == 2, "it has its share")
            done = run_command("upgrade", "abort", FIRST, *place, "--execute", "--json")
            assert done.returncode == 0, done.stderr
            assert c.wait_end() == 2
        a.wait_running(tasks=PARTITIONS)
        wait_until(lambda: status()["phase"] != "versions unknown", "the group has settled")
        (advice,) = status()["advice"]
        assert advice.startswith("the group was rolled back, and no instance runs topology epoch 2 yet")
        assert a.terminate() == 0
