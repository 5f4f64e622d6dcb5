"""The lag that an instance shows: what is known, and what waits when it stops."""

from __future__ import annotations

from pathlib import Path

from streamsrt.app import KafkaStreams
from streamsrt.runtime.task_table import task_table
from streamsrt.runtime.values import Progress, State, TaskProgress, total_of
from tests.fixtures_brokers import BundledBroker
from tests.system.cluster import Row, connected
from tests.system.processes import wait_until
from topology import StreamsBuilder


def task(lag: int, *, is_known: bool = True) -> TaskProgress:
    return TaskProgress("0_0", "active", "running", lag, -1, {}, lag_is_known=is_known)


def test_a_lag_that_is_not_known_is_not_shown_as_none() -> None:
    assert Progress().lag_text == ""
    assert Progress(tasks=(task(0), task(7))).lag_text == "lag 7"
    unknown = Progress(tasks=(task(0, is_known=False), task(7)))
    assert unknown.lag_text == "lag unknown"
    table = task_table(State.RUNNING, unknown)
    assert (table.title, [row[5] for row in table.rows]) == ("RUNNING: 0 records processed, lag unknown", ["?", "7"])


def test_what_is_left_when_stream_threads_end_is_added_up() -> None:
    ended = [Progress(tasks=(task(lag),)).of_the_past() for lag in (4, 5)]
    assert total_of(State.NOT_RUNNING, ended).lag_text == "lag 9"
    assert total_of(State.NOT_RUNNING, [*ended, Progress()]).lag_text == ""


def test_an_instance_that_has_stopped_shows_what_it_left(tmp_path: Path, bundled_broker: BundledBroker) -> None:
    name = tmp_path.name
    builder = StreamsBuilder()
    builder.stream(f"{name}-in").to(f"{name}-out")
    with connected(bundled_broker) as cluster:
        cluster.make_topics(2, f"{name}-in", f"{name}-out")
        config = {"application.id": name, "bootstrap.servers": cluster.address, "state.dir": tmp_path}
        with KafkaStreams(builder.build(), config) as streams:
            wait_until(lambda: streams.progress.lag_text == "lag 0", "the ends of empty partitions are known")
            streams.pause()
            cluster.write(f"{name}-in", [Row(b"k", b"v", 1)] * 5, 2, partition=1)
            wait_until(lambda: streams.progress.lag_records == 5, "the records are waiting")
        assert streams.progress.tasks == ()
        assert streams.progress.lag_text == "lag 5"


def test_what_was_processed_since_the_last_look_is_not_left(tmp_path: Path, bundled_broker: BundledBroker) -> None:
    name, streams = tmp_path.name, list[KafkaStreams]()
    seen: list[object] = []

    def see(_key: object, value: object) -> None:
        seen.append(value)
        if len(seen) == 5:
            streams[0].stop()

    builder = StreamsBuilder()
    builder.stream(f"{name}-in").foreach(see)
    with connected(bundled_broker) as cluster:
        cluster.make_topics(2, f"{name}-in")
        config = {"application.id": name, "bootstrap.servers": cluster.address, "state.dir": tmp_path}
        streams.append(KafkaStreams(builder.build(), config))
        with streams[0] as running:
            wait_until(lambda: running.progress.lag_text == "lag 0", "the ends of empty partitions are known")
            running.pause()
            cluster.write(f"{name}-in", [Row(b"k", b"v", 1)] * 5, 2, partition=1)
            wait_until(lambda: running.progress.lag_records == 5, "the records are waiting")
            running.resume()
            wait_until(lambda: running.state is State.NOT_RUNNING, "it has stopped by itself")
        assert (len(seen), running.progress.lag_text) == (5, "lag 0")
