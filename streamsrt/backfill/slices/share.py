"""The slices of a plan: their names and their keys.

1. A key belongs to a slice by a hash of its bytes. It is another one than that by which keys are placed in partitions, of
   which the keys of one partition have only some values. Records without a key belong to the first slice.
2. A slice is named after its task, ``<task>.<number>of<count>``. It has a manifest of its own until those of all slices are
   merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from streamsrt.backfill.plan import BackfillPlan, TaskPlan


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

    def has(self, keys: Sequence[bytes | None]) -> list[bool]:
        """Says of each key whether it belongs to the slice."""
        index, count = self.index, self.count
        return [index == 0 if key is None else crc32(key) % count == index for key in keys]


def slices_of(plan: BackfillPlan, task: TaskPlan) -> tuple[Slice, ...]:
    """The slices of a task; none if it is computed as a whole."""
    count = plan.slices.get(task.subtopology, 1)
    return tuple(Slice(task.id, index, count) for index in range(count)) if count > 1 else ()


def slice_called(plan: BackfillPlan, name: str) -> Slice | None:
    """The slice of that name; None if the plan has none."""
    return next((each for each in all_slices(plan) if each.id == name), None)


def all_slices(plan: BackfillPlan) -> Iterator[Slice]:
    """The slices of all tasks."""
    return (each for task in plan.tasks for each in slices_of(plan, task))


def parts_of(plan: BackfillPlan, tasks: Iterable[TaskPlan]) -> list[str]:
    """The names of what engines run for these tasks: slices, or a task as a whole."""
    return [name for task in tasks for name in [each.id for each in slices_of(plan, task)] or [task.id]]
