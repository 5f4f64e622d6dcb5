"""Waiting until the next deadline; a waiter is woken if there may be an earlier one."""

from __future__ import annotations

import asyncio


class Alarm:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """A deadline was set or cancelled."""
        self._event.set()

    def reset(self) -> None:
        """All deadlines are known as of now."""
        self._event.clear()

    async def wait(self, delay_ms: int | None) -> None:
        """Returns after ``delay_ms`` (None: never), or when the alarm rang since the last reset."""
        try:
            async with asyncio.timeout(None if delay_ms is None else delay_ms / 1000):
                await self._event.wait()
        except TimeoutError:
            return
