"""Records of a classic group: one, in Kafka's layout (key version 2)."""

from __future__ import annotations

from coordinator.group.classic.state import Live
from coordinator.group.values import GroupRecord
from coordinator.machine.values import CoordinatorRecord
from streamsrt.wire.types import GroupMetadataKey, GroupMetadataValue


def group_record(group_id: str, live: Live) -> GroupRecord:
    """Returns the group's record, with the chosen protocol of each member and the assignments of this generation."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group_id),
        GroupMetadataValue(
            protocol_type=live.protocol_type,
            generation=live.generation,
            protocol=live.protocol,
            leader=live.leader,
            current_state_timestamp=live.since_ms,
            members=[
                GroupMetadataValue.MemberMetadata(
                    member_id=name,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(live.protocol),
                    assignment=member.assignment,
                )
                for name, member in live.members.items()
            ],
        ),
    )


def tombstone(group_id: str) -> GroupRecord:
    """Returns the record that deletes the group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)
