"""The interface of a membership: its settings, tasks, commands and events.

A task is ``(subtopology id, partition)``. Commands go from the processing thread to the membership, events come back.
The runtime's part of the contract:

1. :class:`AssignmentChanged` has the complete set of tasks. Close removed tasks, open new ones, and send
   :class:`ReportOwned` whenever the set of open tasks changes; the heartbeat that confirms it is sent at once.
2. On :class:`TasksLost` give up every task *without committing*, then send ``ReportOwned`` with nothing. The member joins
   again by itself.
3. On :class:`ReleaseTasks` commit and close every task, then send ``ReportOwned`` with nothing. The member then leaves.
4. :class:`MembershipFailed` is final: nothing follows it.

Source: KIP-1071; ``StreamsMembershipManager`` of Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from streamsrt.assignment.status_code import StatusCode
from streamsrt.errors import StreamsError
from streamsrt.wire import types

Task: TypeAlias = tuple[str, int]
"""``(subtopology id, partition)``"""

TopicPartition: TypeAlias = tuple[str, int]
Partitions: TypeAlias = frozenset[TopicPartition]

NO_TASKS: frozenset[Task] = frozenset()


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks by role. As an assignment: the tasks to run. As a report: the open tasks."""

    active: frozenset[Task] = NO_TASKS
    standby: frozenset[Task] = NO_TASKS
    warmup: frozenset[Task] = NO_TASKS

    def __len__(self) -> int:
        return len(self.active) + len(self.standby) + len(self.warmup)


NOTHING = Tasks()

MISSING_SOURCE_TOPICS_TIMEOUT_MS = 10_000
DEFAULT_SESSION_TIMEOUT_MS = 45_000
"""Kafka's ``group.streams.session.timeout.ms``."""

SESSION_END_SLACK_MS = 5_000
"""How late a busy coordinator may end a session."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Host and port for interactive queries (``application.server``)."""

    host: str
    port: int


Answers: TypeAlias = Mapping[Endpoint, tuple[Partitions, Partitions]]
"""Who answers queries of what: ``(active partitions, standby partitions)`` by endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembership:
    """The member's identity and what it sends when it joins. Times in milliseconds.

    ``member_id`` is made by the caller, once per stream thread and process: URL-safe base64 of a UUID, without padding.
    ``process_id`` is the same for all members of one process. ``rebalance_timeout_ms`` is ``max.poll.interval.ms``: a
    processing thread that does not poll for so long leaves the group, as Kafka's consumer does.
    """

    group_id: str
    member_id: str
    process_id: str
    topology: types.StreamsGroupHeartbeatRequest.Topology
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = 300_000
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    missing_source_topics_timeout_ms: int = MISSING_SOURCE_TOPICS_TIMEOUT_MS
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    """The session timeout that a member of a classic group requests. The coordinator sets that of streams members."""
    streams_session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    """The group's session timeout, if known: how long an ``instance_id`` belongs to a killed streams member."""
    principal: str | None = None
    """The principal that the broker assigns to this client, if known; used in messages."""

    @property
    def instance_id_wait_ms(self) -> int:
        """How long to wait for the ``instance_id``: after this time, the previous streams member has lost it, or is
        alive."""
        return self.streams_session_timeout_ms + SESSION_END_SLACK_MS


# ----------------------------------------------------------------------------------------------------------- commands


@dataclass(frozen=True, slots=True)
class Join:
    """Become a member. Sent once."""


@dataclass(frozen=True, slots=True)
class ReportOwned:
    """Report the open tasks (opened and not yet closed, whether restored or not)."""

    tasks: Tasks


@dataclass(frozen=True, slots=True)
class SetTaskOffsets:
    """Report the latest changelog positions and end positions per task with state, summed over the task's changelogs.

    Cheap to send often: the membership decides when they are reported. Tasks whose end is unknown, and tasks that are
    only on disk, have no entry in ``end_offsets``.
    """

    offsets: Mapping[Task, int]
    end_offsets: Mapping[Task, int]


@dataclass(frozen=True, slots=True)
class RequestShutdown:
    """Leave, and tell every member of the group to shut down (KIP-1071 ``ShutdownApplication``)."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group. ``remain``: a static member keeps its tasks until it is back or its session ends."""

    remain: bool = False


Command: TypeAlias = Join | ReportOwned | SetTaskOffsets | RequestShutdown | Leave


# ------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Status:
    code: StatusCode
    detail: str


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """Run exactly these tasks. ``why``: the coordinator's reason; empty if it sends none, like Apache Kafka's."""

    tasks: Tasks
    member_epoch: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class EpochChanged:
    """The member epoch, which commits of offsets carry (KIP-1071: checked like a generation)."""

    member_epoch: int


@dataclass(frozen=True, slots=True)
class TasksLost:
    """Others may run the tasks already: give them up without committing and report that nothing is owned."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseTasks:
    """The member is about to leave: commit, close, and report that nothing is owned."""


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """All present statuses; empty when none applies any more. ``is_classic``: reported by the leader of a classic group."""

    statuses: tuple[Status, ...]
    is_classic: bool = False


@dataclass(frozen=True, slots=True)
class UnknownStatus:
    """A status code of a newer broker: it is logged, and otherwise ignored."""

    code: int
    detail: str


@dataclass(frozen=True, slots=True)
class SourceTopicsMissing:
    """MISSING_SOURCE_TOPICS has lasted for ``missing_source_topics_timeout_ms``. Kafka Streams stops here."""

    detail: str


@dataclass(frozen=True, slots=True)
class EndpointsChanged:
    """The endpoints and their partitions, for interactive queries."""

    partitions: Answers


@dataclass(frozen=True, slots=True)
class HeartbeatTrouble:
    """Heartbeats fail and are retried. One event per outage."""

    reason: str


@dataclass(frozen=True, slots=True)
class HeartbeatRecovered:
    """The outage is over."""

    outage_ms: int


@dataclass(frozen=True, slots=True)
class InstanceIdTaken:
    """A member that has not left has the same ``group.instance.id``. Joining is retried until that member's session must
    have ended, for at most ``wait_ms``. The next assignment shows that the id is free."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class MembershipFailed:
    """The member can't be part of the group; ``error`` says why and what to do."""

    error: StreamsError


@dataclass(frozen=True, slots=True)
class LeftGroup:
    """The member has left; nothing follows."""


Event: TypeAlias = (
    AssignmentChanged
    | EpochChanged
    | TasksLost
    | ReleaseTasks
    | StatusChanged
    | UnknownStatus
    | SourceTopicsMissing
    | EndpointsChanged
    | HeartbeatTrouble
    | HeartbeatRecovered
    | InstanceIdTaken
    | MembershipFailed
    | LeftGroup
)

Role: TypeAlias = Literal["active", "standby", "warmup"]
