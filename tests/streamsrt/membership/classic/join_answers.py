"""Answers to JoinGroup, as the coordinator gives them."""

from __future__ import annotations

from streamsrt.membership.classic.values import Joined
from streamsrt.wire import types


def join_answer(
    name: str,
    generation: int,
    leader: str,
    members: list[Joined],
    *,
    skips: bool = False,
    protocol_name: str = "streamsrt-1",
) -> types.JoinGroupResponse:
    member = types.JoinGroupResponse.JoinGroupResponseMember
    told = [member(member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata) for m in members]
    return types.JoinGroupResponse(
        generation_id=generation,
        member_id=name,
        leader=leader,
        skip_assignment=skips,
        protocol_name=protocol_name,
        members=told if leader == name else [],
    )
