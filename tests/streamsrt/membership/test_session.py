"""The member's state machine, exchange by exchange."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from streamsrt.assignment.status_code import StatusCode
from streamsrt.errors import TopologyMismatchError, UnsupportedBrokerError, UserError
from streamsrt.membership import errors, session
from streamsrt.membership.session import MemberState
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    Endpoint,
    EndpointsChanged,
    EpochChanged,
    HeartbeatRecovered,
    HeartbeatTrouble,
    InstanceIdTaken,
    Join,
    Leave,
    LeftGroup,
    MembershipFailed,
    ReleaseTasks,
    ReportOwned,
    RequestShutdown,
    SetTaskOffsets,
    SourceTopicsMissing,
    Status,
    StatusChanged,
    Tasks,
    TasksLost,
    UnknownStatus,
)
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.private_tags import SAME_TOPOLOGY_TAG, WHY_ASSIGNED_TAG
from streamsrt.wire.types import StreamsGroupHeartbeatRequest
from tests.streamsrt.membership.scenario import MEMBERSHIP, TOPOLOGY, Response, Scenario, lists, offsets

A0, A1 = ("s", 0), ("s", 1)
ALL_EMPTY = (set(), set(), set())
ALL_NULL = (None, None, None)


def active(*tasks: tuple[str, int]) -> Tasks:
    return Tasks(active=frozenset(tasks))


def stable(scenario: Scenario, *tasks: tuple[str, int]) -> Scenario:
    """A member that has acknowledged these active tasks in epoch 2."""
    scenario.joined()
    scenario.answer(2, active=list(tasks), standby=[], warmup=[])
    scenario.on(ReportOwned(active(*tasks)))
    scenario.answer(2)
    assert scenario.session.state is MemberState.STABLE
    scenario.events.clear()
    return scenario


# --------------------------------------------------------------------------------------------------------------- join


@pytest.mark.requirement("SG-014", "SG-021", "SG-022", "SG-020")
def test_a_joining_heartbeat_sets_every_field() -> None:
    scenario = Scenario(
        rack_id="r", endpoint=Endpoint("h", 9), client_tags={"zone": "z"}, instance_id="i", rebalance_timeout_ms=7_000
    )
    scenario.on(Join())
    request = scenario.sent()
    assert (request.group_id, request.member_id, request.member_epoch, request.instance_id) == ("g", "m", 0, "i")
    assert (request.rack_id, request.rebalance_timeout_ms, request.process_id) == ("r", 7_000, "p")
    assert request.topology is TOPOLOGY
    assert request.topology.epoch == 0
    assert lists(request) == ALL_EMPTY
    assert (request.user_endpoint.host, request.user_endpoint.port) == ("h", 9)
    assert [(tag.key, tag.value) for tag in request.client_tags] == [("zone", "z")]
    assert request.endpoint_information_epoch == -1
    assert request.shutdown_application is False


@pytest.mark.requirement("SG-243")
def test_the_rebalance_timeout_is_sent_with_the_join_only() -> None:
    scenario = stable(Scenario(rebalance_timeout_ms=60_000), A0)
    scenario.at(scenario.now_ms + 5_000)
    assert scenario.sent().rebalance_timeout_ms == -1


@pytest.mark.requirement("SG-020")
def test_no_endpoint_is_sent_when_none_is_configured() -> None:
    scenario = Scenario()
    scenario.on(Join())
    assert scenario.sent().user_endpoint is None


def test_an_empty_first_assignment_is_acknowledged_at_once() -> None:
    scenario = Scenario().joined()
    assert scenario.sent().member_epoch == 1
    assert lists(scenario.sent()) == ALL_EMPTY
    assert scenario.told(AssignmentChanged) == [AssignmentChanged(NOTHING, 1)]
    assert scenario.told(EpochChanged) == [EpochChanged(1)]


@pytest.mark.requirement("SG-013", "SG-021", "SG-099")
def test_a_steady_heartbeat_carries_nothing_that_is_known() -> None:
    scenario = stable(Scenario(instance_id="i"), A0)
    sent_at = scenario.now_ms
    assert scenario.step.wake_at_ms == sent_at + 5_000
    assert scenario.at(sent_at + 4_999).request is None
    scenario.at(sent_at + 5_000)
    request = scenario.sent()
    assert (request.group_id, request.member_id, request.member_epoch, request.instance_id) == ("g", "m", 2, "i")
    assert lists(request) == ALL_NULL
    assert (request.topology, request.process_id, request.client_tags, request.task_offsets) == (None,) * 4


@pytest.mark.requirement("SG-099")
def test_the_interval_of_the_latest_answer_counts_from_request_to_request() -> None:
    scenario = stable(Scenario(), A0)
    start = scenario.now_ms
    scenario.at(start + 5_000)
    scenario.now_ms = start + 5_400
    scenario.answer(2, heartbeat_interval_ms=1_000)
    assert scenario.step.wake_at_ms == start + 6_000


def said(code: StatusCode, detail: str) -> list[Any]:
    return [Response.Status(status_code=code, status_detail=detail)]


INITIAL = said(StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay.")
INTERVAL = said(StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
CREATED = said(StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: [a-changelog]")


@pytest.mark.parametrize("status", [INITIAL, INTERVAL, CREATED])
def test_a_member_asks_soon_while_its_assignment_is_a_matter_of_seconds(status: list[Any]) -> None:
    scenario = Scenario()
    scenario.on(Join())
    start, sent_at = scenario.now_ms, []
    while scenario.now_ms < start + 60_000:
        sent_at.append(scenario.now_ms - start)
        scenario.now_ms += 10
        scenario.answer(1, active=[], standby=[], warmup=[], status=status)
        while scenario.step.request is None:
            assert scenario.step.wake_at_ms is not None
            scenario.at(scenario.step.wake_at_ms)
    waits = [after - before for before, after in pairwise(sent_at)]
    # The first one is owed an answer about its tasks anyway.
    assert waits[1:4] == [500, 500, 500]
    assert waits[1:] == sorted(waits[1:])
    assert waits[-1] == 5_000
    scenario.now_ms += 10
    sent = scenario.now_ms - 10
    scenario.answer(1, status=[])
    assert scenario.step.wake_at_ms == sent + 5_000


@pytest.mark.parametrize(
    "status",
    [
        said(StatusCode.ASSIGNMENT_DELAYED, "5 records of topic a are in flight"),
        said(StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: [a]; Creation failed: a (no disk)."),
        said(StatusCode.MISSING_SOURCE_TOPICS, "Source topics are missing: [a]"),
    ],
)
def test_what_may_last_is_not_asked_for_more_often(status: list[Any]) -> None:
    scenario = stable(Scenario(), A0)
    sent_at = scenario.now_ms
    scenario.at(sent_at + 5_000)
    scenario.answer(2, status=status)
    assert scenario.session.delayed_since_ms is None
    assert scenario.session.sent_at_ms == sent_at + 5_000
    assert scenario.at(sent_at + 9_999).request is None


# ------------------------------------------------------------------------------------------------------ reconciliation


@pytest.mark.requirement("SG-023", "SG-100")
def test_open_tasks_are_reported_at_once_and_only_open_ones() -> None:
    scenario = Scenario().joined()
    scenario.answer(2, active=[], standby=[A0, A1], warmup=[])
    assert scenario.told(AssignmentChanged)[-1] == AssignmentChanged(Tasks(standby=frozenset({A0, A1})), 2)
    assert scenario.step.request is None
    scenario.on(ReportOwned(Tasks(standby=frozenset({A0}))))
    assert lists(scenario.sent()) == (set(), {A0}, set())
    scenario.on(ReportOwned(Tasks(standby=frozenset({A0, A1}))))
    assert scenario.step.request is None, "a heartbeat is in flight"
    scenario.answer(2)
    assert lists(scenario.sent()) == (set(), {A0, A1}, set())
    assert scenario.session.state is MemberState.STABLE


@pytest.mark.requirement("SG-100")
def test_an_active_task_that_is_to_be_opened_is_named_before_it_is_open() -> None:
    """Without its name in the list, the coordinator could give it to another member at once."""
    scenario = Scenario().joined()
    scenario.answer(2, active=[A0, A1], standby=[], warmup=[])
    assert scenario.step.request is None
    scenario.on(ReportOwned(active(A0)))
    assert lists(scenario.sent()) == ({A0, A1}, set(), set())
    assert scenario.session.state is MemberState.RECONCILING
    scenario.answer(2)
    scenario.on(ReportOwned(active(A0, A1)))
    assert lists(scenario.sent()) == ({A0, A1}, set(), set())
    assert scenario.session.state is MemberState.STABLE


def test_what_the_coordinator_says_of_an_assignment_is_told_with_it() -> None:
    scenario = Scenario().joined()
    scenario.answer(2, active=[A0], standby=[], warmup=[], unknown_tags={WHY_ASSIGNED_TAG: b"member x joined"})
    assert scenario.told(AssignmentChanged)[-1] == AssignmentChanged(active(A0), 2, "member x joined")


@pytest.mark.requirement("SG-220", "SG-085")
def test_a_revocation_is_confirmed_by_not_naming_the_task() -> None:
    scenario = stable(Scenario(), A0, A1)
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(2, active=[A1], standby=[], warmup=[])
    assert scenario.told(AssignmentChanged) == [AssignmentChanged(active(A1), 2)]
    assert scenario.session.state is MemberState.RECONCILING
    scenario.at(scenario.now_ms + 5_000)
    assert lists(scenario.sent()) == ALL_NULL, "what is open has not changed yet"
    scenario.answer(2)
    scenario.on(ReportOwned(active(A1)))
    assert lists(scenario.sent()) == ({A1}, set(), set())
    scenario.answer(3)
    assert scenario.told(EpochChanged) == [EpochChanged(3)]


@pytest.mark.requirement("SG-086")
def test_a_null_list_leaves_the_role_as_it_was() -> None:
    scenario = stable(Scenario(), A0)
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(3, standby=[("s", 5)])
    assert scenario.told(AssignmentChanged) == [AssignmentChanged(Tasks(frozenset({A0}), frozenset({("s", 5)})), 3)]


def test_a_revocation_is_not_confirmed_while_the_task_may_still_be_opened() -> None:
    """Found by the simulator: the thread stood still, had opened only A0, and was about to hear that it also has A1."""
    scenario = stable(Scenario(), A0)
    heard = scenario.session.event_count
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(3, active=[A0, A1], standby=[], warmup=[])
    first = scenario.session.assigned_at
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(3, active=[A0], standby=[], warmup=[])
    assert scenario.session.state is MemberState.RECONCILING
    assert scenario.step.request is None
    assert first > heard
    scenario.on(session.OwnedReported(active(A0, A1), first))
    assert lists(scenario.sent()) == ALL_NULL, "it was named before"
    scenario.answer(3)
    scenario.on(session.OwnedReported(active(A0), scenario.session.assigned_at))
    assert lists(scenario.sent()) == ({A0}, set(), set())


def test_what_may_still_be_opened_is_reported_as_held_after_a_failure() -> None:
    scenario = stable(Scenario(), A0)
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(3, active=[A0, A1], standby=[], warmup=[])
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(3, active=[A0], standby=[], warmup=[])
    scenario.at(scenario.now_ms + 5_000)
    scenario.lose()
    scenario.at(scenario.now_ms + 5_000)
    assert lists(scenario.sent()) == ({A0, A1}, set(), set())
    scenario.answer(3)
    scenario.on(session.OwnedReported(active(A0), scenario.session.assigned_at))
    assert lists(scenario.sent()) == ({A0}, set(), set())


def test_a_task_that_may_have_been_promoted_meanwhile_is_reported_once() -> None:
    """The thread has it as a standby, was to promote it, and is to demote it again before it has said that it did."""
    scenario = Scenario().joined(standby=[A0], warmup=[A1])
    scenario.on(ReportOwned(Tasks(standby=frozenset({A0}), warmup=frozenset({A1}))))
    scenario.answer(2, active=[A0, A1], standby=[], warmup=[])
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(3, active=[], standby=[A0], warmup=[A1])
    scenario.at(scenario.now_ms + 5_000)
    scenario.lose()
    scenario.at(scenario.now_ms + 5_000)
    assert lists(scenario.sent()) == ({A0, A1}, set(), set())
    scenario.answer(3)
    demoted = Tasks(standby=frozenset({A0}), warmup=frozenset({A1}))
    scenario.on(session.OwnedReported(demoted, scenario.session.assigned_at))
    assert lists(scenario.sent()) == (set(), {A0}, {A1})


@pytest.mark.requirement("SG-226")
def test_standby_and_warmup_tasks_are_reported_in_their_roles() -> None:
    scenario = Scenario().joined(standby=[A0], warmup=[A1])
    scenario.on(ReportOwned(Tasks(standby=frozenset({A0}), warmup=frozenset({A1}))))
    assert lists(scenario.sent()) == (set(), {A0}, {A1})
    scenario.answer(2, active=[], standby=[], warmup=[A1])
    scenario.on(ReportOwned(Tasks(warmup=frozenset({A1}))))
    assert lists(scenario.sent()) == (set(), set(), {A1})


def test_the_same_assignment_again_is_no_event() -> None:
    scenario = stable(Scenario(), A0)
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(2, active=[A0], standby=[], warmup=[])
    assert scenario.events == []
    assert scenario.step.request is None


@pytest.mark.requirement("SG-018")
def test_subtopology_ids_are_any_strings() -> None:
    odd = ("ñ/ 0_1", 3)
    scenario = Scenario().joined(active=[odd])
    scenario.on(ReportOwned(active(odd)))
    assert lists(scenario.sent()) == ({odd}, set(), set())


# ------------------------------------------------------------------------------------------------------------ failures


@pytest.mark.requirement("SG-015")
@pytest.mark.parametrize("failure", ["disconnect", "error"])
def test_after_a_failure_everything_is_sent_but_the_topology(failure: str) -> None:
    scenario = stable(Scenario(rack_id="r"), A0)
    scenario.at(scenario.now_ms + 5_000)
    if failure == "disconnect":
        scenario.lose()
    else:
        scenario.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    scenario.at(scenario.now_ms + 100)
    request = scenario.sent()
    assert request.member_epoch == 2
    assert lists(request) == ({A0}, set(), set())
    assert (request.process_id, request.rack_id, request.client_tags) == ("p", "r", [])
    assert request.rebalance_timeout_ms == 300_000
    assert request.topology is None
    scenario.answer(2)
    scenario.at(scenario.now_ms + 5_000)
    assert lists(scenario.sent()) == ALL_NULL


@pytest.mark.requirement("SG-102", "GA-015")
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_moved_coordinator_is_looked_up_again(code: ErrorCode) -> None:
    scenario = stable(Scenario(), A0)
    scenario.at(scenario.now_ms + 5_000)
    scenario.refuse(code)
    step = session.step(scenario.session, session.Tick(), scenario.now_ms + 100)
    assert step.find_coordinator
    assert step.request is None
    assert (step.session.member_epoch, step.session.owned, step.session.assigned) == (2, active(A0), active(A0))


@pytest.mark.requirement("SG-102")
def test_a_loading_coordinator_is_asked_again_after_a_back_off() -> None:
    scenario = stable(Scenario(), A0)
    scenario.at(scenario.now_ms + 5_000)
    waits = []
    for _ in range(6):
        before = scenario.now_ms
        step = scenario.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert step.wake_at_ms is not None
        assert scenario.at(step.wake_at_ms - 1).request is None
        scenario.at(step.wake_at_ms)
        assert scenario.sent().member_epoch == 2
        waits.append(scenario.now_ms - before)
    assert waits == [100, 200, 400, 800, 1_000, 1_000]
    assert scenario.told(TasksLost) == []


def test_an_outage_is_told_once_and_so_is_its_end() -> None:
    scenario = stable(Scenario(), A0)
    scenario.at(scenario.now_ms + 5_000)
    start = scenario.now_ms
    for _ in range(3):
        scenario.lose("gone")
        scenario.at(scenario.now_ms + 1_000)
    scenario.answer(2)
    assert scenario.told(HeartbeatTrouble) == [HeartbeatTrouble("gone")]
    assert scenario.told(HeartbeatRecovered) == [HeartbeatRecovered(scenario.now_ms - start)]


@pytest.mark.requirement("SG-101", "SG-027")
@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_fenced_member_gives_up_its_tasks_and_joins_again(code: ErrorCode) -> None:
    scenario = stable(Scenario(), A0)
    scenario.at(scenario.now_ms + 5_000)
    scenario.refuse(code, "because")
    assert [event.reason for event in scenario.told(TasksLost)] == [f"{code.name}: because"]
    assert scenario.at(scenario.now_ms + 60_000).request is None, "not before the tasks are given up"
    scenario.on(ReportOwned(NOTHING))
    request = scenario.sent()
    assert (request.member_id, request.member_epoch, request.topology) == ("m", 0, TOPOLOGY)
    assert lists(request) == ALL_EMPTY
    scenario.answer(7, active=[A0], standby=[], warmup=[])
    assert scenario.told(AssignmentChanged) == [AssignmentChanged(active(A0), 7)]


def test_tasks_count_as_given_up_when_who_reports_it_has_heard_of_the_loss() -> None:
    scenario = stable(Scenario(), A0)
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(2, active=[A1], standby=[], warmup=[])
    heard = scenario.session.event_count
    scenario.at(scenario.now_ms + 5_000)
    scenario.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    scenario.on(session.OwnedReported(NOTHING, heard))
    assert scenario.step.request is None, "the report was on its way when the tasks were lost: A1 may be open by now"
    scenario.on(session.OwnedReported(NOTHING, heard + 1))
    assert scenario.sent().member_epoch == 0


def test_being_fenced_again_and_again_is_slowed_down() -> None:
    scenario = Scenario()
    scenario.on(Join())
    scenario.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert scenario.sent().member_epoch == 0
    step = scenario.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert step.request is None
    assert step.wake_at_ms == scenario.now_ms + 100


def test_a_member_that_had_joined_is_not_slowed_down() -> None:
    scenario = Scenario()
    scenario.on(Join())
    for _ in range(3):
        scenario.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        if scenario.step.request is None:
            scenario.at(scenario.now_ms + 1_000)
        scenario.answer(1, active=[A0], standby=[], warmup=[])
        scenario.on(ReportOwned(active(A0)))
        scenario.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        scenario.on(ReportOwned(NOTHING))
        assert scenario.sent().member_epoch == 0


REFUSALS: list[tuple[ErrorCode, type[Exception]]] = [
    (ErrorCode.INVALID_REQUEST, errors.MembershipRefusedError),
    (ErrorCode.GROUP_AUTHORIZATION_FAILED, errors.MembershipRefusedError),
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, errors.MembershipRefusedError),
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, errors.MembershipRefusedError),
    (ErrorCode.GROUP_MAX_SIZE_REACHED, errors.MembershipRefusedError),
    (ErrorCode.GROUP_ID_NOT_FOUND, errors.OtherGroupProtocolError),
    (ErrorCode.FENCED_INSTANCE_ID, errors.MembershipRefusedError),
    (ErrorCode.UNSUPPORTED_VERSION, UnsupportedBrokerError),
    (ErrorCode.STREAMS_INVALID_TOPOLOGY, errors.StreamsInvalidTopologyError),
    (ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, errors.StreamsInvalidTopologyEpochError),
    (ErrorCode.STREAMS_TOPOLOGY_FENCED, errors.StreamsTopologyFencedError),
]


@pytest.mark.requirement("SG-103", "SG-104", "SG-105", "SG-106")
@pytest.mark.parametrize(("code", "kind"), REFUSALS)
def test_a_refusal_ends_the_membership_with_code_and_message(code: ErrorCode, kind: type[Exception]) -> None:
    scenario = Scenario()
    scenario.on(Join())
    scenario.refuse(code, "the broker's words")
    (failed,) = scenario.told(MembershipFailed)
    assert type(failed.error) is kind
    assert code.name in str(failed.error)
    assert "the broker's words" in str(failed.error)
    assert scenario.session.ended
    assert scenario.at(scenario.now_ms + 100_000).request is None


def test_only_the_topics_that_the_coordinator_names_are_to_be_granted() -> None:
    topology = StreamsGroupHeartbeatRequest.Topology(
        epoch=0,
        subtopologies=[
            StreamsGroupHeartbeatRequest.Subtopology(subtopology_id="0", source_topics=["w-in", "w-in2", "w.other"])
        ],
    )
    membership = replace(MEMBERSHIP, topology=topology)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    said = str(errors.refusal(membership, code, "Topic authorization failed: DESCRIBE on w-in."))
    assert "lacks DESCRIBE on topic 'w-in'. Grant it" in said
    assert "'w-in', 'w-in2', 'w.other'" in str(errors.refusal(membership, code, "Topic authorization failed."))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a streams group."),
        (ErrorCode.INVALID_REQUEST, "The classic group g can't be upgraded to a streams group: its type is connect."),
    ],
)
def test_a_group_of_another_protocol_is_a_mistake_of_configuration(code: ErrorCode, message: str) -> None:
    scenario = Scenario()
    scenario.on(Join())
    scenario.refuse(code, message)
    (failed,) = scenario.told(MembershipFailed)
    assert isinstance(failed.error, errors.OtherGroupProtocolError)
    assert failed.error.exit_code == 2
    for part in (message, "start them with group.protocol=streams", "choose another application.id"):
        assert part in str(failed.error)


def test_a_changed_topology_on_a_broker_without_updates_says_what_to_do() -> None:
    scenario = Scenario()
    scenario.on(Join())
    scenario.refuse(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    (failed,) = scenario.told(MembershipFailed)
    assert isinstance(failed.error, TopologyMismatchError)
    assert failed.error.exit_code == 2
    for step in ("streamsrt topology diff", "stop all members", "streamsrt groups forget-topology", "application.id"):
        assert step in str(failed.error)


@pytest.mark.parametrize("code", [ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, ErrorCode.STREAMS_TOPOLOGY_FENCED])
def test_an_epoch_that_does_not_fit_says_which_one_would_and_how_to_compare(code: ErrorCode) -> None:
    scenario = Scenario()
    scenario.on(Join())
    scenario.refuse(code, "Set topology.epoch to 1 to update the group's topology.")
    (failed,) = scenario.told(MembershipFailed)
    assert failed.error.exit_code == 2
    assert "Set topology.epoch to 1" in str(failed.error)
    assert "streamsrt topology diff" in str(failed.error)


@pytest.mark.parametrize("tags", [{SAME_TOPOLOGY_TAG: b""}, None])
def test_who_has_the_groups_topology_is_not_told_to_start_another_version(tags: dict[int, bytes] | None) -> None:
    scenario = Scenario()
    scenario.on(Join())
    scenario.answer(
        0,
        error_code=ErrorCode.STREAMS_TOPOLOGY_FENCED,
        error_message="Set topology.epoch to 5.",
        unknown_tags=tags,
    )
    (failed,) = scenario.told(MembershipFailed)
    assert "Set topology.epoch to 5." in str(failed.error)
    assert ("Start the newer version" in str(failed.error)) is (tags is None)


def test_an_epoch_that_does_not_fit_names_the_view_that_shows_the_groups() -> None:
    """In the view of the members each has its own."""
    scenario = Scenario()
    scenario.on(Join())
    scenario.refuse(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH)
    (failed,) = scenario.told(MembershipFailed)
    assert "groups describe g --view state" in str(failed.error)


def test_a_topology_whose_topics_the_member_may_not_create_names_the_acl() -> None:
    scenario = Scenario(principal="User:app")
    scenario.on(Join())
    scenario.refuse(ErrorCode.STREAMS_INVALID_TOPOLOGY, "It can't run. Unauthorized to CREATE on topics a, b.")
    (failed,) = scenario.told(MembershipFailed)
    assert failed.error.exit_code == 2
    said = "It can't run. Unauthorized to CREATE on topics a, b. User:app lacks CREATE on topic 'a', 'b'."
    assert said in str(failed.error)


TAKEN = ErrorCode.UNRELEASED_INSTANCE_ID


def waiting_for_id(streams_session_timeout_ms: int = 45_000) -> Scenario:
    scenario = Scenario(instance_id="i", streams_session_timeout_ms=streams_session_timeout_ms)
    scenario.on(Join())
    scenario.refuse(TAKEN, "owned by OLD member.")
    assert scenario.step.request is None
    return scenario


def test_the_id_of_a_member_that_was_killed_is_waited_for() -> None:
    scenario = waiting_for_id()
    assert scenario.told(InstanceIdTaken) == [InstanceIdTaken(50_000)]
    for _ in range(3):
        assert scenario.step.wake_at_ms == scenario.now_ms + 1_000
        scenario.at(scenario.now_ms + 1_000)
        request = scenario.sent()
        assert (request.member_epoch, request.instance_id, request.topology) == (0, "i", TOPOLOGY)
        scenario.refuse(TAKEN)
    assert len(scenario.told(InstanceIdTaken)) == 1, "it is told once"
    scenario.at(scenario.now_ms + 1_000)
    scenario.answer(1, active=[A0], standby=[], warmup=[])
    assert scenario.told(AssignmentChanged) == [AssignmentChanged(active(A0), 1)]
    assert not scenario.told(MembershipFailed)


def test_the_id_of_a_member_that_lives_is_refused_when_a_session_would_have_ended() -> None:
    scenario = waiting_for_id(streams_session_timeout_ms=10_000)
    began_ms = scenario.now_ms
    while not scenario.session.ended:
        assert scenario.now_ms < began_ms + 15_000
        assert scenario.step.wake_at_ms is not None
        scenario.at(scenario.step.wake_at_ms)
        scenario.refuse(TAKEN, "owned by OLD member.")
    assert scenario.now_ms == began_ms + 15_000
    (failed,) = scenario.told(MembershipFailed)
    assert isinstance(failed.error, errors.MembershipRefusedError)
    assert failed.error.error_code == TAKEN
    for part in ("group.instance.id", "UNRELEASED_INSTANCE_ID", "owned by OLD member.", "stop the other one"):
        assert part in str(failed.error)


def test_who_waits_for_an_id_can_leave() -> None:
    scenario = waiting_for_id()
    scenario.on(Leave())
    assert scenario.told(LeftGroup) == [LeftGroup()]
    asking = waiting_for_id()
    asking.at(asking.now_ms + 1_000)
    asking.on(Leave())
    asking.refuse(TAKEN)
    assert asking.told(LeftGroup) == [LeftGroup()]
    assert not asking.told(MembershipFailed)


def test_a_lost_coordinator_does_not_make_the_wait_for_an_id_longer() -> None:
    scenario = waiting_for_id(streams_session_timeout_ms=10_000)
    began_ms = scenario.now_ms
    scenario.at(began_ms + 1_000)
    scenario.lose()
    scenario.at(began_ms + 2_000)
    scenario.refuse(TAKEN)
    assert scenario.told(HeartbeatRecovered) == [HeartbeatRecovered(1_000)]
    assert scenario.told(InstanceIdTaken) == [InstanceIdTaken(15_000), InstanceIdTaken(13_000)]
    scenario.at(began_ms + 3_000)
    scenario.answer(1, active=[], standby=[], warmup=[])
    assert scenario.session.id_taken_since_ms is None


def test_topology_errors_are_the_users() -> None:
    assert issubclass(errors.StreamsInvalidTopologyError, UserError)
    assert issubclass(errors.StreamsTopologyFencedError, TopologyMismatchError)


# -------------------------------------------------------------------------------------------------------------- leave


@pytest.mark.requirement("SG-024")
def test_leaving_releases_the_tasks_first() -> None:
    scenario = stable(Scenario(), A0)
    scenario.on(Leave())
    assert scenario.told(ReleaseTasks) == [ReleaseTasks()]
    assert scenario.step.request is None
    scenario.at(scenario.now_ms + 5_000)
    assert scenario.sent().member_epoch == 2, "heartbeats go on while the tasks are closed"
    scenario.answer(2, active=[A0, A1], standby=[], warmup=[])
    assert scenario.told(AssignmentChanged) == []
    scenario.on(ReportOwned(NOTHING))
    request = scenario.sent()
    assert (request.member_epoch, lists(request), request.shutdown_application) == (-1, ALL_NULL, False)
    scenario.answer(-1)
    assert scenario.told(LeftGroup) == [LeftGroup()]


@pytest.mark.requirement("SG-025", "SG-024")
@pytest.mark.parametrize(("instance", "remain", "epoch"), [("i", True, -2), ("i", False, -1), (None, True, -1)])
def test_only_a_static_member_can_come_back(instance: str | None, remain: bool, epoch: int) -> None:
    scenario = stable(Scenario(instance_id=instance))
    scenario.on(Leave(remain))
    assert scenario.sent().member_epoch == epoch


@pytest.mark.requirement("SG-026")
def test_the_shutdown_of_the_application_is_asked_for_when_leaving_only() -> None:
    scenario = stable(Scenario(), A0)
    scenario.on(RequestShutdown())
    scenario.at(scenario.now_ms + 5_000)
    assert scenario.sent().shutdown_application is False
    scenario.answer(2)
    scenario.on(ReportOwned(NOTHING))
    assert (scenario.sent().member_epoch, scenario.sent().shutdown_application) == (-1, True)


def test_a_leave_waits_for_the_heartbeat_in_flight() -> None:
    scenario = stable(Scenario())
    scenario.at(scenario.now_ms + 5_000)
    assert scenario.on(Leave()).request is None
    scenario.answer(2)
    assert scenario.sent().member_epoch == -1


def test_a_leave_that_can_not_be_sent_is_over() -> None:
    scenario = stable(Scenario())
    scenario.on(Leave())
    scenario.lose()
    assert scenario.told(LeftGroup) == [LeftGroup()]


def test_whoever_never_joined_leaves_without_a_request() -> None:
    scenario = Scenario()
    scenario.on(Leave())
    assert scenario.step.request is None
    assert scenario.told(LeftGroup) == [LeftGroup()]


def test_a_member_that_is_fenced_while_leaving_has_left() -> None:
    scenario = stable(Scenario(), A0)
    scenario.at(scenario.now_ms + 5_000)
    scenario.on(Leave())
    scenario.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert len(scenario.told(TasksLost)) == 1
    assert scenario.told(LeftGroup) == [LeftGroup()]


# ----------------------------------------------------------------------------------------------- a thread that hangs


def test_a_processing_thread_that_does_not_poll_leaves_and_joins_again_when_it_is_back() -> None:
    scenario = stable(Scenario(rebalance_timeout_ms=10_000), A0)
    polled_at = scenario.now_ms
    scenario.at(polled_at + 5_000)
    scenario.answer(2)
    scenario.at(polled_at + 10_000)
    assert scenario.sent().member_epoch == -1
    assert "max.poll.interval.ms" in scenario.told(TasksLost)[0].reason
    scenario.answer(-1)
    assert scenario.at(polled_at + 90_000).request is None, "the tasks are still open"
    scenario.on(ReportOwned(NOTHING))
    assert (scenario.sent().member_epoch, lists(scenario.sent())) == (0, ALL_EMPTY)


def test_who_comes_back_while_its_leave_is_in_flight_waits_for_the_answer() -> None:
    scenario = stable(Scenario(rebalance_timeout_ms=10_000), A0)
    scenario.at(scenario.now_ms + 10_000)
    assert scenario.sent().member_epoch == -1
    assert scenario.on(ReportOwned(NOTHING)).request is None
    scenario.answer(-1)
    assert scenario.sent().member_epoch == 0
    assert scenario.told(LeftGroup) == []


def test_a_processing_thread_that_polls_stays() -> None:
    scenario = stable(Scenario(rebalance_timeout_ms=10_000), A0)
    for _ in range(5):
        scenario.session = session.alive(scenario.session, scenario.now_ms + 4_000)
        scenario.at(scenario.now_ms + 5_000)
        assert scenario.sent().member_epoch == 2
        scenario.answer(2)
    assert scenario.told(TasksLost) == []


# ------------------------------------------------------------------------------------------------------------- status


def status(code: int, detail: str = "d") -> Any:
    return Response.Status(status_code=code, status_detail=detail)


@pytest.mark.requirement("SG-097", "SG-074")
def test_statuses_are_told_when_they_change_and_end_nothing() -> None:
    scenario = stable(Scenario(), A0)
    for code in StatusCode:
        scenario.at(scenario.now_ms + 5_000)
        scenario.answer(2, status=[status(code)])
        assert scenario.told(StatusChanged)[-1] == StatusChanged((Status(code, "d"),))
        assert not scenario.session.ended
    told = len(scenario.told(StatusChanged))
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(2, status=None)
    assert len(scenario.told(StatusChanged)) == told
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(2, status=[])
    assert scenario.told(StatusChanged)[-1] == StatusChanged(())


@pytest.mark.requirement("SG-098")
def test_an_unknown_status_is_told_and_ignored() -> None:
    scenario = stable(Scenario(), A0)
    scenario.at(scenario.now_ms + 5_000)
    scenario.answer(2, status=[status(77, "new")])
    assert scenario.events == [UnknownStatus(77, "new")]
    assert scenario.session.state is MemberState.STABLE


def test_missing_source_topics_are_told_after_ten_seconds_once() -> None:
    scenario = stable(Scenario())
    scenario.at(scenario.now_ms + 5_000)
    since = scenario.now_ms
    scenario.answer(2, status=[status(StatusCode.MISSING_SOURCE_TOPICS, "Source topics t are missing.")])
    scenario.at(since + 9_999)
    assert scenario.told(SourceTopicsMissing) == []
    scenario.at(since + 10_000)
    scenario.at(since + 10_001)
    assert scenario.told(SourceTopicsMissing) == [SourceTopicsMissing("Source topics t are missing.")]


def test_source_topics_that_appear_in_time_are_no_trouble() -> None:
    scenario = stable(Scenario())
    scenario.at(scenario.now_ms + 5_000)
    since = scenario.now_ms
    scenario.answer(2, status=[status(StatusCode.MISSING_SOURCE_TOPICS)])
    scenario.at(since + 5_000)
    scenario.answer(2, status=[status(StatusCode.MISSING_INTERNAL_TOPICS)])
    scenario.at(since + 10_000)
    assert scenario.told(SourceTopicsMissing) == []


@pytest.mark.requirement("SG-089")
def test_endpoints_are_told_and_their_epoch_is_sent_back() -> None:
    scenario = stable(Scenario())
    scenario.at(scenario.now_ms + 5_000)
    entry = Response.EndpointToPartitions(
        user_endpoint=Response.Endpoint(host="h", port=1),
        active_partitions=[Response.TopicPartition(topic="t", partitions=[0, 2])],
        standby_partitions=[Response.TopicPartition(topic="t", partitions=[1])],
    )
    scenario.answer(2, endpoint_information_epoch=4, partitions_by_user_endpoint=[entry])
    partitions = (frozenset({("t", 0), ("t", 2)}), frozenset({("t", 1)}))
    assert scenario.told(EndpointsChanged) == [EndpointsChanged({Endpoint("h", 1): partitions})]
    scenario.at(scenario.now_ms + 5_000)
    assert scenario.sent().endpoint_information_epoch == 4


# ------------------------------------------------------------------------------------------------------- task offsets


def offset_scenario(version: int = 1) -> Scenario:
    scenario = stable(Scenario(version=version), A0)
    scenario.on(SetTaskOffsets({A0: 5}, {A0: 9}))
    scenario.at(scenario.now_ms + 5_000)
    return scenario


@pytest.mark.requirement("SG-201", "SG-202")
def test_task_offsets_are_reported_at_their_interval() -> None:
    scenario = offset_scenario()
    assert (offsets(scenario.sent().task_offsets), offsets(scenario.sent().task_end_offsets)) == ({A0: 5}, {A0: 9})
    reported_at = scenario.now_ms
    scenario.answer(2, task_offset_interval_ms=12_000)
    reports = []
    for _ in range(5):
        scenario.at(scenario.now_ms + 5_000)
        if scenario.sent().task_offsets is not None:
            reports.append(scenario.now_ms - reported_at)
        scenario.on(SetTaskOffsets({A0: 6}, {A0: 9}))
        scenario.answer(2, task_offset_interval_ms=12_000)
    assert reports == [15_000]


@pytest.mark.requirement("SG-199")
def test_task_offsets_are_reported_when_a_task_comes_or_goes() -> None:
    scenario = offset_scenario()
    scenario.answer(2)
    scenario.on(SetTaskOffsets({A0: 6, A1: 1}, {A0: 9}))
    scenario.at(scenario.now_ms + 5_000)
    assert offsets(scenario.sent().task_offsets) == {A0: 6, A1: 1}
    scenario.answer(2)
    scenario.on(SetTaskOffsets({A1: 2}, {}))
    scenario.at(scenario.now_ms + 5_000)
    assert offsets(scenario.sent().task_offsets) == {A1: 2}


@pytest.mark.requirement("SG-200")
def test_task_offsets_are_reported_when_a_warmup_task_has_caught_up() -> None:
    scenario = Scenario().joined(warmup=[A0])
    scenario.on(ReportOwned(Tasks(warmup=frozenset({A0}))))
    scenario.on(SetTaskOffsets({A0: 0}, {A0: 1_000}))
    scenario.answer(2, acceptable_recovery_lag=100)
    assert scenario.session.in_flight is None
    scenario.at(scenario.now_ms + 5_000)
    assert offsets(scenario.sent().task_offsets) == {A0: 0}
    scenario.answer(2, acceptable_recovery_lag=100)
    scenario.on(SetTaskOffsets({A0: 899}, {A0: 1_000}))
    scenario.at(scenario.now_ms + 5_000)
    assert scenario.sent().task_offsets is None
    scenario.answer(2, acceptable_recovery_lag=100)
    # That it has caught up is told at once, and once.
    scenario.on(SetTaskOffsets({A0: 900}, {A0: 1_000}))
    assert offsets(scenario.sent().task_offsets) == {A0: 900}
    scenario.answer(2, acceptable_recovery_lag=100)
    scenario.on(SetTaskOffsets({A0: 950}, {A0: 1_000}))
    scenario.at(scenario.now_ms + 5_000)
    assert scenario.sent().task_offsets is None


def test_a_warmup_task_that_has_caught_up_is_asked_for_more_often_for_a_while() -> None:
    scenario = Scenario().joined(warmup=[A0])
    scenario.on(ReportOwned(Tasks(warmup=frozenset({A0}))))
    scenario.answer(2, acceptable_recovery_lag=100)
    scenario.on(SetTaskOffsets({A0: 950}, {A0: 1_000}))
    beats = []
    while scenario.now_ms < 60_000:
        if scenario.session.in_flight is not None:
            beats.append(scenario.now_ms)
            scenario.answer(2, acceptable_recovery_lag=100)
        scenario.at(scenario.now_ms + 500)
    gaps = [later - earlier for earlier, later in pairwise(beats)]
    assert set(gaps[:50]) == {500}
    assert set(gaps[-2:]) == {5_000}
    scenario.answer(2, warmup=[], active=[A0])
    scenario.on(ReportOwned(Tasks(active=frozenset({A0}))))
    scenario.answer(2)
    assert scenario.step.wake_at_ms == scenario.now_ms + 5_000


def test_who_joins_without_state_says_that_it_has_none() -> None:
    scenario = Scenario()
    scenario.on(Join())
    request = scenario.sent()
    assert (request.member_epoch, request.task_offsets, request.task_end_offsets) == (0, [], [])


@pytest.mark.requirement("SG-216")
def test_task_offsets_are_in_the_full_heartbeat_after_a_coordinator_change() -> None:
    scenario = offset_scenario()
    scenario.answer(2)
    scenario.at(scenario.now_ms + 5_000)
    assert scenario.sent().task_offsets is None
    scenario.refuse(ErrorCode.NOT_COORDINATOR)
    scenario.at(scenario.now_ms + 100)
    assert (offsets(scenario.sent().task_offsets), offsets(scenario.sent().task_end_offsets)) == ({A0: 5}, {A0: 9})


def test_task_offsets_of_an_unanswered_heartbeat_are_reported_again() -> None:
    scenario = offset_scenario()
    assert scenario.sent().task_offsets is not None
    scenario.lose()
    scenario.at(scenario.now_ms + 100)
    assert offsets(scenario.sent().task_offsets) == {A0: 5}


def test_brokers_that_refuse_task_offsets_get_none() -> None:
    scenario = offset_scenario(version=0)
    assert scenario.sent().task_offsets is None
    assert scenario.sent().task_end_offsets is None


def test_the_membership_of_the_tests_is_valid() -> None:
    assert MEMBERSHIP.instance_id is None
