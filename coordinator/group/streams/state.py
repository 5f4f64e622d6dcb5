"""State of streams groups: what the records say (hard) and what has to be learnt again after a load (soft).

1. Hard state changes by ``StreamsGroupBuilder.apply`` of records only, live and at a load alike.
2. ``active_owners`` and ``passive_holders`` say who holds a task now: it was given and its return was not confirmed.
3. Soft state is not part of comparisons, and nothing depends on it: after a load it is empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from coordinator.group.builder import GroupBuilder
from coordinator.group.classic.state import Protocol
from coordinator.group.values import GroupRecord
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.in_flight import NOTHING_WAITS, Unread, Waiting
from streamsrt.assignment.reconcile import NEVER_ASSIGNED, Current, MemberState
from streamsrt.assignment.tasks import TaskId, Tasks, task_set
from streamsrt.assignment.topics import NO_TOPICS, TopicsImage
from streamsrt.assignment.topology import Topology, topology_of
from streamsrt.assignment.version_backoff import Setbacks
from streamsrt.wire import types
from streamsrt.wire.messages import decode_record_value, encode_record_value

CLASSIC_TAG = 10_000
"""The tag of a member's record that Apache Kafka does not have: there, members of the two protocols never meet."""
OLDER_TAG = 10_000
"""The tag of the topology's record with the topology before it, if members still ran that one: a record's value of its own,
with the tag for the one before that. Apache Kafka forgets it with the update."""
TAKEN_OVER_TAG = 10_001
"""The tag of a topology's record if this version has taken over: only members with it have run for a session timeout."""
PROGRAM_TAG = 10_002
"""The tag of a topology's record with what its members say of the steps between topics and stores
(:attr:`~streamsrt.assignment.topology.Topology.program`), as UTF-8 text. Apache Kafka compares topics and stores only."""


class Endpoint(NamedTuple):
    """The address at which a member answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """The data that a member of the classic protocol sent when it joined. It is stored in a tag of the member's record."""

    session_timeout_ms: int
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class Member:
    """The data that a member reported about itself (``StreamsGroupMemberMetadata``). ``classic``: None for the streams
    protocol."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None
    client_tags: tuple[tuple[str, str], ...]
    classic: ClassicSide | None = None


@dataclass(frozen=True, slots=True)
class TaskOffsets:
    """Cumulative changelog offsets and end offsets of a member's last report."""

    offsets: Mapping[TaskId, int]
    end_offsets: Mapping[TaskId, int]


@dataclass(frozen=True, slots=True)
class Creation:
    """Creation of internal topics: one attempt at a time, the next one after a back-off."""

    in_flight: bool = False
    attempts: int = 0
    next_attempt_ms: int = 0
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Soft:
    """State that is not in the log. ``configuration`` is the one for ``image``, if both are still current. ``strayed``:
    members with an older version that were removed by a timeout, and may be alive."""

    endpoint_epoch: int = 0
    shutdown_requested_by: str | None = None
    delayed_until_ms: int | None = None
    configuration: Configuration | None = None
    image: TopicsImage = NO_TOPICS
    creation: Creation = Creation()
    task_offsets: Mapping[str, TaskOffsets] = field(default_factory=dict)
    must_rejoin: frozenset[str] = frozenset()
    strayed: tuple[str, ...] = ()
    unread: Unread = field(default_factory=dict)
    waiting: Waiting = NOTHING_WAITS
    setbacks: Setbacks | None = None
    is_paused: bool = False

    @property
    def may_change_by_itself(self) -> bool:
        """Whether time, or records read by members, may require a new assignment."""
        return bool(self.waiting) or self.is_paused

    def forgetting(self, member_ids: Collection[str]) -> dict[str, object]:
        """Returns the changes after which nothing is known of these members."""
        return {
            "task_offsets": {name: report for name, report in self.task_offsets.items() if name not in member_ids},
            "must_rejoin": self.must_rejoin.difference(member_ids),
        }


