"""Rules for the target of every group.

1. A group with state is assigned by ``highly_available``, one without by ``sticky``, unless the settings name an
   assignor.
2. A target in which a process has a task twice is a bug of the assignor; it is never returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from streamsrt.assignment.assignor import HIGHLY_AVAILABLE, STICKY, AssignorSettings
from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.tasks import TaskId, Tasks
from streamsrt.assignment.topology import Topology


class AssignedTwiceError(Exception):
    """The assignor gave a task to a process twice. ``task``: the first such task."""

    def __init__(self, task: TaskId) -> None:
        super().__init__(f"task {task.subtopology_id}_{task.partition} would be assigned twice to one process")
        self.task = task


def assignor_name(settings: AssignorSettings, topology: Topology | None) -> str:
    """Returns the name of a group's assignor."""
    if settings.assignor_name is not None:
        return settings.assignor_name
    is_stateful = topology is not None and any(part.is_stateful for part in topology.subtopologies)
    return (HIGHLY_AVAILABLE if is_stateful else STICKY).name


def twice_in_a_process(members: Iterable[AssignorMember], made: Mapping[str, Tasks]) -> TaskId | None:
    processes = {member.member_id: member.process_id for member in members}
    seen: set[tuple[str, TaskId]] = set()
    for name, tasks in made.items():
        for task in (*tasks.active, *tasks.standby, *tasks.warmup):
            if (processes[name], task) in seen:
                return task
            seen.add((processes[name], task))
    return None


def only(tasks: Tasks, wanted: Callable[[TaskId], bool]) -> Tasks:
    """Returns the wanted tasks, in their present roles."""
    return Tasks(*(frozenset(filter(wanted, role)) for role in (tasks.active, tasks.standby, tasks.warmup)))
