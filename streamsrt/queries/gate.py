"""Access to tasks and stores: by the processing thread, or by a query.

1. The processing thread holds the lock while it works, and releases it while it waits for input or acknowledgements. A
   query that arrives meanwhile is answered on the caller's own thread; an unreachable broker delays no query.
2. A query that arrives while the thread works is queued until the next :meth:`QueryGate.serve`, between two batches.
   That costs one look at an empty queue per batch.
3. No query is forgotten: the queue is checked after each release of the lock, and a caller tries to take the lock after
   it has queued a query.
4. The processing thread has priority. While it wants the lock back, callers only queue their queries, and it answers
   those that are queued by then: queries can slow it down, but never stop it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from streamsrt.queries.errors import QueryTimedOutError, StateStoreMigratedError, StreamsStoppedError
from streamsrt.state.store import StoreClosedError

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 30.0


class _Request:
    """A waiting query. ``done`` is locked until it is answered."""

    __slots__ = ("done", "error", "is_abandoned", "result", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.done = threading.Lock()
        self.done.acquire()
        self.result: Any = None  # of the type that the work returns
        self.error: BaseException | None = None
        self.is_abandoned = False

    def answer(self) -> None:
        if not self.is_abandoned:
            try:
                self.result = self.work()
            except BaseException as error:  # noqa: BLE001  # raised where it was asked
                self.error = error
        self.done.release()


class _Idle:
    """The processing thread waits and uses neither tasks nor stores."""

    __slots__ = ("_gate",)

    def __init__(self, gate: QueryGate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        self._gate.give()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gate.take()


class QueryGate:
    """Coordinates one processing thread, which holds the lock first, and any number of callers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._waiting: deque[_Request] = deque()
        self._wanted = False
        self._closed = False
        self.idle = _Idle(self)
        """``with gate.idle:`` the processing thread waits; queries are answered meanwhile."""
        self.queries = 0

    # -------------------------------------------------------------------------------------------- processing thread

    def take(self) -> None:
        """Takes the lock: the processing thread works from now on."""
        self._wanted = True
        self._lock.acquire()
        self._wanted = False
        self.serve()

    def give(self) -> None:
        r"""Releases the lock until the processing thread :meth:`take`\ s it again."""
        self._lock.release()
        self._drain()

    def serve(self) -> None:
        """Answers waiting queries. Called by the processing thread between two batches."""
        if self._waiting:
            self._answer(len(self._waiting))

    def close(self) -> None:
        """Closes the gate: every query from now on fails because the application has stopped. Called instead of
        :meth:`give`."""
        self._closed = True
        self._lock.release()
        self._drain()

    # ------------------------------------------------------------------------------------------------------- callers

    def run(self, work: Callable[[], T], timeout_s: float = DEFAULT_TIMEOUT_S) -> T:
        """Runs ``work`` while no other thread uses tasks and stores, and returns its result. For any other thread.

        Raises QueryTimedOutError, StreamsStoppedError, StateStoreMigratedError, and what ``work`` raises.
        """
        request = _Request(work)
        self._waiting.append(request)
        if not self._wanted:
            self._drain()
        if not request.done.acquire(timeout=timeout_s):
            request.is_abandoned = True
            raise QueryTimedOutError(
                f"the processing thread did not get to the query in {timeout_s:g} s: a function of the application "
                "takes that long, or a task is being opened or closed. `streamsrt query loops` shows which. Try again; in "
                "Python, timeout_s may be longer."
            )
        if request.error is None:
            result: T = request.result
            return result
        if isinstance(request.error, StoreClosedError):
            raise StateStoreMigratedError(
                f"{request.error} Its task moved or restarted: try again, or ask another instance."
            ) from request.error
        raise request.error

    def _drain(self) -> None:
        """Answers waiting queries as long as the lock is free."""
        while self._waiting and not self._wanted and self._lock.acquire(blocking=False):
            try:
                self._answer(len(self._waiting))
            finally:
                self._lock.release()

    def _answer(self, count: int) -> None:
        for _ in range(count):
            request = self._waiting.popleft()
            self.queries += 1
            if self._closed:
                request.error = StreamsStoppedError(
                    "the application has ended on this instance: ask another one, which now has its state"
                )
                request.done.release()
            else:
                request.answer()
