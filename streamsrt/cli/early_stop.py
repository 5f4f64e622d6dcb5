"""SIGTERM and Ctrl-C before an application has started: a clean end with a message. And Ctrl-C in all other commands.

1. It is imported before all modules that are slow to import. Until then, and while a command that runs no application is
   imported, Ctrl-C ends the process (:func:`streamsrt.cli.leave_at_once`).
2. The handler raises an exception, so that what has begun is closed. Where the exception arises in a function that is
   called by C (a finalizer, a callback of a parser), Python reports and drops it: the signal is then sent again. What fails
   because of the dropped exception is not reported.
3. A module of the application may catch it: it is raised again before the application starts.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType

from streamsrt.cli import INTERRUPTED, leave_at_once

TERMINATED = 143
"""The exit code of a command that was to end by itself, and that SIGTERM has ended before."""

_RUN_APPLICATIONS = (["run"], ["demo"], ["upgrade", "start"], ["faust", "run"])
_AGAIN_S = 0.05
_ENDED_AT_ONCE = (
    b"streamsrt: ended at once by another SIGTERM (exit code 143). What was not committed is processed again, by other "
    b"instances or at the next start\n"
)
_raised: list[StoppedEarlyError] = []
"""What signals have raised since :func:`early_stop`."""

_USUAL: dict[signal.Signals, Callable[[int, FrameType | None], None] | signal.Handlers] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


class StoppedEarlyError(BaseException):
    """Ends the command with exit code 0; 130 after Ctrl-C; 143 after SIGTERM, with ``--until quiet``. It is neither an
    Exception nor a SystemExit, so that modules do not catch it. If a bare ``except:`` of an application does, it is raised
    again before the application starts.
    """

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(number)
        self.signal = number

    def exit_code(self, arguments: Sequence[str]) -> int:
        """The exit code of the command with these arguments."""
        if self.signal == signal.SIGINT:
            return INTERRUPTED
        return TERMINATED if _ends_by_itself(arguments) else 0


def _ends_by_itself(arguments: Sequence[str]) -> bool:
    return "--until=quiet" in arguments or ("--until", "quiet") in pairwise(arguments)


def runs_an_application(arguments: Sequence[str]) -> bool:
    """Whether the command with these arguments is one that runs an application."""
    words = [each for each in arguments if not each.startswith("-")]
    return words[:1] in _RUN_APPLICATIONS or words[:2] in _RUN_APPLICATIONS


@contextmanager
def early_stop(arguments: Sequence[str]) -> Iterator[None]:
    """Within, SIGTERM and Ctrl-C end a command that runs an application by :class:`StoppedEarlyError`."""
    if not runs_an_application(arguments) or threading.current_thread() is not threading.main_thread():
        yield
        return
    # Its initialization takes for granted that what it imports can be imported: an exception by a signal would be a crash.
    import orjson  # noqa: F401

    before = {number: signal.getsignal(number) for number in _USUAL}
    try:
        with _sent_again_if_dropped():
            stop_until(lambda: False)
            try:
                yield
            except Exception:
                if _raised:
                    # Python 3.11 raises RuntimeError in place of what is raised in __set_name__.
                    raise _raised[0] from None
                raise
    finally:
        _raised.clear()
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def interruptible() -> Iterator[None]:
    """Within, Ctrl-C raises KeyboardInterrupt where it would end the process at once: what is open gets closed."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not leave_at_once
    ):
        yield
        return
    try:
        with _sent_again_if_dropped():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            yield
    finally:
        signal.signal(signal.SIGINT, leave_at_once)


@contextmanager
def _sent_again_if_dropped() -> Iterator[None]:
    """Rule 2."""
    hook = sys.unraisablehook
    dropped: list[StoppedEarlyError | KeyboardInterrupt] = []
    again: list[threading.Timer] = []

    def on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
        error = unraisable.exc_value
        if not isinstance(error, StoppedEarlyError | KeyboardInterrupt):
            hook(unraisable)
            return
        dropped.append(error)
        number = error.signal if isinstance(error, StoppedEarlyError) else signal.SIGINT
        # Not here: an exception that is raised by this function would be dropped, too. On a busy machine, the time may be
        # over before the timer's thread has reported its start.
        is_started = False
        while not is_started:
            again.append(threading.Timer(_AGAIN_S * len(dropped), os.kill, (os.getpid(), number)))
            try:
                again[-1].start()
                is_started = True
            except (StoppedEarlyError, KeyboardInterrupt) as too_early:
                dropped.append(too_early)

    sys.unraisablehook = on_unraisable
    try:
        yield
    except Exception:
        if dropped:
            raise dropped[0] from None
        raise
    finally:
        for timer in again:
            timer.cancel()
        sys.unraisablehook = hook


def stop_until(has_started: Callable[[], bool]) -> None:
    """The signals end the command by :class:`StoppedEarlyError` until this holds, and then have their usual effect. So does
    one that a module of the application has caught."""
    if threading.current_thread() is not threading.main_thread():
        return
    if _raised:
        raise _raised[0]

    def on_signal(number: int, frame: FrameType | None) -> None:
        if has_started():
            if number == signal.SIGTERM:
                os.write(2, _ENDED_AT_ONCE)
            signal.signal(number, _USUAL[signal.Signals(number)])
            signal.raise_signal(signal.Signals(number))
            return
        error = StoppedEarlyError(number)
        _raised.append(error)
        if len(_raised) == 1:
            # It may interrupt a write to sys.stderr, whose buffer must not be touched.
            os.write(2, b"streamsrt: stopped before the application had started\n")
        raise error

    for number in _USUAL:
        # A shell makes commands that it runs in the background ignore Ctrl-C.
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, on_signal)
