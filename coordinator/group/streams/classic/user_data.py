"""The user data of Kafka Streams in the classic protocol: its subscription and assignment, inside those of a consumer.

1. The subscription has process id, endpoint, client tags and an offset sum per task. Versions 7 to 11 can be read;
   older ones lack what a streams group needs.
2. The assignment lists the partitions of active tasks, in order of topic and partition, each with its task; standby
   tasks with their partitions; and the time at which the member has to rejoin by itself.
3. A task is named by a number and a partition: subtopologies must be called "0", "1" and so on.

Source: SubscriptionInfoData.json and AssignmentInfo of Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coordinator.group.streams.state import Endpoint
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.tasks import TaskId, Tasks
from streamsrt.assignment.topology import Topology
from streamsrt.wire.messages import decode_consumer_protocol, encode_record_value
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.streams_user_data import (
    NO_ERROR,
    NO_REBALANCE,
    SHUTDOWN_REQUESTED,
    AssignmentInfo,
    FutureSubscription,
    HostPort,
    NumberedTask,
    TopicPartition,
    decode_assignment_info,
    decode_subscription_info,
    encode_assignment_info,
)
from streamsrt.wire.types import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from streamsrt.wording import host_and_port

Partition = tuple[str, int]

_NUMBER = re.compile("0|[1-9][0-9]{0,8}")


class UntranslatableError(Exception):
    """The metadata of a member is not that of Kafka Streams, or has a version that contains too little."""


@dataclass(frozen=True, slots=True)
class StreamsSubscription:
    """The data that a member of the classic protocol sends when it joins."""

    version: int
    process_id: str
    endpoint: Endpoint | None
    owned: frozenset[Partition]
    offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    client_tags: tuple[tuple[str, str], ...] = ()
    rack_id: str | None = None
    requests_shutdown: bool = False


def subscription_of(metadata: bytes) -> StreamsSubscription:
    """Decodes a member's metadata. Raises UntranslatableError with what is missing."""
    try:
        consumer = decode_consumer_protocol(ConsumerProtocolSubscription, metadata)
        if consumer.user_data is None:
            raise UntranslatableError("there is no user data of Kafka Streams")
        info = decode_subscription_info(bytes(consumer.user_data))
        if isinstance(info, FutureSubscription):
            raise UntranslatableError(f"version {info.version} of the user data is not known")
        endpoint = _endpoint(info.endpoint)
    except (DecodeError, ValueError) as error:
        raise UntranslatableError(f"the subscription can't be read: {error}") from None
    return StreamsSubscription(
        version=info.version,
        process_id=info.process_id,
        endpoint=endpoint,
        owned=frozenset((entry.topic, index) for entry in consumer.owned_partitions for index in entry.partitions),
        offset_sums={_task(task): offset for task, offset in info.offset_sums.items()},
        client_tags=tuple(sorted(info.client_tags.items())),
        rack_id=consumer.rack_id,
        requests_shutdown=info.error == SHUTDOWN_REQUESTED,
    )


def _endpoint(text: str) -> Endpoint | None:
    address = host_and_port(text)
    return None if address is None else Endpoint(*address)


def tasks_of(assignment: bytes) -> Tasks:
    """Returns the tasks of an assignment of the classic protocol. Raises UntranslatableError."""
    if not assignment:
        return Tasks()
    try:
        consumer = decode_consumer_protocol(ConsumerProtocolAssignment, assignment)
        if consumer.user_data is None:
            return Tasks()
        info = decode_assignment_info(bytes(consumer.user_data))
    except DecodeError as error:
        raise UntranslatableError(f"an assignment can't be read: {error}") from None
    return Tasks(frozenset(map(_task, info.active)), frozenset(map(_task, info.standby)))


def _task(numbers: NumberedTask) -> TaskId:
    return TaskId(str(numbers[0]), numbers[1])


def partitions_of(tasks: Iterable[TaskId], configuration: Configuration) -> dict[TaskId, list[Partition]]:
    """Returns the input partitions of each task, in order."""
    topics = {part.id: part.input_topics for part in configuration.resolved.subtopologies}
    counts = configuration.partition_counts
    return {
        task: [(name, task.partition) for name in sorted(topics[task.subtopology_id]) if task.partition < counts[name]]
        for task in sorted(tasks)
        if task.subtopology_id in topics
    }


def assignment_of(
    tasks: Tasks,
    configuration: Configuration,
    version: int,
    *,
    endpoints: Mapping[Endpoint, tuple[list[Partition], list[Partition]]],
    rejoin_at_ms: int = NO_REBALANCE,
    error: int = NO_ERROR,
) -> bytes:
    """Encodes the assignment of a member of the classic protocol. It has no warm-up tasks: the member gets them as
    standby tasks.

    ``endpoints``: active and standby partitions of all members that answer queries.
    """
    active = [
        (partition, task)
        for task, partitions in partitions_of(tasks.active, configuration).items()
        for partition in partitions
    ]
    active.sort()
    info = AssignmentInfo(
        version=version,
        common_version=version,
        active=tuple(_numbers(task) for _, task in active),
        standby={_numbers(t): frozenset(read) for t, read in partitions_of(tasks.passive, configuration).items()},
        active_by_host=_by_host(endpoints, 0),
        standby_by_host=_by_host(endpoints, 1),
        error=error,
        next_rebalance_ms=rejoin_at_ms,
    )
    topics: dict[str, list[int]] = {}
    for (name, index), _ in active:
        topics.setdefault(name, []).append(index)
    partition = ConsumerProtocolAssignment.TopicPartition
    assigned = [partition(topic=name, partitions=indexes) for name, indexes in topics.items()]
    return encode_record_value(
        ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=encode_assignment_info(info))
    )


def is_numbered(topology: Topology) -> bool:
    """Whether the layout has names for the tasks of this topology."""
    return all(_NUMBER.fullmatch(part.id) for part in topology.subtopologies)


def _numbers(task: TaskId) -> NumberedTask:
    return int(task.subtopology_id), task.partition


def _by_host(
    endpoints: Mapping[Endpoint, tuple[list[Partition], list[Partition]]], role: int
) -> dict[HostPort, frozenset[TopicPartition]]:
    return {(endpoint.host, endpoint.port): frozenset(roles[role]) for endpoint, roles in endpoints.items()}
