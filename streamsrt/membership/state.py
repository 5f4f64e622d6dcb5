"""The state of a member (:class:`Session`), its events, and their results (:class:`SessionStep`): values only.

The machine over them is :mod:`streamsrt.membership.session`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from streamsrt.membership.session_events import OwnedReported, Refused, RequestFailed, Tick
from streamsrt.membership.values import NOTHING, Command, Event, GroupMembership, Leave, Status, Task, Tasks
from streamsrt.wire import types

Request: TypeAlias = types.StreamsGroupHeartbeatRequest
Response: TypeAlias = types.StreamsGroupHeartbeatResponse


class MemberState(Enum):
    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    PREPARE_LEAVING = "prepare leaving"
    LEAVING = "leaving"
    FENCED = "fenced"
    STALE = "stale"
    FATAL = "fatal"


MEMBER_STATES = frozenset({MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE})
HEARTBEAT_STATES = MEMBER_STATES | {MemberState.JOINING, MemberState.PREPARE_LEAVING}
SENDING_STATES = HEARTBEAT_STATES | {MemberState.LEAVING}


class InFlight(Enum):
    COORDINATOR = "coordinator"
    HEARTBEAT = "heartbeat"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class OffsetReport:
    """The known task offsets, and what was reported of them when."""

    offsets: Mapping[Task, int]
    end_offsets: Mapping[Task, int]
    reported_at_ms: int | None = None
    reported_tasks: frozenset[Task] = frozenset()
    reported_caught_up: frozenset[Task] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The complete state of the machine. ``heartbeat_version`` None: the coordinator has to be found (again)."""

    membership: GroupMembership
    state: MemberState = MemberState.UNSUBSCRIBED
    ended: bool = False
    member_epoch: int = 0
    assigned: Tasks = NOTHING
    owned: Tasks = NOTHING
    acknowledged: Tasks | None = None
    """The owned tasks of the last heartbeat that was answered without an error."""
    sent: Tasks | None = None
    full: bool = True
    heartbeat_version: int | None = None
    in_flight: InFlight | None = None
    urgent: bool = False
    sent_at_ms: int = 0
    back_off_until_ms: int = 0
    failures: int = 0
    fences: int = 0
    trouble_since_ms: int | None = None
    id_taken_since_ms: int | None = None
    """Since when joins have been refused because another member has the ``group.instance.id``."""
    heartbeat_interval_ms: int = 5_000
    task_offset_interval_ms: int = 60_000
    acceptable_recovery_lag: int = -1
    statuses: tuple[Status, ...] = ()
    delayed_since_ms: int | None = None
    """Since when responses have said that an assignment is a matter of seconds."""
    sources_missing_since_ms: int | None = None
    sources_missing_reported: bool = False
    endpoint_epoch: int = -1
    report: OffsetReport | None = None
    sent_report: OffsetReport | None = None
    shutdown_application: bool = False
    leave: Leave | None = None
    stale_leave_pending: bool = False
    polled_at_ms: int = 0
    event_count: int = 0
    """The number of events so far."""
    assigned_at: int = 0
    """The number of the last event with an assignment."""
    offered: frozenset[Task] = frozenset()
    """The active tasks of every assignment that the processing thread had not handled when it last reported its tasks."""
    lost_at: int | None = None
    """The number of events up to and including the TasksLost that is not confirmed yet."""

    @property
    def held(self) -> Tasks:
        """Tasks that the member has open, and active ones that it may open at any moment: a list without such a task would
        give it to another member at once. These count as active, whatever the processing thread has reported of them."""
        told = self.offered | self.assigned.active
        return Tasks(self.owned.active | told, self.owned.standby - told, self.owned.warmup - told)


# ------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """A connection to the coordinator exists. ``version``: the highest heartbeat version that it supports."""

    heartbeat_version: int


@dataclass(frozen=True, slots=True)
class Answered:
    response: Response


Occurrence: TypeAlias = Command | OwnedReported | CoordinatorFound | Answered | RequestFailed | Refused | Tick
"""What a session takes a step for."""


@dataclass(frozen=True, slots=True)
class SessionStep:
    """The results of a step: at most one of ``request`` and ``find_coordinator``. ``wake_at_ms``: when to send a Tick."""

    session: Session
    request: Request | None = None
    find_coordinator: bool = False
    events: tuple[Event, ...] = field(default=())
    wake_at_ms: int | None = None
