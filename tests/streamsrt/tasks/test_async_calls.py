"""Asynchronous functions, called side by side."""

from __future__ import annotations

import asyncio
from queue import SimpleQueue

import pytest

from streamsrt.operators.engine.environment import CallOutcome
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
