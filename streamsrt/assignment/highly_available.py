"""The assignor ``highly_available``: tasks with state run where their state is, and move when the new place has caught
up.

After Kafka's HighAvailabilityTaskAssignor, on the offsets that members report (KIP-1071, "Using cumulative task changelog
offsets"):

1. ``sticky`` decides where a task will run in the end; it treats a warm-up task as a task that has already moved.
2. A task with state is active there if the process is caught up with it: the newest end offset that anybody reported, less
   the offset that the process reported, is at most the acceptable recovery lag. A member that holds the active task counts
   as caught up unless its own report says otherwise.
3. Otherwise it stays with a caught-up process, or, if there is none, with the one that has most of its state, and a
   warm-up task catches up where it will run. Running warm-up tasks come first; there are at most
   ``num_warmup_replicas``.
4. A process that is caught up never keeps or gets a warm-up task: the next target has the task there as active or standby
   task, or not at all.
5. A member that reports no offsets would never be seen to catch up, nor would any member if no warm-up tasks are
   allowed: tasks move there at once, as with ``sticky``.
6. Standby tasks go to other processes than the active and the warm-up task; tasks without state have neither.
7. Members with an older topology only lose tasks. Results are stable and the same in every process, as with ``sticky``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from streamsrt.assignment import sticky
from streamsrt.assignment.placement import AssignorMember, Placement
from streamsrt.assignment.progress import StateProgress
from streamsrt.assignment.tasks import TaskId, Tasks, tasks_of

ROUNDS_MAX = 5


@dataclass(frozen=True, slots=True)
class _Problem:
    """The inputs that do not change while the assignor looks for a stable result."""

    task_counts: Mapping[str, int]
    stateful: frozenset[str]
    num_standby_replicas: int
    num_warmup_replicas: int
    rack_tags: tuple[str, ...]
    excluded: frozenset[TaskId]
    progress: StateProgress


def assign(
    members: Iterable[AssignorMember],
    *,
    task_counts: Mapping[str, int],
    stateful: frozenset[str],
    num_standby_replicas: int,
    num_warmup_replicas: int,
    acceptable_recovery_lag: int,
    rack_tags: tuple[str, ...] = (),
    excluded: frozenset[TaskId] = frozenset(),
) -> dict[str, Tasks]:
    """Returns target tasks by member id; see ``sticky.assign`` for the shared arguments."""
    heard = list(members)
    progress = StateProgress(heard, acceptable_recovery_lag)
    problem = _Problem(task_counts, stateful, num_standby_replicas, num_warmup_replicas, rack_tags, excluded, progress)
    ordered = sorted(heard, key=lambda member: member.member_id)
    had = {member.member_id: member.previous for member in ordered}
    for _ in range(ROUNDS_MAX):
        made = _assigned(ordered, problem)
        if made == had or (_same_but_standby(had, made) and sticky.is_as_good(had, made, ordered, rack_tags)):
            return had
        had = made
        ordered = [replace(member, previous=made[member.member_id]) for member in ordered]
    return had


def _same_but_standby(had: Mapping[str, Tasks], made: Mapping[str, Tasks]) -> bool:
    return all(had[name].active == made[name].active and had[name].warmup == made[name].warmup for name in made)


def _assigned(members: list[AssignorMember], problem: _Problem) -> dict[str, Tasks]:
    ideal = _ideal_owners(members, problem)
    work = Placement(members, problem.num_standby_replicas, problem.rack_tags)
    late: list[TaskId] = []
    for task in sorted(ideal, key=lambda task: (task.partition, task.subtopology_id)):
        owner = ideal[task]
        member = work.members[owner]
        if task.subtopology_id not in problem.stateful or _may_run_at(member, task, problem):
            work.give(work.active, owner, task)
        else:
            late.append(task)
    moves = [task for task in late if _settle(work, task, ideal[task], problem.progress)]
    warmups = _warm_up(work, moves, ideal, problem.num_warmup_replicas)
    if problem.num_standby_replicas:
        tasks = tasks_of(problem.task_counts, problem.excluded)
        work.assign_standby([task for task in tasks if task.subtopology_id in problem.stateful])
    return {
        member.member_id: Tasks(
            frozenset(work.active[member.member_id]),
            frozenset(work.standby[member.member_id]),
            frozenset(warmups[member.member_id]),
        )
        for member in members
    }


def _ideal_owners(members: list[AssignorMember], problem: _Problem) -> dict[TaskId, str]:
    """Returns where each task should run once all state is in place."""
    moving = {task for member in members for task in member.previous.warmup}
    intents = {m.member_id: (m.previous.active - moving) | m.previous.warmup for m in members}
    owned = frozenset(task for tasks in intents.values() for task in tasks)
    ideal = sticky.assign(
        [replace(m, previous=Tasks(intents[m.member_id], m.previous.standby - owned)) for m in members],
        task_counts=problem.task_counts,
        stateful=problem.stateful,
        num_standby_replicas=0,
        excluded=problem.excluded,
    )
    return {task: name for name, tasks in ideal.items() for task in tasks.active}


def _may_run_at(member: AssignorMember, task: TaskId, problem: _Problem) -> bool:
    if problem.progress.has(member.process_id, task) or not problem.num_warmup_replicas:
        return True
    return member.offsets is None and not member.previous.warmup


def _settle(work: Placement, task: TaskId, ideal: str, progress: StateProgress) -> bool:
    """Makes the task active at the process with most of its state; returns whether it should run elsewhere later."""
    processes = progress.caught_up(task)
    if not processes:
        best = progress.furthest(task, work.members[ideal].process_id)
        processes = [best] if best is not None else []
    names = [name for process in processes for name in _takers(work, process, task)]
    if not names:
        work.give(work.active, ideal, task)
        return False
    holders = [name for name in names if task in work.members[name].previous.active] or [
        name for name in names if task in work.members[name].previous.passive
    ]
    chosen = work.least_loaded(holders or names)
    assert chosen is not None
    work.give(work.active, chosen, task)
    return work.members[chosen].process_id != work.members[ideal].process_id


def _takers(work: Placement, process_id: str, task: TaskId) -> list[str]:
    """Returns the members of a process that may get the task."""
    process = work.processes.get(process_id)
    if process is None:
        return []
    had = [(name, work.members[name].previous) for name in process.stale]
    return process.members + [name for name, tasks in had if task in tasks.active or task in tasks.passive]


def _warm_up(work: Placement, moves: list[TaskId], ideal: Mapping[TaskId, str], at_most: int) -> dict[str, set[TaskId]]:
    warmups: dict[str, set[TaskId]] = {name: set() for name in work.members}
    going_on = [task for task in moves if task in work.members[ideal[task]].previous.warmup]
    first = set(going_on)
    for task in (going_on + [task for task in moves if task not in first])[:at_most]:
        work.give(warmups, ideal[task], task)
    return warmups
