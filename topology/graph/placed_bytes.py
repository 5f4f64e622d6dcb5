"""Bytes that know which partition they belong to: the answers of foreign-key joins on their way to the row that asked."""

from __future__ import annotations

from typing import Any


class PlacedBytes(bytes):
    """Bytes that know which partition they belong to."""

    to_partition: int


def to_its_partition(topic: str, key: Any, value: Any, partitions: int) -> int | None:
    """The partition of a :class:`PlacedBytes`."""
    placed: PlacedBytes = value
    return placed.to_partition
