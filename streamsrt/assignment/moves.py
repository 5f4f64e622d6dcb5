"""Describes what moves between two target assignments of a group: who runs a task, and where one warms up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamsrt.assignment.tasks import TaskId


@dataclass(frozen=True, slots=True)
class TaskOwners:
    """The tasks of each member in a target assignment, by the member's name for people."""

    active: Mapping[TaskId, str]
    standby: Mapping[TaskId, tuple[str, ...]]
    warmup: Mapping[TaskId, tuple[str, ...]]


def moves_between(before: TaskOwners, after: TaskOwners) -> Iterator[str]:
    """Yields the moves, by task."""
    for task in sorted(before.active.keys() | after.active.keys()):
        old, new = before.active.get(task), after.active.get(task)
        if old != new:
            since = ""
            if new is not None and new in before.warmup.get(task, ()):
                since = ", where it has warmed up"
            elif new is not None and new in before.standby.get(task, ()):
                since = ", where its standby task was"
            yield f"{task}: {old or 'nobody'} -> {new or 'nobody'}{since}"
    for role, then, now in (
        ("warms up", before.warmup, after.warmup),
        ("is a standby task", before.standby, after.standby),
    ):
        for task, names in sorted(now.items()):
            for name in names:
                if name not in then.get(task, ()):
                    yield f"{task} {role} at {name}"
