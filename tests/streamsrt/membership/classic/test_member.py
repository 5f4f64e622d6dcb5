"""A member of a classic group with the leader in it: what it asks for as work, and what follows from the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest

from streamsrt.assignment.topics import Ends, Left, TopicErrors, TopicImage, TopicsImage, TopicSpec
from streamsrt.membership.classic.layout import decode_assignment
from streamsrt.membership.classic.leader_assignments import LeaderSettings
from streamsrt.membership.classic.member import ClassicMember, ClassicStep
from streamsrt.membership.classic.state import ClassicMemberState
from streamsrt.membership.classic.values import ClassicAssignment
from streamsrt.membership.values import AssignmentChanged, ReportOwned, StatusChanged, TopicPartition
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.streamsrt.membership.classic.scenario import MEMBERSHIP

WATCH_MS = 20_000


class Hands:
    """The topics of a cluster, as counts of partitions."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.topics = dict(topics)
        self.asked: list[Collection[str] | None] = []

    async def list_topics(self, names: Collection[str] | None) -> TopicsImage:
        self.asked.append(names)
        return TopicsImage.of(*(TopicImage(bytes(16), name, count) for name, count in self.topics.items()))

    async def create_topics(self, specs: Collection[TopicSpec]) -> TopicErrors:
        self.topics |= {spec.name: spec.partitions for spec in specs}
        return TopicErrors({})

    async def end_offsets(
        self,
        partitions: Collection[TopicPartition],
        group: Collection[TopicPartition],
        written: Collection[TopicPartition],
    ) -> Ends:
        return Ends({})

    async def left(self, partitions: Collection[TopicPartition]) -> Left:
        return Left({})


class Alone:
    """The only member of its group, with a coordinator that gives it what it sends."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.hands = Hands(topics)
        self.member = ClassicMember(MEMBERSHIP, LeaderSettings(group_id="g"), watch_interval_ms=WATCH_MS)
        self.now_ms = 1_000
        self.generation = 0
        self.todo = ClassicStep()
        self.told: list[object] = []
        self.take(self.member.start(self.now_ms))
        assert self.todo.find_coordinator
        self.take(self.member.coordinator_found(9, self.now_ms))

    def take(self, todo: ClassicStep) -> ClassicStep:
        self.todo = todo
        self.told += todo.events
        return todo

    def joins(self) -> ClassicStep:
        """Answers the JoinGroup that was sent: it leads."""
        join = self.todo.rebalance_request
        assert isinstance(join, JoinGroupRequest)
        self.generation += 1
        entry = JoinGroupResponse.JoinGroupResponseMember(member_id="m", metadata=join.protocols[0].metadata)
        return self.take(
            self.member.rebalance_responded(
                JoinGroupResponse(
                    generation_id=self.generation,
                    member_id="m",
                    leader="m",
                    protocol_name="streamsrt-1",
                    members=[entry],
                ),
                self.now_ms,
            )
        )

    def works(self) -> ClassicStep:
        """Does the work that was asked for."""
        assert self.todo.work is not None
        answer = asyncio.run(_done(self.todo, self.hands))
        return self.take(self.member.worked(answer, self.now_ms))

    def syncs(self) -> ClassicAssignment:
        sync = self.todo.rebalance_request
        assert isinstance(sync, SyncGroupRequest)
        (entry,) = sync.assignments
        self.take(self.member.rebalance_responded(SyncGroupResponse(assignment=entry.assignment), self.now_ms))
        told = decode_assignment(entry.assignment)
        assert isinstance(told, ClassicAssignment)
        return told

    def opens(self) -> None:
        tasks = self.member.session.assigned
        self.take(self.member.command(ReportOwned(tasks), self.member.session.event_count, self.now_ms))

    def after(self, ms: int) -> ClassicStep:
        """So much later; heartbeats are answered."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.now_ms = min(until_ms, self.now_ms + 1_000)
            self.member.polled(self.now_ms)
            todo = self.take(self.member.tick(self.now_ms))
            if isinstance(todo.request, HeartbeatRequest):
                work, request = todo.work, todo.rebalance_request
                self.take(self.member.responded(HeartbeatResponse(), self.now_ms))
                self.todo.work = self.todo.work or work
                self.todo.rebalance_request = self.todo.rebalance_request or request
        return self.todo


async def _done(todo: ClassicStep, hands: Hands) -> TopicsImage | TopicErrors | Ends:
    assert todo.work is not None
    return await todo.work(hands)


def stable(topics: Mapping[str, int]) -> Alone:
    alone = Alone(topics)
    alone.joins()
    alone.works()
    alone.syncs()
    alone.opens()
    return alone


def test_a_lone_member_leads_and_gives_itself_everything() -> None:
    alone = Alone({"t": 3})
    assert alone.member.member_epoch == -1
    alone.joins()
    assert alone.member.member_epoch == 1, "commits may go on while it leads"
    assert alone.todo.rebalance_request is None
    alone.works()
    assert alone.hands.asked == [None], "it looks for what older versions have left"
    alone.syncs()
    (told,) = [each for each in alone.told if isinstance(each, AssignmentChanged)]
    assert told.tasks.active == {("s", 0), ("s", 1), ("s", 2)}


