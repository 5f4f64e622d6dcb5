"""What Kafka Streams says within the classic protocol: its subscription and its assignment, inside of a consumer's.

1. The subscription has process id, endpoint, client tags and an offset sum per task. Versions 7 to 11 can be read; older
   ones do not have what a streams group has to know.
2. The assignment lists the partitions of active tasks, in order of topic and partition, each with its task; standby tasks
   with their partitions; and when the member is to rejoin by itself.
3. A task is named by a number and a partition: subtopologies have to be called "0", "1" and so on.

Source: SubscriptionInfoData.json and AssignmentInfo of Apache Kafka.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coordinator.group.streams.state import Endpoint
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.tasks import TaskId, Tasks
from streamsrt.wire.messages import decode_consumer_protocol, encode_record_value
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.types import ConsumerProtocolAssignment, ConsumerProtocolSubscription

OLDEST_VERSION, NEWEST_VERSION = 7, 11
NAMED_TOPOLOGY_VERSION = 10
CLIENT_TAGS_VERSION = 11
RUNNING = -2
"""The offset sum of a task that is active and restored."""
NO_REBALANCE = 2**63 - 1
NO_ERROR, SHUTDOWN_REQUESTED = 0, 4

Partition = tuple[str, int]


class UntranslatableError(Exception):
    """What a member says is not what Kafka Streams says, or not in a version that tells enough."""


@dataclass(frozen=True, slots=True)
class StreamsSubscription:
    """What a member of the classic protocol says about itself when it joins."""

    version: int
    process_id: str
    endpoint: Endpoint | None
    owned: frozenset[Partition]
    offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    client_tags: tuple[tuple[str, str], ...] = ()
    rack_id: str | None = None
    wants_shutdown: bool = False


class _Reader:
    """Big-endian fields, one after the other; whatever is cut off raises ``struct.error``."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def int32(self) -> int:
        return self.number(">i")

    def count(self) -> int:
        count = self.int32()
        if not 0 <= count <= len(self._data):
            raise UntranslatableError(f"a list of {count} entries")
        return count

    def raw(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise UntranslatableError(f"a field of {size} bytes is cut off")
        self._at += size
        return self._data[self._at - size : self._at]

    def data(self) -> bytes:
        return self.raw(self.int32())

    def short_text(self) -> str:
        return self.raw(self.number(">H")).decode()


def subscription_of(metadata: bytes) -> StreamsSubscription:
    """Reads a member's metadata. Raises UntranslatableError saying what it lacks."""
    try:
        consumer = decode_consumer_protocol(ConsumerProtocolSubscription, metadata)
        if consumer.user_data is None:
            raise UntranslatableError("there is no user data of Kafka Streams")
        return _subscription(_Reader(bytes(consumer.user_data)), consumer)
    except (DecodeError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise UntranslatableError(f"the subscription can't be read: {error}") from None


def _subscription(reader: _Reader, consumer: ConsumerProtocolSubscription) -> StreamsSubscription:
    version = reader.int32()
    if not OLDEST_VERSION <= version <= NEWEST_VERSION:
        raise UntranslatableError(f"version {version} of the user data is not in {OLDEST_VERSION} to {NEWEST_VERSION}")
    reader.int32()  # the newest version that the member supports
    process_id = str(uuid.UUID(bytes=reader.raw(16)))
    endpoint = _endpoint(reader.data().decode())
    sums = _offset_sums(reader, version)
    if version > OLDEST_VERSION:
        reader.number(">b")  # makes each subscription differ, so that a rebalance follows
    error = reader.int32() if version > OLDEST_VERSION + 1 else NO_ERROR
    tags = []
    if version >= CLIENT_TAGS_VERSION:
        tags = [(reader.data().decode(), reader.data().decode()) for _ in range(reader.count())]
    return StreamsSubscription(
        version=version,
        process_id=process_id,
        endpoint=endpoint,
        owned=frozenset((entry.topic, index) for entry in consumer.owned_partitions for index in entry.partitions),
        offset_sums=sums,
        client_tags=tuple(sorted(tags)),
        rack_id=consumer.rack_id,
        wants_shutdown=error == SHUTDOWN_REQUESTED,
    )


def _offset_sums(reader: _Reader, version: int) -> dict[TaskId, int]:
    found: dict[TaskId, int] = {}
    for _ in range(reader.count()):
        subtopology = str(reader.int32())
        if version < NAMED_TOPOLOGY_VERSION:
            for _ in range(reader.count()):
                task = TaskId(subtopology, reader.int32())
                found[task] = reader.number(">q")
            continue
        task = TaskId(subtopology, reader.int32())
        found[task] = reader.number(">q")
        if (size := reader.number(">h")) > 0:
            raise UntranslatableError(f"task {task} belongs to the named topology {reader.raw(size)!r}")
    return found


def _endpoint(text: str) -> Endpoint | None:
    host, colon, port = text.rpartition(":")
    return Endpoint(host, int(port)) if colon else None


def tasks_of(assignment: bytes) -> Tasks:
    """The tasks of an assignment that a member of the classic protocol got. Raises UntranslatableError."""
    if not assignment:
        return Tasks()
    try:
        consumer = decode_consumer_protocol(ConsumerProtocolAssignment, assignment)
        if consumer.user_data is None:
            return Tasks()
        reader = _Reader(bytes(consumer.user_data))
        version = reader.int32()
        if not OLDEST_VERSION <= version <= NEWEST_VERSION:
            raise UntranslatableError(f"version {version} of an assignment is not known")
        reader.int32()
        active = frozenset(_task(reader, version) for _ in range(reader.count()))
        standby = set()
        for _ in range(reader.count()):
            standby.add(_task(reader, version))
            for _ in range(reader.count()):
                reader.short_text()
                reader.int32()
        return Tasks(active, frozenset(standby))
    except (DecodeError, struct.error, UnicodeDecodeError) as error:
        raise UntranslatableError(f"an assignment can't be read: {error}") from None


def _task(reader: _Reader, version: int) -> TaskId:
    task = TaskId(str(reader.int32()), reader.int32())
    if version >= NAMED_TOPOLOGY_VERSION:
        reader.raw(2 * reader.int32())
    return task


def partitions_of(tasks: Iterable[TaskId], configuration: Configuration) -> dict[TaskId, list[Partition]]:
    """The input partitions of each task, in order."""
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
    """The assignment of a member of the classic protocol. It has no warm-up tasks: to it, they are standby tasks.

    ``endpoints``: active and standby partitions of everybody that answers queries.
    """
    active = [
        (partition, task)
        for task, partitions in partitions_of(tasks.active, configuration).items()
        for partition in partitions
    ]
    active.sort()
    out = [struct.pack(">iii", version, version, len(active))]
    out += [_packed_task(task, version) for _, task in active]
    standby = partitions_of(tasks.passive, configuration)
    out.append(struct.pack(">i", len(standby)))
    for task, partitions in standby.items():
        out += [_packed_task(task, version), struct.pack(">i", len(partitions))]
        out += [_packed_text(name) + struct.pack(">i", index) for name, index in partitions]
    out += _packed_endpoints(endpoints)
    out.append(struct.pack(">iq", error, rejoin_at_ms))
    topics: dict[str, list[int]] = {}
    for (name, index), _ in active:
        topics.setdefault(name, []).append(index)
    partition = ConsumerProtocolAssignment.TopicPartition
    assigned = [partition(topic=name, partitions=indexes) for name, indexes in topics.items()]
    return encode_record_value(ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=b"".join(out)))


def _packed_task(task: TaskId, version: int) -> bytes:
    named = struct.pack(">i", 0) if version >= NAMED_TOPOLOGY_VERSION else b""
    return struct.pack(">ii", int(task.subtopology_id), task.partition) + named


def _packed_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _packed_endpoints(endpoints: Mapping[Endpoint, tuple[list[Partition], list[Partition]]]) -> list[bytes]:
    names = sorted({name for roles in endpoints.values() for partitions in roles for name, _ in partitions})
    numbers = {name: number for number, name in enumerate(names)}
    out = [struct.pack(">i", len(names))]
    out += [struct.pack(">i", number) + _packed_text(name) for name, number in numbers.items()]
    for role in (0, 1):
        out.append(struct.pack(">i", len(endpoints)))
        for endpoint, roles in sorted(endpoints.items()):
            out += [_packed_text(endpoint.host), struct.pack(">ii", endpoint.port, len(roles[role]))]
            out += [struct.pack(">ii", numbers[name], index) for name, index in roles[role]]
    return out
