"""Asynchronous functions, called side by side."""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue

import pytest

from streamsrt.operators.engine.open_calls import CallOutcome, NotBegunError
from streamsrt.tasks.async_calls import AsyncCalls
from topology.graph.operations import MapAsync

PATIENCE_S = 30.0


@pytest.mark.parametrize("concurrency", [1, 4])
def test_calls_that_are_added_just_as_the_workers_end_are_made(concurrency: int) -> None:
    """Between the end of a worker and the moment at which the event loop tells it, others may add calls."""
    told: SimpleQueue[CallOutcome] = SimpleQueue()

    async def answer(value: int) -> int:
        if value == concurrency - 1:
            asyncio.get_running_loop().call_soon(calls._add, concurrency, [(value + 1,)])
        return value

    calls = AsyncCalls(MapAsync(fn=answer, concurrency=concurrency), told.put)
    calls.begin(0, [(value,) for value in range(concurrency)])
    numbers = sorted(told.get(timeout=PATIENCE_S).number for _ in range(concurrency + 1))
    assert numbers == list(range(concurrency + 1))


def test_calls_that_are_withdrawn_have_not_begun_and_may_be_made_later() -> None:
    told: SimpleQueue[CallOutcome] = SimpleQueue()
    begun: list[int] = []
    under_way = threading.Semaphore(0)
    may_end = asyncio.Event()

    async def answer(value: int) -> int:
        begun.append(value)
        under_way.release()
        await may_end.wait()
        return value

    calls = AsyncCalls(MapAsync(fn=answer, concurrency=2), told.put)
    calls.begin(0, [(value,) for value in range(5)])
    assert all(under_way.acquire(timeout=PATIENCE_S) for _ in range(2))
    calls.withdraw()
    withdrawn = [told.get(timeout=PATIENCE_S) for _ in range(3)]
    assert [each.number for each in withdrawn] == [2, 3, 4]
    assert all(isinstance(each.error, NotBegunError) for each in withdrawn)
    assert begun == [0, 1]
    calls._loop.call_soon_threadsafe(may_end.set)
    assert sorted(told.get(timeout=PATIENCE_S).number for _ in range(2)) == [0, 1]
    calls.begin(2, [(2,)])
    assert told.get(timeout=PATIENCE_S) == CallOutcome(2, 2, None)
