"""The machine's clock, watched: who has deadlines by it learns when it is set, or stood still while the machine slept.

Records get the time that the clock shows. Sessions, rebalances and transactions last as long as they last: who would
otherwise die before the clock is set back would be missed that much later, and a clock that is set forward would remove
members that are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger("coordinator.broker")

STEP_MIN_MS = 20
"""Smaller differences are left until they add up: the two clocks are not read at the same moment."""
_DOUBT_MS = 2
"""If more passed between two readings, this thread was interrupted: what differs then is no step of a clock."""
_TOLD_MS = 1_000


class SteppedClock:
    """Epoch milliseconds, as the machine's clock shows them. ``steady_ms`` is a clock that nobody sets.

    ``on_step`` gets the milliseconds by which the clock was set forward (negative: back), before anybody gets the new time.
    """

    def __init__(self, now_ms: Callable[[], int], steady_ms: Callable[[], int], on_step: Callable[[int], None]) -> None:
        self._now_ms = now_ms
        self._steady_ms = steady_ms
        self._on_step = on_step
        self._offset_ms = now_ms() - steady_ms()

    def __call__(self) -> int:
        began_ms = self._steady_ms()
        now_ms = self._now_ms()
        by_ms = now_ms - began_ms - self._offset_ms
        if not -STEP_MIN_MS < by_ms < STEP_MIN_MS and self._steady_ms() - began_ms <= _DOUBT_MS:
            self._step(by_ms)
        return now_ms

    def _step(self, by_ms: int) -> None:
        self._offset_ms += by_ms
        if abs(by_ms) >= _TOLD_MS:
            logger.warning(
                "the clock of this machine was set %s by %.1f s, or the machine slept: sessions, rebalances and "
                "transactions last as long as before, new records get the new time",
                "forward" if by_ms > 0 else "back",
                abs(by_ms) / 1000,
            )
        self._on_step(by_ms)
