"""Moves one member a step towards its target, as set algebra.

    kept     = assigned & target
    revoked  = assigned - target                 what the member has to give back, and confirm
    free     = target - assigned, without what others still hold

1. A member with something to give back keeps its epoch, gets nothing new, and stays UNREVOKED_PARTITIONS until a heartbeat
   of its own lists the partitions no more. Then it goes on from there towards the newest target.
2. Otherwise it takes the target's epoch and what is free of its target; UNRELEASED_PARTITIONS if something is still held.
3. No answer asks for revocations and gives something new at once.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.group.consumer.partitions import NONE, Partitions, TopicIdPartition
from coordinator.group.consumer.state import Current, MemberState


def reconcile(
    current: Current,
    *,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_held: Callable[[TopicIdPartition], bool],
) -> Current:
    """Computes the member's next assignment; returns the same object if nothing changes.

    ``owned`` is what the member says that it has, None if it did not say. ``is_held``: another member has the partition.
    """
    if current.state == MemberState.STABLE and current.epoch == target_epoch and current.assigned <= target:
        return current
    epoch = current.epoch
    if current.state == MemberState.UNREVOKED_PARTITIONS:
        left = current.pending if owned is None else current.pending & owned
        if left == current.pending:
            return current
        if left:
            return Current(epoch, current.previous_epoch, current.state, current.assigned, left)
        epoch = min(epoch + 1, target_epoch)
    return _next(current, epoch, target, target_epoch, owned, is_held)


def _next(
    current: Current,
    epoch: int,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_held: Callable[[TopicIdPartition], bool],
) -> Current:
    kept = current.assigned & target
    revoked = current.assigned - target
    if owned is not None:
        revoked &= owned
    if revoked:
        new = _at(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    else:
        assigned = kept | {partition for partition in target - kept if not is_held(partition)}
        state = MemberState.STABLE if assigned == target else MemberState.UNRELEASED_PARTITIONS
        new = _at(current, target_epoch, state, assigned, NONE)
    return current if new == current else new


def _at(current: Current, epoch: int, state: MemberState, assigned: Partitions, pending: Partitions) -> Current:
    """Returns the next state. The previous epoch stays while the epoch does: several responses of one epoch may be lost."""
    previous = current.previous_epoch if current.epoch == epoch else current.epoch
    return Current(epoch, previous, state, assigned, pending)
