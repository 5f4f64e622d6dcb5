"""The state of a member of a classic group (:class:`Session`), its events, and their results: values only.

The machine over them is :mod:`streamsrt.membership.classic.session`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from streamsrt.membership.classic.values import NO_DIGEST, NO_GENERATION, PROTOCOL_NAME, Echo, Joined
from streamsrt.membership.session_events import OwnedReported, Refused, RequestFailed, Tick
from streamsrt.membership.state import OffsetReport
from streamsrt.membership.values import (
    NOTHING,
    Answers,
    Command,
    Event,
    GroupMembership,
    Join,
    Leave,
    Status,
    Task,
    Tasks,
    TopicPartition,
)
from streamsrt.wire import types
from streamsrt.wire.streams_user_data import NEWEST_VERSION

GroupRequest: TypeAlias = types.HeartbeatRequest | types.LeaveGroupRequest
RebalanceRequest: TypeAlias = types.JoinGroupRequest | types.SyncGroupRequest


class ClassicMemberState(Enum):
    """The member's position in its group."""

    OUT = "out"
    JOINING = "joining"
    LEADING = "leading"
    SYNCING = "syncing"
    IN = "in"
    LEAVING = "leaving"
    FATAL = "fatal"


TAKING_PART = frozenset(
    {ClassicMemberState.JOINING, ClassicMemberState.LEADING, ClassicMemberState.SYNCING, ClassicMemberState.IN}
)
BEATING = frozenset({ClassicMemberState.IN, ClassicMemberState.LEADING})


class TaskState(Enum):
    """The state of the member's tasks. LOST and STALE: nothing is sent while tasks are open."""

    RUNNING = "running"
    RELEASING = "releasing"
    LOST = "lost"
    STALE = "stale"


class InFlight(Enum):
    COORDINATOR = "coordinator"
    HEARTBEAT = "heartbeat"
    LEAVE = "leave"
    JOIN = "join"
    SYNC = "sync"


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The member has to join again. ``is_forced``: the group is rebalancing and waits for it."""

    reason: str
    since_ms: int
    is_forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The state of the machine. ``version``: the JoinGroup version; None: the coordinator has to be found (again)."""

    membership: GroupMembership
    digest: bytes = NO_DIGEST
    heartbeat_interval_ms: int = 3_000
    group: ClassicMemberState = ClassicMemberState.OUT
    tasks: TaskState = TaskState.RUNNING
    ended: bool = False
    member_id: str = ""
    generation: int = NO_GENERATION
    synced_generation: int = NO_GENERATION
    """The last generation whose assignment the member received."""
    version: int | None = None
    in_flight: InFlight | None = None
    """The request in flight on the heartbeat lane, which is also used to find the coordinator."""
    rebalance_in_flight: InFlight | None = None
    back_off_until_ms: int = 0
    rebalance_back_off_until_ms: int = 0
    failures: int = 0
    trouble_since_ms: int | None = None
    fences: int = 0
    sent_at_ms: int = 0
    """When the last heartbeat was sent."""
    beat_generation: int = NO_GENERATION

    unique: int = 0
    join: types.JoinGroupRequest | None = None
    """Sent and not answered; it is repeated unchanged."""
    id_taken_since_ms: int | None = None
    """Since when the ``group.instance.id`` is refused because a streams member has it."""
    join_was_lost: bool = False
    """Whether a response to a JoinGroup has been lost since the last one that arrived."""
    sync: types.SyncGroupRequest | None = None
    claimed: Tasks = NOTHING
    """The tasks that the last JoinGroup claimed."""
    leader_id: str = ""
    """The leader's member id, empty if there is none."""
    is_leaderless: bool = False
    """Whether the coordinator of the group assigns the tasks: it is none of the classic protocol."""
    join_requested_shutdown: bool = False
    """Whether the last JoinGroup requested a shutdown of the application."""
    joined_of_its_own: bool = False
    missed_sync: bool = False
    sync_failures: int = 0
    """Consecutive syncs for which the broker could not store the group."""
    rejoin: Rejoin | None = None
    idle_rounds: int = 0
    """Consecutive generations that the member started and that changed nothing for it."""
    synced_at_ms: int = 0
    rejoin_at_ms: int | None = None
    topology_wanted: bool = False
    revoked: Tasks = NOTHING
    """Tasks that were claimed and not assigned: when all of them are closed, the member joins again to report it."""
    echo: Echo | None = None
    returns: bool = False
    """Whether the member has lost a membership in which it had assignments."""
    awaits: bool = False
    """Whether the last assignment said that the group waits for readers of records in flight."""
    partitions: frozenset[TopicPartition] = frozenset()

    assigned: Tasks = NOTHING
    owned: Tasks = NOTHING
    offered: Tasks = NOTHING
    """The tasks of the latest assignment, and of all that the processing thread had not handled when it last reported its
    tasks."""
    assigned_at: int = 0
    """The number of the last event with an assignment."""
    event_count: int = 0
    lost_at: int | None = None
    """The number of the TasksLost event that is not confirmed yet."""
    is_new: bool = True
    """Whether no assignment has been reported since the member joined anew."""

    recovery_lag: int = -1
    report: OffsetReport | None = None
    reported_caught_up: frozenset[Task] = frozenset()
    statuses: tuple[Status, ...] = ()
    sources_missing_since_ms: int | None = None
    sources_missing_reported: bool = False
    protocol_name: str = PROTOCOL_NAME
    """The layout of the generation: ours, or Java's if the group has Java members."""
    stream_version: int = NEWEST_VERSION
    """The version of Java's layout for the member's next subscription."""
    answers: Answers | None = None
    """The endpoints that answer queries, as sent by a leader in Java's layout."""
    shutdown_application: bool = False
    shutdown_received: bool = False
    """Whether the member knows that another one requested a shutdown of the application."""
    shutdown_wait_until_ms: int | None = None
    """How long a leader that has sent a shutdown to the others waits for one of them to join or leave."""
    leave: Leave | None = None
    stale_leave_pending: bool = False
    polled_at_ms: int = 0

    @property
    def shuts_down(self) -> bool:
        """Whether this member must tell the group that the application shuts down."""
        return self.shutdown_application or self.shutdown_received

    @property
    def held(self) -> Tasks:
        """Tasks that are open, or may be opened before the next response."""
        return union(self.owned, self.offered)


