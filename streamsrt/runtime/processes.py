"""The application's side of its stream threads: starts their supervisor, sends it commands, and knows their state."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe

from streamsrt.errors import StreamsError, UserError
from streamsrt.runtime.lifecycle import GroupMembershipOperation
from streamsrt.runtime.supervisor import (
    Command,
    Failure,
    Message,
    SetPaused,
    SetThreads,
    ShutDown,
    Stop,
    StreamThreadFailedError,
    Summary,
    Supervisor,
    Work,
    ending,
    exit_now,
    fork,
)
from streamsrt.runtime.values import Progress, State
from streamsrt.state.rocksdb import RocksDBStore

logger = logging.getLogger(__name__)

_CHECK_INTERVAL_S = 0.1


class StreamProcesses:
    """Starts and stops the processes. ``work`` is executed by each worker; ``prepare`` runs in the supervisor's process
    before the first one, and its result lives as long as that process. ``on_state`` is called on a thread of this object.
    ``leaving``: what happens to the memberships when SIGTERM ends the supervisor."""

    def __init__(
        self,
        work: Work,
        threads: int,
        *,
        prepare: Callable[[], object],
        on_state: Callable[[State], None],
        leaving: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        self._work = work
        self._prepare = prepare
        self._on_state = on_state
        self._leaving = leaving
        self._control: Connection | None = None
        self._pid = 0
        self._reader: threading.Thread | None = None
        self._began = threading.Event()
        self._ended = threading.Event()
        self._sending = threading.Lock()
        self._failure: BaseException | None = None
        self.threads = threads
        self.summary = Summary(State.REBALANCING, Progress(state=State.REBALANCING), False, 0, 0, threads)

    def start(self, stop_requested: Callable[[], bool] = lambda: False) -> None:
        """Returns when the first worker has joined the group, or when a stop is requested before. Raises the error of a
        worker that failed before, and UserError if this process has used RocksDB already: its threads would be missing in
        a forked process."""
        if RocksDBStore.opened_by == os.getpid():
            raise UserError(
                "num.stream.threads above 1 forks this process, which has opened state stores before: start the "
                "application in another process"
            )
        # The first run of many records would load it in each worker, which share what was there before.
        import_module("numpy")
        ours, theirs = Pipe()
        pid = fork()
        if pid == 0:
            ours.close()
            self._become_supervisor(theirs)
        theirs.close()
        self._pid, self._control = pid, ours
        self._reader = threading.Thread(target=self._read, args=(ours,), name="streamsrt-processes", daemon=True)
        self._reader.start()
        while not self._began.wait(_CHECK_INTERVAL_S) and not stop_requested():
            # A signal handler only sets a flag: it must not take a lock, so it can't end the wait.
            pass
        if self._ended.is_set():
            self.raise_failure()

    def _become_supervisor(self, control: Connection) -> None:
        code = 1
        try:
            kept = self._prepare()
            Supervisor(self._work, self.threads, control, leaving=self._leaving).run()
            code = 0 if kept is not None else 1
        except BaseException as error:  # noqa: BLE001  # raised in the application's process, whatever it is
            with suppress(OSError):
                control.send(Failure.of(error))
        finally:
            exit_now(code)

    def _read(self, control: Connection) -> None:
        try:
            while True:
                self._take(control.recv())
        except (EOFError, OSError):
            _, status = os.waitpid(self._pid, 0)
            if status and self._failure is None:
                self._failure = _supervisor_ended(self._pid, status)
        finally:
            self._ended.set()
            self._began.set()

    def _take(self, message: Message) -> None:
        match message:
            case Summary():
                self.summary = message
                if message.progress.tasks or message.progress.statuses or message.state is State.RUNNING:
                    self._began.set()
                self._on_state(message.state)
            case Failure():
                self._failure = message.error()
            case ShutDown():
                pass

    def _send(self, command: Command) -> None:
        if self._control is not None:
            with self._sending, suppress(OSError):
                # It has ended by itself: this is known already, or will be in a moment.
                self._control.send(command)

    def stop(self, membership: GroupMembershipOperation) -> None:
        """Asks all workers to commit and end."""
        self._send(Stop(membership))

    def set_threads(self, count: int) -> None:
        """Adds workers, or stops the last ones."""
        self.threads = count
        self._send(SetThreads(count))

    def set_paused(self, paused: bool) -> None:
        self._send(SetPaused(paused))

    def join(self, timeout_s: float | None) -> bool:
        """Waits for all workers to end; returns whether they have."""
        return self._ended.wait(timeout_s)

    def raise_failure(self) -> None:
        """Raises the error that ended the workers, unless they were stopped."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @staticmethod
    def crashed_before_quiet() -> StreamThreadFailedError:
        """The error of an instance that was to process all input, and can't know any more whether it has."""
        return StreamThreadFailedError(
            "the process of a stream thread crashed before all input was processed (the log says how it ended); what it had "
            "read is not committed. Run the application again to process the rest"
        )


def _supervisor_ended(pid: int, status: int) -> StreamsError:
    cause = ""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        cause = " Somebody killed it, or the kernel did because memory was short (see dmesg, or the limit of the container)."
    return StreamsError(
        f"the supervisor of the stream threads (process {pid}) {ending(status)}, and all stream threads with it.{cause} "
        "Nothing is lost: what was not committed is processed again, after a restart or by other instances. Start this "
        "instance again"
    )
