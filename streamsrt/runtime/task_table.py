"""What the tasks of an instance are doing, as a table: for terminals and notebooks.

1. A table has a title of one line and a row per task. How it is drawn is left to whoever shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamsrt.runtime.values import Progress, State

TEXT_COLUMNS = ("task", "role", "phase")
NUMBER_COLUMNS = ("processed", "dropped", "lag", "to restore")


@dataclass(frozen=True, slots=True)
class TaskTable:
    """A title, and the cells of each task: as many as :data:`TEXT_COLUMNS` and :data:`NUMBER_COLUMNS` together."""

    title: str
    rows: tuple[tuple[str, ...], ...]


def task_table(state: State, progress: Progress) -> TaskTable:
    """What each task of an instance is doing; without rows where it has no task."""
    title = f"{state.value}: {progress.processed_text}, lag {progress.lag_records:,}"
    rows = []
    for task in progress.tasks:
        restoring = sum(each.remaining_records for each in task.restoring)
        counts = (task.counters.get("processed", 0), task.counters.get("dropped", 0), task.lag_records, restoring)
        rows.append((str(task.task_id), task.role, task.phase, *(f"{count:,}" for count in counts)))
    return TaskTable(", ".join([title, *progress.statuses]), tuple(rows))
