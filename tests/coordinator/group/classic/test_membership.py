"""Heartbeats, leaving, silence, offsets and listings of classic groups."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group.classic.state import GroupState
from coordinator.log.errors import RecordTooLargeError
from streamsrt.wire import types
from streamsrt.wire.messages import encode_record_value
from tests.coordinator.group.classic.scene import (
    Scene,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)


@pytest.mark.requirement("GA-007", "GA-037")
@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (heartbeat_request("who", 2), 25),
        (heartbeat_request("m", 1), 22),
        (heartbeat_request("m", 2, "i"), 25),
        (heartbeat_request("m", 2), 0),
        (sync_request("who", 2), 25),
        (sync_request("m", 1), 22),
        (sync_request("m", 2, protocol_type="connect"), 23),
        (sync_request("m", 2, protocol_name="roundrobin"), 23),
        (sync_request("m", 2, protocol_name="range", protocol_type="consumer"), 0),
    ],
)
def test_who_is_no_member_of_this_generation(request_: Any, code: int) -> None:
    scene = Scene()
    first, second = scene.stable(2)
    assert scene.live.generation == 2
    if request_.member_id == "m":
        request_.member_id = second
    assert scene.answer(request_).error_code == code
    request_.group_id = "other"
    assert scene.answer(request_).error_code == 25
    request_.group_id = ""
    assert scene.answer(request_).error_code == 24
    assert scene.live.state is GroupState.STABLE
    assert first in scene.live.members


@pytest.mark.requirement("GA-040")
def test_silence_ends_a_session_and_a_commit_keeps_it() -> None:
    scene = Scene()
    talks, silent = scene.stable(2)
    for _ in range(2):
        scene.passes(6_000)
        assert committed(scene, scene.live.generation, talks) == 0
        scene.ask(heartbeat_request(talks, scene.live.generation))
    assert list(scene.live.members) == [talks]
    assert scene.answer(heartbeat_request(silent, 2)).error_code == 25
    scene.passes(60_000)
    assert scene.live.state is GroupState.EMPTY
    generation = scene.live.generation
    scene.restart()
    assert (scene.live.state, scene.live.generation) == (GroupState.EMPTY, generation)


def test_an_id_that_nobody_joined_with_is_forgotten() -> None:
    scene = Scene()
    (leader,) = scene.stable(1)
    scene.answer(join_request())
    waiting = scene.ask(join_request(leader))
    assert waiting not in scene.answers
    scene.passes(10_000)
    assert scene.answers[waiting].generation_id == 2
    asked = scene.answer(join_request())
    assert scene.answer(leave_request(asked.member_id)).members[0].error_code == 0
    assert not scene.live.pending


def test_somebody_who_left_while_its_join_waits_is_not_waited_for() -> None:
    """A new member that never hears of its generation is out when the session after it is over."""
    scene = Scene()
    (leader,) = scene.stable(1)
    gone = scene.joined()
    scene.ask(join_request(leader))
    scene.ask(sync_request(leader, 2))
    scene.passes(4_000)
    scene.ask(heartbeat_request(leader, 2))
    scene.passes(6_000)
    assert gone not in scene.live.members


@pytest.mark.requirement("GA-007", "GA-044", "GA-045")
def test_leaving() -> None:
    scene = Scene()
    first, second = scene.stable(2)
    response = scene.answer(leave_request("who", ("who", "i"), second))
    assert [each.error_code for each in response.members] == [25, 25, 0]
    assert scene.live.state is GroupState.PREPARING_REBALANCE
    assert scene.answer(join_request(first)).generation_id == 3
    older = types.LeaveGroupRequest(group_id="g", member_id=first)
    assert scene.answer(older, 2).error_code == 0
    assert scene.live.state is GroupState.EMPTY
    assert scene.answer(older, 2).error_code == 25
    assert scene.answer(types.LeaveGroupRequest(group_id=""), 2).error_code == 24
    assert scene.answer(types.LeaveGroupRequest(group_id="other"), 2).error_code == 25


@pytest.mark.requirement("GA-045")
def test_an_administrator_removes_static_members_by_instance() -> None:
    scene = Scene()
    scene.ask(join_request(group_instance_id="i"))
    scene.passes(0)
    waiting = scene.ask(join_request("i-u1", group_instance_id="i"))
    assert scene.answers[waiting].generation_id == 1
    response = scene.answer(leave_request(("", "i")))
    (entry,) = response.members
    assert (entry.member_id, entry.group_instance_id, entry.error_code) == ("", "i", 0)
    assert scene.live.state is GroupState.EMPTY


@pytest.mark.requirement("GA-033")
def test_records_that_could_not_be_written() -> None:
    scene = Scene()
    waiting = scene.ask(join_request(group_instance_id="i"))
    scene.passes(0)
    assert scene.answers[waiting].error_code == 0
    scene.log.fail_next = 1
    assert scene.answer(sync_request("i-u1", 1, {"i-u1": b"a"})).error_code == 15
    assert scene.live.state is GroupState.PREPARING_REBALANCE
    assert scene.answer(join_request("i-u1", group_instance_id="i")).generation_id == 2
    assert bytes(scene.answer(sync_request("i-u1", 2, {"i-u1": b"a"})).assignment) == b"a"
    scene.log.fail_next = 1
    assert scene.answer(join_request(group_instance_id="i")).error_code == 15
    assert scene.live.static_members == {"i": "i-u1"}
    scene.log.fail_next = 1
    assert scene.answer(leave_request("i-u1")).error_code == 15
    scene.log.fail_next = 1
    scene.passes(12_000)
    assert scene.live.state is GroupState.EMPTY


@pytest.mark.requirement("GA-033")
def test_whoever_waits_for_an_assignment_that_can_not_be_written_gets_the_error() -> None:
    """As on Apache Kafka; it was told to the leader only, and the others waited for it to join again, or to die."""
    scene = Scene()
    leader, other = scene.stable(2)
    for name in (leader, other):
        scene.ask(join_request(name))
    generation = scene.live.generation
    waiting = scene.ask(sync_request(other, generation))
    assert waiting not in scene.answers
    scene.log.failure = lambda batches: RecordTooLargeError("too large")
    assert scene.answer(sync_request(leader, generation, {other: b"a"})).error_code == -1
    assert scene.answers[waiting].error_code == -1
    assert scene.live.state is GroupState.PREPARING_REBALANCE
    scene.log.failure = lambda batches: None
    joined = [scene.ask(join_request(name)) for name in (other, leader)]
    assert {scene.answers[each].generation_id for each in joined} == {generation + 1}


def test_a_group_that_has_grown_too_large_for_its_setting() -> None:
    scene = Scene()
    scene.stable(2)
    scene.config = type(scene.config).parse({"group.max.size": "1"})
    scene.restart()
    assert scene.live.state is GroupState.PREPARING_REBALANCE


def committed(scene: Scene, generation: int, member_id: str = "", version: int = 9, **fields: Any) -> int:
    commit = types.OffsetCommitRequest
    partition = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    request = commit(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[commit.OffsetCommitRequestTopic(name="t", partitions=[partition])],
        **fields,
    )
    return int(scene.answer(request, version).topics[0].partitions[0].error_code)


def committed_in_transaction(scene: Scene, generation: int, member_id: str = "", **fields: Any) -> int:
    commit = types.TxnOffsetCommitRequest
    partition = commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    request = commit(
        group_id="g",
        producer_id=7,
        producer_epoch=0,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[commit.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
        **fields,
    )
    return int(scene.answer(request, 3).topics[0].partitions[0].error_code)


class TestOffsets:
    @pytest.mark.requirement("GA-051")
    @pytest.mark.parametrize("version", [2, 8, 9])
    @pytest.mark.parametrize(
        ("generation", "member", "fields", "code"),
        [
            (2, "m", {}, 0),
            (1, "m", {}, 22),
            (3, "m", {}, 22),
            (2, "who", {}, 25),
            (-1, "", {}, 25),
            (2, "m", {"group_instance_id": "i"}, 25),
        ],
    )
    def test_a_member_commits_in_its_generation(
        self, version: int, generation: int, member: str, fields: dict[str, Any], code: int
    ) -> None:
        scene = Scene()
        _, second = scene.stable(2)
        member = second if member == "m" else member
        assert committed(scene, generation, member, version, **fields) == code
        transactional = 0 if generation < 0 else code
        assert committed_in_transaction(scene, generation, member, **fields) == transactional

    def test_not_while_the_assignment_is_made(self) -> None:
        scene = Scene()
        first, second = scene.stable(2)
        scene.ask(join_request(first))
        assert committed(scene, 2, second) == 0
        scene.ask(join_request(second))
        assert committed(scene, 3, second) == 27
        assert committed_in_transaction(scene, 3, second) == 0

    def test_anybody_commits_while_the_group_is_empty(self) -> None:
        scene = Scene()
        (member,) = scene.stable(1)
        scene.ask(leave_request(member))
        assert committed(scene, -1) == 0
        assert committed(scene, 1, member) == 25

    @pytest.mark.requirement("GA-076", "GA-077")
    def test_offsets_of_topics_that_members_read_are_not_deleted(self) -> None:
        scene = Scene()
        subscription = types.ConsumerProtocolSubscription(topics=["t"])
        metadata = encode_record_value(subscription)
        request = join_request()
        request.protocols[0].metadata = metadata
        request.member_id = scene.answer(request).member_id
        scene.ask(request)
        scene.passes(0)
        scene.ask(sync_request(request.member_id, 1))
        assert committed(scene, 1, request.member_id) == 0
        delete = types.OffsetDeleteRequest(group_id="g")
        for name in ("t", "u"):
            entry = delete.OffsetDeleteRequestPartition(partition_index=0)
            delete.topics.append(delete.OffsetDeleteRequestTopic(name=name, partitions=[entry]))
        answer = scene.answer(delete)
        assert [topic.partitions[0].error_code for topic in answer.topics] == [86, 0]
        scene.ask(leave_request(request.member_id))
        answer = scene.answer(delete)
        assert [topic.partitions[0].error_code for topic in answer.topics] == [0, 0]
        assert scene.shard.state.offsets == {}

    def test_a_group_of_another_protocol_type_keeps_its_offsets_while_it_has_members(self) -> None:
        scene = Scene()
        scene.ask(join_request(protocol_type="connect"), 3)
        assert committed(scene, -1) == 25
        scene.passes(0)
        assert committed_in_transaction(scene, -1) == 0
        assert scene.answer(types.OffsetDeleteRequest(group_id="g")).error_code == 68


class TestListings:
    def listed(self, scene: Scene, **filters: Any) -> list[tuple[str, str, str, str]]:
        groups = scene.answer(types.ListGroupsRequest(**filters), 5).groups
        return [(each.group_id, each.group_type, each.protocol_type, each.group_state) for each in groups]

    @pytest.mark.requirement("GA-070", "GA-066")
    def test_each_state_is_listed(self) -> None:
        scene = Scene()
        (member,) = scene.stable(1)
        assert self.listed(scene) == [("g", "classic", "consumer", "Stable")]
        scene.answer(join_request())
        scene.ask(join_request(member))
        assert self.listed(scene, states_filter=["preparingrebalance"])
        scene.passes(10_000)
        assert self.listed(scene, states_filter=["CompletingRebalance"], types_filter=["Classic"])
        scene.ask(leave_request(member))
        assert self.listed(scene) == [("g", "classic", "consumer", "Empty")]

    @pytest.mark.requirement("GA-073", "GA-066")
    def test_describing(self) -> None:
        scene = Scene()
        request = types.DescribeGroupsRequest(groups=["g", "x"])
        first, _ = scene.stable(2)
        group, absent = scene.answer(request, 6).groups
        assert (group.error_code, group.group_state) == (0, "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (member,) = (each for each in group.members if each.member_id == first)
        assert (member.client_id, member.client_host, member.group_instance_id) == ("client", "/host", None)
        assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (b"range", first.encode())
        assert (absent.error_code, absent.group_state, absent.error_message) == (69, "Dead", "Group x not found.")
        scene.ask(join_request(first))
        group = scene.answer(request, 6).groups[0]
        assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
        assert {bytes(each.member_assignment) for each in group.members} == {b""}

    def test_a_group_that_has_offsets_only(self) -> None:
        scene = Scene()
        assert committed(scene, -1) == 0
        assert self.listed(scene) == [("g", "classic", "", "Empty")]
        (group,) = scene.answer(types.DescribeGroupsRequest(groups=["g"]), 6).groups
        assert (group.error_code, group.group_state, group.protocol_type) == (0, "Empty", "")
        assert scene.answer(join_request("who")).error_code == 25
        scene.stable(1)
        assert "t" in scene.shard.state.offsets["g"]

    @pytest.mark.requirement("GA-072", "GA-074")
    def test_a_group_with_members_is_not_deleted(self) -> None:
        scene = Scene()
        (member,) = scene.stable(1)
        assert committed(scene, 1, member) == 0
        delete = types.DeleteGroupsRequest(groups_names=["g"])
        assert scene.answer(delete).results[0].error_code == 68
        scene.ask(leave_request(member))
        assert scene.answer(delete).results[0].error_code == 0
        assert (scene.shard.state.groups, scene.shard.state.offsets) == ({}, {})
        scene.restart()
        assert scene.answer(delete).results[0].error_code == 69
