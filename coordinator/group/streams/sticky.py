"""The assignor ``sticky``: few moves, equal loads. Behaves like Kafka's StickyTaskAssignor for streams groups.

1. A task stays with the member that runs it, as long as the member's share of active tasks is not exceeded; else it
   goes to a member that has it as a standby task; else to the process with the least load, and there to the member with
   the least. Load is tasks per member of a process.
2. Each task with state gets standby tasks on other processes: first where it ran before, then where it was a standby,
   then where the load is least; fewer if there are not enough processes. A process never has a task twice.
3. A member whose topology is behind the group's gets no task that it does not have; the others share the rest.
4. What the members have stays as it is if it is complete and as equal as what these rules make of it. They are applied to
   their own result until that is so, a few times at most: the same group is not assigned anew without a reason.
5. The result depends on the values only: ties go to the smallest process id, then to the smallest member id.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from coordinator.group.streams.tasks import TaskId, Tasks

ROUNDS_MAX = 5


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """A member as the assignor sees it: ``previous`` is its target so far, ``is_stale`` that it may only lose tasks."""

    member_id: str
    process_id: str
    previous: Tasks
    is_stale: bool = False


def assign(
    members: Iterable[AssignorMember],
    *,
    task_counts: Mapping[str, int],
    stateful: frozenset[str],
    num_standby_replicas: int,
) -> dict[str, Tasks]:
    """Target tasks by member id.

    ``task_counts``: tasks of each subtopology. ``stateful``: the subtopologies with state. Without a member that may
    take new tasks, tasks that nobody has stay unassigned.
    """
    ordered = sorted(members, key=lambda member: member.member_id)
    processes = {member.member_id: member.process_id for member in ordered}
    had = {member.member_id: member.previous for member in ordered}
    for _ in range(ROUNDS_MAX):
        made = _assigned(ordered, task_counts, stateful, num_standby_replicas)
        if made == had or _is_as_good(had, made, processes):
            return had
        had = made
        ordered = [replace(member, previous=made[member.member_id]) for member in ordered]
    return had


def _assigned(
    members: list[AssignorMember], task_counts: Mapping[str, int], stateful: frozenset[str], num_standby_replicas: int
) -> dict[str, Tasks]:
    work = _Work(members, num_standby_replicas)
    tasks = [TaskId(name, partition) for name, count in task_counts.items() for partition in range(count)]
    work.assign_active(tasks)
    if num_standby_replicas:
        work.assign_standby([task for task in tasks if task.subtopology_id in stateful])
    return {
        member.member_id: Tasks(frozenset(work.active[member.member_id]), frozenset(work.standby[member.member_id]))
        for member in members
    }


def _is_as_good(had: Mapping[str, Tasks], made: Mapping[str, Tasks], processes: Mapping[str, str]) -> bool:
    """Whether ``had`` gives every task as often as ``made``, never twice to a process, and loads are as equal."""
    if _census(had) != _census(made):
        return False
    held: set[tuple[str, TaskId]] = set()
    for name, tasks in had.items():
        for task in (*tasks.active, *tasks.standby, *tasks.warmup):
            if (processes[name], task) in held:
                return False
            held.add((processes[name], task))
    return _spreads(had, processes) <= _spreads(made, processes)


def _census(assignment: Mapping[str, Tasks]) -> Counter[tuple[str, TaskId]]:
    """How often each task is there in each role."""
    found: Counter[tuple[str, TaskId]] = Counter()
    for tasks in assignment.values():
        found.update(("active", task) for task in tasks.active)
        found.update(("standby", task) for task in tasks.standby)
        found.update(("warmup", task) for task in tasks.warmup)
    return found


def _spreads(assignment: Mapping[str, Tasks], processes: Mapping[str, str]) -> list[float]:
    """Differences between the most and the least loaded: of processes and of members of a process; active, then all."""
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


@dataclass(slots=True)
class _Process:
    """The members of a process that may take new tasks, and what all its members have."""

    process_id: str
    members: list[str] = field(default_factory=list)
    capacity: int = 0
    count: int = 0
    tasks: set[TaskId] = field(default_factory=set)

    @property
    def load(self) -> float:
        return self.count / self.capacity


class _Work:
    """An assignment in the making."""

    def __init__(self, members: list[AssignorMember], replicas: int) -> None:
        self.members = {member.member_id: member for member in members}
        self.replicas = replicas
        self.active: dict[str, set[TaskId]] = {member.member_id: set() for member in members}
        self.standby: dict[str, set[TaskId]] = {member.member_id: set() for member in members}
        self.counts: dict[str, int] = dict.fromkeys(self.members, 0)
        self.processes: dict[str, _Process] = {}
        self.previous_active: dict[TaskId, str] = {}
        self.previous_passive: dict[TaskId, list[str]] = {}
        for member in members:
            process = self.processes.setdefault(member.process_id, _Process(member.process_id))
            process.capacity += 1
            if not member.is_stale:
                process.members.append(member.member_id)
            for task in member.previous.active:
                self.previous_active[task] = member.member_id
            for task in member.previous.passive:
                self.previous_passive.setdefault(task, []).append(member.member_id)

    def assign_active(self, tasks: list[TaskId]) -> None:
        quota = _Quota(len(tasks), self.counts, self._stale_limits(frozenset(tasks)))
        left = []
        for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology_id)):
            owner = self.previous_active.get(task)
            if owner is None or not quota.take(owner):
                left.append(task)
            else:
                self._give(self.active, owner, task)
        rest = []
        for task in left:
            owner = self._least_loaded(self.previous_passive.get(task, []))
            if owner is None or not quota.take(owner):
                rest.append(task)
            else:
                self._give(self.active, owner, task)
        self._spread(sorted(rest), self.active)

    def assign_standby(self, tasks: list[TaskId]) -> None:
        total = sum(self.counts.values()) + len(tasks) * self.replicas
        quota = _Quota(total, self.counts, {})
        left: list[TaskId] = []
        for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology_id), reverse=True):
            for placed in range(self.replicas):
                owner = self._previous_holder(task)
                if owner is None or not quota.take(owner):
                    left.extend([task] * (self.replicas - placed))
                    break
                self._give(self.standby, owner, task)
        self._spread(sorted(left, reverse=True), self.standby)

    def _previous_holder(self, task: TaskId) -> str | None:
        """A member that had the task, in a process that does not have it now: the active one, else a passive one."""
        owner = self.previous_active.get(task)
        if owner is not None and task not in self._process(owner).tasks:
            return owner
        holders = [name for name in self.previous_passive.get(task, ()) if task not in self._process(name).tasks]
        return self._least_loaded(holders)

    def _spread(self, tasks: list[TaskId], role: dict[str, set[TaskId]]) -> None:
        """Gives each task to the process with the least load that does not have it, there to the least loaded member."""
        queue = [(process.load, name) for name, process in self.processes.items() if process.members]
        heapq.heapify(queue)
        lanes = {name: [(self.counts[member], member) for member in self.processes[name].members] for _, name in queue}
        for lane in lanes.values():
            heapq.heapify(lane)
        for task in tasks:
            passed = []
            while queue:
                load, name = heapq.heappop(queue)
                process = self.processes[name]
                if task in process.tasks:
                    passed.append((load, name))
                    continue
                count, member = lanes[name][0]
                self._give(role, member, task)
                heapq.heapreplace(lanes[name], (count + 1, member))
                passed.append((process.load, name))
                break
            for entry in passed:
                heapq.heappush(queue, entry)

    def _process(self, member_id: str) -> _Process:
        return self.processes[self.members[member_id].process_id]

    def _stale_limits(self, tasks: frozenset[TaskId]) -> dict[str, int]:
        """How many of ``tasks`` each stale member has in some role: it takes no more than these."""
        return {
            name: len((member.previous.active | member.previous.passive) & tasks)
            for name, member in self.members.items()
            if member.is_stale
        }

    def _least_loaded(self, names: list[str]) -> str | None:
        if not names:
            return None
        return min(names, key=lambda name: (self._process(name).load, self.counts[name], name))

    def _give(self, role: dict[str, set[TaskId]], member_id: str, task: TaskId) -> None:
        role[member_id].add(task)
        self.counts[member_id] += 1
        process = self._process(member_id)
        process.count += 1
        process.tasks.add(task)


class _Quota:
    """How many tasks a member may keep: an equal share, rounded up while there are members above the lower bound.

    When a member is full, its share leaves the pool, so that no more members than necessary get the larger share. A
    member that cannot take its share (``limits``) leaves the pool at once with what it can take.
    """

    def __init__(self, tasks: int, counts: Mapping[str, int], limits: Mapping[str, int]) -> None:
        self._tasks = tasks
        self._counts = dict(counts)
        self._open = set(counts)
        self._limits: dict[str, int] = {}
        self._share = self._computed()
        for name in sorted(limits, key=lambda name: (limits[name], name)):
            if limits[name] < self._share:
                self._limits[name] = limits[name]
                self._close(name, limits[name])
        for name in sorted(counts, key=lambda name: (-counts[name], name)):
            if 0 < self._share <= counts[name]:
                self._close(name, counts[name])

    def take(self, member_id: str) -> bool:
        """Counts a task for the member if it may have one more."""
        limit = self._limits.get(member_id, self._share if member_id in self._open else 0)
        if self._counts[member_id] >= limit:
            return False
        self._counts[member_id] += 1
        if member_id in self._open and self._counts[member_id] == self._share:
            self._close(member_id, self._share)
        return True

    def _close(self, member_id: str, tasks: int) -> None:
        self._open.discard(member_id)
        self._tasks -= tasks
        self._share = self._computed()

    def _computed(self) -> int:
        return -(-self._tasks // len(self._open)) if self._open else 0
