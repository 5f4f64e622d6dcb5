"""The clock of a stream thread: it never goes back, and knows how far the machine's clock is ahead of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

CHANGE_MIN_MS = 20
"""Less is not followed: the clock that programs see does not jitter."""
_DOUBT_NS = 2_000_000
"""Both clocks are read one after the other. If that took longer, the thread was interrupted in between."""
_TOLD_MS = 1_000


class SteadyClock:
    """Epoch milliseconds that never go back: changes of the system clock do not affect them."""

    def __init__(
        self, steady_ns: Callable[[], int] = time.monotonic_ns, system_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._steady_ns = steady_ns
        self._system_ns = system_ns
        self._offset_ns = system_ns() - steady_ns()
        self._ahead_ms = 0

    def __call__(self) -> int:
        return (self._steady_ns() + self._offset_ns) // 1_000_000

    def ahead_ms(self) -> int:
        """How far the system clock is ahead of this one now: it was set, or the machine was suspended. Negative: behind."""
        began_ns = self._steady_ns()
        system_ns = self._system_ns()
        ended_ns = self._steady_ns()
        ahead_ms = (system_ns - self._offset_ns - (began_ns + ended_ns) // 2) // 1_000_000
        by_ms = ahead_ms - self._ahead_ms
        if abs(by_ms) < CHANGE_MIN_MS or ended_ns - began_ns > _DOUBT_NS:
            return self._ahead_ms
        if abs(by_ms) >= _TOLD_MS:
            logger.warning(
                "the clock of this machine was set %s by %.1f s: punctuations by the wall clock, the time that programs "
                "see, and latencies of records follow it; nothing else does",
                "forward" if by_ms > 0 else "back",
                abs(by_ms) / 1000,
            )
        self._ahead_ms = ahead_ms
        return ahead_ms
