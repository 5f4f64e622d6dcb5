"""The slices of a plan: their names and their keys.

1. A key belongs to a slice by a hash of its bytes. It is another one than that by which keys are placed in partitions, of
   which the keys of one partition have only some values. Records without a key belong to the first slice.
2. A serde may read one key out of different bytes, such as JSON with spaces. What counts then are the bytes that it writes
   for the key.
3. A slice is named after its task, ``<task>.<number>of<count>``. It has a manifest of its own until those of all slices are
   merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from streamsrt.backfill.plan import BackfillPlan, TaskPlan
from streamsrt.operators.engine.canonical_keys import CanonicalKeys
from topology.spec.codecs import ProgramSerde, has_one_form

_MIX, _SHIFT, _MASK = np.uint64(2654435761), np.uint64(16), np.uint64(0xFFFF)
"""Single bits of a checksum may be the same for all keys that are alike."""


class WrittenKeys:
    """Keys as their serde writes them. Those that it can't read stay as they are."""

    def __init__(self, serde: ProgramSerde) -> None:
        self._canonical = None if has_one_form(serde) else CanonicalKeys(serde)

    def of(self, keys: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """The same keys."""
        canonical = self._canonical
        if canonical is None:
            return keys
        try:
            return list(map(canonical.__getitem__, keys))
        except Exception:  # noqa: BLE001  # a user's serde may raise anything, and the task reports it
            return [_written(canonical, key) for key in keys]


def _written(canonical: CanonicalKeys, key: bytes | None) -> bytes | None:
    try:
        return canonical[key]
    except Exception:  # noqa: BLE001  # as above
        return key


def _places(keys: Sequence[bytes], count: int) -> NDArray[np.uint64]:
    sums = np.fromiter(map(crc32, keys), np.uint64, len(keys))
    return (sums * _MIX >> _SHIFT & _MASK) % np.uint64(count)


@dataclass(frozen=True, slots=True)
class Slice:
    """One of the ``count`` slices of a task; ``index`` begins at 0."""

    task: str
    index: int
    count: int

    @property
    def id(self) -> str:
        """Its name in manifests, attempts and messages."""
        return f"{self.task}.{self.index + 1}of{self.count}"

    def has(self, keys: Sequence[bytes | None]) -> NDArray[np.bool_]:
        """Says of each key whether it belongs to the slice."""
        if None not in keys:
            return np.equal(_places(cast("Sequence[bytes]", keys), self.count), self.index)
        keyed = np.array([key is not None for key in keys], np.bool_)
        places = np.zeros(len(keys), np.uint64)
        places[keyed] = _places([key for key in keys if key is not None], self.count)
        return np.equal(places, self.index)


def slices_of(plan: BackfillPlan, task: TaskPlan) -> tuple[Slice, ...]:
    """The slices of a task; none if it is computed as a whole."""
    count = plan.slices.get(task.subtopology, 1)
    return tuple(Slice(task.id, index, count) for index in range(count)) if count > 1 else ()


def part_called(plan: BackfillPlan, name: str) -> tuple[TaskPlan, Slice | None]:
    """The task of that name and None, or the slice of that name with its task. Raises PlanError."""
    share = next((each for each in all_slices(plan) if each.id == name), None)
    return plan.task(name if share is None else share.task), share


def all_slices(plan: BackfillPlan) -> Iterator[Slice]:
    """The slices of all tasks."""
    return (each for task in plan.tasks for each in slices_of(plan, task))


def parts_of(plan: BackfillPlan, task: TaskPlan) -> list[str]:
    """The names of what engines run for a task: its slices, or the task as a whole."""
    return [each.id for each in slices_of(plan, task)] or [task.id]
