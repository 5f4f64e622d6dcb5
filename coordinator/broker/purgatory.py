"""Fetches that wait for records, with their partitions and deadlines.

A fetch that can't be answered yet waits for an append to one of its partitions. It learns which of them got something,
looks at these alone, and waits on if it must; a deadline ends the wait in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from coordinator.log import PartitionLog


class DelayedFetch:
    """One waiting fetch. ``woken``: the partitions with new records since its last check."""

    __slots__ = ("event", "woken")

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.woken: set[PartitionLog] = set()

    async def wait(self, timeout_s: float) -> set[PartitionLog]:
        """Returns the partitions with new records; none if the time is up first, or all waits were ended."""
        if not self.event.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self.event.wait()
            except TimeoutError:
                return set()
        self.event.clear()
        woken, self.woken = self.woken, set()
        return woken


class Purgatory:
    """Wakes waiting fetches. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[PartitionLog, dict[DelayedFetch, None]] = {}
        self._closing = False
        self.round = 0
        """Counts the calls of :meth:`wake`: who looked in this round and begins to watch in it has missed nothing."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wake(self, log: PartitionLog) -> None:
        """Wakes the waiting fetches of ``log``. Called when records were appended to it, or it was closed."""
        self.round += 1
        waiting = self._waiting.get(log)
        if waiting:
            for watch in waiting:
                watch.woken.add(log)
                watch.event.set()

    def close(self) -> None:
        """Ends all waits, now and from now on: the broker stops."""
        self._closing = True
        for waiting in self._waiting.values():
            for watch in waiting:
                watch.woken.clear()
                watch.event.set()

    @contextmanager
    def watch(self, logs: Iterable[PartitionLog]) -> Iterator[DelayedFetch]:
        """Watches partitions while the context is open."""
        watch = DelayedFetch()
        if self._closing:
            watch.event.set()
        watched = dict.fromkeys(logs)
        for log in watched:
            self._waiting.setdefault(log, {})[watch] = None
        try:
            yield watch
        finally:
            for log in watched:
                waiting = self._waiting[log]
                waiting.pop(watch, None)
                if not waiting:
                    del self._waiting[log]
