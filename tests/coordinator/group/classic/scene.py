"""A shard with classic groups, and what was asked of it: answers come when they come."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from coordinator.group.classic.state import ClassicGroup, Live
from coordinator.group.config import GroupConfig
from coordinator.group.values import GroupRequest, RequestContext
from coordinator.shard.shard import EventOutcome, Shard
from streamsrt.assignment.in_flight import Unread
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire import types
from tests.coordinator.group.memory_log import MemoryLog

NEWEST = {"JoinGroupRequest": 9, "SyncGroupRequest": 5, "HeartbeatRequest": 4, "LeaveGroupRequest": 5}
IMAGE = TopicsImage.of(TopicImage(b"1" * 16, "t", 2))


class Scene:
    """``ask`` gives the number of a request; ``answers`` has the answers by number. Time stands still until told."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.config = GroupConfig.parse({"group.initial.rebalance.delay.ms": "0", **(settings or {})})
        self.log = MemoryLog()
        self.shard = Shard(self.log, self.config, IMAGE)
        self.now_ms = 1000
        self.answers: dict[int, Any] = {}
        self._asked = 0
        self.unread: Unread = {}
        """Of each partition of repartition topics."""

    @property
    def live(self) -> Live:
        group = self.shard.state.groups["g"]
        assert isinstance(group, ClassicGroup)
        return group.live

    def ask(self, request: Any, version: int | None = None) -> int:
        self._asked += 1
        version = NEWEST.get(request.NAME, 0) if version is None else version
        context = RequestContext(self._asked, "client", "/host", version, f"u{self._asked}", unread=self._unread)
        self._take(self.shard.execute(GroupRequest(context, request), self.now_ms))
        return self._asked

    def _unread(self, _group_id: str, names: Collection[str]) -> Unread:
        return {place: count for place, count in self.unread.items() if place[0] in names}

    def answer(self, request: Any, version: int | None = None) -> Any:
        """The answer to a request that need not wait."""
        return self.answers[self.ask(request, version)]

    def passes(self, milliseconds: int) -> None:
        """Time passes; timers expire when they are due."""
        end_ms = self.now_ms + milliseconds
        while (due_ms := self.shard.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = due_ms
            self._take(self.shard.tick(due_ms))
        self.now_ms = end_ms

    def restart(self) -> None:
        """Another coordinator goes on with the log; whoever waited has lost its connection."""
        live = self.shard.state
        self.shard = Shard(self.log, self.config, IMAGE)
        self._take(self.shard.load(self.now_ms))
        assert self.shard.state == live, "replaying the log equals the live state"

    def _take(self, outcome: EventOutcome) -> None:
        for request_id, message in outcome.replies:
            assert request_id not in self.answers, "a request is answered once"
            self.answers[request_id] = message

    def joined(self, *protocols: str, **fields: Any) -> str:
        """A new dynamic member whose JoinGroup waits or is answered; its id."""
        first = self.answer(join_request("", *protocols, **fields))
        assert first.error_code == 79
        self.ask(join_request(first.member_id, *protocols, **fields))
        return str(first.member_id)

    def stable(self, count: int, *protocols: str) -> list[str]:
        """A stable group with this many members, the first of which leads, after a generation for each of them."""
        names: list[str] = []
        for _ in range(count):
            names.append(self.joined(*protocols))
            self.passes(0)
            for name in names:
                if self.live.state == "PreparingRebalance" and name not in self.live.joining:
                    self.ask(join_request(name, *protocols))
        for name in reversed(names):
            self.ask(sync_request(name, self.live.generation, {each: each.encode() for each in names}))
        assert self.live.state == "Stable"
        return names


def join_request(member_id: str = "", *protocols: str, **fields: Any) -> types.JoinGroupRequest:
    request = types.JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[
            types.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=name.encode())
            for name in protocols or ("range",)
        ],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def sync_request(
    member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **fields: Any
) -> types.SyncGroupRequest:
    request = types.SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        assignments=[
            types.SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=assignment)
            for name, assignment in (assignments or {}).items()
        ],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def heartbeat_request(member_id: str, generation: int, instance_id: str | None = None) -> types.HeartbeatRequest:
    return types.HeartbeatRequest(
        group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance_id
    )


def leave_request(*members: str | tuple[str, str | None]) -> types.LeaveGroupRequest:
    """Members by id, or by id and instance id."""
    identities = [(each, None) if isinstance(each, str) else each for each in members]
    return types.LeaveGroupRequest(
        group_id="g",
        members=[
            types.LeaveGroupRequest.MemberIdentity(member_id=name, group_instance_id=instance)
            for name, instance in identities
        ],
    )
