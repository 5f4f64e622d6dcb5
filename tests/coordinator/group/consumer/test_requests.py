from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from coordinator.group.config import GroupConfig
from coordinator.group.consumer.assignor import AssignmentSpec, PartitionAssignorError
from coordinator.group.consumer.partitions import Target, TopicIdPartition
from coordinator.group.consumer.state import ConsumerGroup, applied
from coordinator.group.values import GroupRequest, RequestContext
from coordinator.machine.values import CoordinatorRecord
from coordinator.shard.shard import Shard
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import decode_record_key, encode_record_key, encode_record_value
from streamsrt.wire.types import Message
from tests.coordinator.group.memory_log import MemoryLog
from tests.coordinator.group.transcript import records_of

FOO = TopicImage(b"f" * 16, "foo", 2)
Heartbeat = types.ConsumerGroupHeartbeatRequest


def shard_with(assignors: Mapping[str, Any] | None = None, **settings: str) -> Shard:
    named = {"group.consumer.assignment.interval.ms": "0", **settings}
    config = GroupConfig.parse(named, assignors or {})
    return Shard(MemoryLog(), config, TopicsImage.of(FOO))


def ask(shard: Shard, message: Message, version: int = 1, *, unique: str = "", now_ms: int = 0) -> Any:
    context = RequestContext(1, "client", "/127.0.0.1", version, unique)
    (reply,) = shard.execute(GroupRequest(context, message), now_ms).replies
    return reply.message


def join(**changes: Any) -> Heartbeat:
    fields: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["foo"],
        "topic_partitions": [],
        **changes,
    }
    return Heartbeat(**fields)


@pytest.mark.requirement("CG-015", "CG-016", "CG-017", "CG-018", "CG-019", "CG-020", "CG-042")
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"rebalance_timeout_ms": 0}, "RebalanceTimeoutMs is 0, but must be greater than 0."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"topic_partitions": [Heartbeat.TopicPartitions(topic_id=FOO.id, partitions=[0])]},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": 1, "member_id": ""}, "MemberId can't be empty."),
    ],
)
def test_what_a_request_must_look_like(changes: dict[str, Any], text: str) -> None:
    answer = ask(shard_with(), join(**changes))
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, text)
    assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)


@pytest.mark.requirement("CG-008")
def test_version_0_lets_the_coordinator_make_the_member_id() -> None:
    shard = shard_with()
    answer = ask(shard, join(member_id=""), 0, unique="made")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "made", 1)
    assert ask(shard, join(member_id="made", member_epoch=1), 0).member_id == "made"
    assert ask(shard, join(member_id=""), 1, unique="other").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.requirement("CG-039", "CG-205")
def test_a_streams_group_is_no_consumer_group() -> None:
    shard = shard_with()
    kind = types.StreamsGroupHeartbeatRequest
    subtopology = kind.Subtopology(subtopology_id="0", source_topics=["foo"])
    ask(
        shard,
        kind(
            group_id="g",
            member_id="s",
            rebalance_timeout_ms=1,
            topology=kind.Topology(subtopologies=[subtopology]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
        ),
    )
    answer = ask(shard, join())
    assert (answer.error_code, answer.error_message) == (69, "Group g is not a consumer group.")
    found = ask(shard, types.ConsumerGroupDescribeRequest(group_ids=["g", "h", ""])).groups
    assert [(each.error_code, each.error_message) for each in found] == [
        (69, "Group g is not a consumer group."),
        (69, "Group h not found."),
        (24, None),
    ]


@pytest.mark.requirement("CG-152")
def test_a_broker_without_consumer_groups() -> None:
    answer = ask(shard_with(**{"group.coordinator.rebalance.protocols": "classic,streams"}), join())
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "does not name consumer" in answer.error_message


@pytest.mark.requirement("CG-001", "CG-002", "CG-098", "CG-202", "CG-203")
def test_what_is_known_of_a_group_and_its_members() -> None:
    shard = shard_with()
    ask(shard, join(rack_id="r", instance_id="i", server_assignor="range", subscribed_topic_regex="fo+"))
    (group,) = ask(shard, types.ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        1,
        1,
        "range",
    )
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", 1)
    assert (member.client_id, member.client_host, member.member_type) == ("client", "/127.0.0.1", 1)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["foo"], "fo+")
    for assignment in (member.assignment, member.target_assignment):
        (share,) = assignment.topic_partitions
        assert (share.topic_id, share.topic_name, share.partitions) == (FOO.id, "foo", [0, 1])


