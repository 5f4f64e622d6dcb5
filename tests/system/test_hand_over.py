"""Old members go on with what the new version changes until a new one is warm, and take it back if that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster import Cluster, Row, last_values
from tests.system.processes import AppProcess, wait_until

PARTITIONS = 4
KEYS = [b"k%d" % number for number in range(40)]
FIRST, SECOND = "tests.system.upgrade_app:first", "tests.system.upgrade_app:second"
SETTINGS = {"commit.interval.ms": 100, "processing.guarantee": "exactly_once_v2"}


class Scene:
    def __init__(self, cluster: Cluster, folder: Path, application_id: str) -> None:
        self.cluster = cluster
        self.folder = folder
        self.application_id = application_id
        self.rounds = 0
        cluster.make_topics(PARTITIONS, "in", "more", "out")
        configs = {"streams.session.timeout.ms": "6000", "streams.heartbeat.interval.ms": "500"}
        cluster.network.admin.alter_group_configs(application_id, configs)

    def app(
        self, name: str, version: str, *, protocol: str = "streams", epoch: int | None = None, **surroundings: str
    ) -> AppProcess:
        place = self.folder / name
        settings = {**SETTINGS, "group.protocol": protocol, **({} if epoch is None else {"topology.epoch": epoch})}
        return AppProcess(
            place, version, self.application_id, self.cluster.address, settings, surroundings=surroundings
        )

    def write(self, rounds: int = 1) -> None:
        self.rounds += rounds
        self.cluster.write("in", [Row(key, b"x", 1) for _ in range(rounds) for key in KEYS], PARTITIONS)

    def wait_done(self) -> None:
        self.cluster.wait_all_committed(self.application_id, "in")

    def assert_exact(self) -> None:
        found = last_values(self.cluster.read("out"))
        assert found == {key: self.rounds.to_bytes(8, "big") for key in KEYS}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fails_at", ["0", "1", "1000"])
def test_a_version_that_fails_leaves_everything_to_the_old_members(
    bundled: Cluster, tmp_path: Path, application_id: str, fails_at: str
) -> None:
    scene = Scene(bundled, tmp_path, application_id)
    with scene.app("A", FIRST) as a, scene.app("B", FIRST) as b:
        wait_until(lambda: len(a.tasks("active", "running")) == len(b.tasks("active", "running")) == 2, "both work")
        scene.write(60)
        scene.wait_done()
        with scene.app("C", SECOND, UPGRADE_FAILS_AT=fails_at) as c:
            if fails_at != "0":
                wait_until(lambda: bool(c.tasks("active", "running")), "it has taken over what is its share")
                assert len(a.tasks("active") | b.tasks("active")) >= 2
                while not c.has_ended:
                    scene.write(50)
                    scene.wait_done()
            assert c.wait_end() != 0
        scene.write()
        scene.wait_done()
        wait_until(
            lambda: len(a.tasks("active", "running") | b.tasks("active", "running")) == PARTITIONS, "all is back"
        )
        assert a.terminate() == b.terminate() == 0
    scene.assert_exact()


@pytest.mark.slow
@pytest.mark.requirement("SG-231")
@pytest.mark.timeout(1200)
def test_a_killed_member_of_the_new_version_is_replaced_by_old_ones_within_a_session(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    scene = Scene(bundled, tmp_path, application_id)
    with scene.app("A", FIRST) as a:
        a.wait_running(tasks=PARTITIONS)
        scene.write(10)
        scene.wait_done()
        with scene.app("C", SECOND) as c:
            wait_until(lambda: len(c.tasks("active", "running")) == 2, "it has its share")
            assert a.tasks("active") | c.tasks("active") == a.tasks("active") ^ c.tasks("active")
            scene.write(10)
            scene.wait_done()
            c.kill()
            a.wait_running(tasks=PARTITIONS)
            scene.write(10)
            scene.wait_done()
            # And once more, to the end: the new version has it all when the old one goes.
            c.start()
            wait_until(lambda: len(c.tasks("active", "running")) == 2, "it has its share again")
            scene.write(10)
            assert a.terminate() == 0
            c.wait_running(tasks=PARTITIONS)
            scene.write()
            scene.wait_done()
            assert "promoted from warmup" in c.stderr
            assert c.terminate() == 0
    scene.assert_exact()
