"""Validates heartbeats before any state is read, in Kafka's order and with Kafka's messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coordinator.group.heartbeats import (
    JOIN,
    check_departure,
    check_ids,
    check_rebalance_timeout,
    invalid,
    not_empty,
)
from coordinator.group.refusal import Refused
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.tasks import TaskId, Tasks, task_set
from streamsrt.assignment.topology import InvalidTopologyError, Topology, check_topology, topology_of
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import StreamsGroupHeartbeatRequest


def check_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises Refused(INVALID_REQUEST) for the first rule that the request violates."""
    not_empty(request.member_id, "MemberId")
    check_ids(request)
    if request.member_epoch == JOIN:
        _check_join(request)
    check_departure(request, f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    if request.member_epoch != JOIN and request.topology is not None:
        raise invalid("Topology can only be provided when (re-)joining.")
    _check_tags(request)
    _check_task_lists(request)


def requested_topology(request: StreamsGroupHeartbeatRequest) -> Topology | None:
    """Returns the topology of a join; raises Refused if it violates a rule."""
    if request.topology is None:
        return None
    try:
        topology = topology_of(request.topology)
        check_topology(topology)
    except InvalidTopologyError as error:
        raise Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, str(error)) from None
    return topology


def owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """Returns the tasks that the member reports as open; None if it reports nothing."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Tasks(task_set(request.active_tasks), task_set(request.standby_tasks), task_set(request.warmup_tasks))


def check_owned(owned: Tasks, configuration: Configuration) -> None:
    """Raises Refused for a task that the topology does not have.

    The caller leaves out what the coordinator itself gave: a topic may have lost partitions since.
    """
    for task in sorted(owned.active | owned.standby | owned.warmup):
        count = configuration.task_counts.get(task.subtopology_id)
        if count is None:
            raise invalid(f"Subtopology {task.subtopology_id} does not exist in the topology.")
        if not 0 <= task.partition < count:
            raise invalid(
                f"Task {task.partition} for subtopology {task.subtopology_id} is invalid. "
                f"Number of tasks for this subtopology: {count}"
            )


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    check_rebalance_timeout(request)
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            raise invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise invalid("Topology must be non-null when (re-)joining.")


def _check_tags(request: StreamsGroupHeartbeatRequest) -> None:
    counts = Counter(tag.key for tag in request.client_tags or ())
    twice = sorted(key for key, count in counts.items() if count > 1)
    if twice:
        raise invalid(f"ClientTags has the key {twice[0]} {counts[twice[0]]} times.")


def _check_task_lists(request: StreamsGroupHeartbeatRequest) -> None:
    lists = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    given = [tasks for tasks in lists if tasks is not None]
    if not given:
        return
    if len(given) < len(lists):
        raise invalid("If one task-type is non-null, all must be non-null.")
    twice = _repeated(TaskId(ids.subtopology_id, p) for tasks in given for ids in tasks for p in ids.partitions)
    if twice is not None:
        raise invalid(
            f"Task {twice.partition} of subtopology {twice.subtopology_id} is in the task lists more than once."
        )


def _repeated(tasks: Iterable[TaskId]) -> TaskId | None:
    seen: set[TaskId] = set()
    for task in tasks:
        if task in seen:
            return task
        seen.add(task)
    return None
