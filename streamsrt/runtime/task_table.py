"""What the tasks of an instance are doing, as a table for terminals and notebooks.

A table has a title of one line and a row per task. The caller decides how it is drawn.
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
    title = ", ".join(filter(None, (f"{state.value}: {progress.processed_text}", progress.lag_text)))
    rows = []
    for task in progress.tasks:
        restoring = sum(each.remaining_records for each in task.restoring)
        lag = f"{task.lag_records:,}" if task.lag_is_known else "?"
        counts = (f"{task.counters.get(name, 0):,}" for name in ("processed", "dropped"))
        rows.append((str(task.task_id), task.role, task.phase, *counts, lag, f"{restoring:,}"))
    return TaskTable(", ".join([title, *progress.statuses]), tuple(rows))
