"""The member of a classic group, rule by rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamsrt.assignment.status_code import StatusCode
from streamsrt.errors import ConfigError, StreamsError
from streamsrt.membership.classic.layout import encode_assignment
from streamsrt.membership.classic.request_schedule import (
    HAND_OVER_HEARTBEAT_MS,
    HAND_OVER_MS,
    IDLE_PAUSE_MS,
    SHUTDOWN_PATIENCE_MS,
)
from streamsrt.membership.classic.state import ClassicMemberState, Led, RebalanceAnswered, RejoinWanted
from streamsrt.membership.classic.values import ClassicAssignment, Echo
from streamsrt.membership.errors import (
    MembershipRefusedError,
    OtherGroupProtocolError,
    StreamsInvalidTopologyEpochError,
    StreamsTopologyFencedError,
)
from streamsrt.membership.session_events import OwnedReported
from streamsrt.membership.statuses import passes_by_itself
from streamsrt.membership.values import (
    AssignmentChanged,
    EpochChanged,
    HeartbeatRecovered,
    HeartbeatTrouble,
    InstanceIdTaken,
    Join,
    Leave,
    LeftGroup,
    MembershipFailed,
    ReleaseTasks,
    RequestShutdown,
    SetTaskOffsets,
    SourceTopicsMissing,
    Status,
    StatusChanged,
    TasksLost,
    UnknownStatus,
)
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.streamsrt.membership.classic.scenario import DIGEST, MEMBERSHIP, PROCESS, TOPOLOGY, Scenario, offsets, tasks

STATIC = replace(MEMBERSHIP, instance_id="i")


# ------------------------------------------------------------------------------------------------------------ joining


@pytest.mark.requirement("CR-022", "GA-020")
def test_it_joins_with_the_id_that_the_broker_gives() -> None:
    run = Scenario()
    run.on(Join())
    first = run.last(JoinGroupRequest)
    assert (first.group_id, first.member_id, first.protocol_type) == ("g", "", "consumer")
    assert (first.session_timeout_ms, first.rebalance_timeout_ms) == (45_000, 45_000)
    assert [protocol.name for protocol in first.protocols] == ["streamsrt-1"]
    run.join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id="m-1")
    second = run.last(JoinGroupRequest)
    assert second.member_id == "m-1"
    assert second.protocols == first.protocols
    run.none(HeartbeatTrouble)


@pytest.mark.requirement("GA-032")
def test_a_follower_syncs_and_is_told_its_tasks() -> None:
    run = Scenario()
    run.on(Join())
    run.joined(7)
    sync = run.last(SyncGroupRequest)
    assert (sync.generation_id, sync.member_id, sync.assignments) == (7, "m", [])
    assert run.last(EpochChanged).member_epoch == 7
    run.synced(tasks("0 1", "2"), why="because")
    assert run.last(AssignmentChanged) == AssignmentChanged(tasks("0 1", "2"), 7, "because")


@pytest.mark.requirement("GA-032")
def test_a_leader_is_told_to_lead_and_syncs_with_what_it_made() -> None:
    run = Scenario()
    run.on(Join())
    members = [JoinGroupResponse.JoinGroupResponseMember(member_id=name, metadata=b"x") for name in ("m", "n")]
    run.joined(3, leader="m", members=members)
    assert run.lead.generation == 3
    assert [(each.member_id, each.metadata) for each in run.lead.members] == [("m", b"x"), ("n", b"x")]
    run.none(SyncGroupRequest)
    run.on(Led(2, {}))
    run.none(SyncGroupRequest)
    run.on(Led(3, {"n": b"2", "m": b"1"}))
    sync = run.last(SyncGroupRequest)
    assert [(each.member_id, each.assignment) for each in sync.assignments] == [("m", b"1"), ("n", b"2")]


@pytest.mark.requirement("GA-028")
def test_a_leader_that_may_skip_the_assignment_only_syncs() -> None:
    run = Scenario(STATIC)
    run.on(Join())
    run.joined(3, leader="m", skip_assignment=True)
    assert run.lead is None
    assert run.last(SyncGroupRequest).assignments == []


@pytest.mark.requirement("CR-012")
def test_what_it_says_when_it_joins() -> None:
    run = Scenario(rack_id="r").member(tasks("0", "1"), target=tasks("0 5"), assigned_partitions=frozenset({("t", 0)}))
    run.on(SetTaskOffsets(offsets({0: 9, 1: 4, 3: 2}), offsets({0: 9, 1: 8})))
    said = run.rebalance(tasks("0", "1"), 2)
    assert (said.process_id, said.topology_epoch, said.topology_digest, said.topology) == (PROCESS, 2, DIGEST, None)
    assert (said.generation_id, said.rack_id, said.topics) == (1, "r", {"t"})
    assert (said.held, said.owned_partitions) == (tasks("0", "1"), {("t", 0)})
    assert said.echo == Echo(1, 2, DIGEST, tasks("0 5"))
    assert (said.offsets, said.end_offsets) == (offsets({1: 4, 3: 2}), offsets({1: 8}))


# -------------------------------------------------------------------------------------- rule 1: reasons to join again


@pytest.mark.requirement("CR-020")
def test_it_joins_when_the_group_rebalances() -> None:
    run = Scenario().member(tasks("0"))
    said = run.rebalance(tasks("0"), 2)
    assert said.held == tasks("0")
    run.none(AssignmentChanged)
    assert run.last(EpochChanged).member_epoch == 2


@pytest.mark.requirement("CR-036")
def test_it_joins_when_it_holds_nothing_more_of_what_was_taken() -> None:
    run = Scenario().member(tasks("0 1"))
    run.rebalance(tasks("0"), 2)
    run.none(JoinGroupRequest)
    run.opens(tasks("0"))
    assert run.said().held == tasks("0")


def test_it_joins_too_when_what_was_taken_was_never_open() -> None:
    run = Scenario()
    run.on(Join())
    run.joined()
    run.synced(tasks("0 1"))
    run.sent.clear()
    run.heartbeat(27)
    assert run.said().held == tasks("0 1"), "the thread may open it at any moment"
    run.joined(2)
    run.synced(tasks("0"))
    run.none(JoinGroupRequest)
    run.opens(tasks())
    assert run.said().held == tasks("0")


def test_a_thread_that_has_not_heard_yet_may_still_open_what_was_taken() -> None:
    run = Scenario().member(tasks())
    heard = run.session.event_count
    run.rebalance(tasks("0"), 2)
    run.rebalance(tasks(), 3)
    run.opens(tasks(), seen=heard)
    run.none(JoinGroupRequest)
    run.opens(tasks("0"), seen=heard + 2)
    run.none(JoinGroupRequest)
    run.opens(tasks())
    assert run.said().held == tasks()


def test_a_standby_task_that_becomes_active_has_nothing_to_confirm() -> None:
    run = Scenario().member(tasks("", "0", "1"))
    run.rebalance(tasks("0 1"), 2)
    run.opens(tasks("0 1"))
    run.none(JoinGroupRequest)


def test_it_joins_when_a_warm_up_task_has_caught_up_and_says_so_once() -> None:
    run = Scenario().member(tasks("", "", "0 1"), recovery_lag=10)
    run.on(SetTaskOffsets(offsets({0: 5, 1: 5}), offsets({0: 100, 1: 100})))
    run.none(JoinGroupRequest)
    run.on(SetTaskOffsets(offsets({0: 90, 1: 5}), offsets({0: 100, 1: 100})))
    assert run.said().offsets == offsets({0: 90, 1: 5})
    run.joined(2)
    run.synced(tasks("", "", "0 1"), recovery_lag=10)
    run.after(1_000)
    run.none(JoinGroupRequest)


def test_it_joins_with_its_topology_when_that_is_asked_for() -> None:
    run = Scenario().member(tasks("0"))
    run.heartbeat(27)
    run.joined(2)
    run.sent.clear()
    run.synced(tasks("0"), send_topology=True)
    assert run.said().topology == MEMBERSHIP.topology
    run.joined(3)
    run.synced(tasks("0"))
    run.none(JoinGroupRequest)


def test_it_joins_when_the_time_is_over_that_the_leader_set() -> None:
    run = Scenario().member(tasks("0"), rejoin_after_ms=500)
    assert run.step.wake_at_ms == run.now_ms + 500
    run.after(499)
    run.none(JoinGroupRequest)
    run.after(1)
    run.last(JoinGroupRequest)


def test_it_joins_when_the_leader_knows_a_reason() -> None:
    run = Scenario().member(tasks("0"))
    run.on(RejoinWanted("topics have changed"))
    assert run.last(JoinGroupRequest).reason == "topics have changed"


# ------------------------------------------------------------------------------------------- rule 2: when it waits


def test_of_its_own_accord_it_waits_until_the_sync_is_answered() -> None:
    run = Scenario().member(tasks("0 1"))
    run.heartbeat(27)
    run.sent.clear()
    run.joined(2)
    run.on(RejoinWanted("topics have changed"))
    run.none(JoinGroupRequest)
    run.synced(tasks("0 1"))
    run.last(JoinGroupRequest)


def test_the_pause_grows_while_generations_change_nothing() -> None:
    run = Scenario().member(tasks("0"))
    waited = []
    for generation in range(2, 7):
        wanted_ms = run.now_ms
        run.on(RejoinWanted("again"))
        while not any(isinstance(each, JoinGroupRequest) for each in run.sent):
            if any(isinstance(each, HeartbeatRequest) for each in run.sent):
                run.last(HeartbeatRequest)
                run.heartbeat_answered()
            run.at(run.step.wake_at_ms or 0)
        waited.append(run.now_ms - wanted_ms)
        run.last(JoinGroupRequest)
        run.joined(generation)
        run.synced(tasks("0"))
        run.sent.clear()
    assert waited == [0, *(IDLE_PAUSE_MS << n for n in range(4))]
    run.rebalance(tasks("0 1"), 8)
    run.opens(tasks("0 1"))
    run.on(RejoinWanted("at once, since something has changed"))
    run.last(JoinGroupRequest)


# ------------------------------------------------------------------------------------------ rule 3: claims, revocations


def test_one_rebalance_confirms_many_revocations() -> None:
    run = Scenario().member(tasks("0 1 2"))
    run.rebalance(tasks("0"), 2)
    run.heartbeat(27)
    run.none(JoinGroupRequest)
    run.after(999)
    run.none(JoinGroupRequest)
    run.opens(tasks("0 1"))
    run.none(JoinGroupRequest)
    run.opens(tasks("0"))
    assert run.said().held == tasks("0")


def test_it_does_not_wait_longer_than_a_second_for_them() -> None:
    run = Scenario().member(tasks("0 1 2"))
    run.rebalance(tasks("0"), 2)
    run.heartbeat(27)
    run.after(1_000)
    assert run.said().held == tasks("0 1 2")


def test_a_task_is_claimed_in_its_strongest_role() -> None:
    run = Scenario().member(tasks("", "0", "1"))
    heard = run.session.event_count
    run.rebalance(tasks("0", "1"), 2)
    run.opens(tasks("", "0", "1"), seen=heard)
    run.heartbeat(27)
    assert run.said().held == tasks("0", "1")


# ------------------------------------------------------------------------------------------------ rule 4: lost answers


def test_a_join_whose_answer_is_lost_is_repeated_as_it_was() -> None:
    run = Scenario().member(tasks("0"))
    run.heartbeat(27)
    first = run.last(JoinGroupRequest)
    run.rebalance_lost()
    run.opens(tasks())
    run.after(100)
    again = run.last(JoinGroupRequest)
    assert again == first
    run.joined(2)
    run.synced(tasks("0"))
    run.none(AssignmentChanged)


def test_a_sync_whose_answer_is_lost_is_repeated_as_it_was() -> None:
    run = Scenario()
    run.on(Join())
    run.joined(3, leader="m")
    run.on(Led(3, {"m": b"1"}))
    first = run.last(SyncGroupRequest)
    run.rebalance_lost()
    run.after(100)
    assert run.last(SyncGroupRequest) == first


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_found_and_asked_the_same(code: int) -> None:
    run = Scenario().member(tasks("0"))
    run.heartbeat(27)
    first = run.last(JoinGroupRequest)
    run.join_refused(code)
    assert run.session.version is None
    run.after(100)
    assert run.last(JoinGroupRequest) == first
    run.joined(2)
    run.none(TasksLost)


# ------------------------------------------------------------------------------------------------- rule 5: missed syncs


def test_a_refused_sync_costs_nothing_and_is_told() -> None:
    run = Scenario().member(tasks("0"))
    run.heartbeat(27)
    assert not run.said().missed_sync
    run.joined(2)
    run.sync_refused(ErrorCode.REBALANCE_IN_PROGRESS)
    said = run.said()
    assert said.missed_sync
    assert (said.held, said.generation_id) == (tasks("0"), 1)
    run.joined(3)
    run.synced(tasks("0"))
    run.none(TasksLost)
    run.none(AssignmentChanged)
    assert not run.rebalance(tasks("0"), 4).missed_sync


def test_an_unreadable_assignment_costs_nothing() -> None:
    run = Scenario().member(tasks("0"))
    run.heartbeat(27)
    run.sent.clear()
    run.joined(2)
    run.on(RebalanceAnswered(SyncGroupResponse(assignment=b"?")))
    run.none(JoinGroupRequest)
    run.after(IDLE_PAUSE_MS)
    assert run.said().held == tasks("0")
    run.none(TasksLost)


def test_a_rebalance_while_it_leads_ends_the_leading() -> None:
    run = Scenario().member(tasks("0"))
    run.heartbeat(27)
    run.sent.clear()
    run.joined(2, leader="m")
    run.heartbeat(27)
    assert run.said().missed_sync
    run.on(Led(2, {"m": b""}))
    run.none(SyncGroupRequest)


def test_a_group_too_large_for_a_record_is_tried_again_slowly() -> None:
    run = Scenario().member(tasks("0"))
    run.heartbeat(27)
    run.sent.clear()
    run.joined(2)
    run.sync_refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert run.last(HeartbeatTrouble)
    run.after(1_000)
    assert run.said().held == tasks("0")


def test_a_group_that_can_not_be_stored_is_tried_again_more_slowly_each_time_and_the_settings_are_named() -> None:
    run = Scenario().member(tasks("0"))
    run.heartbeat(27)
    reports = []
    for generation in range(2, 7):
        run.joined(generation)
        run.events.clear()
        run.sync_refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        reports += [event.reason for event in run.events if isinstance(event, HeartbeatTrouble)]
        run.sent.clear()
        run.after((100 << (generation - 2)) - 1 if generation < 5 else 799)
        run.none(JoinGroupRequest)
        run.after(1_000)
        assert run.said().held == tasks("0")
    assert len(reports) == 3, "the first, the second and the fourth"
    assert all("max.message.bytes of __consumer_offsets" in text for text in reports)
    assert run.session.sync_failures == 5
    run.joined(7)
    run.synced(tasks("0"))
    assert run.session.sync_failures == 0


# ---------------------------------------------------------------------------------------- rules 6 and 7: heartbeats


@pytest.mark.requirement("GA-039")
def test_heartbeats_carry_the_generation_and_pause_while_it_joins() -> None:
    run = Scenario().member(tasks("0"))
    run.after(HAND_OVER_MS)
    run.last(HeartbeatRequest)
    run.heartbeat_answered()
    run.after(2_999)
    run.none(HeartbeatRequest)
    run.after(1)
    beat = run.last(HeartbeatRequest)
    assert (beat.generation_id, beat.member_id) == (1, "m")
    run.heartbeat_answered(27)
    run.last(JoinGroupRequest)
    run.after(20_000)
    run.none(HeartbeatRequest)
    run.joined(2, leader="m")
    run.after(3_000)
    assert run.last(HeartbeatRequest).generation_id == 2, "leading takes time"


def test_a_generation_that_hands_tasks_over_is_heard_of_soon() -> None:
    run = Scenario().member(tasks("0"))
    for _ in range(HAND_OVER_MS // HAND_OVER_HEARTBEAT_MS):
        run.after(HAND_OVER_HEARTBEAT_MS - 1)
        run.none(HeartbeatRequest)
        run.after(1)
        run.last(HeartbeatRequest)
        run.heartbeat_answered()
    run.after(HAND_OVER_HEARTBEAT_MS)
    run.none(HeartbeatRequest)
    run.after(run.session.heartbeat_interval_ms - HAND_OVER_HEARTBEAT_MS)
    run.last(HeartbeatRequest)


def test_what_a_heartbeat_is_told_after_a_join_has_begun_does_not_count() -> None:
    run = Scenario().member(tasks("0"))
    run.after(3_000)
    run.on(RejoinWanted("x"))
    run.heartbeat_answered(ErrorCode.UNKNOWN_MEMBER_ID)
    run.none(TasksLost)
    assert run.session.group is ClassicMemberState.JOINING


def test_a_heartbeat_that_a_generation_has_overtaken_does_not_count() -> None:
    run = Scenario(STATIC).member(tasks("0"))
    run.after(3_000)
    run.on(RejoinWanted("x"))
    run.joined(2)
    run.synced(tasks("0"))
    run.heartbeat_answered(ErrorCode.ILLEGAL_GENERATION)
    run.none(TasksLost)
    assert run.session.group is ClassicMemberState.IN
    run.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    assert run.last(TasksLost)


def test_an_outage_is_told_once() -> None:
    run = Scenario().member(tasks("0"))
    run.after(3_000)
    run.last(HeartbeatRequest)
    run.request_lost()
    assert run.last(HeartbeatTrouble)
    run.after(100)
    run.last(HeartbeatRequest)
    run.request_lost()
    run.none(HeartbeatTrouble)
    run.after(200)
    run.heartbeat_answered()
    assert run.last(HeartbeatRecovered).outage_ms == 300


# --------------------------------------------------------------------------------------------------- rule 9: losing


@pytest.mark.parametrize("when", ["heartbeat", "join", "sync"])
@pytest.mark.requirement("CR-043")
def test_an_unknown_member_loses_its_tasks_and_joins_when_nothing_is_open(when: str) -> None:
    run = Scenario().member(tasks("0"))
    if when == "heartbeat":
        run.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        run.heartbeat(27)
        if when == "join":
            run.join_refused(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            run.joined(2)
            run.sync_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    run.sent.clear()
    assert run.last(TasksLost)
    run.after(60_000)
    run.opens(tasks("0"))
    run.opens(tasks(), seen=0)
    run.none(JoinGroupRequest)
    run.opens(tasks())
    join = run.last(JoinGroupRequest)
    assert join.member_id == ""
    run.joined(5, member_id="m-2")
    run.synced(tasks())
    assert run.last(AssignmentChanged).tasks == tasks()


def test_an_old_generation_of_a_dynamic_member_costs_nothing() -> None:
    run = Scenario().member(tasks("0"))
    run.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    run.none(TasksLost)
    assert run.said().held == tasks("0")


def test_an_old_generation_of_a_static_member_costs_its_tasks_unless_an_answer_was_lost() -> None:
    run = Scenario(STATIC).member(tasks("0"))
    run.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    assert run.last(TasksLost)
    run = Scenario(STATIC).member(tasks("0"))
    run.heartbeat(27)
    run.rebalance_lost()
    run.after(1_000)
    run.join_refused(ErrorCode.ILLEGAL_GENERATION)
    run.none(TasksLost)


@pytest.mark.parametrize(
    ("code", "kind", "remedy"),
    [
        (ErrorCode.FENCED_INSTANCE_ID, MembershipRefusedError, "its own group.instance.id"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, OtherGroupProtocolError, "set subtopology.id=number"),
        (ErrorCode.GROUP_ID_NOT_FOUND, OtherGroupProtocolError, "run with group.protocol=streams"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, MembershipRefusedError, "Raise group.max.size on the brokers"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, MembershipRefusedError, "READ"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, ConfigError, "Set session.timeout.ms"),
    ],
)
def test_what_no_waiting_cures_ends_the_member(code: int, kind: type[StreamsError], remedy: str) -> None:
    run = Scenario()
    run.on(Join())
    run.join_refused(code)
    error = run.last(MembershipFailed).error
    assert type(error) is kind
    assert remedy in str(error)
    assert run.session.ended


def test_a_static_member_whose_join_a_restarted_coordinator_has_forgotten_joins_anew() -> None:
    run = Scenario(STATIC)
    run.on(Join())
    for _ in range(2):
        run.joined(1)
        run.sync_refused(ErrorCode.FENCED_INSTANCE_ID)
        run.none(MembershipFailed)
        run.after(1_000)
        assert run.last(JoinGroupRequest).member_id == ""
    # Then somebody else does have its id.
    run.joined(1)
    run.sync_refused(ErrorCode.FENCED_INSTANCE_ID)
    assert type(run.last(MembershipFailed).error) is MembershipRefusedError


TAKEN = ErrorCode.UNRELEASED_INSTANCE_ID


def waiting_for_id() -> Scenario:
    """Its own session is shorter than that of the streams member before it."""
    run = Scenario(STATIC, session_timeout_ms=6_000, streams_session_timeout_ms=10_000)
    run.on(Join())
    run.join_refused(TAKEN)
    return run


def test_the_id_of_a_streams_member_that_was_killed_is_waited_for() -> None:
    run = waiting_for_id()
    first = run.last(JoinGroupRequest)
    assert run.last(InstanceIdTaken) == InstanceIdTaken(15_000)
    for _ in range(3):
        assert run.step.wake_at_ms == run.now_ms + 1_000
        run.after(1_000)
        assert run.last(JoinGroupRequest) == first
        run.join_refused(TAKEN)
    run.none(InstanceIdTaken)
    run.after(1_000)
    run.joined(1)
    run.synced(tasks("0"))
    assert run.last(AssignmentChanged).tasks == tasks("0")
    run.none(MembershipFailed)
    assert run.session.id_taken_since_ms is None


def test_the_id_of_a_streams_member_that_lives_is_refused_when_its_session_would_have_ended() -> None:
    run = waiting_for_id()
    began_ms = run.now_ms
    while not run.session.ended:
        assert run.now_ms < began_ms + 15_000
        assert run.step.wake_at_ms is not None
        run.at(run.step.wake_at_ms)
        run.join_refused(TAKEN)
    assert run.now_ms == began_ms + 15_000
    error = run.last(MembershipFailed).error
    assert isinstance(error, MembershipRefusedError)
    assert error.error_code == TAKEN


def test_who_waits_for_an_id_asks_a_coordinator_that_moved_and_waits_no_longer() -> None:
    run = waiting_for_id()
    run.last(InstanceIdTaken)
    run.after(1_000)
    run.rebalance_lost()
    run.after(1_000)
    run.join_refused(TAKEN)
    assert run.last(HeartbeatRecovered) == HeartbeatRecovered(1_000)
    assert run.last(InstanceIdTaken) == InstanceIdTaken(13_000)


def test_who_waits_for_an_id_is_asked_for_its_topology_and_can_leave() -> None:
    run = waiting_for_id()
    assert run.said().topology is None
    run.after(1_000)
    run.join_refused(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH)
    assert run.said().topology == TOPOLOGY
    run.join_refused(TAKEN)
    run.none(MembershipFailed)
    run.on(Leave())
    assert run.last(LeftGroup) == LeftGroup()
    run.none(LeaveGroupRequest)
    assert run.session.ended


def test_a_thread_that_hangs_loses_its_tasks_and_leaves() -> None:
    run = Scenario(rebalance_timeout_ms=10_000).member(tasks("0"))
    for _ in range(3):
        run.heartbeat()
    run.after(1_000)
    assert "max.poll.interval.ms" in run.last(TasksLost).reason
    left = run.last(LeaveGroupRequest)
    assert [member.member_id for member in left.members] == ["m"]
    run.opens(tasks())
    run.none(JoinGroupRequest)
    run.heartbeat_answered()
    assert run.last(JoinGroupRequest).member_id == ""


def test_a_static_member_whose_thread_hangs_says_nothing() -> None:
    run = Scenario(STATIC, rebalance_timeout_ms=2_000).member(tasks("0"))
    run.after(2_000)
    assert run.last(TasksLost)
    run.none(LeaveGroupRequest)
    run.opens(tasks())
    join = run.last(JoinGroupRequest)
    assert (join.member_id, join.group_instance_id) == ("", "i")


# ------------------------------------------------------------------------------------------------- rule 9: leaving


def test_it_leaves_when_nothing_is_open() -> None:
    run = Scenario().member(tasks("0"))
    run.on(Leave())
    assert run.last(ReleaseTasks)
    run.none(LeaveGroupRequest)
    run.opens(tasks())
    assert [member.member_id for member in run.last(LeaveGroupRequest).members] == ["m"]
    run.heartbeat_answered()
    assert run.last(LeftGroup)
    assert run.session.ended


def test_a_failed_thread_leaves_though_it_has_not_heard_everything() -> None:
    run = Scenario().member(tasks("0"))
    heard = run.session.event_count
    run.rebalance(tasks("0 1"), 2)
    run.on(Leave())
    run.on(OwnedReported(tasks(), heard))
    run.last(LeaveGroupRequest)


def test_while_it_releases_it_takes_part_in_rebalances_and_takes_nothing() -> None:
    run = Scenario().member(tasks("0"))
    run.on(Leave())
    said = run.rebalance(tasks("0 1"), 2)
    assert said.held == tasks("0")
    run.none(AssignmentChanged)
    run.opens(tasks())
    run.last(LeaveGroupRequest)


@pytest.mark.requirement("GA-046")
def test_a_static_member_that_remains_only_ends() -> None:
    run = Scenario(STATIC).member(tasks("0"))
    run.on(Leave(remain=True))
    run.opens(tasks())
    run.none(LeaveGroupRequest)
    assert run.last(LeftGroup)


def test_it_leaves_though_a_join_waits() -> None:
    run = Scenario().member()
    run.heartbeat(27)
    run.on(Leave())
    run.last(LeaveGroupRequest)
    run.join_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    run.none(LeftGroup)
    run.heartbeat_answered()
    assert run.last(LeftGroup)


def test_a_shutdown_is_told_to_the_leader_before_it_leaves() -> None:
    run = Scenario().member(tasks("0"))
    run.on(RequestShutdown())
    run.opens(tasks())
    assert run.said().requests_shutdown
    run.none(LeaveGroupRequest)
    run.joined(2)
    run.none(LeaveGroupRequest)
    run.synced(tasks())
    run.last(LeaveGroupRequest)


def test_a_leader_that_shuts_down_the_application_stays_until_somebody_has_heard() -> None:
    """Left at once, it would leave those whose SyncGroup is still under way with an order to join, and nothing else."""
    run = Scenario().member(tasks("0"))
    run.on(RequestShutdown())
    run.opens(tasks())
    run.said()
    run.joined(2, leader="m")
    run.on(Led(2, {"m": b"", "other": b""}))
    run.synced(tasks())
    run.heartbeat()
    run.none(LeaveGroupRequest)
    run.heartbeat(27)
    run.none(JoinGroupRequest)
    run.last(LeaveGroupRequest)


def test_a_leader_that_shuts_down_the_application_does_not_stay_for_ever() -> None:
    run = Scenario().member(tasks("0"))
    run.on(RequestShutdown())
    run.opens(tasks())
    run.said()
    run.joined(2, leader="m")
    run.on(Led(2, {"m": b"", "other": b""}))
    run.synced(tasks())
    for _ in range(3):
        run.heartbeat()
    run.none(LeaveGroupRequest)
    run.after(SHUTDOWN_PATIENCE_MS)
    run.heartbeat_answered()
    run.last(LeaveGroupRequest)


def test_a_leader_that_is_alone_leaves_at_once() -> None:
    run = Scenario().member(tasks("0"))
    run.on(RequestShutdown())
    run.opens(tasks())
    run.said()
    run.joined(2, leader="m")
    run.on(Led(2, {"m": b""}))
    run.synced(tasks())
    run.last(LeaveGroupRequest)


# ------------------------------------------------------------------------------------ rule 10: a static member restarts


def test_a_join_that_a_change_of_protocol_ended_is_sent_again() -> None:
    run = Scenario().member(tasks("0"))
    run.heartbeat(27)
    first = run.last(JoinGroupRequest)
    run.join_refused(ErrorCode.REBALANCE_IN_PROGRESS)
    run.none(MembershipFailed)
    run.after(1_000)
    assert run.last(JoinGroupRequest).protocols == first.protocols
    run.joined(2)
    run.synced(tasks("0"))
    run.none(AssignmentChanged)


def test_a_coordinator_that_assigns_asks_for_the_topology_once() -> None:
    run = Scenario()
    run.on(Join())
    assert run.said().topology is None
    run.join_refused(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH)
    assert run.said().topology == TOPOLOGY
    run.join_refused(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH)
    assert isinstance(run.last(MembershipFailed).error, StreamsInvalidTopologyEpochError)


def stored(
    generation: int = 4,
    *,
    process_id: str = PROCESS,
    digest: bytes = DIGEST,
    epoch: int = 2,
    unique: int = 77,
    statuses: tuple[Status, ...] = (),
) -> bytes:
    given = tasks("0")
    told = ClassicAssignment(
        generation=generation,
        group_epoch=epoch,
        group_digest=digest,
        tasks=given,
        target=given,
        process_id=process_id,
        unique=unique,
        statuses=statuses,
    )
    return encode_assignment(told)


def restart(assignment: bytes, version: int = 9) -> Scenario:
    run = Scenario(STATIC, version=version)
    run.on(Join())
    run.joined(4, leader="m" if version >= 9 else "m-before", skip_assignment=version >= 9)
    run.sent.clear()
    run.on(RebalanceAnswered(SyncGroupResponse(assignment=assignment)))
    return run


def test_a_restarted_process_goes_on_with_what_is_stored() -> None:
    run = restart(stored())
    assert run.last(AssignmentChanged).tasks == tasks("0")
    run.opens(tasks("0"))
    assert run.session.echo == Echo(4, 2, DIGEST, tasks("0"))
    said = run.said()
    assert said.held == tasks("0"), "others may wait for what the process before it was to let go of"
    run.joined(5)
    run.synced(tasks("0"))
    run.none(AssignmentChanged)
    run.none(JoinGroupRequest)


@pytest.mark.parametrize(
    ("assignment", "version"),
    [
        (stored(process_id="00000000-0000-0000-0000-000000000009"), 9),
        (stored(digest=b"x" * 16), 9),
        (stored(digest=b"x" * 16, unique=1), 9),
        (stored(statuses=(Status(StatusCode.STALE_TOPOLOGY, "behind"),)), 9),
        (stored(), 8),
    ],
)
def test_otherwise_it_opens_nothing_and_joins_again(assignment: bytes, version: int) -> None:
    run = restart(assignment, version)
    run.none(AssignmentChanged)
    run.after(IDLE_PAUSE_MS)
    said = run.said()
    assert (said.held, said.echo) == (tasks(), None)


def test_a_stored_assignment_of_a_newer_epoch_ends_the_older_program() -> None:
    run = restart(stored(epoch=3))
    assert isinstance(run.last(MembershipFailed).error, StreamsTopologyFencedError)


# ---------------------------------------------------------------------------------------------------------- statuses


def test_statuses_and_missing_topics_are_told() -> None:
    run = Scenario(missing_source_topics_timeout_ms=5_000)
    run.on(Join())
    run.joined()
    missing = Status(StatusCode.MISSING_SOURCE_TOPICS, "t is missing")
    run.synced(statuses=(missing, UnknownStatus(99, "new")))
    assert run.last(StatusChanged) == StatusChanged((missing,), is_classic=True)
    assert run.last(UnknownStatus).code == 99
    run.heartbeat()
    run.after(2_000)
    assert run.last(SourceTopicsMissing).detail == "t is missing"
    run.after(1_000)
    run.last(HeartbeatRequest)
    run.heartbeat_answered(27)
    run.joined(2)
    run.synced()
    assert run.last(StatusChanged).statuses == ()


def test_an_error_of_the_leader_is_final() -> None:
    run = Scenario()
    run.on(Join())
    run.joined()
    run.synced(error_code=int(ErrorCode.STREAMS_TOPOLOGY_FENCED), error_text="The group runs epoch 5.")
    assert "The group runs epoch 5." in str(run.last(MembershipFailed).error)


@pytest.mark.parametrize("is_same_topology", [True, False])
def test_who_has_the_groups_topology_is_not_told_to_start_another_version(is_same_topology: bool) -> None:
    run = Scenario()
    run.on(Join())
    run.joined()
    fenced = int(ErrorCode.STREAMS_TOPOLOGY_FENCED)
    run.synced(error_code=fenced, error_text="Set topology.epoch to 5.", is_same_topology=is_same_topology)
    error = run.last(MembershipFailed).error
    assert isinstance(error, StreamsTopologyFencedError)
    assert "Set topology.epoch to 5." in str(error)
    assert ("Start the newer version" in str(error)) is not is_same_topology


def test_who_is_refused_leaves_so_that_nobody_waits_for_it() -> None:
    run = Scenario()
    run.on(Join())
    run.joined()
    run.synced(error_code=int(ErrorCode.STREAMS_TOPOLOGY_FENCED), error_text="The group runs epoch 5.")
    assert [member.member_id for member in run.last(LeaveGroupRequest).members] == ["m"]


@pytest.mark.parametrize("sent", [b"", b"\x00\x01\xff\xff\xff"])
def test_a_leader_whose_assignments_can_not_be_read_is_named(sent: bytes) -> None:
    run = Scenario()
    run.on(Join())
    run.joined(leader="stranger-1")
    run.on(RebalanceAnswered(SyncGroupResponse(assignment=sent)))
    # It may have missed this member once.
    run.none(StatusChanged)
    run.after(60_000)
    run.joined(2, leader="stranger-1")
    run.on(RebalanceAnswered(SyncGroupResponse(assignment=sent)))
    (status,) = run.last(StatusChanged).statuses
    assert "The assignment can't be read" in status.detail
    assert "Member stranger-1 of group g leads it and has sent this repeatedly" in status.detail
    assert not passes_by_itself(status)

    run.after(60_000)
    run.joined(3, leader="other")
    run.synced(tasks("0"))
    assert run.last(StatusChanged).statuses == ()
