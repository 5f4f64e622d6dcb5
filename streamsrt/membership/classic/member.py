"""An active membership of a classic group: the member's machine, the leader's while it leads, and log lines.

:meth:`streamsrt.client.network.NetworkThread.join_classic_group` drives it. What the leader has to look up or to create
is returned as work: a function of an object that can do it (:class:`LeaderHands`). Between generations the leader
checks the topics of its assignment, and joins again when they have changed. A member with an endpoint asks for the
other endpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from streamsrt.assignment.digest import topology_digest
from streamsrt.assignment.topics import Ends, Left, TopicErrors, TopicsImage, TopicSpec
from streamsrt.errors import StreamsError
from streamsrt.membership.classic import endpoints
from streamsrt.membership.classic import leading as leader
from streamsrt.membership.classic import session as machine
from streamsrt.membership.classic import state as states
from streamsrt.membership.classic.leader_assignments import LeaderOutcome, LeaderSettings, TopicsWatch
from streamsrt.membership.classic.leading import CountUnread, CreateTopics, EndOffsets, Leading, ListTopics
from streamsrt.membership.classic.request_schedule import wake_at_ms
from streamsrt.membership.classic.state import (
    ClassicMemberState,
    GroupRequest,
    Happening,
    Lead,
    RebalanceRequest,
    Session,
    TaskState,
)
from streamsrt.membership.classic.values import NO_GENERATION
from streamsrt.membership.classic.view import Memory
from streamsrt.membership.member import log_event
from streamsrt.membership.session_events import OwnedReported, Refused, RequestFailed, Tick
from streamsrt.membership.state import OffsetReport
from streamsrt.membership.values import (
    Command,
    Event,
    GroupMembership,
    Join,
    ReportOwned,
    SetTaskOffsets,
    TopicPartition,
)
from streamsrt.wire.schema import Message
from streamsrt.wire.types import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)

log = logging.getLogger(__name__)

WATCH_INTERVAL_MS = 30_000
"""How often a leader looks at the topics, at least."""


LeaderAnswer: TypeAlias = TopicsImage | TopicErrors | Ends | Left


class LeaderHands(Protocol):
    """What the leader needs to be done (implemented by :class:`streamsrt.client.leading.LeaderWork`)."""

    async def list_topics(self, names: Collection[str] | None) -> TopicsImage: ...
    async def create_topics(self, specs: Collection[TopicSpec]) -> TopicErrors: ...
    async def end_offsets(
        self,
        partitions: Collection[TopicPartition],
        group: Collection[TopicPartition],
        written: Collection[TopicPartition],
    ) -> Ends: ...
    async def left(self, partitions: Collection[TopicPartition]) -> Left: ...


Work: TypeAlias = Callable[[LeaderHands], Awaitable[LeaderAnswer]]


@dataclass(slots=True)
class ClassicStep:
    """What to send and do, on each lane; see :class:`streamsrt.client.classic_group.ClassicTodo`."""

    request: GroupRequest | None = None
    rebalance_request: RebalanceRequest | None = None
    describe: DescribeGroupsRequest | None = None
    find_coordinator: bool = False
    events: tuple[Event, ...] = ()
    wake_at_ms: int | None = None
    work: Work | None = None


@dataclass(slots=True)
class _Watching:
    watch: TopicsWatch
    check_at_ms: int
    is_listing: bool = field(default=False)


class ClassicMember:
    """One member of a classic group. Not thread-safe: the network thread owns it once it has joined."""

    request_type: type = JoinGroupRequest

    def __init__(
        self,
        membership: GroupMembership,
        settings: LeaderSettings,
        known: SetTaskOffsets | None = None,
        *,
        heartbeat_interval_ms: int = 3_000,
        unique: int = 0,
        watch_interval_ms: int = WATCH_INTERVAL_MS,
    ) -> None:
        """``known``: the state on disk. ``unique``: the first number of its subscriptions. It differs for each process, so
        that an assignment that a broker stored for the previous process is recognized."""
        digest = topology_digest(membership.topology, membership.client_tags)
        report = None if known is None else OffsetReport(known.offsets, known.end_offsets)
        self.session = Session(
            membership=membership,
            digest=digest,
            report=report,
            unique=unique,
            heartbeat_interval_ms=heartbeat_interval_ms,
        )
        self.group_id = membership.group_id
        self._settings = settings
        self._memory = Memory(texts={digest: membership.topology})
        self._leading: Leading | None = None
        self._leading_wake_ms: int | None = None
        self._watching: _Watching | None = None
        self._watch_interval_ms = watch_interval_ms
        self._lookup = endpoints.Lookup()

    @property
    def member_id(self) -> str:
        return self.session.member_id

    @property
    def member_epoch(self) -> int:
        """The generation, for commits; -1 while this is not a member."""
        session = self.session
        is_member = session.group in states.TAKING_PART and session.tasks in {TaskState.RUNNING, TaskState.RELEASING}
        return session.generation if is_member and not session.ended else NO_GENERATION

    @property
    def instance_id(self) -> str | None:
        return self.session.membership.instance_id

    @property
    def rebalance_timeout_ms(self) -> int:
        return self.session.membership.session_timeout_ms

    @property
    def ended(self) -> bool:
        return self.session.ended

    def start(self, now_ms: int) -> ClassicStep:
        return self._on(Join(), now_ms)

    def command(self, command: Command, seen: int, now_ms: int) -> ClassicStep:
        """``seen``: how many events the processing thread had handled when it sent the command."""
        if isinstance(command, ReportOwned):
            return self._on(OwnedReported(command.tasks, seen), now_ms)
        return self._on(command, now_ms)

    def coordinator_found(self, version: int, now_ms: int) -> ClassicStep:
        """``version``: the highest JoinGroup version that both the coordinator and this client support."""
        return self._on(states.CoordinatorFound(version), now_ms)

    def responded(self, response: Message, now_ms: int) -> ClassicStep:
        assert isinstance(response, HeartbeatResponse | LeaveGroupResponse)
        return self._on(states.Answered(response), now_ms)

    def request_failed(self, reason: str, now_ms: int) -> ClassicStep:
        return self._on(RequestFailed(reason), now_ms)

    def rebalance_responded(self, response: Message, now_ms: int) -> ClassicStep:
        assert isinstance(response, JoinGroupResponse | SyncGroupResponse)
        return self._on(states.RebalanceAnswered(response), now_ms)

    def rebalance_failed(self, reason: str, now_ms: int) -> ClassicStep:
        return self._on(states.RebalanceFailed(reason), now_ms)

    def refused(self, error: StreamsError, now_ms: int) -> ClassicStep:
        return self._on(Refused(error), now_ms)

    def tick(self, now_ms: int) -> ClassicStep:
        todo = self._on(Tick(), now_ms)
        if self._leading is not None:
            self._lead(leader.step(self._leading, Tick(), now_ms), todo, now_ms)
        return self._finish(todo, now_ms)

    def polled(self, at_ms: int) -> None:
        """Records when the processing thread was last active. Called before every event."""
        self.session = machine.alive(self.session, at_ms)

    # ----------------------------------------------------------------------------------------------------- endpoints

    def described(self, response: Message, now_ms: int) -> ClassicStep:
        """Handles the response to ``describe``."""
        assert isinstance(response, DescribeGroupsResponse)
        return self._endpoints_described(endpoints.answered(self._lookup, self.session, response, now_ms), now_ms)

    def describe_failed(self, reason: str, now_ms: int) -> ClassicStep:
        return self._endpoints_described(endpoints.failed(self._lookup, self.session, reason, now_ms), now_ms)

    def _endpoints_described(self, result: endpoints.LookupResult, now_ms: int) -> ClassicStep:
        self._lookup = result.lookup
        if result.warning is not None:
            log.warning("Group %s: %s", self.group_id, result.warning)
        return self._on(Tick() if result.found is None else states.EndpointsFound(result.found), now_ms)

    # ------------------------------------------------------------------------------------------------------- leading

    def worked(self, answer: LeaderAnswer, now_ms: int) -> ClassicStep:
        """Handles the result of the latest work."""
        todo = ClassicStep()
        if self._leading is not None:
            self._lead(leader.step(self._leading, _leader_event(answer), now_ms), todo, now_ms)
        elif self._watching is not None and isinstance(answer, TopicsImage):
            self._watching.is_listing = False
            if self._watching.watch.is_outdated(answer):
                self._watching = None
                self._step(states.RejoinWanted("topics have changed"), todo, now_ms)
        return self._finish(todo, now_ms)

    def work_failed(self, reason: str, now_ms: int) -> ClassicStep:
        """Handles a failure of the latest work."""
        todo = ClassicStep()
        if self._leading is not None:
            event = _failed(self._leading, reason)
            if event is not None:
                self._lead(leader.step(self._leading, event, now_ms), todo, now_ms)
        elif self._watching is not None:
            self._watching.is_listing = False
            log.warning("Group %s: its leader can't look up the topics: %s", self.group_id, reason)
        return self._finish(todo, now_ms)

    def _begin(self, lead: Lead, todo: ClassicStep, now_ms: int) -> None:
        self._watching = None
        begun = leader.begin(
            lead.generation,
            lead.members,
            memory=self._memory,
            settings=self._settings,
            leader_id=self.session.member_id,
            now_ms=now_ms,
            protocol_name=lead.protocol_name,
        )
        self._lead(begun, todo, now_ms)

    def _lead(self, step: leader.LeadingStep, todo: ClassicStep, now_ms: int) -> None:
        self._leading, self._leading_wake_ms = step.leading, step.wake_at_ms
        if step.effect is not None:
            todo.work = _work(step.effect)
        if step.outcome is not None:
            self._end_leading(step.leading.view.generation, step.outcome, todo, now_ms)

    def _end_leading(self, generation: int, outcome: LeaderOutcome, todo: ClassicStep, now_ms: int) -> None:
        self._leading, self._leading_wake_ms = None, None
        self._memory = outcome.memory
        if outcome.watch is not None:
            self._watching = _Watching(outcome.watch, now_ms + self._watch_interval_ms)
        for warning in outcome.warnings:
            log.warning("%s", warning)
        if outcome.unfit:
            self._step(states.Unfit(outcome.unfit), todo, now_ms)
            return
        self._step(states.Led(generation, outcome.assignments), todo, now_ms)

    # ------------------------------------------------------------------------------------------------------- machines

    def _on(self, event: Happening, now_ms: int) -> ClassicStep:
        todo = ClassicStep()
        self._step(event, todo, now_ms)
        return self._finish(todo, now_ms)

    def _step(self, event: Happening, todo: ClassicStep, now_ms: int) -> None:
        known, id_before = set(self.session.statuses), self.member_id
        step = machine.step(self.session, event, now_ms)
        self.session = step.session
        for reported in step.events:
            # A member that was removed has no id any more; the event refers to its previous id.
            log_event(self.group_id, self.member_id or id_before, reported, known)
        todo.events += step.events
        todo.request = step.request or todo.request
        todo.rebalance_request = step.rebalance_request or todo.rebalance_request
        todo.find_coordinator = step.find_coordinator or todo.find_coordinator
        todo.wake_at_ms = step.wake_at_ms
        if self.session.group is not ClassicMemberState.LEADING:
            self._leading, self._leading_wake_ms = None, None
        if step.lead is not None:
            self._begin(step.lead, todo, now_ms)

    def _finish(self, todo: ClassicStep, now_ms: int) -> ClassicStep:
        watching = self._watching
        if self.session.group is not ClassicMemberState.IN or self._leading is not None:
            watching = None
        elif watching is not None and not watching.is_listing and now_ms >= watching.check_at_ms:
            watching.is_listing, watching.check_at_ms = True, now_ms + self._watch_interval_ms
            names = watching.watch.names
            todo.work = lambda hands: hands.list_topics(names)
        check_at_ms = None if watching is None or watching.is_listing else watching.check_at_ms
        self._lookup, describe = endpoints.follow(self._lookup, self.session, now_ms)
        todo.describe = describe or todo.describe
        times = [wake_at_ms(self.session), self._leading_wake_ms, check_at_ms, self._lookup.send_at_ms]
        todo.wake_at_ms = None if self.ended else min((time for time in times if time is not None), default=None)
        return todo


def _work(effect: leader.Effect) -> Work:
    match effect:
        case ListTopics(names):
            return lambda hands: hands.list_topics(names)
        case CreateTopics(specs):
            return lambda hands: hands.create_topics(specs)
        case EndOffsets(partitions, committed, written):
            return lambda hands: hands.end_offsets(partitions, committed, written)
        case CountUnread(partitions):
            return lambda hands: hands.left(partitions)


def _leader_event(answer: LeaderAnswer) -> leader.Event:
    if isinstance(answer, TopicsImage):
        return leader.TopicsListed(answer)
    if isinstance(answer, TopicErrors):
        return leader.TopicsCreated(answer.errors)
    if isinstance(answer, Left):
        return leader.UnreadCounted(answer.unread)
    return leader.EndOffsetsListed(answer.offsets)


def _failed(leading: Leading, reason: str) -> leader.Event | None:
    match leading.awaits:
        case ListTopics():
            return leader.TopicsUnknown(reason)
        case EndOffsets():
            return leader.EndOffsetsListed(None)
        case CountUnread():
            return leader.UnreadCounted(None)
        case CreateTopics(specs):
            return leader.TopicsCreated({spec.name: (-1, reason) for spec in specs})
    return None
