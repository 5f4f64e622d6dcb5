"""Letting an event loop get on, without sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
