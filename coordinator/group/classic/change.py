"""One event of a classic group in progress: the changed group, and the resulting responses.

1. A generation begins when all members have joined, or when the longest of their rebalance timeouts is over; dynamic
   members that have not joined by then are removed, static ones stay. The first generation of an empty group waits for
   more members for a while.
2. All responses to JoinGroup of a generation are sent together; those to SyncGroup when the leader's assignment is
   stored.
3. The session of a member does not expire while one of its requests waits, because it can't send a heartbeat. An
   exception is a member that joins for the first time: its client may be gone.
4. The leader remains the leader as long as it joins; of the protocols that all members support, the one that most
   members prefer is used.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from coordinator.group.classic.config import ClassicConfig
from coordinator.group.classic.records import group_record
from coordinator.group.classic.state import ClassicGroup, ClassicMember, GroupState, Live, PendingRequest, Protocol
from coordinator.group.values import GroupDecision, GroupRecord, Reply, SoftUpdate
from coordinator.machine.values import CancelTimer, Decision, Timer, TimerKey
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import JoinGroupResponse, Message, SyncGroupResponse

SESSION, JOIN, SYNC = "session", "classic-join", "classic-sync"
NULLABLE_PROTOCOL_VERSION = 7
NO_MEMBER_ID = ""


def join_refusal(code: ErrorCode, member_id: str, api_version: int) -> JoinGroupResponse:
    """Returns a response to JoinGroup with an error."""
    name = None if api_version >= NULLABLE_PROTOCOL_VERSION else ""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=name)


class ClassicChange:
    """Changes the members of ``Live``, and collects records, timers and replies for ``decision``."""

    def __init__(self, group: ClassicGroup, now_ms: int, config: ClassicConfig) -> None:
        live = group.live
        self.group_id = group.group_id
        self.now_ms = now_ms
        self.config = config
        self.state = live.state
        self.since_ms = live.since_ms
        self.generation = live.generation
        self.protocol_type = live.protocol_type
        self.protocol = live.protocol
        self.leader = live.leader
        self.members = dict(live.members)
        self.static_members = dict(live.static_members)
        self.joining = dict(live.joining)
        self.syncing = dict(live.syncing)
        self.fresh = set(live.fresh)
        self.pending = set(live.pending)
        self.unsynced = set(live.unsynced)
        self.extension_ms = live.extension_ms
        self.member_added = live.member_added
        self._records: list[GroupRecord] = []
        self._timers: list[Timer | CancelTimer] = []
        self._replies: list[Reply] = []

    def live(self) -> Live:
        return Live(
            state=self.state,
            since_ms=self.since_ms,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=self.members,
            static_members=self.static_members,
            joining=self.joining,
            syncing=self.syncing,
            fresh=frozenset(self.fresh),
            pending=frozenset(self.pending),
            unsynced=frozenset(self.unsynced),
            extension_ms=self.extension_ms,
            member_added=self.member_added,
        )

    def decision(self) -> GroupDecision:
        return Decision(
            records=tuple(self._records),
            soft=(SoftUpdate(self.group_id, {"live": self.live()}),),
            timers=tuple(self._timers),
            replies=tuple(self._replies),
        )

    # What goes out

    def reply(self, waiting: PendingRequest, message: Message) -> None:
        self._replies.append(Reply(waiting.request_id, message))

    def write(self) -> None:
        """Writes the present group to the log."""
        self._records = [group_record(self.group_id, self.live())]

    def write_as_new(self) -> None:
        """Starts a group that has no records yet, without a generation."""
        if not self._records:
            empty = Live(since_ms=self.now_ms, generation=self.generation)
            self._records = [group_record(self.group_id, empty)]

    def keep_session(self, member_id: str, timeout_ms: int | None = None) -> None:
        timeout_ms = self.members[member_id].session_timeout_ms if timeout_ms is None else timeout_ms
        self._timers.append(Timer(TimerKey(SESSION, self.group_id, member_id), self.now_ms + timeout_ms))

    def end_session(self, member_id: str) -> None:
        self._timers.append(CancelTimer(TimerKey(SESSION, self.group_id, member_id)))

    def expect(self, kind: str, timeout_ms: int) -> None:
        self._timers.append(Timer(TimerKey(kind, self.group_id), self.now_ms + timeout_ms))

    def expect_no_more(self, kind: str) -> None:
        self._timers.append(CancelTimer(TimerKey(kind, self.group_id)))

    # Members

    def add(self, member: ClassicMember, waiting: PendingRequest) -> None:
        """Adds a member whose JoinGroup waits."""
        name = member.member_id
        if self.state is GroupState.PREPARING_REBALANCE and self.extension_ms is not None:
            self.member_added = True
        if member.instance_id is not None:
            self.static_members[member.instance_id] = name
        if self.leader is None:
            self.leader = name
        self.members[name] = member
        self.joining[name] = waiting
        self.fresh.add(name)
        self.pending.discard(name)
        self.keep_session(name, self.config.new_member_join_timeout_ms)

    def give_out(self, member_id: str, timeout_ms: int) -> None:
        """Assigns a member id; the client has to join with it within a session timeout."""
        self.pending.add(member_id)
        self.keep_session(member_id, timeout_ms)

    def replace_static(self, old_id: str, member: ClassicMember) -> None:
        """The returning member replaces its former self; a client that still uses the former member id is fenced."""
        assert member.instance_id is not None
        self.fence(old_id, ErrorCode.FENCED_INSTANCE_ID, old_id)
        self.end_session(old_id)
        self.members = {
            **{name: known for name, known in self.members.items() if name != old_id},
            member.member_id: member,
        }
        self.fresh.discard(old_id)
        self.static_members[member.instance_id] = member.member_id
        if old_id in self.unsynced:
            self.unsynced = self.unsynced - {old_id} | {member.member_id}
        if self.leader == old_id:
            self.leader = member.member_id
        self.keep_session(member.member_id)

    def update(self, member: ClassicMember, waiting: PendingRequest) -> None:
        """Updates a member that joins the next generation. An older waiting request of it belongs to a connection that it
        left."""
        self.fence(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self.members[member.member_id] = member
        self.joining[member.member_id] = waiting

    def remove(self, member_id: str, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Removes the member, or the assigned id; its waiting requests are answered with the error."""
        self.pending.discard(member_id)
        self.end_session(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.fence(member_id, code, NO_MEMBER_ID)
        self.fresh.discard(member_id)
        self.unsynced.discard(member_id)
        if member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def fence(self, member_id: str, code: ErrorCode, answered_id: str) -> None:
        """Answers the member's waiting requests with an error."""
        joining = self.joining.pop(member_id, None)
        if joining is not None:
            self.reply(joining, join_refusal(code, answered_id, joining.api_version))
        syncing = self.syncing.pop(member_id, None)
        if syncing is not None:
            self.reply(syncing, SyncGroupResponse(error_code=code))

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_have_joined(self) -> bool:
        return len(self.members) == len(self.joining) and not self.pending

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether a member with these protocols and the others have one in common."""
        if self.state is GroupState.EMPTY or not self.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(name in self._common() for name, _ in protocols)

    def _common(self) -> set[str]:
        counts = Counter(
            name for member in self.members.values() for name in {entry.name for entry in member.protocols}
        )
        return {name for name, count in counts.items() if count == len(self.members)}

    def select_protocol(self) -> str:
        """Chooses a protocol: each member votes for the first of its protocols that all support; of equals, the one with
        the first vote wins."""
        common = self._common()
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(entry.name for entry in member.protocols if entry.name in common)] += 1
        return max(votes, key=votes.__getitem__)

    # Rebalance

    def rebalance_or_complete(self) -> None:
        """Starts a rebalance, or completes the present one if this was the last member that it waited for."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            self.prepare()
        else:
            self.complete_join_phase()

    def complete_join_phase(self) -> None:
        """Ends the join phase if no member is missing; the first rebalance of a group waits for its delay."""
        is_joining = self.state is GroupState.PREPARING_REBALANCE
        if is_joining and self.extension_ms is None and self.all_have_joined:
            self.complete()

    def prepare(self) -> None:
        """Starts a rebalance: all members have to join again."""
        for name in list(self.syncing):
            self.reply(self.syncing.pop(name), SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            self.keep_session(name)
        if self.state is GroupState.COMPLETING_REBALANCE:
            self.members = {name: replace(member, assignment=b"") for name, member in self.members.items()}
        self.unsynced.clear()
        self.expect_no_more(SYNC)
        is_first = self.state is GroupState.EMPTY
        self._move_to(GroupState.PREPARING_REBALANCE)
        if is_first:
            delay_ms = self.config.initial_rebalance_delay_ms
            self.extension_ms = max(self.rebalance_timeout_ms - delay_ms, 0)
            self.member_added = False
            self.expect(JOIN, delay_ms)
        elif self.all_have_joined:
            self.complete()
        else:
            self.expect(JOIN, self.rebalance_timeout_ms)

    def waited_long_enough(self) -> None:
        """Handles the end of the join phase; the first rebalance of a group is postponed as long as new members come."""
        delay_ms = self.config.initial_rebalance_delay_ms
        if self.extension_ms and self.member_added:
            self.member_added = False
            self.expect(JOIN, min(delay_ms, self.extension_ms))
            self.extension_ms = max(self.extension_ms - delay_ms, 0)
        else:
            self.complete()

    def complete(self) -> None:
        """Starts the next generation, with the members that have joined."""
        self.expect_no_more(JOIN)
        for name in [name for name, member in self.members.items() if name not in self.joining]:
            if self.members[name].instance_id is None:
                self.remove(name)
        if self.members and not self._elect():
            self.expect(JOIN, self.rebalance_timeout_ms)
            return
        self.extension_ms = None
        self.generation += 1
        self.unsynced.clear()
        if not self.members:
            self.protocol = None
            self._move_to(GroupState.EMPTY)
            self.write()
            return
        self.protocol = self.select_protocol()
        self._move_to(GroupState.COMPLETING_REBALANCE)
        for name in self.members:
            waiting = self.joining.pop(name, None)
            if waiting is not None:
                self.reply(waiting, self.joined(name))
            self.keep_session(name)
        self.fresh.clear()
        self.unsynced = set(self.members)
        self.expect(SYNC, self.rebalance_timeout_ms)

    def _elect(self) -> bool:
        """Chooses a leader among the members that have joined, if possible the present one; returns whether there is one."""
        if self.leader not in self.joining:
            joined = next((name for name in self.members if name in self.joining), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def _move_to(self, state: GroupState) -> None:
        self.state = state
        self.since_ms = self.now_ms

    def joined(self, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """Returns the response to a JoinGroup of this generation. The leader gets the members, to assign for them."""
        response = JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member_id,
            skip_assignment=skip_assignment,
        )
        if member_id == self.leader:
            response.members = [
                response.JoinGroupResponseMember(
                    member_id=name, group_instance_id=member.instance_id, metadata=member.metadata(self.protocol)
                )
                for name, member in self.members.items()
            ]
        return response

    # Assignments

    def has_synced(self, member_id: str) -> None:
        """Stops waiting for this member's SyncGroup."""
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self.expect_no_more(SYNC)

    def assign(self, assignments: dict[str, bytes]) -> None:
        """Stores the leader's assignment and sends it to all waiting members. Members without an entry get nothing."""
        self.members = {
            name: replace(member, assignment=assignments.get(name, b"")) for name, member in self.members.items()
        }
        self._move_to(GroupState.STABLE)
        self.write()
        for name, waiting in self.syncing.items():
            self.reply(waiting, self.assigned(name))
            self.keep_session(name)
        self.syncing.clear()

    def assigned(self, member_id: str) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=self.members[member_id].assignment,
        )
