"""``streamsrt groups``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.cli.offsets_backup import offsets_to_restore, write_backup
from streamsrt.client.values import OffsetAndMetadata
from streamsrt.errors import ConfigError
from streamsrt.runtime.values import State
from tests.fixtures_brokers import QUICK_GROUPS, BundledBroker
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
    assert rows[1]["leader_epoch"] is None
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


def test_offsets_that_could_not_be_committed_again_are_taken_from_the_backup(command: Command, tmp_path: Path) -> None:
    """A broker that takes no metadata refuses the commit that comes after the deletion."""
    backup, folder = tmp_path / "backup.json", tmp_path / "broker"
    broker = BundledBroker(folder)
    with _started(broker):
        address = broker.bootstrap_servers
        command("topics", "create", "in", "out", "--partitions", 2, "-b", address)
        command("produce", "in", "--key-separator", ":", "-b", address, stdin="a:1\nb:2\nc:3\n")
        builder = StreamsBuilder()
        builder.stream("in").to("out")
        config = {"application.id": "shop", "bootstrap.servers": address, "state.dir": tmp_path / "state"}
        KafkaStreams(builder.build(), config).run(until="quiet")
    forget = ("groups", "forget-topology", "shop", "--backup", backup)
    strict = BundledBroker(folder, {**QUICK_GROUPS, "offset.metadata.max.bytes": "0"})
    with _started(strict):
        done = command(*forget, "--execute", "-b", strict.bootstrap_servers)
        assert done.code != 0
        assert f"is deleted, and what it had committed (1 offset) is only in {backup} now" in done.err
        assert command("groups", "list", "--json", "-b", strict.bootstrap_servers).rows == []
    with _started(broker):
        address = broker.bootstrap_servers
        shown = command(*forget, "-b", address)
        assert (shown.code, f"would commit 1 offset of {backup}" in shown.err) == (0, True)
        done = command(*forget, "--execute", "-b", address)
        assert (done.code, "group shop no longer has a topology; unchanged: 1 offset" in done.err) == (0, True)
        rows = command("groups", "describe", "shop", "--json", "-b", address).rows
        assert [(row["partition"], row["current_offset"]) for row in rows] == [(0, 3)]
        assert command("groups", "delete", "shop", "--execute", "-b", address).code == 0
        again = command(*forget, "--execute", "-b", address)
        assert (again.code, "no such group: shop" in again.err) == (2, True), "a backup is used once"


def test_a_backup_is_not_overwritten_by_other_offsets(tmp_path: Path) -> None:
    path = tmp_path / "backup.json"
    old = {("in", 0): OffsetAndMetadata(3, "x"), ("in", 1): OffsetAndMetadata(4)}
    write_backup(path, "shop", old, is_committed=False)
    assert offsets_to_restore(path, "shop", {}) == old
    assert offsets_to_restore(path, "shop", {("in", 1): OffsetAndMetadata(4)}) == old
    assert offsets_to_restore(path, "shop", old) is None
    assert offsets_to_restore(path, "another", {}) is None
    with pytest.raises(ConfigError, match="the group has others now"):
        offsets_to_restore(path, "shop", {("in", 0): OffsetAndMetadata(1)})


@contextmanager
def _started(broker: BundledBroker) -> Iterator[None]:
    broker.start()
    try:
        yield
    finally:
        broker.stop()


def test_an_unknown_view(on_broker: Command) -> None:
    done = on_broker("groups", "describe", "x", "--view", "everything")
    assert done.code == 2
    assert "give one of offsets, members, state, rebalances" in done.err
