"""Members with the version before the group's: who returns while the newer one has not taken over, and who is fenced."""

from __future__ import annotations

import json

import pytest

from coordinator.group.streams.in_flight import encode_versions
from coordinator.shard.shard import Shard
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.private_tags import SAME_TOPOLOGY_TAG
from tests.coordinator.group.streams.test_preflight import CONFIG, OLD
from tests.coordinator.group.streams.test_setbacks import CHANGED, Upgraded

SESSION_MS = CONFIG.for_group("app").session_timeout_ms
ALL_TASKS = {"0": 3, "1": 3}
FENCED = ErrorCode.STREAMS_TOPOLOGY_FENCED


class Group(Upgraded):
    """Old members, and a new one that joins, gets tasks, and ends."""

    def fail_new(self) -> None:
        self.join("new", CHANGED, 1)
        self.turn("new", *(name for name in self.given if name != "new"))
        self.ask("new", member_epoch=-1)
        del self.given["new"]
        self.turn(*self.given)

    def lose(self, *names: str) -> None:
        """The sessions of these members end: nothing is heard of them, all others send heartbeats."""
        for _ in range(3):
            self.now_ms += SESSION_MS // 2
            for name in self.given.keys() - set(names):
                self.beat(name)
            self.shard.tick(self.now_ms)
        for name in names:
            assert name not in self.state.members
            del self.given[name]

    def joined(self, name: str, lines: list[str] = OLD, epoch: int = 0) -> int:
        response, _ = self.join(name, lines, epoch)
        return response.error_code

    def tasks(self, name: str) -> dict[str, int]:
        return {part.subtopology_id: len(part.partitions) for part in self.given[name][1]}


@pytest.mark.requirement("SG-054")
def test_a_member_that_missed_its_session_after_a_failed_upgrade_returns() -> None:
    group = Group("A", "B")
    group.fail_new()
    group.lose("A")
    group.turn("B")
    assert group.joined("A") == 0
    group.turn("A", "B")
    assert {part: group.tasks("A").get(part, 0) + group.tasks("B").get(part, 0) for part in "01"} == ALL_TASKS


def test_all_members_may_miss_their_sessions_and_return() -> None:
    group = Group("A", "B")
    group.fail_new()
    group.lose("A", "B")
    assert group.state.is_empty
    assert [group.joined("A"), group.joined("B")] == [0, 0]
    group.turn("A", "B")
    assert sum(sum(group.tasks(name).values()) for name in "AB") == 6
    assert group.topology_epoch == 1


def test_an_instance_of_the_version_before_is_started_while_nobody_runs_the_new_one() -> None:
    group = Group("A")
    group.fail_new()
    assert group.joined("more") == 0
    assert group.joined("other", [*OLD, "2: source=two"]) == FENCED, "it is not the version before"


def test_a_member_that_missed_its_session_in_the_middle_of_an_upgrade_returns_and_no_other_one_begins() -> None:
    group = Group("A", "B")
    group.join("new", CHANGED, 1)
    group.turn("new", "A", "B")
    group.lose("A")
    assert group.joined("started") == FENCED
    assert group.joined("A") == 0
    group.turn("A", "B", "new")
    group.turn("A", "B", "new")
    held = [group.tasks(name) for name in ("A", "B", "new")]
    assert {part: sum(each.get(part, 0) for each in held) for part in "01"} == ALL_TASKS


def test_a_member_that_returns_within_its_session_is_taken_again() -> None:
    group = Group("A")
    group.join("new", CHANGED, 1)
    group.turn("new", "A")
    assert group.joined("A") == 0


def described(group: Group) -> dict[int, bool]:
    """Which versions have taken over, as commands are told."""
    return {each["epoch"]: each["has_taken_over"] for each in json.loads(encode_versions(group.state))}


def test_a_version_that_has_taken_over_fences_the_one_before_whatever_happens_later() -> None:
    group = Group("A")
    group.join("new", CHANGED, 1)
    group.turn("new", "A")
    group.lose("A")
    group.turn("new")
    assert not group.state.has_taken_over, "it has just become the only one"
    assert described(group) == {1: False, 0: True}
    group.now_ms += SESSION_MS - 1
    group.beat("new")
    assert not group.state.has_taken_over
    group.now_ms += 1
    group.turn("new")
    assert group.state.has_taken_over
    assert described(group) == {1: True, 0: True}
    end = group.log.log_end_offset
    group.turn("new")
    assert group.log.log_end_offset == end, "it is written once"
    assert group.joined("A") == FENCED
    group.ask("new", member_epoch=-1)
    assert group.joined("A") == FENCED
    again = Shard(group.log, CONFIG, group.image())
    again.load(group.now_ms)
    assert again.state.groups["app"] == group.state


def test_heartbeats_are_handled_until_the_version_has_taken_over() -> None:
    group = Group("A")
    group.join("new", CHANGED, 1)
    group.turn("new", "A")
    assert group.shard.settled("app", "new") is not None
    group.lose("A")
    group.turn("new")
    assert group.shard.settled("app", "new") is None, "time may change what the next one has to write"
    group.now_ms += SESSION_MS
    group.turn("new")
    assert group.shard.settled("app", "new") is not None


def test_a_version_without_one_before_it_writes_nothing() -> None:
    group = Group("A")
    group.now_ms += SESSION_MS * 2
    end = group.log.log_end_offset
    group.beat("A")
    assert not group.state.has_taken_over
    assert group.log.log_end_offset == end


def test_the_same_topology_under_an_older_epoch_is_told_the_groups() -> None:
    group = Group("A")
    group.join("new", CHANGED, 1)
    group.turn("new", "A")
    group.join("back", OLD, 2)
    response, _ = group.join("first", OLD, 0)
    assert response.error_code == FENCED
    assert "it is the same topology. Set topology.epoch to 2." in response.error_message
    assert response.unknown_tags == {SAME_TOPOLOGY_TAG: b""}
    other, _ = group.join("second", CHANGED, 0)
    assert (other.error_code, other.unknown_tags) == (FENCED, None)
