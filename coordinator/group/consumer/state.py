"""State of consumer groups: what the records say (hard) and what has to be learnt again after a load (soft).

1. Hard state changes by ``ConsumerGroupBuilder.apply`` of records only, live and at a load alike.
2. ``owners`` says who holds a partition now: it was given and its return was not confirmed. ``names`` and ``patterns``
   count how many members subscribe to a topic by name and to a regular expression.
3. Soft state is not part of comparisons, and nothing depends on it: after a load it is empty.
4. A record type of older brokers (4, partition metadata) is read and forgotten: the group's metadata has a hash instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, NamedTuple

from coordinator.group.builder import GroupBuilder
from coordinator.group.consumer.partitions import NONE, Partitions, Target, TopicIdPartition, listed, partition_set
from coordinator.group.values import GroupRecord
from streamsrt.assignment.topics import NO_TOPICS, TopicsImage
from streamsrt.wire import types


class MemberState(IntEnum):
    """The member's position on its way to the target, with the numbers used in the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicProtocol(NamedTuple):
    """A protocol that a classic member supports, with its subscription."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """The data that a member of the classic protocol sent when it joined."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """The data that a member reported about itself (``ConsumerGroupMemberMetadata``). ``classic``: None for the consumer
    protocol."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    server_assignor: str | None = None
    classic: ClassicSide | None = None


@dataclass(frozen=True, slots=True)
class Current:
    """The member's current assignment (``ConsumerGroupCurrentMemberAssignment``).

    ``pending`` are partitions that it was asked to give back and has not yet confirmed to be revoked.
    """

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Partitions = NONE
    pending: Partitions = NONE


NEVER_ASSIGNED = Current(0, 0, MemberState.STABLE)


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression last matched."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Soft:
    """State that is not in the log.

    ``image`` is the one that regular expressions and metadata were last compared with. ``unconfirmed`` are members that
    were told an assignment and have not yet said that they have it, ``has_to_join`` classic members that were told to join
    again and have not yet done so.
    """

    image: TopicsImage = NO_TOPICS
    unconfirmed: frozenset[str] = frozenset()
    has_to_join: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """One consumer group. Mappings are by member id; every member of ``members`` has an entry in ``current``."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    assignment_timestamp_ms: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    targets: Mapping[str, Target] = field(default_factory=dict)
    current: Mapping[str, Current] = field(default_factory=dict)
    static_members: Mapping[str, str] = field(default_factory=dict)
    regexes: Mapping[str, ResolvedRegex] = field(default_factory=dict)
    owners: Mapping[TopicIdPartition, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, int] = field(default_factory=dict)
    patterns: Mapping[str, int] = field(default_factory=dict)
    classic_members: int = 0
    soft: Soft = field(default=Soft(), compare=False)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def exists(self) -> bool:
        """Whether any record of the group remains."""
        return bool(self.epoch or self.members or self.targets or self.current)

    def subscribed_topics(self, member: Member) -> frozenset[str]:
        """The names of all topics that the member subscribes to, whether they exist or not."""
        resolved = self.regexes.get(member.topic_regex) if member.topic_regex else None
        return frozenset(member.topic_names) | (resolved.topics if resolved is not None else frozenset())

    def all_subscribed_topics(self) -> set[str]:
        return set(self.names).union(*(self.regexes[each].topics for each in self.patterns if each in self.regexes))


class ConsumerGroupBuilder(GroupBuilder[ConsumerGroup]):
    """A consumer group that records are being applied to."""

    setters: ClassVar[Mapping[str, str]] = {
        "ConsumerGroupMetadataKey": "set_metadata",
        "ConsumerGroupPartitionMetadataKey": "set_partition_metadata",
        "ConsumerGroupMemberMetadataKey": "set_member",
        "ConsumerGroupTargetAssignmentMetadataKey": "set_assignment_metadata",
        "ConsumerGroupTargetAssignmentMemberKey": "set_target",
        "ConsumerGroupCurrentMemberAssignmentKey": "set_current",
        "ConsumerGroupRegularExpressionKey": "set_regex",
    }

    def set_metadata(self, value: types.ConsumerGroupMetadataValue | None) -> None:
        self._fields["epoch"] = value.epoch if value is not None else 0
        self._fields["metadata_hash"] = value.metadata_hash if value is not None else 0

    def set_partition_metadata(self, value: types.ConsumerGroupPartitionMetadataValue | None) -> None:
        """Ignores an older broker's record about topics: the hash in the group's metadata says the same."""

    def set_assignment_metadata(self, value: types.ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        self._fields["assignment_epoch"] = value.assignment_epoch if value is not None else 0
        self._fields["assignment_timestamp_ms"] = value.assignment_timestamp if value is not None else 0

    def set_member(self, member_id: str, value: types.ConsumerGroupMemberMetadataValue | None) -> None:
        new = None if value is None else member_of(member_id, value)
        old: Member | None = self._replace_member(member_id, new)
        self._count(old, -1)
        self._count(new, 1)

    def _count(self, member: Member | None, by: int) -> None:
        """Updates the subscription counts: ``by`` more members subscribe to the same as this one."""
        if member is None:
            return
        for name in member.topic_names:
            self._set("names", name, self._read("names").get(name, 0) + by or None)
        if member.topic_regex:
            self._set("patterns", member.topic_regex, self._read("patterns").get(member.topic_regex, 0) + by or None)

    def set_regex(self, regex: str, value: types.ConsumerGroupRegularExpressionValue | None) -> None:
        new = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        self._set("regexes", regex, new)

    def set_target(self, member_id: str, value: types.ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        self._set("targets", member_id, None if value is None else listed(value.topic_partitions))

    def set_current(self, member_id: str, value: types.ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        old: Current = self._read("current").get(member_id, NEVER_ASSIGNED)
        new = None if value is None else current_of(value)
        self._move("owners", member_id, _held(old), _held(new or NEVER_ASSIGNED))
        self._set("current", member_id, new)


def _held(current: Current) -> Partitions:
    return current.assigned | current.pending


def member_of(member_id: str, value: types.ConsumerGroupMemberMetadataValue) -> Member:
    classic = value.classic_member_metadata
    return Member(
        member_id=member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(value.subscribed_topic_names))),
        topic_regex=value.subscribed_topic_regex,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicSide(
            classic.session_timeout_ms,
            tuple(ClassicProtocol(entry.name, bytes(entry.metadata)) for entry in classic.supported_protocols),
        ),
    )


def current_of(value: types.ConsumerGroupCurrentMemberAssignmentValue) -> Current:
    known = value.state in MemberState.__members__.values()
    return Current(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if known else MemberState.UNKNOWN,
        assigned=partition_set(value.assigned_partitions),
        pending=partition_set(value.partitions_pending_revocation),
    )


CONSUMER_RECORD_NAMES = frozenset(ConsumerGroupBuilder.setters)


def applied(group: ConsumerGroup, records: Iterable[GroupRecord]) -> ConsumerGroup:
    """Returns the group after these records."""
    builder = ConsumerGroupBuilder(group)
    for record in records:
        builder.apply(record)
    return builder.build()
