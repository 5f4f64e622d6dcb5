"""Requests about groups and offsets that are not heartbeats."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group.config import GroupConfig
from coordinator.shard.shard import Shard
from streamsrt.assignment.topics import NO_TOPICS
from streamsrt.wire import types
from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Heartbeat
from tests.coordinator.group.memory_log import MemoryLog
from tests.coordinator.group.test_validation import ask, beat, join, shard_with


@pytest.fixture
def live() -> tuple[Shard, MemoryLog]:
    """A shard with the group g, whose member m has both tasks."""
    shard, log = shard_with()
    ask(shard, join(user_endpoint=Heartbeat.Endpoint(host="h", port=1)))
    return shard, log


def commit(epoch: int = 2, member: str = "m", **changes: Any) -> types.OffsetCommitRequest:
    request = types.OffsetCommitRequest(group_id="g", member_id=member, generation_id_or_member_epoch=epoch, **changes)
    long = "x" * 4097
    for partition, metadata in ((0, "note"), (1, long)):
        entry = request.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=10, committed_leader_epoch=3, committed_metadata=metadata
        )
        topic = request.OffsetCommitRequestTopic(name="in", topic_id=b"1" * 16, partitions=[entry])
        request.topics.append(topic)
    return request


def fetch(shard: Shard, **changes: Any) -> Any:
    asked = types.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", **changes)
    return ask(shard, types.OffsetFetchRequest(groups=[asked]), 10).groups[0]


@pytest.mark.requirement("GA-054", "GA-057", "GA-060", "GA-061", "SG-005")
def test_an_offset_is_kept_as_it_was_committed(live: tuple[Shard, MemoryLog]) -> None:
    shard, _ = live
    response = ask(shard, commit(), 10)
    assert [p.error_code for t in response.topics for p in t.partitions] == [0, 12]
    (topic,) = fetch(shard, member_id="m", member_epoch=2, topics=None).topics
    (entry,) = topic.partitions
    assert (topic.name, topic.topic_id) == ("in", b"1" * 16)
    assert (entry.committed_offset, entry.committed_leader_epoch, entry.metadata) == (10, 3, "note")
    two = types.OffsetFetchRequest.OffsetFetchRequestGroup
    groups = [two(group_id="g", member_id="x", member_epoch=2), two(group_id="h", topics=None)]
    answers = ask(shard, types.OffsetFetchRequest(groups=groups), 9).groups
    assert [(answer.group_id, answer.error_code) for answer in answers] == [("g", 25), ("h", 0)]


@pytest.mark.requirement("GA-052")
@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [(commit(), 8, 35), (commit(1), 9, 113), (commit(3), 9, 113), (commit(2, "x"), 9, 25), (commit(-1, ""), 9, 25)],
)
def test_a_commit_that_is_refused(
    live: tuple[Shard, MemoryLog], request_: types.OffsetCommitRequest, version: int, code: int
) -> None:
    shard, log = live
    end = log.log_end_offset
    response = ask(shard, request_, version)
    assert {p.error_code for t in response.topics for p in t.partitions} == {code}
    assert log.log_end_offset == end


def test_a_commit_without_a_group() -> None:
    shard, log = shard_with()
    assert ask(shard, commit(4), 9).topics[0].partitions[0].error_code == 69
    assert ask(shard, commit(4), 8).topics[0].partitions[0].error_code == 22
    assert ask(shard, commit(-1, "", retention_time_ms=500), 4).topics[0].partitions[0].error_code == 0
    assert shard.state.offsets["g"]["in"][0].expire_ms == 1500
    listed = ask(shard, types.ListGroupsRequest()).groups
    assert [(g.group_id, g.group_type, g.group_state) for g in listed] == [("g", "classic", "Empty")]
    again = Shard(log, GroupConfig.parse({}))
    again.load(1000)
    assert again.state == shard.state
    ask(shard, join())
    assert shard.state.offsets["g"]["in"][0].offset == 10


@pytest.mark.requirement("GA-076", "GA-077")
def test_offsets_of_topics_that_are_read_are_not_deleted(live: tuple[Shard, MemoryLog]) -> None:
    shard, _ = live
    ask(shard, commit(), 10)
    request = types.OffsetDeleteRequest(group_id="g")
    for name in ("in", "old"):
        entry = request.OffsetDeleteRequestPartition(partition_index=0)
        request.topics.append(request.OffsetDeleteRequestTopic(name=name, partitions=[entry]))
    response = ask(shard, request, 0)
    assert [p.error_code for t in response.topics for p in t.partitions] == [86, 0]
    ask(shard, beat(member_epoch=-1))
    assert ask(shard, request, 0).topics[0].partitions[0].error_code == 0
    assert "g" not in shard.state.offsets
    assert ask(shard, types.OffsetDeleteRequest(group_id="x"), 0).error_code == 69


@pytest.mark.requirement("SG-004", "SG-376", "GA-070")
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ["g"]),
        ({"types_filter": ["streams"]}, ["g"]),
        ({"types_filter": ["Streams"], "states_filter": ["stable"]}, ["g"]),
        ({"types_filter": ["consumer"]}, []),
        ({"states_filter": ["NotReady"]}, []),
    ],
)
def test_listing(live: tuple[Shard, MemoryLog], filters: dict[str, Any], found: list[str]) -> None:
    shard, _ = live
    groups = ask(shard, types.ListGroupsRequest(**filters), 5).groups
    assert [group.group_id for group in groups] == found
    assert all((g.protocol_type, g.group_type, g.group_state) == ("streams", "streams", "Stable") for g in groups)


@pytest.mark.requirement("SG-217", "SG-331", "SG-347", "SG-348", "SG-349", "SG-351", "SG-352", "SG-158", "SG-163")
def test_describing(live: tuple[Shard, MemoryLog]) -> None:
    shard, _ = live
    offsets = [Heartbeat.TaskOffset(subtopology_id="0", partition=1, offset=7)]
    ask(shard, beat(task_offsets=offsets))
    request = types.StreamsGroupDescribeRequest(group_ids=["g", "x", ""], include_topology_description=True)
    group, absent, empty = ask(shard, request).groups
    assert (absent.error_code, absent.error_message, absent.topology) == (69, "Group x not found.", None)
    assert empty.error_code == 24
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert group.topology.subtopologies[0].source_topics == ["in"]
    assert (group.authorized_operations, group.assignor_name) == (-2147483648, "sticky")
    assert (group.topology_description, group.topology_description_status) == (None, 1)
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_id, member.client_host) == ("m", 2, "client", "/host")
    assert (member.user_endpoint.host, member.user_endpoint.port, member.is_classic) == ("h", 1, False)
    assert [(o.subtopology_id, o.partition, o.offset) for o in member.task_offsets] == [("0", 1, 7)]
    assert member.assignment == member.target_assignment
    assert member.assignment.active_tasks[0].partitions == [0, 1]


@pytest.mark.requirement("SG-350", "SG-160")
def test_describing_a_group_whose_source_topics_are_missing() -> None:
    shard, _ = shard_with()
    shard.set_topics(NO_TOPICS, 0)
    ask(shard, join())
    (group,) = ask(shard, types.StreamsGroupDescribeRequest(group_ids=["g"])).groups
    assert group.group_state == "NotReady"
    # As the member sent it: Java's admin client fails on subtopologies that are null.
    assert [(part.subtopology_id, part.source_topics) for part in group.topology.subtopologies] == [("0", ["in"])]


@pytest.mark.requirement("SG-006", "GA-067", "GA-073")
def test_requests_of_other_group_types(live: tuple[Shard, MemoryLog]) -> None:
    shard, log = live
    end = log.log_end_offset
    joins = types.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="c", rebalance_timeout_ms=1, subscribed_topic_names=["in"], topic_partitions=[]
    )
    heartbeat = ask(shard, joins)
    assert (heartbeat.error_code, heartbeat.error_message) == (69, "Group g is not a consumer group.")
    assert (
        ask(shard, types.JoinGroupRequest(group_id="g", session_timeout_ms=9000, protocol_type="consumer")).error_code
        == 23
    )
    (described,) = ask(shard, types.ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert (described.error_code, described.error_message) == (69, "Group g is not a consumer group.")
    (classic,) = ask(shard, types.DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (classic.error_code, classic.error_message) == (69, "Group g is not a classic group.")
    (older,) = ask(shard, types.DescribeGroupsRequest(groups=["g"]), 5).groups
    assert (older.error_code, older.group_state) == (0, "Dead")
    results = ask(shard, types.DeleteGroupsRequest(groups_names=["g", "x", ""])).results
    assert [result.error_code for result in results] == [68, 69, 24]
    assert log.log_end_offset == end


@pytest.mark.requirement("SG-087", "SG-088")
def test_where_partitions_are_is_told_when_it_changed(live: tuple[Shard, MemoryLog]) -> None:
    shard, _ = live
    first = ask(shard, beat(endpoint_information_epoch=5))
    (entry,) = first.partitions_by_user_endpoint
    assert (entry.user_endpoint.port, entry.active_partitions[0].topic) == (1, "in")
    assert entry.active_partitions[0].partitions == [0, 1]
    again = ask(shard, beat(endpoint_information_epoch=first.endpoint_information_epoch))
    assert again.partitions_by_user_endpoint is None
