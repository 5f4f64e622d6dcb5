"""Long work of one request in slices, so that other clients are served in between.

1. Work is a generator that yields after every small step. A slice lasts :data:`SLICE_S`; then the event loop continues.
2. One request is worked on at a time; the others wait in the order of arrival. So the memory of long requests is that
   of one of them.
3. There is no garbage collection meanwhile: it would scan all elements of the request at once, and free nothing.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Generator
from typing import TypeVar

SLICE_S = 0.002

Result = TypeVar("Result")


def whole(steps: Generator[None, None, Result]) -> Result:
    """What comes out of work that is short enough to be done at once."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result


class Slices:
    """The long work of one broker. To be entered (``async with``) before work is run; belongs to one event loop."""

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._collects = False
        self.pauses = 0
        """How often the loop ran others in between."""

    async def __aenter__(self) -> None:
        await self._gate.acquire()
        self._collects = gc.isenabled()
        gc.disable()

    async def __aexit__(self, *_: object) -> None:
        if self._collects:
            gc.enable()
        self._gate.release()

    async def run(self, steps: Generator[None, None, Result]) -> Result:
        """The result of the work. It ends where it is when the task is cancelled."""
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + SLICE_S
        try:
            while True:
                next(steps)
                if now_s() >= until_s:
                    self.pauses += 1
                    await asyncio.sleep(0)
                    until_s = now_s() + SLICE_S
        except StopIteration as stop:
            result: Result = stop.value
            return result
