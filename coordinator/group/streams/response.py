"""Responses to heartbeats."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.group.refusal import Refused
from coordinator.group.settings import INT32_MAX
from coordinator.group.streams.config import StreamsGroupConfig
from coordinator.group.streams.state import Endpoint, Member, StreamsGroup
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.reconcile import Current
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.tasks import TaskId, Tasks, grouped, wire_tasks
from streamsrt.assignment.topology import Topology
from streamsrt.wire.private_tags import SAME_TOPOLOGY_TAG
from streamsrt.wire.types import StreamsGroupHeartbeatResponse as Response


def error_response(refused: Refused) -> Response:
    tags = {SAME_TOPOLOGY_TAG: b""} if refused.is_same_topology else None
    return Response(error_code=refused.code, error_message=refused.text or None, status=[], unknown_tags=tags)


def leave_response(member_id: str, member_epoch: int) -> Response:
    return Response(member_id=member_id, member_epoch=member_epoch, status=[])


def heartbeat_response(
    member: Member,
    current: Current,
    *,
    config: StreamsGroupConfig,
    statuses: Iterable[tuple[StatusCode, str]],
    tasks: Tasks | None,
    endpoint_epoch: int,
    endpoints: list[Response.EndpointToPartitions] | None,
) -> Response:
    """Returns the response to an accepted heartbeat. ``tasks``: None if the member already has them."""
    response = Response(
        member_id=member.member_id,
        member_epoch=current.epoch,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        task_offset_interval_ms=config.task_offset_interval_ms,
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        acceptable_recovery_lag_legacy=min(config.acceptable_recovery_lag, INT32_MAX),
        status=[Response.Status(status_code=code, status_detail=detail) for code, detail in statuses],
        endpoint_information_epoch=endpoint_epoch,
        partitions_by_user_endpoint=endpoints,
    )
    if tasks is not None:
        response.active_tasks = wire_tasks(Response.TaskIds, tasks.active)
        response.standby_tasks = wire_tasks(Response.TaskIds, tasks.standby)
        response.warmup_tasks = wire_tasks(Response.TaskIds, tasks.warmup)
    return response


def partitions_by_endpoint(
    group: StreamsGroup, configuration: Configuration, last: str
) -> list[Response.EndpointToPartitions]:
    """Returns the partitions of each member with an endpoint; the member ``last`` at the end."""
    names = sorted(name for name, member in group.members.items() if member.user_endpoint and name != last)
    if last in group.members and group.members[last].user_endpoint:
        names.append(last)
    found = []
    for name in names:
        endpoint = group.members[name].user_endpoint
        current = group.current.get(name)
        if endpoint is not None and current is not None:
            topology = _topology_of(group, group.members[name], configuration)
            found.append(_endpoint(endpoint, current.assigned, topology, configuration))
    return found


def _topology_of(group: StreamsGroup, member: Member, configuration: Configuration) -> Topology:
    """Returns the topology to which the member's tasks belong."""
    older = {one.epoch: one for one in group.older}
    return older.get(member.topology_epoch, configuration.resolved)


def _endpoint(
    endpoint: Endpoint, assigned: Tasks, topology: Topology, configuration: Configuration
) -> Response.EndpointToPartitions:
    return Response.EndpointToPartitions(
        user_endpoint=Response.Endpoint(host=endpoint.host, port=endpoint.port),
        active_partitions=_topic_partitions(assigned.active, topology, configuration),
        standby_partitions=_topic_partitions(assigned.standby, topology, configuration),
    )


def _topic_partitions(
    tasks: Iterable[TaskId], topology: Topology, configuration: Configuration
) -> list[Response.TopicPartition]:
    if not configuration.is_ready:
        return []
    parts = {part.id: part for part in topology.subtopologies}
    found = []
    for name, partitions in grouped(tasks):
        for topic in parts[name].input_topics if name in parts else ():
            # A topic that only the older topology reads has no other known partition count.
            count = configuration.partition_counts.get(topic, max(partitions) + 1)
            present = [partition for partition in partitions if partition < count]
            if present:
                found.append(Response.TopicPartition(topic=topic, partitions=present))
    return found
