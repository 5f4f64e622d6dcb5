"""Signals that stop a run."""

from __future__ import annotations

import signal
import threading

import pytest

from streamsrt.runtime.stop_signals import stop_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_and_a_second_one_has_its_usual_effect(number: signal.Signals) -> None:
    usual: list[int] = []
    before = signal.signal(number, lambda came, _frame: usual.append(came))
    try:
        stopped: list[signal.Signals] = []
        with stop_signals(stopped.append):
            signal.raise_signal(number)
            assert (stopped, usual) == ([number], [])
            signal.raise_signal(number)
            assert (stopped, usual) == ([number], [number])
        with stop_signals(stopped.append):
            pass
        signal.raise_signal(number)
        assert (stopped, usual) == ([number], [number] * 2)
    finally:
        signal.signal(number, before)


def test_another_thread_leaves_signals_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def run() -> None:
        with stop_signals(seen.append):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
