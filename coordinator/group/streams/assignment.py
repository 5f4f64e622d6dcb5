"""The target assignment of a whole group: what the assignor says, as records of what changed.

1. A group with state is assigned by ``highly_available``, one without by ``sticky``, unless ``streams.assignor.name`` says
   which.
2. A target in which a process has a task twice is a mistake of the assignor: it is logged and not used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from coordinator.group.config import StreamsGroupConfig
from coordinator.group.streams.assignor import HIGHLY_AVAILABLE, STICKY, TASK_ASSIGNORS, TaskAssignmentSpec
from coordinator.group.streams.configuration import Configuration
from coordinator.group.streams.placement import AssignorMember
from coordinator.group.streams.records import bumped_epoch, metadata_record, target_metadata_record, target_record
from coordinator.group.streams.state import NEVER_ASSIGNED, StreamsGroup, TaskOffsets
from coordinator.group.streams.tasks import NO_TASKS, TaskId, Tasks
from coordinator.group.streams.topology import Topology
from coordinator.group.values import GroupRecord

logger = logging.getLogger("coordinator.groups")

NONE_CHANGED: frozenset[str] = frozenset()


def bump_record(
    group: StreamsGroup,
    configuration: Configuration,
    assignment_configs: tuple[tuple[str, str], ...],
    *,
    needed: bool = False,
) -> GroupRecord | None:
    """The group's metadata with the next epoch, if that is needed or topics or settings are not those of the record."""
    validated = configuration.topology.epoch if configuration.is_ready else -1
    same = (configuration.metadata_hash, validated, assignment_configs) == (
        group.metadata_hash,
        group.validated_topology_epoch,
        group.assignment_configs,
    )
    if same and not needed:
        return None
    return metadata_record(
        group.group_id,
        epoch=bumped_epoch(group),
        metadata_hash=configuration.metadata_hash,
        validated_topology_epoch=validated,
        assignment_configs=assignment_configs,
    )


def assignor_name(config: StreamsGroupConfig, topology: Topology | None) -> str:
    """The assignor of a group."""
    if config.assignor_name is not None:
        return config.assignor_name
    is_stateful = topology is not None and any(part.is_stateful for part in topology.subtopologies)
    return (HIGHLY_AVAILABLE if is_stateful else STICKY).name


def target_records(
    group: StreamsGroup,
    configuration: Configuration,
    config: StreamsGroupConfig,
    reports: Mapping[str, TaskOffsets],
    *,
    now_ms: int,
    changed: frozenset[str] = NONE_CHANGED,
) -> list[GroupRecord]:
    """Records that bring the target assignment to the group epoch: changed members, then the epoch.

    ``reports``: the task offsets of each member that reports them, the newest last. ``changed``: subtopologies whose tasks
    are other tasks since a topology update, or gone. A member that still runs the old topology cannot keep them.

    While topics are missing nobody has a task but members that still run an older topology: what they have needs none of
    the missing topics. So an update that brings a new store does not stop the group until its changelog is created.
    """
    if configuration.is_ready:
        targets = _assigned(group, configuration, config, reports, changed)
        twice = _twice_in_a_process(group, targets)
        if twice is not None:
            logger.error("group %s: task %s_%d would be in a process twice: not assigned", group.group_id, *twice)
            return []
    else:
        targets = {name: _kept(group, name, changed, configuration.runnable) for name in group.members}
    records = [
        target_record(group.group_id, name, targets[name])
        for name in sorted(targets)
        if group.targets.get(name) != targets[name]
    ]
    records.append(target_metadata_record(group.group_id, epoch=group.epoch, timestamp_ms=now_ms))
    return records


def _assigned(
    group: StreamsGroup,
    configuration: Configuration,
    config: StreamsGroupConfig,
    reports: Mapping[str, TaskOffsets],
    changed: frozenset[str],
) -> Mapping[str, Tasks]:
    silent = [name for name in group.members if name not in reports]
    members = [
        _assignor_member(group, name, changed, reports.get(name))
        for name in (*silent, *(name for name in reports if name in group.members))
    ]
    stateful = frozenset(part.id for part in configuration.topology.subtopologies if part.is_stateful)
    assignor = TASK_ASSIGNORS[assignor_name(config, configuration.topology)]
    return assignor.assign(TaskAssignmentSpec(members, configuration.task_counts, stateful, config))


def _twice_in_a_process(group: StreamsGroup, targets: Mapping[str, Tasks]) -> TaskId | None:
    seen: set[tuple[str, TaskId]] = set()
    for name, tasks in targets.items():
        process_id = group.members[name].process_id
        for task in (*tasks.active, *tasks.standby, *tasks.warmup):
            if (process_id, task) in seen:
                return task
            seen.add((process_id, task))
    return None


def _assignor_member(
    group: StreamsGroup, member_id: str, changed: frozenset[str], report: TaskOffsets | None
) -> AssignorMember:
    member = group.members[member_id]
    previous = group.targets.get(member_id, NO_TASKS)
    running = group.current.get(member_id, NEVER_ASSIGNED).assigned.active
    if changed:
        previous = _only(previous, lambda task: task.subtopology_id not in changed)
        running = frozenset(task for task in running if task.subtopology_id not in changed)
    return AssignorMember(
        member_id,
        member.process_id,
        previous,
        group.is_stale(member),
        running,
        None if report is None else report.offsets,
        {} if report is None else report.end_offsets,
        dict(member.client_tags),
    )


def _kept(group: StreamsGroup, member_id: str, changed: frozenset[str], runnable: Mapping[str, int]) -> Tasks:
    if not group.is_stale(group.members[member_id]):
        return NO_TASKS

    def is_kept(task: TaskId) -> bool:
        return task.subtopology_id not in changed and task.partition < runnable.get(task.subtopology_id, 0)

    return _only(group.targets.get(member_id, NO_TASKS), is_kept)


def _only(tasks: Tasks, wanted: Callable[[TaskId], bool]) -> Tasks:
    return Tasks(*(frozenset(filter(wanted, role)) for role in (tasks.active, tasks.standby, tasks.warmup)))
