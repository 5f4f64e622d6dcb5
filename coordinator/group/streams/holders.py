"""Finds the holders of a task that a member should get, whatever version of the topology it runs.

1. An active task is held by another member that has it, or a task that meets it (:mod:`streamsrt.assignment.versions`), as
   an active one.
2. A task of any role is held by another member of the same process that has it, or a task that meets it, in any role: their
   stores are the same directories.
3. Of a version that is not known, because its members came before the coordinator kept such versions, every task that has
   to be given back holds all tasks of its partition.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.group.streams.state import Member, StreamsGroup
from streamsrt.assignment.reconcile import NEVER_ASSIGNED, Holders
from streamsrt.assignment.tasks import NO_TASKS, TaskId
from streamsrt.assignment.versions import versions_of


def holders(group: StreamsGroup, member: Member) -> Holders:
    """Returns the holders of tasks that ``member`` should get."""
    name, process = member.member_id, member.process_id
    blocked: set[int] | None = None

    def active(task: TaskId) -> bool:
        nonlocal blocked
        if any(other != name for other in group.active_owners.get(task, ())):
            return True
        if any(other != name for met, epoch in _meeting(group, member, task) for other in _active(group, met, epoch)):
            return True
        if blocked is None:
            blocked = _partitions_of_unknown_tasks(group, name)
        return task.partition in blocked

    def in_process(task: TaskId) -> bool:
        names = [*group.active_owners.get(task, ()), *group.passive_holders.get(task, ())]
        for met, epoch in _meeting(group, member, task):
            names += [*_active(group, met, epoch), *_passive(group, met, epoch)]
        return any(other != name and group.members[other].process_id == process for other in names)

    return Holders(active, in_process)


def _meeting(group: StreamsGroup, member: Member, task: TaskId) -> Iterator[tuple[TaskId, int]]:
    """Yields tasks of other versions that conflict with this one of the member's, each with its version."""
    if group.topology is None or not group.older:
        return
    for part in versions_of(group.topology, group.older).meeting(member.topology_epoch, task.subtopology_id):
        yield TaskId(part.id, task.partition), part.epoch


def _active(group: StreamsGroup, task: TaskId, epoch: int) -> Iterator[str]:
    owners = group.active_owners.get(task, ())
    return (name for name in owners if group.members[name].topology_epoch == epoch)


def _passive(group: StreamsGroup, task: TaskId, epoch: int) -> Iterator[str]:
    names = group.passive_holders.get(task, ())
    return (name for name in names if group.members[name].topology_epoch == epoch)


def _partitions_of_unknown_tasks(group: StreamsGroup, member_id: str) -> set[int]:
    """Returns partitions of active tasks that other members with an unknown version still have to give back."""
    known = {topology.epoch for topology in group.topologies()}
    found: set[int] = set()
    for name, member in group.members.items():
        if name != member_id and member.topology_epoch not in known:
            current = group.current.get(name, NEVER_ASSIGNED)
            kept = group.targets.get(name, NO_TASKS).active - current.pending.active
            found.update(task.partition for task in (current.assigned.active | current.pending.active) - kept)
    return found
