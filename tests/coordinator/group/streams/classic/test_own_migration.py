"""Groups of members of this runtime on their way from the classic protocol to the streams protocol and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.group.classic.state import ClassicGroup
from coordinator.group.refusal import Refused
from coordinator.group.streams.classic.own_conversion import check_version
from coordinator.group.streams.classic.own_layout import Version, decoded_own_assignment
from coordinator.group.streams.classic.user_data import assignment_of
from coordinator.group.streams.state import StreamsGroup
from streamsrt.assignment.configuration import configure
from streamsrt.assignment.digest import topology_digest
from streamsrt.assignment.tasks import TaskId, Tasks
from streamsrt.assignment.topology import topology_of
from streamsrt.membership.errors import StreamsInvalidTopologyEpochError, StreamsTopologyFencedError
from streamsrt.membership.values import NOTHING
from streamsrt.wire.client_tags import TOPOLOGY_DIGEST
from streamsrt.wire.streams_user_data import NO_ERROR, NO_REBALANCE
from tests.coordinator.group.classic.scene import Scene
from tests.coordinator.group.streams.classic.java import IMAGE, Beat, Member
from tests.coordinator.group.streams.classic.own import Own
from tests.coordinator.group.streams.classic.test_migration import Streams, scene_with, streams_group
from tests.streamsrt.assignment.notation import subtopology

ALL = [TaskId("0", partition) for partition in range(6)]


def topology(epoch: int, *lines: str) -> Any:
    return Beat.Topology(epoch=epoch, subtopologies=[subtopology(each) for each in lines or ("0: source=in",)])


def tasks_of(member: Own | Streams) -> list[TaskId]:
    if isinstance(member, Own):
        return list(member.active)
    return [TaskId(each.subtopology_id, partition) for each in member.active for partition in each.partitions]


def goes_on(scene: Scene, *members: Own | Streams, steps: int = 14) -> None:
    """No task is with two members at any time, and each is with one in the end."""
    for _ in range(steps):
        scene.passes(1_000)
        for member in members:
            if isinstance(member, Own):
                member.act()
            else:
                member.beat()
            held = [task for each in members for task in tasks_of(each)]
            assert len(held) == len(set(held)), held
    assert sorted(task for each in members for task in tasks_of(each)) == ALL


def classic(scene: Scene, *names: str, epoch: int = 3, **fields: Any) -> list[Own]:
    members = [Own(scene, name, topology=topology(epoch), **fields) for name in names]
    goes_on(scene, *members)
    return members


def streams(scene: Scene, name: str, wanted: Any = None, **fields: Any) -> Streams:
    member = Streams(scene, name)
    assert member.join(topology=wanted or topology(3), **fields).error_code == 0
    return member


def test_members_roll_from_one_protocol_to_the_other_and_back_and_the_epoch_goes_on() -> None:
    scene = scene_with()
    a, b, c = classic(scene, "A", "B", "C")
    generation = scene.live.generation
    members: list[Own | Streams] = [a, b, c]
    for name in "XYZ":
        gone = members.pop(0)
        assert isinstance(gone, Own)
        gone.goes()
        members.append(streams(scene, name))
        goes_on(scene, *members)
        group = streams_group(scene)
        assert group.topology is not None
        assert group.topology.epoch == 3
        assert group.epoch > generation
        assert not any(group.is_stale(member) for member in group.members.values())
    assert streams_group(scene).classic_members == 0
    for name in "DEF":
        gone = members.pop(0)
        assert isinstance(gone, Streams)
        epoch = streams_group(scene).epoch
        gone.leave()
        members.append(Own(scene, name, topology=topology(3)))
        goes_on(scene, *members)
    assert isinstance(scene.shard.state.groups["g"], ClassicGroup)
    assert scene.live.generation > epoch
    for member in scene.live.members.values():
        told = decoded_own_assignment(member.assignment)
        assert told is not None
        assert told.echo is not None
        assert told.echo.version.epoch == 3
    behind = Own(scene, "old", topology=topology(2))
    goes_on(scene, *members, behind)
    assert isinstance(behind.failed, StreamsTopologyFencedError)


def test_a_restart_of_the_coordinator_changes_nothing() -> None:
    scene = scene_with()
    a, b = classic(scene, "A", "B")
    x = streams(scene, "X")
    scene.restart()
    scene.shard.set_topics(IMAGE, scene.now_ms)
    for member in (a, b):
        member.connection_is_lost()
    goes_on(scene, a, b, x)


def test_what_a_member_has_not_closed_yet_nobody_else_gets() -> None:
    """It has joined again, and has been given less, when another member changes the protocol."""
    scene = scene_with()
    a, b = classic(scene, "A", "B")
    c = Own(scene, "C", topology=topology(3))
    a.closes = b.closes = False
    for _ in range(6):
        scene.passes(1_000)
        for member in (a, b, c):
            member.act()
    assert a.wanted != a.open, "it is asked for tasks"
    x = streams(scene, "X")
    held = a.active | b.active
    for _ in range(8):
        scene.passes(1_000)
        for each in (a, b, c):
            each.act()
        x.beat()
        assert not held & (c.active | frozenset(tasks_of(x)))
    a.closes = b.closes = True
    goes_on(scene, a, b, c, x)


def test_a_member_that_waits_in_a_rebalance_joins_the_streams_group() -> None:
    scene = scene_with()
    a, b = classic(scene, "A", "B")
    new = Own(scene, "C", topology=topology(3))
    for _ in range(2):
        new.act()
    assert scene.live.state == "PreparingRebalance"
    x = streams(scene, "X")
    goes_on(scene, a, b, new, x)
    assert {len(tasks_of(each)) for each in (a, b, new, x)} == {1, 2}


@pytest.mark.parametrize(
    ("joins", "tags", "code", "says"),
    [
        (topology(2), [], 132, "behind the topology epoch 3"),
        (topology(4), [], 131, "change the protocol with the version that it runs, then raise the epoch"),
        (topology(3, "0: source=log"), [], 131, "Set topology.epoch to 4"),
        (topology(3), [Beat.KeyValue(key=TOPOLOGY_DIGEST, value="other")], 131, "Set topology.epoch to 4"),
    ],
)
def test_another_version_does_not_change_the_protocol(joins: Any, tags: list[Any], code: int, says: str) -> None:
    scene = scene_with()
    a, b = classic(scene, "A", "B")
    before = scene.shard.state
    refused = Streams(scene).join(topology=joins, client_tags=tags)
    assert (refused.error_code, says in refused.error_message) == (code, True), refused.error_message
    assert scene.shard.state == before
    goes_on(scene, a, b, steps=2)


def test_members_that_share_a_group_with_javas_say_their_version_and_are_told_in_javas_layout() -> None:
    scene = scene_with()
    classic(scene, "A", "B")
    wire = topology(3)
    configuration = configure(topology_of(wire), IMAGE)
    told = assignment_of(
        Tasks(frozenset(ALL)), configuration, 11, endpoints={}, rejoin_at_ms=NO_REBALANCE, error=NO_ERROR
    )
    members = {name: replace(member, assignment=told) for name, member in scene.live.members.items()}
    live = replace(scene.live, protocol="stream", members=members)
    check_version("g", live, Version(3, topology_digest(wire, {})))
    with pytest.raises(Refused, match="raise the epoch"):
        check_version("g", live, Version(4, topology_digest(topology(4), {})))


def test_a_stale_member_stays_stale() -> None:
    """A group in the middle of a roll to epoch 3 changes its protocol."""
    scene = scene_with()
    (old,) = classic(scene, "A", epoch=2)
    new = Own(scene, "B", topology=topology(3))
    goes_on(scene, old, new)
    x = streams(scene, "X")
    goes_on(scene, old, new, x)
    group = streams_group(scene)
    assert {m.topology_epoch for m in group.members.values() if group.is_stale(m)} == {2}
    old.goes()
    goes_on(scene, new, x)


def test_a_classic_member_brings_the_next_epoch_into_a_streams_group() -> None:
    scene = scene_with()
    x = streams(scene, "X")
    goes_on(scene, x, steps=4)
    a = Own(scene, "A", topology=topology(4))
    goes_on(scene, x, a)
    group = streams_group(scene)
    assert group.topology is not None
    assert group.topology.epoch == 4
    assert a.failed is None
    x.leave()
    goes_on(scene, a)
    assert isinstance(scene.shard.state.groups["g"], ClassicGroup)


def test_the_protocol_and_the_version_change_at_once_from_streams_to_classic() -> None:
    scene = scene_with()
    members: list[Own | Streams] = [streams(scene, name) for name in "XYZ"]
    goes_on(scene, *members)
    for name in "ABC":
        gone = members.pop(0)
        assert isinstance(gone, Streams)
        gone.leave()
        members.append(Own(scene, name, topology=topology(4)))
        goes_on(scene, *members)
    assert isinstance(scene.shard.state.groups["g"], ClassicGroup)
    behind = Own(scene, "old", topology=topology(3))
    goes_on(scene, *members, behind)
    assert isinstance(behind.failed, StreamsTopologyFencedError)


def test_javas_members_and_ours_are_one_classic_group_again_in_javas_layout() -> None:
    scene = scene_with()
    x = streams(scene, "X")
    own, java = Own(scene, "A", topology=topology(3)), Member(scene, "J")
    goes_on(scene, x, own)
    java.come()
    java.join()
    x.leave()
    assert isinstance(scene.shard.state.groups["g"], ClassicGroup)
    joins = scene.ask(java.request())
    for _ in range(4):
        scene.passes(1_000)
        own.act()
    answer = scene.answers[joins]
    assert (answer.error_code, answer.protocol_name) == (0, "stream")
    assert len(scene.live.members) == 2


def test_a_classic_member_of_the_older_version_goes_on_when_the_group_is_a_classic_one_again() -> None:
    """The last streams member leaves in the middle of a roll to epoch 4."""
    scene = scene_with()
    x = streams(scene, "X")
    old = Own(scene, "A", topology=topology(3))
    goes_on(scene, x, old)
    new = Own(scene, "B", topology=topology(4))
    goes_on(scene, x, old, new)
    x.leave()
    goes_on(scene, old, new)
    assert isinstance(scene.shard.state.groups["g"], ClassicGroup)
    assert (old.failed, new.failed) == (None, None)
    assert new.active
    old.goes()
    again = Own(scene, "C", topology=topology(3))
    goes_on(scene, new, again)
    assert isinstance(again.failed, StreamsTopologyFencedError)


def test_a_group_stays_a_streams_group_while_records_are_in_flight() -> None:
    """The last streams member leaves while an older member reads a topic to its end that the newest version lacks."""
    scene = scene_with()
    x = streams(scene, "X", topology(3, "0: source=in sink=log", "1: repartition=log"))
    old = Own(scene, "A", topology=topology(3, "0: source=in sink=log", "1: repartition=log"))
    new = Own(scene, "B", topology=topology(4))
    members = [x, old, new]

    def turn(*members: Own | Streams) -> None:
        for _ in range(14):
            scene.passes(1_000)
            for member in members:
                member.act() if isinstance(member, Own) else member.beat()

    scene.unread = {("log", 2): 5}
    turn(*members)
    x.leave()
    turn(old, new)
    group = streams_group(scene)
    assert (group.topology and group.topology.epoch, group.classic_members) == (4, 2)
    assert TaskId("1", 2) in old.active
    assert not [task for task in new.active if task.subtopology_id == "1"]
    scene.unread = {}
    turn(old, new)
    assert isinstance(scene.shard.state.groups["g"], ClassicGroup)
    assert (old.failed, new.failed) == (None, None)
    assert sorted(new.active) == ALL


def test_the_epoch_stays_when_the_classic_member_that_brought_it_leaves() -> None:
    scene = scene_with()
    x = streams(scene, "X")
    goes_on(scene, x, steps=4)
    new = Own(scene, "A", topology=topology(4))
    goes_on(scene, x, new)
    new.goes()
    goes_on(scene, x)
    assert [member.topology_epoch for member in streams_group(scene).members.values()] == [3]
    assert streams_group(scene).topology.epoch == 4
    assert Streams(scene, "W").join(topology=topology(2)).error_code == 132
    y = streams(scene, "Y", topology(3))
    goes_on(scene, x, y)
    goes_on(scene, x, y, streams(scene, "Z", topology(5)))


@pytest.mark.parametrize(
    ("joins", "tags", "error"),
    [
        (topology(2), {}, StreamsTopologyFencedError),
        (topology(5), {}, StreamsInvalidTopologyEpochError),
        (topology(3, "0: source=log"), {TOPOLOGY_DIGEST: "other"}, StreamsInvalidTopologyEpochError),
    ],
)
def test_a_classic_member_that_does_not_fit_a_streams_group(
    joins: Any, tags: dict[str, str], error: type[Exception]
) -> None:
    scene = scene_with()
    x = streams(scene, "X", client_tags=[Beat.KeyValue(key=TOPOLOGY_DIGEST, value="this")])
    goes_on(scene, x, steps=4)
    a = Own(scene, "A", topology=joins, tags=tags)
    goes_on(scene, x, a, steps=6)
    assert isinstance(a.failed, error)
    assert set(streams_group(scene).members) == {"X"}


def test_a_converted_group_knows_the_program_of_its_version() -> None:
    scene = scene_with()
    tags = {TOPOLOGY_DIGEST: "this"}
    a = Own(scene, "A", topology=topology(3), tags=tags)
    goes_on(scene, a)
    x = streams(scene, "X", client_tags=[Beat.KeyValue(key=key, value=value) for key, value in tags.items()])
    b = Own(scene, "B", topology=topology(3), tags=tags)
    goes_on(scene, a, b, x)
    known = streams_group(scene).topology
    assert known is not None
    assert known.program == "this"


def test_standby_tasks_are_held_in_their_role() -> None:
    scene = scene_with(**{"group.streams.num.standby.replicas": "1"})
    stateful = topology(3, "0: source=in changelog=log")
    x = streams(scene, "X", stateful)
    a = Own(scene, "A", topology=stateful)
    for _ in range(14):
        scene.passes(1_000)
        a.act()
        x.beat()
    assert a.open.standby
    current = streams_group(scene).current[next(name for name in streams_group(scene).members if name != "X")]
    assert frozenset(TaskId(*task) for task in a.open.standby) == current.assigned.standby
    a.goes()
    assert a.open == NOTHING
    assert isinstance(scene.shard.state.groups["g"], StreamsGroup)


def test_the_end_of_the_application_reaches_classic_members() -> None:
    scene = scene_with()
    (a,) = classic(scene, "A")
    x = streams(scene, "X")
    goes_on(scene, a, x)
    scene.ask(Beat(group_id="g", member_id="X", member_epoch=x.epoch, shutdown_application=True), 1)
    for _ in range(6):
        scene.passes(1_000)
        a.act()
    assert [int(status.code) for status in a.machine.session.statuses] == [4]
