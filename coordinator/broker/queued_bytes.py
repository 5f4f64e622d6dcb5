"""Limits the memory of requests that are being read or served, and of responses that are not yet sent.

1. ``queued.max.request.bytes`` limits each of the two. It is not a reservation per client: when it is used up, requests
   wait in the order of arrival.
2. A large request gets its whole size granted before it is read. One that is larger than the limit is granted when
   nobody else holds any memory. Requests that fit into the receive buffer of a connection are not counted: they never
   wait.
3. A response is not held back: if its client does not read, it gets no other, and records that are still in files are
   not counted. From half the limit on, connections that stand still are closed; at the limit, those that have not read
   for longest, until some of it is free again. The response of a single client may be larger than the limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

FREED_TO = 7 / 8
"""Which share of the limit may stay when it was exceeded."""


class QueuedBytes:
    """The account of one broker. ``limit_bytes`` None: no bound. Belongs to one event loop."""

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.requests = 0
        """Bytes that are granted to requests."""
        self.holders = 0
        """How many requests they are granted to."""
        self.answers = 0
        """Bytes that were written and not yet taken by the network."""
        self.pressed = asyncio.Event()
        """Set when somebody begins to wait, or too much waits to be sent: time to look for connections that stand still."""
        self._unsent: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, tuple[int, Callable[[], None]]] = {}

    # --------------------------------------------------------------------------------------------------------- requests

    def take(self, who: Hashable, size: int, granted: Callable[[], None]) -> bool:
        """Grants ``size`` bytes at once, or returns False and calls ``granted`` later."""
        if not self._waiting and self._fits(size):
            self._hold(size)
            return True
        self._waiting[who] = size, granted
        self.pressed.set()
        return False

    def give_back(self, size: int) -> None:
        """Releases the bytes that were granted to one request."""
        self.requests -= size
        self.holders -= 1
        self._grant()

    def forget(self, who: Hashable) -> None:
        """Stops waiting for a connection that is closed."""
        if self._waiting.pop(who, None) is not None:
            self._grant()

    def _fits(self, size: int) -> bool:
        return self.limit_bytes is None or not self.requests or self.requests + size <= self.limit_bytes

    def _grant(self) -> None:
        while self._waiting:
            who, (size, granted) = next(iter(self._waiting.items()))
            if not self._fits(size):
                return
            del self._waiting[who]
            self._hold(size)
            granted()

    def _hold(self, size: int) -> None:
        self.requests += size
        self.holders += 1

    # --------------------------------------------------------------------------------------------------------- responses

    def unsent(self, who: Hashable, size: int) -> None:
        """Records how many bytes wait to be sent to this client; 0: all are sent, or the connection is closed."""
        self.answers += size - self._unsent.pop(who, 0)
        if size:
            self._unsent[who] = size
        if self.is_half_full:
            self.pressed.set()

    @property
    def takers(self) -> int:
        """How many clients have responses that they have not taken yet."""
        return len(self._unsent)

    @property
    def is_half_full(self) -> bool:
        """Whether unsent data has reached half of its limit."""
        return self.limit_bytes is not None and self.answers >= self.limit_bytes / 2

    @property
    def excess_bytes(self) -> float:
        """How much of what waits to be sent must go: more than is too much, so that not each response exceeds the limit."""
        if self.limit_bytes is None or self.answers <= self.limit_bytes or len(self._unsent) == 1:
            return 0
        return self.answers - self.limit_bytes * FREED_TO

    # --------------------------------------------------------------------------------------------------------- pressure

    @property
    def has_waiting(self) -> bool:
        """Whether a connection waits for memory that requests hold."""
        return bool(self._waiting)

    @property
    def is_pressed(self) -> bool:
        """Whether a connection waits for memory held by others."""
        return self.has_waiting or self.is_half_full
