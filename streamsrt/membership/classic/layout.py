"""The format of subscriptions and assignments of members of a classic group, as bytes.

1. On the outside, each is what every consumer writes: a ConsumerProtocolSubscription or ConsumerProtocolAssignment of
   version 3. Our own message is its user data, after one byte: 0 plain, 1 compressed with zlib.
2. Equal values give equal bytes: everything is sorted. (A broker starts a rebalance if a follower's bytes differ.)
3. Bytes that can't be read give :class:`~streamsrt.membership.classic.values.Unreadable`, never an exception: one
   invalid member must not stop the others. Tagged fields of newer members are skipped.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from streamsrt.assignment.digest import topology_bytes
from streamsrt.assignment.status_code import StatusCode
from streamsrt.membership.classic.values import (
    ClassicAssignment,
    ClassicSubscription,
    Echo,
    ToldSetbacks,
    Topology,
    Unreadable,
    Waits,
)
from streamsrt.membership.values import Endpoint, Status, Task, Tasks, TopicPartition, UnknownStatus
from streamsrt.wire.messages import decode, decode_consumer_protocol, encode, encode_record_value
from streamsrt.wire.packed import packed, unpacked
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.types import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    StreamsGroupHeartbeatRequest,
    StreamsrtAssignment,
    StreamsrtSubscription,
)

REQUESTS_SHUTDOWN, MISSED_SYNC, SHUTDOWN_RECEIVED, RETURNS, AWAITS = 1, 2, 4, 8, 16

_VERSION = 0
_OUTER_VERSION = 3
_STATUS_CODES = frozenset(int(code) for code in StatusCode)
_NEVER = -1

_TaskIds: TypeAlias = StreamsrtAssignment.TaskIds | StreamsrtSubscription.TaskIds
_Partitions: TypeAlias = ConsumerProtocolAssignment.TopicPartition | ConsumerProtocolSubscription.TopicPartition


def encode_subscription(subscription: ClassicSubscription) -> bytes:
    """Raises ValueError if the process id is not the text of a UUID."""
    return with_consumer_fields(subscription, subscription_data(subscription))


def subscription_data(subscription: ClassicSubscription) -> bytes:
    """Encodes the user data alone."""
    own = StreamsrtSubscription(
        unique=subscription.unique,
        process_id=uuid.UUID(subscription.process_id).bytes,
        user_endpoint=_own_endpoint(subscription.endpoint),
        client_tags=[
            StreamsrtSubscription.KeyValue(key=k, value=v) for k, v in sorted(subscription.client_tags.items())
        ],
        features=subscription.features,
        topology_epoch=subscription.topology_epoch,
        topology_digest=subscription.topology_digest,
        topology=None if subscription.topology is None else topology_bytes(subscription.topology),
        held=_subscription_tasks(subscription.held),
        echo=None if subscription.echo is None else _echo(subscription.echo, subscription.held),
        offsets=_offsets(subscription.offsets),
        end_offsets=_offsets(subscription.end_offsets),
        flags=REQUESTS_SHUTDOWN * subscription.requests_shutdown
        | MISSED_SYNC * subscription.missed_sync
        | SHUTDOWN_RECEIVED * subscription.shutdown_received
        | RETURNS * subscription.returns
        | AWAITS * subscription.awaits,
    )
    return packed(encode(own, _VERSION))


def with_consumer_fields(subscription: ClassicSubscription, user_data: bytes) -> bytes:
    """Encodes a consumer's subscription with the standard fields and this user data."""
    owned = _by_topic(subscription.owned_partitions)
    outer = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=user_data,
        owned_partitions=[ConsumerProtocolSubscription.TopicPartition(topic=t, partitions=n) for t, n in owned],
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return encode_record_value(outer, _OUTER_VERSION)


def decode_subscription(metadata: bytes) -> ClassicSubscription | Unreadable:
    """Decodes the subscription that a member joined with."""
    try:
        outer = decode_consumer_protocol(ConsumerProtocolSubscription, metadata)
        return subscription_of(outer, outer.user_data)
    except DecodeError as error:
        return Unreadable(f"the subscription can't be read: {error}")


