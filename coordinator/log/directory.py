"""The broker's data directory: who owns it, which version wrote it, how it was left, and its partitions.

Layout
::

    <data dir>/
      .lock              flock of the owner, with its process id
      format-version     one line; a directory without it is not touched unless it is empty
      clean-shutdown     there only between a clean close and the next start
      <topic>-<partition>/
        00000000000000000000.log        batches, as readers get them
        00000000000000000000.index      hint: sparse offset and time index
        00000000000000000123.snapshot   hint: producer state below that offset
        checkpoint                      recovery point, log start, leader epochs
      *.deleted/         a partition that is being deleted; removed at the next start if the broker died meanwhile

Opening and closing wait for the disk. Everything between does not.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial as bind
from pathlib import Path

from coordinator.log.config import LogConfig
from coordinator.log.errors import FormatVersionError, LogClosedError, LogDirectoryLockedError, LogError
from coordinator.log.files import naming, replace_file, sync_directory
from coordinator.log.filesystem import Filesystem
from coordinator.log.fsync import Syncer
from coordinator.log.partition_log import PartitionLog
from coordinator.log.recovery import Repair, truncate_at_corruption

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
_FORMAT_FILE = "format-version"
_FORMAT_PREFIX = "streamsrt-log "
_CLEAN_FILE = "clean-shutdown"
_LOCK_FILE = ".lock"
_DELETED = ".deleted"
_PARTITION_DIRECTORY = re.compile(r"([A-Za-z0-9._-]{1,249})-(0|[1-9][0-9]*)")


class LogDirectory:
    """The open data directory of one broker.

    ``fsync_interval_ms`` and ``deliver`` are the syncer's (:class:`~coordinator.log.fsync.Syncer`), unless one is given.
    Raises :class:`LogDirectoryLockedError` or :class:`FormatVersionError`, and ``OSError`` if the directory cannot be
    made or read.
    """

    def __init__(
        self,
        path: Path,
        *,
        fsync_interval_ms: int = 1000,
        deliver: Callable[[Callable[[], None]], object] | None = None,
        syncer: Syncer | None = None,
    ) -> None:
        self.path = path
        # The directory has records, keys of passwords and ACLs: no other user of the machine may read them.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_fd = _lock(path)
        try:
            self.was_clean = self._start()
        except BaseException:
            os.close(self._lock_fd)
            raise
        self.syncer = syncer or Syncer(interval_ms=fsync_interval_ms, deliver=deliver, filesystem=Filesystem(self.path))
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._closed = False

    def _start(self) -> bool:
        _check_format(self.path)
        marker = self.path / _CLEAN_FILE
        is_new = not any(self._partition_directories())
        clean = is_new or marker.exists()
        marker.unlink(missing_ok=True)
        for leftover in self.path.glob("*" + _DELETED):
            shutil.rmtree(leftover)
        sync_directory(self.path)
        if not clean:
            logger.warning("%s was not closed cleanly: its logs are checked as they are opened", self.path)
        return clean

    def _partition_directories(self) -> list[tuple[str, int]]:
        found = []
        for entry in self.path.iterdir():
            match = _PARTITION_DIRECTORY.fullmatch(entry.name)
            if match is not None and entry.is_dir():
                found.append((match[1], int(match[2])))
        return sorted(found)

    def partitions(self) -> list[tuple[str, int]]:
        """(topic, partition) of every partition that has a directory, sorted."""
        return self._partition_directories()

    def partition(self, topic: str, partition: int, config: LogConfig | None = None) -> PartitionLog:
        """The log of a partition, made if it is new, recovered if the directory was not closed cleanly.

        ``config`` replaces the settings of a log that is open already.
        Raises :class:`~coordinator.log.errors.CorruptLogError`, and ``ValueError`` for a name that no topic can have.
        """
        if self._closed:
            raise LogClosedError(f"data directory {self.path} is closed")
        log = self._logs.get((topic, partition))
        if log is None or log.is_closed:
            clean = self.was_clean and log is None
            path = self.partition_path(topic, partition)
            log = PartitionLog(path, config or LogConfig(), self.syncer, clean=clean)
            self._logs[(topic, partition)] = log
        elif config is not None:
            log.config = config
        return log

    def partition_path(self, topic: str, partition: int) -> Path:
        """The directory of a partition. Raises ``ValueError`` for a name that no topic can have."""
        name = f"{topic}-{partition}"
        match = _PARTITION_DIRECTORY.fullmatch(name)
        if match is None or match[1] != topic or topic in (".", ".."):
            raise ValueError(f"{topic!r} partition {partition} can't be the name of a partition")
        return self.path / name

    def repair(self, topic: str, partition: int) -> Repair | None:
        """Drops everything from the first corrupt batch of a partition on; ``None`` if every batch is whole.

        The partition must not be open: this is for the answer to its ``CorruptLogError``. See
        :func:`coordinator.log.recovery.truncate_at_corruption`.
        """
        log = self._logs.get((topic, partition))
        if log is not None and not log.is_closed:
            raise ValueError(f"{topic}-{partition} is open")
        return truncate_at_corruption(self.partition_path(topic, partition))

    def delete(self, topic: str, partition: int) -> None:
        """Deletes a partition. Its name is free when this returns; its bytes go in the background."""
        path = self.partition_path(topic, partition)
        log = self._logs.pop((topic, partition), None)
        if log is not None:
            log.abandon()
        attempt = 0
        while (target := self.path / f"{topic[:200]}-{partition}.{attempt}{_DELETED}").exists():
            attempt += 1
        os.rename(path, target)
        self.syncer.run(bind(_remove_tree, target))

    def abandon(self) -> None:
        """Lets go of everything as it is, as the end of the process does: the next start finds what a crash leaves."""
        self._closed = True
        for log in self._logs.values():
            log.abandon()
        self._unlock()

    def close(self) -> None:
        """Flushes and closes every log and leaves the clean-shutdown marker. A second call does nothing.

        Raises the first :class:`~coordinator.log.errors.LogError` of a log that could not be closed cleanly, after all
        others are closed; there is no marker then, and the next start checks.
        """
        if self._closed:
            return
        self._closed = True
        failure: LogError | None = None
        flushes = [self.syncer.sync(log) for log in self._logs.values() if log.has_unsynced]
        _wait(flushes)
        for log in self._logs.values():
            try:
                log.close()
            except LogError as error:
                failure = failure or error
        self.syncer.close()
        if failure is None:
            self._mark_clean()
        self._unlock()
        if failure is not None:
            raise failure

    def _unlock(self) -> None:
        # The number is forgotten first: a second end must not close who has the number next.
        lock, self._lock_fd = self._lock_fd, -1
        if lock >= 0:
            os.close(lock)

    def _mark_clean(self) -> None:
        try:
            replace_file(self.path / _CLEAN_FILE, b"", durable=True)
        except OSError as error:
            logger.warning("%s can't be marked as closed (%s): the next start checks its logs", self.path, error)


def _wait(futures: list[Future[None]]) -> None:
    """Lets one round sync many logs; what failed, each log's own close finds again."""
    for future in futures:
        future.exception()


