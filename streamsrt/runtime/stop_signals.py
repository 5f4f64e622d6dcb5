"""SIGTERM and SIGINT (Ctrl-C), which stop a run gracefully: a second one has its usual effect."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Has ``stop`` called for a signal that comes in the ``with`` block, if this is the main thread.

    It interrupts this very thread, anywhere: ``stop`` may take no lock, and so log nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in _SIGNALS} if is_main else {}

    def on_signal(number: int, frame: FrameType | None) -> None:
        came = signal.Signals(number)
        stop(came)
        signal.signal(number, before[came])

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
