"""Members that leave a consumer group: for good, temporarily, or because of a session or rebalance timeout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from coordinator.group.consumer.partitions import NONE
from coordinator.group.consumer.records import (
    current_record,
    member_tombstones,
    metadata_record,
    regex_tombstone,
    target_metadata_record,
)
from coordinator.group.consumer.response import leave_response
from coordinator.group.consumer.state import ConsumerGroup, Member, MemberState, applied
from coordinator.group.consumer.timers import all_cancelled, rebalance_timer, session_timer
from coordinator.group.heartbeats import LEFT_FOR_A_WHILE
from coordinator.group.values import GroupDecision, GroupRecord, Reply, SoftUpdate
from coordinator.machine.values import CancelTimer, Decision, Timer


def remove_members(group: ConsumerGroup, member_ids: Iterable[str]) -> GroupDecision:
    """Removes members of the group and bumps its epoch; the target is computed with the next heartbeat."""
    gone = [name for name in dict.fromkeys(member_ids) if name in group.members]
    if not gone:
        return Decision()
    records: list[GroupRecord] = [record for name in gone for record in member_tombstones(group.group_id, name)]
    left = applied(group, records)
    records += [regex_tombstone(group.group_id, regex) for regex in sorted(group.regexes) if regex not in left.patterns]
    epoch = group.epoch + 1
    records.append(metadata_record(group.group_id, epoch=epoch, metadata_hash=group.metadata_hash))
    if left.is_empty:
        records.append(target_metadata_record(group.group_id, epoch=epoch))
    timers = [timer for name in gone for timer in all_cancelled(group.group_id, name)]
    known = group.soft
    forgetting = {
        "unconfirmed": known.unconfirmed.difference(gone),
        "has_to_join": known.has_to_join.difference(gone),
    }
    return Decision(records=tuple(records), soft=(SoftUpdate(group.group_id, forgetting),), timers=tuple(timers))


def leave_for_a_while(group: ConsumerGroup, member: Member, request_id: int, deadline_ms: int) -> GroupDecision:
    """Lets a static member leave temporarily: it keeps its partitions for a session timeout; pending ones are free now."""
    current = group.current[member.member_id]
    away = replace(current, epoch=LEFT_FOR_A_WHILE, state=MemberState.STABLE, pending=NONE)
    return Decision(
        records=(current_record(group.group_id, member.member_id, away),),
        timers=(
            Timer(session_timer(group.group_id, member.member_id), deadline_ms),
            CancelTimer(rebalance_timer(group.group_id, member.member_id)),
        ),
        replies=(Reply(request_id, leave_response(member.member_id, LEFT_FOR_A_WHILE)),),
    )
