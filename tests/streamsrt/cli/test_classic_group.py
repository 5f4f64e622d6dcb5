"""``streamsrt groups`` on an application in a classic group, over brokers of several versions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.runtime.values import State
from tests.streamsrt.cli.conftest import Command, Done
from topology import StreamsBuilder

PATIENCE_S = 60.0


@pytest.fixture
def on_broker(command: Command, any_version: str) -> Command:
    def run(*arguments: object, stdin: str | bytes = b"") -> Done:
        return command(*arguments, "-b", any_version, stdin=stdin)

    return run


@pytest.fixture
def streams(on_broker: Command, any_version: str, topic: str, tmp_path: Path) -> Iterator[KafkaStreams]:
    """A running application that has committed three records of two partitions."""
    on_broker("topics", "create", topic, f"{topic}-out", "--partitions", 2)
    on_broker("produce", topic, "--key-separator", ":", stdin="a:1\nb:2\nc:3\n")
    builder = StreamsBuilder()
    builder.stream(topic).to(f"{topic}-out")
    running, pause = threading.Event(), threading.Event()
    config = {
        "application.id": f"{topic}-app",
        "bootstrap.servers": any_version,
        "state.dir": tmp_path,
        "commit.interval.ms": 50,
        "topology.epoch": 3,
        "group.protocol": "classic",
    }

    def listen(new: State, _: State) -> None:
        if new is State.RUNNING:
            running.set()

    with KafkaStreams(builder.build(), config, state_listener=listen) as started:
        assert running.wait(PATIENCE_S)
        for _ in range(600):
            if started.progress.commits:
                break
            pause.wait(0.05)
        yield started


def test_a_classic_group_is_described_and_its_offsets_are_set_when_it_has_stopped(
    on_broker: Command, streams: KafkaStreams, topic: str
) -> None:
    group = f"{topic}-app"
    (listed,) = [row for row in on_broker("groups", "list", "--json").rows if row["group"] == group]
    assert listed == {"group": group, "type": "classic", "protocol": "consumer", "state": "Stable"}
    (member,) = on_broker("groups", "describe", group, "--view", "members", "--verbose", "--json").rows
    assert member["assignments"].startswith("ACTIVE: ")
    assert member["assignments"].count(":[0, 1];") == 2, "tasks and target"
    assert member["topology_epoch"] == 3
    (state,) = on_broker("groups", "describe", group, "--view", "state", "--json").rows
    assert (state["state"], state["topology_epoch"], state["members"]) == ("Stable", 3, 1)
    rebalances = on_broker("groups", "describe", group, "--view", "rebalances", "--json").rows
    assert all(row["epoch"] == member["target_assignment_epoch"] for row in rebalances)
    refused = on_broker("groups", "reset-offsets", group, "--to-earliest")
    assert refused.code == 2
    assert f"group '{group}' has 1 members: stop all instances" in refused.err
    unknown = on_broker("topology", "diff", "examples.flights", "--group", group)
    assert unknown.code == 2
    assert (
        f"group '{group}' is a classic group, whose topology only its members know: give the version that runs"
        in unknown.err
    )
    streams.close()
    rows = on_broker("groups", "reset-offsets", group, "--to-earliest", "--execute", "--json").rows
    assert [(row["partition"], row["new_offset"]) for row in rows] == [(0, 0), (1, 0)]
    offsets = on_broker("groups", "describe", group, "--json").rows
    assert [row["current_offset"] for row in offsets] == [0, 0]
    (state,) = on_broker("groups", "describe", group, "--view", "state", "--json").rows
    assert (state["state"], state["topology_epoch"], state["members"]) == ("Empty", "-", 0)
