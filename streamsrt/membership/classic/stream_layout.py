"""The format of subscriptions and assignments in groups with Java's Kafka Streams: protocol ``stream``, as bytes.

1. The user data is Java's, of the version that the member uses. Our members append their own message: Java reads only
   the part that it knows. So a leader of ours knows as much of our members as in a group without Java.
2. A member that may meet Java offers this layout second: the broker chooses the first one that all members have. A
   member can offer it if its subtopologies are called "0", "1" and so on, as in Java (``subtopology.id=number``).
3. Java has no warm-up tasks: in its format they are standby tasks.
4. The version that a member uses follows from its last assignment: it is the newest one that all members know.
5. Equal values give equal bytes. Bytes that can't be read are values, as in
   :mod:`~streamsrt.membership.classic.layout`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from streamsrt.membership.classic.layout import (
    assignment_data,
    assignment_of,
    decode_assignment,
    decode_subscription,
    partitions_of,
    subscription_data,
    subscription_of,
    with_assigned_partitions,
    with_consumer_fields,
)
from streamsrt.membership.classic.values import (
    NO_GENERATION,
    PROTOCOL_NAME,
    ClassicAssignment,
    ClassicSubscription,
    Topology,
    Unreadable,
)
from streamsrt.membership.values import Answers, Endpoint, Task, Tasks, TopicPartition
from streamsrt.wire.messages import decode_consumer_protocol
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.streams_user_data import (
    NEWEST_VERSION,
    NO_ERROR,
    RUNNING,
    SHUTDOWN_REQUESTED,
    AssignmentInfo,
    FutureSubscription,
    HostPort,
    NumberedTask,
    SubscriptionInfo,
    decode_assignment_info,
    decode_subscription_info,
    encode_assignment_info,
    encode_subscription_info,
)
from streamsrt.wire.types import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from streamsrt.wording import address_text

STREAM_PROTOCOL: Final = "stream"
"""The name under which Java's Kafka Streams offers its layout."""

_OURS: Final = b"SRT1"
_UNKNOWN: Final = FutureSubscription(0, 0)


@dataclass(frozen=True, slots=True)
class JavaSubscription:
    """The subscription of a Java member. ``unreadable``: why only the standard consumer fields are known."""

    info: SubscriptionInfo | FutureSubscription
    topics: frozenset[str] = frozenset()
    owned_partitions: frozenset[TopicPartition] = frozenset()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    unreadable: str = ""

    @property
    def running(self) -> frozenset[Task]:
        """The active tasks that run. A task that still restores its state is known only by the partitions that the member
        owns."""
        if isinstance(self.info, FutureSubscription):
            return frozenset()
        return frozenset(_named(task) for task, offset in self.info.offset_sums.items() if offset == RUNNING)


@dataclass(frozen=True, slots=True)
class JavaAssignment:
    """The assignment of a member in Java's format. ``partitions`` in the order of the active tasks of ``info``."""

    info: AssignmentInfo
    partitions: tuple[TopicPartition, ...]

    @property
    def tasks(self) -> Tasks:
        active = frozenset(_named(task) for task in self.info.active)
        return Tasks(active, frozenset(_named(task) for task in self.info.standby) - active)

    @property
    def endpoints(self) -> Answers:
        active, standby = self.info.active_by_host, self.info.standby_by_host
        nothing: frozenset[TopicPartition] = frozenset()
        return {
            Endpoint(*host): (active.get(host, nothing), standby.get(host, nothing)) for host in {**active, **standby}
        }

    def inputs(self) -> Iterable[tuple[Task, TopicPartition]]:
        """Each task with its input partitions."""
        for task, partition in zip(self.info.active, self.partitions, strict=True):
            yield _named(task), partition
        for task, partitions in self.info.standby.items():
            for partition in sorted(partitions):
                yield _named(task), partition


