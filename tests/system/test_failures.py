"""Killed applications and brokers: nothing is lost, and what is counted twice was uncommitted.

At least once: input between the committed offset and the point of a crash may be processed again. How much that was at the
most is known exactly: nobody has processed what was not yet in the log when the killed process was gone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from streamsrt.client.values import TopicPartition
from streamsrt.errors import StreamsError
from tests.system import expected
from tests.system.cluster import Cluster, Record, Row, connected, with_session_timeout
from tests.system.processes import AppProcess, Progress
from tests.system.test_results import PARTITIONS, final_counts, final_delays

QUICK = {"commit.interval.ms": 100, "repartition.purge.interval.ms": 3_600_000}
CHUNK = 250


class Feeder:
    """Writes lines on a thread of its own, over a connection of its own; ``written`` of them are acknowledged."""

    def __init__(self, cluster: Cluster, lines: Sequence[str]) -> None:
        self.written = 0
        self._cluster = cluster
        self._lines = lines
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        pause = threading.Event()
        try:
            with connected(self._cluster.server) as cluster:
                for start in range(0, len(self._lines), CHUNK):
                    part = self._lines[start : start + CHUNK]
                    cluster.write("lines", expected.line_rows(part), PARTITIONS)
                    self.written += len(part)
                    pause.wait(0.02)
        except (StreamsError, AssertionError) as error:
            self._failure = error

    def finish(self) -> None:
        """Wait until everything is written."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure


def word_count(
    cluster: Cluster, folder: Path, application_id: str, *, on_failure: str = "instance", **configs: object
) -> AppProcess:
    settings = {**QUICK, **{key.replace("_", "."): value for key, value in configs.items()}}
    return AppProcess(
        folder, "examples.wordcount", application_id, cluster.address, settings, options=("--on-failure", on_failure)
    )


def repartition_topic(application_id: str) -> str:
    return f"{application_id}-counts-repartition"


def between(
    records: Iterable[Record], topic: str, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
) -> list[Record]:
    """The records of a topic from the committed offsets up to the ends."""
    return [
        record
        for record in records
        if starts.get((topic, record.partition), 0) <= record.offset < ends[topic, record.partition]
    ]


def text_of(records: Iterable[Record]) -> list[str]:
    return [record.value.decode() for record in records if record.value is not None]


def keys_of(records: Iterable[Record]) -> Counter[str]:
    return Counter(record.key.decode() for record in records if record.key is not None)


