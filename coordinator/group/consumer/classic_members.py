"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848,
"Supporting Online Consumer Group Upgrade").

1. No response waits for other members. Each member is reconciled separately: its generation is its member epoch, and
   SyncGroup gives it those partitions of its target that are free.
2. JoinGroup is the heartbeat of such a member: it says what it owns. An eager member owns nothing then. A cooperative
   one gets a smaller assignment first, gives the rest back, and joins again.
3. Heartbeat tells a member to join again when a newer epoch exists for it, when it has partitions to give back, or when
   a partition that it waits for is free. It has its rebalance timeout to do so, and the same time again for SyncGroup.
4. There is no leader: no member computes an assignment.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from coordinator.group.classic.change import join_refusal
from coordinator.group.consumer.change import GroupChange
from coordinator.group.consumer.config import MigrationPolicy, NeededConfig
from coordinator.group.consumer.embedded import (
    CONSUMER_TYPE,
    MalformedError,
    Subscription,
    assignment_bytes,
    subscription_of,
)
from coordinator.group.consumer.state import (
    NEVER_ASSIGNED,
    ClassicProtocol,
    ClassicSide,
    ConsumerGroup,
    Current,
    Member,
    MemberState,
)
from coordinator.group.consumer.timers import join_timer, rebalance_timer, session_timer, sync_timer
from coordinator.group.refusal import Refused
from coordinator.group.values import GroupDecision, Reply, RequestContext, SoftUpdate
from coordinator.group.waits import goes_on
from coordinator.machine.values import CancelTimer, Decision, Timer
from streamsrt.assignment.topics import TopicsImage
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

