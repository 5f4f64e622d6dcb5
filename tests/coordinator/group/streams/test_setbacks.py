"""A new version that ends again and again gets tasks of older ones after a growing pause only."""

from __future__ import annotations

from coordinator.group.streams.reasons import reasons_between
from coordinator.group.values import GroupRequest
from streamsrt.assignment.status_code import StatusCode
from tests.coordinator.group.streams.test_preflight import CONTEXT, OLD, Group, Heartbeat

CHANGED = [OLD[0], "1: repartition=r source=two changelog=c"]
FITS = {"in": 3, "r": 3, "c": 3, "two": 3}


class Upgraded(Group):
    def __init__(self, *members: str) -> None:
        super().__init__(*members, topics=FITS)

    def turn(self, *names: str) -> None:
        for name in names * 6:
            self.beat(name)

    def tries(self, name: str) -> tuple[int, list[str]]:
        """A member of the new version comes: how many changed tasks it gets, and what it is told. Then it goes."""
        self.join(name, CHANGED, 1)
        self.turn(name, "old")
        response = self.beat(name)
        told = [each.status_detail for each in response.status if each.status_code == StatusCode.ASSIGNMENT_DELAYED]
        got = sum(len(each.partitions) for each in self.given[name][1] if each.subtopology_id == "1")
        self.ask(name, member_epoch=-1)
        self.turn("old")
        return got, told


def test_who_fails_again_and_again_waits() -> None:
    group = Upgraded("old")
    assert [group.tries(name)[0] > 0 for name in ("n1", "n2")] == [True, True]
    got, (told,) = group.tries("n3")
    assert got == 0
    assert "Members with topology epoch 1 left 2 times" in told
    # One that had nothing has not failed; the old member has everything.
    assert {part.subtopology_id: len(part.partitions) for part in group.given["old"][1]} == {"0": 3, "1": 3}
    group.now_ms += 15_000
    assert group.tries("n4")[0] > 0
    assert "left 3 times" in group.tries("n5")[1][0]
    group.now_ms += 29_999
    assert group.tries("n6")[0] == 0


def test_who_waits_gets_tasks_when_the_pause_is_over_though_nobody_came_or_went() -> None:
    group = Upgraded("old")
    for name in ("n1", "n2"):
        group.tries(name)
    group.join("n3", CHANGED, 1)
    group.turn("n3", "old")
    assert {each.subtopology_id for each in group.given["n3"][1]} <= {"0"}
    assert group.state.soft.may_change_by_itself
    group.now_ms += 15_000
    group.turn("n3", "old")
    assert "1" in {each.subtopology_id for each in group.given["n3"][1]}
    assert group.beat("n3").status == []


def test_a_clock_that_was_set_back_makes_no_pause_longer() -> None:
    group = Upgraded("old")
    for name in ("n1", "n2"):
        group.tries(name)
    group.now_ms -= 3_600_000
    assert group.tries("n3")[0] > 0


def test_why_the_group_has_a_new_assignment_says_so() -> None:
    group = Upgraded("old")
    group.tries("n1")
    group.join("n2", CHANGED, 1)
    group.turn("n2", "old")
    before = group.state
    _, outcome = group.ask("n2", member_epoch=-1)
    assert outcome.appended
    went = GroupRequest(CONTEXT, Heartbeat(group_id="app", member_id="n2", member_epoch=-1))
    reasons = reasons_between(before, group.state, went)
    assert any("epoch 1 left 2 times in a row" in reason for reason in reasons)
    group.turn("old")
    before = group.state
    group.join("n3", CHANGED, 1)
    joined = [reason for reason in reasons_between(before, group.state, went) if "times in a row" in reason]
    assert len(joined) == 1, "an assignment within the pause says why it hands nothing over"
    group.turn("n3", "old")
    before = group.state
    group.now_ms += 15_000
    group.beat("old")
    reasons = reasons_between(before, group.state, went)
    assert reasons == ["the pause after the setbacks of topology epoch 1 is over"]


def test_members_of_one_version_have_no_setbacks() -> None:
    group = Upgraded("a", "b")
    for _ in range(5):
        group.ask("b", member_epoch=-1)
        group.join("b", OLD, 0)
        group.turn("a", "b")
    assert group.state.soft.setbacks is None
