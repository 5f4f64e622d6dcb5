"""A version that can't run, started alone after all instances have stopped: it leaves no trace, and the one before it
continues as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster import Cluster, Row, last_values
from tests.system.processes import AppProcess
from tests.system.test_hand_over import FIRST, KEYS, PARTITIONS, SETTINGS

APP = "tests.system.upgrade_app"


def refused_and_back(cluster: Cluster, folder: Path, application_id: str, protocol: str, refused: str) -> str:
    """Runs the first version, the refused one and the first one again; returns what the refused one said."""
    cluster.make_topics(PARTITIONS, "in", "out")
    cluster.make_topics(PARTITIONS - 1, "more")
    settings = {**SETTINGS, "group.protocol": protocol}

    def started(version: str, **more: object) -> AppProcess:
        return AppProcess(folder / "A", version, application_id, cluster.address, {**settings, **more})

    def work(app: AppProcess) -> None:
        app.wait_running(tasks=PARTITIONS)
        cluster.write("in", [Row(key, b"x", 1) for key in KEYS], PARTITIONS)
        cluster.wait_all_committed(application_id, "in")
        assert app.terminate() == 0

    with started(FIRST) as app:
        work(app)
    with started(f"{APP}:{refused}") as app:
        assert app.wait_end() == 2
        said = app.last_words
    with started(FIRST) as app:
        work(app)
    assert last_values(cluster.read("out")) == {key: (2).to_bytes(8, "big") for key in KEYS}
    return said


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("refused", "why"), [("mismatched", "partitions"), ("sourceless", "nowhere")])
def test_a_refused_version_leaves_a_streams_group_to_the_one_before(
    cluster: Cluster, tmp_path: Path, application_id: str, refused: str, why: str
) -> None:
    said = refused_and_back(cluster, tmp_path, application_id, "streams", refused)
    # Apache Kafka refuses every other topology, whatever its topics.
    assert why in said or "forget-topology" in said


@pytest.mark.timeout(600)
def test_a_refused_version_leaves_a_classic_group_to_the_one_before(
    any_cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    assert "partitions" in refused_and_back(any_cluster, tmp_path, application_id, "classic", "mismatched")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("wrong", "why"), [("mismatched", "don't fit together"), ("sourceless", "nowhere")])
def test_a_first_version_that_can_not_run_leaves_its_epoch_to_the_corrected_one(
    cluster: Cluster, tmp_path: Path, application_id: str, wrong: str, why: str
) -> None:
    cluster.make_topics(PARTITIONS, "in", "out")
    cluster.make_topics(PARTITIONS - 1, "more")
    settings = {**SETTINGS, "group.protocol": "streams", "topology.epoch": 0}
    with AppProcess(tmp_path / "A", f"{APP}:{wrong}", application_id, cluster.address, settings) as app:
        assert app.wait_end() == 2
        assert why in app.last_words
        assert "Traceback" not in app.stderr
    with AppProcess(tmp_path / "A", FIRST, application_id, cluster.address, settings) as app:
        app.wait_running(tasks=PARTITIONS)
        assert app.terminate() == 0
