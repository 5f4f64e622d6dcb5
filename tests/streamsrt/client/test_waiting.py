"""How the network thread's loop waits: for its sockets, and for times that hardly ever come."""

from __future__ import annotations

import asyncio
import socket
import threading

from streamsrt.client.alarm import Alarm
from streamsrt.client.blocking import THREADS
from streamsrt.client.loop_selector import LEFT_OUT_MAX, LoopSelector
from streamsrt.testing.simulator.loop import VirtualLoop


def test_a_loop_with_something_to_do_looks_at_its_sockets_now_and_then() -> None:
    near, far = socket.socketpair()
    with near, far, LoopSelector() as selector:
        selector.register(near, 1)
        far.send(b"x")
        assert [len(selector.select(0)) for _ in range(2 * (LEFT_OUT_MAX + 1))] == [*[0] * LEFT_OUT_MAX, 1] * 2
        assert selector.select(0) == []
        assert len(selector.select(10.0)) == 1, "a loop that waits looks at once"


def test_callbacks_that_call_callbacks_do_not_keep_the_sockets_waiting() -> None:
    loop = asyncio.SelectorEventLoop(LoopSelector())
    near, far = socket.socketpair()
    with near, far:
        over = threading.Event()

        def again() -> None:
            if not over.is_set():
                loop.call_soon(again)

        def arrived() -> None:
            over.set()
            loop.stop()

        loop.add_reader(near, arrived)
        far.send(b"x")
        loop.call_soon(again)
        loop.run_forever()
        loop.remove_reader(near)
    loop.close()
    assert over.is_set()


class Rung:
    """An alarm on a loop with virtual time, and when it rang."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(0.0)  # type: ignore[abstract]
        self.at: list[float] = []
        self.alarm = Alarm(lambda: self.at.append(self.loop.time()))

    def by(self, *times: float | None) -> None:
        self.loop.call_soon(lambda: [self.alarm.by(at) for at in times])
        self.loop.run_until(lambda: False, self.loop.time())

    def until(self, until_s: float) -> list[float]:
        self.loop.run_until(lambda: False, until_s)
        return self.at


def test_an_alarm_rings_at_the_earliest_time_that_was_set() -> None:
    rung = Rung()
    rung.by(5.0, 3.0, 9.0, None)
    assert rung.until(20.0) == [3.0]
    rung.by(25.0)
    assert rung.until(30.0) == [3.0, 25.0]


def test_an_alarm_that_is_cancelled_can_be_set_again() -> None:
    rung = Rung()
    rung.by(5.0)
    rung.alarm.cancel()
    rung.alarm.cancel()
    assert rung.until(10.0) == []
    rung.by(12.0)
    assert rung.until(20.0) == [12.0]


def test_a_thread_that_waits_does_not_work() -> None:
    began_ns = THREADS.worked_ns()
    sum(range(100_000))
    worked_ns = THREADS.worked_ns() - began_ns
    assert worked_ns > 0
    began_ns = THREADS.worked_ns()
    THREADS.flag().wait(worked_ns / 1e9 * 20)
    assert THREADS.worked_ns() - began_ns < worked_ns * 10
