"""Bytes that know which partition they belong to: the answers of foreign-key joins on their way to the row that asked."""

from __future__ import annotations


class PartitionedBytes(bytes):
    """Bytes that know which partition they belong to."""

    to_partition: int


def to_its_partition(topic: str, key: object, value: PartitionedBytes, partitions: int) -> int | None:
    """The partition of a :class:`PartitionedBytes`."""
    return value.to_partition
