"""Members of this runtime in a streams group by the classic protocol: their reports and their assignments.

1. The tasks that a member reports as open show what it has given back, in every role.
2. A member joins with the group's topology epoch, or sends its topology with the JoinGroup. A member with a later epoch
   is asked for its topology by STREAMS_INVALID_TOPOLOGY_EPOCH: these members, too, can take the group to its next
   epoch. This is safe here because the coordinator has both topologies; of a classic group it does not have them.
3. An assignment echoes the group's version, so that the epoch continues when the group becomes a classic one again.
4. A member that has to give tasks back joins again by itself once it has closed them, and watches its own
   ``max.poll.interval.ms``. A JoinGroup does not contain this time: five minutes are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from coordinator.group.refusal import Refused
from coordinator.group.streams.classic.own_layout import (
    OWN_PROTOCOL,
    OwnSubscription,
    Version,
    own_assignment_of,
    own_subscription_of,
)
from coordinator.group.streams.classic.user_data import Partition, partitions_of
from coordinator.group.streams.config import StreamsGroupConfig
from coordinator.group.streams.creation import creation_detail
from coordinator.group.streams.describe import configuration_of
from coordinator.group.streams.state import ClassicSide, Member, StreamsGroup
from coordinator.group.streams.statuses import missing_tags, problem_of, shutdown, stale
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.tasks import NO_TASKS, TaskId, wire_tasks
from streamsrt.assignment.topics import TopicsImage
from streamsrt.wire import types
from streamsrt.wire.client_tags import TOPOLOGY_DIGEST
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Heartbeat

RELEASE_TIMEOUT_MS = 300_000


def is_own(side: ClassicSide) -> bool:
    return side.protocol.name == OWN_PROTOCOL


def own_heartbeat(
    group: StreamsGroup, request: types.JoinGroupRequest, member_id: str, subscription: OwnSubscription
) -> Heartbeat:
    """Converts the JoinGroup to a heartbeat. Raises Refused for an epoch that is not the group's."""
    current = group.current.get(member_id)
    if current is None and subscription.topology is None:
        _check_version(group, subscription)
    held = NO_TASKS if current is None else subscription.held
    endpoint = subscription.endpoint
    return Heartbeat(
        group_id=group.group_id,
        member_id=member_id,
        member_epoch=0 if current is None else current.epoch,
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=max(request.rebalance_timeout_ms, RELEASE_TIMEOUT_MS),
        process_id=subscription.process_id,
        topology=subscription.topology if current is None else None,
        user_endpoint=None if endpoint is None else Heartbeat.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[Heartbeat.KeyValue(key=key, value=value) for key, value in subscription.client_tags],
        active_tasks=wire_tasks(Heartbeat.TaskIds, held.active),
        standby_tasks=wire_tasks(Heartbeat.TaskIds, held.standby),
        warmup_tasks=wire_tasks(Heartbeat.TaskIds, held.warmup),
        task_offsets=_offsets(subscription.offsets),
        task_end_offsets=_offsets(subscription.end_offsets),
        shutdown_application=subscription.requests_shutdown,
    )


def _check_version(group: StreamsGroup, subscription: OwnSubscription) -> None:
    assert group.topology is not None
    if subscription.version.epoch < group.topology.epoch:
        raise Refused(ErrorCode.STREAMS_TOPOLOGY_FENCED)
    if subscription.version.epoch > group.topology.epoch:
        raise Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH)
    known = {dict(m.client_tags).get(TOPOLOGY_DIGEST) for m in group.members.values() if not group.is_stale(m)}
    if dict(subscription.client_tags).get(TOPOLOGY_DIGEST) not in known:
        raise Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH)


def _offsets(offsets: Mapping[TaskId, int]) -> list[Heartbeat.TaskOffset]:
    return [
        Heartbeat.TaskOffset(subtopology_id=task.subtopology_id, partition=task.partition, offset=offset)
        for task, offset in sorted(offsets.items())
    ]


def own_assignment(group: StreamsGroup, member: Member, image: TopicsImage, config: StreamsGroupConfig) -> bytes:
    """Returns the member's assignment for its SyncGroup."""
    assert member.classic is not None
    subscription = own_subscription_of(member.classic.protocol.metadata)
    current = group.current[member.member_id]
    configuration = configuration_of(group, image)
    statuses: list[tuple[StatusCode, str]] = [
        *shutdown(group.soft.shutdown_requested_by),
        *missing_tags(member, config),
    ]
    if configuration is not None:
        is_stale = group.is_stale(member)
        statuses += stale(member, configuration.topology.epoch)
        statuses += problem_of(configuration, creation_detail(group.soft.creation), is_stale=is_stale)
    return own_assignment_of(
        subscription,
        current.assigned,
        group.targets.get(member.member_id, NO_TASKS),
        generation=current.epoch,
        group=_version(group, member, subscription),
        partitions=_inputs(current.assigned.active, configuration),
        statuses=statuses,
        recovery_lag=config.acceptable_recovery_lag,
        offset_interval_ms=config.task_offset_interval_ms,
    )


def _version(group: StreamsGroup, member: Member, subscription: OwnSubscription) -> Version | None:
    """Returns the version that the group runs, if one of its members has sent its digest in the classic protocol."""
    epoch = subscription.version.epoch if group.topology is None else group.topology.epoch
    all_subscriptions = [subscription, *(own_subscription_of(side.protocol.metadata) for side in _own_sides(group))]
    return next((each.version for each in all_subscriptions if each.version.epoch == epoch), None)


def _own_sides(group: StreamsGroup) -> Iterator[ClassicSide]:
    for _, member in sorted(group.members.items()):
        if member.classic is not None and is_own(member.classic):
            yield member.classic


def _inputs(active: frozenset[TaskId], configuration: Configuration | None) -> list[Partition]:
    if configuration is None or not configuration.partition_counts:
        return []
    return [each for partitions in partitions_of(active, configuration).values() for each in partitions]