def test_topics_that_are_missing_are_told_as_a_status() -> None:
    alone = Alone({})
    alone.joins()
    alone.works()
    alone.syncs()
    (told,) = [each for each in alone.told if isinstance(each, StatusChanged)]
    assert "t" in told.statuses[0].detail


def test_between_generations_the_leader_looks_at_the_topics_and_joins_when_they_have_changed() -> None:
    alone = stable({"t": 2})
    alone.after(WATCH_MS)
    alone.works()
    assert alone.todo.rebalance_request is None
    alone.hands.topics["t"] = 4
    alone.after(WATCH_MS)
    alone.works()
    join = alone.todo.rebalance_request
    assert isinstance(join, JoinGroupRequest)
    assert join.reason == "topics have changed"
    alone.joins()
    alone.works()
    assert len(alone.syncs().tasks.active) == 4


def test_a_look_that_fails_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    alone = stable({"t": 2})
    alone.after(WATCH_MS)
    alone.take(alone.member.work_failed("no broker", alone.now_ms))
    assert "can't look up the topics: no broker" in caplog.text
    assert alone.todo.rebalance_request is None
    assert alone.after(WATCH_MS).work is not None


def test_the_log_names_the_member_that_has_lost_its_tasks(caplog: pytest.LogCaptureFixture) -> None:
    alone = stable({"t": 2})
    alone.now_ms += 3_000
    alone.member.polled(alone.now_ms)
    assert isinstance(alone.take(alone.member.tick(alone.now_ms)).request, HeartbeatRequest)
    alone.member.responded(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), alone.now_ms)
    assert alone.member.member_id == ""
    assert "Group g, member m: all tasks are lost: UNKNOWN_MEMBER_ID" in caplog.text


def test_the_log_says_of_a_member_without_an_id_that_it_joins(caplog: pytest.LogCaptureFixture) -> None:
    alone = Alone({"t": 2})
    for _ in range(2):
        alone.member.rebalance_failed("disconnected", alone.now_ms)
        alone.member.coordinator_found(9, alone.now_ms)
        alone.now_ms += 1_000
        alone.member.tick(alone.now_ms)
    assert "Group g, a member that joins: heartbeats fail, retrying: disconnected" in caplog.text


def test_at_its_deadline_the_leader_goes_on_with_what_it_knows() -> None:
    alone = Alone({"t": 3})
    alone.joins()
    for _ in range(20):
        if alone.after(1_000).rebalance_request is not None:
            break
    assert isinstance(alone.todo.rebalance_request, SyncGroupRequest)
    assert alone.now_ms == 1_000 + LeaderSettings(group_id="g").session_timeout_ms // 3


def test_work_that_fails_is_no_reason_to_wait_for_the_deadline() -> None:
    alone = Alone({"t": 3})
    alone.joins()
    alone.take(alone.member.work_failed("no broker", alone.now_ms))
    assert isinstance(alone.todo.rebalance_request, SyncGroupRequest)


def test_a_rebalance_ends_the_leading_and_late_answers_mean_nothing() -> None:
    alone = stable({"t": 2})
    alone.after(3_000)
    alone.now_ms += 3_000
    alone.take(alone.member.tick(alone.now_ms))
    alone.take(alone.member.responded(HeartbeatResponse(error_code=27), alone.now_ms))
    alone.joins()
    late = alone.todo
    alone.now_ms += 3_000
    alone.take(alone.member.tick(alone.now_ms))
    alone.take(alone.member.responded(HeartbeatResponse(error_code=27), alone.now_ms))
    assert alone.member.session.group is ClassicMemberState.JOINING
    answer = asyncio.run(_done(late, alone.hands))
    alone.take(alone.member.worked(answer, alone.now_ms))
    assert alone.todo.rebalance_request is None
    assert alone.member.session.group is ClassicMemberState.JOINING


def test_another_member_that_can_not_be_read_is_told_so() -> None:
    alone = Alone({"t": 2})
    join = alone.todo.rebalance_request
    assert isinstance(join, JoinGroupRequest)
    entry = JoinGroupResponse.JoinGroupResponseMember
    members = [entry(member_id="m", metadata=join.protocols[0].metadata), entry(member_id="x", metadata=b"?")]
    alone.take(
        alone.member.rebalance_responded(
            JoinGroupResponse(generation_id=1, member_id="m", leader="m", members=members), 1_000
        )
    )
    alone.works()
    sync = alone.todo.rebalance_request
    assert isinstance(sync, SyncGroupRequest)
    told = {each.member_id: decode_assignment(each.assignment) for each in sync.assignments}
    assert isinstance(told["x"], ClassicAssignment)
    assert "can't read the subscription of member x" in (told["x"].error_text or "")
    assert isinstance(told["m"], ClassicAssignment)
    assert len(told["m"].tasks.active) == 2
