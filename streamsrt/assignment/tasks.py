"""Tasks as values: their roles, and their representation in messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar


class TaskId(NamedTuple):
    """A task: subtopology id (any string) and partition; as text ``<subtopology id>_<partition>``."""

    subtopology_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology_id}_{self.partition}"


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks by role."""

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    warmup: frozenset[TaskId] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def __sub__(self, other: Tasks) -> Tasks:
        return Tasks(self.active - other.active, self.standby - other.standby, self.warmup - other.warmup)

    def __and__(self, other: Tasks) -> Tasks:
        return Tasks(self.active & other.active, self.standby & other.standby, self.warmup & other.warmup)

    def __le__(self, other: Tasks) -> bool:
        return self.active <= other.active and self.standby <= other.standby and self.warmup <= other.warmup

    @property
    def passive(self) -> frozenset[TaskId]:
        return self.standby | self.warmup


NO_TASKS = Tasks()


def tasks_of(counts: Mapping[str, int], excluded: frozenset[TaskId] = frozenset()) -> list[TaskId]:
    """Returns the tasks of subtopologies with these task counts, without the excluded ones."""
    tasks = [TaskId(name, partition) for name, count in counts.items() for partition in range(count)]
    return [task for task in tasks if task not in excluded] if excluded else tasks


class _TaskIds(Protocol):
    subtopology_id: str
    partitions: list[int]


T = TypeVar("T")


def grouped(tasks: Iterable[TaskId]) -> list[tuple[str, list[int]]]:
    """Returns (subtopology id, partitions), both sorted."""
    found: list[tuple[str, list[int]]] = []
    for subtopology_id, partition in sorted(tasks):
        if found and found[-1][0] == subtopology_id:
            found[-1][1].append(partition)
        else:
            found.append((subtopology_id, [partition]))
    return found


def task_set(wire: Iterable[_TaskIds]) -> frozenset[TaskId]:
    return frozenset(TaskId(ids.subtopology_id, partition) for ids in wire for partition in ids.partitions)


def wire_tasks(kind: type[T], tasks: Iterable[TaskId]) -> list[T]:
    """Converts tasks to the ``TaskIds`` struct of a message."""
    make: Any = kind
    return [make(subtopology_id=name, partitions=partitions) for name, partitions in grouped(tasks)]
