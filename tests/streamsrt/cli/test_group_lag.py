"""The offsets and the lag that ``streamsrt groups describe`` shows."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.runtime.values import State
from tests.streamsrt.cli.conftest import Command, Done
from topology import StreamsBuilder, serdes

PATIENCE_S = 90


@pytest.fixture
def on_broker(command: Command, bootstrap_servers: str) -> Command:
    """Runs one command with the address of either broker."""

    def run(*arguments: object, stdin: str | bytes = b"") -> Done:
        return command(*arguments, "-b", bootstrap_servers, stdin=stdin)

    return run


def counting(bootstrap_servers: str, topic: str, path: Path, **more: Any) -> KafkaStreams:
    builder = StreamsBuilder()
    stream = builder.stream(topic, key=serdes.string, value=serdes.string)
    stream.group_by(lambda _, value: value, name="by").count(store="counts").to_stream().foreach(lambda *_: None)
    config = {"application.id": f"{topic}-app", "bootstrap.servers": bootstrap_servers, "state.dir": path}
    return KafkaStreams(builder.build(), config | {"group.protocol": "streams"} | more.pop("config", {}), **more)


def told(on_broker: Command, topic: str) -> dict[tuple[str, int], tuple[object, object]]:
    """By topic and partition the current offset and the lag."""
    rows = on_broker("groups", "describe", f"{topic}-app", "--json").rows
    return {(row["topic"], row["partition"]): (row["current_offset"], row["offset_lag"]) for row in rows}


def test_the_lag_of_a_partition_without_a_commit_is_what_it_holds(
    on_broker: Command, bootstrap_servers: str, topic: str, tmp_path: Path
) -> None:
    on_broker("topics", "create", topic, "--partitions", 2)
    # By murmur2, a and d are of different partitions.
    on_broker("produce", topic, "--key-separator", ":", stdin="a:1\n")
    counting(bootstrap_servers, topic, tmp_path).run(until="quiet")
    on_broker("produce", topic, "--key-separator", ":", stdin="d:1\nd:2\nd:3\n")
    repartition = f"{topic}-app-by-repartition"
    rows = told(on_broker, topic)
    assert {at for at in rows if at[0] == topic} == {(topic, 0), (topic, 1)}
    assert {rows[topic, 0], rows[topic, 1]} == {(1, 0), ("-", 3)}
    assert {rows[repartition, 0][1], rows[repartition, 1][1]} == {0}
    # Where a repartition topic begins is committed before it is read.
    assert 0 in {rows[repartition, 0][0], rows[repartition, 1][0]}


def test_members_of_a_classic_group_read_what_they_are_assigned(
    on_broker: Command, bootstrap_servers: str, topic: str, tmp_path: Path
) -> None:
    on_broker("topics", "create", topic, "--partitions", 2)
    running = threading.Event()
    streams = counting(
        bootstrap_servers,
        topic,
        tmp_path,
        config={"group.protocol": "classic"},
        state_listener=lambda new, _: running.set() if new is State.RUNNING else None,
    )
    with streams:
        assert running.wait(PATIENCE_S)
        rows = told(on_broker, topic)
    assert {rows[topic, 0], rows[topic, 1]} == {("-", 0)}
    assert set(rows.values()) == {("-", 0), (0, 0)}
