"""Asynchronous calls go on while the task reads more: what waits for what, what a commit covers, and what an end leaves."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from streamsrt.errors import ProcessingError, UserError
from streamsrt.operators.kinds.call_windows import HELD_MAX
from streamsrt.runtime.failures import commits_at_the_end
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.operators.kinds.test_batches import Running, started, topology_of
from topology import KStream, serdes

pytestmark = pytest.mark.waits

PATIENCE_S = 30.0
Build = Callable[[KStream[str, Any]], KStream[Any, Any]]


class Gate:
    """A function whose calls with some values wait until they are let go."""

    def __init__(self, *held: int) -> None:
        self._held = set(held)
        self._opened: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.under_way = threading.Semaphore(0)
        self.cancelled = threading.Event()
        self.calls: list[int] = []

    async def map(self, value: int) -> int:
        self.calls.append(value)
        if value in self._held:
            self._loop = asyncio.get_running_loop()
            self._opened = self._opened or asyncio.Event()
            self.under_way.release()
            try:
                await self._opened.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        return value

    async def find(self, values: list[int]) -> dict[int, int]:
        return {value: await self.map(value) for value in values}

    def let_go(self) -> None:
        assert self.under_way.acquire(timeout=PATIENCE_S)
        assert self._loop is not None
        assert self._opened is not None
        self._loop.call_soon_threadsafe(self._opened.set)


def add(running: Running, count: int) -> None:
    """Records with the values 0, 1, ..., in batches of 10."""
    for start in range(0, count, 10):
        values = [serdes.json.serialize(number) for number in range(start, start + 10)]
        running.task.add_batch("in", 0, RecordColumns([b"k"] * 10, values, [1] * 10, start, start + 10))


def work(running: Running) -> None:
    """What a stream thread does in an iteration."""
    if not running.task.process(1000, 0, finishes=False):
        running.task.await_calls(0.01)


def numbers(running: Running) -> list[int]:
    return [row[1] for row in running.out("out")]


def mapped(gate: Gate, **options: Any) -> Build:
    return lambda stream: stream.map_async(gate.map, **options)


def looked_up(gate: Gate, **options: Any) -> Build:
    options = {"batch": 1, "ttl": 0, **options}
    options.pop("ordered", None)
    return lambda stream: stream.join_lookup(gate.find, lambda value, found: found, on=lambda k, v: v, **options)


BOTH = pytest.mark.parametrize("build", [mapped, looked_up], ids=["map_async", "join_lookup"])


@BOTH
def test_one_call_that_takes_long_keeps_no_other_from_being_made(build: Callable[..., Build]) -> None:
    gate = Gate(0)
    running = Running(topology_of(build(gate, concurrency=2)))
    add(running, 200)
    while len(gate.calls) < 200:
        work(running)
    assert numbers(running) == []
    assert running.task.is_calling
    gate.let_go()
    while running.task.is_calling:
        work(running)
    assert numbers(running) == list(range(200))
    running.task.close()


def test_results_that_need_no_order_go_on_past_it() -> None:
    gate = Gate(0)
    running = Running(topology_of(mapped(gate, concurrency=2, ordered=False)))
    add(running, 100)
    while len(numbers(running)) < 99:
        work(running)
    assert sorted(numbers(running)) == list(range(1, 100))
    gate.let_go()
    while running.task.is_calling:
        work(running)
    assert numbers(running)[-1] == 0
    running.task.close()


@BOTH
def test_no_more_is_taken_than_calls_are_made_of(build: Callable[..., Build]) -> None:
    """So that an iteration ends soon, the progress moves, and an end has little to wait for."""
    gate = Gate(*range(1000))
    running = Running(topology_of(build(gate, concurrency=3)))
    add(running, 100)
    for _ in range(5):
        work(running)
    assert running.task.counters()["processed"] == 6
    assert running.task.buffered_records == 94
    gate.let_go()
    for _ in range(1000):
        work(running)
        if len(numbers(running)) == 100:
            break
    running.task.close()


def test_results_that_wait_for_an_earlier_one_are_bounded() -> None:
    gate = Gate(0)
    running = Running(topology_of(mapped(gate, concurrency=8)))
    add(running, HELD_MAX + 1008)
    while running.task.counters()["processed"] < HELD_MAX - 8:
        work(running)
    for _ in range(5):
        work(running)
    assert running.task.counters()["processed"] <= HELD_MAX
    gate.let_go()
    while running.task.is_calling or running.task.buffered_records:
        work(running)
    assert numbers(running) == list(range(HELD_MAX + 1008))
    running.task.close()


@BOTH
def test_a_commit_covers_what_has_its_result(build: Callable[..., Build]) -> None:
    gate = Gate(3)
    running = Running(topology_of(build(gate, concurrency=4)))
    add(running, 10)
    for _ in range(3):
        work(running)
    letting_go = threading.Thread(target=gate.let_go)
    letting_go.start()
    done = running.task.prepare_commit()
    letting_go.join()
    offset, _ = done.offsets["in", 0]
    assert numbers(running) == list(range(offset))
    running.task.close()


@BOTH
def test_a_task_that_is_closed_ends_its_calls(build: Callable[..., Build]) -> None:
    gate = Gate(0)
    running = Running(topology_of(build(gate, concurrency=1)))
    add(running, 10)
    work(running)
    assert gate.under_way.acquire(timeout=PATIENCE_S)
    running.task.close()
    assert gate.cancelled.wait(PATIENCE_S)
    assert numbers(running) == []
    assert not running.task.is_calling


def test_a_call_that_fails_at_last_is_out_of_order() -> None:
    """What was read behind it is done here and there: nothing of it may be committed."""
    calls = Gate(1)

    async def broken(value: int) -> int:
        if await calls.map(value) == 1:
            raise ArithmeticError(value)
        return value

    running = Running(topology_of(lambda stream: stream.map_async(broken, concurrency=2)))
    add(running, 30)
    for _ in range(5):
        work(running)
    calls.let_go()
    with pytest.raises(ProcessingError, match="at in-0 offset 1,") as failed:
        running.task.prepare_commit()
    assert not failed.value.is_in_order
    running.task.close()


def work_on(running: Running) -> None:
    """Until something fails."""
    while True:
        work(running)


async def _no_answer(values: list[int]) -> Any:
    return None


def test_a_failure_of_no_record_after_which_calls_are_missing_has_nothing_committed() -> None:
    running = started(lambda stream: stream.join_lookup(_no_answer, lambda value, _: value, on=lambda _, value: value))
    add(running, 20)
    with pytest.raises(UserError) as caught:
        work_on(running)
    assert not caught.value.is_in_order
    assert not commits_at_the_end(caught.value, is_atomic=False)
    assert not commits_at_the_end(caught.value, is_atomic=True)
    assert numbers(running) == []


@BOTH
@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({}, "without a time limit (no timeout= is given)"),
        ({"timeout": 20_000}, "for at most 40 s (timeout= and retries=)"),
        (
            {"timeout": 20_000, "retries": 2, "backoff": 100},
            "for at most 120.6 s (timeout= and retries=)",
        ),
    ],
)
def test_what_a_commit_waits_for_is_told(build: Callable[..., Build], options: dict[str, Any], bound: str) -> None:
    gate = Gate(*range(10))
    running = Running(topology_of(build(gate, concurrency=2, **options)))
    add(running, 10)
    while len(gate.calls) < 2:
        work(running)
    (told,) = running.task.calls_under_way()
    assert told.startswith("4 asynchronous calls of KSTREAM-")
    assert "test_call_windows.py:" in told
    assert told.endswith(f", 2 at a time, {bound}")
    letting_go = [gate.let_go]

    def look() -> None:
        if letting_go:
            letting_go.pop()()

    running.task.while_calling(look)
    running.task.prepare_commit()
    assert running.task.calls_under_way() == []
    running.task.close()


def test_a_signal_at_the_end_of_a_wait_does_not_prolong_it() -> None:
    gate = Gate(0)
    running = Running(topology_of(mapped(gate, concurrency=1)))
    add(running, 10)
    running.task.process(1000, 0, finishes=False)
    ends: list[float] = []

    def outlast(*_: object) -> None:
        while time.monotonic() < ends[0]:
            pass

    before = signal.signal(signal.SIGALRM, outlast)
    # If the wait goes on, this ends it.
    rescue = threading.Timer(5.0, gate.let_go)
    rescue.start()
    try:
        for _ in range(5):
            ends[:] = [time.monotonic() + 0.03]
            signal.setitimer(signal.ITIMER_REAL, 0.015)
            running.task.await_calls(0.02)
            assert time.monotonic() - ends[0] < 2.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        rescue.cancel()
    assert running.task.is_calling
    running.task.close()
