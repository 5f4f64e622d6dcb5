"""What may go wrong in a classic group: a message says what to do, and nobody loses a task. On brokers of all versions."""

from __future__ import annotations

import logging
import os
import time

import pytest

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import NewTopic
from streamsrt.membership.classic.layout import decode_assignment
from streamsrt.membership.classic.values import ClassicAssignment
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import encode_record_value
from tests.streamsrt.client.conftest import Connect
from tests.streamsrt.client.test_classic_group import PATIENCE_S, SESSION_TIMEOUT_MS, Running, until


@pytest.fixture
def topic(any_version: str, connect: Connect, name: str) -> str:
    wanted = f"bad-{name}"
    assert connect(any_version).admin.create_topics([NewTopic(name=wanted, partitions=4)]) == {wanted: None}
    return wanted


class Stranger:
    """A member of the same group that says what it is told to say. The others are looked at while it waits."""

    def __init__(self, network: NetworkThread, group_id: str, protocol: str, metadata: bytes, *others: Running) -> None:
        network.admin.committed(group_id)  # it has a coordinator
        self.network, self.group_id, self.others = network, group_id, others
        self.request = types.JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[types.JoinGroupRequest.JoinGroupRequestProtocol(name=protocol, metadata=metadata)],
        )

    def _ask(self, request: types.JoinGroupRequest | types.SyncGroupRequest, deadline: float) -> object:
        answer = self.network.request(request, coordinator_of=self.group_id)
        while not until(answer.done(), deadline):
            for each in self.others:
                each.look()
        return answer.result()

    def joins(self, deadline: float) -> types.JoinGroupResponse:
        answer = self._ask(self.request, deadline)
        assert isinstance(answer, types.JoinGroupResponse)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.request.member_id = answer.member_id
            answer = self._ask(self.request, deadline)
            assert isinstance(answer, types.JoinGroupResponse)
        return answer

    def syncs(self, generation: int, deadline: float) -> types.SyncGroupResponse:
        sync = types.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=self.request.member_id,
            protocol_type="consumer",
            protocol_name=self.request.protocols[0].name,
        )
        answer = self._ask(sync, deadline)
        assert isinstance(answer, types.SyncGroupResponse)
        return answer

    def leaves(self) -> None:
        identity = types.LeaveGroupRequest.MemberIdentity(member_id=self.request.member_id)
        request = types.LeaveGroupRequest(group_id=self.group_id, members=[identity])
        assert self.network.request(request, coordinator_of=self.group_id).result(PATIENCE_S).error_code == 0


def subscription(user_data: bytes) -> bytes:
    return encode_record_value(types.ConsumerProtocolSubscription(topics=["t"], user_data=user_data), 1)


def alone(connect: Connect, servers: str, topic: str, deadline: float) -> Running:
    one = Running(connect(servers), topic)
    while not until(len(one.look().active) == 4, deadline):
        pass
    return one


def test_a_member_that_cannot_be_read_is_told_so_and_stops_nobody(
    any_version: str, connect: Connect, topic: str
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    one = alone(connect, any_version, topic, deadline)
    stranger = Stranger(connect(any_version), one.group_id, "streamsrt-1", subscription(b"\x07what?"), one)
    joined = stranger.joins(deadline)
    told = decode_assignment(bytes(stranger.syncs(joined.generation_id, deadline).assignment))
    assert isinstance(told, ClassicAssignment)
    assert told.error_text is not None
    assert f"can't read the subscription of member {joined.member_id}" in told.error_text
    assert "Upgrade the older of the two" in told.error_text
    while not until(one.driver.member_epoch == joined.generation_id, deadline):
        one.look()
    assert len(one.look().active) == 4, "it goes on with its tasks"


def test_consumers_of_another_kind_are_in_the_group(any_version: str, connect: Connect, topic: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    stranger = Stranger(connect(any_version), f"group-of-{topic}", "range", subscription(b""))
    assert stranger.joins(deadline).error_code == ErrorCode.NONE
    one = Running(connect(any_version), topic)
    while not until(one.failure is not None, deadline):
        one.look()
    assert "it has members that do not belong to a classic group of this runtime" in str(one.failure)
    assert "such as Faust workers, stop them first" in str(one.failure)


def test_a_group_that_is_too_large_for_a_record(
    any_version: str, connect: Connect, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The message says which settings to raise. Meanwhile tasks stay where they are."""
    caplog.set_level(logging.WARNING)
    deadline = time.monotonic() + PATIENCE_S
    one = alone(connect, any_version, topic, deadline)
    stranger = Stranger(connect(any_version), one.group_id, "streamsrt-1", subscription(os.urandom(1_200_000)), one)
    joined = stranger.joins(deadline)
    refused = stranger.syncs(joined.generation_id, deadline)
    assert refused.error_code in {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REBALANCE_IN_PROGRESS}
    (said,) = {text for text in caplog.messages if "need a record of" in text}
    assert "Raise message.max.bytes of the brokers and max.message.bytes of __consumer_offsets" in said
    assert len(one.look().active) == 4
    assert one.failure is None
    stranger.leaves()
    while not until(one.machine.session.sync is None and one.driver.member_epoch > joined.generation_id, deadline):
        assert len(one.look().active) == 4, "no task is given up"