def subscription_of(outer: ConsumerProtocolSubscription, data: bytes | None) -> ClassicSubscription:
    """Decodes user data written by :func:`subscription_data`. Raises DecodeError."""
    own = decode(StreamsrtSubscription, _VERSION, unpacked(data))
    held = _tasks(own.held)
    return ClassicSubscription(
        unique=own.unique,
        topics=frozenset(outer.topics),
        owned_partitions=partitions_of(outer.owned_partitions),
        generation_id=outer.generation_id,
        rack_id=outer.rack_id,
        process_id=str(uuid.UUID(bytes=own.process_id)),
        endpoint=None if own.user_endpoint is None else Endpoint(own.user_endpoint.host, own.user_endpoint.port),
        client_tags={tag.key: tag.value for tag in own.client_tags},
        features=own.features,
        topology_epoch=own.topology_epoch,
        topology_digest=own.topology_digest,
        topology=None if own.topology is None else _topology(own.topology),
        held=held,
        echo=None if own.echo is None else _echoed(own.echo, held),
        offsets=_task_offsets(own.offsets),
        end_offsets=_task_offsets(own.end_offsets),
        requests_shutdown=bool(own.flags & REQUESTS_SHUTDOWN),
        missed_sync=bool(own.flags & MISSED_SYNC),
        shutdown_received=bool(own.flags & SHUTDOWN_RECEIVED),
        returns=bool(own.flags & RETURNS),
        awaits=bool(own.flags & AWAITS),
    )


def encode_assignment(assignment: ClassicAssignment) -> bytes:
    """Raises ValueError if the process id is not the text of a UUID."""
    return with_assigned_partitions(assignment.assigned_partitions, assignment_data(assignment))


def assignment_data(assignment: ClassicAssignment) -> bytes:
    """Encodes the user data alone."""
    as_given = assignment.target == assignment.tasks
    own = StreamsrtAssignment(
        process_id=uuid.UUID(assignment.process_id).bytes,
        unique=assignment.unique,
        generation=assignment.generation,
        group_epoch=assignment.group_epoch,
        group_digest=assignment.group_digest,
        tasks=_assignment_tasks(assignment.tasks),
        target_as_given=as_given,
        target=_assignment_tasks(Tasks() if as_given else assignment.target),
        status=[StreamsrtAssignment.StatusEntry(code=int(s.code), detail=s.detail) for s in assignment.statuses],
        error_code=assignment.error_code,
        error_text=assignment.error_text,
        is_same_topology=assignment.is_same_topology,
        send_topology=assignment.send_topology,
        rejoin_after_ms=_NEVER if assignment.rejoin_after_ms is None else assignment.rejoin_after_ms,
        recovery_lag=assignment.recovery_lag,
        offset_interval_ms=assignment.offset_interval_ms,
        why=assignment.why or None,
        waits=[
            StreamsrtAssignment.TopicWaits(topic=t, subtopology_ids=ids) for t, ids in _sorted_waits(assignment.waits)
        ],
        setbacks=list(assignment.setbacks or ()),
        awaits=assignment.awaits,
    )
    return packed(encode(own, _VERSION))


def with_assigned_partitions(partitions: Iterable[TopicPartition], user_data: bytes) -> bytes:
    """Encodes a consumer's assignment with these partitions and this user data."""
    outer = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=t, partitions=n) for t, n in _by_topic(partitions)
        ],
        user_data=user_data,
    )
    return encode_record_value(outer, _OUTER_VERSION)


def decode_assignment(assignment: bytes) -> ClassicAssignment | Unreadable:
    """Decodes the assignment that the leader sent to a member."""
    try:
        outer = decode_consumer_protocol(ConsumerProtocolAssignment, assignment)
        return assignment_of(outer, outer.user_data)
    except DecodeError as error:
        return Unreadable(f"the assignment can't be read: {error}")


def assignment_of(outer: ConsumerProtocolAssignment, data: bytes | None) -> ClassicAssignment:
    """Decodes user data written by :func:`assignment_data`. Raises DecodeError."""
    own = decode(StreamsrtAssignment, _VERSION, unpacked(data))
    tasks = _tasks(own.tasks)
    return ClassicAssignment(
        process_id=str(uuid.UUID(bytes=own.process_id)),
        unique=own.unique,
        generation=own.generation,
        group_epoch=own.group_epoch,
        group_digest=own.group_digest,
        assigned_partitions=partitions_of(outer.assigned_partitions),
        tasks=tasks,
        target=tasks if own.target_as_given else _tasks(own.target),
        statuses=tuple(_status(entry) for entry in own.status),
        error_code=own.error_code,
        error_text=own.error_text,
        is_same_topology=own.is_same_topology,
        send_topology=own.send_topology,
        rejoin_after_ms=None if own.rejoin_after_ms == _NEVER else own.rejoin_after_ms,
        recovery_lag=own.recovery_lag,
        offset_interval_ms=own.offset_interval_ms,
        why=own.why or "",
        waits=_waits(own.waits),
        setbacks=_setbacks(own.setbacks),
        awaits=own.awaits,
    )


