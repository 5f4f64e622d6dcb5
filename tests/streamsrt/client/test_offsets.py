"""Committed offsets over brokers of several versions: what is asked in each, and what refusals mean."""

from __future__ import annotations

from typing import Any

import pytest

from streamsrt.client.values import (
    CommitError,
    OffsetAndMetadata,
    RequestTimedOutError,
    StaleMemberEpochError,
    UnknownMemberError,
)
from streamsrt.errors import RequestFailedError, UnsupportedBrokerError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.schema import ApiKey
from tests.kafka_server import free_ports
from tests.streamsrt.client.conftest import Connect
from tests.streamsrt.client.scripted_broker import Hook, ScriptedBroker, failing

pytestmark = pytest.mark.waits

OFFSETS = {("t", 0): OffsetAndMetadata(7, "said"), ("t", 2): OffsetAndMetadata(0)}
PLACES = ("t", 0), ("t", 2)


def refused(code: ErrorCode) -> Hook:
    """Refuses every partition of an OffsetCommit."""
    response = types.OffsetCommitResponse

    def hook(request: Any) -> Any:
        return response(
            topics=[
                response.OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        response.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return hook


def fetched(broker: ScriptedBroker, version: int, code: ErrorCode = ErrorCode.NONE) -> None:
    """Has the broker answer OffsetFetch in this version, with an offset for the first partition and none for others."""
    broker.versions[ApiKey.OFFSET_FETCH] = (1, version)
    response = types.OffsetFetchResponse

    def of_one(request: Any) -> Any:
        topics = []
        for topic in (
            request.topics
            if request.topics is not None
            else [request.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        ):
            partitions = [
                response.OffsetFetchResponsePartition(
                    partition_index=n, committed_offset=-1 if n else 7, committed_leader_epoch=3, metadata="said"
                )
                for n in topic.partition_indexes
            ]
            topics.append(response.OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
        return response(error_code=code, topics=[] if code else topics)

    def of_groups(request: Any) -> Any:
        (group,) = request.groups
        topics = []
        for topic in (
            group.topics
            if group.topics is not None
            else [request.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        ):
            partitions = [
                response.OffsetFetchResponsePartitions(
                    partition_index=n, committed_offset=-1 if n else 7, committed_leader_epoch=3, metadata="said"
                )
                for n in topic.partition_indexes
            ]
            topics.append(response.OffsetFetchResponseTopics(name=topic.name, partitions=partitions))
        made = response.OffsetFetchResponseGroup(
            group_id=group.group_id, error_code=code, topics=[] if code else topics
        )
        return response(groups=[made])

    broker.hooks[ApiKey.OFFSET_FETCH] = of_one if version < 8 else of_groups


def last(broker: ScriptedBroker, kind: type[Any]) -> Any:
    return [request for request in broker.requests if isinstance(request, kind)][-1]


@pytest.mark.parametrize("version", [7, 8, 9])
def test_a_member_commits_with_its_generation(broker: ScriptedBroker, connect: Connect, version: int) -> None:
    broker.versions[ApiKey.OFFSET_COMMIT] = (2, version)
    network = connect(broker.address)
    network.admin.commit("g", OFFSETS, member_id="m", member_epoch=4)
    sent = last(broker, types.OffsetCommitRequest)
    assert (sent.group_id, sent.member_id, sent.generation_id_or_member_epoch) == ("g", "m", 4)
    assert broker.committed == {("t", 0): (7, "said"), ("t", 2): (0, "")}


def test_offsets_of_nobody_need_no_version_of_members(broker: ScriptedBroker, connect: Connect) -> None:
    broker.versions[ApiKey.OFFSET_COMMIT] = (2, 6)
    network = connect(broker.address)
    network.admin.commit("g", OFFSETS)
    assert set(broker.committed) == set(PLACES)
    with pytest.raises(UnsupportedBrokerError, match="serves versions 2 to 6, and version 7 to 9 is needed"):
        network.admin.commit("g", OFFSETS, member_id="m", member_epoch=4)


def test_an_offset_that_the_answer_leaves_out_is_not_committed(broker: ScriptedBroker, connect: Connect) -> None:
    def only_first(request: Any) -> Any:
        request.topics[0].partitions = request.topics[0].partitions[:1]
        return refused(ErrorCode.NONE)(request)

    broker.hooks[ApiKey.OFFSET_COMMIT] = only_first
    network = connect(broker.address)
    with pytest.raises(CommitError, match="was refused for t-2 ") as caught:
        network.admin.commit("g", OFFSETS)
    assert set(caught.value.partitions) == {("t", 2)}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, StaleMemberEpochError),
        (ErrorCode.ILLEGAL_GENERATION, StaleMemberEpochError),
        (ErrorCode.STALE_MEMBER_EPOCH, StaleMemberEpochError),
        (ErrorCode.UNKNOWN_MEMBER_ID, UnknownMemberError),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, CommitError),
    ],
)
def test_what_a_refused_commit_means(
    broker: ScriptedBroker, connect: Connect, code: ErrorCode, kind: type[CommitError]
) -> None:
    broker.hooks[ApiKey.OFFSET_COMMIT] = failing(1, refused(code))
    network = connect(broker.address)
    with pytest.raises(CommitError, match=code.name) as caught:
        network.admin.commit("g", OFFSETS, member_id="m", member_epoch=4)
    assert type(caught.value) is kind
    assert (caught.value.error_code, set(caught.value.partitions)) == (code, set(PLACES))
    network.admin.commit("g", OFFSETS, member_id="m", member_epoch=4)
    assert set(broker.committed) == set(PLACES)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_offsets_are_fetched_in_the_shape_of_the_version(
    broker: ScriptedBroker, connect: Connect, version: int
) -> None:
    fetched(broker, version)
    network = connect(broker.address)
    assert network.admin.committed("g", PLACES, member_id="m", member_epoch=4) == {
        ("t", 0): OffsetAndMetadata(7, "said", 3)
    }
    sent = last(broker, types.OffsetFetchRequest)
    assert sent.require_stable
    asked = sent if version < 8 else sent.groups[0]
    assert asked.group_id == "g"
    assert [(topic.name, topic.partition_indexes) for topic in asked.topics] == [("t", [0, 2])]
    if version == 9:
        assert (asked.member_id, asked.member_epoch) == ("m", 4)
    assert set(network.admin.committed("g")) == {("t", 0)}
    sent = last(broker, types.OffsetFetchRequest)
    assert (sent if version < 8 else sent.groups[0]).topics is None


@pytest.mark.parametrize("version", [7, 9])
def test_a_fetch_that_is_refused_as_a_whole_says_so(broker: ScriptedBroker, connect: Connect, version: int) -> None:
    fetched(broker, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    network = connect(broker.address)
    with pytest.raises(RequestFailedError, match=r"Offsets of group 'g' can't be read \(GROUP_AUTHORIZATION_FAILED\)"):
        network.admin.committed("g", PLACES)


def test_a_fetch_that_would_skip_pending_offsets_is_not_sent(broker: ScriptedBroker, connect: Connect) -> None:
    fetched(broker, 6)
    network = connect(broker.address)
    with pytest.raises(UnsupportedBrokerError, match="serves versions 1 to 6, and version 7 to 9 is needed"):
        network.admin.committed("g", PLACES)


def test_of_an_offset_that_stays_unstable_the_open_transaction_is_named(
    broker: ScriptedBroker, connect: Connect
) -> None:
    response = types.OffsetFetchResponse
    unstable = response.OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=-1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    topic = response.OffsetFetchResponseTopics(name="t", partitions=[unstable])
    answer = response(groups=[response.OffsetFetchResponseGroup(group_id="g", topics=[topic])])
    broker.versions[ApiKey.OFFSET_FETCH] = (1, 9)
    broker.hooks[ApiKey.OFFSET_FETCH] = lambda _request: answer
    network = connect(broker.address)
    with pytest.raises(
        RequestTimedOutError, match=r"open transaction of another producer.*transaction\.timeout\.ms.*abort"
    ):
        network.admin.committed("g", [("t", 0)], timeout_s=0.2)


def test_a_coordinator_that_moved_to_another_address_is_found_there(broker: ScriptedBroker, connect: Connect) -> None:
    """Of a client that fetches nothing, as an instance without tasks: nothing else asks where the brokers are."""
    (other,) = free_ports(1)
    network = connect(f"{broker.address},127.0.0.1:{other}")
    network.admin.commit("app", OFFSETS)
    broker.go_down()
    broker.port = other
    broker.start()
    network.admin.commit("app", {("t", 1): OffsetAndMetadata(5)}, timeout_s=5.0)
    assert broker.committed[("t", 1)] == (5, "")