@dataclass(frozen=True, slots=True)
class UserDataVersions:
    """Versions of the user data in a generation: ``used`` by all members that have to read it, and ``common``, the newest
    one that all of them support."""

    used: int = NEWEST_VERSION
    common: int = NEWEST_VERSION


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts that answer queries, with their partitions."""

    active: Mapping[HostPort, frozenset[TopicPartition]] = field(default_factory=dict)
    standby: Mapping[HostPort, frozenset[TopicPartition]] = field(default_factory=dict)


def is_numbered(topology: Topology) -> bool:
    """Whether its subtopologies are numbered as in Java."""
    names = {part.subtopology_id for part in topology.subtopologies}
    return bool(names) and names == {str(number) for number in range(len(names))}


# ------------------------------------------------------------------------------------------------------- subscriptions


def encode_stream_subscription(subscription: ClassicSubscription, version: int, topology: Topology) -> bytes:
    """Raises ValueError if the process id is not the text of a UUID, or a subtopology is not a number."""
    endpoint = subscription.endpoint
    info = SubscriptionInfo(
        version=version,
        newest_version=NEWEST_VERSION,
        process_id=subscription.process_id,
        endpoint="" if endpoint is None else address_text(endpoint.host, endpoint.port),
        offset_sums=_offset_sums(subscription, topology),
        unique=(subscription.unique & 0xFF) - 128,
        error=SHUTDOWN_REQUESTED if subscription.requests_shutdown or subscription.shutdown_received else NO_ERROR,
        client_tags=subscription.client_tags,
        rest=_appended(subscription_data(subscription)),
    )
    return with_consumer_fields(subscription, encode_subscription_info(info))


def decode_stream_subscription(metadata: bytes) -> ClassicSubscription | JavaSubscription | Unreadable:
    try:
        outer = decode_consumer_protocol(ConsumerProtocolSubscription, metadata)
    except DecodeError as error:
        return Unreadable(f"the subscription can't be read: {error}")
    info: SubscriptionInfo | FutureSubscription = _UNKNOWN
    unreadable = ""
    try:
        info = decode_subscription_info(outer.user_data or b"")
        own = _own(info.rest) if isinstance(info, SubscriptionInfo) else None
        if own is not None:
            return subscription_of(outer, own)
    except DecodeError as error:
        # Its owned partitions still count: others must not get them.
        info, unreadable = _UNKNOWN, f"its user data can't be read: {error}"
    return JavaSubscription(
        info,
        frozenset(outer.topics),
        partitions_of(outer.owned_partitions),
        outer.generation_id,
        outer.rack_id,
        unreadable,
    )


def versions_of(subscriptions: Iterable[bytes]) -> UserDataVersions:
    """Chooses the versions from those that members sent. A member with an unreadable version learns the one to use from the
    response."""
    used, common = NEWEST_VERSION, NEWEST_VERSION
    for metadata in subscriptions:
        try:
            outer = decode_consumer_protocol(ConsumerProtocolSubscription, metadata)
            info = decode_subscription_info(outer.user_data or b"")
        except DecodeError:
            continue
        used, common = min(used, info.version), min(common, info.newest_version)
    return UserDataVersions(used, max(used, common))


def _offset_sums(subscription: ClassicSubscription, topology: Topology) -> dict[NumberedTask, int]:
    """Positions of state on disk, and Java's marker for active tasks. A Java leader fails if it gets a task without a
    changelog ("Tried to lookup lag for unknown task")."""
    stateful = {part.subtopology_id for part in topology.subtopologies if part.state_changelog_topics}
    sums = dict.fromkeys(subscription.held.standby | subscription.held.warmup, 0)
    sums |= {task: offset for task, offset in subscription.offsets.items() if offset >= 0}
    sums |= dict.fromkeys(subscription.held.active, RUNNING)
    return {_numbers(task): offset for task, offset in sums.items() if task[0] in stateful}


# --------------------------------------------------------------------------------------------------------- assignments


def encode_stream_assignment(
    decoded: ClassicAssignment,
    inputs: Mapping[Task, Collection[TopicPartition]],
    versions: UserDataVersions,
    hosts: Hosts,
    *,
    is_java: bool,
    error: int = NO_ERROR,
) -> bytes:
    """``inputs``: the inputs of each of the member's tasks."""
    active = sorted((partition, _numbers(task)) for task in decoded.tasks.active for partition in inputs.get(task, ()))
    info = AssignmentInfo(
        version=versions.used,
        common_version=versions.common,
        active=tuple(task for _, task in active),
        standby={
            _numbers(task): frozenset(inputs.get(task, ())) for task in decoded.tasks.standby | decoded.tasks.warmup
        },
        active_by_host=hosts.active,
        standby_by_host=hosts.standby,
        error=error,
        rest=b"" if is_java else _appended(assignment_data(decoded)),
    )
    return with_assigned_partitions((partition for partition, _ in active), encode_assignment_info(info))


def decode_stream_assignment(assignment: bytes) -> tuple[ClassicAssignment | None, JavaAssignment] | Unreadable:
    """Returns the assignment in our own format, if one of our members leads, and in Java's."""
    try:
        outer = decode_consumer_protocol(ConsumerProtocolAssignment, assignment)
        info = decode_assignment_info(outer.user_data or b"")
        own = _own(info.rest)
        decoded = None if own is None else assignment_of(outer, own)
        partitions = tuple(sorted(partitions_of(outer.assigned_partitions)))
        if len(partitions) != len(info.active):
            raise DecodeError(f"there are {len(info.active)} tasks for {len(partitions)} partitions")
        return decoded, JavaAssignment(info, partitions)
    except DecodeError as error:
        return Unreadable(f"the assignment can't be read: {error}")


# --------------------------------------------------------------------------------------------------------------- parts


def _appended(message: bytes) -> bytes:
    return _OURS + struct.pack(">i", len(message)) + message


def _own(rest: bytes) -> bytes | None:
    """Returns our own message, or None if there is none."""
    if not rest.startswith(_OURS):
        return None
    message = rest[len(_OURS) + 4 :]
    if len(rest) < len(_OURS) + 4 or struct.unpack_from(">i", rest, len(_OURS))[0] != len(message):
        raise DecodeError("the data appended to Kafka Streams' user data is cut off")
    return message


def _numbers(task: Task) -> NumberedTask:
    return int(task[0]), task[1]


def _named(task: NumberedTask) -> Task:
    return str(task[0]), task[1]


# ------------------------------------------------------------------------------------- groups as described by brokers


def decode_own_subscription(protocol_name: str, metadata: bytes) -> ClassicSubscription | None:
    """Decodes the subscription of a member in a group with this layout; None if it is not one of ours."""
    if protocol_name not in {PROTOCOL_NAME, STREAM_PROTOCOL}:
        return None
    subscription = (decode_subscription if protocol_name == PROTOCOL_NAME else decode_stream_subscription)(metadata)
    return subscription if isinstance(subscription, ClassicSubscription) else None


def decode_own_assignment(protocol_name: str, assignment: bytes) -> ClassicAssignment | None:
    """Decodes the assignment of a member; None if the leader did not write it in our own format."""
    if protocol_name == PROTOCOL_NAME:
        decoded = decode_assignment(assignment)
        return decoded if isinstance(decoded, ClassicAssignment) else None
    read = decode_stream_assignment(assignment) if protocol_name == STREAM_PROTOCOL else Unreadable("")
    return None if isinstance(read, Unreadable) else read[0]
