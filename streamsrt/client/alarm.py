"""A timer that is set much more often than it rings."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Calls ``ring`` on the running loop. It may ring too early: an earlier time that was set before stays, since to look
    in vain once costs less than a new timer each time."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

    def by(self, at: float | None) -> None:
        """Has it ring at that time of the loop's clock, or before. None: no matter when."""
        if at is None or self._rings_at <= at:
            return
        self.cancel()
        self._rings_at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._end)

    def cancel(self) -> None:
        """It does not ring any more, unless it is set again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._rings_at = None, math.inf

    def _end(self) -> None:
        self._timer, self._rings_at = None, math.inf
        self._ring()
