"""Why the loop does what it does, in words, out of its state alone."""

from __future__ import annotations

from streamsrt.runtime.loop.schedule import Deadline
from streamsrt.runtime.loop.values import LateCommit, Life, LoopState
from streamsrt.runtime.values import LoopReport


def report(state: LoopState, now_ms: int, waiting: tuple[str, ...] = ()) -> LoopReport:
    """What is to be said at this moment. ``waiting``: why tasks that are to be open are not."""
    due_ms = state.schedule.at_ms(Deadline.COMMIT)
    return LoopReport(
        life=state.life.value,
        commit_due_ms=0 if due_ms is None else due_ms - now_ms,
        commit_took_ms=state.last_commit_ms,
        commit="" if state.late_commit is None else late_commit_text(state.late_commit),
        poll=_poll_text(state),
        tasks=_tasks_text(state, waiting),
    )


def late_commit_text(late: LateCommit) -> str:
    """Why a commit was late."""
    iteration = late.iteration
    parts = {
        f"processed {late.records} records for {iteration.processed_ms} ms": iteration.processed_ms,
        f"closed and opened tasks, as the group had assigned, for {iteration.assigned_ms} ms": iteration.assigned_ms,
        f"waited for input and took it in for {iteration.polled_ms} ms": iteration.polled_ms,
    }
    text, took_ms = max(parts.items(), key=lambda part: part[1])
    if 2 * took_ms < late.late_ms:
        text = "was not what kept it: a commit before it, or the whole process, took longer"
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
