"""The in-memory state of a task beside its stores, for a task of another process that continues it.

1. A restart loses this state, as in Kafka Streams, and results are still correct. With it, results do not show where one
   process ended and the other began: a backfill that continues an earlier one takes it over.
2. It is read after a commit, and restored before the first record, into a task that has the rows of the same stores. It
   consists of lists of numbers and strings, by name.
3. An owner that is created later gets its state when it is created. State that nobody has asked for is passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

Values: TypeAlias = list[int | str]


def in_parts(values: Values, size: int) -> Iterator[Values]:
    """The values, so many at a time."""
    return (values[start : start + size] for start in range(0, len(values), size))


@runtime_checkable
class Snapshotted(Protocol):
    """An owner of such state."""

    def snapshot(self) -> Values:
        """Its state; empty if a new owner would have the same."""

    def resume_from(self, values: Values) -> None:
        """Restores the state that :meth:`snapshot` of another owner returned."""


def cache_name(store: str) -> str:
    """The name of the cache of a store among the owners."""
    return f"store {store}"


class SnapshotOwners:
    """The owners of one task."""

    def __init__(self) -> None:
        self._owners: dict[str, Snapshotted] = {}
        self._waiting: dict[str, Values] = {}

    def add(self, name: str, owner: Snapshotted) -> None:
        """Registers an owner, and restores its state if there is any."""
        self._owners[name] = owner
        if name in self._waiting:
            owner.resume_from(self._waiting.pop(name))

    def values(self) -> dict[str, Values]:
        """The state of all owners, by name."""
        found = {name: owner.snapshot() for name, owner in self._owners.items()}
        return {name: values for name, values in {**self._waiting, **found}.items() if values}

    def resume_from(self, values: Mapping[str, Values]) -> None:
        """Restores what :meth:`values` of another task returned."""
        self._waiting = dict(values)
        for name, owner in self._owners.items():
            if name in self._waiting:
                owner.resume_from(self._waiting.pop(name))
