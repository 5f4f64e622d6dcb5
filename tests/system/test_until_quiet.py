"""``--until quiet`` beside other members: what they have not committed is processed before the run ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster import Cluster, Row
from tests.system.processes import AppProcess

PARTITIONS = 4
UPPER = """
from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
builder.stream("texts", key=serdes.string, value=serdes.string).map_values(str.upper).to("upper")
topology = builder.build()
"""
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 4_000, "heartbeat.interval.ms": 500}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_that_is_stopped_before_does_not_end_as_one_that_is_done(
    bundled: Cluster, tmp_path: Path, application_id: str, threads: int
) -> None:
    (tmp_path / "upper_app.py").write_text(UPPER, encoding="utf-8")
    bundled.make_topics(PARTITIONS, "texts", "upper")
    for partition in range(PARTITIONS):
        bundled.write("texts", [Row(b"k", b"v", 1)], PARTITIONS, partition=partition)
    address = bundled.address
    rare: dict[str, object] = {"commit.interval.ms": 600_000}
    with AppProcess(tmp_path / "one", "upper_app", application_id, address, rare, cwd=tmp_path) as first:
        first.wait_for(lambda line: line["processed_records"] == PARTITIONS, "all is processed, nothing committed")
        ours: dict[str, object] = {"num.stream.threads": threads}
        folder = tmp_path / "two"
        with AppProcess(folder, "upper_app", application_id, address, ours, until="quiet", cwd=tmp_path) as other:
            other.wait_running()
            assert other.terminate() == 143
            assert "stopped by SIGTERM before all available input was processed" in other.stderr
        with AppProcess(folder, "upper_app", application_id, address, ours, until="quiet", cwd=tmp_path) as other:
            other.wait_running()
            assert first.terminate() == 0, "it was to run until it is stopped"
            assert other.wait_end() == 0
    assert bundled.committed(application_id) == bundled.ends("texts")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("configs", "threads"), [({}, 1), ({}, 2), (CLASSIC, 1)], ids=["streams", "two threads", "classic"]
)
def test_a_run_waits_for_the_tasks_of_a_member_that_is_killed(
    bundled: Cluster, tmp_path: Path, application_id: str, configs: dict[str, object], threads: int
) -> None:
    (tmp_path / "upper_app.py").write_text(UPPER, encoding="utf-8")
    bundled.make_topics(PARTITIONS, "texts", "upper")
    rare = {**configs, "commit.interval.ms": 600_000}
    address = bundled.address
    with AppProcess(tmp_path / "one", "upper_app", application_id, address, rare, cwd=tmp_path) as killed:
        killed.wait_running(tasks=PARTITIONS)
        folder, ours = tmp_path / "two", {**configs, "num.stream.threads": threads}
        other = AppProcess(folder, "upper_app", application_id, address, ours, until="quiet", cwd=tmp_path)
        for partition in range(PARTITIONS):
            bundled.write("texts", [Row(b"k", b"v", 1)], PARTITIONS, partition=partition)
        killed.wait_for(lambda line: line["processed_records"] == PARTITIONS, "all is processed, nothing committed")
        with other:
            other.wait_running()
            assert not other.has_ended
            kept = killed.wait_for(lambda line: 0 < len(line["tasks"]) < PARTITIONS, "it keeps some of the tasks")
            killed.kill()
            assert other.wait_end() == 0
            assert len(kept["tasks"]) <= other.progress["processed_records"] <= PARTITIONS
    assert bundled.committed(application_id) == bundled.ends("texts")