def union(one: Tasks, other: Tasks) -> Tasks:
    """Merges both; each task once, in its strongest role."""
    active = one.active | other.active
    standby = (one.standby | other.standby) - active
    return Tasks(active, standby, (one.warmup | other.warmup) - active - standby)


def not_given(claimed: Tasks, given: Tasks) -> Tasks:
    """Tasks to release: those that are no longer active, and those that are no longer assigned."""
    everything = given.active | given.standby | given.warmup
    return Tasks(claimed.active - given.active, claimed.standby - everything, claimed.warmup - everything)


def is_held(tasks: Tasks, held: Tasks) -> bool:
    """Whether any of ``tasks`` is held in the same role."""
    return bool(tasks.active & held.active or tasks.standby & held.standby or tasks.warmup & held.warmup)


# ------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """A connection to the coordinator exists. ``version``: the highest JoinGroup version that it supports."""

    version: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to a Heartbeat or a LeaveGroup."""

    response: types.HeartbeatResponse | types.LeaveGroupResponse


@dataclass(frozen=True, slots=True)
class RebalanceAnswered:
    """The response to a JoinGroup or a SyncGroup."""

    response: types.JoinGroupResponse | types.SyncGroupResponse


@dataclass(frozen=True, slots=True)
class RebalanceFailed:
    """A JoinGroup or a SyncGroup failed without a response."""

    reason: str


@dataclass(frozen=True, slots=True)
class Led:
    """The result of leading: the assignments of the generation, as bytes by member id."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Unfit:
    """This member can't lead the group although it has to, and can't stay in it."""

    reason: str


@dataclass(frozen=True, slots=True)
class RejoinWanted:
    """A reason to join again that only the leader knows: topics were created or changed."""

    reason: str


@dataclass(frozen=True, slots=True)
class EndpointsFound:
    """The endpoints and tasks of the members of this generation."""

    partitions: Answers


Happening: TypeAlias = (
    Command
    | OwnedReported
    | Join
    | CoordinatorFound
    | Answered
    | RequestFailed
    | RebalanceAnswered
    | RebalanceFailed
    | Refused
    | Led
    | Unfit
    | RejoinWanted
    | EndpointsFound
    | Tick
)
"""The machine's inputs: commands, and the events above."""


# -------------------------------------------------------------------------------------------------------- what follows


@dataclass(frozen=True, slots=True)
class Lead:
    """The broker has made this member the leader of the generation; the result comes as :class:`Led`."""

    generation: int
    protocol_name: str
    members: tuple[Joined, ...]


@dataclass(frozen=True, slots=True)
class ClassicSessionStep:
    """The requests and events that follow: at most one request per lane; a search for the coordinator goes alone.

    ``wake_at_ms``: when to send a Tick.
    """

    session: Session
    request: GroupRequest | None = None
    rebalance_request: RebalanceRequest | None = None
    find_coordinator: bool = False
    lead: Lead | None = None
    events: tuple[Event, ...] = ()
    wake_at_ms: int | None = None
