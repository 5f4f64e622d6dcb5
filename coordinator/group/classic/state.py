"""State of classic groups: the last generation that was written down (hard), and the rebalance in progress (soft).

1. One record holds all of a group: generation, protocol, leader, members with their subscriptions and assignments. It is
   written when the assignment of a generation is known, when a group is new, and when its last member has gone.
2. Everything between two records is soft: who has joined the next generation, whose requests wait for an answer. After a
   load it is made from the record: the members of the last generation, stable, with their whole session before them.
3. A generation that was not written down never had an assignment. Its number is given again after a load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from coordinator.group.values import GroupRecord
from streamsrt.wire import types

CONSUMER = "consumer"
RECORD_NAME = "GroupMetadataKey"


class GroupState(StrEnum):
    """The phase of a classic group's rebalance, as Kafka's tools show it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Protocol(NamedTuple):
    """A protocol that a member supports (an assignor of a consumer), with its metadata."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member of a classic group. A stored member has only the chosen protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...] = ()
    assignment: bytes = b""

    def metadata(self, protocol: str | None) -> bytes:
        """Returns the member's metadata for this protocol; empty if it does not support it."""
        return next((entry.metadata for entry in self.protocols if entry.name == protocol), b"")


class PendingRequest(NamedTuple):
    """A request that waits for its response."""

    request_id: int
    api_version: int


@dataclass(frozen=True, slots=True)
class Live:
    """The present state of a classic group.

    ``joining`` and ``syncing`` are the waiting requests by member. ``pending`` are ids that were given out and have not
    joined yet, ``unsynced`` members that have not sent SyncGroup in this generation. ``extension_ms`` is by how much the
    first rebalance may still be put off while new members come; None after it.
    """

    state: GroupState = GroupState.EMPTY
    since_ms: int = -1
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    static_members: Mapping[str, str] = field(default_factory=dict)
    joining: Mapping[str, PendingRequest] = field(default_factory=dict)
    syncing: Mapping[str, PendingRequest] = field(default_factory=dict)
    fresh: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    unsynced: frozenset[str] = frozenset()
    extension_ms: int | None = None
    member_added: bool = False


@dataclass(frozen=True, slots=True)
class ClassicSoft:
    """State that is not in the log; ``live`` is None after a load, until something happens."""

    live: Live | None = None


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """One classic group: its record, and as soft state what has happened since."""

    group_id: str
    is_recorded: bool = False
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    since_ms: int = -1
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    soft: ClassicSoft = field(default=ClassicSoft(), compare=False)

    @property
    def exists(self) -> bool:
        """Whether the group has a record."""
        return self.is_recorded

    @property
    def is_empty(self) -> bool:
        return self.live.state is GroupState.EMPTY

    @property
    def live(self) -> Live:
        """The present state of the group."""
        known = self.soft.live
        if known is not None:
            return known
        return Live(
            state=GroupState.STABLE if self.members else GroupState.EMPTY,
            since_ms=self.since_ms,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=self.members,
            static_members={member.instance_id: name for name, member in self.members.items() if member.instance_id},
        )


class ClassicGroupBuilder:
    """A classic group that records are being applied to."""

    def __init__(self, group: ClassicGroup) -> None:
        self._group = group

    def apply(self, record: GroupRecord) -> None:
        value = record.value
        if value is None:
            self._group = ClassicGroup(self._group.group_id)
            return
        assert isinstance(value, types.GroupMetadataValue)
        self._group = replace(
            self._group,
            is_recorded=True,
            generation=value.generation,
            protocol_type=value.protocol_type,
            protocol=value.protocol,
            leader=value.leader,
            since_ms=value.current_state_timestamp,
            members={entry.member_id: _member(entry, value.protocol) for entry in value.members},
        )

    def build(self) -> ClassicGroup:
        return self._group


def _member(entry: types.GroupMetadataValue.MemberMetadata, protocol: str | None) -> ClassicMember:
    session_timeout_ms = entry.session_timeout
    return ClassicMember(
        member_id=entry.member_id,
        instance_id=entry.group_instance_id,
        client_id=entry.client_id,
        client_host=entry.client_host,
        # Records of brokers before 0.10.1 have no rebalance timeout.
        rebalance_timeout_ms=session_timeout_ms if entry.rebalance_timeout == -1 else entry.rebalance_timeout,
        session_timeout_ms=session_timeout_ms,
        protocols=() if protocol is None else (Protocol(protocol, bytes(entry.subscription)),),
        assignment=bytes(entry.assignment),
    )
