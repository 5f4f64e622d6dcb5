"""The line that a run of a backfill prints every few seconds."""

from __future__ import annotations

from typing import get_args

from streamsrt.backfill.job import BackfillStatus, TaskState
from streamsrt.wording import counted


def progress_line(status: BackfillStatus) -> str:
    """What is finished, what runs, how fast, and how long the rest will take."""
    at = {state: [task for task in status.tasks if task.state == state] for state in get_args(TaskState)}
    rate = sum(task.records / task.seconds for task in at["running"] if task.seconds)
    parts = [_finished(status), f"{len(at['running'])} running"]
    if at["sorting"]:
        parts.append(f"{len(at['sorting'])} being sorted by Spark")
    if at["writing"]:
        rows = sum(task.rows for task in at["writing"])
        parts.append(f"{len(at['writing'])} writing" + (f", {rows} rows so far" if rows else ""))
    parts.append(counted(status.records, "record"))
    parts += [
        f"Spark's stage {stage.stage}: {stage.done} of {stage.total} done, {stage.running} running"
        for stage in status.spark.stages
    ]
    if status.spark.ui is not None:
        parts.append(f"Spark's pages: {status.spark.ui}")
    left = status.records_total - status.records
    if rate and left > 0:
        parts += [f"{rate:.0f} records/s", f"about {left / rate:.0f} s left"]
    return ", ".join(parts)


def _finished(status: BackfillStatus) -> str:
    """Of the tasks of the plan, and of the slices of those that are not finished."""
    whole = {task.id for task in status.plan.tasks}
    done = sum(task.task in whole and task.state == "finished" for task in status.tasks)
    slices = [task for task in status.tasks if task.task not in whole]
    text = f"{done} of {len(whole)} tasks finished"
    if slices:
        text += f", {sum(each.state == 'finished' for each in slices)} of {len(slices)} slices of the others"
    return text
