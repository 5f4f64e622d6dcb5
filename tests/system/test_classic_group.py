"""The same program in a classic consumer group: two instances, one is killed, and every result is there once."""

from __future__ import annotations

from pathlib import Path

from tests.system import expected
from tests.system.cluster import Cluster
from tests.system.processes import AppProcess
from tests.system.storm import EXACTLY_ONCE
from tests.system.test_failures import repartition_topic
from tests.system.test_results import PARTITIONS, final_counts

CLASSIC = {
    **EXACTLY_ONCE,
    "group.protocol": "classic",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
}


def test_a_killed_instance_is_replaced_by_the_other_one_and_every_result_is_there_once(
    cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    lines = expected.text_lines()[:2_000]
    first_half, second_half = expected.halves(lines)
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    one, other = (
        AppProcess(tmp_path / name, "examples.wordcount", application_id, cluster.address, CLASSIC)
        for name in ("one", "other")
    )
    with one:
        one.wait_running(tasks=2 * PARTITIONS)
        cluster.write("lines", expected.line_rows(first_half), PARTITIONS)
        cluster.wait_all_committed(application_id, "lines")
        with other:
            other.wait_running(tasks=PARTITIONS)
            one.wait_for(lambda line: len(line["tasks"]) <= PARTITIONS, "it has given tasks away")
            cluster.write("lines", expected.line_rows(second_half), PARTITIONS)
            one.kill()
            other.wait_running(tasks=2 * PARTITIONS)
            cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
            assert other.terminate() == 0
    counted = expected.count_words(lines)
    records = cluster.read("word-counts")
    assert final_counts(records) == counted
    assert len(records) == counted.total(), "every update once"
