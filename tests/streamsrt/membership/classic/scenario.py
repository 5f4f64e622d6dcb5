"""A session of a classic member, driven by hand: what it sends and tells, and answers of a coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from streamsrt.membership.classic import session as machine
from streamsrt.membership.classic.layout import decode_subscription, encode_assignment
from streamsrt.membership.classic.state import (
    Answered,
    ClassicMemberState,
    ClassicSessionStep,
    CoordinatorFound,
    RebalanceAnswered,
    RebalanceFailed,
    Session,
)
from streamsrt.membership.classic.values import ClassicAssignment, ClassicSubscription
from streamsrt.membership.session_events import OwnedReported, RequestFailed, Tick
from streamsrt.membership.values import Event, GroupMembership, Join, Task, Tasks
from streamsrt.wire import types

E = TypeVar("E")

PROCESS = "00000000-0000-0000-0000-000000000007"
DIGEST = b"d" * 16
Topology = types.StreamsGroupHeartbeatRequest.Topology
TOPOLOGY = Topology(
    epoch=2,
    subtopologies=[types.StreamsGroupHeartbeatRequest.Subtopology(subtopology_id="s", source_topics=["t"])],
)
MEMBERSHIP = GroupMembership(group_id="g", member_id="", process_id=PROCESS, topology=TOPOLOGY)


def tasks(active: str = "", standby: str = "", warmup: str = "") -> Tasks:
    """``"0 1"``: tasks 0 and 1 of subtopology s."""
    return Tasks(*(frozenset(("s", int(n)) for n in names.split()) for names in (active, standby, warmup)))


class Scenario:
    """``now_ms`` moves only when a test says so. A search for the coordinator is answered at once."""

    def __init__(self, membership: GroupMembership = MEMBERSHIP, *, version: int = 9, **changes: Any) -> None:
        self.session = Session(membership=replace(membership, **changes), digest=DIGEST)
        self.version = version
        self.now_ms = 1_000
        self.events: list[Event] = []
        self.sent: list[Any] = []
        self.lead: Any = None
        self.step = ClassicSessionStep(self.session)

    def on(self, event: Any) -> ClassicSessionStep:
        self.step = step = machine.step(self.session, event, self.now_ms)
        self.session = step.session
        self.events += step.events
        self.sent += [each for each in (step.request, step.rebalance_request) if each is not None]
        self.lead = step.lead or self.lead
        if step.find_coordinator:
            return self.on(CoordinatorFound(self.version))
        return step

    def last(self, kind: type[E]) -> E:
        """The last request, or the last event; it is taken, so that the next one is another."""
        found = [each for each in (*self.sent, *self.events) if isinstance(each, kind)]
        assert found, f"no {kind.__name__}"
        self.sent = [each for each in self.sent if each is not found[-1]]
        self.events = [each for each in self.events if each is not found[-1]]
        return found[-1]

    def none(self, kind: type) -> None:
        assert not [each for each in (*self.sent, *self.events) if isinstance(each, kind)]

    def said(self) -> ClassicSubscription:
        """What the last JoinGroup said; it is taken."""
        said = decode_subscription(self.last(types.JoinGroupRequest).protocols[0].metadata)
        assert isinstance(said, ClassicSubscription)
        return said

    def at(self, now_ms: int) -> ClassicSessionStep:
        self.now_ms = now_ms
        return self.on(Tick())

    def after(self, ms: int) -> ClassicSessionStep:
        return self.at(self.now_ms + ms)

    # ------------------------------------------------------------------------------------------------------- answers

    def joined(self, generation: int = 1, *, leader: str = "other", **fields: Any) -> ClassicSessionStep:
        fields.setdefault("member_id", "m")
        fields.setdefault("protocol_name", "streamsrt-1")
        return self.on(RebalanceAnswered(types.JoinGroupResponse(generation_id=generation, leader=leader, **fields)))

    def synced(self, given: Tasks | None = None, **fields: Any) -> ClassicSessionStep:
        given = Tasks() if given is None else given
        fields.setdefault("generation", self.session.generation)
        fields.setdefault("group_epoch", 2)
        fields.setdefault("group_digest", DIGEST)
        fields.setdefault("process_id", PROCESS)
        fields.setdefault("unique", self.session.unique)
        fields.setdefault("target", given)
        told = ClassicAssignment(tasks=given, **fields)
        return self.on(RebalanceAnswered(types.SyncGroupResponse(assignment=encode_assignment(told))))

    def join_refused(self, code: int, **fields: Any) -> ClassicSessionStep:
        return self.on(RebalanceAnswered(types.JoinGroupResponse(error_code=code, **fields)))

    def sync_refused(self, code: int) -> ClassicSessionStep:
        return self.on(RebalanceAnswered(types.SyncGroupResponse(error_code=code)))

    def heartbeat_answered(self, code: int = 0) -> ClassicSessionStep:
        return self.on(Answered(types.HeartbeatResponse(error_code=code)))

    def heartbeat(self, code: int = 0) -> ClassicSessionStep:
        """The next heartbeat, at its time, with this answer."""
        self.after(self.session.heartbeat_interval_ms)
        self.last(types.HeartbeatRequest)
        return self.heartbeat_answered(code)

    def rebalance_lost(self) -> ClassicSessionStep:
        return self.on(RebalanceFailed("disconnected"))

    def request_lost(self) -> ClassicSessionStep:
        return self.on(RequestFailed("disconnected"))

    # --------------------------------------------------------------------------------------------------- the runtime

    def opens(self, open_tasks: Tasks, seen: int | None = None) -> ClassicSessionStep:
        """The processing thread, having heard of everything or of the first ``seen`` events, has this open."""
        return self.on(OwnedReported(open_tasks, self.session.event_count if seen is None else seen))

    def member(self, given: Tasks | None = None, generation: int = 1, **fields: Any) -> Scenario:
        """Joins, gets these tasks, and opens them."""
        given = Tasks() if given is None else given
        self.on(Join())
        self.joined(generation)
        self.synced(given, **fields)
        self.opens(given)
        assert self.session.group is ClassicMemberState.IN
        self.sent.clear()
        self.events.clear()
        return self

    def rebalance(self, given: Tasks, generation: int, **fields: Any) -> ClassicSubscription:
        """The group rebalances: what the member says, while it is given these tasks."""
        self.heartbeat(27)
        said = self.said()
        self.joined(generation)
        self.synced(given, **fields)
        return said


def offsets(values: Mapping[int, int]) -> dict[Task, int]:
    return {("s", number): offset for number, offset in values.items()}