@pytest.mark.requirement("CG-209", "CG-206")
def test_a_listing_by_state_and_type() -> None:
    shard = shard_with()
    ask(shard, join())
    for states, kinds, found in (
        ([], [], ["g"]),
        (["Stable"], ["consumer"], ["g"]),
        (["STABLE"], ["Consumer"], ["g"]),
        (["Stable"], ["classic"], []),
        (["Empty"], ["consumer"], []),
    ):
        listed = ask(shard, types.ListGroupsRequest(states_filter=states, types_filter=kinds), 5).groups
        assert [each.group_id for each in listed] == found
    (entry,) = ask(shard, types.ListGroupsRequest(), 5).groups
    assert (entry.protocol_type, entry.group_type, entry.group_state) == ("consumer", "consumer", "Stable")


@pytest.mark.requirement("CG-188", "CG-043")
def test_an_old_client_cannot_commit_for_a_member() -> None:
    shard = shard_with()
    ask(shard, join())
    kind = types.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = kind.OffsetCommitRequestTopic(name="foo", partitions=[partition])
    for epoch, version, code in (
        (1, 8, ErrorCode.UNSUPPORTED_VERSION),
        (1, 9, ErrorCode.NONE),
        (0, 9, ErrorCode.STALE_MEMBER_EPOCH),
    ):
        request = kind(group_id="g", member_id="m", generation_id_or_member_epoch=epoch, topics=[topic])
        assert ask(shard, request, version).topics[0].partitions[0].error_code == code


@pytest.mark.requirement("CG-192")
@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [
        ("m", 1, ErrorCode.NONE),
        ("m", 0, ErrorCode.ILLEGAL_GENERATION),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.NONE),
    ],
)
def test_commits_in_transactions(member: str, epoch: int, code: int) -> None:
    shard = shard_with()
    ask(shard, join())
    kind = types.TxnOffsetCommitRequest
    partition = kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = kind(
        group_id="g",
        transactional_id="t",
        producer_id=1,
        producer_epoch=0,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[kind.TxnOffsetCommitRequestTopic(name="foo", partitions=[partition])],
    )
    assert ask(shard, request, 3).topics[0].partitions[0].error_code == code


@pytest.mark.requirement("GA-077")
def test_offsets_of_topics_that_are_read_are_not_deleted() -> None:
    shard = shard_with()
    ask(shard, join())
    kind = types.OffsetDeleteRequest
    topic = kind.OffsetDeleteRequestTopic
    request = kind(
        group_id="g",
        topics=[topic(name=name, partitions=[kind.OffsetDeleteRequestPartition()]) for name in ("foo", "bar")],
    )
    found = {each.name: each.partitions[0].error_code for each in ask(shard, request, 0).topics}
    assert found == {"foo": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "bar": 0}


@pytest.mark.requirement("CG-115")
def test_an_offset_of_a_topic_that_was_there_before_is_none() -> None:
    shard = shard_with()
    kind = types.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = kind.OffsetCommitRequestTopic(name="foo", topic_id=FOO.id, partitions=[partition])
    ask(shard, kind(group_id="g", generation_id_or_member_epoch=-1, topics=[topic]), 9)
    fetch = types.OffsetFetchRequest
    wanted = fetch.OffsetFetchRequestTopics(name="foo", partition_indexes=[0])
    request = fetch(groups=[fetch.OffsetFetchRequestGroup(group_id="g", topics=[wanted])])

    def offset() -> int:
        found: int = ask(shard, request, 9).groups[0].topics[0].partitions[0].committed_offset
        return found

    assert offset() == 7
    shard.set_topics(TopicsImage.of(replace(FOO, partitions=3)), 0)
    assert offset() == 7
    shard.set_topics(TopicsImage.of(replace(FOO, id=b"g" * 16)), 0)
    assert offset() == -1


