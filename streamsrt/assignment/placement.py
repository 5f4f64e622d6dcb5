"""Gives tasks to members, one role at a time: the common part of the assignors.

1. Load is tasks per member of a process. Ties go to the smallest process id, then to the smallest member id.
2. A process never has a task twice, in any roles.
3. A member whose topology is behind the group's gets no new tasks.
4. If client tags are configured to separate the copies of a task, a standby task goes to the client with the most tag
   values that no copy of the task has yet; previous owners and loads only count after that.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamsrt.assignment.tasks import TaskId, Tasks


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """A member as the assignor sees it.

    ``previous``: its target so far. ``is_stale``: it may only lose tasks. ``running``: the active tasks that it holds now;
    ``closing``: those that it has been told to give back and may still run.
    ``offsets`` and ``end_offsets``: what it reported of changelogs, None if it reports nothing; of two members of one
    process the later one in the order of the input is the one that was heard last.
    """

    member_id: str
    process_id: str
    previous: Tasks
    is_stale: bool = False
    running: frozenset[TaskId] = frozenset()
    offsets: Mapping[TaskId, int] | None = None
    end_offsets: Mapping[TaskId, int] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    closing: frozenset[TaskId] = frozenset()


@dataclass(slots=True)
class ClientProcess:
    """A process: its members that may take new tasks, those that may not, and the tasks of all of them."""

    process_id: str
    members: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    capacity: int = 0
    count: int = 0
    tasks: set[TaskId] = field(default_factory=set)

    @property
    def load(self) -> float:
        return self.count / self.capacity


class Placement:
    """An assignment that is being computed."""

    def __init__(self, members: list[AssignorMember], replicas: int, rack_tags: tuple[str, ...] = ()) -> None:
        self.members = {member.member_id: member for member in members}
        self.replicas = replicas
        self.rack_tags = rack_tags
        self.active: dict[str, set[TaskId]] = {member.member_id: set() for member in members}
        self.standby: dict[str, set[TaskId]] = {member.member_id: set() for member in members}
        self.counts: dict[str, int] = dict.fromkeys(self.members, 0)
        self.processes: dict[str, ClientProcess] = {}
        self.previous_active: dict[TaskId, str] = {}
        self.previous_passive: dict[TaskId, list[str]] = {}
        for member in members:
            process = self.processes.setdefault(member.process_id, ClientProcess(member.process_id))
            process.capacity += 1
            (process.stale if member.is_stale else process.members).append(member.member_id)
            for task in member.previous.active:
                self.previous_active[task] = member.member_id
            for task in member.previous.passive:
                self.previous_passive.setdefault(task, []).append(member.member_id)

    def assign_active(self, tasks: list[TaskId]) -> None:
        quota = Quota(len(tasks), self.counts, self._stale_limits(frozenset(tasks)))
        left = []
        for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology_id)):
            owner = self.previous_active.get(task)
            if owner is None or not quota.take(owner):
                left.append(task)
            else:
                self.give(self.active, owner, task)
        rest = []
        for task in left:
            owner = self.least_loaded(self.previous_passive.get(task, []))
            if owner is None or not quota.take(owner):
                rest.append(task)
            else:
                self.give(self.active, owner, task)
        self._spread(sorted(rest), self.active)

    def assign_standby(self, tasks: list[TaskId]) -> None:
        """Gives every task its standby tasks. Called when all active tasks are assigned."""
        if self.rack_tags:
            Separation(self).assign(tasks)
            return
        total = sum(self.counts.values()) + len(tasks) * self.replicas
        quota = Quota(total, self.counts, {})
        left: list[TaskId] = []
        for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology_id), reverse=True):
            for given in range(self.replicas):
                owner = self.previous_holder(task)
                if owner is None or not quota.take(owner):
                    left.extend([task] * (self.replicas - given))
                    break
                self.give(self.standby, owner, task)
        self._spread(sorted(left, reverse=True), self.standby)

    def previous_holder(self, task: TaskId) -> str | None:
        """Returns a previous member of the task, in a process that does not have it now: the active one, else a passive
        one."""
        owner = self.previous_active.get(task)
        if owner is not None and task not in self.process_of(owner).tasks:
            return owner
        holders = [name for name in self.previous_passive.get(task, ()) if task not in self.process_of(name).tasks]
        return self.least_loaded(holders)

    def _spread(self, tasks: list[TaskId], role: dict[str, set[TaskId]]) -> None:
        """Gives each task to the least loaded process that does not have it, and there to the least loaded member."""
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
                self.give(role, member, task)
                heapq.heapreplace(lanes[name], (count + 1, member))
                passed.append((process.load, name))
                break
            for entry in passed:
                heapq.heappush(queue, entry)

    def process_of(self, member_id: str) -> ClientProcess:
        return self.processes[self.members[member_id].process_id]

    def _stale_limits(self, tasks: frozenset[TaskId]) -> dict[str, int]:
        """Returns how many of ``tasks`` each stale member has in some role: it gets no more than these."""
        return {
            name: len((member.previous.active | member.previous.passive) & tasks)
            for name, member in self.members.items()
            if member.is_stale
        }

    def least_loaded(self, names: list[str]) -> str | None:
        """Returns the member with the least load of its process, then of its own; None if there are no names."""
        if not names:
            return None
        return min(names, key=lambda name: (self.process_of(name).load, self.counts[name], name))

    def give(self, role: dict[str, set[TaskId]], member_id: str, task: TaskId) -> None:
        role[member_id].add(task)
        self.counts[member_id] += 1
        process = self.process_of(member_id)
        process.count += 1
        process.tasks.add(task)


class Separation:
    """Gives standby tasks to processes whose tags differ from those of the task's other copies.

    Processes with the same values of all tags are one kind, so that a task looks at a few kinds and not at all processes.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._kind_of: dict[str, tuple[str | None, ...]] = {}
        self._queues: dict[tuple[str | None, ...], list[tuple[float, str]]] = {}
        for member in placement.members.values():
            kind = tuple(member.tags.get(tag) for tag in placement.rack_tags)
            self._kind_of.setdefault(member.process_id, kind)
        for name, process in placement.processes.items():
            if process.members:
                self._queues.setdefault(self._kind_of[name], []).append((process.load, name))
        for queue in self._queues.values():
            heapq.heapify(queue)

    def assign(self, tasks: list[TaskId]) -> None:
        placement = self._placement
        total = sum(placement.counts.values()) + len(tasks) * placement.replicas
        quota = Quota(total, placement.counts, {})
        copies: dict[TaskId, list[tuple[str | None, ...]]] = {}
        for process in placement.processes.values():
            for task in process.tasks:
                copies.setdefault(task, []).append(self._kind_of[process.process_id])
        for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology_id)):
            for _ in range(placement.replicas):
                member_id = self._chosen(task, copies.get(task, []), quota)
                if member_id is None:
                    break
                placement.give(placement.standby, member_id, task)
                copies.setdefault(task, []).append(self._kind_of[placement.process_of(member_id).process_id])

    def _chosen(self, task: TaskId, copies: list[tuple[str | None, ...]], quota: Quota) -> str | None:
        by_gain: dict[int, set[tuple[str | None, ...]]] = {}
        for kind in self._queues:
            by_gain.setdefault(_gain(kind, copies), set()).add(kind)
        placement = self._placement
        for gain in sorted(by_gain, reverse=True):
            holder = placement.previous_holder(task)
            if holder is not None and self._is_among(holder, by_gain[gain]) and quota.take(holder):
                return holder
            found = [(*best, kind) for kind in by_gain[gain] if (best := self._least_loaded(kind, task)) is not None]
            if found:
                members = placement.processes[min(found, key=lambda entry: entry[:2])[1]].members
                return placement.least_loaded(members)
        return None

    def _is_among(self, member_id: str, kinds: set[tuple[str | None, ...]]) -> bool:
        process = self._placement.process_of(member_id)
        return bool(process.members) and self._kind_of[process.process_id] in kinds

    def _least_loaded(self, kind: tuple[str | None, ...], task: TaskId) -> tuple[float, str] | None:
        """Returns the process of this kind with the least load that does not have the task. Loads in the queue may be too
        small."""
        queue, passed, found = self._queues[kind], [], None
        while queue and found is None:
            load, name = heapq.heappop(queue)
            process = self._placement.processes[name]
            if process.load > load:
                heapq.heappush(queue, (process.load, name))
                continue
            passed.append((load, name))
            if task not in process.tasks:
                found = (load, name)
        for entry in passed:
            heapq.heappush(queue, entry)
        return found


def _gain(kind: tuple[str | None, ...], copies: list[tuple[str | None, ...]]) -> int:
    """Returns for how many tags this kind has a value that no copy has; a process without the tag adds nothing."""
    return sum(
        value is not None and all(copy[position] != value for copy in copies) for position, value in enumerate(kind)
    )


class Quota:
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
        """Counts a task for the member if it may have one more; returns whether it may."""
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
