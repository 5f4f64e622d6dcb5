"""The assignor ``sticky``: few moves, equal loads. Behaves like Kafka's StickyTaskAssignor for streams groups.

1. A task stays with the member that runs it, as long as the member's share of active tasks is not exceeded; else it
   goes to a member that has it as a standby task; else to the process with the least load, and there to the member with
   the least. Load is tasks per member of a process.
2. Each task with state gets standby tasks on other processes: first where it ran before, then where it was a standby,
   then where the load is least; fewer if there are not enough processes. A process never has a task twice.
3. A member whose topology is behind the group's gets no task that it does not have; the others share the rest.
4. An assignment that is complete and as equal as the result of these rules does not change. The rules are applied to
   their own result until that is so, a few times at most: the same group is not assigned again without a reason.
5. The result depends on the values only: ties go to the smallest process id, then to the smallest member id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from streamsrt.assignment.placement import AssignorMember, Placement
from streamsrt.assignment.tasks import TaskId, Tasks, tasks_of

ROUNDS_MAX = 5


def assign(
    members: Iterable[AssignorMember],
    *,
    task_counts: Mapping[str, int],
    stateful: frozenset[str],
    num_standby_replicas: int,
    rack_tags: tuple[str, ...] = (),
    excluded: frozenset[TaskId] = frozenset(),
) -> dict[str, Tasks]:
    """Returns target tasks by member id.

    ``task_counts``: tasks of each subtopology. ``stateful``: the subtopologies with state. ``rack_tags``: tags of the
    clients in which the copies of a task are to differ. ``excluded``: tasks that are not to be assigned. Without a member
    that may take new tasks, tasks that nobody has stay unassigned.
    """
    ordered = sorted(members, key=lambda member: member.member_id)
    had = {member.member_id: member.previous for member in ordered}
    tasks = tasks_of(task_counts, excluded)
    for _ in range(ROUNDS_MAX):
        made = _assigned(ordered, tasks, stateful, num_standby_replicas, rack_tags)
        if made == had or is_as_good(had, made, ordered, rack_tags):
            return had
        had = made
        ordered = [replace(member, previous=made[member.member_id]) for member in ordered]
    return had


def _assigned(
    members: list[AssignorMember],
    tasks: list[TaskId],
    stateful: frozenset[str],
    num_standby_replicas: int,
    rack_tags: tuple[str, ...],
) -> dict[str, Tasks]:
    work = Placement(members, num_standby_replicas, rack_tags)
    work.assign_active(tasks)
    if num_standby_replicas:
        work.assign_standby([task for task in tasks if task.subtopology_id in stateful])
    return {
        member.member_id: Tasks(frozenset(work.active[member.member_id]), frozenset(work.standby[member.member_id]))
        for member in members
    }


def is_as_good(
    had: Mapping[str, Tasks], made: Mapping[str, Tasks], members: list[AssignorMember], rack_tags: tuple[str, ...] = ()
) -> bool:
    """Whether ``had`` assigns every task as often as ``made``, never twice to a process, with as much separation, and as
    equally."""
    processes = {member.member_id: member.process_id for member in members}
    if _census(had) != _census(made):
        return False
    held: set[tuple[str, TaskId]] = set()
    for name, tasks in had.items():
        for task in (*tasks.active, *tasks.standby, *tasks.warmup):
            if (processes[name], task) in held:
                return False
            held.add((processes[name], task))
    if rack_tags and _apartness(had, members, rack_tags) < _apartness(made, members, rack_tags):
        return False
    return _spreads(had, processes) <= _spreads(made, processes)


def _census(assignment: Mapping[str, Tasks]) -> Counter[tuple[str, TaskId]]:
    """Counts each task in each role."""
    found: Counter[tuple[str, TaskId]] = Counter()
    for tasks in assignment.values():
        found.update(("active", task) for task in tasks.active)
        found.update(("standby", task) for task in tasks.standby)
        found.update(("warmup", task) for task in tasks.warmup)
    return found


def _apartness(assignment: Mapping[str, Tasks], members: list[AssignorMember], rack_tags: tuple[str, ...]) -> int:
    """Counts the different tag values of the tasks' copies, in total."""
    tags = {member.member_id: member.tags for member in members}
    return len(
        {
            (task, tag, tags[name][tag])
            for name, tasks in assignment.items()
            for task in (*tasks.active, *tasks.standby)
            for tag in rack_tags
            if tag in tags[name]
        }
    )


def _spreads(assignment: Mapping[str, Tasks], processes: Mapping[str, str]) -> list[float]:
    """Returns the load differences between the most and the least loaded: of processes and of members of a process;
    active tasks, then all."""
    active: dict[str, list[int]] = {}
    every: dict[str, list[int]] = {}
    for name, tasks in assignment.items():
        active.setdefault(processes[name], []).append(len(tasks.active))
        every.setdefault(processes[name], []).append(len(tasks.active) + len(tasks.standby))
    found: list[float] = []
    for loads in (active, every):
        means = [sum(counts) / len(counts) for counts in loads.values()]
        found.append(max(means, default=0) - min(means, default=0))
        found.append(max((max(counts) - min(counts) for counts in loads.values()), default=0))
    return found
