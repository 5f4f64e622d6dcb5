"""Decides what the processing thread does next: ``step(state, event, now_ms) -> (state, actions)``.

1. Nothing here reads a clock, touches a task or waits; ``now_ms`` is a clock that never goes back.
2. An iteration waits for input only if the last one found nothing to process and no asynchronous calls are pending; at
   most ``poll.ms``, and not beyond the next commit. Fetched input alone does not end the wait, because a task may wait
   for its other partitions (``max.task.idle.ms``).
3. Outputs are sent every ``linger.ms``; while there are any, nothing is waited for longer than that. Tasks are committed
   every ``commit.interval.ms``, counted from the end of the last commit, or when one of them requests it; repartition
   topics are purged after a commit. If a commit took longer than the interval, records are processed for the same time,
   up to a second, before the next one: a busy machine does not commit a few records at a time, and one that had to wait
   for the cluster commits again soon.
   Where that takes long, and the loop comes to wait, they are committed in parts
   (:mod:`streamsrt.runtime.loop.commit_parts`).
4. A loop that is stopped leaves the group and processes until the coordinator has confirmed it: at most fifteen seconds
   after its tasks were released, which may take as long as asynchronous calls. A loop that remains in the group only
   commits and ends.
5. A lost membership ends every task without a commit; the next assignment begins a new membership. With the first
   assignment of a membership, before a task is opened, the thread checks whether other members run another version.
6. A member is RUNNING when the tasks that the group gave it are open, or when the group has none for it. Where the group
   delays its first assignment, no member is.
7. The last late commit is kept together with the iteration that delayed it, and so is the last slow one, so that the
   reason can be reported later. At most one of them is logged every ten seconds.
"""

from __future__ import annotations

from typing import TypeAlias

from streamsrt.assignment.status_code import StatusCode
from streamsrt.errors import MissingTopicError, UserError
from streamsrt.membership.statuses import (
    ADVICE,
    instance_id_taken_text,
    is_short_delay,
    status_text,
)
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    EndpointsChanged,
    EpochChanged,
    HeartbeatRecovered,
    HeartbeatTrouble,
    InstanceIdTaken,
    LeftGroup,
    MembershipFailed,
    ReleaseTasks,
    SourceTopicsMissing,
    StatusChanged,
    TasksLost,
)
from streamsrt.runtime.lifecycle import GroupMembershipOperation
from streamsrt.runtime.loop.commit_parts import parts_for
from streamsrt.runtime.loop.report import late_commit_text, slow_commit_text
from streamsrt.runtime.loop.schedule import Deadline, Schedule
from streamsrt.runtime.loop.values import (
    Action,
    AdvanceTasks,
    AnswerQueries,
    Assign,
    CheckVersion,
    CleanUp,
    CloseLostTasks,
    CommitAll,
    CommitBeforeClose,
    Committed,
    DrainChecked,
    InputTaken,
    IterationBegan,
    IterationEnded,
    IterationTimes,
    LateCommit,
    LeaveGroup,
    Life,
    LoopEvent,
    LoopSettings,
    LoopState,
    MeasureMemory,
    Note,
    PollEnded,
    Processed,
    ProcessTasks,
    Publish,
    PurgeRepartitionTopics,
    RecheckSources,
    ReleaseAll,
    Released,
    ReportOffsets,
    SendOutputs,
    ShowState,
    SlowCommit,
    StopRequested,
    UpdateRouting,
    Wait,
    Warn,
)
from streamsrt.runtime.values import State

Step: TypeAlias = tuple[LoopState, tuple[Action, ...]]

