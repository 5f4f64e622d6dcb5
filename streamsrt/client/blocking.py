"""How one thread waits for another: the processing thread for the network's loop.

1. Everything in the client and the runtime that blocks does so in here. Under a virtual clock
   (:mod:`streamsrt.testing.simulator`), the same code runs with another :class:`Blocking`.
2. Times are in seconds. None: for ever.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from types import TracebackType
from typing import Protocol, TypeVar

T = TypeVar("T")


class Flag(Protocol):
    """One bit that many threads set and one waits for (``threading.Event``)."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def clear(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Condition(Protocol):
    """A ``threading.Condition`` with a lock of the caller's."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def notify_all(self) -> None: ...


class Blocking(Protocol):
    """The ways to wait."""

    def flag(self) -> Flag:
        """Returns a new flag, not set."""

    def condition(self, lock: threading.Lock) -> Condition:
        """Returns a new condition."""

    def result(self, future: Future[T], timeout_s: float | None) -> T:
        """Waits for the future's result. Raises TimeoutError when the time is up."""

    def pause(self, timeout_s: float) -> None:
        """Waits for this time, whatever happens meanwhile."""

    def worked_ns(self) -> int:
        """How long the calling thread has computed so far, in nanoseconds."""


class _Threads:
    """Waits with threads of the operating system."""

    def flag(self) -> Flag:
        return threading.Event()

    def condition(self, lock: threading.Lock) -> Condition:
        return threading.Condition(lock)

    def result(self, future: Future[T], timeout_s: float | None) -> T:
        return future.result(timeout_s)

    def pause(self, timeout_s: float) -> None:
        threading.Event().wait(timeout_s)

    def worked_ns(self) -> int:
        return time.thread_time_ns()


THREADS: Blocking = _Threads()
