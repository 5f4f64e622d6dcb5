"""Records in flight in a repartition topic that a new version does not have are read first, or that version waits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.system.cluster import Cluster
from tests.system.processes import AppProcess, run_command, wait_until
from tests.system.test_hand_over import KEYS, PARTITIONS, SETTINGS, Scene

FIRST, SECOND = "tests.system.in_flight_app:first", "tests.system.in_flight_app:second"
SLOW = {"SLOW_READER_MS": "4"}


class Words(Scene):
    """A scene whose applications have these settings."""

    def __init__(
        self, cluster: Cluster, folder: Path, application_id: str, settings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(cluster, folder, application_id)
        self.more = dict(settings or {})

    def app(self, name: str, version: str, epoch: int | None = None, **surroundings: str) -> AppProcess:
        settings = {**SETTINGS, **self.more, **({} if epoch is None else {"topology.epoch": epoch})}
        place, address = self.folder / name, self.cluster.address
        return AppProcess(place, version, self.application_id, address, settings, surroundings=surroundings)

    def unread(self, name: str = "by-word") -> int:
        """Of the topic that the second version does not have, or the one that the first does not have."""
        topic = f"{self.application_id}-{name}-repartition"
        committed = self.cluster.committed(self.application_id)
        return sum(end - committed.get(place, 0) for place, end in self.cluster.ends(topic).items())

    def stop_with_records_in_flight(self) -> None:
        """The first version runs alone, and stops in its first commit: it has read nothing of what it wrote."""
        self.write(150)
        with self.app("A", FIRST, **SLOW) as first:
            wait_until(lambda: len(first.tasks("active", "running")) == 8, "it works")
            wait_until(lambda: self.unread() > 100, "records are in flight")
            assert first.terminate() == 0

    def status(self) -> tuple[int, str]:
        """What ``upgrade status`` says, and its exit code."""
        asked = run_command("upgrade", "status", "-g", self.application_id, "-b", self.cluster.address, "--once")
        return asked.returncode, asked.stdout + asked.stderr

    def assert_all_counted(self, *, exactly: bool = True) -> None:
        def counts() -> dict[bytes, int]:
            last = {record.key: record.value for record in self.cluster.read("out")}
            return {key[::-1]: int.from_bytes(value, "big") for key, value in last.items()}

        wait_until(lambda: counts().keys() == set(KEYS) and min(counts().values()) >= self.rounds, "all are counted")
        found = counts()
        assert not exactly or found == dict.fromkeys(KEYS, self.rounds)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("guarantee", "protocol"),
    [("exactly_once_v2", "streams"), ("at_least_once", "streams"), ("exactly_once_v2", "classic")],
)
def test_old_members_read_to_the_end_what_only_they_can_read(
    bundled: Cluster, tmp_path: Path, application_id: str, guarantee: str, protocol: str
) -> None:
    scene = Words(bundled, tmp_path, application_id, {"processing.guarantee": guarantee, "group.protocol": protocol})
    # However long the hand-over takes, the old members do not read everything before it.
    slow = tmp_path / "slow"
    slow.touch()
    slower = {"SLOW_READER_MS": "8", "SLOW_WHILE": str(slow)}
    with scene.app("A", FIRST, **slower) as a, scene.app("B", FIRST, **slower) as b:
        wait_until(lambda: len(a.tasks("active", "running") | b.tasks("active", "running")) == 8, "both work")
        with scene.app("C", SECOND) as c:
            # One of three waits; one of two has half.
            wait_until(lambda: "STALE_TOPOLOGY" in b.stderr, "it is there")
            scene.write(300)
            wait_until(lambda: scene.unread() > 100, "records are in flight")
            assert a.terminate() == 0
            scene.write(20)
            wait_until(lambda: len(c.tasks("active", "running")) >= PARTITIONS, "it has the writers")
            assert scene.unread() > 0
            slow.unlink()
            wait_until(lambda: len(c.tasks("active", "running")) == 8, "it has all", timeout_s=120)
            assert scene.unread() == 0
            assert not b.tasks("active")
            scene.write(5)
            assert b.terminate() == 0
            scene.assert_all_counted(exactly=guarantee == "exactly_once_v2")
            assert c.terminate() == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_a_version_that_would_lose_what_is_in_flight_does_not_start(
    bundled: Cluster, tmp_path: Path, application_id: str, protocol: str
) -> None:
    scene = Words(bundled, tmp_path, application_id, {"group.protocol": protocol})
    scene.stop_with_records_in_flight()
    left = scene.unread()
    assert left > 0
    with scene.app("C", SECOND) as c:
        assert c.wait_end() == 2
        assert f"-by-word-repartition: {left:,} records" in c.last_words
        assert "--lose-in-flight" in c.last_words
        assert "Traceback" not in c.stderr
    # What the message says helps: an old one beside it.
    with scene.app("A", FIRST) as a:
        wait_until(lambda: len(a.tasks("active", "running")) == 8, "it works")
        with scene.app("C", SECOND) as c:
            wait_until(lambda: len(c.tasks("active", "running")) == 8, "it has all", timeout_s=120)
            assert a.terminate() == 0
            scene.write()
            scene.assert_all_counted()
            assert c.terminate() == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_what_the_user_says_may_be_lost_is_left(
    bundled: Cluster, tmp_path: Path, application_id: str, protocol: str
) -> None:
    scene = Words(bundled, tmp_path, application_id, {"group.protocol": protocol})
    scene.stop_with_records_in_flight()
    scene.more["upgrade.lose.in.flight"] = "true"
    with scene.app("C", SECOND) as c:
        wait_until(lambda: len(c.tasks("active", "running")) == 8, "it has all")
        scene.wait_done()
        assert c.terminate() == 0
    assert scene.unread() > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_versions_that_never_ran_side_by_side_lose_nothing_if_one_does_what_status_says(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    scene = Words(bundled, tmp_path, application_id)
    scene.stop_with_records_in_flight()
    scene.more["upgrade.lose.in.flight"] = "true"
    with scene.app("C", SECOND, **SLOW) as c:
        c.wait_running(tasks=8)
        code, said = scene.status()
        assert code == 0, said
        assert f"left unread because of --lose-in-flight: {application_id}-by-word-repartition" in said
        scene.write(150)
        wait_until(lambda: scene.unread("by-term") > 100, "its records are in flight, too")
        assert c.terminate() == 0
    del scene.more["upgrade.lose.in.flight"]
    assert min(scene.unread(), scene.unread("by-term")) > 0
    code, said = scene.status()
    assert code == 10
    for epoch, name in enumerate(["by-word", "by-term"]):
        assert f"version of topology epoch {epoch} (topology.epoch={epoch}): it reads {application_id}-{name}" in said
    with scene.app("C", SECOND) as c:
        wait_until(lambda: len(c.tasks("active", "running")) >= PARTITIONS, "it has the writers")
        code, said = scene.status()
        assert code == 10, said
        assert "tasks that share state with their readers wait" in said
        with scene.app("A", FIRST) as a:
            wait_until(lambda: len(c.tasks("active", "running")) == 8, "it has all", timeout_s=120)
            assert scene.unread() == 0
            assert a.terminate() == 0
        scene.write()
        scene.assert_all_counted()
        wait_until(lambda: scene.status()[0] == 0, "it is over")
        assert c.terminate() == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", [pytest.param("streams", marks=pytest.mark.full), "classic"])
def test_when_the_last_old_instance_dies_too_early_what_shares_state_with_its_reader_waits(
    bundled: Cluster, tmp_path: Path, application_id: str, protocol: str
) -> None:
    scene = Words(bundled, tmp_path, application_id, {"group.protocol": protocol})
    with scene.app("A", FIRST, **SLOW) as a:
        a.wait_running(tasks=8)
        scene.write(60)
        wait_until(lambda: scene.unread() > 100, "records are in flight")
        with scene.app("C", SECOND) as c:
            wait_until(lambda: len(c.tasks("active", "running")) >= PARTITIONS, "it has the writers")
            a.kill()
            wait_until(lambda: "are in flight that no member can read" in c.stderr, "it waits", timeout_s=120)
            left = scene.unread()
            assert left > 0
            code, said = scene.status()
            assert code == 10, said
            assert "tasks that share state with their readers wait" in said
            assert len(c.tasks("active", "running")) < 8
            # What is said helps.
            epoch = 0 if protocol == "streams" else 2
            assert f"topology.epoch={epoch}" in said
            scene.write(2)
            assert scene.unread() == left
            with scene.app("B", FIRST, epoch) as b:
                scene.assert_all_counted()
                wait_until(lambda: scene.unread() == 0, "nothing is left")
                assert b.terminate() == 0
            assert c.terminate() == 0