RECORDS_PER_TASK_AND_ITERATION = 20_000
FIRST_RECORDS_PER_TASK_AND_ITERATION = 64
"""Where iterations are limited in time, until it is known how long a record takes. Doubled by each short iteration."""
LEAVE_TIMEOUT_MS = 15_000
UNHEARD_TIMEOUT_MS = 3_000
"""How long a member tries to leave if the cluster has not even taken its last commit."""
DRAIN_CHECK_INTERVAL_MS = 100
NO_TASKS_MS = 15_000
"""How long a member without tasks is taken for one that will get some: at the start of a group tasks come late."""
PUBLISH_INTERVAL_MS = 100
MEMORY_INTERVAL_MS = 1_000
OFFSETS_INTERVAL_MS = 500
"""How often the offsets of the tasks' state are reported to the membership, which decides when it sends them."""
PUBLISH_INTERVAL_PER_TASK_MS = 2
OFFSETS_INTERVAL_PER_TASK_MS = 2
MEMORY_INTERVAL_PER_TASK_MS = 5
"""A snapshot and the offsets look at every task, a measurement of memory at every store: with many tasks they are rarer."""
LATE_COMMIT_MS = 100
SLOW_COMMIT_MS = 1_000
AFTER_SLOW_COMMIT_MAX_MS = 1_000
"""How long records are processed before the next commit, where the interval is shorter than what the last one took."""
LATE_COMMIT_LOG_INTERVAL_MS = 10_000


def initial(settings: LoopSettings, now_ms: int) -> LoopState:
    """Returns the state of a loop that starts now."""
    schedule = Schedule.of(
        {
            Deadline.COMMIT: now_ms + settings.commit_interval_ms,
            Deadline.SEND: now_ms + settings.linger_ms,
            Deadline.PURGE: now_ms + settings.purge_interval_ms,
            Deadline.REPORT_OFFSETS: now_ms,
            Deadline.PUBLISH: now_ms,
            Deadline.MEASURE_MEMORY: now_ms,
            Deadline.LOG_LATE_COMMIT: now_ms,
            Deadline.CHECK_DRAINED: now_ms,
        }
    )
    limit = FIRST_RECORDS_PER_TASK_AND_ITERATION if settings.iteration_max_ms else RECORDS_PER_TASK_AND_ITERATION
    return LoopState(settings, schedule, limit)


def step(state: LoopState, event: LoopEvent, now_ms: int) -> Step:
    """Handles an event: returns the new state and the actions."""
    match event:
        case IterationBegan(has_work, wait_max_ms):
            return _begin(state, has_work, wait_max_ms, now_ms)
        case PollEnded():
            return state._replace(
                iteration=state.iteration._replace(at_ms=now_ms, polled_ms=now_ms - state.iteration.at_ms)
            ), ()
        case InputTaken(is_paused):
            return _advance(state, is_paused, now_ms)
        case Processed():
            return _after_processing(state, event, now_ms)
        case Committed():
            return _after_commit(state, event, now_ms)
        case IterationEnded(is_settled):
            return _end_iteration(state, is_settled, now_ms)
        case DrainChecked():
            return _set(state, Deadline.CHECK_DRAINED, now_ms + DRAIN_CHECK_INTERVAL_MS), ()
        case StopRequested(operation):
            return _stop(state, operation, now_ms)
        case _:
            return _on_group_event(state, event, now_ms)


def has_assignment(state: LoopState) -> bool:
    """Whether the group has given this member its tasks, which may be none.

    While the group delays an assignment for seconds, a member without tasks waits for its first ones: that is not an
    assignment yet.
    """
    return bool(state.wanted) or (state.wanted is not None and not state.is_delayed)


def may_be_drained(state: LoopState, now_ms: int) -> bool:
    """Whether it is worth checking if all input is processed.

    A member without tasks has nothing to process when it has had none for a while, and the group says nothing of why.
    """
    if state.wanted is None or not state.schedule.is_due(Deadline.CHECK_DRAINED, now_ms):
        return False
    return bool(state.wanted) or not (state.statuses or now_ms - state.assigned_at_ms < NO_TASKS_MS)


def _set(state: LoopState, what: Deadline, at_ms: int) -> LoopState:
    return state._replace(schedule=state.schedule.set(what, at_ms))


# ---------------------------------------------------------------------------------------------------------- an iteration


