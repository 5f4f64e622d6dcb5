"""Asynchronous functions of operators, called side by side.

1. They run in one event loop of the process, in a thread of its own that ends with it: a program may keep a client session
   there from one call to the next, and a program that has an event loop itself (a notebook) is not disturbed.
2. Outcomes are told as they come, in the thread of the loop. Every call has exactly one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from streamsrt.operators.environment import Outcome
from topology.graph.operations import MapAsync


@lru_cache(maxsize=1)
def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="streamsrt-async", daemon=True).start()
    return loop


def call_all(op: MapAsync, arguments: Sequence[tuple[Any, ...]], tell: Callable[[Outcome], None]) -> None:
    """Begins to call the operation's function with each of the arguments; returns at once."""
    asyncio.run_coroutine_threadsafe(_call_all(op, arguments, tell), _event_loop())


async def _call_all(op: MapAsync, arguments: Sequence[tuple[Any, ...]], tell: Callable[[Outcome], None]) -> None:
    waiting = iter(enumerate(arguments))

    async def work() -> None:
        for place, each in waiting:
            try:
                value = await _call(op, each)
            except Exception as error:  # noqa: BLE001  # a user's function may raise anything
                tell(Outcome(place, None, error))
            except BaseException as error:  # noqa: BLE001  # else whoever waits for the outcome would wait for ever
                tell(Outcome(place, None, RuntimeError(f"the call ended with {type(error).__name__}: {error}")))
            else:
                tell(Outcome(place, value, None))

    await asyncio.gather(*(work() for _ in range(min(op.concurrency, len(arguments)))))


async def _call(op: MapAsync, arguments: tuple[Any, ...]) -> Any:
    timeout_s = None if op.timeout_ms is None else op.timeout_ms / 1000
    for attempt in range(op.retries + 1):
        try:
            async with asyncio.timeout(timeout_s):
                return await op.fn(*arguments)
        except Exception:
            if attempt == op.retries:
                raise
        await asyncio.sleep(op.backoff_ms * 2**attempt / 1000)
    raise AssertionError("the last attempt returns or raises")
