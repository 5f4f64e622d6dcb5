"""Groups on their way from the classic protocol to the streams protocol and back (KIP-1071, "Online Migration")."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from coordinator.group.classic.state import ClassicGroup, GroupState
from coordinator.group.streams.classic.user_data import assignment_of
from coordinator.group.streams.state import StreamsGroup
from streamsrt.assignment.configuration import configure
from streamsrt.assignment.tasks import TaskId, Tasks
from streamsrt.assignment.topology import topology_of
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import decode_consumer_protocol
from streamsrt.wire.streams_user_data import SHUTDOWN_REQUESTED
from tests.coordinator.group.classic.scene import (
    Scene,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from tests.coordinator.group.classic.test_membership import committed
from tests.coordinator.group.streams.classic.java import IMAGE, Beat, Member, streams_join, task_names
from tests.streamsrt.assignment.notation import subtopology

SETTINGS = {
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}


def scene_with(**settings: str) -> Scene:
    scene = Scene({**SETTINGS, **settings})
    scene.shard.set_topics(IMAGE, scene.now_ms)
    return scene


def classic_group(scene: Scene, *, eager: bool = False) -> tuple[Member, Member]:
    """A classic group of A and B with three tasks each, assigned by their leader."""
    a, b = Member(scene, "A", eager=eager), Member(scene, "B", eager=eager)
    for member in (a, b):
        member.come()
        scene.ask(member.request())
    scene.passes(0)
    generation = scene.live.generation
    for member in (b, a):
        member.generation = generation
    assignments = {
        a.member_id: assignment("0:0 0:2 0:4", "0:1 0:3 0:5"),
        b.member_id: assignment("0:1 0:3 0:5", "0:0 0:2 0:4"),
    }
    waiting = scene.ask(sync_request(b.member_id, generation))
    a.take(scene.answer(sync_request(a.member_id, generation, assignments)))
    b.take(scene.answers[waiting])
    return a, b


def assignment(active: str, standby: str) -> bytes:
    topology = streams_join().topology
    assert topology is not None
    tasks = [frozenset(TaskId(*_split(each)) for each in role.split()) for role in (active, standby)]
    return assignment_of(Tasks(tasks[0], tasks[1]), configure(topology_of(topology), IMAGE), 11, endpoints={})


def _split(text: str) -> tuple[str, int]:
    subtopology_id, _, partition = text.partition(":")
    return subtopology_id, int(partition)


def streams_group(scene: Scene) -> StreamsGroup:
    group = scene.shard.state.groups["g"]
    assert isinstance(group, StreamsGroup)
    return group


class Streams:
    """The member C of the streams protocol: it does at once what it is told."""

    def __init__(self, scene: Scene, name: str = "C") -> None:
        self.scene, self.name, self.epoch = scene, name, 0
        self.active: list[Any] = []
        self.standby: list[Any] = []
        self.warmup: list[Any] = []

    def join(self, **changes: Any) -> Any:
        return self._take(self.scene.answer(streams_join(self.name, **changes), 1))

    def beat(self) -> Any:
        request = Beat(group_id="g", member_id=self.name, member_epoch=self.epoch)
        for role in ("active", "standby", "warmup"):
            ids = [Beat.TaskIds(subtopology_id=i.subtopology_id, partitions=i.partitions) for i in getattr(self, role)]
            setattr(request, f"{role}_tasks", ids)
        return self._take(self.scene.answer(request, 1))

    def _take(self, answer: Any) -> Any:
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.active, self.standby, self.warmup = answer.active_tasks, answer.standby_tasks, answer.warmup_tasks
        return answer

    def leave(self) -> None:
        self.scene.ask(Beat(group_id="g", member_id=self.name, member_epoch=-1), 1)

    @property
    def tasks(self) -> str:
        return " ".join(f"{i.subtopology_id}_{p}" for i in self.active for p in i.partitions)


def settle(scene: Scene, classic: list[Member], streams: list[Streams]) -> None:
    for _ in range(12):
        for member in classic:
            owned = member.tasks.active
            code = member.beat()
            assert code in {0, 27}
            if code == 27 or not owned >= member.tasks.active:
                assert member.join().error_code == 0
        for each in streams:
            assert each.beat().error_code == 0
        check_exclusive(scene)


def check_exclusive(scene: Scene) -> None:
    group = scene.shard.state.groups.get("g")
    if isinstance(group, StreamsGroup):
        assert all(len(names) == 1 for names in group.active_owners.values())


@pytest.mark.requirement(
    "SG-314", "SG-315", "SG-316", "SG-321", "SG-322", "SG-323", "SG-324", "SG-325", "SG-326", "SG-337", "GA-008"
)
def test_a_classic_group_becomes_a_streams_group_and_its_members_follow() -> None:
    scene = scene_with(**{"group.streams.assignor.name": "sticky"})
    a, b = classic_group(scene)
    generation = scene.live.generation
    assert committed(scene, generation, a.member_id) == 0
    c = Streams(scene)
    joined = c.join()
    group = streams_group(scene)
    assert joined.error_code == 0
    assert (group.epoch, group.assignment_epoch) == (generation + 1, generation + 1)
    assert set(group.members) == {a.member_id, b.member_id, "C"}
    assert scene.shard.state.offsets["g"]["t"][0].offset == 5
    scene.restart()
    scene.shard.set_topics(IMAGE, scene.now_ms)
    assert [group.members[m.member_id].process_id for m in (a, b)] == [m_process(m) for m in (a, b)]
    # Both have to give something back: cooperative members keep their generation until they have.
    gives = next(m for m in (a, b) if not m.tasks.active <= streams_group(scene).targets[m.member_id].active)
    assert gives.beat() == 27
    before = gives.tasks.active
    assert gives.join().generation_id == generation
    assert gives.tasks.active < before
    assert gives.beat() == 27
    assert gives.join().generation_id == generation + 1
    settle(scene, [a, b], [c])
    group = streams_group(scene)
    assert {len(m.tasks.active) for m in (a, b)} == {2}
    assert len(c.tasks.split()) == 2
    assert {a.generation, b.generation, c.epoch} == {group.epoch}
    assert committed(scene, group.epoch, a.member_id, 8) == 0
    assert committed(scene, generation, a.member_id, 8) == 22


def m_process(member: Member) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, member.name))


@pytest.mark.requirement("SG-330", "SG-336")
def test_eager_members_have_given_back_when_they_join() -> None:
    scene = scene_with(**{"group.streams.assignor.name": "sticky"})
    a, b = classic_group(scene, eager=True)
    generation = scene.live.generation
    c = Streams(scene)
    c.join()
    for member in (a, b):
        assert member.beat() == 27
        assert member.join().generation_id == generation + 1
    settle(scene, [a, b], [c])
    assert sorted(len(m.tasks.active) for m in (a, b)) == [2, 2]


@pytest.mark.requirement("SG-317", "SG-318", "SG-340", "SG-335")
def test_classic_members_that_are_left_alone_are_a_classic_group_again() -> None:
    scene = scene_with()
    a, b = classic_group(scene)
    assert committed(scene, scene.live.generation, a.member_id) == 0
    c = Streams(scene)
    c.join()
    settle(scene, [a, b], [c])
    epoch = streams_group(scene).epoch
    c.leave()
    group = scene.shard.state.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert scene.live.state is GroupState.PREPARING_REBALANCE
    assert scene.live.generation > epoch
    assert scene.shard.state.offsets["g"]["t"][0].offset == 5
    waiting = [scene.ask(member.request()) for member in (a, b)]
    answers = [scene.answers[each] for each in waiting]
    assert {each.generation_id for each in answers} == {scene.live.generation}
    assert {each.leader for each in answers} <= {a.member_id, b.member_id}
    scene.restart()
    assert isinstance(scene.shard.state.groups["g"], ClassicGroup)
    assert set(scene.live.members) == {a.member_id, b.member_id}


def test_a_member_that_a_request_names_twice_leaves_once() -> None:
    """Its tasks go to the members that stay."""
    scene = scene_with()
    a, b = classic_group(scene)
    c = Streams(scene)
    c.join()
    settle(scene, [a, b], [c])
    scene.ask(leave_request(a.member_id, a.member_id, b.member_id))
    assert streams_group(scene).members.keys() == {"C"}
    settle(scene, [], [c])
    assert c.tasks == "0_0 0_1 0_2 0_3 0_4 0_5"


def test_a_member_that_is_gone_is_not_waited_for() -> None:
    scene = scene_with()
    a, b = classic_group(scene)
    c = Streams(scene)
    c.join()
    assert (a.beat(), b.beat()) == (27, 27)
    assert streams_group(scene).soft.must_rejoin == {a.member_id, b.member_id}
    a.leave()
    assert streams_group(scene).soft.must_rejoin == {b.member_id}
    b.join()
    assert not streams_group(scene).soft.must_rejoin


@pytest.mark.requirement("SG-317")
def test_a_streams_member_that_falls_silent_leaves_the_classic_ones_alone() -> None:
    scene = scene_with()
    a, b = classic_group(scene)
    Streams(scene).join()
    for _ in range(10):
        scene.passes(5_000)
        for member in (a, b):
            if isinstance(scene.shard.state.groups["g"], StreamsGroup):
                member.beat()
    assert isinstance(scene.shard.state.groups["g"], ClassicGroup)


@pytest.mark.requirement("SG-341", "SG-334", "SG-327")
def test_members_roll_from_one_protocol_to_the_other_and_back() -> None:
    scene = scene_with(**{"group.streams.assignor.name": "sticky"})
    a, b = classic_group(scene)
    c = Streams(scene)
    c.join()
    settle(scene, [a, b], [c])
    a.leave()
    d = Streams(scene, "D")
    d.join()
    settle(scene, [b], [c, d])
    # B does not leave: its session ends.
    for _ in range(6):
        scene.passes(2_000)
        c.beat()
        d.beat()
    settle(scene, [], [c, d])
    group = streams_group(scene)
    assert (set(group.members), group.classic_members) == ({"C", "D"}, 0)
    assert sorted((c.tasks + " " + d.tasks).split()) == [f"0_{index}" for index in range(6)]
    # Back: a classic member joins the streams group, and the others go.
    e = Member(scene, "E")
    e.come()
    assert e.join().error_code == 0
    settle(scene, [e], [c, d])
    assert e.tasks.active
    c.leave()
    settle(scene, [e], [d])
    assert isinstance(scene.shard.state.groups["g"], StreamsGroup)
    d.leave()
    assert isinstance(scene.shard.state.groups["g"], ClassicGroup)
    assert scene.answer(e.request()).leader == e.member_id


@pytest.mark.requirement("SG-331")
def test_describing_says_who_is_classic() -> None:
    scene = scene_with()
    a, _ = classic_group(scene)
    Streams(scene).join()
    described = scene.answer(types.StreamsGroupDescribeRequest(group_ids=["g"])).groups[0]
    assert {m.member_id for m in described.members if not m.is_classic} == {"C"}
    assert a.member_id in {m.member_id for m in described.members if m.is_classic}


@pytest.mark.requirement("SG-328", "SG-329", "SG-339")
def test_a_warm_up_task_of_a_classic_member_is_a_standby_task_to_it() -> None:
    scene = scene_with(**{"group.streams.assignor.name": "highly_available"})
    c = Streams(scene)
    c.join()
    for _ in range(3):
        c.beat()
    e = Member(scene, "E")
    e.come()
    e.join()
    settle(scene, [e], [c])
    current = streams_group(scene).current[e.member_id]
    assert current.assigned.warmup
    e.join()
    assert e.tasks.standby == current.assigned.standby | current.assigned.warmup
    assert e.rejoin_at_ms == scene.now_ms + 60_000
    assert e.beat() == 0


def test_who_is_asked_to_join_and_does_not_is_out() -> None:
    scene = scene_with()
    a, b = classic_group(scene)
    c = Streams(scene)
    c.join()
    asked = next(m for m in (a, b) if m.beat() == 27)
    for _ in range(31):
        scene.passes(2_000)
        c.beat()
        if asked.member_id in streams_group(scene).members:
            asked.beat()
    assert asked.member_id not in streams_group(scene).members
    assert asked.beat() == 25


@pytest.mark.requirement("SG-319", "SG-425")
@pytest.mark.parametrize("restarts", [False, True])
def test_a_group_without_members_is_whatever_the_next_member_is(restarts: bool) -> None:
    scene = scene_with()
    (member,) = scene.stable(1)
    assert committed(scene, 1, member) == 0
    scene.ask(leave_request(member))
    generation = scene.live.generation
    c = Streams(scene)
    assert c.join().error_code == 0
    assert streams_group(scene).epoch == generation + 1
    if restarts:
        scene.restart()
        scene.shard.set_topics(IMAGE, scene.now_ms)
    assert scene.answer(join_request("who")).error_code == 23
    c.leave()
    epoch = streams_group(scene).epoch
    assert scene.answer(join_request("who")).error_code == 25
    scene.stable(1)
    assert scene.live.generation == epoch + 1
    assert scene.shard.state.offsets["g"]["t"][0].offset == 5


@pytest.mark.requirement("SG-320", "SG-333", "SG-008")
def test_a_classic_group_that_can_not_be_translated_stays_what_it_is() -> None:
    scene = scene_with()
    scene.stable(1)
    before = scene.shard.state
    refused = Streams(scene).join()
    assert refused.error_code == 42
    assert "not an instance of Kafka Streams" in refused.error_message
    other = scene_with()
    a, _ = classic_group(other)
    renamed = streams_join().topology
    assert renamed is not None
    renamed.subtopologies[0].subtopology_id = "one"
    refused = Streams(other).join(topology=renamed)
    assert (refused.error_code, "0" in refused.error_message) == (42, True)
    connect = scene_with()
    connect.ask(join_request(protocol_type="connect"), 3)
    assert Streams(connect).join().error_code == 42
    assert scene.shard.state == before
    assert a.beat() == 0
    forbidden = scene_with(**{"group.consumer.migration.policy": "disabled"})
    classic_group(forbidden)
    refused = Streams(forbidden).join()
    assert (refused.error_code, "group.consumer.migration.policy" in refused.error_message) == (69, True)


def test_whoever_waits_in_a_classic_rebalance_joins_again() -> None:
    scene = scene_with()
    a, b = classic_group(scene)
    waiting = scene.ask(a.request())
    assert waiting not in scene.answers
    Streams(scene).join()
    assert scene.answers[waiting].error_code == 27
    assert a.join().error_code == 0
    assert b.beat() in {0, 27}


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (heartbeat_request("who", 1), 25),
        (heartbeat_request("C", 2), 25),
        (sync_request("who", 1), 25),
        (join_request("C", "stream"), 23),
        (join_request("", "stream"), 23),
        (join_request("", "stream", session_timeout_ms=1), 26),
    ],
)
def test_who_is_no_classic_member(request_: Any, code: int) -> None:
    scene = scene_with()
    classic_group(scene)
    Streams(scene).join()
    state = scene.shard.state
    assert scene.answer(request_).error_code == code
    assert scene.shard.state == state


def test_a_static_member_takes_its_place_with_it() -> None:
    scene = scene_with()
    a = Member(scene, "A", group_instance_id="i")
    scene.ask(a.request())
    scene.passes(0)
    a.member_id = "i-u1"
    scene.ask(sync_request("i-u1", 1, {"i-u1": assignment("0:0 0:1 0:2 0:3 0:4 0:5", "")}))
    c = Streams(scene)
    assert c.join(instance_id="i").error_code == 0
    group = streams_group(scene)
    assert (list(group.members), group.classic_members) == (["C"], 0)
    assert scene.answer(heartbeat_request("i-u1", 1, "i")).error_code == 82


def test_a_member_that_ends_the_application_ends_it_for_classic_members_too() -> None:
    scene = scene_with()
    a, b = classic_group(scene)
    c = Streams(scene)
    c.join()
    settle(scene, [a, b], [c])
    assert a.beat() == 0
    scene.ask(Beat(group_id="g", member_id="C", member_epoch=c.epoch, shutdown_application=True), 1)
    assert a.beat() == 27
    joined = scene.answer(a.request())
    synced = scene.answer(sync_request(a.member_id, joined.generation_id))
    given = decode_consumer_protocol(types.ConsumerProtocolAssignment, synced.assignment)
    assert int.from_bytes(bytes(given.user_data or b"")[-12:-8], "big") == SHUTDOWN_REQUESTED


def test_names() -> None:
    scene = scene_with()
    a, _ = classic_group(scene)
    assert task_names(a.tasks) == ("0_0 0_2 0_4", "0_1 0_3 0_5", "")


HASHED = types.StreamsGroupHeartbeatRequest.Topology(
    epoch=0, subtopologies=[subtopology("c41f9a02: source=in changelog=log")]
)


def test_kafka_streams_does_not_join_a_group_whose_tasks_it_has_no_names_for() -> None:
    """Its layout has numbers for subtopologies."""
    scene = scene_with()
    c = Streams(scene)
    assert c.join(topology=HASHED).error_code == 0
    java = Member(scene, "A")
    java.come()
    before = scene.shard.state
    assert scene.answer(java.request()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.shard.state == before
    scene.passes(60_000)
    assert not streams_group(scene).members


def test_nor_does_a_member_with_such_names_join_kafka_streams() -> None:
    scene = scene_with()
    java = Member(scene, "A")
    java.come()
    scene.ask(java.request())
    scene.passes(0)
    answer = Streams(scene).join(topology=HASHED)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "subtopology.id=number" in answer.error_message
    assert isinstance(scene.shard.state.groups["g"], ClassicGroup)
