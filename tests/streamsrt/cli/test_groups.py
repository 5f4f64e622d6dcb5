"""``streamsrt groups``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.runtime.values import State
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.cli.conftest import Command
from topology import StreamsBuilder

PATIENCE_S = 30.0


@pytest.fixture
def group(on_broker: Command, bundled_broker: BundledBroker, topic: str, tmp_path: Path) -> Iterator[str]:
    """A running application that has committed three records of two partitions."""
    on_broker("topics", "create", topic, f"{topic}-out", "--partitions", 2)
    on_broker("produce", topic, "--key-separator", ":", stdin="a:1\nb:2\nc:3\n")
    builder = StreamsBuilder()
    builder.stream(topic).to(f"{topic}-out")
    running = threading.Event()
    config = {
        "application.id": f"{topic}-app",
        "bootstrap.servers": bundled_broker.bootstrap_servers,
        "state.dir": tmp_path,
        "commit.interval.ms": 50,
        "topology.epoch": 3,
    }
    streams = KafkaStreams(
        builder.build(), config, state_listener=lambda new, _: running.set() if new is State.RUNNING else None
    )
    with streams:
        assert running.wait(PATIENCE_S)
        pause = threading.Event()
        for _ in range(600):
            if streams.progress.commits:
                break
            pause.wait(0.05)
        yield f"{topic}-app"


def test_list(on_broker: Command, group: str) -> None:
    rows = [row for row in on_broker("groups", "list", "--json").rows if row["group"] == group]
    assert rows == [{"group": group, "type": "streams", "protocol": "streams", "state": "Stable"}]


def test_describe_offsets(on_broker: Command, group: str, topic: str) -> None:
    rows = on_broker("groups", "describe", group, "--json").rows
    assert [row["current_offset"] for row in rows] == [3, "-"]
    assert {row["topic"] for row in rows} == {topic}
    assert all(row["offset_lag"] == 0 for row in rows)
    short = on_broker("groups", "describe", group).out.splitlines()[0].split()
    assert short == ["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"]
    verbose = on_broker("groups", "describe", group, "--verbose").out.splitlines()[0].split()
    assert verbose == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG"]


def test_describe_members_and_state(on_broker: Command, group: str) -> None:
    members = on_broker("groups", "describe", group, "--view", "members", "--json").rows
    assert len(members) == 1
    assert "ACTIVE:" in members[0]["assignments"]
    assert ":[0, 1];" in members[0]["assignments"]
    state = on_broker("groups", "describe", group, "--view", "state", "--json").rows
    assert (state[0]["state"], state[0]["topology_epoch"], state[0]["members"]) == ("Stable", 3, 1)
    short = on_broker("groups", "describe", group, "--view", "state").out.splitlines()[0].split()
    assert short == ["GROUP", "STATE", "TOPOLOGY-EPOCH", "MEMBERS"]


def test_describe_why_tasks_moved(on_broker: Command, group: str) -> None:
    rows = on_broker("groups", "describe", group, "--view", "rebalances", "--json").rows
    assert rows[0]["epoch"] == 2
    assert rows[0]["why"].startswith("member ")
    assert rows[0]["why"].endswith(" joined")
    moves = [move for row in rows for move in row["moves"].split(", ")]
    assert len([move for move in moves if ": nobody -> " in move]) == 2


def test_a_group_with_members_is_not_deleted(on_broker: Command, group: str) -> None:
    assert f"would delete {group}" in on_broker("groups", "delete", group).err
    done = on_broker("groups", "delete", group, "--execute")
    assert done.code == 2
    assert done.err.count(f"Group '{group}' was not deleted") == 1
    assert group in on_broker("groups", "list").out


def test_a_group_that_is_not_there(on_broker: Command) -> None:
    commands = [
        *(("describe", "nobody", "--view", view) for view in ("offsets", "members", "state", "rebalances")),
        ("forget-topology", "nobody"),
        ("reset-offsets", "nobody", "--to-earliest"),
    ]
    for arguments in commands:
        done = on_broker("groups", *arguments)
        assert done.code == 2, arguments
        assert done.err == "streamsrt: no such group: nobody (streamsrt groups list shows all groups)\n"


def test_a_backup_that_cannot_be_written_is_told(on_broker: Command, group: str) -> None:
    done = on_broker("groups", "forget-topology", group, "--execute", "--backup", "/no/such/directory/offsets.json")
    assert done.code == 2
    assert done.err == "streamsrt: /no/such/directory/offsets.json: No such file or directory\n"


def test_an_unknown_view(on_broker: Command) -> None:
    done = on_broker("groups", "describe", "x", "--view", "everything")
    assert done.code == 2
    assert "give one of offsets, members, state, rebalances" in done.err
