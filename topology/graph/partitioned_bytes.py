"""Bytes with the partition that they go to: the responses of foreign-key joins to the row that subscribed."""

from __future__ import annotations


class PartitionedBytes(bytes):
    """Bytes that know which partition they belong to."""

    to_partition: int


def to_its_partition(topic: str, key: object, value: PartitionedBytes, partitions: int) -> int | None:
    """The partition of a :class:`PartitionedBytes`."""
    return value.to_partition
