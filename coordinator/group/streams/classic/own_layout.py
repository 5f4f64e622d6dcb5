"""Subscriptions and assignments of members of this runtime in the classic protocol: the layout ``streamsrt-1``.

1. A member reports what it has open or may open, in every role. So nothing is guessed, and a task is free once no
   member reports it.
2. A member names the version of its program by epoch and digest. It echoes the version that the group ran when the
   member last got its tasks; the newest echo is the group's version.
3. The text of a topology is sent only on request.

The client's side is ``streamsrt.membership.classic.layout``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.group.streams.classic.user_data import Partition, UntranslatableError
from coordinator.group.streams.state import Endpoint
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks, task_set, wire_tasks
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

OWN_PROTOCOL = "streamsrt-1"
REQUESTS_SHUTDOWN = 1
NEVER = -1
NO_VERSION = -1

_VERSION = 0
_OUTER_VERSION = 3


class Version(NamedTuple):
    """A version of the program."""

    epoch: int
    digest: bytes


class Echo(NamedTuple):
    """The version that a group ran in a generation."""

    generation: int
    version: Version


@dataclass(frozen=True, slots=True)
class OwnSubscription:
    """The data that a member of this runtime sends when it joins."""

    process_id: str
    unique: int
    version: Version
    held: Tasks
    echo: Echo | None = None
    topology: StreamsGroupHeartbeatRequest.Topology | None = None
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    rack_id: str | None = None
    offsets: Mapping[TaskId, int] = field(default_factory=dict)
    end_offsets: Mapping[TaskId, int] = field(default_factory=dict)
    requests_shutdown: bool = False


def own_subscription_of(metadata: bytes) -> OwnSubscription:
    """Reads a member's metadata. Raises UntranslatableError."""
    try:
        outer = decode_consumer_protocol(ConsumerProtocolSubscription, metadata)
        own = decode(StreamsrtSubscription, _VERSION, unpacked(outer.user_data))
        topology = None
        if own.topology is not None:
            topology = decode(StreamsGroupHeartbeatRequest, _VERSION, own.topology).topology
    except DecodeError as error:
        raise UntranslatableError(f"the subscription can't be read: {error}") from None
    endpoint, echo = own.user_endpoint, own.echo
    return OwnSubscription(
        process_id=str(uuid.UUID(bytes=own.process_id)),
        unique=own.unique,
        version=Version(own.topology_epoch, bytes(own.topology_digest)),
        held=_tasks(own.held),
        echo=None if echo is None else Echo(echo.generation, Version(echo.group_epoch, bytes(echo.group_digest))),
        topology=topology,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=tuple(sorted((tag.key, tag.value) for tag in own.client_tags)),
        rack_id=outer.rack_id,
        offsets=_by_task(own.offsets),
        end_offsets=_by_task(own.end_offsets),
        requests_shutdown=bool(own.flags & REQUESTS_SHUTDOWN),
    )


class OwnAssignment(NamedTuple):
    """What a leader sent to a member: the tasks to run, the tasks of its target, and the version that the group runs."""

    tasks: Tasks
    target: Tasks
    echo: Echo | None


def decoded_own_assignment(assignment: bytes) -> OwnAssignment | None:
    """Decodes a leader's assignment; None if the generation has none yet. Raises UntranslatableError."""
    if not assignment:
        return None
    try:
        outer = decode_consumer_protocol(ConsumerProtocolAssignment, assignment)
        own = decode(StreamsrtAssignment, _VERSION, unpacked(outer.user_data))
    except DecodeError as error:
        raise UntranslatableError(f"an assignment can't be read: {error}") from None
    tasks = _tasks(own.tasks)
    echo = Echo(own.generation, Version(own.group_epoch, bytes(own.group_digest))) if own.group_epoch >= 0 else None
    return OwnAssignment(tasks, tasks if own.target_as_given else _tasks(own.target), echo)


def own_assignment_of(
    subscription: OwnSubscription,
    tasks: Tasks,
    target: Tasks,
    *,
    generation: int,
    group: Version | None,
    partitions: Iterable[Partition],
    statuses: Iterable[tuple[int, str]] = (),
    recovery_lag: int = -1,
    offset_interval_ms: int = 60_000,
) -> bytes:
    """Encodes the coordinator's assignment for a member. ``group``: the version that the group runs, None if its digest
    is unknown; ``partitions``: the inputs of the active tasks."""
    own = StreamsrtAssignment(
        process_id=uuid.UUID(subscription.process_id).bytes,
        unique=subscription.unique,
        generation=generation,
        group_epoch=NO_VERSION if group is None else group.epoch,
        group_digest=bytes(16) if group is None else group.digest,
        tasks=_roles(tasks),
        target_as_given=tasks == target,
        target=_roles(NO_TASKS if tasks == target else target),
        status=[StreamsrtAssignment.StatusEntry(code=code, detail=detail) for code, detail in statuses],
        rejoin_after_ms=NEVER,
        recovery_lag=recovery_lag,
        offset_interval_ms=offset_interval_ms,
    )
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    entry = ConsumerProtocolAssignment.TopicPartition
    outer = ConsumerProtocolAssignment(
        assigned_partitions=[entry(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()],
        user_data=packed(encode(own, _VERSION)),
    )
    return encode_record_value(outer, _OUTER_VERSION)


def _tasks(roles: StreamsrtSubscription.RoleTasks | StreamsrtAssignment.RoleTasks) -> Tasks:
    return Tasks(task_set(roles.active), task_set(roles.standby), task_set(roles.warmup))


def _roles(tasks: Tasks) -> StreamsrtAssignment.RoleTasks:
    ids = StreamsrtAssignment.TaskIds
    return StreamsrtAssignment.RoleTasks(
        active=wire_tasks(ids, tasks.active),
        standby=wire_tasks(ids, tasks.standby),
        warmup=wire_tasks(ids, tasks.warmup),
    )


def _by_task(entries: Iterable[StreamsrtSubscription.TaskOffset]) -> dict[TaskId, int]:
    return {TaskId(entry.subtopology_id, entry.partition): entry.offset for entry in entries}
