"""Groups that change between the classic and the consumer protocol while their members roll (KIP-848, "Consumer Group
Upgrade").

1. The first member of the consumer protocol that joins a classic group of consumers converts it to a consumer group.
   When the last such member has left and others remain, it becomes a classic group again.
   ``group.consumer.migration.policy`` says which of the two may happen; a refusal says why.
2. A conversion moves no partition: members keep their assignments in the new group, which continues with the generation
   as its epoch, or with the epoch as its generation. Then it rebalances in its own way, because a member has joined or
   left.
3. Both types of group use the same records of committed offsets. The records of the old group end in the batch that
   begins the new one.
4. An empty group of one protocol is replaced by one of the other, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from coordinator.group.classic.change import ClassicChange
from coordinator.group.classic.records import group_record
from coordinator.group.classic.records import tombstone as classic_tombstone
from coordinator.group.classic.state import ClassicGroup, ClassicMember, ClassicSoft, GroupState, Live, Protocol
from coordinator.group.consumer.config import NeededConfig
from coordinator.group.consumer.departure import remove_members
from coordinator.group.consumer.embedded import (
    CONSUMER_TYPE,
    Assignment,
    MalformedError,
    Subscription,
    assignment_bytes,
    assignment_of,
    subscription_of,
)
from coordinator.group.consumer.partitions import NONE, Partitions, in_topic_order
from coordinator.group.consumer.records import (
    current_record,
    group_tombstones,
    member_record,
    metadata_record,
    target_metadata_record,
    target_record,
)
from coordinator.group.consumer.state import (
    NEVER_ASSIGNED,
    ClassicProtocol,
    ClassicSide,
    ConsumerGroup,
    Current,
    Member,
    MemberState,
    applied,
)
from coordinator.group.consumer.timers import all_cancelled, session_timer
from coordinator.group.refusal import Refused
from coordinator.group.values import GroupDecision, GroupRecord, Reply
from coordinator.machine.values import CancelTimer, Decision, Timer
from streamsrt.assignment.topics import TopicsImage
from streamsrt.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A classic group converted to a consumer group: its records, timers, and responses to waiting requests."""

    group: ConsumerGroup
    records: tuple[GroupRecord, ...]
    timers: tuple[Timer | CancelTimer, ...]
    replies: tuple[Reply, ...]


def upgrade(group: ClassicGroup, now_ms: int, image: TopicsImage, config: NeededConfig) -> Upgraded:
    """Converts a classic group to a consumer group. Raises Refused with the reason if that is not possible."""
    if group.is_empty:
        fresh = ConsumerGroup(group.group_id, epoch=group.live.generation)
        return Upgraded(fresh, (classic_tombstone(group.group_id),), (), ())
    live = group.live
    _check_upgrade(group, config)
    change = ClassicChange(group, now_ms, config.classic)
    for name in live.members:
        change.fence(name, ErrorCode.REBALANCE_IN_PROGRESS, name)
    records = [classic_tombstone(group.group_id), *_upgrade_records(group.group_id, live, image)]
    upgraded = applied(ConsumerGroup(group.group_id), records[1:])
    timers = tuple(
        Timer(session_timer(group.group_id, name), now_ms + member.session_timeout_ms)
        for name, member in live.members.items()
    )
    return Upgraded(upgraded, tuple(records), timers, change.decision().replies)


def _check_upgrade(group: ClassicGroup, config: NeededConfig) -> None:
    live, reason = group.live, None
    if not config.consumer.migration.upgrades:
        reason = "online upgrade is disabled."
    elif live.protocol_type != CONSUMER_TYPE:
        reason = "the group does not use the consumer embedded protocol."
    elif len(live.members) > config.consumer.max_size:
        reason = "the group size exceeds the consumer group maximum size."
    if reason is not None:
        raise _refused(group.group_id, reason)


def _refused(group_id: str, reason: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {reason}"
    )


def _upgrade_records(group_id: str, live: Live, image: TopicsImage) -> list[GroupRecord]:
    members, targets, currents = [], [], []
    taken: Partitions = NONE
    for name, member in live.members.items():
        subscription, assignment = _read(group_id, member, live.protocol, image)
        assigned = assignment.partitions - taken
        taken |= assigned
        members.append(member_record(group_id, _as_consumer_member(member, subscription)))
        targets.append(target_record(group_id, name, in_topic_order(sorted(assigned))))
        current = Current(live.generation, live.generation, MemberState.STABLE, assigned)
        currents.append(current_record(group_id, name, current))
    return [
        *members,
        metadata_record(group_id, epoch=live.generation, metadata_hash=0),
        *targets,
        target_metadata_record(group_id, epoch=live.generation),
        *currents,
    ]


