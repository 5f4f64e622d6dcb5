"""Committed offsets as built from records: current ones, and those of open transactions.

1. A record of an open transaction is kept by its producer id and does not count yet. The commit marker of that producer
   makes its offsets count, the abort marker drops them.
2. Of two commits for one partition, the one that was written later counts, whenever its transaction commits.
3. A tombstone removes an offset and the offsets of open transactions for that partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coordinator.group.values import GroupRecord, PendingRecord, TransactionEnd
from coordinator.machine.values import CoordinatorRecord
from streamsrt.assignment.topics import NO_TOPIC_ID, TopicImage
from streamsrt.wire import types

NEVER_EXPIRES = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A commit for a partition; ``expire_ms`` is -1 unless the commit itself has an expiry time.

    ``order`` counts the commits of all groups: of two, the later one has the greater number.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NEVER_EXPIRES
    topic_id: bytes = NO_TOPIC_ID
    order: int = field(default=0, compare=False)

    def is_of_another_topic(self, topic: TopicImage | None) -> bool:
        """Whether the topic of the commit is gone. ``topic``: the one that has its name now; None: there is none."""
        return self.topic_id != NO_TOPIC_ID and (topic is None or topic.id != self.topic_id)


GroupOffsets = Mapping[str, Mapping[int, CommittedOffset]]
"""Of one group: topic -> partition -> offset."""

OffsetsByGroup = Mapping[str, GroupOffsets]


class Offsets(NamedTuple):
    """Committed offsets, those of open transactions by producer id, and the number of commits."""

    committed: OffsetsByGroup
    pending: Mapping[int, OffsetsByGroup]
    commits: int


def is_pending(pending: Mapping[int, OffsetsByGroup], group_id: str, topic: str, partition: int) -> bool:
    """Whether an open transaction has an offset for this partition of the group."""
    return any(partition in offsets.get(group_id, {}).get(topic, {}) for offsets in pending.values())


def with_pending(pending: Mapping[int, OffsetsByGroup], group_id: str, committed: GroupOffsets) -> dict[str, set[int]]:
    """Returns the partitions for which the group has a committed offset, or one in an open transaction."""
    found = {topic: set(partitions) for topic, partitions in committed.items()}
    for offsets in pending.values():
        for topic, partitions in offsets.get(group_id, {}).items():
            found.setdefault(topic, set()).update(partitions)
    return found


def offset_tombstones(group_id: str, partitions: Mapping[str, Iterable[int]]) -> Iterator[GroupRecord]:
    """Returns tombstones for these partitions of the group, in order."""
    for topic in sorted(partitions):
        for partition in sorted(partitions[topic]):
            yield CoordinatorRecord(types.OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


class OffsetsBuilder:
    """Applies records to the offsets of all groups; copies each changed mapping once."""

    def __init__(self, offsets: Offsets) -> None:
        self._committed = _Layer(offsets.committed)
        self._pending = dict(offsets.pending)
        self._layers: dict[int, _Layer] = {}
        self._commits = offsets.commits

    def apply(self, record: GroupRecord) -> None:
        """Applies a record outside of any transaction."""
        key, value = record
        assert isinstance(key, types.OffsetCommitKey)
        if value is None:
            self._committed.remove(key)
            for producer_id in self._open_producers():
                self._layer(producer_id).remove(key)
        else:
            self._committed.put(key, self._made(value))

    def apply_pending(self, entry: PendingRecord) -> None:
        """Applies a record of an open transaction."""
        key, value = entry.record
        assert isinstance(key, types.OffsetCommitKey)
        assert value is not None
        self._layer(entry.producer_id).put(key, self._made(value))

    def end(self, entry: TransactionEnd) -> None:
        """Applies the marker that ends a producer's transaction."""
        if entry.producer_id not in self._open_producers():
            return
        ended = self._layer(entry.producer_id).build()
        del self._layers[entry.producer_id]
        self._pending.pop(entry.producer_id, None)
        if not entry.committed:
            return
        for group_id, topics in ended.items():
            for topic, partitions in topics.items():
                target = self._committed.partitions(group_id, topic)
                for partition, offset in partitions.items():
                    known = target.get(partition)
                    if known is None or known.order < offset.order:
                        target[partition] = offset

    def build(self) -> Offsets:
        pending = self._pending
        for producer_id, layer in self._layers.items():
            left = layer.build()
            if left:
                pending[producer_id] = left
            else:
                pending.pop(producer_id, None)
        return Offsets(self._committed.build(), pending, self._commits)

    def _open_producers(self) -> set[int]:
        return self._pending.keys() | self._layers.keys()

    def _layer(self, producer_id: int) -> _Layer:
        layer = self._layers.get(producer_id)
        if layer is None:
            layer = self._layers[producer_id] = _Layer(self._pending.get(producer_id, {}))
        return layer

    def _made(self, value: object) -> CommittedOffset:
        assert isinstance(value, types.OffsetCommitValue)
        self._commits += 1
        return CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            bytes(value.topic_id),
            self._commits,
        )


class _Layer:
    """Offsets by group, topic and partition on top of an unchanged base."""

    def __init__(self, base: OffsetsByGroup) -> None:
        self._base = base
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._copied: set[tuple[str, str]] = set()

    def put(self, key: types.OffsetCommitKey, offset: CommittedOffset) -> None:
        self.partitions(key.group, key.topic)[key.partition] = offset

    def remove(self, key: types.OffsetCommitKey) -> None:
        self.partitions(key.group, key.topic).pop(key.partition, None)

    def partitions(self, group_id: str, topic: str) -> dict[int, CommittedOffset]:
        """Returns the partitions of a topic, to be changed."""
        group = self._groups.get(group_id)
        if group is None:
            known: Any = self._base.get(group_id, {})  # its mappings are copied before they change
            group = self._groups[group_id] = dict(known)
        if (group_id, topic) not in self._copied:
            self._copied.add((group_id, topic))
            group[topic] = dict(group.get(topic, {}))
        return group[topic]

    def build(self) -> OffsetsByGroup:
        if not self._groups:
            return self._base
        merged: dict[str, GroupOffsets] = dict(self._base)
        for group_id, topics in self._groups.items():
            left = {name: partitions for name, partitions in topics.items() if partitions}
            if left:
                merged[group_id] = left
            else:
                merged.pop(group_id, None)
        return merged
