"""A member of ours in a group with Java's: what it does with a leader's words, and whom it can't be in a group with."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from streamsrt.assignment.status_code import StatusCode
from streamsrt.membership.classic import leading
from streamsrt.membership.classic.java_members import foreign_inputs, tasks_of_partitions, unlike
from streamsrt.membership.classic.layout import with_consumer_fields
from streamsrt.membership.classic.leader_assignments import LeaderSettings
from streamsrt.membership.classic.requests import join_request
from streamsrt.membership.classic.state import ClassicMemberState, RebalanceAnswered
from streamsrt.membership.classic.stream_layout import (
    STREAM_PROTOCOL,
    Hosts,
    JavaSubscription,
    UserDataVersions,
    decode_stream_assignment,
    decode_stream_subscription,
    encode_stream_assignment,
)
from streamsrt.membership.classic.values import ClassicAssignment, ClassicSubscription, Joined
from streamsrt.membership.classic.view import Memory
from streamsrt.membership.errors import StreamsInvalidTopologyError
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    Endpoint,
    EndpointsChanged,
    Join,
    MembershipFailed,
    StatusChanged,
    Tasks,
)
from streamsrt.wire import types
from streamsrt.wire.streams_user_data import ASSIGNMENT_ERROR, INCOMPLETE_SOURCE_TOPIC_METADATA, SHUTDOWN_REQUESTED
from tests.streamsrt.membership.classic.group_model import VERSIONS, Player, wire_topology
from tests.streamsrt.membership.classic.mixed_model import JavaPlayer, MixedModel
from tests.streamsrt.membership.classic.scenario import Scenario
from tests.streamsrt.membership.classic.test_layout import SUBSCRIPTION

TOPOLOGY = wire_topology(3, "0: source=t changelog=c", "1: source=u pattern=x.*")
ACTIVE = Tasks(frozenset({("0", 1)}), standby=frozenset({("0", 2)}))
PLACES = {("0", 1): [("t", 1)], ("0", 2): [("t", 2)]}


def java_says(tasks: Tasks = ACTIVE, places: Any = None, hosts: Hosts | None = None, error: int = 0) -> bytes:
    told = ClassicAssignment(generation=0, tasks=tasks)
    return encode_stream_assignment(
        told, PLACES if places is None else places, UserDataVersions(), hosts or Hosts(), is_java=True, error=error
    )


class BesideJava(Scenario):
    """The group speaks Java's layout, and a member of Java's leads it."""

    def joins(self, generation: int = 1) -> None:
        if self.session.group is ClassicMemberState.OUT:
            self.on(Join())
        self.joined(generation, protocol_name=STREAM_PROTOCOL)

    def hears(self, assignment: bytes) -> None:
        self.on(RebalanceAnswered(types.SyncGroupResponse(assignment=assignment)))

    def said_in_stream(self) -> ClassicSubscription:
        (layout,) = (each for each in self.last(types.JoinGroupRequest).protocols if each.name == STREAM_PROTOCOL)
        said = decode_stream_subscription(bytes(layout.metadata))
        assert isinstance(said, ClassicSubscription)
        return said


def test_both_layouts_are_offered_our_own_first() -> None:
    run = BesideJava(topology=TOPOLOGY)
    run.on(Join())
    assert [each.name for each in run.last(types.JoinGroupRequest).protocols] == ["streamsrt-1", "stream"]
    run = BesideJava()
    run.on(Join())
    assert [each.name for each in run.last(types.JoinGroupRequest).protocols] == ["streamsrt-1"]


def test_what_a_leader_of_javas_gives_is_run_and_said_to_be_owned() -> None:
    run = BesideJava(topology=TOPOLOGY)
    run.joins()
    assert run.last(types.SyncGroupRequest).protocol_name == STREAM_PROTOCOL
    run.hears(java_says())
    assert run.last(AssignmentChanged).tasks == ACTIVE
    run.opens(ACTIVE)
    run.heartbeat(27)
    said = run.said_in_stream()
    assert said.held == ACTIVE
    assert said.owned_partitions == {("t", 1)}
    assert said.echo is not None
    assert said.echo.target == ACTIVE


def test_what_is_to_be_run_later_is_asked_for_at_once() -> None:
    run = BesideJava(topology=TOPOLOGY)
    run.joins()
    run.hears(java_says()[:-8] + bytes(8))
    assert run.session.group is ClassicMemberState.JOINING
    run.last(types.JoinGroupRequest)


@pytest.mark.parametrize("seen", [True, False])
def test_a_static_member_does_not_take_what_may_be_for_the_process_before(seen: bool) -> None:
    run = BesideJava(topology=TOPOLOGY, instance_id="i" if seen else None)
    run.joins()
    run.hears(java_says())
    if not seen:
        run.last(AssignmentChanged)
        return
    run.none(AssignmentChanged)
    run.after(1_000)
    run.last(types.JoinGroupRequest)
    run.joins(2)
    run.hears(java_says())
    assert run.last(AssignmentChanged).tasks == ACTIVE


def test_a_leader_of_javas_says_who_answers_queries() -> None:
    here, there = Endpoint("here", 1), Endpoint("there", 2)
    hosts = Hosts(
        {("there", 2): frozenset({("t", 0)})}, {("there", 2): frozenset(), ("here", 1): frozenset({("t", 1)})}
    )
    run = BesideJava(topology=TOPOLOGY, endpoint=here)
    run.joins()
    run.hears(java_says(hosts=hosts))
    found = run.last(EndpointsChanged).partitions
    assert found == {there: (frozenset({("t", 0)}), frozenset()), here: (frozenset(), frozenset({("t", 1)}))}
    run.heartbeat(27)
    run.joins(2)
    run.hears(java_says(hosts=hosts))
    run.none(EndpointsChanged)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (INCOMPLETE_SOURCE_TOPIC_METADATA, StatusCode.MISSING_SOURCE_TOPICS),
        (ASSIGNMENT_ERROR, StatusCode.ASSIGNMENT_DELAYED),
        (SHUTDOWN_REQUESTED, StatusCode.SHUTDOWN_APPLICATION),
    ],
)
def test_error_codes_of_java_are_statuses(error: int, code: StatusCode) -> None:
    run = BesideJava(topology=TOPOLOGY)
    run.joins()
    run.hears(java_says(Tasks(), error=error))
    (status,) = run.last(StatusChanged).statuses
    assert status.code == code
    assert run.session.shutdown_received == (error == SHUTDOWN_REQUESTED)


@pytest.mark.parametrize("places", [{("0", 1): [("u", 1)]}, {("0", 1): [("t", 2)]}])
def test_who_is_given_what_its_topology_does_not_have_leaves_and_says_why(places: Any) -> None:
    run = BesideJava(topology=TOPOLOGY)
    run.joins()
    run.hears(java_says(Tasks(frozenset({("0", 1)})), places))
    run.last(types.LeaveGroupRequest)
    error = run.last(MembershipFailed).error
    assert isinstance(error, StreamsInvalidTopologyError)
    assert "here it reads t" in str(error)
    assert "Topology.describe()" in str(error)


def test_topics_tell_whether_a_member_of_javas_runs_the_same() -> None:
    java = JavaPlayer("java", VERSIONS[2][0], 1, 11)
    said = decode_stream_subscription(java.metadata())
    assert isinstance(said, JavaSubscription)
    assert unlike(VERSIONS[2][0].wire, said) == ""
    text = unlike(wire_topology(0, "0: source=t,u,v,z", "1: repartition=s"), said)
    assert text == ("it does not read s, z, which this program reads; it reads r, which this program does not read")
    assert foreign_inputs(TOPOLOGY, [(("1", 4), ("x9", 4))]) == ""
    assert "here it reads nothing" in foreign_inputs(TOPOLOGY, [(("5", 4), ("x9", 4))])
    assert tasks_of_partitions(TOPOLOGY, [("t", 2), ("x7", 1), ("other", 3)]) == {("0", 2), ("1", 1)}


def test_a_member_with_another_topology_can_not_join_what_java_leads_and_java_goes_on() -> None:
    random, model = Random(0), MixedModel(VERSIONS[2][0])
    java = model.start_java()
    model.settle(random)
    model.start(VERSIONS[0][0], "01")
    model.settle(random)
    assert [(epoch, code) for _, epoch, code in model.refusals] == [(0, 130)]
    assert sorted(java.open.active) == model.all_tasks()


def test_another_version_can_not_join_what_we_lead_with_java_and_can_when_java_is_gone() -> None:
    random, model = Random(0), MixedModel(VERSIONS[1][0])
    ours = model.start(VERSIONS[1][0], "01")
    model.settle(random)
    java = model.start_java()
    model.settle(random)
    model.start(VERSIONS[2][0], "02")
    model.settle(random)
    assert [(epoch, code) for _, epoch, code in model.refusals] == [(2, 130)]
    model.stop_java(java)
    model.settle(random)
    model.start(VERSIONS[2][0], "02")
    model.calm(random)
    assert len(model.refusals) == 1
    assert {player.version.epoch for player in model.players.values()} == {1, 2}
    assert ours.name in model.players


def test_a_member_of_javas_with_another_topology_gets_an_error_and_we_go_on() -> None:
    random, model = Random(0), MixedModel(VERSIONS[2][0])
    ours = model.start(VERSIONS[2][0], "01")
    model.settle(random)
    java = model.start_java()
    java.version = VERSIONS[0][0]
    for _ in range(20):
        model.round(random)
    assert java.error == ASSIGNMENT_ERROR
    assert not java.open.active
    assert sorted(ours.open.active) == model.all_tasks()


def test_who_is_to_lead_what_java_runs_with_another_topology_leaves() -> None:
    ours, model = VERSIONS[0][0], MixedModel(VERSIONS[2][0])
    player = model.start(ours, "01")
    java = model.start_java()
    java.open = Tasks(frozenset({("0", 0)}))
    request = player.on_rebalance
    joined = [
        Joined("m1", None, bytes(request.protocols[1].metadata)),
        Joined("m2", None, java.metadata()),
    ]
    settings = LeaderSettings(group_id="app")
    step = leading.begin(
        4,
        joined,
        memory=Memory(texts={ours.digest: ours.wire}),
        settings=settings,
        leader_id="m1",
        now_ms=0,
        protocol_name=STREAM_PROTOCOL,
    )
    assert step.outcome is not None
    assert "Member m2 is one of Java's Kafka Streams and runs another topology" in step.outcome.unfit
    assert step.outcome.assignments == {}


def test_what_a_member_owns_that_can_not_be_understood_is_given_to_nobody() -> None:
    random, model = Random(0), MixedModel(VERSIONS[2][0])
    ours = model.start(VERSIONS[2][0], "01")
    model.settle(random)
    odd = replace(
        SUBSCRIPTION, topics=frozenset({"t", "u", "v", "r"}), owned_partitions=frozenset({("u", 0), ("u", 1)})
    )
    ours.session = replace(ours.session, owned=NOTHING, offered=NOTHING)
    request = [
        Joined("m1", None, said_in_stream(ours)),
        Joined("m2", None, with_consumer_fields(odd, b"\0\0\0\x06")),
    ]
    step = leading.begin(
        9,
        request,
        memory=ours.memory,
        settings=model.settings,
        leader_id="m1",
        now_ms=0,
        protocol_name=STREAM_PROTOCOL,
    )
    while step.outcome is None:
        assert step.effect is not None
        step = leading.step(step.leading, model.cluster.answer(step.effect), 0)
    assert step.outcome.decoded["m1"].tasks.active == set(model.all_tasks()) - {("0", 0), ("0", 1)}
    assert any("its user data can't be read" in warning for warning in step.outcome.warnings)
    told = decode_stream_assignment(step.outcome.assignments["m2"])
    assert isinstance(told, tuple)
    assert (told[1].info.error, told[1].tasks) == (ASSIGNMENT_ERROR, NOTHING)


def said_in_stream(player: Player) -> bytes:
    _, request = join_request(player.session, "")
    return next(bytes(each.metadata) for each in request.protocols if each.name == STREAM_PROTOCOL)
