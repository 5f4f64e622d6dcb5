"""Forcing appended bytes to disk, on a thread of its own and for many waiters at once.

Rules
1. Nobody else syncs: the thread that appends never waits for the disk.
2. A round takes everything that was noted since the last one. What was appended before ``sync`` was called is on disk
   when its callback runs, because the bytes were the kernel's before they were noted, and a round syncs after taking.
3. While a round runs, the next one gathers waiters: that is the group commit. Its cost is shared by all of them.
4. A file whose fsync failed is in an unknown state (the kernel may have dropped the bytes): its log fails, for good.
5. Order within a round: the files of a log, then its directories, then its checkpoint, then the callbacks.
6. Where nobody waits, many files are synced at once, with all of their filesystem.
7. Nothing ends the thread but :meth:`Syncer.close`: all who wait for the disk would wait for ever. What fails without being
   the disk's fault fails the log, the callback or the action that it concerns, with a traceback.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Protocol
from weakref import finalize

from coordinator.log.errors import LogClosedError, LogFailedError, LogStorageError
from coordinator.log.files import sync_directory

logger = logging.getLogger(__name__)

MANY_FILES = 64
"""From here on, syncing all of a filesystem takes less than syncing so many of its files."""

_NO_DIRECTORIES: frozenset[Path] = frozenset()

#: Runs when a sync is over: ``None``, or what went wrong.
OnSynced = Callable[[LogStorageError | None], None]


class SharedFile:
    """An open file descriptor that is closed when it is no longer referenced.

    A log may close a segment while the sync thread is busy with it; the number must not be reused until both let go.
    While ``__del__`` runs, weak references still give the object out, to another thread too: it would read from a number
    that is closed, or of another file by now. A finalizer runs when they are dead.
    """

    __slots__ = ("__weakref__", "device", "fd", "path")

    def __init__(self, path: Path, flags: int) -> None:
        self.path = path
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        finalize(self, os.close, self.fd).atexit = False
        self.device = os.fstat(self.fd).st_dev


class SyncRequest:
    """What one log wants synced in the next round.

    Thousands of them live until the round is over, and each container in them is one that Python looks for garbage in: what
    is mostly empty is not made before it is needed.
    """

    __slots__ = ("callbacks", "checkpoint", "directories", "end_offset", "files")

    def __init__(self) -> None:
        self.files: dict[int, SharedFile] = {}
        self.directories: frozenset[Path] = _NO_DIRECTORIES
        self.end_offset = -1
        self.checkpoint = False
        self.callbacks: list[OnSynced] | None = None


class Syncable(Protocol):
    """The part of a log that the syncer needs."""

    def note_unsynced(self, request: SyncRequest) -> None:
        """Adds the files and directories with unsynced changes. Runs on the thread that appends."""

    def on_synced(self, end_offset: int, *, checkpoint: bool) -> None:
        """Everything below ``end_offset`` is on disk. Runs on the sync thread."""

    def on_sync_failed(self, error: LogFailedError) -> None:
        """Bytes may be lost. Runs on the sync thread."""


class SyncedAtOnce(Protocol):
    """See :class:`coordinator.log.filesystem.Filesystem`."""

    @property
    def device(self) -> int: ...
    def sync(self) -> bool: ...


class Syncer:
    """One thread that syncs the logs of a broker. ``filesystem``: that of most of their files.

    ``interval_ms`` is how long changes noted by :meth:`note` may stay unsynced. ``deliver`` is given one function per
    round that runs that round's callbacks: an event loop passes its ``call_soon_threadsafe``, so that a thousand
    waiters cost one wake-up. By default it is called on the sync thread.
    """

    def __init__(
        self,
        *,
        interval_ms: int = 1000,
        deliver: Callable[[Callable[[], None]], object] | None = None,
        filesystem: SyncedAtOnce | None = None,
    ) -> None:
        self.interval_ms = interval_ms
        self._filesystem = filesystem
        #: Counts the rounds taken. A log that was noted in this round need not be noted again.
        self.round = 0
        self._deliver = deliver if deliver is not None else _call
        self._condition = threading.Condition()
        self._requests: dict[Syncable, SyncRequest] = {}
        self._actions: list[Callable[[], None]] = []
        self._urgent = False
        self._closing = False
        self._due_s: float | None = None
        self._thread: threading.Thread | None = None

    def sync_then(self, log: Syncable, callback: OnSynced) -> None:
        """Runs ``callback`` when everything appended to ``log`` so far is on disk."""
        with self._condition:
            request = self._request(log)
            if request.callbacks is None:
                request.callbacks = []
            request.callbacks.append(callback)
            self._wake(urgent=True)

    def sync(self, log: Syncable) -> Future[None]:
        """As :meth:`sync_then`, as a future. Raises out of ``result()`` what went wrong."""
        future = _uncancelled()

        def resolve(error: LogStorageError | None) -> None:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.sync_then(log, resolve)
        return future

    def note(self, log: Syncable, *, checkpoint: bool = False) -> int:
        """Has ``log`` synced within the interval, or now if ``checkpoint`` asks to persist its recovery point.

        Returns the number of the round that will do it.
        """
        with self._condition:
            request = self._request(log)
            request.checkpoint |= checkpoint
            self._wake(urgent=checkpoint)
            return self.round

    def run(self, action: Callable[[], None]) -> None:
        """Runs ``action`` on the sync thread, after what was noted before: slow file work such as deletions."""
        with self._condition:
            self._check_open()
            self._actions.append(action)
            self._wake(urgent=True)

    def call(self, action: Callable[[], None]) -> Future[None]:
        """Runs ``action`` on the sync thread as :meth:`run` does; the future says when it is done, or how it failed."""
        future = _uncancelled()

        def work() -> None:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - it is raised where somebody waits
                future.set_exception(error)
            else:
                future.set_result(None)

        self.run(work)
        return future

    def close(self) -> None:
        """Does what is pending and ends the thread."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    # ------------------------------------------------------------------------------------------------- the thread

    def _check_open(self) -> None:
        if self._closing:
            raise LogClosedError("the syncer is closed")

    def _request(self, log: Syncable) -> SyncRequest:
        self._check_open()
        request = self._requests.get(log)
        if request is None:
            request = SyncRequest()
        log.note_unsynced(request)
        self._requests[log] = request
        return request

    def _wake(self, *, urgent: bool) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log-sync", daemon=True)
            self._thread.start()
        if urgent and not self._urgent:
            self._urgent = True
            self._condition.notify()
        elif self._due_s is None:
            self._due_s = time.monotonic() + self.interval_ms / 1000
            self._condition.notify()

    def _is_due(self) -> bool:
        return self._urgent or self._closing or (self._due_s is not None and time.monotonic() >= self._due_s)

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._is_due():
                    timeout_s = None if self._due_s is None else max(self._due_s - time.monotonic(), 0)
                    self._condition.wait(timeout_s)
                requests, self._requests = self._requests, {}
                actions, self._actions = self._actions, []
                self.round += 1
                self._urgent, self._due_s = False, None
                if self._closing and not requests and not actions:
                    return
            synced: set[Path] = set()
            at_once = self._sync_at_once(list(requests.values()))
            results = [
                result for log, request in requests.items() for result in _sync_log(log, request, synced, at_once)
            ]
            requests = {}  # Release the files before the waiters are notified.
            if results:
                self._tell(results)
            for action in actions:
                _run_action(action)

    def _tell(self, results: list[tuple[OnSynced, LogStorageError | None]]) -> None:
        try:
            self._deliver(partial(_run_callbacks, results))
        except Exception:
            logger.exception("%d waiters can't be told that their records are on disk", len(results))

    def _sync_at_once(self, requests: list[SyncRequest]) -> int | None:
        """Syncs the filesystem if that is worth while, and returns its device; the files of others are left."""
        filesystem = self._filesystem
        if filesystem is None or sum(len(request.files) for request in requests) < MANY_FILES:
            return None
        if any(request.callbacks for request in requests):
            return None
        return filesystem.device if filesystem.sync() else None


