"""The same program in a classic consumer group: two instances, one is killed, and every result is there once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system import expected
from tests.system.cluster import Cluster, Server, connected
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


@pytest.fixture(
    params=[
        "bundled",
        pytest.param("3.9.1", marks=pytest.mark.kafka),
        pytest.param("2.8.2", marks=[pytest.mark.kafka, pytest.mark.full]),
        pytest.param("4.4.0", marks=[pytest.mark.kafka, pytest.mark.full]),
    ]
)
def any_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The bundled broker, and Apache Kafka without streams groups."""
    if request.param == "bundled":
        server: Server = request.getfixturevalue("system_broker")
    elif request.param == "4.4.0":
        server = request.getfixturevalue("apache_kafka")
    else:
        server = request.getfixturevalue("older_kafka")(request.param)
    with connected(server) as found:
        yield found


def test_a_killed_instance_is_replaced_by_the_other_one_and_every_result_is_there_once(
    any_cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    cluster = any_cluster
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
