"""How one thread waits for another: the processing thread for the network's loop.

1. Everything in the client and the runtime that blocks does so in here. Under a virtual clock
   (:mod:`streamsrt.testing.simulator`), the same code runs with another :class:`Blocking`.
2. Times are in seconds. None: for ever.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Protocol, TypeVar

T = TypeVar("T")


class Flag(Protocol):
    """One bit that is set by many and waited for by one (``threading.Event``)."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def clear(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Condition(Protocol):
    """``threading.Condition`` over a lock of the caller's."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def notify_all(self) -> None: ...


class Blocking(Protocol):
    """What there is to wait with."""

    def flag(self) -> Flag:
        """A new one, not set."""

    def condition(self, lock: threading.Lock) -> Condition:
        """A new one."""

    def result(self, future: Future[T], timeout_s: float | None) -> T:
        """The future's result. Raises TimeoutError when the time is up."""

    def pause(self, timeout_s: float) -> None:
        """Waits so long, whatever happens meanwhile."""


class _Threads:
    """Of the operating system."""

    def flag(self) -> Flag:
        return threading.Event()

    def condition(self, lock: threading.Lock) -> Condition:
        return threading.Condition(lock)

    def result(self, future: Future[T], timeout_s: float | None) -> T:
        return future.result(timeout_s)

    def pause(self, timeout_s: float) -> None:
        threading.Event().wait(timeout_s)


THREADS: Blocking = _Threads()
