"""Groups that change between the classic and the streams protocol (KIP-1071, "Online Migration").

1. The first member that joins a classic group by the streams protocol converts it to a streams group: the group epoch
   continues from the generation, the classic members keep their tasks, and the topology is that of the new member.
   Members of this runtime say which topology their group runs: a member with another one does not convert the group.
2. When the last member of the streams protocol has left and classic members remain, the group becomes a classic one
   again, with a generation after the group epoch, and its members rebalance among themselves. While the hand-over to a
   new version waits for records in flight, it stays a streams group, which knows what no member can report.
3. A group without members gets the protocol of the next member. Committed offsets are not changed by any of this.
4. ``group.consumer.migration.policy`` says which conversions of groups with members are allowed.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.group.classic.change import JOIN as CLASSIC_JOIN
from coordinator.group.classic.change import SYNC, ClassicChange, join_refusal
from coordinator.group.classic.records import tombstone
from coordinator.group.classic.state import ClassicGroup, ClassicMember, GroupState, Live, Protocol
from coordinator.group.refusal import Refused
from coordinator.group.streams.classic.members import CONSUMER, REJOIN, encoded_assignment, task_ids
from coordinator.group.streams.classic.own_conversion import Stays, check_version, own_stays
from coordinator.group.streams.classic.own_layout import OWN_PROTOCOL, Version
from coordinator.group.streams.classic.user_data import UntranslatableError, is_numbered, subscription_of, tasks_of
from coordinator.group.streams.config import NeededConfig
from coordinator.group.streams.departure import INITIAL_DELAY, REBALANCE
from coordinator.group.streams.records import (
    current_record,
    group_tombstones,
    member_record,
    member_tombstones,
    metadata_record,
    target_metadata_record,
    target_record,
)
from coordinator.group.streams.state import ClassicSide, Member, StreamsGroup, applied
from coordinator.group.values import GroupDecision, GroupRecord, Reply
from coordinator.machine.values import CancelTimer, Decision, Timer, TimerKey
from streamsrt.assignment.digest import topology_digest
from streamsrt.assignment.reconcile import Current, MemberState
from streamsrt.assignment.topics import TopicsImage
from streamsrt.assignment.topology import Topology
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import StreamsGroupHeartbeatRequest, SyncGroupResponse


def upgraded(
    group: ClassicGroup, joins: StreamsGroupHeartbeatRequest, topology: Topology, config: NeededConfig, now_ms: int
) -> tuple[StreamsGroup, GroupDecision]:
    """Converts the classic group to a streams group. Raises Refused with the reason.

    ``topology``: that of the member that ``joins``.
    """
    live = group.live
    records: list[GroupRecord] = [tombstone(group.group_id)]
    if live.state is GroupState.EMPTY:
        return StreamsGroup(group.group_id, epoch=live.generation), Decision(records=tuple(records))
    if not config.consumer.migration.upgrades:
        text = f"Group {group.group_id} is not a streams group, and group.consumer.migration.policy forbids upgrades."
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, text)
    if live.protocol_type != CONSUMER:
        raise _refused(group, f"its protocol type is {live.protocol_type}")
    _check_version(group, live, joins)
    epoch = live.generation
    made = [
        metadata_record(
            group.group_id, epoch=epoch, metadata_hash=0, validated_topology_epoch=-1, assignment_configs=()
        ),
        target_metadata_record(group.group_id, epoch=epoch),
    ]
    timers: list[Timer | CancelTimer] = [
        CancelTimer(TimerKey(CLASSIC_JOIN, group.group_id)),
        CancelTimer(TimerKey(SYNC, group.group_id)),
    ]
    for member in live.members.values():
        stays = _stays(group, live, member, topology)
        made += _member_records(group.group_id, stays)
        if stays.current.state is MemberState.UNREVOKED_TASKS:
            rebalance = TimerKey(REBALANCE, group.group_id, member.member_id)
            timers.append(Timer(rebalance, now_ms + stays.member.rebalance_timeout_ms))
    return applied(StreamsGroup(group.group_id), made), Decision(
        records=(*records, *made), timers=tuple(timers), replies=_released(live)
    )


def _check_version(group: ClassicGroup, live: Live, joins: StreamsGroupHeartbeatRequest) -> None:
    assert joins.topology is not None
    tags = {tag.key: tag.value for tag in joins.client_tags or ()}
    try:
        check_version(group.group_id, live, Version(joins.topology.epoch, topology_digest(joins.topology, tags)))
    except UntranslatableError as error:
        raise _refused(group, f"the subscription of one of its members can't be read: {error}") from None


def _refused(group: ClassicGroup, reason: str) -> Refused:
    text = f"The classic group {group.group_id} can't be upgraded to a streams group: {reason}."
    return Refused(ErrorCode.INVALID_REQUEST, text)


def _stays(group: ClassicGroup, live: Live, member: ClassicMember, topology: Topology) -> Stays:
    name = member.member_id
    protocol = next((entry for entry in member.protocols if entry.name == live.protocol), member.protocols[0])
    try:
        if protocol.name == OWN_PROTOCOL:
            stays = own_stays(member, protocol, live.generation)
        else:
            stays = _java_stays(live, member, protocol, topology)
    except UntranslatableError as error:
        raise _refused(group, f"member {name} is not an instance of Kafka Streams that can join one: {error}") from None
    known = {part.id for part in topology.subtopologies}
    unknown = [task for task in task_ids(stays.current.assigned) if task.subtopology_id not in known]
    if unknown and stays.member.topology_epoch == topology.epoch:
        raise _refused(group, f"member {name} has task {unknown[0]}, which the topology does not have")
    if protocol.name != OWN_PROTOCOL and not is_numbered(topology):
        why = "is one of Java's Kafka Streams, for which subtopologies have numbers (subtopology.id=number)"
        raise _refused(group, f"member {name} {why}")
    return stays


def _java_stays(live: Live, member: ClassicMember, protocol: Protocol, topology: Topology) -> Stays:
    subscription = subscription_of(protocol.metadata)
    tasks = tasks_of(member.assignment)
    stays = Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=topology.epoch,
        process_id=subscription.process_id,
        user_endpoint=subscription.endpoint,
        client_tags=subscription.client_tags,
        classic=ClassicSide(member.session_timeout_ms, protocol),
    )
    epoch = live.generation
    epochs = dict.fromkeys(tasks.active, epoch)
    return Stays(stays, tasks, Current(epoch, epoch, MemberState.STABLE, tasks, active_epochs=epochs))


def _member_records(group_id: str, stays: Stays) -> list[GroupRecord]:
    name = stays.member.member_id
    return [
        member_record(group_id, stays.member),
        target_record(group_id, name, stays.target),
        current_record(group_id, name, stays.current),
    ]


def _released(live: Live) -> tuple[Reply, ...]:
    """Returns responses that make members rejoin which wait in a rebalance that will not be completed."""
    code = ErrorCode.REBALANCE_IN_PROGRESS
    joins = [
        Reply(waiting.request_id, join_refusal(code, name, waiting.api_version))
        for name, waiting in live.joining.items()
    ]
    syncs = [Reply(waiting.request_id, SyncGroupResponse(error_code=code)) for waiting in live.syncing.values()]
    return (*joins, *syncs)


def with_downgrade(
    group: StreamsGroup, decision: GroupDecision, now_ms: int, image: TopicsImage, config: NeededConfig
) -> GroupDecision:
    """Adds the conversion to a classic group to the decision, if it leaves only classic members."""
    if not group.classic_members or not config.consumer.migration.downgrades:
        return decision
    left = applied(group, decision.records) if decision.records else group
    if not left.members or left.classic_members < len(left.members) or _waits(group, decision):
        return decision
    return _downgraded(group, left, decision, now_ms, image, config)


def _waits(group: StreamsGroup, decision: GroupDecision) -> bool:
    """Whether records in flight have to be read first."""
    changed = [each.changes["waiting"] for each in decision.soft if "waiting" in each.changes]
    return bool(changed[-1] if changed else group.soft.waiting)


def _downgraded(
    group: StreamsGroup,
    left: StreamsGroup,
    decision: GroupDecision,
    now_ms: int,
    image: TopicsImage,
    config: NeededConfig,
) -> GroupDecision:
    group_id = group.group_id
    members = _in_one_layout(
        {name: _classic_member(left, member, image, config) for name, member in left.members.items()}
    )
    live = Live(
        state=GroupState.STABLE,
        since_ms=now_ms,
        generation=left.epoch,
        protocol_type=CONSUMER,
        protocol=next(iter(members.values())).protocols[-1].name,
        leader=next(iter(members)),
        members=members,
        static_members={member.instance_id: name for name, member in members.items() if member.instance_id},
    )
    classic = ClassicGroup(group_id)
    change = ClassicChange(replace(classic, soft=replace(classic.soft, live=live)), now_ms, config.classic)
    change.write()
    written = change.decision().records
    change.prepare()
    begun = change.decision()
    ended = [record for name in group.members for record in member_tombstones(group_id, name)]
    stopped = [CancelTimer(TimerKey(kind, group_id, name)) for name in group.members for kind in (REBALANCE, REJOIN)]
    return replace(
        decision,
        records=(*ended, *group_tombstones(replace(group, topology=left.topology)), *written),
        soft=begun.soft,
        timers=(*decision.timers, *stopped, CancelTimer(TimerKey(INITIAL_DELAY, group_id)), *begun.timers),
    )


def _in_one_layout(members: dict[str, ClassicMember]) -> dict[str, ClassicMember]:
    """Selects one layout. If some members use their own layout and others Java's, all support Java's: their tasks are
    numbered as in it. The former send their metadata in it when they rejoin, which is the next step."""
    javas = {each.protocols[0].name for each in members.values()} - {OWN_PROTOCOL}
    if not javas:
        return members
    shared = Protocol(min(javas), b"")
    return {
        name: replace(each, protocols=(*each.protocols, shared)) if each.protocols[0].name == OWN_PROTOCOL else each
        for name, each in members.items()
    }


def _classic_member(left: StreamsGroup, member: Member, image: TopicsImage, config: NeededConfig) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=(member.classic.protocol,),
        assignment=encoded_assignment(left, member, image, config),
    )
