"""Moves one member a step towards its target, as set algebra.

    kept     = assigned & target
    revoked  = assigned - target                 what the member has to give back, and confirm
    free     = target - assigned, without what others still hold

1. A member with something to give back keeps its epoch, gets no new active task, and stays UNREVOKED_TASKS until a
   heartbeat of its own lists the tasks no more. Then it goes on from there towards the newest target.
2. Otherwise it takes the target's epoch and what is free of its target; UNRELEASED_TASKS if something is still held.
3. An active task is held while another member has it as active, or another member of the same process has it in any
   role. A standby or warm-up task is held only by members of the same process.
4. A change of role on one member keeps the state open: a standby task becomes active in one step, once the active task
   is free, and stays a standby until then; an active task becomes a standby at once, though its return as an active
   task has to be confirmed before another member may run it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks


class MemberState(IntEnum):
    """The member's position on its way to the target, with the numbers used in the record."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class Current:
    """The tasks that a member runs now (``StreamsGroupCurrentMemberAssignment``).

    ``pending`` are tasks that it was asked to give back and has not yet confirmed to be closed. ``active_epochs``: the
    epochs in which it got the active tasks of both.
    """

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Tasks = NO_TASKS
    pending: Tasks = NO_TASKS
    active_epochs: Mapping[TaskId, int] = field(default_factory=dict)


NEVER_ASSIGNED = Current(0, 0, MemberState.STABLE)


@dataclass(frozen=True, slots=True)
class Holders:
    """Other holders of a task: ``active``: any other member; ``in_process``: another member of the same process, in any
    role."""

    active: Callable[[TaskId], bool]
    in_process: Callable[[TaskId], bool]


def reconcile(current: Current, *, target: Tasks, target_epoch: int, owned: Tasks | None, held: Holders) -> Current:
    """Computes the member's next assignment; returns the same object if nothing changes.

    ``owned`` is what the member says that it has open, None if it did not say.
    """
    if current.state == MemberState.STABLE and current.epoch == target_epoch:
        return current
    if current.state == MemberState.UNREVOKED_TASKS:
        left = current.pending if owned is None else current.pending & owned
        if left:
            return current if left == current.pending else _waiting(current, left)
        return _next(current, current.epoch + 1, target, target_epoch, owned, held)
    return _next(current, current.epoch, target, target_epoch, owned, held)


def _waiting(current: Current, left: Tasks) -> Current:
    return Current(
        current.epoch,
        current.previous_epoch,
        MemberState.UNREVOKED_TASKS,
        current.assigned,
        left,
        _epochs(current, current.assigned.active | left.active, 0),
    )


def _next(
    current: Current, epoch: int, target: Tasks, target_epoch: int, owned: Tasks | None, held: Holders
) -> Current:
    assigned = current.assigned
    promoted = assigned.passive & target.active
    revoked = _revoked(assigned, target, owned, promoted)
    active = {task for task in target.active - assigned.active if not _is_held(task, held)}
    kept = assigned & target
    standby = kept.standby | {t for t in target.standby - assigned.standby if not held.in_process(t)}
    warmup = kept.warmup | {
        t for t in target.warmup - assigned.warmup if not held.in_process(t) and t not in assigned.active
    }
    if revoked:
        waiting = promoted
        new = Tasks(kept.active, standby | (assigned.standby & waiting), warmup | (assigned.warmup & waiting))
        return _made(current, epoch, MemberState.UNREVOKED_TASKS, new, revoked, target_epoch)
    waiting = promoted - active
    new = Tasks(kept.active | active, standby | (assigned.standby & waiting), warmup | (assigned.warmup & waiting))
    state = MemberState.STABLE if new == target else MemberState.UNRELEASED_TASKS
    return _made(current, target_epoch, state, new, NO_TASKS, target_epoch)


def _is_held(task: TaskId, held: Holders) -> bool:
    return held.active(task) or held.in_process(task)


def _revoked(assigned: Tasks, target: Tasks, owned: Tasks | None, promoted: frozenset[TaskId]) -> Tasks:
    """Returns the tasks to give back: not tasks that change from one passive role to another role, and not tasks that the
    member reports as closed."""
    gone = assigned - target
    stays = promoted | (target.standby | target.warmup)
    revoked = Tasks(gone.active, gone.standby - stays, gone.warmup - stays)
    return revoked if owned is None else revoked & owned


def _made(
    current: Current, epoch: int, state: MemberState, assigned: Tasks, pending: Tasks, target_epoch: int
) -> Current:
    return Current(
        epoch=epoch,
        previous_epoch=current.epoch,
        state=state,
        assigned=assigned,
        pending=pending,
        active_epochs=_epochs(current, assigned.active | pending.active, target_epoch),
    )


def _epochs(current: Current, tasks: frozenset[TaskId], target_epoch: int) -> dict[TaskId, int]:
    known = current.active_epochs
    return {task: known.get(task, target_epoch) for task in tasks}
