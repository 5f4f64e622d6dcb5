"""Waits until the next deadline; a waiter wakes up if there may be an earlier one."""

from __future__ import annotations

import asyncio


class DeadlineTimer:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Wakes the waiter: a deadline was set or cancelled."""
        self._event.set()

    def reset(self) -> None:
        """Forgets earlier wake-ups; called before the deadlines are read."""
        self._event.clear()

    async def wait(self, delay_ms: int | None) -> None:
        """Returns after ``delay_ms`` (None: never), or when :meth:`wake` has been called since the last reset."""
        try:
            async with asyncio.timeout(None if delay_ms is None else delay_ms / 1000):
                await self._event.wait()
        except TimeoutError:
            return
