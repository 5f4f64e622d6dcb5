"""SIGTERM before an application has started: a clean end that says so.

It is imported before anything that takes long to import.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

_RUN_APPLICATIONS = (["run"], ["upgrade", "start"], ["faust", "run"])


class StoppedEarlyError(BaseException):
    """Ends the command with exit code 0. No Exception, and no SystemExit: an application's module may not catch it."""


def runs_an_application(arguments: Sequence[str]) -> bool:
    """Whether the command with these arguments is one that runs an application."""
    words = [each for each in arguments if not each.startswith("-")]
    return words[:1] in _RUN_APPLICATIONS or words[:2] in _RUN_APPLICATIONS


@contextmanager
def early_stop(arguments: Sequence[str]) -> Iterator[None]:
    """Within, SIGTERM ends a command that runs an application by :class:`StoppedEarlyError`."""
    if not runs_an_application(arguments) or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    stop_until(lambda: False)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def stop_until(has_started: Callable[[], bool]) -> None:
    """SIGTERM ends the command by :class:`StoppedEarlyError` until this holds, and then has its usual effect."""
    if threading.current_thread() is not threading.main_thread():
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if has_started():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(signal.Signals(number))
            return
        # It may interrupt a write to sys.stderr, whose buffer must not be touched.
        os.write(2, b"streamsrt: stopped before it had started\n")
        raise StoppedEarlyError

    signal.signal(signal.SIGTERM, on_signal)
