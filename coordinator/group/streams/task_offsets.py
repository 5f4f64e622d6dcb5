"""What members report of their changelogs, and when that calls for a new assignment (KIP-1071).

1. A report is soft: nothing of it is in the log. The report that came last stands last, so that of two members of one
   process the one that was heard last counts.
2. A warm-up task has caught up when the newest end offset that any member reported, less the offset that its own member
   reported, is at most the acceptable recovery lag. That calls for one new assignment, in which it is no warm-up task any
   more.
"""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.group.streams.state import StreamsGroup, TaskOffsets
from streamsrt.assignment.reconcile import NEVER_ASSIGNED
from streamsrt.assignment.tasks import NO_TASKS, TaskId
from streamsrt.assignment.versions import versions_of
from streamsrt.wire.types import StreamsGroupHeartbeatRequest

Wire = list[StreamsGroupHeartbeatRequest.TaskOffset]
NONE_REPORTED = TaskOffsets({}, {})


def with_report(
    known: Mapping[str, TaskOffsets], request: StreamsGroupHeartbeatRequest, *, joins: bool
) -> Mapping[str, TaskOffsets]:
    """Returns the known offsets after this heartbeat. A null field is unchanged; a member that joins without offsets
    reports none."""
    offsets, ends = request.task_offsets, request.task_end_offsets
    if offsets is None and ends is None:
        if joins and request.member_id in known:
            return {name: report for name, report in known.items() if name != request.member_id}
        return known
    old = NONE_REPORTED if joins else known.get(request.member_id, NONE_REPORTED)
    new = TaskOffsets(
        old.offsets if offsets is None else _by_task(offsets), old.end_offsets if ends is None else _by_task(ends)
    )
    return {**{name: report for name, report in known.items() if name != request.member_id}, request.member_id: new}


def has_caught_up(
    group: StreamsGroup, reports: Mapping[str, TaskOffsets], member_id: str, acceptable_recovery_lag: int
) -> bool:
    """Whether a warm-up task of this member has caught up far enough to be assigned in another role."""
    warmups = group.targets.get(member_id, NO_TASKS).warmup
    held = group.current.get(member_id, NEVER_ASSIGNED).assigned.warmup
    lags = (_lag_of(group, reports, member_id, task) for task in warmups & held)
    return any(lag is not None and lag <= acceptable_recovery_lag for lag in lags)


def _lag_of(group: StreamsGroup, reports: Mapping[str, TaskOffsets], member_id: str, task: TaskId) -> int | None:
    """Returns how far a member is behind with a task, None if its offset or every end offset is unknown.

    Members with an older topology may have another task under the same id.
    """
    offset = reports.get(member_id, NONE_REPORTED).offsets.get(task)
    if offset is None:
        return None
    ends = [
        end
        for name, report in reports.items()
        if (end := report.end_offsets.get(task)) is not None and _is_of_newest(group, name, task)
    ]
    return max(ends) - offset if ends else None


def _is_of_newest(group: StreamsGroup, member_id: str, task: TaskId) -> bool:
    member = group.members.get(member_id)
    if member is None or group.topology is None or not group.is_stale(member):
        return True
    return versions_of(group.topology, group.older).is_of_lead(member.topology_epoch, task.subtopology_id)


def _by_task(wire: Wire) -> Mapping[TaskId, int]:
    return {TaskId(entry.subtopology_id, entry.partition): entry.offset for entry in wire}
