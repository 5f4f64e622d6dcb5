"""Which connection is served next: a fair share of the one thread for each connection.

1. A connection is served at once if nobody waits and little was done since the sockets were last read. Otherwise it is
   queued; the queue is served for a short time in each iteration of the event loop, and in between every socket is read.
2. Who has used least goes first (start-time fair queueing): a connection's virtual time is how long serving it has taken so
   far. A new one starts :data:`NEWCOMER_S` behind the virtual time of whoever was served last, so that many that come
   together do not all go before those that are here; one that pauses keeps up to :data:`CREDIT_S` of what the others use
   meanwhile. So one request of a quiet client goes before what hundreds of busy ones have sent, and none of these can keep
   the others waiting by sending more.
3. A connection without further requests is charged an eighth: a client that waits for its responses goes before those
   that send without reading, even if it has used as much of the thread.
4. Nobody is served for longer than :data:`QUANTUM_S` at a stretch, but for a single request that takes longer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Protocol

QUANTUM_S = 0.0002
PASS_S = 0.004
CREDIT_S = 0.02
NEWCOMER_S = 0.001
PATIENT_DISCOUNT = 8


class Served(Protocol):
    """What the queue needs to know of a connection."""

    used_s: float
    """Its virtual time: how long serving it has taken. Begins with :meth:`FairQueue.newcomers_s`."""
    is_queued: bool
    has_more: bool
    """Whether serving it stopped because its time was over, with something left to be served."""

    def serve(self) -> float:
        """Answers some frames; the seconds that it took."""


class FairQueue:
    """The queue of one listener. ``now_s``: the clock of the event loop."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], now_s: Callable[[], float]) -> None:
        self._call_soon = call_soon
        self.now_s = now_s
        self._queue: list[tuple[float, int, Served]] = []
        self._arrivals = count()
        self.virtual_time_s = 0.0
        """The virtual time of whoever was served last; of several, the latest."""
        self._spent_s = 0.0
        self._is_scheduled = False

    def newcomers_s(self) -> float:
        """The virtual time of a new connection."""
        return self.virtual_time_s + NEWCOMER_S

    def serve(self, connection: Served) -> None:
        """Serves a connection that has a whole frame, at once or later."""
        if self._is_scheduled or self._spent_s >= PASS_S:
            self.enter(connection)
        else:
            self._serve(connection)

    def _serve(self, connection: Served) -> None:
        virtual_time_s = max(connection.used_s, self.virtual_time_s - CREDIT_S)
        if virtual_time_s > self.virtual_time_s:
            self.virtual_time_s = virtual_time_s
        took_s = connection.serve()
        connection.used_s = virtual_time_s + (took_s if connection.has_more else took_s / PATIENT_DISCOUNT)
        self._spent_s += took_s
        if connection.has_more:
            self.enter(connection)

    def enter(self, connection: Served) -> None:
        """Puts a connection into the queue."""
        if connection.is_queued:
            return
        connection.is_queued = True
        heapq.heappush(
            self._queue, (max(connection.used_s, self.virtual_time_s - CREDIT_S), next(self._arrivals), connection)
        )
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        """Serves the queue for a moment."""
        self._spent_s = 0.0
        queue = self._queue
        try:
            while queue and self._spent_s < PASS_S:
                connection = heapq.heappop(queue)[2]
                connection.is_queued = False
                self._serve(connection)
        finally:
            # Whatever one connection does, the others are served.
            self._is_scheduled = False
            if queue:
                self._schedule()


def queue_of(loop: asyncio.AbstractEventLoop) -> FairQueue:
    """The queue of an event loop."""
    return FairQueue(loop.call_soon, loop.time)
