"""Records which tasks were added, removed or changed their role here, and why, as far as this member knows.

1. A change is logged once, and kept among the latest changes: the texts are the same everywhere.
2. KIP-1071 has no reasons for assignments. The reason given here follows from the old and new role of a task, the
   member epochs, and whether its state was on disk; what this member did itself (fenced, left, failed, wiped a store)
   is named. The bundled broker sends reasons with its assignment, which are added.
3. A cause applies to everything that happens within it; a nested cause (results lost while an assignment is applied)
   ends before the outer one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streamsrt.membership.values import Role

logger = logging.getLogger(__name__)

KEPT_CHANGES = 100


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """One task that was added, removed or changed its role. ``change``: what happened, as text; ``why``: its cause."""

    task_id: str
    change: str
    why: str


class AssignmentChanges:
    """The latest changes of one member's tasks, newest last. Belongs to the processing thread."""

    def __init__(self) -> None:
        self._latest: deque[AssignmentChange] = deque(maxlen=KEPT_CHANGES)
        self._cause = "this member ends"
        self._epoch: int | None = None
        self._since: int | None = None
        self._reason = ""
        self._is_first = True
        self._came = False

    @contextmanager
    def because(self, cause: str) -> Iterator[None]:
        """Gives this reason to all changes in the ``with`` block."""
        before = self._cause, self._epoch
        self._cause, self._epoch = cause, None
        try:
            yield
        finally:
            self._cause, self._epoch = before

    @contextmanager
    def assigned(self, member_epoch: int, reason: str = "") -> Iterator[None]:
        """Gives the assignment of this epoch as the reason of all changes in the ``with`` block.

        ``reason``: why, as the group coordinator says it.
        """
        before = self._cause, self._epoch
        self._epoch, self._reason, self._came = member_epoch, reason, False
        try:
            yield
        finally:
            self._cause, self._epoch = before
            self._since = member_epoch
            self._is_first = self._is_first and not self._came

    def lost(self) -> None:
        """The member is no longer in the group; the next tasks that it gets are the first of a new membership."""
        self._is_first, self._since = True, None

    def opened(self, task_id: str, role: Role, *, has_state: bool = False) -> None:
        """A task was opened. ``has_state``: some of its state was on disk."""
        self._came = True
        since = " after it joined" if self._is_first else ""
        found = ", which has state of it on disk" if has_state else ""
        self._note(task_id, f"opened as {role}", f"the group gave it to this member{since}{found}")

    def closed(self, task_id: str, role: Role, becomes: Role | None) -> None:
        """A task was closed. ``becomes``: its role in the new assignment, None if it has none."""
        if becomes is not None:
            self._note(task_id, "closed", f"the group runs it elsewhere and wants it here as {becomes}")
        elif role == "active":
            self._note(task_id, "closed", "the group no longer assigns it to this member")
        else:
            self._note(task_id, "closed", f"the group no longer wants a {role} of it here")

    def changed_role(self, task_id: str, before: Role, role: Role) -> None:
        """An open task has changed its role."""
        if role != "active":
            self._note(task_id, f"from {before} to {role}", f"the group wants it here as {role}")
        elif before == "warmup":
            self._note(task_id, "promoted from warmup", "its state has caught up, and its former owner gave it up")
        else:
            self._note(task_id, "promoted from standby", "the member that ran it left, failed or gave it up")

    def _note(self, task_id: str, change: str, of_the_group: str) -> None:
        why = self._cause if self._epoch is None else self._of_the_group(of_the_group)
        self._latest.append(AssignmentChange(task_id, change, why))
        logger.info("task %s: %s: %s", task_id, change, why)

    def _of_the_group(self, what: str) -> str:
        since = "" if self._since in (None, self._epoch) else f"{self._since} -> "
        return f"{what}{': ' if self._reason else ''}{self._reason} (member epoch {since}{self._epoch})"

    def latest(self) -> tuple[AssignmentChange, ...]:
        """Returns the changes, newest last."""
        return tuple(self._latest)
