"""What an operator asks of brokers of several versions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from streamsrt.client.cluster import Cluster
from streamsrt.client.connection import DisconnectedError
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, GroupListing, NewTopic, OffsetAndMetadata, RequestTimedOutError
from streamsrt.errors import UnsupportedBrokerError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.schema import ApiKey
from tests.streamsrt.client.conftest import Connect, StandStill
from tests.streamsrt.client.scripted_broker import ScriptedBroker

pytestmark = pytest.mark.waits

Listed = types.ListGroupsResponse.ListedGroup


@pytest.mark.parametrize(("version", "kind"), [(4, "classic"), (5, "consumer")])
def test_groups_of_brokers_that_know_no_types_are_classic(
    broker: ScriptedBroker, connect: Connect, version: int, kind: str
) -> None:
    group = Listed(group_id="g", protocol_type="consumer", group_state="Stable", group_type="consumer")
    broker.versions[ApiKey.LIST_GROUPS] = (0, version)
    broker.hooks[ApiKey.LIST_GROUPS] = lambda _: types.ListGroupsResponse(groups=[group])
    admin = connect(broker.address).admin
    found = [GroupListing("g", kind, "consumer", "Stable")]
    assert admin.list_groups() == admin.list_groups([kind.upper()]) == found
    assert admin.list_groups(["streams"]) == []


@pytest.mark.parametrize(
    ("request_", "needed"),
    [
        (types.JoinGroupRequest(group_id="g"), 5),
        (types.SyncGroupRequest(group_id="g"), 3),
        (types.HeartbeatRequest(group_id="g"), 3),
        (types.LeaveGroupRequest(group_id="g"), 3),
        (types.DescribeGroupsRequest(groups=["g"]), 4),
    ],
)
def test_members_of_a_classic_group_are_spoken_of_in_versions_that_know_static_ones(
    broker: ScriptedBroker, connect: Connect, request_: Any, needed: int
) -> None:
    key = ApiKey(request_.API_KEY)
    seen: list[Any] = []

    def answer(request: Any) -> Any:
        seen.append(request)
        return _response_to(request_)()

    broker.hooks[key] = answer
    broker.versions[key] = (0, needed)
    network = connect(broker.address)
    network.request(request_, coordinator_of="g").result(10.0)
    assert [type(each) for each in seen] == [type(request_)]
    broker.versions[key] = (0, needed - 1)
    older = connect(broker.address)
    with pytest.raises(UnsupportedBrokerError, match=f"serves versions 0 to {needed - 1}, and version {needed} to"):
        older.request(request_, coordinator_of="g").result(10.0)


def test_another_controller_is_found(broker: ScriptedBroker, connect: Connect) -> None:
    """Brokers before KRaft do not pass requests on to it."""
    other = ScriptedBroker().start()
    controller, asked = [1], []
    made, created = types.MetadataResponse, types.CreateTopicsResponse

    def metadata(request: Any) -> Any:
        partition = made.MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1])
        return made(
            brokers=[
                made.MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=each.port)
                for node_id, each in ((1, broker), (2, other))
            ],
            cluster_id="scripted",
            controller_id=controller[0],
            topics=[
                made.MetadataResponseTopic(name=each.name, topic_id=bytes(16), partitions=[partition])
                for each in request.topics
            ],
        )

    def creation_by(node_id: int) -> Any:
        def create(request: Any) -> Any:
            asked.append(node_id)
            code = ErrorCode.NONE if controller[0] == node_id else ErrorCode.NOT_CONTROLLER
            return created(
                topics=[created.CreatableTopicResult(name=each.name, error_code=code) for each in request.topics]
            )

        return create

    try:
        for node_id, each in ((1, broker), (2, other)):
            each.versions[ApiKey.CREATE_TOPICS] = (2, 7)
            each.hooks[ApiKey.METADATA] = metadata
            each.hooks[ApiKey.CREATE_TOPICS] = creation_by(node_id)
        admin = connect(broker.address).admin
        controller[0] = 2
        assert admin.create_topics([NewTopic(name="new", partitions=1)], timeout_s=5.0) == {"new": None}
        assert asked == [1, 2]
    finally:
        other.stop()


def _response_to(request: Any) -> Any:
    return getattr(types, request.NAME.replace("Request", "Response"))


@pytest.mark.parametrize(
    ("key", "ask"),
    [
        (ApiKey.METADATA, lambda network: network.admin.topics(["t"], timeout_s=0.2)),
        (ApiKey.OFFSET_FETCH, lambda network: network.admin.committed("g", timeout_s=0.2)),
        (
            ApiKey.OFFSET_COMMIT,
            lambda network: network.admin.commit("g", {("t", 0): OffsetAndMetadata(1)}, timeout_s=0.2),
        ),
    ],
)
def test_a_broker_that_stands_still_is_named_and_not_the_machine(
    broker: ScriptedBroker,
    connect: Connect,
    stand_still: StandStill,
    key: ApiKey,
    ask: Callable[[NetworkThread], object],
) -> None:
    network = connect(broker.address)
    network.admin.topics(["t"])
    stand_still(key)
    with pytest.raises(RequestTimedOutError, match=f"{broker.address} has not answered .*Check that the broker runs"):
        ask(network)


def test_a_connection_is_given_up_though_nobody_waits_for_what_is_late(
    broker: ScriptedBroker, stand_still: StandStill
) -> None:
    async def run() -> None:
        cluster = Cluster(ClientConfig(bootstrap_servers=broker.address))
        connection = await cluster.any_connection()
        stand_still(ApiKey.METADATA)
        connection.request(types.MetadataRequest(topics=[]), timeout_ms=50).cancel()
        with pytest.raises(DisconnectedError, match="did not answer MetadataRequest in time"):
            await connection.request(types.MetadataRequest(topics=[]))
        assert connection.closed
        await cluster.close()

    asyncio.run(run())


def test_an_outage_that_another_connection_saw_meanwhile_is_no_negative_time(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        cluster = Cluster(ClientConfig(bootstrap_servers=broker.address))
        connecting = asyncio.create_task(cluster.any_connection())
        has_begun = asyncio.Event()
        asyncio.get_running_loop().call_soon(has_begun.set)
        await has_begun.wait()
        ((address, endpoint),) = cluster._endpoints.items()
        cluster._out_of_reach(address, endpoint, RequestTimedOutError("late"))
        await connecting
        await cluster.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    (told,) = [each for each in caplog.messages if "responds again after" in each]
    assert "after -" not in told
