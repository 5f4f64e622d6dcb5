"""One heartbeat of a consumer group (KIP-848, "Request Handling").

1. In this order: check the request; find group and member; check the epoch; then the steps of a change (``change``);
   answer.
2. A heartbeat that changes nothing adds no record and takes the same time however large the group is.
3. The assignment is in the answer to a join, to a full request, when it changed, and until the member has said that it
   has it.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.group.consumer.change import GroupChange
from coordinator.group.consumer.partitions import Partitions
from coordinator.group.consumer.response import heartbeat_response
from coordinator.group.consumer.state import NEVER_ASSIGNED, Current, Member
from coordinator.group.consumer.timers import session_timer
from coordinator.group.consumer.validation import owned_partitions
from coordinator.group.heartbeats import JOIN, LEFT_FOR_A_WHILE
from coordinator.group.members import check_member_epoch, find_member
from coordinator.group.refusal import Refused
from coordinator.group.values import GroupDecision, Reply
from coordinator.machine.values import Timer
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import ConsumerGroupHeartbeatRequest


def handle_heartbeat(change: GroupChange, request: ConsumerGroupHeartbeatRequest) -> GroupDecision:
    """Handles a heartbeat of a new or present member; the request was checked. Raises Refused without any change."""
    return _Heartbeat(change, request).decide()


class _Heartbeat:
    def __init__(self, change: GroupChange, request: ConsumerGroupHeartbeatRequest) -> None:
        self.change = change
        self.request = request
        self.joins = request.member_epoch == JOIN
        self.member_id = request.member_id or change.context.unique
        self.owned = owned_partitions(request)

    def decide(self) -> GroupDecision:
        change = self.change
        change.check_size(self.member_id, self.request.instance_id)
        stored = self._admit()
        member = self._joined() if self.joins else self._updated(stored)
        old = change.before.current.get(self.member_id, NEVER_ASSIGNED)
        start = self._start(stored)
        change.refresh(needs_bump=change.store_member(stored, member))
        change.assign()
        current = change.reconcile(member, self.owned, start=start)
        change.timers.append(
            Timer(
                session_timer(change.group.group_id, self.member_id), change.now_ms + change.settings.session_timeout_ms
            )
        )
        response = heartbeat_response(
            self.member_id,
            current.epoch,
            heartbeat_interval_ms=change.settings.heartbeat_interval_ms,
            assigned=self._told(old, current),
        )
        return change.decision(Reply(change.context.request_id, response))

    # The member

    def _admit(self) -> Member | None:
        """Returns the stored member, None if it is new."""
        change, request = self.change, self.request
        if not self.joins:
            member = find_member(change.group, self.member_id, request.instance_id)
            current = change.group.current.get(self.member_id, NEVER_ASSIGNED)
            check_member_epoch("consumer", request.member_epoch, self.owned, current)
            return member
        owner = change.group.static_members.get(request.instance_id) if request.instance_id is not None else None
        if owner is None or owner == self.member_id:
            return change.group.members.get(self.member_id)
        away = change.group.current[owner].epoch == LEFT_FOR_A_WHILE
        if not away and change.group.members[owner].classic is None:
            raise Refused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {self.member_id} with instance id {request.instance_id} cannot join the group because "
                f"the instance id is owned by {owner} member.",
            )
        return change.replace_static_member(owner, self.member_id)

    def _start(self, stored: Member | None) -> Current | None:
        """Returns the initial assignment of a joining member: empty. A member that returned for its instance continues."""
        if not self.joins or (stored is not None and self.member_id not in self.change.before.members):
            return None
        return NEVER_ASSIGNED

    # The request

    def _joined(self) -> Member:
        request, context = self.request, self.change.context
        return Member(
            member_id=self.member_id,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            client_id=context.client_id,
            client_host=context.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topic_names=_sorted(request.subscribed_topic_names or []),
            topic_regex=request.subscribed_topic_regex or None,
            server_assignor=request.server_assignor,
        )

    def _updated(self, stored: Member | None) -> Member:
        """Returns the stored member with every field of the request; it uses the consumer protocol from now on."""
        assert stored is not None
        request, context = self.request, self.change.context
        changes: dict[str, object] = {}
        if request.rack_id is not None:
            changes["rack_id"] = request.rack_id
        if request.rebalance_timeout_ms != -1:
            changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
        if request.subscribed_topic_names is not None:
            changes["topic_names"] = _sorted(request.subscribed_topic_names)
        if request.subscribed_topic_regex is not None:
            changes["topic_regex"] = request.subscribed_topic_regex or None
        if request.server_assignor is not None:
            changes["server_assignor"] = request.server_assignor
        if context.client_id != stored.client_id or context.client_host != stored.client_host:
            changes |= {"client_id": context.client_id, "client_host": context.client_host}
        if stored.classic is not None:
            changes["classic"] = None
        return replace(stored, **changes) if changes else stored  # type: ignore[arg-type]

    # The response

    def _told(self, old: Current, current: Current) -> Partitions | None:
        unconfirmed = self.change.before.soft.unconfirmed
        if self.owned is not None:
            confirmed = self.owned == current.assigned
        else:
            confirmed = current.assigned == old.assigned and self.member_id not in unconfirmed
        if confirmed == (self.member_id in unconfirmed):
            rest = unconfirmed - {self.member_id}
            self.change.soft["unconfirmed"] = rest if confirmed else rest | {self.member_id}
        return current.assigned if not confirmed or self.joins or self._is_full() else None

    def _is_full(self) -> bool:
        request = self.request
        subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        return request.rebalance_timeout_ms != -1 and subscribes and self.owned is not None


def _sorted(names: list[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
