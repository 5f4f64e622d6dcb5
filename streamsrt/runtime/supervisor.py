"""``num.stream.threads`` as processes: one supervisor, and a worker for each stream thread.

::

    the application's process ── control ──> supervisor ── control ──> worker 1 .. N

1. A worker is a complete instance: it fetches, processes and commits as its own member of the group. All workers have
   the process id of their common state directory, so that a task and its standby are never on the same machine.
2. The supervisor is forked before anything else is started, has one thread, and only forks workers and waits for them.
   So a worker that replaces another starts like the first ones.
3. A worker that dies without reporting why (killed, or crashed in native code) is replaced: the first time immediately,
   then with a growing delay. One that reports why it failed has already called the application's exception handler: all
   workers end.
4. No process survives its parent: a supervisor whose application is gone stops its workers, and a worker whose
   supervisor is gone is killed by the kernel.
5. If the program asks for the end of the instance, its worker reports that, and all workers end, as after SIGTERM.
6. The supervisor reads its commands between two forks, so that a stop does not wait until all workers are started.
7. The supervisor holds the lock of the state directory, and its workers inherit it. Each store has a lock of its own.
"""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple, NoReturn, TypeAlias

from streamsrt.errors import StreamsError
from streamsrt.runtime.lifecycle import GroupMembershipOperation, application_shutdown
from streamsrt.runtime.values import Progress, State, total_of
from streamsrt.wording import error_text

logger = logging.getLogger(__name__)

EXIT_STUCK = 70
"""A worker ends itself with this when a record has kept it for longer than ``max.poll.interval.ms``."""
EXIT_MUTE = 71
"""A worker ends itself with this when it can neither report nor take commands."""
_ENDINGS = {EXIT_STUCK: "was stuck at a record for too long", EXIT_MUTE: "neither reported nor took commands"}

_PR_SET_PDEATHSIG = 1
_WAIT_S = 0.2
_STABLE_S = 60.0
_PAUSE_MAX_S = 30.0
_STOP_TIMEOUT_S = 90.0

Work = Callable[[int, Connection], None]
"""What worker N does, and what it is told and tells by. Raises StreamsError."""


class StreamThreadFailedError(StreamsError):
    """A worker failed with an error that can't be transferred. The message and ``exit_code`` are those of the original
    error.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Failure(NamedTuple):
    """An error transferred from one process to another."""

    pickled: bytes
    text: str
    exit_code: int

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        try:
            pickled = pickle.dumps(error)
            if str(pickle.loads(pickled)) != str(error):
                pickled = b""
        except Exception:  # noqa: BLE001  # whatever an error of the application's can't do: its text is enough
            pickled = b""
        exit_code = error.exit_code if isinstance(error, StreamsError) else 1
        return cls(pickled, f"{error}" if isinstance(error, StreamsError) else error_text(error), exit_code)

    def error(self) -> BaseException:
        found = None
        # Only its own process may have what it is made of, such as a module that was imported there.
        with suppress(Exception):
            found = pickle.loads(self.pickled)
        return found if isinstance(found, StreamsError) else StreamThreadFailedError(self.text, self.exit_code)


class Report(NamedTuple):
    """A worker's regular report. ``quiet``: all its input is processed and committed."""

    state: State
    progress: Progress
    quiet: bool


class Summary(NamedTuple):
    """The supervisor's report on all workers."""

    state: State
    progress: Progress
    quiet: bool
    alive: int
    failed: int
    threads: int


class Stop(NamedTuple):
    membership: GroupMembershipOperation


class SetThreads(NamedTuple):
    threads: int


class SetPaused(NamedTuple):
    paused: bool


class ShutDown(NamedTuple):
    """The group requested a shutdown of the application."""


Command: TypeAlias = Stop | SetThreads | SetPaused
Message: TypeAlias = Summary | Failure | ShutDown
"""What the application's process tells the supervisor, and what it is told."""


@dataclass(slots=True)
class _Worker:
    index: int
    pid: int
    control: Connection
    started_s: float
    report: Report | None = None
    is_explained: bool = False
    stopping: bool = False


