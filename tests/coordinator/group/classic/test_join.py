"""JoinGroup and SyncGroup: how a generation comes about, and who is refused."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group.classic.state import GroupState
from tests.coordinator.group.classic.scene import (
    Scene,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)


@pytest.mark.requirement("GA-019", "GA-021", "GA-034", "GA-036")
def test_the_first_member_of_a_group() -> None:
    scene = Scene()
    asked = scene.answer(join_request())
    assert (asked.error_code, asked.member_id) == (79, "client-u1")
    waiting = scene.ask(join_request("client-u1"))
    assert waiting not in scene.answers
    scene.passes(0)
    joined = scene.answers[waiting]
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, "client-u1")
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [(each.member_id, bytes(each.metadata)) for each in joined.members] == [("client-u1", b"range")]
    synced = scene.answer(sync_request("client-u1", 1, {"client-u1": b"all"}))
    assert (synced.error_code, bytes(synced.assignment), synced.protocol_name) == (0, b"all", "range")
    scene.restart()
    assert scene.live.state is GroupState.STABLE
    assert bytes(scene.answer(sync_request("client-u1", 1)).assignment) == b"all"


@pytest.mark.requirement("GA-019")
@pytest.mark.parametrize("version", range(4))
def test_older_clients_join_without_a_second_request(version: int) -> None:
    scene = Scene()
    waiting = scene.ask(join_request(), version)
    scene.passes(0)
    assert scene.answers[waiting].member_id == "client-u1"
    timeout_ms = scene.live.members["client-u1"].rebalance_timeout_ms
    assert timeout_ms == (10_000 if version == 0 else 60_000)


def test_a_first_rebalance_waits_for_more_members_but_not_for_ever() -> None:
    scene = Scene({"group.initial.rebalance.delay.ms": "3000"})
    first = join_request(rebalance_timeout_ms=7000)
    first_id = scene.answer(first).member_id
    first.member_id = first_id
    waiting = scene.ask(first)
    for _ in range(3):
        scene.passes(2999)
        assert waiting not in scene.answers or scene.now_ms >= 8000
        if waiting not in scene.answers:
            scene.joined()
    scene.passes(3000)
    assert len(scene.answers[waiting].members) >= 3
    assert scene.live.generation == 1
    assert scene.live.since_ms <= 8000


@pytest.mark.requirement("GA-021", "GA-023", "GA-024", "GA-033", "GA-037", "GA-041")
def test_a_member_more_is_a_generation_more() -> None:
    scene = Scene()
    (leader,) = scene.stable(1)
    second = scene.answer(join_request()).member_id
    waiting = scene.ask(join_request(second))
    assert scene.answer(heartbeat_request(leader, 1)).error_code == 27
    assert scene.answer(sync_request(leader, 1)).error_code == 27
    led = scene.answer(join_request(leader))
    followed = scene.answers[waiting]
    assert (led.generation_id, led.leader, len(led.members)) == (2, leader, 2)
    assert (followed.generation_id, followed.leader, followed.members) == (2, leader, [])
    follower = scene.ask(sync_request(second, 2))
    assert follower not in scene.answers
    scene.ask(sync_request(leader, 2, {second: b"half"}))
    assert bytes(scene.answers[follower].assignment) == b"half"
    assert scene.answer(heartbeat_request(second, 2)).error_code == 0


@pytest.mark.requirement("GA-022")
def test_the_protocol_that_all_have_and_most_prefer() -> None:
    scene = Scene({"group.initial.rebalance.delay.ms": "1000"})
    for protocols in (("a", "b", "c"), ("c", "b"), ("b", "c", "x")):
        scene.joined(*protocols)
    scene.passes(3000)
    assert scene.live.protocol == "b"


@pytest.mark.requirement("CR-050")
def test_the_way_from_eager_to_cooperative() -> None:
    """Scenario C2: two bounces work, the shortcut does not."""
    scene = Scene()
    members = scene.stable(2, "range")
    assert scene.answer(join_request("", "cooperative-sticky")).error_code == 23
    chosen = []
    for protocols in (("range", "cooperative-sticky"), ("cooperative-sticky",)):
        for place in range(2):
            scene.ask(leave_request(members[place]))
            other = members[1 - place]
            stays = ("range", "cooperative-sticky") if place == 0 and len(protocols) == 1 else protocols
            if len(protocols) == 2 and place == 0:
                stays = ("range",)
            members[place] = scene.joined(*protocols)
            scene.ask(join_request(other, *stays))
            chosen.append(scene.live.protocol)
            scene.ask(sync_request(scene.live.leader or "", scene.live.generation))
    assert chosen == ["range", "range", "cooperative-sticky", "cooperative-sticky"]


@pytest.mark.requirement("GA-007", "GA-022", "GA-030")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, 24),
        ({"session_timeout_ms": 5_999}, 26),
        ({"session_timeout_ms": 1_800_001}, 26),
        ({"member_id": "who"}, 25),
        ({"protocols": []}, 23),
        ({"protocol_type": ""}, 23),
    ],
)
def test_a_join_that_is_refused(changes: dict[str, Any], code: int) -> None:
    scene = Scene()
    response = scene.answer(join_request(**changes))
    assert (response.error_code, response.member_id) == (code, changes.get("member_id", ""))


@pytest.mark.requirement("GA-022")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"member_id": "who"}, 25),
        ({"protocol_type": "connect"}, 23),
        ({"group_instance_id": "i", "member_id": "who"}, 25),
    ],
)
def test_a_join_to_a_group_with_members_that_is_refused(changes: dict[str, Any], code: int) -> None:
    scene = Scene()
    scene.stable(1)
    end = scene.log.log_end_offset
    assert scene.answer(join_request(**changes)).error_code == code
    assert scene.log.log_end_offset == end
    assert scene.live.state is GroupState.STABLE


def test_a_group_that_is_full() -> None:
    scene = Scene({"group.max.size": "2"})
    first, second = scene.stable(2)
    assert scene.answer(join_request()).error_code == 81
    scene.ask(join_request(first))
    assert scene.live.state is GroupState.PREPARING_REBALANCE
    assert scene.answer(join_request(second)).error_code == 0


@pytest.mark.requirement("GA-024")
def test_who_joins_again_with_nothing_changed_gets_the_generation_that_there_is() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    again = scene.answer(join_request(follower))
    assert (again.generation_id, again.members) == (scene.live.generation, [])
    assert scene.live.state is GroupState.STABLE
    waiting = scene.ask(join_request(leader))
    assert waiting not in scene.answers
    assert scene.live.state is GroupState.PREPARING_REBALANCE
    replaced = scene.ask(join_request(leader))
    assert scene.answers[waiting].error_code == 27
    scene.ask(join_request(follower))
    assert len(scene.answers[replaced].members) == 2
    assert len(scene.answer(join_request(leader)).members) == 2


@pytest.mark.requirement("CR-015", "GA-024", "GA-036")
def test_changed_metadata_cause_a_rebalance() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    changed = join_request(follower)
    changed.protocols[0].metadata = b"owns something else"
    scene.ask(changed)
    assert scene.live.state is GroupState.PREPARING_REBALANCE
    joined = scene.answer(join_request(leader))
    assert {bytes(each.metadata) for each in joined.members} == {b"range", b"owns something else"}


@pytest.mark.requirement("GA-021", "GA-025", "GA-041")
def test_who_does_not_join_in_time_is_out_and_a_new_leader_elected() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    third = scene.answer(join_request()).member_id
    waiting = scene.ask(join_request(third))
    joined = scene.ask(join_request(follower))
    for _ in range(12):
        scene.passes(5_000)
        if scene.live.state is GroupState.PREPARING_REBALANCE:
            assert scene.answer(heartbeat_request(leader, 2)).error_code in {27, 22}
    assert scene.answers[joined].leader == scene.answers[waiting].leader == follower
    assert leader not in scene.live.members
    assert scene.answer(heartbeat_request(leader, 3)).error_code == 25


def test_who_does_not_sync_in_time_is_out() -> None:
    scene = Scene()
    first, second = scene.stable(2)
    scene.ask(join_request(first))
    scene.ask(join_request(second))
    generation = scene.live.generation
    waiting = scene.ask(sync_request(second, generation))
    for _ in range(12):
        assert waiting not in scene.answers
        scene.answer(heartbeat_request(first, generation))
        scene.passes(5_000)
    assert scene.answers[waiting].error_code == 27
    assert list(scene.live.members) == [second]
    assert scene.answer(join_request(second)).leader == second


class TestStaticMembers:
    def start(self, scene: Scene, version: int = 9, **fields: Any) -> Any:
        waiting = scene.ask(join_request(group_instance_id="i", **fields), version)
        scene.passes(0)
        return scene.answers.get(waiting)

    @pytest.mark.requirement("GA-026", "GA-080")
    def test_one_that_comes_back_goes_on_without_a_rebalance(self) -> None:
        scene = Scene()
        old = self.start(scene)
        assert (old.error_code, old.member_id) == (0, "i-u1")
        scene.ask(sync_request("i-u1", 1, {"i-u1": b"mine"}))
        back = self.start(scene)
        assert (back.generation_id, back.member_id, back.leader) == (1, "i-u3", "i-u3")
        assert (back.skip_assignment, len(back.members)) == (True, 1)
        assert bytes(scene.answer(sync_request("i-u3", 1)).assignment) == b"mine"
        scene.restart()
        assert scene.live.static_members == {"i": "i-u3"}
        for request in (
            heartbeat_request("i-u1", 1, "i"),
            sync_request("i-u1", 1, group_instance_id="i"),
            join_request("i-u1", group_instance_id="i"),
        ):
            assert scene.answer(request).error_code == 82
        left = scene.answer(leave_request(("i-u1", "i")))
        assert [each.error_code for each in left.members] == [82]

    def test_older_clients_are_told_of_the_leader_that_was(self) -> None:
        scene = Scene()
        self.start(scene)
        scene.ask(sync_request("i-u1", 1))
        back = self.start(scene, version=8)
        assert (back.leader, back.members, back.skip_assignment) == ("i-u1", [], False)

    def test_another_protocol_takes_a_rebalance(self) -> None:
        scene = Scene()
        self.start(scene)
        scene.ask(sync_request("i-u1", 1))
        changed = join_request("", "range", "sticky", group_instance_id="i")
        changed.protocols.reverse()
        back = scene.answer(changed)
        assert (back.generation_id, back.protocol_name) == (2, "sticky")

    @pytest.mark.requirement("GA-027")
    def test_while_it_is_missed_its_place_is_kept(self) -> None:
        scene = Scene()
        self.start(scene)
        scene.ask(sync_request("i-u1", 1))
        second = scene.joined()
        for _ in range(20):
            scene.answer(heartbeat_request("i-u1", 1, "i"))
            scene.passes(3_000)
        assert set(scene.live.members) == {"i-u1", second}
        assert scene.live.leader == second

    @pytest.mark.requirement("GA-027")
    def test_a_silent_one_stays_until_its_session_is_over(self) -> None:
        scene = Scene()
        self.start(scene)
        scene.ask(sync_request("i-u1", 1))
        scene.passes(9_999)
        assert (list(scene.live.members), scene.live.state) == (["i-u1"], GroupState.STABLE)
        scene.passes(1)
        assert list(scene.live.members) == []

    def test_who_waits_is_fenced_by_its_successor(self) -> None:
        scene = Scene({"group.initial.rebalance.delay.ms": "1000"})
        waiting = scene.ask(join_request(group_instance_id="i"))
        scene.ask(join_request(group_instance_id="i"))
        fenced = scene.answers[waiting]
        assert (fenced.error_code, fenced.member_id) == (82, "i-u1")
        scene.passes(2000)
        assert list(scene.live.members) == ["i-u2"]
        assert scene.live.state is GroupState.COMPLETING_REBALANCE
        scene.ask(join_request(group_instance_id="i"))
        assert (list(scene.live.members), scene.live.generation) == (["i-u3"], 2)


def test_a_protocol_that_is_named_twice_counts_once() -> None:
    scene = Scene()
    alone = scene.joined("range", "range")
    scene.passes(0)
    assert scene.live.protocol == "range"
    scene.ask(leave_request(alone))
    first = scene.joined("range", "range", "sticky")
    scene.passes(0)
    assert scene.live.protocol == "range"
    second = scene.joined("sticky")
    scene.ask(join_request(first, "range", "range", "sticky"))
    assert set(scene.live.members) == {first, second}
    assert scene.live.protocol == "sticky"
