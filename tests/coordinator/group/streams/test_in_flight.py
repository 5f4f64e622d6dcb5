"""Records in flight in repartition topics that a new version does not have are read, or the version is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator.group.streams.reasons import reasons_between
from coordinator.group.values import GroupRequest, RequestContext
from coordinator.shard.shard import EventOutcome, Shard
from streamsrt.assignment.in_flight import Unread
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.value_versions import ValueVersion, written_versions
from streamsrt.wire import types
from streamsrt.wire.client_tags import LOSE_IN_FLIGHT, TOPOLOGY_DIGEST, VALUE_VERSIONS
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.private_tags import VERSIONS_TAG
from tests.coordinator.group.streams.test_preflight import CONFIG, CONTEXT, OLD, TOPICS, Group, Heartbeat

RENAMED = ["0: source=in sink=x", "1: repartition=x changelog=c"]


class Backlogged(Group):
    """A group with records in its repartition topics that it has not read."""

    def __init__(self, *members: str, waits: dict[tuple[str, int], int]) -> None:
        self.waits = waits
        self.context = replace(CONTEXT, unread=self._unread)
        super().__init__(*members, topics={**TOPICS, "x": 3})

    def _unread(self, group_id: str, names: Collection[str]) -> Unread:
        assert group_id == "app"
        return {place: count for place, count in self.waits.items() if place[0] in names}

    def ask(self, name: str, context: RequestContext = CONTEXT, **fields: Any) -> tuple[Any, EventOutcome]:
        return super().ask(name, self.context, **fields)

    def turn(self, *names: str) -> None:
        for name in names * 6:
            self.beat(name)

    def runs(self, name: str) -> dict[str, set[int]]:
        return {each.subtopology_id: set(each.partitions) for each in self.given[name][1]}


ALL = {0, 1, 2}
LOSE = [Heartbeat.KeyValue(key=LOSE_IN_FLIGHT, value="true")]


def test_old_members_read_what_is_in_flight_before_a_repartition_topic_is_left() -> None:
    group = Backlogged("old", waits={("r", 0): 5, ("r", 2): 1})
    group.join("new", RENAMED, 1)
    group.turn("new", "old")
    assert (group.runs("old"), group.runs("new")) == ({"1": {0, 2}}, {"0": ALL, "1": {1}})
    told = group.beat("new").status
    assert [status.status_code for status in told] == [StatusCode.ASSIGNMENT_DELAYED]
    assert "read to the end by old members first: r (topology epoch 0)." in told[0].status_detail
    group.waits = {("r", 2): 1}
    group.turn("new", "old")
    assert (group.runs("old"), group.runs("new")) == ({"1": {2}}, {"0": ALL, "1": {0, 1}})
    group.waits = {}
    group.turn("new", "old")
    assert (group.runs("old"), group.runs("new")) == ({}, {"0": ALL, "1": ALL})
    assert group.beat("new").status == []
    epoch = group.state.epoch
    group.turn("new", "old")
    assert group.state.epoch == epoch


def test_why_the_group_has_a_new_assignment_names_what_old_members_still_write() -> None:
    group = Backlogged("old", waits={})
    before = group.state
    group.join("new", RENAMED, 1)
    asked = GroupRequest(group.context, Heartbeat(group_id="app", member_id="new", member_epoch=0))
    written = "Old members still write to repartition topics that the new version does not have: r (topology epoch 0)"
    assert written in reasons_between(before, group.state, asked)
    group.turn("new", "old")
    assert (group.runs("old"), group.runs("new")) == ({}, {"0": ALL, "1": ALL})
    assert written not in reasons_between(before, group.state, asked)


def test_a_version_is_refused_that_would_leave_records_in_flight_behind() -> None:
    group = Backlogged("old", waits={("r", 0): 5, ("r", 2): 1})
    group.ask("old", member_epoch=-1)
    response, _ = group.join("new", RENAMED, 1)
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert (
        "r: 6 records of topology epoch 0. No member is left that reads them. Start an instance"
        in response.error_message
    )
    assert group.topology_epoch == 0
    # The same version again reads them.
    assert group.join("old", OLD, 0)[0].error_code == 0
    group.ask("old", member_epoch=-1)
    assert group.join("new", RENAMED, 1, client_tags=LOSE)[0].error_code == 0
    group.turn("new")
    assert group.runs("new") == {"0": ALL, "1": ALL}


def test_what_the_last_old_member_did_not_read_holds_its_readers_back() -> None:
    group = Backlogged("old", waits={("r", 2): 7})
    group.join("new", RENAMED, 1)
    group.turn("new", "old")
    group.ask("old", member_epoch=-1)
    group.turn("new")
    assert group.runs("new") == {"0": ALL, "1": {0, 1}}
    (told,) = group.beat("new").status
    assert "that no member can read: r: 7 records of topology epoch 0." in told.status_detail
    # Neither another start of the coordinator nor another version without the topic changes that.
    again = Shard(group.log, CONFIG, group.image())
    again.load(1000)
    group.shard = again
    group.turn("new")
    assert group.runs("new") == {"0": ALL, "1": {0, 1}}
    assert group.join("next", [*RENAMED, "2: source=two"], 2)[0].error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    # The way back reads them.
    assert group.join("back", OLD, 2)[0].error_code == 0
    group.turn("back", "new")
    assert 2 in group.runs("back")["1"]


def test_a_version_that_nobody_runs_holds_nothing_that_a_later_one_reads() -> None:
    """The first version has the topic, so has the second one, which members run while the third comes."""
    group = Backlogged("one", "two", waits={("r", 0): 5, ("r", 2): 1})
    extra = "2: source=two"
    for name in ("one", "two"):
        group.ask(name, member_epoch=-1)
        assert group.join(name, [*OLD, extra], 1)[0].error_code == 0
        group.turn("one", "two")
    group.ask("two", member_epoch=-1)
    assert group.join("new", [*RENAMED, extra], 2)[0].error_code == 0
    group.turn("new", "one")
    (told,) = group.beat("new").status
    assert "read to the end by old members first: r (topology epoch 1)." in told.status_detail
    assert group.runs("one")["1"] == {0, 2}
    group.waits = {}
    group.turn("new", "one")
    assert group.runs("new")["1"] == ALL


def test_the_running_version_with_the_metadata_of_an_earlier_one_was_not_rolled_back() -> None:
    """The values of a store are not in the metadata: a version that changes only those is as the one before."""
    group = Backlogged("old", waits={("r", 0): 5})
    assert group.join("value", OLD, 1)[0].error_code == 0
    group.turn("value", "old")
    for name in ("old", "value"):
        group.ask(name, member_epoch=-1)
    response, _ = group.join("new", RENAMED, 2)
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "Start an instance of the version of topology epoch 1 again" in response.error_message


def test_a_version_that_is_gone_back_to_lets_the_later_one_read_to_the_end_first() -> None:
    group = Backlogged("old", waits={})
    group.join("new", RENAMED, 1)
    group.turn("new", "old")
    group.waits = {("x", 0): 5, ("x", 2): 1}
    assert group.join("back", OLD, 2)[0].error_code == 0
    group.turn("back", "new", "old")
    assert group.runs("new")["1"] == ALL, "one of three instances is not half of them"
    group.ask("old", member_epoch=-1)
    group.turn("back", "new")
    assert (group.runs("new"), group.runs("back")) == ({"1": {0, 2}}, {"0": ALL, "1": {1}})
    group.waits = {}
    group.turn("back", "new")
    assert (group.runs("new"), group.runs("back")) == ({}, {"0": ALL, "1": ALL})


OURS = [Heartbeat.KeyValue(key=TOPOLOGY_DIGEST, value="d")]


class Unknowing(Backlogged):
    """A group that nobody has joined yet: it was deleted, or had another protocol. What it has committed is there."""

    def __init__(self, *committed: str) -> None:
        super().__init__(waits={(topic, 1): 9 for topic in committed})
        self.context = replace(self.context, committed_topics=lambda _: set(committed))


@pytest.mark.parametrize(
    "topic",
    [
        "app-r-repartition",
        "app-fk-subscription-registration-topic",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic",
    ],
)
def test_the_first_topology_of_a_group_must_read_what_it_has_committed_a_part_of(topic: str) -> None:
    group = Unknowing(topic)
    response, _ = group.join("new", RENAMED, 1, client_tags=OURS)
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert f"{topic}: 9 records. No member is left that reads them." in response.error_message
    assert "app" not in group.shard.state.groups
    # The version that has the topic starts, and the new one beside it.
    older = [f"0: source=in sink={topic}", f"1: repartition={topic}"]
    assert group.join("old", older, 0, client_tags=OURS)[0].error_code == 0
    assert group.join("new", RENAMED, 1, client_tags=OURS)[0].error_code == 0


def test_who_may_lose_it_starts_and_so_does_who_can_not_say_that() -> None:
    for tags in ([*OURS, *LOSE], []):
        assert Unknowing("app-r-repartition").join("new", RENAMED, 1, client_tags=tags)[0].error_code == 0


@pytest.mark.parametrize("topic", ["in", "apprentice-r-repartition", "app-c-changelog", "app-a-topic"])
def test_what_is_called_otherwise_is_nothing_to_the_first_topology(topic: str) -> None:
    assert Unknowing(topic).join("new", RENAMED, 1, client_tags=OURS)[0].error_code == 0


def test_what_may_be_lost_holds_nothing_back() -> None:
    group = Backlogged("old", waits={("r", 2): 7})
    group.join("new", RENAMED, 1, client_tags=LOSE)
    group.turn("new", "old")
    assert group.runs("old") == {"1": {2}}
    group.ask("old", member_epoch=-1)
    group.turn("new")
    assert group.runs("new") == {"0": ALL, "1": ALL}
    assert group.beat("new").status == []


def test_an_upgrade_waits_for_the_one_before_it() -> None:
    group = Backlogged("old", waits={("r", 2): 7})
    group.join("new", RENAMED, 1)
    group.turn("new", "old")
    response, _ = group.join("next", [*RENAMED, "2: source=two"], 2)
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "members with topology epoch 0 are still reading r: 7 records" in response.error_message
    group.waits = {}
    assert group.join("next", [*RENAMED, "2: source=two"], 2)[0].error_code == 0


def test_why_the_group_has_a_new_assignment_names_what_is_read_to_the_end() -> None:
    group = Backlogged("old", waits={("r", 0): 5})
    group.join("new", RENAMED, 1)
    group.turn("new", "old")

    before = group.state
    group.join("another", RENAMED, 1)
    beat = GroupRequest(CONTEXT, Heartbeat(group_id="app", member_id="new", member_epoch=2))
    drains = (
        "Repartition topics that the new version does not have are read to the end by old members first: "
        "r (topology epoch 0)"
    )
    assert drains in reasons_between(before, group.state, beat)
    group.turn("another", "new", "old")
    group.waits = {}
    before = group.state
    group.turn("another", "new", "old")
    assert "all records in flight in removed repartition topics have been read" in reasons_between(
        before, group.state, beat
    )


def test_why_the_group_has_a_new_assignment_says_how_many_records_are_left_unread() -> None:
    group = Backlogged("old", waits={("r", 0): 5})
    group.join("new", RENAMED, 1)
    group.turn("new", "old")
    group.join("another", RENAMED, 1, client_tags=LOSE)
    group.turn("another", "new", "old")
    before = group.state
    group.ask("old", member_epoch=-1)
    group.turn("another", "new")
    beat = GroupRequest(CONTEXT, Heartbeat(group_id="app", member_id="new", member_epoch=2))
    told = "; ".join(reasons_between(before, group.state, beat))
    assert "no task waits for records in flight in removed repartition topics: 5 records left unread" in told


# ------------------------------------------------------------------ versions of which each reads what the other leaves

TWICE = {("r", 0): 11, ("x", 0): 6, ("x", 2): 60}


def deadlocked() -> Backlogged:
    """Both versions have left records in the topic that only they have, and nobody runs."""
    group = Backlogged("old", waits={})
    group.join("new", RENAMED, 1)
    group.turn("new", "old")
    group.waits = dict(TWICE)
    group.ask("new", member_epoch=-1)
    group.ask("old", member_epoch=-1)
    return group


def start(group: Group, order: tuple[str, str]) -> None:
    """The instances of the old version and of the new one join, one after the other."""
    versions = {"old": (OLD, 0), "new": (RENAMED, 1)}
    for name in order:
        response, _ = group.join(name, *versions[name])
        assert response.error_code == 0, response.error_message
        group.turn(name)
    group.turn("new", "old", "new")


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_two_versions_that_each_read_what_the_other_leaves_start_in_either_order(order: tuple[str, str]) -> None:
    group = deadlocked()
    start(group, order)
    assert group.topology_epoch == 1
    assert (group.runs("old"), group.runs("new")) == ({"1": {0}}, {"0": ALL, "1": {1, 2}})
    del group.waits["r", 0]
    group.turn("new", "old")
    assert (group.runs("old"), group.runs("new")) == ({}, {"0": ALL, "1": ALL})


def test_a_mended_version_under_the_next_epoch_follows_where_only_an_older_one_runs() -> None:
    group = deadlocked()
    response, _ = group.join("mended", RENAMED, 2)
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "version of topology epoch 0 again, with topology.epoch=0: it is accepted" in response.error_message
    assert group.join("old", OLD, 0)[0].error_code == 0
    group.turn("old")
    assert group.runs("old") == {"0": ALL, "1": ALL}
    response, _ = group.join("mended", RENAMED, 2)
    assert response.error_code == 0, response.error_message
    group.turn("mended", "old")
    assert (group.runs("old"), group.runs("mended")) == ({"1": {0}}, {"0": ALL, "1": {1, 2}})


def test_an_older_version_is_taken_again_only_for_what_nobody_else_reads() -> None:
    group = Backlogged("old", waits={("r", 2): 7})
    group.join("new", RENAMED, 1)
    group.turn("new", "old")
    assert group.join("again", OLD, 0)[0].error_code == ErrorCode.STREAMS_TOPOLOGY_FENCED, "an old member reads it"
    group.ask("old", member_epoch=-1)
    group.turn("new")
    (told,) = group.beat("new").status
    assert "Start an instance of the version of topology epoch 0 again, with topology.epoch=0" in told.status_detail
    assert group.join("other", [*OLD, "2: source=two"], 0)[0].error_code == ErrorCode.STREAMS_TOPOLOGY_FENCED
    assert group.join("again", OLD, 0)[0].error_code == 0
    group.turn("again", "new")
    assert (group.runs("again"), group.runs("new")) == ({"1": {2}}, {"0": ALL, "1": {0, 1}})
    assert group.join("more", OLD, 0)[0].error_code == ErrorCode.STREAMS_TOPOLOGY_FENCED
    group.waits = {}
    group.turn("again", "new")
    assert (group.runs("again"), group.runs("new")) == ({}, {"0": ALL, "1": ALL})
    assert group.join("more", OLD, 0)[0].error_code == ErrorCode.STREAMS_TOPOLOGY_FENCED


def test_a_version_that_was_sent_back_is_not_taken_again() -> None:
    group = Backlogged("old", waits={})
    group.join("new", RENAMED, 1)
    group.turn("new", "old")
    group.join("back", OLD, 2)
    group.waits = {("x", 0): 5}
    group.ask("new", member_epoch=-1)
    group.turn("back", "old")
    (told,) = group.beat("back").status
    assert "topology epoch 1 was rolled back: the group has the topology of an earlier version" in told.status_detail
    assert "again. Start it with the next epoch, 3," in told.status_detail
    assert group.join("new", RENAMED, 1)[0].error_code == ErrorCode.STREAMS_TOPOLOGY_FENCED
    assert group.join("next", RENAMED, 3)[0].error_code == 0


def test_who_may_lose_records_takes_no_older_version_again() -> None:
    group = Backlogged("old", waits={("r", 2): 7})
    group.join("new", RENAMED, 1, client_tags=LOSE)
    group.turn("new", "old")
    group.ask("old", member_epoch=-1)
    assert group.join("old", OLD, 0)[0].error_code == ErrorCode.STREAMS_TOPOLOGY_FENCED


# ----------------------------------------------------------------------------------- versions that never ran side by side


def apart(*, lose: bool = True) -> Backlogged:
    """The old version ended with records in flight, the new one ran alone, and ended with records in flight, too."""
    group = Backlogged("old", waits={("r", 0): 11})
    group.ask("old", member_epoch=-1)
    response, _ = group.join("new", RENAMED, 1, client_tags=LOSE if lose else [])
    assert response.error_code == 0, response.error_message
    group.turn("new")
    group.waits = dict(TWICE)
    group.ask("new", member_epoch=-1)
    return group


def encode_versions(group: Backlogged) -> list[dict[str, Any]]:
    request = types.StreamsGroupDescribeRequest(group_ids=["app"])
    ((_, response),) = group.shard.execute(GroupRequest(group.context, request), 1000).replies
    (described,) = response.groups
    told: list[dict[str, Any]] = json.loads((described.unknown_tags or {}).get(VERSIONS_TAG, b"[]"))
    return told


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_versions_that_never_ran_side_by_side_start_together_too(order: tuple[str, str]) -> None:
    group = apart()
    assert [(each["epoch"], each["repartition_topics"], each["is_sent_back"]) for each in encode_versions(group)] == [
        (1, ["x"], False),
        (0, ["r"], False),
    ]
    again = Shard(group.log, CONFIG, group.image())
    again.load(1000)
    group.shard = again
    start(group, order)
    assert (group.runs("old"), group.runs("new")) == ({"1": {0}}, {"0": ALL, "1": {1, 2}})
    group.waits = {}
    group.turn("new", "old")
    assert (group.runs("old"), group.runs("new")) == ({}, {"0": ALL, "1": ALL})


def test_what_was_left_is_not_lost_by_a_start_without_the_option() -> None:
    group = apart()
    del group.waits["x", 0], group.waits["x", 2]
    assert group.join("new", RENAMED, 1)[0].error_code == 0
    group.turn("new")
    assert group.runs("new") == {"0": ALL, "1": {1, 2}}
    (told,) = group.beat("new").status
    assert "that no member can read: r: 11 records of topology epoch 0." in told.status_detail
    group.join("with", RENAMED, 1, client_tags=LOSE)
    group.turn("with", "new")
    runs = [group.runs(name).get("1", set()) for name in ("with", "new")]
    assert sorted(set().union(*runs)) == [0, 1, 2]


def test_a_version_of_which_nothing_is_unread_is_forgotten() -> None:
    group = Backlogged("old", waits={})
    group.ask("old", member_epoch=-1)
    assert group.join("new", RENAMED, 1)[0].error_code == 0
    assert group.state.older == ()
    assert encode_versions(group) == []
    group = apart()
    group.waits = {}
    assert group.join("next", [*RENAMED, "2: source=two"], 2)[0].error_code == 0
    assert group.state.older == ()


def test_a_version_that_was_sent_back_while_nobody_ran_is_told_so() -> None:
    group = Backlogged("old", waits={})
    group.join("new", RENAMED, 1)
    group.turn("new", "old")
    group.waits = {("x", 0): 5}
    for name in ("new", "old"):
        group.ask(name, member_epoch=-1)
    assert group.join("back", OLD, 2, client_tags=LOSE)[0].error_code == 0
    assert [(each["epoch"], each["is_sent_back"]) for each in encode_versions(group)] == [
        (2, False),
        (1, True),
        (0, False),
    ]
    group.ask("back", member_epoch=-1)
    assert group.join("new", RENAMED, 1)[0].error_code == ErrorCode.STREAMS_TOPOLOGY_FENCED


# ------------------------------------------------------------------------------------------ values with a later version


OURS = [Heartbeat.KeyValue(key=TOPOLOGY_DIGEST, value="1")]


def values(version: int, *upcasts: int) -> list[Heartbeat.KeyValue]:
    told = written_versions({"c": ValueVersion(version, frozenset(upcasts))})
    return [Heartbeat.KeyValue(key=VALUE_VERSIONS, value=told)]


def test_a_repartition_topic_that_goes_and_a_later_version_of_values_are_two_upgrades() -> None:
    group = Backlogged("old", waits={})
    response, _ = group.join("new", RENAMED, 1, client_tags=values(2, 1))
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "Repartition topic r is removed, and the values in c get a later version" in response.error_message
    assert "Do it in two upgrades: first drop or rename the repartition topic" in response.error_message
    assert group.topology_epoch == 0
    # One after the other.
    assert group.join("new", RENAMED, 1)[0].error_code == 0
    group.turn("new", "old")
    group.ask("old", member_epoch=-1)
    assert group.join("next", RENAMED, 2, client_tags=values(2, 1))[0].error_code == 0
    # Going back is not looked at here: nothing of the later version may have been written yet.
    assert group.join("back", RENAMED, 3, client_tags=OURS)[0].error_code == 0


def test_who_cannot_check_what_it_reads_is_refused_beside_later_values() -> None:
    group = Backlogged("old", waits={})
    assert group.join("new", OLD, 1, client_tags=[*values(2, 1), *OURS])[0].error_code == 0
    for epoch in (0, 1, 2):
        response, _ = group.join("java", OLD, epoch)
        assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert "writes values of later versions, which Kafka Streams of Java and earlier" in response.error_message
        assert "can't read: c (version 2)" in response.error_message
    assert group.topology_epoch == 1
    assert group.join("ours", OLD, 2, client_tags=OURS)[0].error_code == 0, "it has looked itself"
    plain = Backlogged("old", waits={})
    assert plain.join("new", OLD, 1, client_tags=[*values(1), *OURS])[0].error_code == 0
    assert plain.join("java", OLD, 1)[0].error_code == 0


def test_values_that_old_members_write_need_an_upcast() -> None:
    group = Backlogged("old", waits={})
    response, _ = group.join("new", OLD, 1, client_tags=values(3, 2))
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert (
        "The values in c have version 1, and version 3 of the store has no upcast={1: ...}." in response.error_message
    )
    assert group.join("new", OLD, 1, client_tags=values(3, 1, 2))[0].error_code == 0


def test_where_no_member_is_left_values_may_change_with_the_topics() -> None:
    group = Backlogged("old", waits={})
    group.ask("old", member_epoch=-1)
    assert group.join("new", RENAMED, 1, client_tags=values(2, 1))[0].error_code == 0


EXTRA = "2: source=two"
BOTH = ["0: source=in sink=r,x", "1: repartition=r changelog=c", "3: repartition=x changelog=d"]
VERSIONS = [OLD, RENAMED, [*OLD, EXTRA], [*RENAMED, EXTRA], BOTH]
Step = tuple[str, str, int]
steps_of_upgrades = st.lists(
    st.one_of(
        st.tuples(st.just("next"), st.sampled_from("abc"), st.integers(0, len(VERSIONS) - 1)),
        st.tuples(st.just("again"), st.sampled_from("abc"), st.integers(0, 5)),
        st.tuples(st.just("leave"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("beat"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.sampled_from(["r", "x"]), st.sampled_from("012"), st.integers(0, 2)),
    ),
    min_size=3,
    max_size=25,
)


@given(steps_of_upgrades)
@example([("r", "0", 1), ("next", "a", 2), ("next", "b", 3)])
@example([("r", "0", 1), ("next", "b", 2), ("next", "a", 3), ("leave", "b", 0), ("again", "b", 1)])
@settings(max_examples=60)
def test_however_upgrades_follow_each_other_every_partition_is_run_in_the_end(steps: list[Step]) -> None:
    """``next``: an instance comes with that version under the next epoch; ``again``: with one that ran before."""
    group = Backlogged("a", "b", waits={})
    group.topics["d"] = 3
    group.set_topics()
    ran = [(OLD, 0)]
    runs = {"a": 0, "b": 0}
    for what, name, number in steps:
        if what in ("next", "again"):
            wanted = (VERSIONS[number], group.topology_epoch + 1) if what == "next" else ran[number % len(ran)]
            if name in runs:
                group.ask(name, member_epoch=-1)
                del runs[name]
            if not group.join(name, *wanted)[0].error_code:
                runs[name] = wanted[1]
                ran += [wanted] if wanted not in ran else []
        elif what == "leave" and name in runs:
            group.ask(name, member_epoch=-1)
            del runs[name]
        elif what in ("r", "x"):
            group.waits[what, int(name)] = number
        for each in runs:
            group.beat(each)
    group.waits = {}
    if not runs:
        return
    group.turn(*runs)
    counts = Counter(p for each in runs for p in group.runs(each).get("1", set()))
    assert counts == dict.fromkeys(range(3), 1)


# ------------------------------------------------------------------------------------ stores that are fed by another way

SPLIT_UP = ["0: source=in sink=r,x", "1: repartition=r", "2: repartition=x changelog=c"]


@pytest.mark.parametrize("waits", [{}, {("r", 1): 3}], ids=["all read", "unread"])
def test_a_store_that_a_new_repartition_feeds_beside_the_one_that_stays_is_refused_while_the_old_version_runs(
    waits: dict[tuple[str, int], int],
) -> None:
    group = Backlogged("old", waits=waits)
    response, _ = group.join("new", SPLIT_UP, 1)
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "c is the changelog of a store that was fed by r, and is fed by x now" in response.error_message
    assert group.beat("old").error_code == 0
    assert group.state.topology is not None
    assert group.state.topology.epoch == 0
    group.ask("old", member_epoch=-1)
    response, _ = group.join("new", SPLIT_UP, 1)
    assert (response.error_code == 0) is (not waits), response.error_message