@dataclass(frozen=True, slots=True)
class StreamsGroup:
    """One streams group. Mappings are by member id; every member of ``members`` has an entry in ``current``."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    assignment_configs: tuple[tuple[str, str], ...] = ()
    topology: Topology | None = None
    older: tuple[Topology, ...] = ()
    has_taken_over: bool = False
    assignment_epoch: int = 0
    assignment_timestamp_ms: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    targets: Mapping[str, Tasks] = field(default_factory=dict)
    current: Mapping[str, Current] = field(default_factory=dict)
    static_members: Mapping[str, str] = field(default_factory=dict)
    active_owners: Mapping[TaskId, tuple[str, ...]] = field(default_factory=dict)
    passive_holders: Mapping[TaskId, tuple[str, ...]] = field(default_factory=dict)
    classic_members: int = 0
    soft: Soft = field(default=Soft(), compare=False)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def exists(self) -> bool:
        """Whether any record of the group remains."""
        return bool(self.epoch or self.members or self.topology or self.targets or self.current)

    def is_stale(self, member: Member) -> bool:
        return self.topology is not None and member.topology_epoch < self.topology.epoch

    @property
    def is_taking_over(self) -> bool:
        """Whether only the newest version runs, and this has to last before it has taken over from those before it."""
        return bool(self.older) and not self.has_taken_over and not any(map(self.is_stale, self.members.values()))

    def topologies(self) -> tuple[Topology, ...]:
        """The group's topology, then older known ones, newest first."""
        return () if self.topology is None else (self.topology, *self.older)

    def topologies_run(self) -> tuple[Topology, ...]:
        """The topologies that members run."""
        run = {member.topology_epoch for member in self.members.values()}
        return tuple(one for one in self.topologies() if one.epoch in run)


class StreamsGroupBuilder(GroupBuilder[StreamsGroup]):
    """A streams group that records are being applied to."""

    setters: ClassVar[Mapping[str, str]] = {
        "StreamsGroupMetadataKey": "set_metadata",
        "StreamsGroupTopologyKey": "set_topology",
        "StreamsGroupTargetAssignmentMetadataKey": "set_assignment_metadata",
        "StreamsGroupMemberMetadataKey": "set_member",
        "StreamsGroupTargetAssignmentMemberKey": "set_target",
        "StreamsGroupCurrentMemberAssignmentKey": "set_current",
    }

    def set_metadata(self, value: types.StreamsGroupMetadataValue | None) -> None:
        if value is None:
            self._fields |= {"epoch": 0, "metadata_hash": 0, "validated_topology_epoch": -1, "assignment_configs": ()}
            return
        self._fields |= {
            "epoch": value.epoch,
            "metadata_hash": value.metadata_hash,
            "validated_topology_epoch": value.validated_topology_epoch,
            "assignment_configs": tuple((c.key, c.value) for c in value.last_assignment_configs or ()),
        }

    def set_topology(self, value: types.StreamsGroupTopologyValue | None) -> None:
        self._fields["topology"] = None if value is None else _topology(value)
        self._fields["older"] = () if value is None else tuple(_older(value))
        self._fields["has_taken_over"] = bool(
            value is not None and value.unknown_tags and TAKEN_OVER_TAG in value.unknown_tags
        )

    def set_assignment_metadata(self, value: types.StreamsGroupTargetAssignmentMetadataValue | None) -> None:
        self._fields["assignment_epoch"] = 0 if value is None else value.assignment_epoch
        self._fields["assignment_timestamp_ms"] = 0 if value is None else value.assignment_timestamp

    def set_member(self, member_id: str, value: types.StreamsGroupMemberMetadataValue | None) -> None:
        self._replace_member(member_id, None if value is None else member_of(member_id, value))

    def set_target(self, member_id: str, value: types.StreamsGroupTargetAssignmentMemberValue | None) -> None:
        target = None
        if value is not None:
            target = Tasks(task_set(value.active_tasks), task_set(value.standby_tasks), task_set(value.warmup_tasks))
        self._set("targets", member_id, target)

    def set_current(self, member_id: str, value: types.StreamsGroupCurrentMemberAssignmentValue | None) -> None:
        old: Current = self._read("current").get(member_id, NEVER_ASSIGNED)
        new = None if value is None else current_of(value)
        self._move("active_owners", member_id, _active(old), _active(new or NEVER_ASSIGNED))
        self._move("passive_holders", member_id, _passive(old), _passive(new or NEVER_ASSIGNED))
        self._set("current", member_id, new)


