"""The deadlines of the loop: one value, sorted by time.

1. Each deadline is in it exactly once. Setting it again replaces it.
2. A deadline that has passed remains until the action sets the next one, so delays can be measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Deadline(Enum):
    """The kinds of deadlines."""

    COMMIT = "commit"
    COMMIT_SOME = "commit some of the tasks, if there is time"
    SEND = "send outputs that wait for more of their partition"
    PURGE = "purge repartition topics"
    REPORT_OFFSETS = "report the offsets of the tasks' state to the membership"
    PUBLISH = "publish progress"
    MEASURE_MEMORY = "measure memory"
    LOG_LATE_COMMIT = "log a late commit again"
    CHECK_DRAINED = "check whether all input is processed"
    LEAVE_TIMEOUT = "stop waiting for the group coordinator to confirm the leave"


class ScheduledDeadline(NamedTuple):
    """One deadline, in milliseconds of the loop's clock."""

    at_ms: int
    what: Deadline


@dataclass(frozen=True, slots=True)
class Schedule:
    """Deadlines, the earliest first."""

    entries: tuple[ScheduledDeadline, ...] = ()

    @classmethod
    def of(cls, deadlines: Mapping[Deadline, int]) -> Schedule:
        return cls(_sorted(ScheduledDeadline(at_ms, what) for what, at_ms in deadlines.items()))

    def at_ms(self, what: Deadline) -> int | None:
        """Returns when the deadline is due; None if it is not in the schedule."""
        for at_ms, each in self.entries:
            if each is what:
                return at_ms
        return None

    def is_due(self, what: Deadline, now_ms: int) -> bool:
        at_ms = self.at_ms(what)
        return at_ms is not None and at_ms <= now_ms

    def set(self, what: Deadline, at_ms: int) -> Schedule:
        """Returns a schedule with this deadline at another time."""
        rest = [entry for entry in self.entries if entry.what is not what]
        return Schedule(_sorted([*rest, ScheduledDeadline(at_ms, what)]))

    def without(self, what: Deadline) -> Schedule:
        """Returns a schedule that does not have this deadline."""
        return Schedule(tuple(entry for entry in self.entries if entry.what is not what))


def _sorted(entries: Iterable[ScheduledDeadline]) -> tuple[ScheduledDeadline, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.at_ms))