def test_a_killed_application_is_taken_over(cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    lines = expected.text_lines() * 3
    counts_input = repartition_topic(application_id)
    cluster.make_topics(PARTITIONS, "lines", "word-counts")

    with (
        word_count(cluster, tmp_path / "a", application_id) as a,
        word_count(cluster, tmp_path / "b", application_id) as b,
    ):
        a.wait_running(tasks=PARTITIONS)
        b.wait_running(tasks=PARTITIONS)
        with Feeder(cluster, lines) as feeder:
            a.wait_for(lambda line: line["processed_records"] > 10_000 and line["commits"] > 2, "a works")
            of_a = a.tasks("active")
            a.kill()
            killed_at = feeder.written
            ends = {**cluster.ends("lines"), **cluster.ends(counts_input)}
            committed = cluster.committed(application_id)
            b.wait_for(lambda line: of_a <= set(line["tasks"]), "b takes the tasks over")
            b.wait_running(tasks=2 * PARTITIONS)
            feeder.finish()
        cluster.wait_all_committed(application_id, "lines", counts_input)
        assert b.terminate() == 0
        restored = b.history[-1]["restored_records"]

    assert 0 < killed_at < len(lines)
    assert restored > 0
    written, repartitioned = cluster.read("lines"), cluster.read(counts_input)
    assert Counter(text_of(written)) == Counter(lines)

    exact = expected.count_words(lines)
    counted_twice = expected.count_words(text_of(between(written, "lines", committed, ends)))
    words = keys_of(repartitioned)
    assert exact <= words <= exact + counted_twice
    # What was written to the repartition topic is counted once more only where that was not committed at the kill.
    counts = Counter(final_counts(cluster.read("word-counts")))
    assert words <= counts <= words + keys_of(between(repartitioned, counts_input, committed, ends))


def test_with_all_work_committed_a_kill_changes_nothing(cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    lines = expected.text_lines()
    first_half, second_half = expected.halves(lines)
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    cluster.write("lines", expected.line_rows(first_half), PARTITIONS)

    with (
        word_count(cluster, tmp_path / "a", application_id) as a,
        word_count(cluster, tmp_path / "b", application_id) as b,
    ):
        a.wait_running(tasks=PARTITIONS)
        b.wait_running(tasks=PARTITIONS)
        cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
        a.kill()
        cluster.write("lines", expected.line_rows(second_half), PARTITIONS)
        b.wait_running(tasks=2 * PARTITIONS)
        cluster.wait_all_committed(application_id, "lines", repartition_topic(application_id))
        assert b.terminate() == 0

    assert final_counts(cluster.read("word-counts")) == expected.count_words(lines)


def test_a_killed_application_starts_again_where_it_was(cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    rows = expected.departures(30_000)
    middle = len(rows) // 2
    cluster.make_topics(PARTITIONS, "departures", "airlines", "delays")
    cluster.write("airlines", expected.airline_rows(), PARTITIONS)
    cluster.write("departures", expected.departure_rows(rows[:middle]), PARTITIONS)

    with AppProcess(tmp_path / "app", "examples.flights", application_id, cluster.address, QUICK) as app:
        app.wait_running(tasks=PARTITIONS)
        cluster.wait_all_committed(application_id, "departures", "airlines")
        app.kill()
        cluster.write("departures", expected.departure_rows(rows[middle:]), PARTITIONS)
        app.start()
        app.wait_running(tasks=PARTITIONS)
        cluster.wait_all_committed(application_id, "departures", "airlines")
        assert app.terminate() == 0
        assert app.history[-1]["processed_records"] == len(rows) - middle

    assert final_delays(cluster.read("delays")) == expected.delays_by_hour(rows)


def test_a_killed_broker_loses_nothing_and_applications_go_on(
    cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    lines = expected.text_lines() * 3
    counts_input = repartition_topic(application_id)
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    # The members outlive the outage: else their tasks would go to others in between, which is another test's matter.
    session = with_session_timeout(cluster, application_id, 45_000)

    with (
        word_count(cluster, tmp_path / "a", application_id, on_failure="instance", **session) as a,
        word_count(cluster, tmp_path / "b", application_id, on_failure="instance", **session) as b,
    ):
        a.wait_running(tasks=PARTITIONS)
        b.wait_running(tasks=PARTITIONS)
        with Feeder(cluster, lines) as feeder:
            a.wait_for(lambda line: line["processed_records"] > 5_000 and line["commits"] > 2, "a works")
            cluster.server.kill()
            acknowledged = feeder.written
            cluster.server.start()
            feeder.finish()
        cluster.wait_all_committed(application_id, "lines", counts_input)
        assert a.terminate() == 0
        assert b.terminate() == 0

    assert 0 < acknowledged < len(lines)
    # The feeder's producer is idempotent: each line is there once, whatever it had to send again.
    assert Counter(text_of(cluster.read("lines"))) == Counter(lines)
    assert "all tasks are lost" not in a.stderr + b.stderr
    exact = expected.count_words(lines)
    assert keys_of(cluster.read(counts_input)) == exact
    assert final_counts(cluster.read("word-counts")) == exact


def test_a_stopped_application_commits_leaves_and_goes_on(
    cluster: Cluster, tmp_path: Path, application_id: str
) -> None:
    lines = expected.text_lines()
    first_half, second_half = expected.halves(lines)
    counts_input = repartition_topic(application_id)
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    cluster.write("lines", expected.line_rows(first_half), PARTITIONS)

    with word_count(cluster, tmp_path / "app", application_id, commit_interval_ms=600_000) as app:
        app.wait_for(
            lambda line: line["processed_records"] == len(first_half) + expected.count_words(first_half).total(),
            "all is processed",
        )
        assert app.progress["commits"] == 0
        assert app.terminate() == 0
        assert cluster.members(application_id) == []
        assert cluster.committed(application_id) == {**cluster.ends("lines"), **cluster.ends(counts_input)}
        assert final_counts(cluster.read("word-counts")) == expected.count_words(first_half)

        cluster.write("lines", expected.line_rows(second_half), PARTITIONS)
        app.start()
        done = app.wait_for(
            lambda line: line["processed_records"] >= len(second_half) + expected.count_words(second_half).total(),
            "the rest is processed",
        )
        assert done["restored_records"] == 0
        assert app.terminate() == 0
        last = app.history[-1]

    assert last["processed_records"] == len(second_half) + expected.count_words(second_half).total()
    assert final_counts(cluster.read("word-counts")) == expected.count_words(lines)


def test_a_standby_takes_over_with_what_it_has(cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    lines = expected.text_lines()
    first_half, second_half = expected.halves(lines)
    counts_input = repartition_topic(application_id)
    changelog = f"{application_id}-counts-changelog"
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    cluster.write("lines", expected.line_rows(first_half), PARTITIONS)

    def app(name: str) -> AppProcess:
        return word_count(cluster, tmp_path / name, application_id, num_standby_replicas=1)

    with app("a") as a:
        a.wait_running(tasks=2 * PARTITIONS)
        with app("b") as b:
            b.wait_running(tasks=PARTITIONS)
            b.wait_for(lambda line: bool(_standbys(line)), "b has standby tasks")
            cluster.wait_all_committed(application_id, "lines", counts_input)
            ends = {str(partition): end for (_, partition), end in cluster.ends(changelog).items()}
            b.wait_for(lambda line: _followed(line, ends), "the standby tasks have followed their changelogs")
            before = b.progress["restored_records"]
            standbys = _standbys(b.progress)
            a.kill()
            b.wait_running(tasks=2 * PARTITIONS)
            taken_over = b.progress["restored_records"] - before
            cluster.write("lines", expected.line_rows(second_half), PARTITIONS)
            cluster.wait_all_committed(application_id, "lines", counts_input)
            assert b.tasks("active") >= standbys
            assert b.terminate() == 0

    assert sum(ends[task.rpartition("_")[2]] for task in standbys) > 0
    # The changelogs of the tasks that it took over were in its stores to the last record: nothing was left to restore.
    assert taken_over == 0
    assert final_counts(cluster.read("word-counts")) == expected.count_words(lines)


def _standbys(line: Progress) -> set[str]:
    return {task for task, is_now in line["tasks"].items() if is_now == "standby standby"}


def _followed(line: Progress, ends: Mapping[str, int]) -> bool:
    """Whether there are standby tasks with a store, and all of them are at the ends of their changelogs."""
    positions = {place.partition("/")[0]: position for place, position in line["positions"].items()}
    standbys = _standbys(line) & positions.keys()
    return bool(standbys) and all(positions[task] == ends[task.rpartition("_")[2]] for task in standbys)


def test_one_instance_that_fails_may_end_all_of_them(cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    cluster.make_topics(PARTITIONS, "lines", "word-counts")
    apps = [word_count(cluster, tmp_path / name, application_id, on_failure="application") for name in ("a", "b")]
    with apps[0], apps[1]:
        for app in apps:
            app.wait_running()
        cluster.write("lines", [Row(None, b"\xff\xfe", 1)], 1, partition=0)
        codes = sorted(app.wait_end() for app in apps)
        said = "".join(app.last_words for app in apps)
    # One meets the poison record; the other is asked to stop.
    assert codes == [5, 7]
    assert "requested a shutdown for the entire application" in said
