"""Memberships on the network thread, against a coordinator that fails on command."""

from __future__ import annotations

import time
from typing import Any

import pytest

from streamsrt.client.group import GroupDriver
from streamsrt.client.network import NetworkThread
from streamsrt.errors import UnsupportedBrokerError
from streamsrt.membership.member import Member
from streamsrt.membership.values import (
    AssignmentChanged,
    EpochChanged,
    Event,
    GroupMembership,
    HeartbeatRecovered,
    HeartbeatTrouble,
    Leave,
    LeftGroup,
    MembershipFailed,
    StatusChanged,
    TasksLost,
)
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.schema import ApiKey
from tests.streamsrt.client.conftest import Connect
from tests.streamsrt.client.scripted_broker import DROP, ScriptedBroker, failing

pytestmark = pytest.mark.waits

Heartbeat = types.StreamsGroupHeartbeatRequest


def member() -> Member:
    return Member(
        GroupMembership(group_id="g", member_id="m", process_id="p", topology=Heartbeat.Topology(), retry_backoff_ms=10)
    )


def wait_for(network: NetworkThread, group: GroupDriver, kind: type[Event], timeout_s: float = 20.0) -> list[Any]:
    """All events up to the first one of a kind."""
    events: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while not any(isinstance(event, kind) for event in events):
        assert time.monotonic() < deadline, events
        network.wait(0.1)
        events += group.events()
    return events


def heartbeats(broker: ScriptedBroker) -> list[Any]:
    return [request for request in broker.requests if isinstance(request, Heartbeat)]


def refusal(code: int, message: str | None = None) -> Any:
    return types.StreamsGroupHeartbeatResponse(error_code=code, error_message=message, status=None)


@pytest.mark.requirement("SG-027")
def test_a_member_joins_stays_and_leaves(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    group = network.join_group(member())
    assert group.member_epoch == -1 or group.member_epoch == 1
    wait_for(network, group, AssignmentChanged)
    assert group.member_epoch == 1
    while len(heartbeats(broker)) < 5:
        network.wait(0.05)
    group.send(Leave())
    wait_for(network, group, LeftGroup)
    assert group.join(5.0)
    assert group.member_epoch == -1
    sent = heartbeats(broker)
    assert [request.member_epoch for request in (sent[0], sent[-1])] == [0, -1]
    assert {request.member_id for request in sent} == {"m"}


@pytest.mark.requirement("SG-107")
def test_heartbeats_go_on_while_the_processing_thread_is_busy(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    group = network.join_group(member())
    wait_for(network, group, AssignmentChanged)
    before, deadline = len(heartbeats(broker)), time.monotonic() + 20.0
    while len(heartbeats(broker)) < before + 5:
        assert time.monotonic() < deadline
        sum(range(10_000))


@pytest.mark.requirement("SG-102")
def test_a_moved_coordinator_is_found_again(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    group = network.join_group(member())
    wait_for(network, group, AssignmentChanged)
    searches = broker.count(types.FindCoordinatorRequest)
    broker.hooks[ApiKey.STREAMS_GROUP_HEARTBEAT] = failing(2, lambda _: refusal(ErrorCode.NOT_COORDINATOR))
    events = wait_for(network, group, HeartbeatRecovered)
    assert broker.count(types.FindCoordinatorRequest) - searches == 2
    assert not [event for event in events if isinstance(event, TasksLost)]
    assert sum(isinstance(event, HeartbeatTrouble) for event in events) == 1


def test_a_group_survives_an_outage_of_its_coordinator(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    group = network.join_group(member())
    wait_for(network, group, AssignmentChanged)
    broker.go_down()
    wait_for(network, group, HeartbeatTrouble)
    broker.start()
    events = wait_for(network, group, HeartbeatRecovered)
    assert not [event for event in events if isinstance(event, TasksLost)]
    assert group.member_epoch == 1


def test_a_lost_answer_is_followed_by_a_full_heartbeat(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    group = network.join_group(member())
    wait_for(network, group, AssignmentChanged)
    broker.after[ApiKey.STREAMS_GROUP_HEARTBEAT] = failing(1, lambda _: DROP)
    wait_for(network, group, HeartbeatRecovered)
    full = [request for request in heartbeats(broker) if request.process_id is not None]
    assert [request.member_epoch for request in full] == [0, 1]


def test_a_refusal_ends_the_membership(broker: ScriptedBroker, connect: Connect) -> None:
    broker.hooks[ApiKey.STREAMS_GROUP_HEARTBEAT] = lambda _: refusal(ErrorCode.STREAMS_TOPOLOGY_FENCED, "too old")
    network = connect(broker.address)
    group = network.join_group(member())
    failed = wait_for(network, group, MembershipFailed)[-1]
    assert "too old" in str(failed.error)
    assert group.join(5.0)
    assert len(heartbeats(broker)) == 1


def test_a_broker_without_streams_groups_is_refused(broker: ScriptedBroker, connect: Connect) -> None:
    del broker.versions[ApiKey.STREAMS_GROUP_HEARTBEAT]
    network = connect(broker.address)
    group = network.join_group(member())
    failed = wait_for(network, group, MembershipFailed)[-1]
    assert isinstance(failed.error, UnsupportedBrokerError)
    assert "Kafka 4.2" in str(failed.error)


@pytest.mark.requirement("SG-097")
def test_a_status_is_logged_once_when_it_appears(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    def stale(request: Any) -> Any:
        response = broker._on_streams_group_heartbeat(request)
        response.status = [types.StreamsGroupHeartbeatResponse.Status(status_code=0, status_detail="behind the group")]
        return response

    broker.hooks[ApiKey.STREAMS_GROUP_HEARTBEAT] = stale
    network = connect(broker.address)
    group = network.join_group(member())
    wait_for(network, group, StatusChanged)
    while len(heartbeats(broker)) < 4:
        network.wait(0.05)
    lines = [record for record in caplog.records if "STALE_TOPOLOGY" in record.getMessage()]
    assert [(line.levelname, "behind the group" in line.getMessage()) for line in lines] == [("WARNING", True)]
    assert "Restart it with the version of the application that the group runs" in lines[0].getMessage()


def test_events_are_handed_over_one_at_a_time(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(broker.address)
    group = network.join_group(member())
    while len(heartbeats(broker)) < 3:
        network.wait(0.05)
    first = group.events()
    assert first == [EpochChanged(1)]
    assert len(group.events()) == 1
