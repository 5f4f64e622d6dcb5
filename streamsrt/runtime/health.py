"""Whether an instance is alive and ready, and if not, why: as text for logs, probes and users."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from streamsrt.assignment.status_code import StatusCode
from streamsrt.membership.statuses import NO_TASKS_BY
from streamsrt.runtime.values import Progress, State, TaskProgress
from streamsrt.wording import counted

_NO_TASKS = tuple(code.name for code in NO_TASKS_BY if code is not StatusCode.STALE_TOPOLOGY)
"""An old member whose tasks went to a newer version has done its work: it stays ready until it is stopped."""
SILENT_S = 10.0
"""After so long without an iteration, what the processing thread has said is out of date."""
_LIBRARIES = ("/lib/python", "/site-packages/")
_OURS = str(Path(__file__).resolve().parent.parent)


class Readiness:
    """The health of one instance. It becomes ready when it has no warm-up task left; from then on only its active tasks
    count: a rolling update continues when a new instance is warm, and a running instance does not become unready because
    of further warm-up tasks.
    """

    def __init__(self) -> None:
        self._was_ready = False

    def why_not(self, state: State, progress: Progress, *, others_have_tasks: bool) -> list[str]:
        reasons = why_not_ready(state, progress, others_have_tasks=others_have_tasks)
        warming = [task for task in progress.tasks if task.role == "warmup"]
        if not reasons and warming and not self._was_ready:
            return ["it has just started, and its state is not warm yet", *map(why_task, warming)]
        self._was_ready = self._was_ready or not reasons
        return reasons


def why_not_ready(state: State, progress: Progress, *, others_have_tasks: bool = False) -> list[str]:
    """Returns why some of its tasks do not process; empty if all do. An instance without tasks is ready if other
    instances are known to have them (it asks them), or if it is behind the group's topology: then members with the newer
    one have them."""
    if state is not State.RUNNING:
        reasons = [f"the application is {state.value}"]
    elif not all(task.phase == "running" for task in progress.tasks if task.role == "active"):
        reasons = ["not all tasks run"]
    elif not progress.tasks and any(status.startswith(_NO_TASKS) for status in progress.statuses):
        reasons = ["the group gives this member no tasks"]
    elif not progress.tasks and not others_have_tasks and not is_behind(progress):
        reasons = ["no partition is on this instance or known to be on another one"]
    else:
        return []
    reasons += [why_task(task) for task in progress.tasks if task.role == "active" and task.phase != "running"]
    reasons += progress.statuses
    return reasons


def is_behind(progress: Progress) -> bool:
    """Whether the group has accepted a newer topology than this instance's."""
    return any(status.startswith(StatusCode.STALE_TOPOLOGY.name) for status in progress.statuses)


def why_task(task: TaskProgress) -> str:
    """Describes what a task is doing and what it waits for."""
    what = f"task {task.task_id} ({task.role}) is {task.phase}"
    left = sum(each.remaining_records for each in task.restoring)
    if task.phase == "created":
        return f"{what}: it waits for its offsets and topics, or for the store that another task is closing"
    if task.phase == "restoring":
        stores = ", ".join(each.store for each in task.restoring if each.remaining_records)
        eta_s = max((each.eta_s for each in task.restoring if each.eta_s is not None), default=None)
        time_left = f", about {eta_s:.0f} s" if left and eta_s is not None else ""
        return (
            f"{what}: {counted(left, 'changelog record')} left to restore"
            + (f" ({stores})" if stores else "")
            + time_left
        )
    if task.phase == "standby":
        return f"{what}: {counted(left, 'changelog record')} behind"
    return (
        f"{what}: {counted(task.lag_records, 'record')} of input waiting"
        if task.lag_records
        else f"{what}: no input is waiting"
    )


def why_not_alive(state: State, silent_s: float, limit_s: float, doing: str) -> list[str]:
    """Returns why the instance should be restarted; else empty. ``silent_s``: seconds since the last iteration of its
    loop."""
    if state in (State.ERROR, State.NOT_RUNNING):
        return [f"the application is {state.value}"]
    if state is not State.CREATED and silent_s > limit_s:
        return [
            f"the processing thread has not polled for {silent_s:.0f} s, longer than max.poll.interval.ms "
            f"({limit_s:g} s){': ' if doing else ''}{doing}"
        ]
    return []


def with_silence(reasons: list[str], silent_s: float, limit_s: float, doing: str) -> list[str]:
    """Returns reasons for not being ready with what the processing thread hangs in, if it has been silent for long: the
    others are as old as that. Without another reason, a thread is busy until ``limit_s`` (``max.poll.interval.ms``): then
    the group takes its tasks away."""
    if silent_s < (SILENT_S if reasons else limit_s):
        return reasons
    silence = f"the processing thread has not polled for {silent_s:.0f} s{': ' if doing else ''}{doing}"
    return [f"{silence}. Before that:", *reasons] if reasons else [silence]


def where_is(thread_id: int | None) -> str:
    """The line of the application's code that a thread is in, as ``file:line in function``; empty if it is in none."""
    frame = None if thread_id is None else sys._current_frames().get(thread_id)
    stack = list(_frames(frame))
    stack.reverse()
    below_ours = False
    for each in stack:
        file = each.f_code.co_filename
        ours = file.startswith(_OURS)
        if below_ours and not ours and not file.startswith("<") and not any(part in file for part in _LIBRARIES):
            return f"{file}:{each.f_lineno} in {each.f_code.co_name}"
        below_ours = below_ours or ours
    return ""


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
