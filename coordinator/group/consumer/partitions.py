"""Partitions as the protocol knows them, by topic id, and as messages and records carry them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeVar


class TopicIdPartition(NamedTuple):
    """One partition of a topic id: a topic that is created again is another one."""

    topic_id: bytes
    partition: int


Partitions = frozenset[TopicIdPartition]
NONE: Partitions = frozenset()

Target = tuple[TopicIdPartition, ...]
"""What a member shall have: by topic id, and within a topic in the order in which it was given."""


class _TopicPartitions(Protocol):
    topic_id: bytes
    partitions: list[int]


T = TypeVar("T")


def listed(wire: Iterable[_TopicPartitions]) -> Target:
    return tuple(TopicIdPartition(entry.topic_id, number) for entry in wire for number in entry.partitions)


def partition_set(wire: Iterable[_TopicPartitions]) -> Partitions:
    return frozenset(listed(wire))


def in_topic_order(partitions: Iterable[TopicIdPartition]) -> Target:
    """Groups the partitions by topic id; those of a topic keep their order."""
    return tuple(sorted(partitions, key=lambda partition: partition.topic_id))


def grouped(partitions: Iterable[TopicIdPartition]) -> list[tuple[bytes, list[int]]]:
    """Returns (topic id, partition numbers) of partitions sorted by topic."""
    found: list[tuple[bytes, list[int]]] = []
    for topic_id, number in partitions:
        if found and found[-1][0] == topic_id:
            found[-1][1].append(number)
        else:
            found.append((topic_id, [number]))
    return found


def wire_target(kind: Callable[..., T], target: Target) -> list[T]:
    """Converts a target to the struct (topic id, partitions) of a record."""
    return [kind(topic_id=topic_id, partitions=numbers) for topic_id, numbers in grouped(target)]


def wire_partitions(kind: Callable[..., T], partitions: Iterable[TopicIdPartition]) -> list[T]:
    """Converts partitions to the struct (topic id, partitions) of a message, sorted by both."""
    return wire_target(kind, tuple(sorted(partitions)))