def _begin(state: LoopState, has_work: bool, wait_max_ms: int | None, now_ms: int) -> Step:
    began = state._replace(iteration=IterationTimes(at_ms=now_ms), is_polling=not (state.advanced and has_work))
    if not began.is_polling:
        return began, (AnswerQueries(),)
    limits_ms = [state.settings.poll_ms, *(() if wait_max_ms is None else (wait_max_ms,))]
    sends = state.has_outputs and not state.is_paused
    awaited = (Deadline.COMMIT, Deadline.COMMIT_SOME, *((Deadline.SEND,) if sends else ()))
    limits_ms += [at_ms - now_ms for what in awaited if (at_ms := state.schedule.at_ms(what)) is not None]
    return began, (Wait(max(0, min(limits_ms))),)


def _advance(state: LoopState, is_paused: bool, now_ms: int) -> Step:
    iteration = state.iteration._replace(at_ms=now_ms, assigned_ms=now_ms - state.iteration.at_ms)
    taken = state._replace(iteration=iteration, is_paused=is_paused)
    if taken.life is Life.LEAVING and taken.schedule.is_due(Deadline.LEAVE_TIMEOUT, now_ms):
        text = (
            "the group coordinator did not confirm that this member left; it removes the member when its session ends"
        )
        return taken._replace(life=Life.ENDED), (Warn(text), CommitAll())
    if taken.life is Life.ENDED:
        return taken, ()
    return taken, (AdvanceTasks(),) if is_paused else (AdvanceTasks(), ProcessTasks(taken.limit_records))


def _after_processing(state: LoopState, event: Processed, now_ms: int) -> Step:
    records, commit_requested = event.records, event.commit_requested
    took_ms = now_ms - state.iteration.at_ms
    iteration = state.iteration._replace(at_ms=now_ms, processed_ms=took_ms)
    schedule, actions = state.schedule, list[Action]()
    has_outputs = state.has_outputs or records > 0
    # Processed records must not wait longer than the linger time for more records of the same partition.
    if not state.is_paused and schedule.is_due(Deadline.SEND, now_ms):
        schedule, has_outputs = schedule.set(Deadline.SEND, now_ms + state.settings.linger_ms), False
        actions.append(SendOutputs())
    is_due = schedule.is_due(Deadline.COMMIT, now_ms)
    if commit_requested or is_due:
        commits: tuple[Action, ...] = (CommitAll(),)
    elif state.is_polling and schedule.is_due(Deadline.COMMIT_SOME, now_ms):
        commits = (CommitAll(state.commit_parts),)
    else:
        commits = ()
    actions += commits
    if commits and schedule.is_due(Deadline.PURGE, now_ms):
        schedule = schedule.set(Deadline.PURGE, now_ms + state.settings.purge_interval_ms)
        actions.append(PurgeRepartitionTopics())
    late = _lateness(state, iteration, records, now_ms) if is_due else None
    if late is not None and schedule.is_due(Deadline.LOG_LATE_COMMIT, now_ms):
        schedule = schedule.set(Deadline.LOG_LATE_COMMIT, now_ms + LATE_COMMIT_LOG_INTERVAL_MS)
        actions.append(Note(late_commit_text(late)))
    processed = state._replace(
        iteration=iteration,
        schedule=schedule,
        has_outputs=has_outputs,
        advanced=records > 0 or (event.is_calling and not state.is_paused),
        late_commit=late or state.late_commit,
        limit_records=_next_limit(state, records, took_ms) if records else state.limit_records,
    )
    return processed, tuple(actions)


