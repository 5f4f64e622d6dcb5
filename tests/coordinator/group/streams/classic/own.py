"""Members of this runtime in the classic protocol: the real machine, against a coordinator that is played step by step."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any

from streamsrt.assignment.tasks import TaskId
from streamsrt.assignment.topics import Ends, TopicErrors, TopicsImage, TopicSpec
from streamsrt.membership.classic.leader_assignments import LeaderSettings
from streamsrt.membership.classic.member import ClassicMember, ClassicStep
from streamsrt.membership.classic.state import union
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    GroupMembership,
    Leave,
    MembershipFailed,
    ReleaseTasks,
    ReportOwned,
    TasksLost,
    TopicPartition,
)
from tests.coordinator.group.classic.scene import Scene
from tests.coordinator.group.streams.classic.java import IMAGE, streams_join

VERSION = 9


class Hands:
    """What the cluster has."""

    async def list_topics(self, names: Collection[str] | None) -> TopicsImage:
        return IMAGE

    async def create_topics(self, specs: Collection[TopicSpec]) -> TopicErrors:
        raise AssertionError(f"every topic is there: {specs}")

    async def end_offsets(
        self,
        partitions: Collection[TopicPartition],
        group: Collection[TopicPartition],
        written: Collection[TopicPartition],
    ) -> Ends:
        """Nothing has been written to any topic."""
        return Ends(dict.fromkeys((*partitions, *written), 0))


class Own:
    """It opens at once what it is given, and closes what it is to give back with the next step, while it ``closes``."""

    def __init__(self, scene: Scene, name: str, *, topology: Any = None, tags: dict[str, str] | None = None) -> None:
        self.scene = scene
        membership = GroupMembership(
            group_id="g",
            member_id="",
            process_id=str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
            topology=topology or streams_join().topology,
            client_tags=tags or {},
            session_timeout_ms=10_000,
        )
        settings = LeaderSettings(group_id="g", session_timeout_ms=10_000)
        self.machine = ClassicMember(membership, settings, heartbeat_interval_ms=1_000)
        self.open = self.wanted = NOTHING
        self.asked: dict[str, int] = {}
        self.failed: Any = None
        self.has_started = False
        self.closes = True

    @property
    def active(self) -> frozenset[TaskId]:
        return frozenset(TaskId(*task) for task in self.open.active)

    def act(self) -> None:
        if not self.has_started:
            self.has_started = True
            self._do(self.machine.start(self.scene.now_ms))
        self.machine.polled(self.scene.now_ms)
        for lane, number in list(self.asked.items()):
            if number in self.scene.answers:
                del self.asked[lane]
                take = self.machine.responded if lane == "group" else self.machine.rebalance_responded
                self._do(take(self.scene.answers[number], self.scene.now_ms))
        if self.closes and self.open != self.wanted:
            self.open = self.wanted
            self._report()
        if not self.machine.ended:
            self._do(self.machine.tick(self.scene.now_ms))

    def connection_is_lost(self) -> None:
        for lane in list(self.asked):
            if self.asked.pop(lane) and not self.machine.ended:
                lose = self.machine.request_failed if lane == "group" else self.machine.rebalance_failed
                self._do(lose("the connection is lost", self.scene.now_ms))

    def goes(self) -> bool:
        """It says so, or its session ends."""
        if not self.machine.ended:
            self._do(self.machine.command(Leave(), self.machine.session.event_count, self.scene.now_ms))
        for _ in range(5):
            self.act()
        return True

    def _report(self) -> None:
        if not self.machine.ended:
            seen = self.machine.session.event_count
            self._do(self.machine.command(ReportOwned(self.open), seen, self.scene.now_ms))

    def _do(self, todo: ClassicStep) -> None:
        now_ms = self.scene.now_ms
        for event in todo.events:
            if isinstance(event, AssignmentChanged):
                self.wanted = event.tasks
                self.open = union(self.open, self.wanted)
            elif isinstance(event, TasksLost | ReleaseTasks):
                self.open = self.wanted = NOTHING
            elif isinstance(event, MembershipFailed):
                self.failed = event.error
                self.open = self.wanted = NOTHING
        if self.machine.ended:
            return
        if todo.find_coordinator:
            self._do(self.machine.coordinator_found(VERSION, now_ms))
        for lane, request in (("group", todo.request), ("rebalance", todo.rebalance_request)):
            if request is not None:
                assert lane not in self.asked, "one request on each lane"
                self.asked[lane] = self.scene.ask(request)
        if todo.events:
            self._report()
        if todo.work is not None:
            coroutine: Any = todo.work(Hands())
            try:
                coroutine.send(None)
            except StopIteration as done:
                self._do(self.machine.worked(done.value, now_ms))
