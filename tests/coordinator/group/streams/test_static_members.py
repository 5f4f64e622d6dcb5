"""Instances that come back under the member id of another process."""

from __future__ import annotations

from coordinator.group.streams.state import StreamsGroup
from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Request
from tests.coordinator.group.test_validation import ask, beat, join, shard_with


def test_a_restarted_instance_leaves_no_reports_behind() -> None:
    shard, _ = shard_with()
    report = [Request.TaskOffset(subtopology_id="0", partition=0, offset=5)]
    for number in range(5):
        name = f"m{number}"
        answer = ask(shard, join(member_id=name, instance_id="i", task_offsets=report, task_end_offsets=report))
        assert answer.error_code == 0
        assert ask(shard, beat(member_id=name, instance_id="i", member_epoch=-2)).error_code == 0
    group = shard.state.groups["g"]
    assert isinstance(group, StreamsGroup)
    assert group.members.keys() == group.soft.task_offsets.keys() == {"m4"}
