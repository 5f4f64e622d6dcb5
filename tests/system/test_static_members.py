"""Instances with a ``group.instance.id``: one that was killed comes back, and one that leaves for good is gone at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.system import expected
from tests.system.cluster import Cluster, with_session_timeout
from tests.system.processes import AppProcess, run_command
from tests.system.test_failures import QUICK, repartition_topic
from tests.system.test_results import PARTITIONS, final_counts

SESSION_TIMEOUT_MS = 20_000


def static_word_count(
    cluster: Cluster,
    folder: Path,
    application_id: str,
    *options: str,
    configs: Mapping[str, str] = MappingProxyType({}),
) -> AppProcess:
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    session = with_session_timeout(cluster, application_id, SESSION_TIMEOUT_MS)
    settings = {**QUICK, "group.instance.id": "the-one", **session, **configs}
    return AppProcess(folder, "examples.wordcount", application_id, cluster.address, settings, options=options)


@pytest.mark.slow
def test_after_a_kill_it_waits_for_its_own_session_to_end(
    cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    app = static_word_count(cluster, tmp_path / "app", application_id)
    killed = goes_on_after_a_kill(cluster, application_id, app, app)
    assert killed not in cluster.members(application_id)


@pytest.mark.slow
def test_so_it_does_when_it_comes_back_by_the_classic_protocol(
    bundled: Cluster, tmp_path: Path, application_id: str
) -> None:
    """Its own session is shorter than that of the process before."""
    app = static_word_count(bundled, tmp_path / "app", application_id)
    classic = {"group.protocol": "classic", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
    again = static_word_count(bundled, tmp_path / "app", application_id, configs=classic)
    goes_on_after_a_kill(bundled, application_id, app, again)


def goes_on_after_a_kill(cluster: Cluster, application_id: str, app: AppProcess, again: AppProcess) -> str:
    """``app`` is killed and ``again`` started at once on the same state. Returns the id of the member that was killed."""
    lines = expected.text_lines()[:2_000]
    first_half, second_half = expected.halves(lines)
    with app:
        cluster.write("lines", expected.line_rows(first_half), PARTITIONS)
        app.wait_running(tasks=PARTITIONS)
        cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
        (killed,) = cluster.members(application_id)
        app.kill()
        with again:
            again.wait_for(
                lambda line: any("group.instance.id" in status for status in line["statuses"]),
                "it says what it waits for",
            )
            assert "in 25 s at the latest" in again.stderr
            cluster.write("lines", expected.line_rows(second_half), PARTITIONS)
            again.wait_running(tasks=PARTITIONS)
            cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
            assert again.terminate() == 0
    assert final_counts(cluster.read("word-counts")) == expected.count_words(lines)
    return killed


@pytest.mark.parametrize("threads", [1, 2])
def test_one_that_leaves_for_good_can_be_forgotten_at_once(
    cluster: Cluster, tmp_path: Path, application_id: str, threads: int
) -> None:
    options = ("--leave", "--threads", str(threads))
    with static_word_count(cluster, tmp_path / "app", application_id, *options) as app:
        app.wait_running(tasks=PARTITIONS)
        cluster.write("lines", expected.line_rows(expected.text_lines()[:500]), PARTITIONS)
        cluster.wait_all_committed(application_id, "lines")
        assert len(cluster.members(application_id)) == threads
        assert app.terminate() == 0
    assert cluster.members(application_id) == []
    backup = tmp_path / "offsets.json"
    done = run_command(
        *("groups", "forget-topology", application_id, "-b", cluster.address, "--execute", "--backup", backup)
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(backup.read_text(encoding="utf-8"))["offsets"]) >= PARTITIONS