def _older(value: types.StreamsGroupTopologyValue) -> Iterator[Topology]:
    while value.unknown_tags and OLDER_TAG in value.unknown_tags:
        value = decode_record_value(types.StreamsGroupTopologyValue, value.unknown_tags[OLDER_TAG])
        yield _topology(value)


def _topology(value: types.StreamsGroupTopologyValue) -> Topology:
    program = (value.unknown_tags or {}).get(PROGRAM_TAG, b"")
    return replace(topology_of(value), program=bytes(program).decode())


def _active(current: Current) -> frozenset[TaskId]:
    return current.assigned.active | current.pending.active


def _passive(current: Current) -> frozenset[TaskId]:
    return current.assigned.passive | current.pending.passive


def member_of(member_id: str, value: types.StreamsGroupMemberMetadataValue) -> Member:
    endpoint = value.user_endpoint
    return Member(
        member_id=member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=tuple(sorted((tag.key, tag.value) for tag in value.client_tags)),
        classic=_classic_side(value.unknown_tags.get(CLASSIC_TAG) if value.unknown_tags else None),
    )


def _classic_side(tag: bytes | None) -> ClassicSide | None:
    if tag is None:
        return None
    written = decode_record_value(types.ConsumerGroupMemberMetadataValue, tag).classic_member_metadata
    assert written is not None
    (protocol,) = written.supported_protocols
    return ClassicSide(written.session_timeout_ms, Protocol(protocol.name, bytes(protocol.metadata)))


def classic_tag(side: ClassicSide) -> bytes:
    """Encodes what a member sent in the classic protocol for its record: Kafka's layout for consumer groups, in a tag."""
    value = types.ConsumerGroupMemberMetadataValue
    protocol = value.ClassicProtocol(name=side.protocol.name, metadata=side.protocol.metadata)
    metadata = value.ClassicMemberMetadata(session_timeout_ms=side.session_timeout_ms, supported_protocols=[protocol])
    return encode_record_value(value(classic_member_metadata=metadata))


def current_of(value: types.StreamsGroupCurrentMemberAssignmentValue) -> Current:
    known = value.state in MemberState.__members__.values()
    return Current(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if known else MemberState.UNKNOWN,
        assigned=Tasks(task_set(value.active_tasks), task_set(value.standby_tasks), task_set(value.warmup_tasks)),
        pending=Tasks(
            task_set(value.active_tasks_pending_revocation),
            task_set(value.standby_tasks_pending_revocation),
            task_set(value.warmup_tasks_pending_revocation),
        ),
        active_epochs={**_epochs_of(value.active_tasks), **_epochs_of(value.active_tasks_pending_revocation)},
    )


def _epochs_of(wire: Iterable[types.StreamsGroupCurrentMemberAssignmentValue.TaskIds]) -> dict[TaskId, int]:
    """Returns by task the epoch of the assignment that gave it to the member; 0 if a record has none."""
    return {
        TaskId(ids.subtopology_id, partition): epoch
        for ids in wire
        for partition, epoch in zip(ids.partitions, ids.assignment_epochs or [0] * len(ids.partitions), strict=False)
    }


STREAMS_RECORD_NAMES = frozenset(StreamsGroupBuilder.setters)


def applied(group: StreamsGroup, records: Iterable[GroupRecord]) -> StreamsGroup:
    """Returns the group after these records."""
    builder = StreamsGroupBuilder(group)
    for record in records:
        builder.apply(record)
    return builder.build()
