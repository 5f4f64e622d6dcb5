"""State of all groups of one partition of ``__consumer_offsets``, whatever their type, as records make it.

1. A group id has one group of one type, or none; it may have committed offsets in any case.
2. A record of another type than the group's replaces the group: a batch that converts a group first ends the old one by
   tombstones. A tombstone of another type than the group's says nothing about it.
3. Soft state of a group is set after the records of the same decision, on the group that they make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from coordinator.group.classic.state import RECORD_NAME as CLASSIC_RECORD_NAME
from coordinator.group.classic.state import ClassicGroup, ClassicGroupBuilder
from coordinator.group.committed import Offsets, OffsetsBuilder, OffsetsByGroup
from coordinator.group.consumer.state import CONSUMER_RECORD_NAMES, ConsumerGroup, ConsumerGroupBuilder
from coordinator.group.streams.state import STREAMS_RECORD_NAMES, StreamsGroup, StreamsGroupBuilder
from coordinator.group.values import Entry, GroupRecord, PendingRecord, SoftUpdate, TransactionEnd
from streamsrt.wire import types

Group = StreamsGroup | ClassicGroup | ConsumerGroup


@dataclass(frozen=True, slots=True)
class GroupsState:
    """All groups, all committed offsets by group id, topic and partition, and those of open transactions."""

    groups: Mapping[str, Group] = field(default_factory=dict)
    offsets: OffsetsByGroup = field(default_factory=dict)
    pending: Mapping[int, OffsetsByGroup] = field(default_factory=dict)
    commits: int = field(default=0, compare=False)

    @property
    def all_offsets(self) -> Offsets:
        return Offsets(self.offsets, self.pending, self.commits)


EMPTY = GroupsState()


class UnknownRecordError(Exception):
    """A record of an unknown type: written by a newer broker, or damaged."""


class _Builder(Protocol):
    def apply(self, record: GroupRecord) -> None: ...

    def build(self) -> Group: ...


class _GroupType(NamedTuple):
    """The classes of a group type, and the field of its records' keys with the group id."""

    group: type[Any]  # of the three, and a builder takes its own: a row of a table can't tie one to the other
    builder: Callable[[Any], _Builder]  # likewise
    id_field: str


_CLASSIC = _GroupType(ClassicGroup, ClassicGroupBuilder, "group")
_STREAMS = _GroupType(StreamsGroup, StreamsGroupBuilder, "group_id")
_CONSUMER = _GroupType(ConsumerGroup, ConsumerGroupBuilder, "group_id")
_TYPE_OF_RECORD: Mapping[str, _GroupType] = {
    CLASSIC_RECORD_NAME: _CLASSIC,
    **dict.fromkeys(STREAMS_RECORD_NAMES, _STREAMS),
    **dict.fromkeys(CONSUMER_RECORD_NAMES, _CONSUMER),
}


def apply(state: GroupsState, entry: Entry) -> GroupsState:
    """Returns the state after one record or transaction marker."""
    return apply_all(state, (entry,))


def apply_all(state: GroupsState, entries: Iterable[Entry]) -> GroupsState:
    """Returns the state after these records; changed mappings are copied once."""
    builders = _GroupBuilders(state.groups)
    committed = OffsetsBuilder(state.all_offsets)
    for record in entries:
        if isinstance(record, PendingRecord):
            committed.apply_pending(record)
        elif isinstance(record, TransactionEnd):
            committed.end(record)
        elif isinstance(record.key, types.OffsetCommitKey):
            committed.apply(record)
        else:
            builders.apply(record)
    return GroupsState(builders.build(), *committed.build())


class _GroupBuilders:
    """Groups to which records are being applied."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self._groups = groups
        self._builders: dict[str, tuple[_GroupType, _Builder]] = {}

    def apply(self, record: GroupRecord) -> None:
        kind = _TYPE_OF_RECORD.get(record.key.NAME)
        if kind is None:
            raise UnknownRecordError(f"a record with the key {record.key!r} belongs to no group type of this broker")
        group_id: str = getattr(record.key, kind.id_field)
        known = self._builders.get(group_id)
        if known is not None and known[0] is kind:
            known[1].apply(record)
            return
        group = known[1].build() if known is not None else self._groups.get(group_id)
        if not isinstance(group, kind.group):
            if record.value is None and group is not None and group.exists:
                return
            group = kind.group(group_id)
        builder = kind.builder(group)
        builder.apply(record)
        self._builders[group_id] = (kind, builder)

    def build(self) -> Mapping[str, Group]:
        if not self._builders:
            return self._groups
        groups = dict(self._groups)
        for group_id, (_, builder) in self._builders.items():
            group = builder.build()
            if group.exists:
                groups[group_id] = group
            else:
                groups.pop(group_id, None)
        return groups


def apply_soft(state: GroupsState, update: SoftUpdate) -> GroupsState:
    """Returns the state with new soft fields of a group; a missing group has none."""
    group = state.groups.get(update.group_id)
    if group is None:
        return state
    soft: Any = replace(group.soft, **update.changes)  # type: ignore[arg-type]
    return replace(state, groups={**state.groups, update.group_id: replace(group, soft=soft)})