# ------------------------------------------------------------------------------------------------------ the user data


def _topology(data: bytes) -> Topology:
    topology = decode(StreamsGroupHeartbeatRequest, _VERSION, data).topology
    if topology is None:
        raise DecodeError("the topology that was sent is empty")
    return topology


# ------------------------------------------------------------------------------------------------------- their fields


def _own_endpoint(endpoint: Endpoint | None) -> StreamsrtSubscription.Endpoint | None:
    return None if endpoint is None else StreamsrtSubscription.Endpoint(host=endpoint.host, port=endpoint.port)


def _subscription_tasks(tasks: Tasks) -> StreamsrtSubscription.RoleTasks:
    def ids(role: Iterable[Task]) -> list[StreamsrtSubscription.TaskIds]:
        return [StreamsrtSubscription.TaskIds(subtopology_id=name, partitions=each) for name, each in _by_topic(role)]

    return StreamsrtSubscription.RoleTasks(
        active=ids(tasks.active), standby=ids(tasks.standby), warmup=ids(tasks.warmup)
    )


def _assignment_tasks(tasks: Tasks) -> StreamsrtAssignment.RoleTasks:
    def ids(role: Iterable[Task]) -> list[StreamsrtAssignment.TaskIds]:
        return [StreamsrtAssignment.TaskIds(subtopology_id=name, partitions=each) for name, each in _by_topic(role)]

    return StreamsrtAssignment.RoleTasks(active=ids(tasks.active), standby=ids(tasks.standby), warmup=ids(tasks.warmup))


def _by_topic(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for name, number in sorted(pairs):
        found[name].append(number)
    return list(found.items())


def _tasks(roles: StreamsrtAssignment.RoleTasks | StreamsrtSubscription.RoleTasks) -> Tasks:
    return Tasks(_task_set(roles.active), _task_set(roles.standby), _task_set(roles.warmup))


def _task_set(entries: Iterable[_TaskIds]) -> frozenset[Task]:
    return frozenset((entry.subtopology_id, partition) for entry in entries for partition in entry.partitions)


def partitions_of(entries: Iterable[_Partitions]) -> frozenset[TopicPartition]:
    return frozenset((entry.topic, partition) for entry in entries for partition in entry.partitions)


def _echo(echo: Echo, held: Tasks) -> StreamsrtSubscription.EchoedTarget:
    as_held = echo.target == held
    return StreamsrtSubscription.EchoedTarget(
        generation=echo.generation,
        group_epoch=echo.group_epoch,
        group_digest=echo.group_digest,
        as_held=as_held,
        target=_subscription_tasks(Tasks() if as_held else echo.target),
        waits=[StreamsrtSubscription.TopicWaits(topic=t, subtopology_ids=ids) for t, ids in _sorted_waits(echo.waits)],
        setbacks=list(echo.setbacks or ()),
    )


def _echoed(echo: StreamsrtSubscription.EchoedTarget, held: Tasks) -> Echo:
    target = held if echo.as_held else _tasks(echo.target)
    setbacks = _setbacks(echo.setbacks)
    return Echo(echo.generation, echo.group_epoch, echo.group_digest, target, _waits(echo.waits), setbacks)


def _setbacks(numbers: list[int]) -> ToldSetbacks | None:
    """A newer member may say more; None for fewer."""
    return ToldSetbacks(*numbers[:3]) if len(numbers) >= 3 else None


def _sorted_waits(waits: Waits) -> list[tuple[str, list[str]]]:
    return [(topic, sorted(names)) for topic, names in sorted(waits.items())]


def _waits(entries: Iterable[StreamsrtAssignment.TopicWaits | StreamsrtSubscription.TopicWaits]) -> Waits:
    return {entry.topic: frozenset(entry.subtopology_ids) for entry in entries}


def _offsets(offsets: Mapping[Task, int]) -> list[StreamsrtSubscription.TaskOffset]:
    return [
        StreamsrtSubscription.TaskOffset(subtopology_id=task[0], partition=task[1], offset=offset)
        for task, offset in sorted(offsets.items())
    ]


def _task_offsets(entries: Iterable[StreamsrtSubscription.TaskOffset]) -> dict[Task, int]:
    return {(entry.subtopology_id, entry.partition): entry.offset for entry in entries}


def _status(entry: StreamsrtAssignment.StatusEntry) -> Status | UnknownStatus:
    if entry.code in _STATUS_CODES:
        return Status(StatusCode(entry.code), entry.detail)
    return UnknownStatus(entry.code, entry.detail)
