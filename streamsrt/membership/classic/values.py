"""The values that the members of a classic group and their leader exchange.

1. ``held`` contains at least what a member has open, or may open before its next assignment. What nobody holds is
   free.
2. ``echo`` is the target that the member got last. The leader computes the group's state only from these values, so
   that any member can lead at any time.
3. A topology is identified by its epoch and its digest; its text is sent only on request.

Intervals are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from streamsrt.membership.values import NOTHING, Endpoint, Status, Task, Tasks, TopicPartition, UnknownStatus
from streamsrt.wire import types

Topology: TypeAlias = types.StreamsGroupHeartbeatRequest.Topology

PROTOCOL_NAME = "streamsrt-1"
"""The name under which our members offer this layout. Another layout is another name: the members vote."""

Waits: TypeAlias = Mapping[str, frozenset[str]]
"""Repartition topics that earlier versions alone have, each with the subtopologies of the group's version that share state
with its readers. They wait while something is unread there and no member reads it."""

PROTOCOL_TYPE = "consumer"

NO_DIGEST = bytes(16)
NO_GENERATION = -1
NO_PROCESS = "00000000-0000-0000-0000-000000000000"


class ToldSetbacks(NamedTuple):
    """How often in a row members of a version have gone, and how long it gets no more tasks from the time on when this is
    told (:mod:`streamsrt.assignment.version_backoff`). So it survives its leader."""

    epoch: int
    times: int
    left_ms: int


@dataclass(frozen=True, slots=True)
class Echo:
    """The target that a member received in a generation, and the topology that it was made for."""

    generation: int
    group_epoch: int
    group_digest: bytes
    target: Tasks
    waits: Waits = field(default_factory=dict)
    setbacks: ToldSetbacks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSubscription:
    """The contents of a member's JoinGroup.

    ``topics``, ``owned_partitions``, ``generation_id`` and ``rack_id`` are what every consumer says; brokers and other
    tools read them. ``generation_id`` is the last generation whose assignment the member got. ``offsets`` and
    ``end_offsets`` are those of :class:`~streamsrt.membership.values.SetTaskOffsets`.
    """

    process_id: str
    """The text of a UUID; members of one process have the same."""
    topology_epoch: int
    topology_digest: bytes
    unique: int = 0
    """A new number for each JoinGroup that has to start a rebalance: a broker ignores equal bytes."""
    topics: frozenset[str] = frozenset()
    owned_partitions: frozenset[TopicPartition] = frozenset()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    features: int = 0
    topology: Topology | None = None
    held: Tasks = NOTHING
    echo: Echo | None = None
    offsets: Mapping[Task, int] = field(default_factory=dict)
    end_offsets: Mapping[Task, int] = field(default_factory=dict)
    requests_shutdown: bool = False
    shutdown_received: bool = False
    """Whether the member knows that another one requested it: others may have missed that."""
    missed_sync: bool = False
    returns: bool = False
    """Whether the member had assignments with this version, and has lost its membership since."""
    awaits: bool = False
    """Whether its last assignment said so."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A member in the response to the leader's JoinGroup, with its subscription as bytes."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicAssignment:
    """The leader's assignment for a member.

    ``tasks``: run exactly these. ``target``: what the member gets when others have let go of it; kept for its echo, as
    ``waits`` and ``setbacks`` are. ``awaits``: there are no tasks because the group waits for readers of records in flight.
    ``group_epoch`` and ``group_digest`` name the topology that the target was made for. ``error_code`` is final for this
    member; ``is_same_topology``: it has the group's topology. ``rejoin_after_ms``: when to join again without another
    reason, counted from this assignment. ``process_id`` and ``unique`` are those of the subscription that it
    answers: brokers give a restarted static member what they stored.
    """

    generation: int
    group_epoch: int = -1
    group_digest: bytes = NO_DIGEST
    assigned_partitions: frozenset[TopicPartition] = frozenset()
    tasks: Tasks = NOTHING
    target: Tasks = NOTHING
    statuses: tuple[Status | UnknownStatus, ...] = ()
    error_code: int = 0
    error_text: str | None = None
    is_same_topology: bool = False
    send_topology: bool = False
    rejoin_after_ms: int | None = None
    recovery_lag: int = -1
    offset_interval_ms: int = 60_000
    why: str = ""
    waits: Waits = field(default_factory=dict)
    setbacks: ToldSetbacks | None = None
    awaits: bool = False
    process_id: str = NO_PROCESS
    unique: int = 0


def echo_of(assignment: ClassicAssignment, generation: int) -> Echo:
    """What a member echoes of the assignment that it got in that generation."""
    version = (assignment.group_epoch, assignment.group_digest)
    return Echo(generation, *version, assignment.target, assignment.waits, assignment.setbacks)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes that are not a valid subscription or assignment in this layout."""

    reason: str
