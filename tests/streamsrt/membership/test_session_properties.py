"""The member's state machine under any order of events, against a coordinator that may forget, fence and refuse it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from streamsrt.membership import session as machine
from streamsrt.membership.session import MEMBER_STATES, MemberState, Session, SessionStep
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    Event,
    Join,
    LeftGroup,
    MembershipFailed,
    ReleaseTasks,
    ReportOwned,
    Tasks,
    TasksLost,
)
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.streamsrt.membership.processing_thread import ProcessingThread, task_sets
from tests.streamsrt.membership.scenario import MEMBERSHIP, Response, assigned, lists

RETRIED = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
]
LOST = [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID]
VALID = {
    *((state, state) for state in MemberState),
    (MemberState.UNSUBSCRIBED, MemberState.JOINING),
    *((state, MemberState.LEAVING) for state in (*MEMBER_STATES, MemberState.JOINING, MemberState.PREPARE_LEAVING)),
    *((state, MemberState.PREPARE_LEAVING) for state in MEMBER_STATES),
    *((a, b) for a in MEMBER_STATES for b in MEMBER_STATES),
    *((MemberState.JOINING, state) for state in MEMBER_STATES),
    *((state, MemberState.FENCED) for state in (*MEMBER_STATES, MemberState.JOINING)),
    *((state, MemberState.JOINING) for state in (MemberState.FENCED, MemberState.STALE, *MEMBER_STATES)),
    *((state, MemberState.STALE) for state in (*MEMBER_STATES, MemberState.JOINING)),
    *((state, end) for state in MemberState for end in (MemberState.UNSUBSCRIBED, MemberState.FATAL)),
}


class MemberUnderTest(ProcessingThread):
    """The runtime, the network and the coordinator around one session."""

    alive = staticmethod(machine.alive)

    def __init__(self) -> None:
        super().__init__()
        self.session = Session(membership=MEMBERSHIP)
        self.now_ms = 0
        self.in_flight: Any = None
        self.open = NOTHING
        self.known: dict[str, Any] = {}
        self.lost = False
        self.ended = False
        self.wake_at_ms: int | None = None
        self.feed(Join())

    def feed(self, event: Any) -> None:
        before = self.session
        step = machine.step(before, event, self.now_ms)
        assert (before.state, step.session.state) in VALID, (before.state, step.session.state, event)
        self.session, self.wake_at_ms = step.session, step.wake_at_ms
        self.check_sending(step)
        for told in step.events:
            self.hear(told)

    def check_sending(self, step: SessionStep) -> None:
        assert not (step.find_coordinator and step.request is not None)
        if not step.find_coordinator and step.request is None:
            return
        assert self.in_flight is None, "two requests are in flight"
        assert not self.ended, "something is sent after the end"
        self.in_flight = "coordinator" if step.find_coordinator else step.request
        if step.request is not None:
            self.check_request(step.request)

    def check_request(self, request: types.StreamsGroupHeartbeatRequest) -> None:
        named = lists(request)
        assert len({each is None for each in named}) == 1, "all task lists or none"
        assert (request.topology is not None) == (request.member_epoch == 0)
        if request.member_epoch == 0:
            assert named == (set(), set(), set())
            assert not self.open, "joins while tasks are open"
        elif request.member_epoch > 0:
            assert request.member_epoch == self.session.member_epoch
            assert not self.lost, "a heartbeat of a member that lost its tasks"
            if named[0] is not None:
                told = self.session.assigned.active
                held = self.open.active | told, self.open.standby - told, self.open.warmup - told
                assert named == held, "names what is not held, or not what is"

    def hear(self, told: Event) -> None:
        if isinstance(told, TasksLost):
            self.lost = True
        elif isinstance(told, AssignmentChanged):
            assert not self.lost
        elif isinstance(told, MembershipFailed | LeftGroup):
            assert not self.ended, "two ends"
            self.ended = True
        elif isinstance(told, ReleaseTasks):
            assert self.open or self.session.assigned

    # ------------------------------------------------------------------------------------------------- the runtime

    @rule(tasks=task_sets)
    def reports(self, tasks: Tasks) -> None:
        legal = NOTHING if self.lost else tasks
        if self.session.state in MEMBER_STATES or not legal:
            self.open = legal
            self.lost = False
            self.feed(ReportOwned(legal))

    @rule()
    def finishes(self) -> None:
        if not self.lost and self.session.state in MEMBER_STATES:
            self.open = self.session.assigned
            self.feed(ReportOwned(self.open))

    # ------------------------------------------------------------------------------------- the network, the coordinator

    @rule(ms=st.sampled_from([1, 90, 700, 5_000, 20_000, 400_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.feed(machine.Tick())

    @precondition(lambda self: self.in_flight == "coordinator")
    @rule()
    def finds_the_coordinator(self) -> None:
        self.in_flight = None
        self.feed(machine.CoordinatorFound(1))

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def loses_the_request(self) -> None:
        self.in_flight = None
        self.feed(machine.RequestFailed("lost"))

    @precondition(lambda self: self.in_flight not in (None, "coordinator"))
    @rule(tasks=st.none() | task_sets, bump=st.booleans())
    def answers(self, tasks: Tasks | None, bump: bool) -> None:
        request, self.in_flight = self.in_flight, None
        if request.member_epoch < 0:
            self.feed(machine.Answered(Response(member_epoch=request.member_epoch, status=None)))
            return
        epoch = max(1, request.member_epoch + bump)
        named = tasks or (NOTHING if request.member_epoch == 0 else None)
        response = Response(
            member_epoch=epoch, heartbeat_interval_ms=5_000, task_offset_interval_ms=60_000, status=None
        )
        if named is not None:
            response.active_tasks = assigned(sorted(named.active))
            response.standby_tasks = assigned(sorted(named.standby))
            response.warmup_tasks = assigned(sorted(named.warmup))
        self.feed(machine.Answered(response))

    @precondition(lambda self: self.in_flight not in (None, "coordinator"))
    @rule(code=st.sampled_from([*RETRIED, *LOST, *LOST]))
    def refuses(self, code: ErrorCode) -> None:
        request, self.in_flight = self.in_flight, None
        self.feed(machine.Answered(Response(error_code=code, status=None)))
        if code in LOST and request.member_epoch > 0 and self.session.owned:
            assert self.lost or self.session.state is MemberState.STALE

    # ---------------------------------------------------------------------------------------------------- invariants

    @invariant()
    def a_member_never_falls_asleep(self) -> None:
        if self.ended or self.in_flight is not None:
            return
        waits_for_the_runtime = self.session.state in {MemberState.FENCED, MemberState.STALE}
        assert waits_for_the_runtime or self.wake_at_ms is not None, self.session.state

    @invariant()
    def a_fenced_member_waits_for_the_runtime(self) -> None:
        assert self.lost or self.session.state is not MemberState.FENCED

    def teardown(self) -> None:
        """Whatever happened: in calm weather the member gets to where it has what it was assigned, or it is out."""
        for _ in range(30):
            settled = self.session.state is MemberState.STABLE and self.in_flight is None
            if self.ended or (settled and self.session.owned == self.session.assigned):
                return
            self.calm_turn()
        raise AssertionError(f"still {self.session.state} after 30 turns")

    def calm_turn(self) -> None:
        if self.in_flight == "coordinator":
            self.in_flight = None
            self.feed(machine.CoordinatorFound(1))
        elif self.in_flight is not None:
            self.in_flight, request = None, self.in_flight
            lists_of_join = [] if request.member_epoch == 0 else None
            response = Response(member_epoch=request.member_epoch or 9, heartbeat_interval_ms=5_000, status=None)
            response.active_tasks = response.standby_tasks = response.warmup_tasks = lists_of_join
            self.feed(machine.Answered(response))
        elif self.lost or self.session.state is MemberState.PREPARE_LEAVING:
            self.reports(NOTHING)
        elif self.session.state in MEMBER_STATES and self.session.owned != self.session.assigned:
            self.open = self.session.assigned
            self.feed(ReportOwned(self.open))
        else:
            self.session = machine.alive(self.session, self.now_ms)
            self.now_ms += 6_000
            self.feed(machine.Tick())


MemberUnderTest.TestCase.settings = settings(max_examples=80, stateful_step_count=35, deadline=None)


@pytest.mark.requirement("SG-013", "SG-021", "SG-023", "SG-101")
class TestMember(MemberUnderTest.TestCase):
    """At most one request in flight; only tasks that are open, or to be opened as active ones, are named; nothing of a lost
    member; it never falls asleep."""
