from __future__ import annotations

from streamsrt.backfill.job import BackfillStatus, TaskStatus
from streamsrt.backfill.plan import BackfillPlan, TaskPlan
from streamsrt.cli.backfill_progress import progress_line


def _status(*tasks: TaskStatus) -> BackfillStatus:
    plan = BackfillPlan(
        application="shop:topology",
        application_id="shop",
        code_digest="",
        version="",
        topology_digest="",
        topics={},
        tasks=tuple(
            TaskPlan(id=f"0_{n}", subtopology="0", partition=n, level=0, sources=(), stores=()) for n in range(3)
        ),
        created_ms=1,
    )
    return BackfillStatus(plan, tasks, "none", 1000)


def test_slices_are_not_counted_as_tasks() -> None:
    """A task has no more slices when they are merged: what is to be done would seem to shrink."""
    status = _status(
        TaskStatus("0_0", 0, "finished", 100, 1.0),
        TaskStatus("0_1.1of2", 0, "finished", 100, 1.0),
        TaskStatus("0_1.2of2", 0, "running", 50, 1.0),
        TaskStatus("0_2", 0, "waiting", 0, 0.0),
    )
    assert progress_line(status).startswith("1 of 3 tasks finished, 1 of 2 slices of the others, 1 running")


def test_without_slices_there_is_no_word_about_them() -> None:
    status = _status(*(TaskStatus(f"0_{n}", 0, "finished", 100, 1.0) for n in range(3)))
    assert progress_line(status) == "3 of 3 tasks finished, 0 running, 300 records"
