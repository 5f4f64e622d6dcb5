"""Concurrent calls of operators' asynchronous functions.

1. They run in one event loop of the process, on a thread of its own that ends with the process: a program may keep a
   client session there between calls, and a program with its own event loop (a notebook) is not disturbed.
2. Results are reported as they arrive, on the thread of the loop. Every call has exactly one, unless it is cancelled.
3. At most ``concurrency`` calls of an operator run at a time; the others wait in order.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from inspect import isawaitable

from streamsrt.operators.engine.open_calls import CallOutcome, NotBegunError
from streamsrt.wording import error_text
from topology.graph.operations import MapAsync


@lru_cache(maxsize=1)
def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="streamsrt-async", daemon=True).start()
    return loop


class AsyncCalls:
    """The calls of one operator of one task. ``on_outcome`` receives each outcome."""

    def __init__(self, op: MapAsync, on_outcome: Callable[[CallOutcome], None]) -> None:
        self._op = op
        self._on_outcome = on_outcome
        self._loop = _event_loop()
        self._waiting: deque[tuple[int, tuple[object, ...]]] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._is_over = False

    def begin(self, first: int, arguments: Sequence[tuple[object, ...]]) -> None:
        """Calls the function with each of the arguments, numbered from ``first`` on. Returns at once."""
        self._loop.call_soon_threadsafe(self._add, first, arguments)

    def withdraw(self) -> None:
        """Withdraws the waiting calls: their outcome is NotBegunError, in order."""
        self._loop.call_soon_threadsafe(self._withdraw)

    def cancel(self) -> None:
        """Cancels running and waiting calls: their results are not reported."""
        self._loop.call_soon_threadsafe(self._cancel)

    def _add(self, first: int, arguments: Sequence[tuple[object, ...]]) -> None:
        self._waiting.extend(enumerate(arguments, first))
        for _ in range(min(self._op.concurrency - len(self._workers), len(arguments))):
            self._workers.add(self._loop.create_task(self._work()))

    def _withdraw(self) -> None:
        while self._waiting:
            number, _ = self._waiting.popleft()
            self._on_outcome(CallOutcome(number, None, NotBegunError()))

    def _cancel(self) -> None:
        self._is_over = True
        self._waiting.clear()
        for worker in tuple(self._workers):
            worker.cancel()

    async def _work(self) -> None:
        try:
            await self._work_off()
        finally:
            # At once and not in a callback: a caller that adds calls in between expects workers for them.
            worker = asyncio.current_task()
            assert worker is not None
            self._workers.discard(worker)

    async def _work_off(self) -> None:
        while self._waiting:
            number, arguments = self._waiting.popleft()
            try:
                value = await _call(self._op, arguments)
            except Exception as error:  # noqa: BLE001  # a user's function may raise anything
                self._on_outcome(CallOutcome(number, None, error))
            except asyncio.CancelledError as error:
                if self._is_over:
                    raise
                # Otherwise a thread that waits for the outcome would wait forever.
                failure = RuntimeError(f"the call ended with {error_text(error)}")
                self._on_outcome(CallOutcome(number, None, failure))
            except BaseException as error:  # noqa: BLE001  # raised where the outcome is waited for
                self._on_outcome(CallOutcome(number, None, error))
            else:
                self._on_outcome(CallOutcome(number, value, None))


class NotAwaitableError(TypeError):
    """A function that is called asynchronously returned a result instead of an awaitable."""


def _called(op: MapAsync, arguments: tuple[object, ...]) -> Awaitable[object]:
    result = op.fn(*arguments)
    if isawaitable(result):
        return result
    raise NotAwaitableError(
        f"the function is to return an awaitable, and it returned {type(result).__name__}: make it an async function, or "
        "use map_values() for it"
    )


async def _call(op: MapAsync, arguments: tuple[object, ...]) -> object:
    timeout_s = None if op.timeout_ms is None else op.timeout_ms / 1000
    for attempt in range(op.retries + 1):
        try:
            if timeout_s is None:
                return await _called(op, arguments)
            async with asyncio.timeout(timeout_s):
                return await _called(op, arguments)
        except NotAwaitableError:
            raise
        except Exception:
            if attempt == op.retries:
                raise
        await asyncio.sleep(op.backoff_ms * 2**attempt / 1000)
    raise AssertionError("the last attempt returns or raises")
