"""The example applications compute what plain Python computes, record for record."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.system import expected
from tests.system.cluster import Cluster, Record, last_values
from tests.system.processes import AppProcess

PARTITIONS = 4
QUICK = {"commit.interval.ms": 100}


def long(data: bytes | None) -> int:
    assert data is not None
    return int.from_bytes(data, "big", signed=True)


def final_counts(records: list[Record]) -> dict[str, int]:
    return {key.decode(): long(value) for key, value in last_values(records).items() if key is not None}


def final_delays(records: list[Record]) -> dict[tuple[str, int], dict[str, object]]:
    return {
        expected.windowed_key(key): json.loads(value)
        for key, value in last_values(records).items()
        if key is not None and value is not None
    }


def test_word_counts_are_exact(cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    lines = expected.text_lines()
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    cluster.write("lines", expected.line_rows(lines), PARTITIONS)

    app = AppProcess(tmp_path / "app", "examples.wordcount", application_id, cluster.address, QUICK, until="quiet")
    with app:
        assert app.wait_end() == 0

    records = cluster.read("word-counts")
    counted = expected.count_words(lines)
    assert final_counts(records) == counted
    assert app.progress["processed_records"] == len(lines) + counted.total()


def test_every_update_of_a_count_adds_to_the_one_before(cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    lines = expected.text_lines()[:600]
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    cluster.write("lines", expected.line_rows(lines), PARTITIONS)

    uncached = {**QUICK, "statestore.cache.max.bytes": 0}
    app = AppProcess(tmp_path / "app", "examples.wordcount", application_id, cluster.address, uncached, until="quiet")
    with app:
        assert app.wait_end() == 0

    updates: dict[str, list[int]] = defaultdict(list)
    for record in cluster.read("word-counts"):
        assert record.key is not None
        updates[record.key.decode()].append(long(record.value))
    # Without a cache each record is an update: 1, 2, 3 and so on, and nothing between is left out.
    assert updates == {word: list(range(1, count + 1)) for word, count in expected.count_words(lines).items()}


@pytest.mark.parametrize("limit", [40_000])
def test_flight_delays_are_exact(cluster: Cluster, tmp_path: Path, application_id: str, limit: int) -> None:
    rows = expected.departures(limit)
    cluster.make_topics(PARTITIONS, "departures", "airlines", "delays")
    cluster.write("airlines", expected.airline_rows(), PARTITIONS)
    cluster.write("departures", expected.departure_rows(rows), PARTITIONS)

    app = AppProcess(tmp_path / "app", "examples.flights", application_id, cluster.address, QUICK, until="quiet")
    with app:
        assert app.wait_end() == 0

    assert final_delays(cluster.read("delays")) == expected.delays_by_hour(rows)


def test_two_processes_share_the_tasks(cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    lines = expected.text_lines()
    first_half, second_half = expected.halves(lines)
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    cluster.write("lines", expected.line_rows(first_half), PARTITIONS)

    def app(name: str) -> AppProcess:
        return AppProcess(tmp_path / name, "examples.wordcount", application_id, cluster.address, QUICK)

    with app("a") as a, app("b") as b:
        a.wait_running(tasks=PARTITIONS)
        b.wait_running(tasks=PARTITIONS)
        cluster.write("lines", expected.line_rows(second_half), PARTITIONS)
        cluster.wait_all_committed(application_id, "lines", f"{application_id}-counts-repartition")
        of_a, of_b = a.tasks("active", "running"), b.tasks("active", "running")
        assert a.terminate() == 0
        assert b.terminate() == 0

    assert len(of_a) == len(of_b) == PARTITIONS
    assert not of_a & of_b
    assert {task.rpartition("_")[2] for task in of_a | of_b} == {str(index) for index in range(PARTITIONS)}
    assert final_counts(cluster.read("word-counts")) == expected.count_words(lines)
    assert a.history[-1]["processed_records"] > 0
    assert b.history[-1]["processed_records"] > 0
