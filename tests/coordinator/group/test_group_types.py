"""One namespace for groups of all types, and how many records a streams group is."""

from __future__ import annotations

import pytest

from coordinator.shard.shard import Shard
from streamsrt.wire import types
from tests.coordinator.group.memory_log import MemoryLog
from tests.coordinator.group.test_validation import ask, beat, join, refused, shard_with
from tests.coordinator.group.transcript import records_of

GROUP_ID_NOT_FOUND = 69


def consumer_joins() -> types.ConsumerGroupHeartbeatRequest:
    return types.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="c", rebalance_timeout_ms=1000, subscribed_topic_names=["in"], topic_partitions=[]
    )


@pytest.mark.requirement("SG-006", "SG-007", "SG-010")
def test_an_id_is_of_one_type_until_its_group_is_deleted() -> None:
    shard, log = shard_with()
    assert ask(shard, consumer_joins()).error_code == 0
    assert refused(shard, log, join()) == (GROUP_ID_NOT_FOUND, "Group g is not a streams group.")
    assert ask(shard, types.ConsumerGroupHeartbeatRequest(group_id="g", member_id="c", member_epoch=-1)).error_code == 0
    delete = types.DeleteGroupsRequest(groups_names=["g"])
    assert ask(shard, delete).results[0].error_code == 0
    assert ask(shard, join()).error_code == 0
    assert ask(shard, consumer_joins()).error_code == GROUP_ID_NOT_FOUND
    assert ask(shard, beat(member_epoch=-1)).error_code == 0
    assert ask(shard, delete).results[0].error_code == 0
    assert ask(shard, consumer_joins()).error_code == 0


def test_a_consumer_group_without_members_becomes_a_streams_group() -> None:
    shard, log = shard_with()
    epoch = ask(shard, consumer_joins()).member_epoch
    assert ask(shard, types.ConsumerGroupHeartbeatRequest(group_id="g", member_id="c", member_epoch=-1)).error_code == 0
    joined = ask(shard, join())
    assert joined.error_code == 0
    assert joined.member_epoch > epoch
    assert not [name for name in live_records(shard, log) if name.startswith("ConsumerGroup")]
    assert ask(shard, consumer_joins()).error_code == GROUP_ID_NOT_FOUND


def live_records(shard: Shard, log: MemoryLog) -> list[str]:
    """The types of the records that a compacted log keeps of the group."""
    kept = {}
    for batch in log.batches:
        for record in records_of(batch):
            kept[record.key.NAME, getattr(record.key, "member_id", "")] = record.value
    return sorted(name for (name, _), value in kept.items() if value is not None)


@pytest.mark.requirement("SG-297", "SG-298", "SG-300")
def test_a_group_of_n_members_is_n_plus_one_records_of_metadata() -> None:
    shard, log = shard_with()
    for count, member in enumerate(("m", "n", "o"), 1):
        ask(shard, join(member_id=member, process_id=member))
        names = live_records(shard, log)
        assert names.count("StreamsGroupMetadataKey") == 1
        for per_member in ("MemberMetadata", "CurrentMemberAssignment"):
            assert names.count(f"StreamsGroup{per_member}Key") == count
    ask(shard, beat(member_id="n", member_epoch=-1))
    assert live_records(shard, log).count("StreamsGroupMemberMetadataKey") == 2
    assert live_records(shard, log).count("StreamsGroupCurrentMemberAssignmentKey") == 2
