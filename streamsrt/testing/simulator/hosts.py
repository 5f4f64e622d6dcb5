"""A simulated computer: what runs on it, and how it ends.

1. Event loop callbacks belong to the host that is in :data:`HOST` when they are scheduled.
2. The processing thread of an application is a greenlet: code that blocks gives the one real thread to the event loop,
   and continues when what it waits for has happened. Only :class:`GreenletBlocking` blocks, so a thread can only be
   lost there.
3. A killed host does nothing any more, immediately: no callback, no line of its thread, no ``finally`` with an effect.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from streamsrt.client.blocking import Condition, Flag
from streamsrt.errors import ConfigError

try:
    from greenlet import GreenletExit, getcurrent, greenlet
except ImportError:
    raise ConfigError("the simulator needs greenlet: pip install 'streamsrt[simulator]'") from None

T = TypeVar("T")

HOST: contextvars.ContextVar[Host | None] = contextvars.ContextVar("simulated host", default=None)


class Host:
    """One life of a computer. ``name`` is unique among living hosts."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.is_dead = False
        self.is_frozen = False
        self.held: deque[tuple[asyncio.Handle, Host | None]] = deque()
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.threads: list[HostThread] = []
        self.context = contextvars.copy_context()
        self.context.run(HOST.set, self)

    def kill(self) -> None:
        """Ends it like a power failure."""
        self.is_dead = True
        self.held.clear()
        for task in self.tasks:
            # Nobody will resume or start it; this keeps asyncio from warning.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            work = task.get_coro()
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()


class HostKilled(GreenletExit):  # type: ignore[misc]  # greenlet says nothing of its types
    """Unwinds the thread of a dead host when the simulation is over."""


class HostThread:
    """A thread of a host. It starts with the next iteration of the loop."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
        self.host = host
        self.stalled_until_s = 0.0
        self.on_ask: Callable[[], object] = lambda: None
        """Called by the thread, when it is about to wait for an answer of the cluster."""
        self._asks_left = 0
        self._when_it_asks: Callable[[], object] | None = None
        self._loop = loop
        self._main = getcurrent()
        self._token = 0
        self._greenlet = greenlet(work)
        self._greenlet.gr_context = host.context.copy()
        self._context = host.context.copy()
        host.threads.append(self)
        loop.call_soon(self._resume, 0, True, context=self._context)

    @property
    def has_ended(self) -> bool:
        return bool(self._greenlet.dead)

    def park(self, timeout_s: float | None) -> bool:
        """Waits for :meth:`wake`; returns False if the time is up first. Called by the thread."""
        if self.host.is_dead:
            raise HostKilled
        token = self._token
        timer = None
        if timeout_s is not None:
            timer = self._loop.call_later(max(0.0, timeout_s), self._resume, token, False)
        woken: bool = self._main.switch()
        if timer is not None:
            timer.cancel()
        if self.host.is_dead:
            raise HostKilled
        return woken

    def once_it_asks(self, times: int, act: Callable[[], object]) -> None:
        """Calls ``act`` when the thread is about to wait for an answer of the cluster, for so many times from now on."""
        self._asks_left, self._when_it_asks = times, act

    def asks(self) -> None:
        """Called by the thread, when it is about to wait for an answer."""
        self.on_ask()
        self._asks_left -= 1
        if not self._asks_left and self._when_it_asks is not None:
            act, self._when_it_asks = self._when_it_asks, None
            act()

    def waker(self) -> Callable[[], None]:
        """Returns a function that ends the next :meth:`park`, once."""
        token = self._token

        def wake() -> None:
            self._loop.call_soon(self._resume, token, True, context=self._context)

        return wake

    def _resume(self, token: int, woken: bool) -> None:
        if token != self._token or self._greenlet.dead:
            return
        now_s = self._loop.time()
        if self.stalled_until_s > now_s:
            self._loop.call_at(self.stalled_until_s, self._resume, token, woken, context=self._context)
            return
        self._token += 1
        self._greenlet.switch(*([woken] if token else []))

    def unwind(self) -> None:
        """Frees the resources of a dead host's thread."""
        for _ in range(_UNWINDINGS_MAX):
            if self._greenlet.dead or not self._greenlet:
                return
            self._greenlet.throw(HostKilled)


_UNWINDINGS_MAX = 100


_WORKED_MAX_NS = 8_000_000
"""Between two looks at it: up to four parts of a commit (:mod:`streamsrt.runtime.loop.commit_parts`)."""


class GreenletBlocking:
    """Lets a host's thread wait. Implements :class:`streamsrt.client.blocking.Blocking`.

    ``chance`` decides how long the thread says that it has computed.
    """

    def __init__(self, chance: random.Random) -> None:
        self.thread: HostThread | None = None
        self._chance = chance
        self._worked_ns = 0

    def _park(self, timeout_s: float | None) -> bool:
        assert self.thread is not None
        return self.thread.park(timeout_s)

    def flag(self) -> Flag:
        return _Flag(self)

    def condition(self, lock: threading.Lock) -> Condition:
        return _Condition(self, lock)

    def result(self, future: Future[T], timeout_s: float | None) -> T:
        assert self.thread is not None
        if not future.done():
            self.thread.asks()
            wake = self.thread.waker()
            future.add_done_callback(lambda _: wake())
            if not self._park(timeout_s) and not future.done():
                raise TimeoutError
        return future.result(0)

    def pause(self, timeout_s: float) -> None:
        self._park(timeout_s)

    def worked_ns(self) -> int:
        """Computing takes no time here. But long and short commits lead to other decisions, and both are to be tried."""
        self._worked_ns += self._chance.randrange(_WORKED_MAX_NS)
        return self._worked_ns


class _Flag:
    def __init__(self, blocking: GreenletBlocking) -> None:
        self._blocking = blocking
        self._is_set = False
        self._wake: Callable[[], None] | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._wake is not None:
            self._wake()
            self._wake = None

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_set:
            return True
        assert self._blocking.thread is not None
        self._wake = self._blocking.thread.waker()
        self._blocking._park(timeout)
        self._wake = None
        return self._is_set


class _Condition:
    def __init__(self, blocking: GreenletBlocking, lock: threading.Lock) -> None:
        self._blocking = blocking
        self._lock = lock
        self._flag = _Flag(blocking)

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        assert self._blocking.thread is not None
        self._blocking.thread.asks()
        self._flag.clear()
        self._lock.release()
        try:
            return self._flag.wait(timeout)
        finally:
            self._lock.acquire()

    def notify_all(self) -> None:
        self._flag.set()
