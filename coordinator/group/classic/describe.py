"""The response to DescribeGroups for a classic group."""

from __future__ import annotations

from coordinator.group.classic.state import ClassicGroup, ClassicMember, GroupState
from streamsrt.wire.types import DescribeGroupsResponse as Response


def described(group: ClassicGroup) -> Response.DescribedGroup:
    """Returns the group's entry. Subscriptions and assignments are included only for a stable group."""
    live = group.live
    is_stable = live.state is GroupState.STABLE
    return Response.DescribedGroup(
        group_id=group.group_id,
        group_state=live.state,
        protocol_type=live.protocol_type,
        protocol_data=(live.protocol or "") if is_stable else "",
        members=[_described(member, live.protocol if is_stable else None) for member in live.members.values()],
    )


def _described(member: ClassicMember, protocol: str | None) -> Response.DescribedGroupMember:
    return Response.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=b"" if protocol is None else member.assignment,
    )