def _remove_tree(path: Path) -> None:
    sync_directory(path.parent)
    shutil.rmtree(path)


def _lock(directory: Path) -> int:
    path = directory / _LOCK_FILE
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 32, 0).strip()
        os.close(fd)
        raise LogDirectoryLockedError(directory, int(owner) if owner.isdigit() else None) from None
    try:
        with naming(path):
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    except OSError:
        os.close(fd)
        raise
    return fd


def _check_format(directory: Path) -> None:
    path = directory / _FORMAT_FILE
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        strangers = sorted(entry.name for entry in directory.iterdir() if entry.name not in (_LOCK_FILE, "lost+found"))
        if strangers:
            raise FormatVersionError(
                directory,
                f"is not a data directory of this broker: it contains {strangers[0]}, but no {_FORMAT_FILE} file",
                "give --data-dir an empty or a new directory",
            ) from None
        replace_file(path, f"{_FORMAT_PREFIX}{FORMAT_VERSION}\n".encode(), durable=True)
        return
    if text != f"{_FORMAT_PREFIX}{FORMAT_VERSION}":
        raise FormatVersionError(
            directory,
            f"has format {text[:40]!r}, but this version reads and writes {_FORMAT_PREFIX}{FORMAT_VERSION!r}",
            "use the version of streamsrt that wrote it",
        )