@pytest.mark.requirement("CG-104", "CG-107", "CG-089")
def test_a_failover_gives_whole_sessions_and_goes_on() -> None:
    log = MemoryLog()
    config = GroupConfig.parse({})
    shard = Shard(log, config, TopicsImage.of(FOO))
    ask(shard, join(rebalance_timeout_ms=100_000), now_ms=1000)
    ask(shard, join(member_id="n"), now_ms=1500)
    again = Shard(log, config, TopicsImage.of(FOO))
    again.load(40_000)
    assert again.state == shard.state
    (group,) = ask(again, types.ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Assigning", 2, 1)
    ask(again, Heartbeat(group_id="g", member_id="m", member_epoch=1), now_ms=60_000)
    (group,) = ask(again, types.ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert group.assignment_epoch == 2
    assert again.next_deadline_ms() == 85_000
    again.tick(85_000)
    assert list(again.state.groups["g"].members) == ["m"]  # type: ignore[union-attr]


def test_a_clock_that_was_set_back_delays_no_assignment() -> None:
    shard = shard_with(**{"group.consumer.assignment.interval.ms": "1000"})
    ask(shard, join(), now_ms=4_000_000)
    ask(shard, join(member_id="n"), now_ms=4_000_999)
    ask(shard, Heartbeat(group_id="g", member_id="n", member_epoch=1), now_ms=400_000)
    (group,) = ask(shard, types.ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert (group.group_epoch, group.assignment_epoch) == (2, 2)


def classic_join(instance_id: str) -> types.JoinGroupRequest:
    subscription = types.ConsumerProtocolSubscription(topics=["foo"])
    protocol = types.JoinGroupRequest.JoinGroupRequestProtocol(
        name="range", metadata=encode_record_value(subscription, 1)
    )
    return types.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


@pytest.mark.requirement("GA-045")
def test_a_static_member_of_the_classic_protocol_is_removed_by_its_instance_alone() -> None:
    """The answer names it as the request does: by that, Java's Admin finds the result of each member."""
    shard = shard_with(**{"group.consumer.migration.policy": "bidirectional"})
    ask(shard, join())
    for name in ("i", "k"):
        assert ask(shard, classic_join(name), 9, unique="x").error_code == 0
    identity = types.LeaveGroupRequest.MemberIdentity
    request = types.LeaveGroupRequest(
        group_id="g", members=[identity(group_instance_id="i"), identity(group_instance_id="nobody")]
    )
    answer = ask(shard, request, 5)
    found = [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members]
    assert found == [("", "i", 0), ("", "nobody", ErrorCode.UNKNOWN_MEMBER_ID)]
    assert sorted(shard.state.groups["g"].members) == ["k-x", "m"]  # type: ignore[union-attr]


class Hoarding:
    """An assignor that gives everything to one member, as long as it wants to."""

    name = "hoarding"

    def __init__(self) -> None:
        self.fails = False

    def assign(self, spec: AssignmentSpec) -> Mapping[str, Target]:
        if self.fails:
            raise PartitionAssignorError("no")
        everything = [TopicIdPartition(each, n) for each, topic in spec.topics.items() for n in range(topic.partitions)]
        return {min(spec.members): tuple(everything)}


@pytest.mark.requirement("CG-072", "CG-075", "CG-076")
def test_an_assignor_of_the_operators() -> None:
    assignor = Hoarding()
    shard = shard_with({"x:Hoarding": assignor}, **{"group.consumer.assignors": "x:Hoarding,uniform"})
    ask(shard, join())
    assignor.fails = True
    assert ask(shard, join(member_id="a")).error_code == 0
    (group,) = ask(shard, types.ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert (group.assignor_name, group.group_epoch, group.assignment_epoch) == ("hoarding", 2, 1)
    assignor.fails = False
    answer = ask(shard, Heartbeat(group_id="g", member_id="m", member_epoch=1))
    assert (answer.error_code, answer.assignment.topic_partitions) == (0, [])


@pytest.mark.requirement("CG-210", "CG-212", "CG-213", "CG-214", "CG-215", "CG-217", "CG-220")
def test_records_have_kafkas_types() -> None:
    log = MemoryLog()
    shard = Shard(log, GroupConfig.parse({"group.consumer.assignment.interval.ms": "0"}), TopicsImage.of(FOO))
    ask(shard, join(subscribed_topic_regex="f.*"))
    ask(shard, join(member_id="n"))
    written = [[record.key for record in records_of(batch)] for batch in log.batches]
    types_of = [[int.from_bytes(encode_record_key(key)[:2], "big") for key in keys] for keys in written]
    assert types_of == [[5, 16, 3, 7, 6, 8], [5, 3, 7, 7, 6, 8]]


def test_partition_metadata_of_older_brokers_is_read_over() -> None:
    key = types.ConsumerGroupPartitionMetadataKey(group_id="g")
    assert decode_record_key(encode_record_key(key)).NAME == "ConsumerGroupPartitionMetadataKey"
    assert encode_record_value(types.ConsumerGroupPartitionMetadataValue())
    group = ConsumerGroup("g", epoch=3)
    assert (
        applied(
            group, [CoordinatorRecord(key, types.ConsumerGroupPartitionMetadataValue()), CoordinatorRecord(key, None)]
        )
        == group
    )