KNOWN_ID_VERSION = 4


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of a JoinGroup: the change, and the response, which is sent unless the group is converted."""

    change: GroupChange
    member_id: str
    reply: Reply


def join(change: GroupChange, request: JoinGroupRequest, migration: MigrationPolicy) -> Joined | GroupDecision:
    """Handles a JoinGroup to a group that has members. Raises Refused."""
    return _Join(change, request).decide(migration)


class _Join:
    def __init__(self, change: GroupChange, request: JoinGroupRequest) -> None:
        self.change = change
        self.request = request
        self.member_id = (
            request.member_id or f"{request.group_instance_id or change.context.client_id}-{change.context.unique}"
        )

    def decide(self, migration: MigrationPolicy) -> Joined | GroupDecision:
        change, request, context = self.change, self.request, self.change.context
        self._check(migration)
        if not request.member_id and request.group_instance_id is None and context.api_version >= KNOWN_ID_VERSION:
            required = join_refusal(ErrorCode.MEMBER_ID_REQUIRED, self.member_id, context.api_version)
            return Decision(replies=(Reply(context.request_id, required),))
        protocols = tuple(ClassicProtocol(entry.name, bytes(entry.metadata)) for entry in request.protocols)
        subscription = self._subscription(protocols[0])
        stored = self._admit()
        member = self._member(protocols, subscription)
        change.refresh(needs_bump=change.store_member(stored, member))
        change.assign()
        current = change.reconcile(member, subscription.owned)
        self._set_timers(member)
        response = JoinGroupResponse(
            generation_id=current.epoch,
            protocol_type=CONSUMER_TYPE,
            protocol_name=protocols[0].name,
            member_id=self.member_id,
        )
        return Joined(change, self.member_id, Reply(context.request_id, response))

    def _check(self, migration: MigrationPolicy) -> None:
        request, group = self.request, self.change.group
        if migration is MigrationPolicy.DISABLED:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the group "
                "migration is disabled.",
            )
        self.change.check_size(self.member_id, request.group_instance_id)
        names = {entry.name for entry in request.protocols}
        if (
            request.protocol_type != CONSUMER_TYPE
            or not names
            or not names & common_protocols(group, names, self._predecessor())
        ):
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {self.member_id}'s protocols are not supported."
            )

    def _predecessor(self) -> str:
        """Returns the member that this one replaces: itself, or the present member of its instance."""
        instance_id = self.request.group_instance_id
        owner = self.change.group.static_members.get(instance_id) if instance_id is not None else None
        return self.member_id if owner is None else owner

    def _subscription(self, protocol: ClassicProtocol) -> Subscription:
        try:
            return subscription_of(protocol.metadata, self.change.image)
        except MalformedError as error:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Member {self.member_id}'s subscription in {protocol.name} cannot be read: {error}.",
            ) from None

    def _admit(self) -> Member | None:
        change, request = self.change, self.request
        instance_id = request.group_instance_id
        owner = change.group.static_members.get(instance_id) if instance_id is not None else None
        if owner is None:
            if instance_id is not None and request.member_id:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            return change.group.members.get(self.member_id)
        if not request.member_id:
            return change.replace_static_member(owner, self.member_id)
        if owner != self.member_id:
            raise Refused(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {self.member_id} with instance id {instance_id} was fenced by member {owner}.",
            )
        return change.group.members[self.member_id]

    def _member(self, protocols: tuple[ClassicProtocol, ...], subscription: Subscription) -> Member:
        request, context = self.request, self.change.context
        timeout_ms = request.rebalance_timeout_ms
        return Member(
            member_id=self.member_id,
            instance_id=request.group_instance_id,
            rack_id=subscription.rack_id,
            client_id=context.client_id,
            client_host=context.client_host,
            rebalance_timeout_ms=request.session_timeout_ms if timeout_ms == -1 else timeout_ms,
            topic_names=subscription.topic_names,
            classic=ClassicSide(request.session_timeout_ms, protocols),
        )

    def _set_timers(self, member: Member) -> None:
        change, name = self.change, self.member_id
        group_id = change.group.group_id
        change.timers += [
            CancelTimer(join_timer(group_id, name)),
            CancelTimer(rebalance_timer(group_id, name)),
            Timer(session_timer(group_id, name), change.now_ms + self.request.session_timeout_ms),
            Timer(sync_timer(group_id, name), change.now_ms + member.rebalance_timeout_ms),
        ]
        told = change.before.soft.has_to_join
        if name in told:
            change.soft["has_to_join"] = told - {name}


def common_protocols(group: ConsumerGroup, offered: set[str], without: str) -> set[str]:
    """Returns the protocols that all classic members except ``without`` support; ``offered`` if there are no such
    members."""
    counts: Counter[str] = Counter()
    members = 0
    for name, member in group.members.items():
        if member.classic is not None and name != without:
            members += 1
            counts.update({entry.name for entry in member.classic.protocols})
    return {name for name, count in counts.items() if count == members} if members else offered


@dataclass(frozen=True, slots=True)
class _Asking:
    """An established classic member, and the data for a response to it."""

    group: ConsumerGroup
    member: Member
    side: ClassicSide
    current: Current
    now_ms: int
    config: NeededConfig

    @classmethod
    def of(
        cls,
        group: ConsumerGroup,
        request: SyncGroupRequest | HeartbeatRequest,
        now_ms: int,
        config: NeededConfig,
    ) -> _Asking:
        """Looks up the member. Raises Refused for an unknown member, one that does not use the classic protocol, and one
        of another generation."""
        member, side = classic_member(group, request.member_id, request.group_instance_id)
        current = group.current.get(member.member_id, NEVER_ASSIGNED)
        if request.generation_id != current.epoch:
            raise Refused(ErrorCode.ILLEGAL_GENERATION)
        return cls(group, member, side, current, now_ms, config)

    @property
    def reachable_epoch(self) -> int:
        """Returns the epoch that the member would get if it joined now."""
        group, settings = self.group, self.config.consumer.for_group(self.group.group_id)
        interval_ms = settings.assignment_interval_ms
        waits = goes_on(group.assignment_timestamp_ms + interval_ms, self.now_ms, at_most_ms=interval_ms)
        return group.assignment_epoch if group.assignment_timestamp_ms and waits else group.epoch

    @property
    def has_something_free(self) -> bool:
        name, owners = self.member.member_id, self.group.owners
        target = self.group.targets.get(name, ())
        return any(
            all(other == name for other in owners.get(partition, ()))
            for partition in target
            if partition not in self.current.assigned
        )

    def session(self) -> Timer:
        name = self.member.member_id
        return Timer(session_timer(self.group.group_id, name), self.now_ms + self.side.session_timeout_ms)

    def has_to_join(self) -> tuple[tuple[Timer, ...], tuple[SoftUpdate, ...]]:
        """Starts the time in which the member has to join again, unless it has started already."""
        group, name = self.group, self.member.member_id
        told = group.soft.has_to_join
        if name in told:
            return (), ()
        timer = Timer(join_timer(group.group_id, name), self.now_ms + self.member.rebalance_timeout_ms)
        return (timer,), (SoftUpdate(group.group_id, {"has_to_join": told | {name}}),)


def classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[Member, ClassicSide]:
    """Returns the member of a classic-protocol request. Raises Refused: unknown, fenced, or of the consumer protocol."""
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        if owner != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID)
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return member, member.classic


def sync(
    group: ConsumerGroup,
    request: SyncGroupRequest,
    context: RequestContext,
    now_ms: int,
    image: TopicsImage,
    config: NeededConfig,
) -> GroupDecision:
    """Handles SyncGroup: returns the member's present assignment. Raises Refused."""
    asking = _Asking.of(group, request, now_ms, config)
    protocol = asking.side.protocols[0]
    if request.protocol_type not in {None, CONSUMER_TYPE} or request.protocol_name not in {None, protocol.name}:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    current = asking.current
    if asking.reachable_epoch > current.epoch and current.state != MemberState.UNREVOKED_PARTITIONS:
        timers, soft = asking.has_to_join()
        refused = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return Decision(timers=timers, soft=soft, replies=(Reply(context.request_id, refused),))
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes(current.assigned, protocol.metadata, image),
    )
    synced = CancelTimer(sync_timer(group.group_id, request.member_id))
    return Decision(timers=(synced, asking.session()), replies=(Reply(context.request_id, response),))


def heartbeat(
    group: ConsumerGroup, request: HeartbeatRequest, context: RequestContext, now_ms: int, config: NeededConfig
) -> GroupDecision:
    """Handles Heartbeat: returns whether the member has to join again. Raises Refused."""
    asking = _Asking.of(group, request, now_ms, config)
    current = asking.current
    joins_again = (
        current.epoch < asking.reachable_epoch
        or current.state == MemberState.UNREVOKED_PARTITIONS
        or (current.state == MemberState.UNRELEASED_PARTITIONS and asking.has_something_free)
    )
    timers, soft = asking.has_to_join() if joins_again else ((), ())
    response = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if joins_again else ErrorCode.NONE)
    return Decision(timers=(asking.session(), *timers), soft=soft, replies=(Reply(context.request_id, response),))
