"""A change of a consumer group in the making: what a heartbeat or a JoinGroup of one member leads to.

1. In this order: the member is stored; subscriptions and topics are looked at; the group epoch is bumped if something
   changed; the target is computed if the epoch is ahead of it and the assignment interval is over; the member is
   reconciled.
2. Each step that changes hard state adds records and continues with the state that results from them.
3. Several reasons to bump bump once. A step without a change adds no record.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from coordinator.group.consumer.assignment import target_records
from coordinator.group.consumer.config import ConsumerConfig
from coordinator.group.consumer.partitions import Partitions, TopicIdPartition
from coordinator.group.consumer.reconcile import reconcile
from coordinator.group.consumer.records import (
    current_record,
    member_record,
    member_tombstones,
    metadata_record,
    target_record,
)
from coordinator.group.consumer.state import NEVER_ASSIGNED, ConsumerGroup, Current, Member, MemberState, applied
from coordinator.group.consumer.subscription import metadata_hash, regex_records
from coordinator.group.consumer.timers import rebalance_timer, session_timer
from coordinator.group.refusal import Refused
from coordinator.group.values import GroupDecision, GroupRecord, Reply, RequestContext, SoftUpdate
from coordinator.group.waits import goes_on
from coordinator.machine.values import CancelTimer, Decision, Timer
from streamsrt.assignment.topics import TopicsImage
from streamsrt.wire.error_codes import ErrorCode


class GroupChange:
    """A change in progress: ``group`` is the group after the records so far, ``before`` the original."""

    def __init__(
        self,
        group: ConsumerGroup,
        context: RequestContext,
        now_ms: int,
        image: TopicsImage,
        config: ConsumerConfig,
        records: Collection[GroupRecord] = (),
    ) -> None:
        self.before = self.group = group
        self.context = context
        self.now_ms = now_ms
        self.image = image
        self.config = config
        self.settings = config.for_group(group.group_id)
        self.records: list[GroupRecord] = list(records)
        self.soft: dict[str, object] = {}
        self.timers: list[Timer | CancelTimer] = []

    def write(self, *records: GroupRecord) -> None:
        self.records += records
        self.group = applied(self.group, records)

    def check_size(self, member_id: str, instance_id: str | None) -> None:
        """Raises Refused if the group is full; a member that replaces its instance's previous one is not counted."""
        most = self.config.max_size
        is_there = member_id in self.group.members or instance_id in self.group.static_members
        if not is_there and len(self.group.members) >= most:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def replace_static_member(self, owner: str, member_id: str) -> Member:
        """Continues the member of an instance under another member id, with its target and assignment."""
        group = self.group
        replaced = replace(group.members[owner], member_id=member_id)
        taken = replace(group.current.get(owner, NEVER_ASSIGNED), epoch=0, previous_epoch=0)
        self.write(
            *member_tombstones(group.group_id, owner),
            member_record(group.group_id, replaced),
            target_record(group.group_id, member_id, group.targets.get(owner, ())),
            current_record(group.group_id, member_id, taken),
        )
        self.timers += [
            CancelTimer(session_timer(group.group_id, owner)),
            CancelTimer(rebalance_timer(group.group_id, owner)),
        ]
        return replaced

    def store_member(self, stored: Member | None, new: Member) -> bool:
        """Adds a record for the member if it changed; returns whether the change requires a new assignment."""
        if new == stored:
            return False
        self.write(member_record(self.group.group_id, new))
        return stored is None or _assignor_view(new) != _assignor_view(stored)

    def refresh(self, *, needs_bump: bool) -> None:
        """Checks subscriptions and topics if they may have changed, and bumps the group epoch if they have."""
        topics_changed = self.before.soft.image is not self.image
        if not needs_bump and not topics_changed:
            return
        may_describe = self.context.may_describe
        self.write(
            *regex_records(self.group, self.image, self.now_ms, all_of_them=topics_changed, is_visible=may_describe)
        )
        self.soft["image"] = self.image
        group = self.group
        digest = metadata_hash(group.all_subscribed_topics(), self.image)
        if needs_bump or digest != group.metadata_hash:
            self.write(metadata_record(group.group_id, epoch=group.epoch + 1, metadata_hash=digest))

    def assign(self) -> None:
        """Computes the target of a new group epoch, unless the last one is too young."""
        group = self.group
        if group.epoch <= group.assignment_epoch:
            return
        last_ms, interval_ms = group.assignment_timestamp_ms, self.settings.assignment_interval_ms
        if last_ms and goes_on(last_ms + interval_ms, self.now_ms, at_most_ms=interval_ms):
            return
        self.write(*target_records(group, self.image, self.config.assignors, self.now_ms))

    def reconcile(self, member: Member, owned: Partitions | None, *, start: Current | None = None) -> Current:
        """Moves the member towards its target, from ``start`` if its stored assignment is not its own any more."""
        group, name = self.group, member.member_id
        stored = group.current.get(name)
        old = stored or NEVER_ASSIGNED
        new = reconcile(
            old if start is None else start,
            target=self._target(member),
            target_epoch=group.assignment_epoch,
            owned=owned,
            is_held=lambda partition: self._is_held(partition, name),
        )
        if stored is None or new != old:
            self.write(current_record(group.group_id, name, new))
        if member.classic is None:
            self._time_revocation(member, old, new)
        return new

    def _target(self, member: Member) -> Partitions:
        """Returns the member's target. Of an older target, only topics to which it still subscribes are included."""
        group = self.group
        target = frozenset(group.targets.get(member.member_id, ()))
        if group.assignment_epoch == group.epoch:
            return target
        topics = {self.image[name].id for name in group.subscribed_topics(member) if name in self.image}
        return frozenset(partition for partition in target if partition.topic_id in topics)

    def _is_held(self, partition: TopicIdPartition, member_id: str) -> bool:
        return any(other != member_id for other in self.group.owners.get(partition, ()))

    def _time_revocation(self, member: Member, old: Current, new: Current) -> None:
        timer = rebalance_timer(self.group.group_id, member.member_id)
        if new.state != MemberState.UNREVOKED_PARTITIONS:
            if old.state == MemberState.UNREVOKED_PARTITIONS:
                self.timers.append(CancelTimer(timer))
        elif old.state != MemberState.UNREVOKED_PARTITIONS or new.epoch != old.epoch:
            self.timers.append(Timer(timer, self.now_ms + member.rebalance_timeout_ms))

    def decision(self, *replies: Reply) -> GroupDecision:
        return Decision(
            records=tuple(self.records),
            soft=(SoftUpdate(self.group.group_id, self.soft),) if self.soft else (),
            timers=tuple(self.timers),
            replies=replies,
        )


def _assignor_view(member: Member) -> tuple[object, ...]:
    """Returns the part of a member's data whose change requires a new assignment."""
    return (member.topic_names, member.topic_regex, member.server_assignor, member.instance_id, member.rack_id)
