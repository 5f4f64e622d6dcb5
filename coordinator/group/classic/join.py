"""JoinGroup of a classic group: who may join, with which id, and whether it causes a rebalance.

1. From version 4 on, a dynamic member without an id gets one first (MEMBER_ID_REQUIRED): otherwise a client that never
   sees the response would leave a member behind that no client stands for.
2. A static member without an id replaces the member with its instance id, whose requests are fenced from then on. In a
   stable group it takes over the assignment without a rebalance, if the protocol stays the same.
3. A member that joins again without changes gets the current generation; a JoinGroup of the leader requests a
   rebalance.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.group.classic.change import NO_MEMBER_ID, ClassicChange, join_refusal
from coordinator.group.classic.config import ClassicConfig
from coordinator.group.classic.fencing import member_error
from coordinator.group.classic.state import ClassicGroup, ClassicMember, GroupState, Live, PendingRequest, Protocol
from coordinator.group.refusal import Refused
from coordinator.group.values import GroupDecision, Reply, RequestContext
from coordinator.machine.values import Decision
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import JoinGroupRequest, JoinGroupResponse

KNOWN_ID_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9


def join(
    group: ClassicGroup | None,
    request: JoinGroupRequest,
    context: RequestContext,
    now_ms: int,
    config: ClassicConfig,
) -> GroupDecision:
    """Handles a JoinGroup; the response may have to wait. ``group`` is None if it does not exist yet."""
    try:
        _check(group, request, config)
        return _Join(group or ClassicGroup(request.group_id), request, context, now_ms, config).decide()
    except Refused as refused:
        response = join_refusal(refused.code, request.member_id, context.api_version)
        return Decision(replies=(Reply(context.request_id, response),))


def _check(group: ClassicGroup | None, request: JoinGroupRequest, config: ClassicConfig) -> None:
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        raise Refused(ErrorCode.INVALID_SESSION_TIMEOUT)
    if group is None and request.member_id:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)


class _Join:
    """A JoinGroup that is being handled."""

    def __init__(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        context: RequestContext,
        now_ms: int,
        config: ClassicConfig,
    ) -> None:
        self.is_new_group = not group.is_recorded
        self.request = request
        self.context = context
        self.config = config
        self.waiting = PendingRequest(context.request_id, context.api_version)
        self.protocols = tuple(Protocol(entry.name, bytes(entry.metadata)) for entry in request.protocols)
        self.change = ClassicChange(group, now_ms, config)
        self.live: Live = group.live

    def decide(self) -> GroupDecision:
        change, request = self.change, self.request
        if not self._has_room():
            change.remove(request.member_id)
            change.complete_join_phase()
            change.reply(self.waiting, self._refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
        elif not change.supports(request.protocol_type, self.protocols):
            change.reply(self.waiting, self._refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        elif not request.member_id:
            self._join_without_id()
        elif request.member_id in change.pending:
            self._add(request.member_id)
        else:
            self._join_again()
        if self.is_new_group:
            change.write_as_new()
        return change.decision()

    def _refusal(self, code: ErrorCode, member_id: str) -> JoinGroupResponse:
        return join_refusal(code, member_id, self.context.api_version)

    def _has_room(self) -> bool:
        change, name, most = self.change, self.request.member_id, self.config.max_size
        if change.state is GroupState.EMPTY:
            return True
        if change.state is GroupState.PREPARING_REBALANCE:
            return name in change.joining or len(change.joining) < most
        return name in change.members or len(change.members) < most

    # New members

    def _join_without_id(self) -> None:
        change, request, context = self.change, self.request, self.context
        instance_id = request.group_instance_id
        new_id = f"{context.client_id if instance_id is None else instance_id}-{context.unique}"
        if instance_id is not None:
            old_id = change.static_members.get(instance_id)
            if old_id is None:
                self._add(new_id)
            else:
                self._replace_static(old_id, new_id)
        elif context.api_version >= KNOWN_ID_VERSION:
            change.give_out(new_id, request.session_timeout_ms)
            change.reply(self.waiting, self._refusal(ErrorCode.MEMBER_ID_REQUIRED, new_id))
        else:
            self._add(new_id)

    def _add(self, member_id: str) -> None:
        if not self.change.members:
            self.change.protocol_type = self.request.protocol_type
        self.change.add(self._member(member_id), self.waiting)
        self.change.rebalance_or_complete()

    def _member(self, member_id: str, assignment: bytes = b"") -> ClassicMember:
        request = self.request
        session_timeout_ms = request.session_timeout_ms
        return ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=self.context.client_id,
            client_host=self.context.client_host,
            # Version 0 has no rebalance timeout.
            rebalance_timeout_ms=request.rebalance_timeout_ms if self.context.api_version > 0 else session_timeout_ms,
            session_timeout_ms=session_timeout_ms,
            protocols=self.protocols,
            assignment=assignment,
        )

    def _replace_static(self, old_id: str, new_id: str) -> None:
        change = self.change
        old_leader = change.leader
        change.replace_static(old_id, self._member(new_id, change.members[old_id].assignment))
        if change.state is GroupState.STABLE and change.select_protocol() == change.protocol:
            change.write()
            response = change.joined(new_id, skip_assignment=new_id == change.leader)
            if self.context.api_version < SKIP_ASSIGNMENT_VERSION:
                # Older clients would assign again as leaders; as followers they use the stored assignment.
                response.leader, response.members, response.skip_assignment = old_leader or "", [], False
            change.reply(self.waiting, response)
            return
        change.joining[new_id] = self.waiting
        change.rebalance_or_complete()

    # Members

    def _join_again(self) -> None:
        change, name = self.change, self.request.member_id
        code = member_error(self.live, name, self.request.group_instance_id)
        if code == ErrorCode.NONE and change.state is GroupState.EMPTY:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code != ErrorCode.NONE:
            change.reply(self.waiting, self._refusal(code, name))
            return
        known = change.members[name]
        leads = change.state is GroupState.STABLE and name == change.leader
        if change.state is GroupState.PREPARING_REBALANCE or leads or known.protocols != self.protocols:
            timeouts = self._member(name)
            member = replace(
                known,
                protocols=self.protocols,
                rebalance_timeout_ms=timeouts.rebalance_timeout_ms,
                session_timeout_ms=timeouts.session_timeout_ms,
            )
            change.update(member, self.waiting)
            change.rebalance_or_complete()
            return
        response = change.joined(name)
        if change.state is GroupState.STABLE:
            response.members = []
        change.reply(self.waiting, response)