def _call(function: Callable[[], None]) -> None:
    function()


def _uncancelled() -> Future[None]:
    """A future that is resolved in any case: who waits may give up, as a client that goes, but the work is done all the
    same."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def _run_callbacks(results: list[tuple[OnSynced, LogStorageError | None]]) -> None:
    for callback, error in results:
        try:
            callback(error)
        except Exception:
            logger.exception("somebody who waited for the disk failed when told: please report this")


def _run_action(action: Callable[[], None]) -> None:
    try:
        action()
    except OSError as error:
        logger.warning("background work on log files failed and will be repeated at the next start: %s", error)
    except Exception:
        logger.exception("background work on log files failed: please report this")


def _sync_log(
    log: Syncable, request: SyncRequest, synced: set[Path], at_once: int | None
) -> list[tuple[OnSynced, LogStorageError | None]]:
    """``synced``: directories that this round has synced, with all that was noted before the round. ``at_once``: the device
    whose files it has synced."""
    failure: LogFailedError | None = None
    path = Path()
    try:
        for file in request.files.values():
            path = file.path
            if file.device != at_once:
                os.fdatasync(file.fd)
        # Mostly there are none.
        for path in request.directories - synced if request.directories else ():
            if path.exists():
                sync_directory(path)
            synced.add(path)
        log.on_synced(request.end_offset, checkpoint=request.checkpoint)
    except Exception as error:
        cause = error if isinstance(error, OSError) else None
        failure = LogFailedError(path, cause, "could not be flushed to disk, so its contents are not known")
        # A disk's error speaks for itself.
        logger.error("%s", failure, exc_info=None if cause else error)
        log.on_sync_failed(failure)
    return [(callback, failure) for callback in request.callbacks or ()]
