"""Rows that ``state repartition`` has moved are in the standby tasks, too: one takes over and counts on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster import Cluster, Row
from tests.system.processes import AppProcess, run_command, wait_until
from tests.system.test_hand_over import FIRST, KEYS, PARTITIONS, SETTINGS, Scene

MORE = 7


class WithStandbys(Scene):
    """Two instances, each with standby tasks of the other one's."""

    def instance(self, name: str) -> AppProcess:
        settings = {**SETTINGS, "num.standby.replicas": 1}
        return AppProcess(self.folder / name, FIRST, self.application_id, self.cluster.address, settings)

    def write_to(self, partitions: int) -> None:
        self.rounds += 5
        self.cluster.write("in", [Row(key, b"x", 1) for _ in range(5) for key in KEYS], partitions)
        self.wait_done()

    def wait_shared(self, a: AppProcess, b: AppProcess, partitions: int) -> None:
        def is_shared() -> bool:
            actives, standbys = ([each.tasks(role, phase) for each in (a, b)] for role, phase in ROLES)
            return len(set().union(*actives)) == partitions and standbys == actives[::-1]

        wait_until(is_shared, f"{partitions} tasks run, each with a standby task")


ROLES = (("active", "running"), ("standby", "standby"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_standby_takes_over_what_was_moved(bundled: Cluster, tmp_path: Path, application_id: str) -> None:
    scene = WithStandbys(bundled, tmp_path, application_id)
    with scene.instance("A") as a, scene.instance("B") as b:
        scene.wait_shared(a, b, PARTITIONS)
        scene.write_to(PARTITIONS)
        assert a.terminate() == b.terminate() == 0
    place = ("-b", bundled.address)
    assert run_command("topics", "add-partitions", "in", "--partitions", str(MORE), *place).returncode == 0
    moved = run_command("state", "repartition", FIRST, "-a", application_id, "--execute", *place)
    assert moved.returncode == 0, moved.stderr
    assert " rows moved" in moved.stderr
    with scene.instance("A") as a, scene.instance("B") as b:
        scene.wait_shared(a, b, MORE)
        scene.write_to(MORE)
        a.kill()
        wait_until(lambda: len(b.tasks("active", "running")) == MORE, "the standby tasks have taken over")
        scene.write_to(MORE)
        assert b.terminate() == 0
    scene.assert_exact()
