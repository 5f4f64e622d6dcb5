"""Versions with the same topics and stores and other steps between them: a group knows them when nobody runs them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from coordinator.group.streams.in_flight import encode_versions
from coordinator.group.streams.records import program_record, taken_over_record, topology_record
from coordinator.group.streams.state import StreamsGroup, applied
from coordinator.group.values import GroupRecord
from coordinator.machine.values import CoordinatorRecord
from coordinator.shard.shard import Shard
from streamsrt.assignment.topology import topology_of
from streamsrt.wire import types
from streamsrt.wire.client_tags import TOPOLOGY_DIGEST
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import decode_record_value, encode_record_value
from streamsrt.wire.private_tags import SAME_TOPOLOGY_TAG
from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Heartbeat
from tests.coordinator.group.streams.test_preflight import CONFIG, OLD
from tests.coordinator.group.streams.test_setbacks import Upgraded
from tests.streamsrt.assignment.notation import subtopology

SESSION_MS = CONFIG.for_group("app").session_timeout_ms
OTHER, FENCED = ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, ErrorCode.STREAMS_TOPOLOGY_FENCED


class Programs(Upgraded):
    """A group whose members run programs with the same topics and stores."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[int, bytes] = {}

    def come(self, name: str, program: str, epoch: int, **fields: str) -> int:
        """A member joins, and gets its tasks if it may; the error code."""
        tags = [Heartbeat.KeyValue(key=TOPOLOGY_DIGEST, value=program)] if program else []
        response, _ = self.join(name, OLD, epoch, client_tags=tags, **fields)
        self.said, self.tags = response.error_message, response.unknown_tags or {}
        if not response.error_code:
            self.turn(*self.given)
        return int(response.error_code)

    def go(self, name: str) -> None:
        self.ask(name, member_epoch=-1)
        del self.given[name]
        self.turn(*self.given)

    def restart_broker(self) -> None:
        self.shard = Shard(self.log, CONFIG, self.image())
        self.shard.load(1000)

    def told(self) -> list[tuple[int, str, bool, bool]]:
        found = json.loads(encode_versions(self.state))
        return [(each["epoch"], each["digest"], each["is_same"], each["is_sent_back"]) for each in found]


@pytest.mark.parametrize("restarts", [False, True])
def test_another_program_is_refused_under_the_epoch_of_one_that_nobody_runs(restarts: bool) -> None:
    group = Programs()
    assert group.come("one", "a", 0) == 0
    group.go("one")
    if restarts:
        group.restart_broker()
    assert group.come("two", "b", 0) == OTHER
    assert group.said.endswith(
        "both have topology epoch 0: topics and stores are equal, and the steps between them are not. Set topology.epoch "
        "to 1 to update the group's topology."
    )
    assert group.come("mute", "", 0) == 0, "one of Java's"
    assert group.come("again", "a", 0) == 0
    assert group.come("two", "b", 1) == 0


def test_the_first_member_that_tells_its_program_tells_that_of_the_group() -> None:
    group = Programs()
    assert group.come("mute", "", 0) == 0
    assert group.told() == [(0, "", False, False)]
    assert group.come("one", "a", 0) == 0
    epoch = group.state.epoch
    group.go("one")
    group.restart_broker()
    assert group.told() == [(0, "a", False, False)]
    assert group.come("two", "b", 0) == OTHER
    assert group.state.epoch == epoch + 1, "nobody but the leaving member has changed the group"


def test_a_group_remembers_the_programs_of_its_versions_after_the_newest_has_taken_over() -> None:
    group = Programs()
    group.come("one", "a", 0)
    group.come("two", "b", 1)
    group.go("one")
    group.now_ms += SESSION_MS // 2
    group.turn("two")
    group.now_ms += SESSION_MS // 2
    group.turn("two")
    assert group.state.has_taken_over
    assert group.told() == [(1, "b", False, False), (0, "a", False, False)]
    group.go("two")
    group.restart_broker()
    assert group.come("other", "c", 1) == OTHER
    assert group.state.has_taken_over


def test_a_group_whose_newest_version_has_ended_was_not_rolled_back() -> None:
    group = Programs()
    group.come("one", "a", 0)
    group.come("two", "b", 1)
    group.go("two")
    assert group.told() == [(1, "b", False, False), (0, "a", False, False)]
    assert group.come("wrong", "c", 0) == FENCED, "not the version before"
    assert group.come("more", "a", 0) == 0


def test_the_version_that_was_rolled_back_is_refused_under_the_epoch_of_the_rollback() -> None:
    group = Programs()
    group.come("one", "a", 0)
    group.come("two", "b", 1)
    assert group.come("back", "a", 2) == 0
    group.go("back")
    group.go("two")
    assert group.told() == [(2, "a", False, False), (1, "b", False, True), (0, "a", True, False)]
    group.restart_broker()
    assert group.come("two", "b", 1) == FENCED
    assert not group.tags
    assert group.come("two", "b", 2) == OTHER
    assert group.come("back", "a", 2) == 0
    assert group.come("more", "a", 0) == FENCED
    assert SAME_TOPOLOGY_TAG in group.tags, "it is told the epoch, and not to start another version"


def test_a_third_program_rolls_nothing_back() -> None:
    group = Programs()
    for epoch, program in enumerate("abc"):
        group.come(program, program, epoch)
    assert [is_sent_back for *_, is_sent_back in group.told()] == [False, False, False]


def test_the_record_of_a_topology_has_its_program_beside_what_kafka_writes() -> None:
    wire = Heartbeat.Topology(epoch=1, subtopologies=[subtopology(line) for line in OLD])
    older = replace(topology_of(wire), epoch=0, program="a")
    plain, told = topology_record("app", wire).value, topology_record("app", wire, [older], "b").value
    assert isinstance(plain, types.StreamsGroupTopologyValue)
    assert isinstance(told, types.StreamsGroupTopologyValue)
    assert not plain.unknown_tags
    assert (told.epoch, told.subtopologies) == (plain.epoch, plain.subtopologies)
    group = applied(StreamsGroup("app"), [read_again(told)])
    assert [each.program for each in group.topologies()] == ["b", "a"]
    group = applied(group, [read_again(taken_over_record(group).value)])
    assert ([each.program for each in group.topologies()], group.has_taken_over) == (["b", "a"], True)
    earlier = applied(StreamsGroup("app"), [read_again(plain)])
    assert [each.program for each in earlier.topologies()] == [""]
    earlier = applied(earlier, [read_again(program_record(earlier, "b").value)])
    assert ([each.program for each in earlier.topologies()], earlier.has_taken_over) == (["b"], False)


def read_again(value: Any) -> GroupRecord:
    read = decode_record_value(types.StreamsGroupTopologyValue, encode_record_value(value))
    return CoordinatorRecord(types.StreamsGroupTopologyKey(group_id="app"), read)


def test_an_old_instance_under_the_id_of_a_running_one_is_told_that_its_version_is_old() -> None:
    group = Programs()
    group.come("one", "a", 0, instance_id="i")
    group.go("one")
    group.come("new", "b", 1, instance_id="i")
    assert group.come("late", "a", 0, instance_id="i") == FENCED
    assert "Topology epoch 0 is behind the topology epoch 1" in group.said
    assert group.come("twin", "b", 1, instance_id="i") == ErrorCode.UNRELEASED_INSTANCE_ID
    assert set(group.state.members) == {"new"}
