"""The member's machine under any order of events, against a coordinator that forgets, refuses, and answers too late."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from streamsrt.membership.classic import session as machine
from streamsrt.membership.classic.layout import decode_subscription, encode_assignment
from streamsrt.membership.classic.state import (
    Answered,
    ClassicMemberState,
    ClassicSessionStep,
    CoordinatorFound,
    Led,
    RebalanceAnswered,
    RebalanceFailed,
    RejoinWanted,
    Session,
)
from streamsrt.membership.classic.values import ClassicAssignment, ClassicSubscription
from streamsrt.membership.session_events import OwnedReported, RequestFailed, Tick
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    EpochChanged,
    Event,
    Join,
    LeftGroup,
    MembershipFailed,
    ReleaseTasks,
    Task,
    Tasks,
    TasksLost,
)
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.streamsrt.membership.classic.scenario import DIGEST, MEMBERSHIP, PROCESS
from tests.streamsrt.membership.processing_thread import TASKS, ProcessingThread, task_sets

REFUSALS = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
]
SYNC_REFUSALS = [*REFUSALS[:-1], ErrorCode.UNKNOWN_SERVER_ERROR]


def every(tasks: Tasks) -> frozenset[Task]:
    return tasks.active | tasks.standby | tasks.warmup


class MemberUnderTest(ProcessingThread):
    """The runtime, the network and the coordinator around one session."""

    alive = staticmethod(machine.alive)

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.on_group: Any = None
        self.on_rebalance: Any = None
        self.events: list[Event] = []
        self.seen = 0
        self.open = NOTHING
        self.may_open = NOTHING
        """What the thread was last told to run."""
        self.claims: Tasks | None = None
        """What the JoinGroup said whose generation is not decided yet."""
        self.generation = 0
        self.members = 0
        self.leads = False
        self.lost = False
        self.releasing = False
        self.ended = False
        self.wake_at_ms: int | None = None

    @initialize(static=st.booleans())
    def starts(self, static: bool) -> None:
        membership = replace(MEMBERSHIP, instance_id="i" if static else None, rebalance_timeout_ms=30_000)
        self.session = Session(membership=membership, digest=DIGEST)
        self.feed(Join())

    def feed(self, event: Any) -> None:
        step = machine.step(self.session, event, self.now_ms)
        self.session, self.wake_at_ms = step.session, step.wake_at_ms
        for told in step.events:
            self.check_told(told)
        self.events += step.events
        self.check_sending(step)

    def check_told(self, told: Event) -> None:
        assert not self.ended, "something is told after the end"
        self.ended = isinstance(told, MembershipFailed | LeftGroup)
        if isinstance(told, EpochChanged):
            assert told.member_epoch == self.generation

    def check_sending(self, step: ClassicSessionStep) -> None:
        if step.find_coordinator or step.request is not None:
            assert self.on_group is None, "two requests on the lane of heartbeats"
            assert not self.ended
            assert not (step.find_coordinator and step.request is not None)
            self.on_group = "coordinator" if step.find_coordinator else step.request
        if step.rebalance_request is not None:
            assert self.on_rebalance is None, "two requests on the rebalance lane"
            assert not self.ended
            self.on_rebalance = step.rebalance_request
            if isinstance(step.rebalance_request, types.JoinGroupRequest):
                self.check_join(step.rebalance_request)
        if step.lead is not None:
            self.leads = True
        if step.session.group is not ClassicMemberState.LEADING:
            self.leads = False

    def check_join(self, request: types.JoinGroupRequest) -> None:
        said = decode_subscription(request.protocols[0].metadata)
        assert isinstance(said, ClassicSubscription)
        if self.claims is None or self.session.join_was_lost is False:
            self.claims = said.held
        assert self.open.active <= said.held.active, "something is open that is not claimed"
        assert every(self.open) <= every(said.held), "something is open that is not claimed"
        assert self.could_open().active <= said.held.active
        if request.member_id == "":
            assert not said.held
            assert not every(self.open)

    def could_open(self) -> Tasks:
        """What the thread may open of what it has been told and has not heard of yet."""
        active: frozenset[Task] = frozenset() if self.lost or self.releasing else self.may_open.active
        for told in self.events:
            if isinstance(told, AssignmentChanged):
                active |= told.tasks.active
            elif isinstance(told, TasksLost | ReleaseTasks):
                break
        return Tasks(active)

    # ------------------------------------------------------------------------------------------------- the runtime

    @precondition(lambda self: self.events)
    @rule(acts=st.booleans())
    def hears(self, acts: bool) -> None:
        told = self.events.pop(0)
        self.seen += 1
        if isinstance(told, AssignmentChanged) and not self.releasing:
            assert not self.lost, "an assignment before the loss was answered"
            self.may_open = told.tasks
            if acts:
                self.opens_all()
        elif isinstance(told, TasksLost):
            self.lost, self.may_open = True, NOTHING
            if acts:
                self.gives_up()
        elif isinstance(told, ReleaseTasks):
            self.releasing, self.may_open = True, NOTHING

    @rule()
    def opens_all(self) -> None:
        if not self.lost and not self.releasing:
            self.open = self.may_open
            if self.claims is not None and self.session.group in {
                ClassicMemberState.JOINING,
                ClassicMemberState.SYNCING,
            }:
                assert self.open.active <= self.claims.active, "opened beyond what was claimed"
            self.report()

    @rule()
    def gives_up(self) -> None:
        if self.lost or self.releasing:
            self.open = NOTHING
            self.lost = False
            self.report()

    @rule(number=st.integers(0, 2))
    def closes_one(self, number: int) -> None:
        gone = frozenset({TASKS[number]}) - every(self.may_open)
        self.open = Tasks(self.open.active - gone, self.open.standby - gone, self.open.warmup - gone)
        if not self.lost:
            self.report()

    def report(self) -> None:
        self.feed(OwnedReported(self.open, self.seen))

    @rule()
    def has_a_reason(self) -> None:
        self.feed(RejoinWanted("why not"))

    @rule(ms=st.sampled_from([1, 90, 700, 3_000, 20_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.feed(Tick())

    # ------------------------------------------------------------------------------------- the network, the coordinator

    @precondition(lambda self: self.on_group is not None)
    @rule(code=st.sampled_from([0, 0, 0, *REFUSALS[:-1]]), is_lost=st.integers(0, 5))
    def group_lane_answers(self, code: int, is_lost: int) -> None:
        request, self.on_group = self.on_group, None
        if is_lost == 0:
            self.feed(RequestFailed("disconnected"))
        elif request == "coordinator":
            self.feed(CoordinatorFound(9))
        elif isinstance(request, types.LeaveGroupRequest):
            self.feed(Answered(types.LeaveGroupResponse()))
        else:
            self.feed(Answered(types.HeartbeatResponse(error_code=code)))

    @precondition(lambda self: not self.session.ended)
    @rule(given=task_sets, stops_at=st.integers(0, 9))
    def a_generation(self, given: Tasks, stops_at: int) -> None:
        """The group rebalances, and nothing goes wrong for so many steps."""
        for _ in range(stops_at):
            if self.on_group is not None:
                code = ErrorCode.REBALANCE_IN_PROGRESS if isinstance(self.on_group, types.HeartbeatRequest) else 0
                self.group_lane_answers(code, 1)
            elif isinstance(self.on_rebalance, types.JoinGroupRequest):
                self.join_is_answered(0 if self.on_rebalance.member_id else ErrorCode.MEMBER_ID_REQUIRED, 1, False)
            elif isinstance(self.on_rebalance, types.SyncGroupRequest):
                self.sync_is_answered(given, 0, 7)
                return
            elif self.wake_at_ms is not None:
                self.now_ms = max(self.now_ms, self.wake_at_ms)
                self.feed(Tick())

    @precondition(lambda self: isinstance(self.on_rebalance, types.JoinGroupRequest))
    @rule(code=st.sampled_from([0, 0, 0, 0, 0, *REFUSALS]), is_lost=st.integers(0, 5), leads=st.booleans())
    def join_is_answered(self, code: int, is_lost: int, leads: bool) -> None:
        request, self.on_rebalance = self.on_rebalance, None
        if is_lost == 0:
            self.feed(RebalanceFailed("disconnected"))
            return
        if code == ErrorCode.MEMBER_ID_REQUIRED and request.member_id:
            code = 0
        if code not in (0, ErrorCode.MEMBER_ID_REQUIRED):
            self.feed(RebalanceAnswered(types.JoinGroupResponse(error_code=code)))
            return
        name = request.member_id
        if not name:
            self.members += 1
            name = f"m{self.members}"
        if code == 0:
            self.generation += 1
        self.feed(
            RebalanceAnswered(
                types.JoinGroupResponse(
                    error_code=code,
                    generation_id=self.generation if code == 0 else -1,
                    member_id=name,
                    leader=name if leads else "other",
                )
            )
        )

    @precondition(lambda self: self.leads)
    @rule()
    def has_led(self) -> None:
        self.feed(Led(self.session.generation, {self.session.member_id: b"1"}))

    @precondition(lambda self: isinstance(self.on_rebalance, types.SyncGroupRequest))
    @rule(given=task_sets, code=st.sampled_from([0, 0, 0, 0, *SYNC_REFUSALS]), chance=st.integers(0, 7))
    def sync_is_answered(self, given: Tasks, code: int, chance: int) -> None:
        request, self.on_rebalance = self.on_rebalance, None
        if chance == 0:
            self.feed(RebalanceFailed("disconnected"))
            return
        if code != 0:
            self.feed(RebalanceAnswered(types.SyncGroupResponse(error_code=code)))
            return
        self.claims = None
        told = ClassicAssignment(
            generation=request.generation_id,
            group_epoch=2,
            group_digest=DIGEST,
            tasks=given,
            target=given,
            process_id=PROCESS,
            unique=self.session.unique,
            recovery_lag=3,
            send_topology=chance == 2,
            rejoin_after_ms=5_000 if chance == 3 else None,
        )
        data = b"?" if chance == 1 else encode_assignment(told)
        self.feed(RebalanceAnswered(types.SyncGroupResponse(assignment=data)))

    # -------------------------------------------------------------------------------------------------- always

    @invariant()
    def something_happens_next(self) -> None:
        waits_for_the_thread = self.session.lost_at is not None
        busy = self.on_group is not None or self.on_rebalance is not None or self.leads
        assert self.ended == self.session.ended
        assert self.ended or busy or self.wake_at_ms is not None or waits_for_the_thread, "nothing will ever happen"

    @invariant()
    def what_is_open_is_held(self) -> None:
        if not self.lost and self.session.lost_at is None and not self.ended:
            held = self.session.held
            assert self.open.active <= held.active
            assert every(self.open) <= every(held)


MemberUnderTest.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


class TestMember(MemberUnderTest.TestCase):
    """One request on a lane at most; nothing is open that was not claimed; it never falls asleep."""
