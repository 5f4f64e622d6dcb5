"""How far processes are with the state of tasks, by the offsets that their members reported.

1. A process is caught up with a task if the newest end offset that anybody reported, less the offset that the process
   reported, is at most the acceptable recovery lag.
2. A member that holds the active task counts as caught up unless its own report says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.tasks import TaskId


class StateProgress:
    """How far each process is with the state of each task, by what its members reported; the last report counts."""

    def __init__(self, members: Sequence[AssignorMember], acceptable_recovery_lag: int) -> None:
        self._lag = acceptable_recovery_lag
        self._ends: dict[TaskId, int] = {}
        self.offsets: dict[TaskId, dict[str, int]] = {}
        self._runs: dict[TaskId, dict[str, bool]] = {}
        for member in members:
            for task, end in member.end_offsets.items():
                self._ends[task] = max(end, self._ends.get(task, end))
        # State that lies on the disk of a process may be reported by a member that does not have the task, and late: what
        # the member reports that has it (it knows an end) counts.
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
        """The process with the largest offset, None if that is not more than the one of ``unless``."""
        offsets = self.offsets.get(task, {})
        if not offsets:
            return None
        best = min(offsets, key=lambda process: (-offsets[process], process))
        return best if offsets[best] > offsets.get(unless, 0) else None
