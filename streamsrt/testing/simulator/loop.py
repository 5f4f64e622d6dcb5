"""An event loop with virtual time, shared by all hosts of a simulated cluster.

1. Due callbacks run in the order of their time, then in the order in which they were scheduled. When none is due, the
   clock jumps to the next timer: nothing waits, and nothing depends on the speed of the machine.
2. Every callback belongs to the host whose code scheduled it, by a context variable that tasks, timers and futures
   inherit. Callbacks of a dead host never run; those of a frozen host run when it thaws.
3. There are no sockets, signals or threads. ``create_connection`` and ``create_server`` are those of the simulated
   network.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from streamsrt.client.spawned import defect_in
from streamsrt.testing.simulator.hosts import HOST, Host


class Net(Protocol):
    """Creates connections."""

    async def connect(self, protocol: asyncio.BaseProtocol, host: str, port: int) -> asyncio.Transport: ...
    def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any: ...


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop with virtual time, run by :meth:`run_until`."""

    def __init__(self, start_s: float) -> None:
        self._now_s = start_s
        self._ready: deque[tuple[asyncio.Handle, Host | None]] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Host | None]] = []
        self._order = itertools.count()
        self._closed = False
        self.net: Net | None = None
        self.steps = 0
        self.errors: list[dict[str, Any]] = []

    # --------------------------------------------------------------------------------------------------------- running

    def run_until(self, is_over: Callable[[], bool], until_s: float) -> bool:
        """Runs until ``is_over`` holds, a callback fails, or the clock would pass ``until_s``; returns whether it holds."""
        asyncio._set_running_loop(self)
        try:
            while not self.errors:
                if is_over():
                    return True
                if not self._ready and not self._advance(until_s):
                    return False
                self._run_ready()
        finally:
            asyncio._set_running_loop(None)
        return False

    def _advance(self, until_s: float) -> bool:
        """Jumps to the next timer. Returns False if there is none before the end."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers or timers[0][0] > until_s:
            self._now_s = max(self._now_s, until_s)
            return False
        self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= self._now_s:
            _, _, handle, host = heapq.heappop(timers)
            self._ready.append((handle, host))
        return True

    def _run_ready(self) -> None:
        ready = self._ready
        for _ in range(len(ready)):
            handle, host = ready.popleft()
            if handle._cancelled:
                continue
            if host is not None:
                if host.is_dead:
                    _never_run(handle)
                    continue
                if host.is_frozen:
                    host.held.append((handle, host))
                    continue
            self.steps += 1
            handle._run()
            if self.errors:
                return

    def thaw(self, host: Host) -> None:
        """Thaws a frozen host: callbacks that were due meanwhile run now."""
        host.is_frozen = False
        self._ready.extend(host.held)
        host.held.clear()

    # ------------------------------------------------------------------------------------------------------ scheduling

    def time(self) -> float:
        return self._now_s

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append((handle, context.get(HOST)))
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle, context.get(HOST)))
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Does nothing: cancelled timers are dropped when their time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: object = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name="task", context=context)
        host = HOST.get() if context is None else context.get(HOST)
        if host is not None:
            host.tasks[task] = None
            task.add_done_callback(lambda done: host.tasks.pop(done, None))
        return task

    # ----------------------------------------------------------------------------------------------------------- state

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        for handle, _ in self._ready:
            _never_run(handle)
        self._ready.clear()
        self._timers.clear()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # An exception in a callback, or in a task of the client that nobody waits for, ends the simulation. Unretrieved
        # errors of futures are found by the garbage collector at unpredictable times; the code that created them decides
        # whether they matter.
        if "handle" in context or defect_in(context) is not None:
            self.errors.append(context)

    # --------------------------------------------------------------------------------------------------------- network

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert self.net is not None
        protocol = protocol_factory()
        return await self.net.connect(protocol, host, port), protocol

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: Any
    ) -> Any:
        assert self.net is not None
        return self.net.listen(protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(0, 0, 0, "", (host, port))]


def _never_run(handle: asyncio.Handle) -> None:
    """Closes a coroutine that another thread has submitted, because nobody awaits it."""
    callback = handle._callback  # type: ignore[attr-defined]
    for cell in getattr(callback, "__closure__", None) or ():
        if asyncio.iscoroutine(cell.cell_contents):
            cell.cell_contents.close()
