"""The same program in a classic consumer group: two instances, one is killed, and every result is there once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.system import expected
from tests.system.cluster import Cluster, Row, Server, connected
from tests.system.processes import CLASSIC_SETTINGS, AppProcess, wait_until
from tests.system.storm import EXACTLY_ONCE
from tests.system.test_failures import repartition_topic
from tests.system.test_results import PARTITIONS, final_counts
from tests.system.test_warm_up import when

CLASSIC = {**EXACTLY_ONCE, **CLASSIC_SETTINGS}


def word_count(cluster: Cluster, folder: Path, application_id: str, **settings: object) -> AppProcess:
    configs = {**CLASSIC, **{key.replace("_", "."): value for key, value in settings.items()}}
    return AppProcess(folder, "examples.wordcount", application_id, cluster.address, configs)


def two_halves(cluster: Cluster, count: int) -> Iterator[Sequence[str]]:
    """So many lines of text, and the topics that a word count needs."""
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    return expected.halves(expected.text_lines()[:count])


def assert_each_update_once(cluster: Cluster, count: int) -> None:
    """The counts of so many lines are there, and no update is there twice."""
    counted = expected.count_words(expected.text_lines()[:count])
    records = cluster.read("word-counts")
    assert final_counts(records) == counted
    assert len(records) == counted.total()


@pytest.mark.slow
def test_a_killed_instance_is_replaced_by_the_other_one_and_every_result_is_there_once(
    any_cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    cluster = any_cluster
    first_half, second_half = two_halves(cluster, 2_000)
    one, other = (word_count(cluster, tmp_path / name, application_id) for name in ("one", "other"))
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
    assert_each_update_once(cluster, 2_000)


@pytest.mark.slow
def test_a_static_member_that_is_killed_and_comes_back_goes_on_before_its_session_ends(
    any_cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    cluster = any_cluster
    first_half, second_half = two_halves(cluster, 2_000)
    one, other = (
        word_count(cluster, tmp_path / name, application_id, group_instance_id=name, session_timeout_ms=120_000)
        for name in ("one", "other")
    )
    with one, other:
        one.wait_running(tasks=PARTITIONS)
        other.wait_running(tasks=PARTITIONS)
        for app in (one, other):
            app.wait_for(lambda line: len(line["tasks"]) == PARTITIONS, "it has half of the tasks")
        cluster.write("lines", expected.line_rows(first_half), PARTITIONS)
        cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
        had = {app: app.progress["tasks"].keys() for app in (one, other)}
        for app in (one, other):
            app.kill()
            started = time.monotonic()
            app.start()
            app.wait_running(tasks=PARTITIONS)
            assert time.monotonic() - started < 100, "it has waited for its own session to end"
            assert app.progress["tasks"].keys() == had[app]
        cluster.write("lines", expected.line_rows(second_half), PARTITIONS)
        cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
        assert one.terminate() == 0
        assert other.terminate() == 0
    assert_each_update_once(cluster, 2_000)


def test_tasks_move_once_their_state_is_there(any_cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    cluster = any_cluster
    first_half, second_half = two_halves(cluster, 4_000)
    cluster.write("lines", expected.line_rows(first_half), PARTITIONS)
    a, b = (
        word_count(cluster, tmp_path / name, application_id, acceptable_recovery_lag=0, max_warmup_replicas=1)
        for name in ("a", "b")
    )
    inputs = ("lines", repartition_topic(application_id))
    with a:
        a.wait_running(tasks=2 * PARTITIONS)
        cluster.wait_all_committed(application_id, *inputs)
        with b:
            wait_until(
                lambda: len(a.tasks("active", "running")) == len(b.tasks("active", "running")) == PARTITIONS,
                "both have half of the tasks",
                timeout_s=300,
            )
            cluster.write("lines", expected.line_rows(second_half), PARTITIONS)
            cluster.wait_all_committed(application_id, *inputs)
            warmed, closed = when(b, "opened as warmup"), when(a, "closed")
            assert when(b, "promoted from warmup").keys() == warmed.keys() != set()
            assert all(warmed[task] <= closed[task] for task in warmed)
            assert a.terminate() == 0
            b.wait_running(tasks=2 * PARTITIONS)
            assert b.terminate() == 0
    assert_each_update_once(cluster, 4_000)


@pytest.mark.slow
def test_members_roll_to_the_next_topology_epoch_and_others_are_refused(
    any_cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    cluster = any_cluster
    first_half, second_half = two_halves(cluster, 2_000)

    def instance(name: str, epoch: int) -> AppProcess:
        return word_count(cluster, tmp_path / name, application_id, topology_epoch=epoch)

    with instance("a", 0) as a, instance("b", 0) as b:
        a.wait_running(tasks=PARTITIONS)
        b.wait_running(tasks=PARTITIONS)
        cluster.write("lines", expected.line_rows(first_half), PARTITIONS)
        with instance("c", 2) as ahead:
            assert ahead.wait_end() == 2
            assert "topology epoch 2 does not fit" in ahead.last_words
        assert b.terminate() == 0
        with instance("b", 1) as b_new:
            b_new.wait_running(tasks=1)
            assert a.terminate() == 0
            with instance("a", 1) as a_new:
                a_new.wait_running(tasks=PARTITIONS)
                with instance("d", 0) as behind:
                    assert behind.wait_end() == 2
                    assert "newer than 0" in behind.last_words
                cluster.write("lines", expected.line_rows(second_half), PARTITIONS)
                cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
                assert a_new.terminate() == 0
                assert b_new.terminate() == 0
    assert_each_update_once(cluster, 2_000)


@pytest.mark.slow
def test_a_leader_that_dies_before_it_has_assigned_costs_nobody_a_task(
    any_cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    """The others wait for its SyncGroup, are told to join again when its session has ended, and go on meanwhile."""
    cluster = any_cluster
    first_half, second_half = two_halves(cluster, 2_000)

    def instance(name: str, dies_leading: int = 0) -> AppProcess:
        surroundings = {"DIES_LEADING": str(dies_leading)}
        application, address = "tests.system.leaderless_app", cluster.address
        # On a busy machine nobody is to be taken for dead but the one that is.
        settings = CLASSIC if dies_leading else {**CLASSIC, "session.timeout.ms": 45_000}
        return AppProcess(tmp_path / name, application, application_id, address, settings, surroundings=surroundings)

    with instance("leader", 3) as leader:
        leader.wait_running(tasks=2 * PARTITIONS)
        with instance("b") as b:
            wait_until(
                lambda: len(leader.tasks("active", "running")) == len(b.tasks("active", "running")) == PARTITIONS,
                "both have half of the tasks",
                timeout_s=300,
            )
            cluster.write("lines", expected.line_rows(first_half), PARTITIONS)
            with instance("c") as c:
                assert leader.wait_end() == -9
                cluster.write("lines", expected.line_rows(second_half), PARTITIONS)
                wait_until(
                    lambda: len({*b.tasks("active", "running"), *c.tasks("active", "running")}) == 2 * PARTITIONS,
                    "they have what it had",
                    timeout_s=300,
                )
                cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
                assert "all tasks are lost" not in b.stderr
                assert c.terminate() == 0
            b.wait_running(tasks=2 * PARTITIONS)
            assert b.terminate() == 0
    assert_each_update_once(cluster, 2_000)


@pytest.mark.kafka
def test_a_member_of_the_other_protocol_is_told_what_the_group_is(
    apache_kafka: Server, tmp_path: Path, application_id: str
) -> None:
    """The bundled broker takes it into the group."""
    with connected(apache_kafka) as cluster:
        cluster.make_topics(PARTITIONS, "lines", "word-counts")
        with word_count(cluster, tmp_path / "one", application_id, group_protocol="streams") as one:
            one.wait_running(tasks=PARTITIONS)
            with word_count(cluster, tmp_path / "other", application_id) as other:
                assert other.wait_end() != 0
                assert "group.protocol=streams" in other.last_words
            assert one.terminate() == 0


BY_PATTERN = """
import re

from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
builder.stream(re.compile("{prefix}-.*"), value=serdes.string).map_values(str.upper).to("loud")
topology = builder.build()
"""


def test_topics_of_a_pattern_are_read_also_when_they_come_later(
    any_cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    cluster = any_cluster
    prefix = f"in-{application_id}"
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "by_pattern.py").write_text(BY_PATTERN.format(prefix=prefix), encoding="utf-8")
    cluster.make_topics(1, f"{prefix}-1", "loud")
    settings = {**CLASSIC, "metadata.max.age.ms": 1_000}
    with AppProcess(tmp_path / "app", "by_pattern", application_id, cluster.address, settings, cwd=folder) as app:
        app.wait_running(tasks=1)
        cluster.write(f"{prefix}-1", [Row(None, b"early", 0)], 1)
        cluster.wait_all_committed(application_id, f"{prefix}-1")
        cluster.make_topics(2, f"{prefix}-2")
        cluster.write(f"{prefix}-2", [Row(None, b"late", 0)], 2, partition=1)
        cluster.wait_all_committed(application_id, f"{prefix}-1", f"{prefix}-2")
        assert app.terminate() == 0
    assert [record.value for record in cluster.read("loud")] == [b"EARLY", b"LATE"]
