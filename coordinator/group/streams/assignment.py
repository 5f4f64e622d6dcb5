"""Computes the target assignment of a whole group, as records of what changed.

A target in which a process has a task twice is a bug of the assignor: it is logged and not used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from coordinator.group.streams.config import StreamsGroupConfig
from coordinator.group.streams.in_flight import group_may_lose
from coordinator.group.streams.records import bumped_epoch, metadata_record, target_metadata_record, target_record
from coordinator.group.streams.state import StreamsGroup, TaskOffsets
from coordinator.group.values import GroupRecord
from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.handover import handed_over
from streamsrt.assignment.in_flight import NOTHING_UNREAD, Unread
from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.reconcile import NEVER_ASSIGNED
from streamsrt.assignment.targets import AssignedTwiceError
from streamsrt.assignment.tasks import NO_TASKS
from streamsrt.assignment.topics import TopicsImage

logger = logging.getLogger("coordinator.groups")


def bump_record(
    group: StreamsGroup,
    configuration: Configuration,
    assignment_configs: tuple[tuple[str, str], ...],
    *,
    needed: bool = False,
) -> GroupRecord | None:
    """Returns the group's metadata with the next epoch, if needed or if topics or settings differ from the record."""
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


def older_configurations(
    group: StreamsGroup, image: TopicsImage, is_visible: Callable[[str], bool] | None = None
) -> list[Configuration]:
    """Resolves older topologies against the existing topics, newest first.

    Those that members still run, and all where something is unread that only they could read.
    """
    wanted = group.topologies() if group.soft.unread else group.topologies_run()
    return [configure(one, image, is_visible) for one in wanted if one is not group.topology]


def target_records(
    group: StreamsGroup,
    configurations: Sequence[Configuration],
    config: StreamsGroupConfig,
    reports: Mapping[str, TaskOffsets],
    unread: Unread = NOTHING_UNREAD,
    *,
    now_ms: int,
    is_paused: bool = False,
) -> list[GroupRecord]:
    """Returns records that bring the target assignment to the group epoch: changed members, then the epoch.

    ``configurations``: of the group's topology, then of older ones that members run, the newest first. ``reports``: the task
    offsets of each member that reports them, the newest last. ``unread``: of topics that the newest topology does not
    have. ``is_paused``: whether the newest version gets no more now.
    """
    silent = [name for name in group.members if name not in reports]
    members = [
        _assignor_member(group, name, reports.get(name))
        for name in (*silent, *(name for name in reports if name in group.members))
    ]
    epochs = {name: member.topology_epoch for name, member in group.members.items()}
    try:
        made = handed_over(
            members,
            epochs,
            configurations,
            config.assignor_settings,
            unread,
            may_lose=group_may_lose(group),
            is_paused=is_paused,
        )
    except AssignedTwiceError as error:
        logger.error("group %s: %s: not assigned", group.group_id, error)
        return []
    records = [
        target_record(group.group_id, name, made[name])
        for name in sorted(made)
        if group.targets.get(name) != made[name]
    ]
    records.append(target_metadata_record(group.group_id, epoch=group.epoch, timestamp_ms=now_ms))
    return records


def _assignor_member(group: StreamsGroup, member_id: str, report: TaskOffsets | None) -> AssignorMember:
    member = group.members[member_id]
    current = group.current.get(member_id, NEVER_ASSIGNED)
    return AssignorMember(
        member_id,
        member.process_id,
        group.targets.get(member_id, NO_TASKS),
        group.is_stale(member),
        current.assigned.active,
        None if report is None else report.offsets,
        {} if report is None else report.end_offsets,
        dict(member.client_tags),
        current.pending.active,
    )
