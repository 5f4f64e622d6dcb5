"""Instances with a ``group.instance.id``: one that was killed comes back, and one that leaves for good is gone at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system import expected
from tests.system.cluster import Cluster
from tests.system.processes import AppProcess, run_command
from tests.system.test_failures import QUICK, repartition_topic
from tests.system.test_results import PARTITIONS, final_counts

SESSION_TIMEOUT_MS = 20_000


def static_word_count(cluster: Cluster, folder: Path, application_id: str, *options: str) -> AppProcess:
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    timeout = {"streams.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
    cluster.network.admin.alter_group_configs(application_id, timeout)
    settings = {**QUICK, "group.instance.id": "the-one"}
    return AppProcess(folder, "examples.wordcount", application_id, cluster.address, settings, options=options)


def test_after_a_kill_it_waits_for_its_own_session_to_end(
    cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    lines = expected.text_lines()[:2_000]
    first_half, second_half = expected.halves(lines)
    with static_word_count(cluster, tmp_path / "app", application_id) as app:
        cluster.write("lines", expected.line_rows(first_half), PARTITIONS)
        app.wait_running(tasks=PARTITIONS)
        cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
        (killed,) = cluster.members(application_id)
        app.kill()
        app.start()
        app.wait_for(
            lambda line: any("group.instance.id" in status for status in line["statuses"]), "it says what it waits for"
        )
        assert "in 25 s at the latest" in app.stderr
        cluster.write("lines", expected.line_rows(second_half), PARTITIONS)
        app.wait_running(tasks=PARTITIONS)
        assert killed not in cluster.members(application_id)
        cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
        assert app.terminate() == 0
    assert final_counts(cluster.read("word-counts")) == expected.count_words(lines)


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
