"""A classic group of members of this runtime becomes a streams group: the tasks of each member, and the version that
continues.

1. A member has the tasks that it reports as open, and those that its leader has assigned since. It has to give back
   open tasks that were not assigned to it; until it reports them closed, no other member gets them.
2. The streams group continues with the version of the program that the classic group ran: a member with another version
   does not convert a group. Members with older epochs remain stale.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.group.classic.state import ClassicMember, Live, Protocol
from coordinator.group.refusal import Refused
from coordinator.group.streams.classic.own_layout import (
    OWN_PROTOCOL,
    Echo,
    OwnAssignment,
    OwnSubscription,
    Version,
    decoded_own_assignment,
    own_subscription_of,
)
from coordinator.group.streams.classic.own_members import RELEASE_TIMEOUT_MS
from coordinator.group.streams.state import ClassicSide, Member
from streamsrt.assignment.reconcile import Current, MemberState
from streamsrt.assignment.refused_update import epoch_behind, same_epoch
from streamsrt.assignment.tasks import Tasks
from streamsrt.wire.error_codes import ErrorCode


class Stays(NamedTuple):
    """A classic member converted to a member of a streams group."""

    member: Member
    target: Tasks
    current: Current


def own_stays(member: ClassicMember, protocol: Protocol, generation: int) -> Stays:
    """Converts a member of this runtime. Raises UntranslatableError."""
    subscription = own_subscription_of(protocol.metadata)
    assignment = decoded_own_assignment(member.assignment) or OwnAssignment(subscription.held, subscription.held, None)
    pending = _to_give_back(subscription.held, assignment.tasks)
    stays = Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=max(member.rebalance_timeout_ms, RELEASE_TIMEOUT_MS),
        topology_epoch=subscription.version.epoch,
        process_id=subscription.process_id,
        user_endpoint=subscription.endpoint,
        client_tags=subscription.client_tags,
        classic=ClassicSide(member.session_timeout_ms, protocol),
    )
    current = Current(
        epoch=generation,
        previous_epoch=generation,
        state=MemberState.UNREVOKED_TASKS if pending else MemberState.STABLE,
        assigned=assignment.tasks,
        pending=pending,
        active_epochs=dict.fromkeys(assignment.tasks.active | pending.active, generation),
    )
    return Stays(stays, assignment.target, current)


def _to_give_back(held: Tasks, given: Tasks) -> Tasks:
    every = given.active | given.passive
    return Tasks(held.active - given.active, held.standby - every, held.warmup - every)


def check_version(group_id: str, live: Live, joins: Version) -> None:
    """Raises Refused if the members of a classic group do not run the version of a member that joins by the streams
    protocol. Raises UntranslatableError."""
    subscriptions: list[OwnSubscription] = []
    echoes: list[Echo] = []
    for member in live.members.values():
        for protocol in member.protocols:
            if protocol.name == OWN_PROTOCOL:
                subscriptions.append(own_subscription_of(protocol.metadata))
                # If Java members are in the group, all assignments are in Java's layout.
                assignment = decoded_own_assignment(member.assignment) if live.protocol == OWN_PROTOCOL else None
                sent = None if assignment is None else assignment.echo
                echoes += [echo for echo in (subscriptions[-1].echo, sent) if echo is not None]
    if not subscriptions:
        return
    newest = max(echoes, key=lambda echo: echo.generation, default=None)
    runs = max(each.version for each in subscriptions) if newest is None else newest.version
    if joins.epoch < runs.epoch:
        raise Refused(*epoch_behind(group_id, joins.epoch, runs.epoch))
    ahead = [each.version for each in subscriptions if each.version != runs and each.version.epoch >= runs.epoch]
    if joins == runs and not ahead:
        return
    if joins.epoch == runs.epoch and not ahead:
        raise Refused(*same_epoch(group_id, runs.epoch))
    raise Refused(
        ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH,
        f"Group {group_id} is a classic group that runs topology epoch {runs.epoch}. A group can't change its "
        "protocol and its topology at once: change the protocol with the version that it runs, then raise the epoch.",
    )
