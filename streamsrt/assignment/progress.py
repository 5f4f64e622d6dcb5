"""Compares the state of tasks on each process with its end, by the offsets that members reported.

1. A process is caught up with a task if the newest end offset that anybody reported, less the offset that the process
   reported, is at most the acceptable recovery lag.
2. A member that holds the active task counts as caught up unless its own report says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.tasks import TaskId


class StateProgress:
    """The state of each task on each process, by the reported offsets; the last report counts."""

    def __init__(self, members: Sequence[AssignorMember], acceptable_recovery_lag: int) -> None:
        self._lag = acceptable_recovery_lag
        self._ends: dict[TaskId, int] = {}
        self.offsets: dict[TaskId, dict[str, int]] = {}
        self._runs: dict[TaskId, dict[str, bool]] = {}
        for member in members:
            for task, end in member.end_offsets.items():
                self._ends[task] = max(end, self._ends.get(task, end))
        # State on the disk of a process may be reported late and by a member that does not have the task; a report of the
        # member that has it (it knows an end) takes precedence.
        for has_task in (False, True):
            for member in members:
                for task, offset in (member.offsets or {}).items():
                    if (task in member.end_offsets) is has_task:
                        self.offsets.setdefault(task, {})[member.process_id] = offset
        for member in members:
            for task in member.running:
                self._runs.setdefault(task, {})[member.process_id] = self._is_near(member, task)

    def _is_near(self, member: AssignorMember, task: TaskId) -> bool:
        offset, end = (member.offsets or {}).get(task), member.end_offsets.get(task)
        return offset is None or end is None or end - offset <= self._lag

    def has(self, process_id: str, task: TaskId) -> bool:
        """Whether the process is caught up with the task."""
        if self._runs.get(task, {}).get(process_id, False):
            return True
        offset, end = self.offsets.get(task, {}).get(process_id), self._ends.get(task)
        return offset is not None and end is not None and end - offset <= self._lag

    def caught_up(self, task: TaskId) -> list[str]:
        known = {*self._runs.get(task, ()), *self.offsets.get(task, ())}
        return sorted(process for process in known if self.has(process, task))

    def furthest(self, task: TaskId, unless: str) -> str | None:
        """Returns the process with the largest offset, None if that is not larger than the offset of ``unless``."""
        offsets = self.offsets.get(task, {})
        if not offsets:
            return None
        best = min(offsets, key=lambda process: (-offsets[process], process))
        return best if offsets[best] > offsets.get(unless, 0) else None
