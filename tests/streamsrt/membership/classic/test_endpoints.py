"""Which instances answer queries in a classic group: when a member asks, what counts as an answer, what is told."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from streamsrt.membership.classic.endpoints import BACK_OFF_MS, SPREAD_MS, TRIES_TO_WARN
from streamsrt.membership.classic.layout import encode_assignment, encode_subscription
from streamsrt.membership.classic.leader_assignments import LeaderSettings
from streamsrt.membership.classic.member import ClassicMember, ClassicStep
from streamsrt.membership.classic.values import ClassicAssignment, ClassicSubscription
from streamsrt.membership.values import (
    Endpoint,
    EndpointsChanged,
    GroupMembership,
    Leave,
    ReportOwned,
    Tasks,
    TopicPartition,
)
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.streamsrt.membership.classic.scenario import DIGEST, MEMBERSHIP, PROCESS, tasks

Response = types.DescribeGroupsResponse
Entry = Response.DescribedGroupMember
Metadata = types.StreamsGroupHeartbeatRequest
HERE, THERE = Endpoint("here", 1), Endpoint("there", 2)
SERVES = replace(MEMBERSHIP, endpoint=HERE)


def places(*names: str) -> frozenset[TopicPartition]:
    """``"t 0 1"``: partitions 0 and 1 of topic t."""
    words = [name.split() for name in names]
    return frozenset((topic, int(number)) for topic, *numbers in words for number in numbers)


class Rig:
    """A follower, whose coordinator is played by the test; a member ``other`` is described by hand."""

    def __init__(self, membership: GroupMembership = SERVES, member_id: str = "m") -> None:
        self.member = ClassicMember(membership, LeaderSettings(group_id="g"))
        self.member_id = member_id
        self.now_ms = 1_000
        self.told: list[EndpointsChanged] = []
        self.asked: list[types.DescribeGroupsRequest] = []
        self.beats = 0
        self.mine = Tasks()
        self.take(self.member.start(self.now_ms))
        self.take(self.member.coordinator_found(9, self.now_ms))

    def take(self, todo: ClassicStep) -> ClassicStep:
        self.told += [event for event in todo.events if isinstance(event, EndpointsChanged)]
        self.asked += [todo.describe] if todo.describe is not None else []
        self.todo = todo
        return todo

    def generation(self, number: int, given: Tasks) -> Rig:
        """Joins, syncs, opens; without what a heartbeat would say before."""
        self.joins(number)
        self.syncs(given)
        self.take(self.member.command(ReportOwned(given), self.member.session.event_count, self.now_ms))
        return self

    def joins(self, number: int) -> None:
        response = types.JoinGroupResponse(
            generation_id=number, member_id=self.member_id, leader="other", protocol_name="streamsrt-1"
        )
        self.take(self.member.rebalance_responded(response, self.now_ms))

    def syncs(self, given: Tasks) -> None:
        self.mine = given
        self.take(self.member.rebalance_responded(types.SyncGroupResponse(assignment=self.assignment()), self.now_ms))

    def assignment(self, given: Tasks | None = None, **fields: Any) -> bytes:
        given = self.mine if given is None else given
        session = self.member.session
        fields.setdefault("assigned_partitions", frozenset(("t", number) for _, number in given.active))
        fields.setdefault("generation", session.generation)
        told = ClassicAssignment(
            group_epoch=2,
            group_digest=DIGEST,
            tasks=given,
            target=given,
            process_id=PROCESS,
            unique=session.unique,
            **fields,
        )
        return encode_assignment(told)

    def rebalances(self) -> None:
        """A heartbeat says so; the member joins."""
        while not isinstance(self.todo.request, types.HeartbeatRequest):
            self.wakes()
        self.take(self.member.responded(types.HeartbeatResponse(error_code=27), self.now_ms))
        assert isinstance(self.todo.rebalance_request, types.JoinGroupRequest)

    def wakes(self) -> None:
        assert self.todo.wake_at_ms is not None
        self.now_ms = max(self.now_ms, self.todo.wake_at_ms)
        self.member.polled(self.now_ms)
        self.take(self.member.tick(self.now_ms))

    def beats_and_wakes(self) -> None:
        """The next thing that it does; a heartbeat is answered."""
        self.wakes()
        if isinstance(self.todo.request, types.HeartbeatRequest):
            self.beats += 1
            self.take(self.member.responded(types.HeartbeatResponse(), self.now_ms))

    def asks(self) -> None:
        """Until it has asked once more."""
        before = len(self.asked)
        while len(self.asked) == before:
            self.beats_and_wakes()

    def after(self, ms: int) -> int:
        """So much later: how often it has asked. Heartbeats are answered."""
        before = len(self.asked)
        until_ms = self.now_ms + ms
        while self.todo.wake_at_ms is not None and self.todo.wake_at_ms <= until_ms:
            self.beats_and_wakes()
        self.now_ms = until_ms
        return len(self.asked) - before

    def describes(self, *others: Entry, **fields: Any) -> None:
        """The group as it is, with this member in it."""
        me = entry(self.member_id, said(HERE), self.assignment())
        fields = {"group_state": "Stable", "protocol_data": "streamsrt-1", "members": [me, *others], **fields}
        group = Response.DescribedGroup(group_id="g", protocol_type="consumer", **fields)
        self.take(self.member.described(Response(groups=[group]), self.now_ms))


def said(endpoint: Endpoint | None, *topics: str, process_id: str = PROCESS) -> bytes:
    return encode_subscription(
        ClassicSubscription(
            process_id=process_id, topology_epoch=2, topology_digest=DIGEST, endpoint=endpoint, topics=frozenset(topics)
        )
    )


def entry(member_id: str, metadata: bytes, assignment: bytes) -> Entry:
    return Entry(member_id=member_id, member_metadata=metadata, member_assignment=assignment)


def other(rig: Rig, given: Tasks, endpoint: Endpoint | None = THERE, **fields: Any) -> Entry:
    return entry("other", said(endpoint), rig.assignment(given, **fields))


def asked(given: Tasks, membership: GroupMembership = SERVES) -> Rig:
    rig = Rig(membership).generation(1, given)
    assert rig.after(SPREAD_MS) == 1
    return rig


def test_it_asks_once_when_a_generation_is_stable_and_tells_what_everybody_has() -> None:
    rig = Rig()
    rig.joins(1)
    assert rig.after(60_000) == 0, "its SyncGroup is not answered"
    rig.syncs(tasks("0", standby="1"))
    assert rig.after(SPREAD_MS) == 1
    assert rig.asked[0].groups == ["g"]
    rig.describes(other(rig, tasks("1", standby="0")))
    assert rig.told == [EndpointsChanged({HERE: (places("t 0"), places("t 1")), THERE: (places("t 1"), places("t 0"))})]
    assert rig.after(60_000) == 0


def test_it_asks_again_in_each_generation_and_tells_only_what_is_new() -> None:
    rig = asked(tasks("0"))
    rig.describes(other(rig, tasks("1")))
    rig.rebalances()
    rig.generation(2, tasks("0"))
    assert rig.after(SPREAD_MS) == 1
    rig.describes(other(rig, tasks("1")))
    assert len(rig.told) == 1
    rig.rebalances()
    rig.generation(3, tasks("0 1"))
    assert rig.after(SPREAD_MS) == 1
    rig.describes()
    assert rig.told[1:] == [EndpointsChanged({HERE: (places("t 0 1"), frozenset())})]


def test_what_it_tells_counts_as_an_event_that_the_processing_thread_takes() -> None:
    rig = asked(tasks("0"))
    before = rig.member.session.event_count
    rig.describes()
    assert rig.member.session.event_count == before + 1


def test_a_member_without_an_endpoint_never_asks() -> None:
    assert Rig(MEMBERSHIP).generation(1, tasks("0")).after(60_000) == 0


def test_it_does_not_ask_while_it_has_to_let_go_of_tasks() -> None:
    rig = asked(tasks("0 1"))
    rig.describes()
    rig.rebalances()
    rig.joins(2)
    rig.syncs(tasks("0"))
    assert rig.after(60_000) == 0, "task 1 is open, and the next generation is to come"


@pytest.mark.parametrize("state", ["CompletingRebalance", "PreparingRebalance", "Empty", "Dead"])
def test_an_answer_counts_only_if_the_group_is_stable(state: str) -> None:
    rig = asked(tasks("0"))
    rig.describes(other(rig, tasks("1")), group_state=state)
    assert rig.told == []
    assert rig.after(BACK_OFF_MS + SPREAD_MS) == 1
    rig.describes(other(rig, tasks("1")))
    assert len(rig.told) == 1


def test_an_answer_counts_only_if_every_assignment_is_of_its_generation() -> None:
    rig = asked(tasks("0"))
    rig.describes(other(rig, tasks("1"), generation=0))
    rig.describes(other(rig, tasks("1"), generation=2))
    rig.describes(members=[other(rig, tasks("1"))])
    rig.describes(protocol_data="another")
    assert rig.told == []


def test_members_whose_words_cannot_be_read_are_left_out() -> None:
    rig = asked(tasks("0"))
    rig.describes(
        entry("newer", said(THERE), b"?"),
        entry("odd", b"?", rig.assignment(tasks("1"))),
        entry("empty", b"", b""),
        other(rig, tasks("2"), endpoint=None),
    )
    assert rig.told == [EndpointsChanged({HERE: (places("t 0"), frozenset())})]


def test_members_of_one_process_have_one_endpoint() -> None:
    rig = asked(tasks("0"))
    rig.describes(other(rig, tasks("1", standby="2"), endpoint=HERE))
    assert rig.told == [EndpointsChanged({HERE: (places("t 0 1"), places("t 2"))})]


def test_another_instance_with_its_endpoint_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = asked(tasks("0"))
    for generation in (1, 2):
        if generation == 2:
            rig.rebalances()
            rig.generation(2, tasks("0"))
            rig.asks()
        same = entry("other", said(HERE, process_id=str(UUID(int=8))), rig.assignment(Tasks()))
        rig.describes(same)
    (told,) = [text for text in caplog.messages if "application.server" in text]
    assert "member m, which is this instance, and member other on " in told
    assert f"have the same application.server {HERE.host}:{HERE.port}" in told


def test_while_an_answer_is_awaited_heartbeats_go_on_and_nothing_more_is_asked() -> None:
    rig = asked(tasks("0"))
    beats = rig.beats
    assert rig.after(60_000) == 0
    assert rig.beats >= beats + 19


def test_an_answer_that_a_generation_overtakes_is_judged_by_the_new_one() -> None:
    rig = asked(tasks("0"))
    rig.rebalances()
    rig.describes(other(rig, tasks("1")))
    assert rig.told == [], "a rebalance is under way"
    rig.generation(2, tasks("0"))
    assert rig.after(SPREAD_MS) == 1
    rig.rebalances()
    rig.generation(3, tasks("0"))
    assert rig.after(60_000) == 0, "one question at a time"
    rig.describes(other(rig, tasks("1"), generation=2))
    assert rig.told == []
    assert rig.after(BACK_OFF_MS + SPREAD_MS) == 1
    rig.describes(other(rig, tasks("1")))
    assert len(rig.told) == 1


def test_it_asks_again_with_growing_pauses_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = asked(tasks("0"))
    pauses = []
    with caplog.at_level(logging.WARNING):
        for number in range(12):
            at_ms = rig.now_ms
            if number % 2:
                rig.take(rig.member.describe_failed("disconnected", rig.now_ms))
            else:
                rig.describes(members=[], error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            while not rig.after(100):
                pass
            pauses.append(rig.now_ms - at_ms)
            assert len(caplog.records) == (number + 1 >= TRIES_TO_WARN)
    assert pauses == sorted(pauses)
    assert pauses[0] < 1_600
    assert pauses[-1] < 31_100
    assert "Group g: it is not known which instances answer queries, trying again: disconnected" in caplog.text


def test_members_of_a_large_group_do_not_ask_at_once() -> None:
    """500 of them: in the first generation within a second, in later ones within five."""
    first, later = [], []
    for number in range(500):
        rig = Rig(member_id=f"app-{number}-StreamThread-1")
        rig.generation(1, tasks())
        at_ms = rig.now_ms
        rig.asks()
        first.append(rig.now_ms - at_ms)
        if number % 10 == 0:
            rig.describes(*[entry(str(each), b"", b"") for each in range(499)])
            rig.rebalances()
            rig.generation(2, tasks())
            at_ms = rig.now_ms
            rig.asks()
            later.append(rig.now_ms - at_ms)
    assert max(first) <= SPREAD_MS
    per_tenth = [sum(low <= each < low + 100 for each in first) for low in range(0, 1_000, 100)]
    assert max(per_tenth) < 100, "evenly"
    assert 4_000 < max(later) <= 5_000


def test_nothing_is_told_once_the_member_has_left() -> None:
    rig = asked(tasks())
    rig.take(rig.member.command(Leave(), rig.member.session.event_count, rig.now_ms))
    rig.describes()
    assert rig.told == []
    assert rig.after(60_000) == 0


def topology(**parts: dict[str, Any]) -> Metadata.Topology:
    return Metadata.Topology(
        epoch=2, subtopologies=[Metadata.Subtopology(subtopology_id=name, **fields) for name, fields in parts.items()]
    )


def test_a_standby_task_has_the_partitions_that_its_active_task_reads() -> None:
    """``small`` has one partition, ``t`` two; ``g-sums-repartition`` is of the other subtopology."""
    internal = Metadata.TopicInfo(name="g-sums-repartition")
    parts = topology(s={"source_topics": ["small", "t"]}, r={"repartition_source_topics": [internal]})
    rig = asked(tasks("0"), replace(SERVES, topology=parts))
    standby = Tasks(standby=frozenset({("s", 0), ("s", 1), ("r", 1), ("unknown", 0)}))
    active = Tasks(active=frozenset({("s", 1), ("r", 1)}))
    reads = places("t 1", "g-sums-repartition 1")
    rig.describes(
        other(rig, standby),
        entry("third", said(None), rig.assignment(active, assigned_partitions=reads)),
        entry("m", said(HERE), rig.assignment(tasks("0"), assigned_partitions=places("t 0", "small 0"))),
    )
    assert rig.told[0].partitions[THERE] == (
        frozenset(),
        places("t 0 1", "small 0", "g-sums-repartition 1"),
    )


def test_a_standby_task_of_a_pattern_has_the_topics_that_the_group_reads() -> None:
    internal = Metadata.TopicInfo(name="logs-app-repartition")
    parts = topology(
        s={"source_topic_regex": ["logs-.*"]},
        r={"repartition_source_topics": [internal]},
        wrong={"source_topic_regex": ["("]},
    )
    rig = asked(Tasks(), replace(SERVES, topology=parts))
    standby = Tasks(standby=frozenset({("s", 3), ("wrong", 3)}))
    rig.describes(entry("other", said(THERE, "logs-a", "others", internal.name), rig.assignment(standby)))
    assert rig.told[0].partitions[THERE] == (frozenset(), places("logs-a 3")), "nobody runs the active task"
