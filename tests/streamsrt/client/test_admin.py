"""What an operator asks of brokers of several versions."""

from __future__ import annotations

from typing import Any

import pytest

from streamsrt.client.values import GroupListing
from streamsrt.errors import UnsupportedBrokerError
from streamsrt.wire import types
from streamsrt.wire.schema import ApiKey
from tests.streamsrt.client.conftest import Connect
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


def _response_to(request: Any) -> Any:
    return getattr(types, request.NAME.replace("Request", "Response"))
