"""An active membership: the session's state, and the log lines for its events.

:meth:`streamsrt.client.network.NetworkThread.join_group` drives it: it implements what the client expects of any group
protocol (:class:`streamsrt.client.group.GroupMachine`).
"""

from __future__ import annotations

import logging

from streamsrt.errors import StreamsError
from streamsrt.membership import session as machine
from streamsrt.membership import state as states
from streamsrt.membership.session_events import OwnedReported, Refused, RequestFailed, Tick
from streamsrt.membership.state import MEMBER_STATES, MemberState, OffsetReport, Session, SessionStep
from streamsrt.membership.statuses import instance_id_taken_text, passes_by_itself, status_text
from streamsrt.membership.values import (
    Command,
    Event,
    GroupMembership,
    HeartbeatRecovered,
    HeartbeatTrouble,
    InstanceIdTaken,
    Join,
    MembershipFailed,
    ReportOwned,
    SetTaskOffsets,
    Status,
    StatusChanged,
    TasksLost,
    UnknownStatus,
)
from streamsrt.wire import types
from streamsrt.wire.types import Message

log = logging.getLogger(__name__)


class Member:
    """One member of a streams group. Not thread-safe: the network thread owns it once it has joined."""

    request_type: type = types.StreamsGroupHeartbeatRequest

    def __init__(self, membership: GroupMembership, known: SetTaskOffsets | None = None) -> None:
        """``known``: the state on disk, so that the first heartbeat reports it."""
        report = None if known is None else OffsetReport(known.offsets, known.end_offsets)
        self.session = Session(membership=membership, report=report)
        self.group_id = membership.group_id
        self.member_id = membership.member_id

    @property
    def member_epoch(self) -> int:
        """The epoch, for commits; -1 while this is not a member."""
        session = self.session
        joined = session.state in MEMBER_STATES or session.state is MemberState.PREPARE_LEAVING
        return session.member_epoch if joined and not session.ended else -1

    @property
    def ended(self) -> bool:
        return self.session.ended

    def start(self, now_ms: int) -> SessionStep:
        return self._step(Join(), now_ms)

    def command(self, command: Command, seen: int, now_ms: int) -> SessionStep:
        """``seen``: how many events the processing thread had handled when it sent the command."""
        if isinstance(command, ReportOwned):
            return self._step(OwnedReported(command.tasks, seen), now_ms)
        return self._step(command, now_ms)

    def coordinator_found(self, version: int, now_ms: int) -> SessionStep:
        """``version``: the highest heartbeat version that both the coordinator and this client support."""
        return self._step(states.CoordinatorFound(version), now_ms)

    def responded(self, response: Message, now_ms: int) -> SessionStep:
        assert isinstance(response, types.StreamsGroupHeartbeatResponse)
        return self._step(states.Answered(response), now_ms)

    def request_failed(self, reason: str, now_ms: int) -> SessionStep:
        return self._step(RequestFailed(reason), now_ms)

    def refused(self, error: StreamsError, now_ms: int) -> SessionStep:
        return self._step(Refused(error), now_ms)

    def tick(self, now_ms: int) -> SessionStep:
        return self._step(Tick(), now_ms)

    def polled(self, at_ms: int) -> None:
        """Records when the processing thread was last active. Called before every event."""
        self.session = machine.alive(self.session, at_ms)

    def _step(self, event: states.Occurrence, now_ms: int) -> SessionStep:
        known = set(self.session.statuses)
        step = machine.step(self.session, event, now_ms)
        self.session = step.session
        for reported in step.events:
            log_event(self.group_id, self.member_id, reported, known)
        return step


def log_event(group: str, member: str, event: Event, known: set[Status]) -> None:
    """Writes the log line for an event of a membership, if it has one. ``member``: its id, empty if the coordinator has
    not assigned one yet. ``known``: statuses that were logged before."""
    who = f"member {member}" if member else "a member that joins"
    match event:
        case StatusChanged(statuses, is_classic):
            for status in statuses:
                if status not in known:
                    level = logging.INFO if passes_by_itself(status) else logging.WARNING
                    log.log(level, "Group %s: %s", group, status_text(status, is_classic=is_classic))
        case UnknownStatus(code, detail):
            log.warning("Group %s: status %d, which this version does not know: %s", group, code, detail)
        case HeartbeatTrouble(reason):
            log.warning("Group %s, %s: heartbeats fail, retrying: %s", group, who, reason)
        case HeartbeatRecovered(outage_ms):
            log.info("Group %s, %s: heartbeats succeed again after %d ms", group, who, outage_ms)
        case InstanceIdTaken(wait_ms):
            log.warning("Group %s, %s: %s", group, who, instance_id_taken_text(wait_ms))
        case TasksLost(reason):
            log.warning("Group %s, %s: all tasks are lost: %s", group, who, reason)
        case MembershipFailed(error):
            log.error("%s", error)
        case _:
            pass
