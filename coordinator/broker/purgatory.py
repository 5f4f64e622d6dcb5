"""Requests that wait for records: who waits for which partition, and until when.

A fetch that can't be answered yet waits for an append to one of its partitions. It is woken at most once per append
round, looks again, and waits on if it must; a deadline ends the wait in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from coordinator.log import PartitionLog


class Purgatory:
    """Wakes waiting fetches. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[PartitionLog, dict[asyncio.Event, None]] = {}
        self._closing = False
        self.round = 0
        """Counts the calls of :meth:`wake`: who looked in this round and begins to wait in it has missed nothing."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wake(self, log: PartitionLog) -> None:
        """To be called when records were appended to ``log``, or it was closed."""
        self.round += 1
        waiting = self._waiting.get(log)
        if waiting:
            for event in waiting:
                event.set()

    def close(self) -> None:
        """Ends all waits, now and from now on: the broker is to stop."""
        self._closing = True
        for waiting in self._waiting.values():
            for event in waiting:
                event.set()

    async def wait(self, logs: Iterable[PartitionLog], timeout_s: float) -> bool:
        """Waits until something is appended to one of ``logs``; False when the time is over first."""
        if self._closing:
            return False
        event = asyncio.Event()
        watched = dict.fromkeys(logs)
        for log in watched:
            self._waiting.setdefault(log, {})[event] = None
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            for log in watched:
                waiting = self._waiting[log]
                waiting.pop(event, None)
                if not waiting:
                    del self._waiting[log]
        return not self._closing
