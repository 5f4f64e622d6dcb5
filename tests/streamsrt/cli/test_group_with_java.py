"""``streamsrt groups describe`` on a group with members of Java's Kafka Streams."""

from __future__ import annotations

from uuid import UUID

from streamsrt.cli.classic_group import classic_members
from streamsrt.membership.classic.layout import with_consumer_fields
from streamsrt.membership.classic.stream_layout import (
    Hosts,
    UserDataVersions,
    encode_stream_assignment,
    encode_stream_subscription,
)
from streamsrt.membership.classic.values import ClassicAssignment, ClassicSubscription, Topology
from streamsrt.membership.values import Tasks
from streamsrt.wire.streams_user_data import SubscriptionInfo, encode_subscription_info
from streamsrt.wire.types import DescribeGroupsResponse


def test_members_of_java_and_ours_in_one_group_are_described_by_their_tasks() -> None:
    tasks, process = Tasks(frozenset({("0", 1), ("1", 1)}), standby=frozenset({("1", 0)})), str(UUID(int=5))
    places = {("0", 1): [("in", 1)], ("1", 1): [("between", 1)], ("1", 0): [("between", 0)]}
    mine = ClassicSubscription(process_id=str(UUID(int=7)), topology_epoch=3, topology_digest=bytes(16))
    told = ClassicAssignment(generation=9, group_epoch=3, tasks=tasks, target=tasks)
    java = encode_subscription_info(SubscriptionInfo(version=11, newest_version=11, process_id=process))
    member = DescribeGroupsResponse.DescribedGroupMember

    def given(*, is_java: bool) -> bytes:
        return encode_stream_assignment(told, places, UserDataVersions(), Hosts(), is_java=is_java)

    described = DescribeGroupsResponse.DescribedGroup(
        group_id="app",
        protocol_type="consumer",
        protocol_data="stream",
        members=[
            member(
                member_id="ours",
                member_metadata=encode_stream_subscription(mine, 11, Topology(epoch=3)),
                member_assignment=given(is_java=False),
            ),
            member(
                member_id="javas",
                member_metadata=with_consumer_fields(mine, java),
                member_assignment=given(is_java=True),
            ),
        ],
    )
    _, (ours, javas) = classic_members(described, verbose=True)
    assert ours["process"] == mine.process_id
    assert ours["topology_epoch"] == 3
    assert str(ours["assignments"]).startswith("ACTIVE: 0:[1]; 1:[1]; STANDBY: 1:[0]; TARGET-ACTIVE: ")
    assert javas["process"] == process
    assert javas["topology_epoch"] == "-"
    assert javas["assignments"] == "ACTIVE: 0:[1]; 1:[1]; STANDBY: 1:[0];"