def _read(
    group_id: str, member: ClassicMember, protocol: str | None, image: TopicsImage
) -> tuple[Subscription, Assignment]:
    metadata = member.metadata(protocol) or (member.protocols[0].metadata if member.protocols else b"")
    try:
        subscription, assignment = subscription_of(metadata, image), assignment_of(member.assignment, image)
    except MalformedError:
        raise _refused(group_id, "the embedded consumer protocol is malformed.") from None
    if assignment.is_custom:
        raise _refused(
            group_id,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
            "before re-attempting the upgrade.",
        )
    return subscription, assignment


def _as_consumer_member(member: ClassicMember, subscription: Subscription) -> Member:
    protocols = tuple(ClassicProtocol(entry.name, entry.metadata) for entry in member.protocols)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=subscription.topic_names,
        classic=ClassicSide(member.session_timeout_ms, protocols),
    )


# ----------------------------------------------------------------------------------------------------------- downgrade


def depart(
    group: ConsumerGroup, member_ids: Iterable[str], now_ms: int, image: TopicsImage, config: NeededConfig
) -> GroupDecision:
    """Removes members; the group becomes a classic one if only classic members are left and the policy allows it."""
    gone = [name for name in member_ids if name in group.members]
    left = [name for name in group.members if name not in gone]
    others = [name for name in left if group.members[name].classic is None]
    if not gone or others or not left or all(group.members[name].classic is not None for name in gone):
        return remove_members(group, gone)
    if not config.consumer.migration.downgrades or len(left) > config.classic.max_size:
        return remove_members(group, gone)
    return downgraded(group, left, now_ms, image, config)[1]


def downgraded(
    group: ConsumerGroup, left: Iterable[str], now_ms: int, image: TopicsImage, config: NeededConfig
) -> tuple[ClassicGroup, GroupDecision]:
    """Converts the remaining members ``left``, all of the classic protocol, to a classic group that has begun to
    rebalance."""
    live = _classic_live(group, left, now_ms, image)
    stable = ClassicGroup(group.group_id, soft=ClassicSoft(live))
    change = ClassicChange(stable, now_ms, config.classic)
    for name in live.members:
        change.keep_session(name)
    change.prepare()
    rest = change.decision()
    decision: GroupDecision = Decision(
        # Without a leader: a coordinator that loads this record restarts the rebalance.
        records=(*group_tombstones(group), group_record(group.group_id, replace(live, leader=None)), *rest.records),
        soft=rest.soft,
        timers=(*(timer for name in group.members for timer in all_cancelled(group.group_id, name)), *rest.timers),
        replies=rest.replies,
    )
    return ClassicGroup(group.group_id, is_recorded=True, soft=ClassicSoft(change.live())), decision


def _classic_live(group: ConsumerGroup, left: Iterable[str], now_ms: int, image: TopicsImage) -> Live:
    members = {name: _as_classic_member(group, name, image) for name in left}
    first = next(iter(members.values()))
    shared = set.intersection(*({entry.name for entry in member.protocols} for member in members.values()))
    return Live(
        state=GroupState.STABLE,
        since_ms=now_ms,
        generation=group.epoch,
        protocol_type=CONSUMER_TYPE,
        protocol=next(entry.name for entry in first.protocols if entry.name in shared),
        leader=first.member_id,
        members=members,
        static_members={member.instance_id: name for name, member in members.items() if member.instance_id is not None},
    )


def _as_classic_member(group: ConsumerGroup, name: str, image: TopicsImage) -> ClassicMember:
    member, current = group.members[name], group.current.get(name, NEVER_ASSIGNED)
    assert member.classic is not None
    protocols = tuple(Protocol(entry.name, entry.metadata) for entry in member.classic.protocols)
    return ClassicMember(
        member_id=name,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=protocols,
        # It owns the partitions that it has to give back until it has joined again.
        assignment=assignment_bytes(current.assigned | current.pending, protocols[0].metadata, image),
    )
