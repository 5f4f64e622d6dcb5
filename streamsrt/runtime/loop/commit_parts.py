"""Commits of some tasks at a time, so that records don't wait for a long commit.

1. A commit serializes what has changed and writes the stores, while no record is processed. At least once, each task may be
   committed by itself. So where this takes long, the tasks are committed in parts, evenly within the interval, and each task
   as often as before.
2. Only where there is time: a part waits for as many round trips as a commit of all. So there are fewer parts where the
   cluster, or a busy machine, takes long for these, and a loop that does not come to wait for input commits all tasks at
   once, when the interval is over.
3. A part has the tasks whose last commits were the longest ago, whatever tasks came and went.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from streamsrt.client.blocking import Blocking
from streamsrt.runtime.loop.values import Committed
from streamsrt.tasks.manager.owned_task import OwnedTask

PART_WORK_MS = 2.0
"""How long a part computes, about. It waits for acknowledgements about as long."""
WAITING_SHARE = 0.05
"""The part of the time that commits may wait, if there is more than one part."""
PARTS_MAX = 8
PART_INTERVAL_MIN_MS = 100


def parts_for(committed: Committed, took_ms: int, interval_ms: int) -> int:
    """Returns in how many parts to commit the tasks, if that commit took ``took_ms``."""
    if not committed.committed:
        return 1
    wanted = math.ceil(committed.work_ms * committed.tasks / committed.committed / PART_WORK_MS)
    waited_ms = max(1.0, took_ms - committed.work_ms)
    possible = min(int(interval_ms * WAITING_SHARE / waited_ms), interval_ms // PART_INTERVAL_MIN_MS, PARTS_MAX)
    return max(1, min(wanted, committed.tasks, possible))


class CommitTurns:
    """Which tasks are committed next, and how long that takes."""

    def __init__(self, blocking: Blocking) -> None:
        self._blocking = blocking
        self._turn = 0
        self._tasks = self._committed = self._began_ns = 0

    def begin(self, tasks: Sequence[OwnedTask], parts: int) -> list[OwnedTask]:
        """Returns one of so many parts of the tasks: a commit of these begins."""
        chosen = list(tasks)
        if parts > 1:
            # A sort is stable: tasks that were committed together take turns in their own order.
            chosen.sort(key=lambda owned: owned.committed_in)
            del chosen[math.ceil(len(chosen) / parts) :]
        self._turn += 1
        for owned in chosen:
            owned.committed_in = self._turn
        self._tasks, self._committed, self._began_ns = len(tasks), len(chosen), self._blocking.worked_ns()
        return chosen

    def ended(self, *, is_atomic: bool) -> Committed:
        """The commit has ended, even if with a failure. ``is_atomic``: whether tasks must be committed together."""
        worked_ns = 0 if is_atomic else self._blocking.worked_ns() - self._began_ns
        return Committed(self._tasks, self._committed, worked_ns / 1e6)
