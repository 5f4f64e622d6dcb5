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
    """Where the member stands in its group."""

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
    """Where it stands with its tasks. LOST and STALE: nothing is sent until nothing is open."""

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
    """The member is to join again. ``is_forced``: the group rebalances, and waits for it."""

    reason: str
    since_ms: int
    is_forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """All that the machine knows. ``version``: that of JoinGroup; None: the coordinator has to be found (again)."""

    membership: GroupMembership
    digest: bytes = NO_DIGEST
    heartbeat_interval_ms: int = 3_000
    group: ClassicMemberState = ClassicMemberState.OUT
    tasks: TaskState = TaskState.RUNNING
    ended: bool = False
    member_id: str = ""
    generation: int = NO_GENERATION
    synced_generation: int = NO_GENERATION
    """The last one whose assignment the member got."""
    version: int | None = None
    in_flight: InFlight | None = None
    """On the lane of heartbeats; the search for the coordinator is on it, too."""
    rebalance_in_flight: InFlight | None = None
    back_off_until_ms: int = 0
    rebalance_back_off_until_ms: int = 0
    failures: int = 0
    trouble_since_ms: int | None = None
    fences: int = 0
    sent_at_ms: int = 0
    beat_generation: int = NO_GENERATION
    """That of the last heartbeat."""

    unique: int = 0
    join: types.JoinGroupRequest | None = None
    """Sent and not answered: to be repeated as it is."""
    id_taken_since_ms: int | None = None
    """Since when the ``group.instance.id`` is refused, because a streams member has it."""
    join_was_lost: bool = False
    """Whether an answer to a JoinGroup did not arrive since the last one that did."""
    sync: types.SyncGroupRequest | None = None
    claimed: Tasks = NOTHING
    """What the last JoinGroup said that the member holds."""
    told_shutdown: bool = False
    """Whether the last JoinGroup said that the application is to shut down."""
    joined_of_its_own: bool = False
    missed_sync: bool = False
    rejoin: Rejoin | None = None
    idle_rounds: int = 0
    """Generations, one after the other, that the member began and that changed nothing for it."""
    synced_at_ms: int = 0
    rejoin_at_ms: int | None = None
    topology_wanted: bool = False
    gone: Tasks = NOTHING
    """What was claimed and not given: when nothing of it is held any more, the member joins again to say so."""
    echo: Echo | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    assigned: Tasks = NOTHING
    owned: Tasks = NOTHING
    offered: Tasks = NOTHING
    """The tasks of every assignment that the processing thread had not heard of when it last said what it owns, and of the
    latest."""
    assigned_at: int = 0
    """The number of the last event that told what to run."""
    told: int = 0
    lost_at: int | None = None
    """The number of the TasksLost that has not been answered yet."""
    is_new: bool = True
    """Whether no assignment was told since the member joined anew."""

    recovery_lag: int = -1
    report: OffsetReport | None = None
    said_caught_up: frozenset[Task] = frozenset()
    statuses: tuple[Status, ...] = ()
    sources_missing_since_ms: int | None = None
    sources_missing_told: bool = False
    protocol_name: str = PROTOCOL_NAME
    """The layout of the generation: ours, or Java's where members of Java's are in the group."""
    stream_version: int = NEWEST_VERSION
    """Of Java's layout, in which the member says what it has to say next."""
    answers: Answers | None = None
    """Who answers queries, as a leader said in Java's layout."""
    shutdown_application: bool = False
    heard_of_shutdown: bool = False
    """Whether it was told that another member wants the application to shut down."""
    unheard_until_ms: int | None = None
    """Until when a leader that has told the others of a shutdown waits for one of them to join or to leave."""
    leave: Leave | None = None
    stale_leave_pending: bool = False
    polled_at_ms: int = 0

    @property
    def shuts_down(self) -> bool:
        """Whether the group is to hear from this member that the application shuts down."""
        return self.shutdown_application or self.heard_of_shutdown

    @property
    def held(self) -> Tasks:
        """Tasks that are open, or may be opened before the next response."""
        return union(self.owned, self.offered)


def union(one: Tasks, other: Tasks) -> Tasks:
    """Each task once, in its strongest role."""
    active = one.active | other.active
    standby = (one.standby | other.standby) - active
    return Tasks(active, standby, (one.warmup | other.warmup) - active - standby)


def not_given(claimed: Tasks, given: Tasks) -> Tasks:
    """Tasks to release: those that are no longer active, and those that are no longer assigned."""
    everything = given.active | given.standby | given.warmup
    return Tasks(claimed.active - given.active, claimed.standby - everything, claimed.warmup - everything)


def is_held(tasks: Tasks, held: Tasks) -> bool:
    """Whether anything of ``tasks`` is held in the same role."""
    return bool(tasks.active & held.active or tasks.standby & held.standby or tasks.warmup & held.warmup)


# ------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """There is a connection to the coordinator, which serves JoinGroup up to this version."""

    version: int


@dataclass(frozen=True, slots=True)
class Answered:
    """To a heartbeat or a LeaveGroup."""

    response: types.HeartbeatResponse | types.LeaveGroupResponse


@dataclass(frozen=True, slots=True)
class RebalanceAnswered:
    """To a JoinGroup or a SyncGroup."""

    response: types.JoinGroupResponse | types.SyncGroupResponse


@dataclass(frozen=True, slots=True)
class RebalanceFailed:
    """No answer to a JoinGroup or a SyncGroup."""

    reason: str


@dataclass(frozen=True, slots=True)
class Led:
    """This member has led: the assignments of the generation, as bytes by member id."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Unfit:
    """This member can't lead the group that it is to lead, and can't be part of it."""

    reason: str


@dataclass(frozen=True, slots=True)
class RejoinWanted:
    """There is a reason to join again that only the leader knows: topics came or changed."""

    reason: str


@dataclass(frozen=True, slots=True)
class EndpointsFound:
    """Who has what, as the members of this generation say."""

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
"""What the machine hears: commands, and the events above."""


# -------------------------------------------------------------------------------------------------------- what follows


@dataclass(frozen=True, slots=True)
class Lead:
    """The broker has made this member the leader of the generation; the answer is :class:`Led`."""

    generation: int
    protocol_name: str
    members: tuple[Joined, ...]


@dataclass(frozen=True, slots=True)
class ClassicSessionStep:
    """What follows: on each lane one request at most; a search for the coordinator goes alone.

    ``wake_at_ms``: when to send a Tick.
    """

    session: Session
    request: GroupRequest | None = None
    rebalance_request: RebalanceRequest | None = None
    find_coordinator: bool = False
    lead: Lead | None = None
    events: tuple[Event, ...] = ()
    wake_at_ms: int | None = None
