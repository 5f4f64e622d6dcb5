"""Long work of one request in slices, so that other clients are served in between.

1. Work is a generator that yields after every small step. A slice lasts :data:`SLICE_S`; then the event loop continues.
2. One request is worked on at a time; the others wait in the order of arrival. So the memory of long requests is that
   of one of them.
3. There is no garbage collection meanwhile: it would scan all elements of the request at once, and free nothing.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Generator, Iterable
from typing import TypeVar

SLICE_S = 0.002
ITEMS_PER_STEP = 64

Result = TypeVar("Result")
Item = TypeVar("Item")


def whole(steps: Generator[None, None, Result]) -> Result:
    """Runs work that is short enough to be done at once, and returns its result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result


def in_steps(items: Iterable[Item], per_step: int = ITEMS_PER_STEP) -> Generator[None, None, list[Item]]:
    """The items as a list, some in each step."""
    made: list[Item] = []
    for count, item in enumerate(items, 1):
        made.append(item)
        if not count % per_step:
            yield
    return made


class Slices:
    """Runs the long work of one broker, in one event loop. Enter it (``async with``) before running work."""

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

    async def run_alone(self, steps: Generator[None, None, Result]) -> Result:
        """Enters, and runs the work."""
        async with self:
            return await self.run(steps)

    async def run(self, steps: Generator[None, None, Result]) -> Result:
        """Runs the work and returns its result. If the task is cancelled, the work stops where it is."""
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
