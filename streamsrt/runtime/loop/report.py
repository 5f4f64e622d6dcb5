"""Explains the loop's behaviour as text, computed from its state alone."""

from __future__ import annotations

from collections.abc import Iterator

from streamsrt.runtime.loop.schedule import Deadline
from streamsrt.runtime.loop.values import (
    Activity,
    AdvanceTasks,
    Assign,
    CloseLostTasks,
    CommitAll,
    CommitBeforeClose,
    LateCommit,
    Life,
    LoopState,
    ProcessTasks,
    ReleaseAll,
    SlowCommit,
    Wait,
)
from streamsrt.runtime.values import LoopReport
from streamsrt.wording import counted

BUSY_MS = 500
"""An activity that takes longer is reported while it lasts."""


def report(
    state: LoopState, now_ms: int, waiting: tuple[str, ...] = (), activity: Activity | None = None
) -> LoopReport:
    """Returns the report for this moment.

    ``waiting``: why tasks that are to be open are not; ``activity``: what the thread has not finished yet.
    """
    due_ms = state.schedule.at_ms(Deadline.COMMIT)
    busy = "" if activity is None else _busy_text(activity, now_ms)
    return LoopReport(
        life=state.life.value,
        commit_due_ms=0 if due_ms is None else due_ms - now_ms,
        commit_took_ms=state.last_commit_ms,
        commit="; ".join(_commit_texts(state, now_ms, busy)),
        poll=f"skipped: {busy}" if busy else _poll_text(state),
        tasks=_tasks_text(state, waiting),
    )


def _busy_text(activity: Activity, now_ms: int) -> str:
    """Describes work that has lasted for some time."""
    for_ms = now_ms - activity.since_ms
    if for_ms < BUSY_MS:
        return ""
    match activity.action:
        case Wait():
            return ""
        case ProcessTasks():
            text = f"it has been processing records for {for_ms} ms"
        case CommitAll() | CommitBeforeClose():
            text = (
                f"it has been committing for {for_ms} ms; a commit waits until the brokers have acknowledged everything"
            )
        case Assign() | CloseLostTasks() | ReleaseAll() | AdvanceTasks():
            text = f"it has been opening and closing tasks for {for_ms} ms"
        case action:
            text = f"it has been busy with {type(action).__name__} for {for_ms} ms"
    return f"{text}: {activity.where}" if activity.where else text


def _commit_texts(state: LoopState, now_ms: int, busy: str) -> Iterator[str]:
    """Yields why the next commit is already late, and why earlier ones were late or slow, newest first."""
    late_ms = now_ms - (state.schedule.at_ms(Deadline.COMMIT) or now_ms)
    if busy and late_ms > 0:
        yield f"the commit is {late_ms} ms late: {busy}"
    texts = [(late.at_ms, late_commit_text(late)) for late in (state.late_commit,) if late is not None]
    texts += [(slow.at_ms, slow_commit_text(slow)) for slow in (state.slow_commit,) if slow is not None]
    for at_ms, text in sorted(texts, reverse=True):
        yield f"{(now_ms - at_ms) // 1000} s ago {text}"


def slow_commit_text(slow: SlowCommit) -> str:
    """Explains why a commit was slow, as far as the loop knows."""
    return f"a commit took {slow.took_ms} ms: it waits until the brokers have acknowledged everything"


def late_commit_text(late: LateCommit) -> str:
    """Explains why a commit was late."""
    iteration = late.iteration
    parts = {
        f"processed {counted(late.records, 'record')} for {iteration.processed_ms} ms": iteration.processed_ms,
        f"closed and opened tasks, as the group had assigned, for {iteration.assigned_ms} ms": iteration.assigned_ms,
        f"waited for input and took it in for {iteration.polled_ms} ms": iteration.polled_ms,
    }
    text, took_ms = max(parts.items(), key=lambda part: part[1])
    if 2 * took_ms < late.late_ms:
        text = "did not cause this: a commit before it, or the whole process, took longer"
    return f"the commit began {late.late_ms} ms late: the iteration before it {text}"


def _poll_text(state: LoopState) -> str:
    if state.is_paused:
        return "paused: input is fetched and not processed until resume()"
    if not state.is_polling:
        return "skipped: input that was fetched is still being processed"
    if state.advanced:
        return "all input that was fetched is processed: it waits for more"
    return f"there is no input that can be processed: it waits, up to {state.settings.poll_ms} ms at a time"


def _tasks_text(state: LoopState, waiting: tuple[str, ...]) -> tuple[str, ...]:
    if state.life is not Life.RUNNING:
        return (f"the loop {state.life.value}", *waiting)
    if state.wanted is None:
        return ("this member waits for its assignment", *state.trouble, *state.statuses, *waiting)
    if not state.wanted:
        return ("the group has no task for this member", *state.trouble, *state.statuses, *waiting)
    return (*state.trouble, *state.statuses, *waiting)
