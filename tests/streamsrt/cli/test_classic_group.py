"""``streamsrt groups`` on an application in a classic group, over brokers of several versions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.cli.classic_group import classic_members, classic_rebalances
from streamsrt.membership.classic.layout import encode_assignment, encode_subscription
from streamsrt.membership.classic.stream_layout import Hosts, UserDataVersions, encode_stream_assignment
from streamsrt.membership.classic.values import NO_PROCESS, ClassicAssignment, ClassicSubscription, Echo
from streamsrt.membership.values import Tasks
from streamsrt.runtime.values import State
from streamsrt.wire.messages import encode_record_value
from streamsrt.wire.types import ConsumerProtocolAssignment, DescribeGroupsResponse
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
    assert member["member_epoch"] == member["target_assignment_epoch"]
    (rebalance,) = on_broker("groups", "describe", group, "--view", "rebalances", "--json").rows
    assert rebalance["epoch"] == member["member_epoch"]
    assert f"member {member['member']} (127.0.0.1) joined" in rebalance["why"] or rebalance["moves"] == "no task moves"
    assert rebalance["moves"] == "no task moves" or rebalance["moves"].count(f"nobody -> {member['member']}") == 2
    refused = on_broker("groups", "reset-offsets", group, "--to-earliest")
    assert refused.code == 2
    assert f"group '{group}' has 1 member: stop all instances" in refused.err
    other = on_broker("topology", "diff", "examples.flights", "--group", group)
    assert other.code == 11, "its member tells what it runs"
    streams.close()
    rows = on_broker("groups", "reset-offsets", group, "--to-earliest", "--execute", "--json").rows
    assert [(row["partition"], row["new_offset"]) for row in rows] == [(0, 0), (1, 0)]
    offsets = on_broker("groups", "describe", group, "--json").rows
    assert [row["current_offset"] for row in offsets] == [0, 0]
    (state,) = on_broker("groups", "describe", group, "--view", "state", "--json").rows
    assert (state["state"], state["topology_epoch"], state["members"]) == ("Empty", "-", 0)
    unknown = on_broker("topology", "diff", "examples.flights", "--group", group)
    assert unknown.code == 2
    assert (
        f"group '{group}' is a classic group, whose topology is known only to its members, and no running one tells "
        "it: give the running version" in unknown.err
    )


def described(*members: tuple[str, Tasks | None, Tasks], why: str = "") -> DescribeGroupsResponse.DescribedGroup:
    """A stable group of generation 8: who was told what in generation 7, and what now."""
    kind = DescribeGroupsResponse.DescribedGroupMember
    made = []
    for name, before, now in members:
        echo = None if before is None else Echo(7, 3, bytes(16), before)
        said = ClassicSubscription(process_id=NO_PROCESS, topology_epoch=3, topology_digest=bytes(16), echo=echo)
        told = ClassicAssignment(generation=8, group_epoch=3, tasks=now, target=now, why=why)
        made.append(
            kind(
                member_id=name,
                client_host="/10.0.0.1",
                member_metadata=encode_subscription(said),
                member_assignment=encode_assignment(told),
            )
        )
    return DescribeGroupsResponse.DescribedGroup(
        group_id="g", group_state="Stable", protocol_data="streamsrt-1", members=made
    )


def tasks(active: str = "", warmup: str = "") -> Tasks:
    roles = [frozenset(("0", int(number)) for number in role.split()) for role in (active, warmup)]
    return Tasks(roles[0], frozenset(), roles[1])


def test_what_moved_with_the_last_rebalance_is_told_as_of_a_streams_group() -> None:
    group = described(("a", tasks("0 1 2", ""), tasks("0 1")), ("b", tasks("3", "2"), tasks("2 3")), why="because")
    _, rows = classic_rebalances(group, verbose=False)
    moved = "0_2: a (10.0.0.1) -> b (10.0.0.1), where it has warmed up"
    assert rows == [{"group": "g", "epoch": 8, "why": "because", "moves": moved}]


def rebalancing(group: DescribeGroupsResponse.DescribedGroup) -> DescribeGroupsResponse.DescribedGroup:
    """As Apache Kafka 4 describes it."""
    group.group_state, group.protocol_data = "PreparingRebalance", ""
    for member in group.members:
        member.member_metadata = b""
    return group


def test_members_of_a_group_that_rebalances_are_shown_as_before_and_the_reader_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    group = described(("a", None, tasks("0 1")), ("b", None, tasks("2")))
    columns, rows = classic_members(group, verbose=True)
    assert capsys.readouterr().err == ""
    group = rebalancing(group)
    group.members[1].member_assignment = b""
    later_columns, later = classic_members(group, verbose=True)
    assert later_columns == columns
    assert later[0] == {**rows[0], "topology_epoch": "-", "process": "-"}
    assert later[0]["assignments"] == "ACTIVE: 0:[0, 1]; TARGET-ACTIVE: 0:[0, 1];"
    assert (later[1]["assignments"], later[1]["member_epoch"]) == ("-", "-")
    (told,) = capsys.readouterr().err.splitlines()
    assert "group g is rebalancing (PreparingRebalance), and the table is incomplete" in told


def test_what_java_members_and_consumers_had_before_a_rebalance_has_its_own_form() -> None:
    plain = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[1, 0])
    consumer = ConsumerProtocolAssignment(assigned_partitions=[plain])
    one = ClassicAssignment(generation=8, tasks=tasks("1"))
    inputs = {("0", 1): [("t", 1)]}
    java = encode_stream_assignment(one, inputs, UserDataVersions(11, 11), Hosts(), is_java=True)
    group = rebalancing(described(("a", None, tasks("0")), ("b", None, tasks("1"))))
    group.members[0].member_assignment = encode_record_value(consumer, 1)
    group.members[1].member_assignment = java
    _, rows = classic_members(group, verbose=False)
    assert [row["assignments"] for row in rows] == ["t:[0, 1]", "ACTIVE: 0:[1];"]


def test_of_a_leader_that_knows_no_reason_the_members_tell_what_is_new() -> None:
    group = described(("a", tasks("0 1"), tasks("0 1")), ("b", None, tasks("2", "1")))
    _, rows = classic_rebalances(group, verbose=False)
    moves = "0_2: nobody -> b (10.0.0.1), 0_1 warms up at b (10.0.0.1)"
    assert rows == [{"group": "g", "epoch": 8, "why": "member b (10.0.0.1) joined", "moves": moves}]
