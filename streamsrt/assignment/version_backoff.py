"""How long a new version waits for more tasks of older versions after members of it have gone.

1. A setback for the newest version is a member of it that had tasks and goes while older versions run. It may be a
   restart, so the first setback has no consequence.
2. After the second one, the version gets no more tasks for 15 s; after each further one for twice as long, at most 10
   min. Its other members keep their tasks.
3. After 10 min beyond its pause without a setback, a version starts over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FIRST_PAUSE_MS = 15_000
MAX_PAUSE_MS = 600_000
FORGOTTEN_AFTER_MS = 600_000
_DOUBLINGS = 16
_PAUSED = re.compile(r"Members with topology epoch (\d+) left (\d+) times in a row")


@dataclass(frozen=True, slots=True)
class Setbacks:
    """The setbacks of one version. ``until_ms``: when it may get more tasks."""

    epoch: int
    count: int
    until_ms: int

    @property
    def pause_ms(self) -> int:
        return 0 if self.count < 2 else min(FIRST_PAUSE_MS << min(self.count - 2, _DOUBLINGS), MAX_PAUSE_MS)

    def is_paused(self, epoch: int, now_ms: int) -> bool:
        """Whether that version gets no more tasks now. A clock that was set back makes no pause longer."""
        return self.epoch == epoch and 0 < self.until_ms - now_ms <= self.pause_ms

    def __str__(self) -> str:
        return (
            f"Members with topology epoch {self.epoch} left {self.count} times in a row while older versions run: no "
            f"more tasks are handed over to them for {self.pause_ms // 1000} s. Their logs show the reason."
        )


def after_setback(known: Setbacks | None, epoch: int, now_ms: int) -> Setbacks:
    """Counts a setback: a member with that version has gone."""
    is_another = known is None or known.epoch != epoch or now_ms >= known.until_ms + FORGOTTEN_AFTER_MS
    count = 1 if known is None or is_another else known.count + 1
    return Setbacks(epoch, count, now_ms + Setbacks(epoch, count, 0).pause_ms)


def named_setbacks(why: str) -> tuple[int, int] | None:
    """Parses epoch and number of the setbacks that pause a version from the reason of an assignment; None: no pause."""
    found = _PAUSED.search(why)
    return None if found is None else (int(found[1]), int(found[2]))
