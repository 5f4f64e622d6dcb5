"""Letting an event loop get on, without sleeping, and counting what it does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 20


async def turn() -> None:
    """Returns when everything has run that was ready to run."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until other callbacks of it have brought something about."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await turn()


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """The number of calls and returns so far, in Python and C."""
    calls = [0]

    def count(*_: object) -> None:
        calls[0] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)
