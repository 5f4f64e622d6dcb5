"""The target of a whole group: which assignor makes it, and what of it stays while topics are missing.

1. A group with state is assigned by ``highly_available``, one without by ``sticky``, unless the settings say which.
2. A target in which a process has a task twice is a mistake of the assignor; it is never returned.
3. While topics are missing nobody has a task but members that still run an older topology: what they have needs none of the
   missing topics. So an update that brings a new store does not stop the group until its changelog is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from streamsrt.assignment.assignor import (
    HIGHLY_AVAILABLE,
    STICKY,
    TASK_ASSIGNORS,
    AssignorSettings,
    TaskAssignmentSpec,
)
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks
from streamsrt.assignment.topology import Topology


class AssignedTwiceError(Exception):
    """The assignor gave a task to a process twice. ``task``: the first such task."""

    def __init__(self, task: TaskId) -> None:
        super().__init__(f"task {task.subtopology_id}_{task.partition} would be in a process twice")
        self.task = task


def assignor_name(settings: AssignorSettings, topology: Topology | None) -> str:
    """The assignor of a group."""
    if settings.assignor_name is not None:
        return settings.assignor_name
    is_stateful = topology is not None and any(part.is_stateful for part in topology.subtopologies)
    return (HIGHLY_AVAILABLE if is_stateful else STICKY).name


def targets(
    members: Sequence[AssignorMember],
    configuration: Configuration,
    settings: AssignorSettings,
) -> Mapping[str, Tasks]:
    """The target of every member, by member id. Raises AssignedTwiceError.

    ``members``: of two in one process the later one is the one whose task offsets were heard last.
    """
    if not configuration.is_ready:
        return {member.member_id: _kept(member, configuration.runnable) for member in members}
    made = _assigned(members, configuration, settings)
    twice = twice_in_a_process(members, made)
    if twice is not None:
        raise AssignedTwiceError(twice)
    return made


def _assigned(
    members: Sequence[AssignorMember], configuration: Configuration, settings: AssignorSettings
) -> Mapping[str, Tasks]:
    stateful = frozenset(part.id for part in configuration.topology.subtopologies if part.is_stateful)
    assignor = TASK_ASSIGNORS[assignor_name(settings, configuration.topology)]
    return assignor.assign(TaskAssignmentSpec(members, configuration.task_counts, stateful, settings))


def twice_in_a_process(members: Iterable[AssignorMember], made: Mapping[str, Tasks]) -> TaskId | None:
    processes = {member.member_id: member.process_id for member in members}
    seen: set[tuple[str, TaskId]] = set()
    for name, tasks in made.items():
        for task in (*tasks.active, *tasks.standby, *tasks.warmup):
            if (processes[name], task) in seen:
                return task
            seen.add((processes[name], task))
    return None


def _kept(member: AssignorMember, runnable: Mapping[str, int]) -> Tasks:
    if not member.is_stale:
        return NO_TASKS

    def is_kept(task: TaskId) -> bool:
        return task.partition < runnable.get(task.subtopology_id, 0)

    return only(member.previous, is_kept)


def only(tasks: Tasks, wanted: Callable[[TaskId], bool]) -> Tasks:
    """The tasks that are wanted, in the roles that they have."""
    return Tasks(*(frozenset(filter(wanted, role)) for role in (tasks.active, tasks.standby, tasks.warmup)))
