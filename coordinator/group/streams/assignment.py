"""The target assignment of a whole group: what the assignor says, as records of what changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coordinator.group.streams.configuration import Configuration
from coordinator.group.streams.records import bumped_epoch, metadata_record, target_metadata_record, target_record
from coordinator.group.streams.state import StreamsGroup
from coordinator.group.streams.sticky import AssignorMember, assign
from coordinator.group.streams.tasks import NO_TASKS, TaskId, Tasks
from coordinator.group.values import Record

NONE_CHANGED: frozenset[str] = frozenset()


def bump_record(
    group: StreamsGroup,
    configuration: Configuration,
    assignment_configs: tuple[tuple[str, str], ...],
    *,
    needed: bool = False,
) -> Record | None:
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


def target_records(
    group: StreamsGroup,
    configuration: Configuration,
    *,
    num_standby_replicas: int,
    now_ms: int,
    changed: frozenset[str] = NONE_CHANGED,
) -> list[Record]:
    """Records that bring the target assignment to the group epoch: changed members, then the epoch.

    ``changed``: subtopologies whose tasks are other tasks since a topology update, or gone. A member that still runs
    the old topology cannot keep them.

    While topics are missing nobody has a task but members that still run an older topology: what they have needs none of
    the missing topics. So an update that brings a new store does not stop the group until its changelog is created.
    """
    if configuration.is_ready:
        targets = assign(
            (_assignor_member(group, name, changed) for name in group.members),
            task_counts=configuration.task_counts,
            stateful=frozenset(part.id for part in configuration.topology.subtopologies if part.is_stateful),
            num_standby_replicas=num_standby_replicas,
        )
    else:
        targets = {name: _kept(group, name, changed, configuration.runnable) for name in group.members}
    records = [
        target_record(group.group_id, name, targets[name])
        for name in sorted(targets)
        if group.targets.get(name) != targets[name]
    ]
    records.append(target_metadata_record(group.group_id, epoch=group.epoch, timestamp_ms=now_ms))
    return records


def _assignor_member(group: StreamsGroup, member_id: str, changed: frozenset[str]) -> AssignorMember:
    member = group.members[member_id]
    previous = group.targets.get(member_id, NO_TASKS)
    if changed:
        previous = _only(previous, lambda task: task.subtopology_id not in changed)
    return AssignorMember(member_id, member.process_id, previous, group.is_stale(member))


def _kept(group: StreamsGroup, member_id: str, changed: frozenset[str], runnable: Mapping[str, int]) -> Tasks:
    if not group.is_stale(group.members[member_id]):
        return NO_TASKS

    def is_kept(task: TaskId) -> bool:
        return task.subtopology_id not in changed and task.partition < runnable.get(task.subtopology_id, 0)

    return _only(group.targets.get(member_id, NO_TASKS), is_kept)


def _only(tasks: Tasks, wanted: Callable[[TaskId], bool]) -> Tasks:
    return Tasks(*(frozenset(filter(wanted, role)) for role in (tasks.active, tasks.standby, tasks.warmup)))