@dataclass(slots=True)
class _Slot:
    """The history of the workers with one index: when the next one may start."""

    start_at_s: float = 0.0
    pause_s: float = 0.0


class Supervisor:
    """Runs in the supervisor's process, from its fork to its end."""

    def __init__(
        self,
        work: Work,
        threads: int,
        control: Connection,
        progress_interval_s: float = _WAIT_S,
        leaving: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """``leaving``: what happens to the memberships when SIGTERM ends it."""
        self._work = work
        self._threads = threads
        self._control: Connection | None = control
        self._interval_s = progress_interval_s
        self._leaving = leaving
        self._workers: dict[int, _Worker] = {}
        self._slots: dict[int, _Slot] = {}
        self._stopping: GroupMembershipOperation | None = None
        self._stop_at_s = 0.0
        self._is_paused = False
        self._failure: Failure | None = None
        self._failed = 0
        self._past = Progress()
        self._reported_s = 0.0

    def run(self) -> None:
        """Runs until all workers have ended, after a stop or a failure."""
        signal.signal(signal.SIGTERM, lambda number, frame: self._stop(self._leaving))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while self._stopping is None or self._workers:
            if self._stopping is None:
                self._fill()
            self._wait(self._interval_s)
            self._notice_ended()
            self._report()
            if self._stopping is not None and time.monotonic() > self._stop_at_s + _STOP_TIMEOUT_S:
                self._kill()
        self._reported_s = 0.0
        self._report()
        self._send_up(self._failure or ShutDown())

    def _send_up(self, message: Message) -> None:
        if self._control is not None:
            with suppress(OSError):
                # The application's process is gone; the next read notices it.
                self._control.send(message)

    # ------------------------------------------------------------------------------------------------------------ workers

    def _fill(self) -> None:
        now_s = time.monotonic()
        for index in range(1, self._threads + 1):
            slot = self._slots.setdefault(index, _Slot())
            if index not in self._workers and now_s >= slot.start_at_s:
                self._start(index)
                self._wait(0.0)
                if self._stopping is not None or index >= self._threads:
                    break
        for index in [index for index in self._workers if index > self._threads]:
            self._end(self._workers[index], GroupMembershipOperation.LEAVE_GROUP)

    def _start(self, index: int) -> None:
        ours, theirs = Pipe()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                # The log's disk may be full; the workers still start.
                stream.flush()
        with without_sigterm():
            pid = fork()
            if pid == 0:
                ours.close()
                self._become_worker(index, theirs)
        theirs.close()
        self._workers[index] = _Worker(index, pid, ours, time.monotonic())
        if self._is_paused:
            self._send(self._workers[index], SetPaused(True))
        if self._stopping is not None:
            # SIGTERM came after the fork: its handler does not know this worker.
            self._end(self._workers[index], self._stopping)
        logger.info("stream thread %d runs as process %d", index, pid)

    def _become_worker(self, index: int, control: Connection) -> NoReturn:
        code = 1
        try:
            die_with_parent()
            for other in self._workers.values():
                other.control.close()
            if self._control is not None:
                self._control.close()
            self._work(index, control)
            code = 0
        except StreamsError as error:
            code = error.exit_code
        except BaseException:
            logger.exception("stream thread %d", index)
        finally:
            exit_now(code)

    def _wait(self, timeout_s: float) -> None:
        # Any: wait() has no type that says that it returns what it was given.
        by_control: dict[Any, _Worker] = {worker.control: worker for worker in self._workers.values()}
        control = [] if self._control is None else [self._control]
        for ready in wait([*control, *by_control], timeout_s):
            if ready is self._control:
                self._take_command()
            else:
                self._take_message(by_control[ready])

    def _take_command(self) -> None:
        assert self._control is not None
        try:
            command = self._control.recv()
        except (EOFError, OSError):
            # The application's process is gone.
            self._control = None
            command = Stop(GroupMembershipOperation.DEFAULT)
        match command:
            case Stop(membership):
                self._stop(membership)
            case SetThreads(threads):
                self._threads = threads
            case SetPaused(paused):
                self._is_paused = paused
                for worker in self._workers.values():
                    self._send(worker, command)

    def _take_message(self, worker: _Worker) -> None:
        try:
            message = worker.control.recv()
        except (EOFError, OSError):
            self._gone(worker)
            return
        match message:
            case Report():
                worker.report = message
            case ShutDown():
                worker.is_explained = True
                self._failure = self._failure or Failure.of(application_shutdown())
                self._stop(GroupMembershipOperation.DEFAULT)
            case Stop():
                # The program asked for the end in one of its processes, and it means all of them.
                self._stop(self._leaving)
            case Failure():
                worker.is_explained = True
                self._failed += 1
                self._failure = self._failure or message
                self._stop(GroupMembershipOperation.DEFAULT)

    def _notice_ended(self) -> None:
        """Notices workers that have ended while their control does not: a process that one has started, such as one of a
        pool, holds it open."""
        for worker in list(self._workers.values()):
            if os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            while self._is_known(worker) and worker.control.poll():
                self._take_message(worker)
            if self._is_known(worker):
                self._gone(worker)

    def _is_known(self, worker: _Worker) -> bool:
        return self._workers.get(worker.index) is worker

    def _gone(self, worker: _Worker) -> None:
        _, status = os.waitpid(worker.pid, 0)
        worker.control.close()
        del self._workers[worker.index]
        if worker.report is not None:
            self._past = total_of(State.RUNNING, [self._past, worker.report.progress.of_the_past()])
        if worker.is_explained or worker.stopping or self._stopping is not None:
            return
        self._failed += 1
        slot = self._slots[worker.index]
        now_s = time.monotonic()
        if now_s - worker.started_s > _STABLE_S:
            slot.pause_s = 0.0
        slot.start_at_s = now_s + slot.pause_s
        slot.pause_s = min(_PAUSE_MAX_S, max(0.5, 2 * slot.pause_s))
        logger.error("stream thread %d (process %d) %s: it is replaced", worker.index, worker.pid, ending(status))

    def _end(self, worker: _Worker, membership: GroupMembershipOperation) -> None:
        if not worker.stopping:
            worker.stopping = True
            self._send(worker, Stop(membership))

    def _send(self, worker: _Worker, command: Command) -> None:
        with suppress(OSError):
            # If the process is gone, a read notices it.
            worker.control.send(command)

    def _stop(self, membership: GroupMembershipOperation) -> None:
        if self._stopping is None:
            self._stopping, self._stop_at_s = membership, time.monotonic()
        for worker in self._workers.values():
            self._end(worker, membership)

    def _kill(self) -> None:
        for worker in self._workers.values():
            logger.error("stream thread %d did not stop within %g s and was killed", worker.index, _STOP_TIMEOUT_S)
            os.kill(worker.pid, signal.SIGKILL)

    # --------------------------------------------------------------------------------------------------------- reporting

    def _report(self) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s < self._interval_s:
            return
        self._reported_s = now_s
        reports = [worker.report for worker in self._workers.values() if worker.report is not None]
        is_complete = len(reports) == self._threads
        running = is_complete and all(report.state is State.RUNNING for report in reports)
        state = State.RUNNING if running else State.REBALANCING
        summary = Summary(
            state if self._stopping is None else State.PENDING_SHUTDOWN,
            total_of(state, [self._past, *(report.progress for report in reports)]),
            is_complete and all(report.quiet for report in reports),
            len(self._workers),
            self._failed,
            self._threads,
        )
        self._send_up(summary)


def ending(status: int) -> str:
    """How a process ended, by what ``waitpid`` returns."""
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    code = os.WEXITSTATUS(status)
    return _ENDINGS.get(code, f"ended with exit code {code}")


def fork() -> int:
    """Like ``os.fork``, for a process whose other threads hold nothing that the child needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


@contextmanager
def without_sigterm() -> Iterator[None]:
    """Lets SIGTERM wait. A process that is forked within has it wait until it has a handler of its own: that of its parent
    would stop the other workers, and the new one would miss it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_with_parent() -> None:
    """Has the kernel kill this process when the thread that forked it ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent or parent == 1:
        exit_now(1)


def exit_now(code: int) -> NoReturn:
    """Ends a forked process without the exit handlers of its parent."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