def _lateness(state: LoopState, iteration: IterationTimes, records: int, now_ms: int) -> LateCommit | None:
    late_ms = now_ms - (state.schedule.at_ms(Deadline.COMMIT) or now_ms)
    if late_ms < max(LATE_COMMIT_MS, state.settings.commit_interval_ms // 10):
        return None
    return LateCommit(late_ms, iteration, records, now_ms)


def _next_limit(state: LoopState, records: int, took_ms: int) -> int:
    """Returns how many records of a task the next iteration may process, given those of this one and its duration.

    The limit grows only while it is reached: a few records that were quick do not prove that twenty thousand will be.
    """
    limit, iteration_max_ms = state.limit_records, state.settings.iteration_max_ms
    if not iteration_max_ms:
        return limit
    if took_ms > iteration_max_ms:
        return max(1, min(limit, records) * iteration_max_ms // took_ms)
    is_short = took_ms * 2 < iteration_max_ms and records >= limit
    return min(RECORDS_PER_TASK_AND_ITERATION, limit * 2) if is_short else limit


def _after_commit(state: LoopState, event: Committed, now_ms: int) -> Step:
    took_ms, interval_ms = now_ms - state.iteration.at_ms, state.settings.commit_interval_ms
    pause_ms = max(interval_ms, min(took_ms, AFTER_SLOW_COMMIT_MAX_MS))
    parts = parts_for(event, took_ms, interval_ms)
    part_ms = pause_ms // parts
    if event.committed < event.tasks:
        # If there is no time for the next part, all tasks are committed a little later.
        part_ms = max(pause_ms * event.committed // event.tasks, min(took_ms, AFTER_SLOW_COMMIT_MAX_MS))
        pause_ms = part_ms + part_ms // 2
    schedule, actions = state.schedule.set(Deadline.COMMIT, now_ms + pause_ms), list[Action]()
    if parts > 1:
        schedule = schedule.set(Deadline.COMMIT_SOME, now_ms + part_ms)
    elif state.commit_parts > 1:
        schedule = schedule.without(Deadline.COMMIT_SOME)
    slow = SlowCommit(took_ms, now_ms) if took_ms >= SLOW_COMMIT_MS else None
    if slow is not None and schedule.is_due(Deadline.LOG_LATE_COMMIT, now_ms):
        schedule = schedule.set(Deadline.LOG_LATE_COMMIT, now_ms + LATE_COMMIT_LOG_INTERVAL_MS)
        actions.append(Note(slow_commit_text(slow)))
    committed = state._replace(
        iteration=state.iteration._replace(at_ms=now_ms),
        schedule=schedule,
        has_outputs=False,
        commit_parts=parts,
        last_commit_ms=took_ms,
        slow_commit=slow or state.slow_commit,
    )
    return committed, tuple(actions)


def _end_iteration(state: LoopState, is_settled: bool, now_ms: int) -> Step:
    schedule = state.schedule
    actions: list[Action] = [CleanUp()]
    tasks = len(state.wanted or NOTHING)
    if schedule.is_due(Deadline.REPORT_OFFSETS, now_ms):
        pause_ms = max(OFFSETS_INTERVAL_MS, OFFSETS_INTERVAL_PER_TASK_MS * tasks)
        schedule = schedule.set(Deadline.REPORT_OFFSETS, now_ms + pause_ms)
        actions.append(ReportOffsets())
    if is_settled and has_assignment(state) and state.life is Life.RUNNING:
        actions.append(ShowState(State.RUNNING))
    if schedule.is_due(Deadline.PUBLISH, now_ms):
        pause_ms = max(PUBLISH_INTERVAL_MS, PUBLISH_INTERVAL_PER_TASK_MS * tasks)
        schedule = schedule.set(Deadline.PUBLISH, now_ms + pause_ms)
        if schedule.is_due(Deadline.MEASURE_MEMORY, now_ms):
            pause_ms = max(MEMORY_INTERVAL_MS, MEMORY_INTERVAL_PER_TASK_MS * tasks)
            schedule = schedule.set(Deadline.MEASURE_MEMORY, now_ms + pause_ms)
            actions.append(MeasureMemory())
        actions.append(Publish())
    return state._replace(schedule=schedule), tuple(actions)


# -------------------------------------------------------------------------------------------------------------- leaving


def _stop(state: LoopState, operation: GroupMembershipOperation, now_ms: int) -> Step:
    if state.life not in {Life.RUNNING, Life.STOPPING}:
        return state, ()
    shown = Note("committing and leaving the group"), ShowState(State.PENDING_SHUTDOWN)
    if operation is GroupMembershipOperation.REMAIN_IN_GROUP and not state.settings.is_static:
        # No leave request: the group keeps the member's tasks until its session expires.
        return state._replace(life=Life.ENDED), (*shown, CommitBeforeClose())
    # A static member will return: its tasks wait for it until its session expires.
    remain = state.failure is None and operation is not GroupMembershipOperation.LEAVE_GROUP
    leaving = _set(state._replace(life=Life.LEAVING), Deadline.LEAVE_TIMEOUT, now_ms + LEAVE_TIMEOUT_MS)
    return leaving, (*shown, LeaveGroup(remain=remain))


# ------------------------------------------------------------------------------------------------------------ the group


def _on_group_event(state: LoopState, event: LoopEvent, now_ms: int) -> Step:
    match event:
        case AssignmentChanged(tasks, epoch, why):
            assigned = state._replace(wanted=tasks, assigned_at_ms=now_ms, trouble=())
            joined = (CheckVersion(),) if state.wanted is None else ()
            return assigned, (ShowState(State.REBALANCING), *joined, Assign(tasks, epoch, why))
        case TasksLost(reason):
            return state._replace(wanted=None), (CloseLostTasks(reason), ShowState(State.REBALANCING))
        case ReleaseTasks():
            return state, (ReleaseAll(),)
        case Released(is_given_up):
            # The member leaves only now, however long the last commit took.
            leaving, timeout_ms = state.life is Life.LEAVING, UNHEARD_TIMEOUT_MS if is_given_up else LEAVE_TIMEOUT_MS
            return _set(state, Deadline.LEAVE_TIMEOUT, now_ms + timeout_ms) if leaving else state, ()
        case EpochChanged():
            return state, (RecheckSources(),)
        case EndpointsChanged(partitions):
            return state, (UpdateRouting(partitions),)
        case MembershipFailed(error):
            return state._replace(failure=error, life=Life.ENDED), ()
        case LeftGroup():
            return state._replace(life=Life.ENDED), ()
        case _:
            return _take_note(state, event), ()


def _take_note(state: LoopState, event: LoopEvent) -> LoopState:
    match event:
        case StatusChanged():
            return _take_statuses(state, event)
        case SourceTopicsMissing(detail):
            return _ends_with(
                state,
                MissingTopicError(
                    f"the application can't run without its source topics: {detail} Create them (streamsrt topics create "
                    "NAME --partitions N) and start it again."
                ),
            )
        case HeartbeatTrouble(reason):
            text = (
                f"the group coordinator does not answer: {reason.removesuffix('.')}. Retrying; the tasks continue as long "
                "as the session lasts. Check that the broker runs"
            )
            return state._replace(trouble=(text,))
        case InstanceIdTaken(wait_ms):
            return state._replace(trouble=(instance_id_taken_text(wait_ms),))
        case HeartbeatRecovered():
            return state._replace(trouble=())
        case _:
            return state


def _take_statuses(state: LoopState, event: StatusChanged) -> LoopState:
    texts = tuple(status_text(status, is_classic=event.is_classic) for status in event.statuses)
    is_delayed = any(is_short_delay(status) for status in event.statuses)
    updated = state._replace(statuses=texts, is_delayed=is_delayed)
    for status in event.statuses:
        if status.code is StatusCode.SHUTDOWN_APPLICATION:
            updated = _stopping(updated)._replace(was_shut_down=True)
        elif status.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS:
            text = f"the topics of the application don't fit together: {status.detail.rstrip('. ')}. {ADVICE[status.code]}."
            updated = _ends_with(updated, UserError(text))
    return updated


def _ends_with(state: LoopState, error: MissingTopicError | UserError) -> LoopState:
    return _stopping(state)._replace(failure=error)


def _stopping(state: LoopState) -> LoopState:
    return state._replace(life=Life.STOPPING) if state.life is Life.RUNNING else state
