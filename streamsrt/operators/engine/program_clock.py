"""The clock that programs see: the machine's, which somebody may set while tasks run.

1. Everything internal (sessions, commits, idle operators, scans, pauses between calls) goes by a steady clock, in
   milliseconds since the epoch: it was right at the start, and is never set. Only what a program sees follows the machine's.
2. Whoever runs the tasks says how far the machine's clock is ahead. Where nobody does, both are the same.
"""

from __future__ import annotations


class ProgramClock:
    """Shared by the tasks of one thread. ``ahead_ms``: how far it is ahead of the steady clock, negative if it is behind."""

    __slots__ = ("ahead_ms",)

    def __init__(self) -> None:
        self.ahead_ms = 0

    def at(self, steady_ms: int) -> int:
        """What it shows when the steady clock shows this."""
        return steady_ms + self.ahead_ms
