"""What the heartbeats of all members with server-side assignment must have, in Kafka's order and with Kafka's messages."""

from __future__ import annotations

from typing import Protocol

from coordinator.group.refusal import Refused
from streamsrt.wire.error_codes import ErrorCode

JOIN = 0
"""The member epoch of a member that joins."""
LEFT_FOR_A_WHILE = -2
"""The member epoch of a static member that comes back."""


class Heartbeat(Protocol):
    """The fields that both kinds of heartbeats have."""

    group_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    rebalance_timeout_ms: int


def check_ids(request: Heartbeat) -> None:
    """Raises Refused(INVALID_REQUEST) if the group, the instance or the rack has no name."""
    not_empty(request.group_id, "GroupId")
    not_empty(request.instance_id, "InstanceId")
    not_empty(request.rack_id, "RackId")


def check_departure(request: Heartbeat, wrong_epoch: str) -> None:
    """Raises Refused(INVALID_REQUEST) if the epoch is none, or a member leaves for a while and has no instance id."""
    if request.member_epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        raise invalid("InstanceId can't be null.")
    if request.member_epoch < LEFT_FOR_A_WHILE:
        raise invalid(wrong_epoch)


def check_rebalance_timeout(request: Heartbeat) -> None:
    """Raises Refused(INVALID_REQUEST) if a join has no rebalance timeout."""
    if request.rebalance_timeout_ms == -1:
        raise invalid("RebalanceTimeoutMs must be provided in first request.")


def not_empty(value: str | None, name: str) -> None:
    """Raises Refused(INVALID_REQUEST) for an empty text."""
    if value is not None and not value.strip():
        raise invalid(f"{name} can't be empty.")


def invalid(text: str) -> Refused:
    """Returns the refusal of a request that violates a rule."""
    return Refused(ErrorCode.INVALID_REQUEST, text)
