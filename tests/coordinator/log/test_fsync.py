from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from weakref import ref

import pytest

from coordinator.log import Fsync, LogClosedError, LogConfig, LogFailedError, LogStorageError, Syncer
from coordinator.log.fsync import SharedFile, SyncRequest
from tests.coordinator.log.batches import batch, open_log


class OneFile:
    """A log of one file that counts what the syncer tells it."""

    def __init__(self, path: Path) -> None:
        self.file = SharedFile(path, os.O_RDWR | os.O_CREAT)
        self.end_offset = 0
        self.synced: list[int] = []
        self.failed: list[LogFailedError] = []

    def note_unsynced(self, request: SyncRequest) -> None:
        request.files[0] = self.file
        request.end_offset = self.end_offset

    def on_synced(self, end_offset: int, *, checkpoint: bool) -> None:
        self.synced.append(end_offset)

    def on_sync_failed(self, error: LogFailedError) -> None:
        self.failed.append(error)


def test_a_file_that_is_being_closed_is_given_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader on another thread would read from a number that is closed, or of another file."""
    close, given = os.close, list[SharedFile | None]()

    def closing(number: int) -> None:
        if number == descriptor:
            given.append(reference())
        close(number)

    monkeypatch.setattr(os, "close", closing)
    file = SharedFile(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    descriptor, reference = file.fd, ref(file)
    del file
    assert given == [None]


def test_waiters_are_told_when_what_they_wrote_is_on_disk(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, LogConfig(fsync=Fsync.NEVER))
    for i in range(3):
        log.append(batch(b"a"), now_ms=0)
        assert log.synced_offset == i
        syncer.sync(log).result()
        assert log.synced_offset == i + 1
    log.close()


def test_one_round_serves_all_who_wait(tmp_path: Path) -> None:
    """While the first round's callbacks are held up, a thousand waiters gather and share the second."""
    started, proceed = threading.Event(), threading.Event()
    rounds: list[Callable[[], None]] = []

    def deliver(run: Callable[[], None]) -> None:
        rounds.append(run)
        started.set()
        assert proceed.wait(10)
        run()

    syncer = Syncer(deliver=deliver)
    log = OneFile(tmp_path / "file")
    first = syncer.sync(log)
    assert started.wait(10)
    waiters = []
    for i in range(1000):
        log.end_offset = i
        waiters.append(syncer.sync(log))
    proceed.set()
    for waiter in (first, *waiters):
        waiter.result(10)
    assert len(rounds) == 2
    assert log.synced == [0, 999]
    syncer.close()


def test_changes_are_synced_within_the_interval_without_being_asked(tmp_path: Path) -> None:
    syncer = Syncer(interval_ms=1)
    synced = threading.Event()
    log = OneFile(tmp_path / "file")
    log.on_synced = lambda end_offset, *, checkpoint: synced.set()  # type: ignore[method-assign]
    syncer.note(log)
    assert synced.wait(10)
    syncer.close()


@pytest.mark.parametrize("mode", [Fsync.INTERVAL, Fsync.GROUP])
def test_appends_are_noted_once_a_round(tmp_path: Path, mode: Fsync) -> None:
    syncer = Syncer(interval_ms=3_600_000)
    log = open_log(tmp_path / "t-0", syncer, LogConfig(fsync=mode))
    log.append(batch(b"a"), now_ms=0)
    log.append(batch(b"b"), now_ms=0)
    assert log.synced_offset == 0
    syncer.close()
    assert log.synced_offset >= 1
    log.abandon()


def test_a_failed_fsync_reaches_the_waiter_and_the_log(syncer: Syncer) -> None:
    log = OneFile(Path("/dev/null"))  # fdatasync of a character device is refused by the kernel
    outcomes: list[LogStorageError | None] = []
    future = syncer.sync(log)
    syncer.sync_then(log, outcomes.append)
    with pytest.raises(LogFailedError, match="/dev/null: could not be flushed to disk"):
        future.result(10)
    syncer.close()
    assert isinstance(outcomes[0], LogFailedError)
    assert log.failed
    assert not log.synced


def test_background_work_that_fails_is_reported_and_the_thread_lives(
    tmp_path: Path, syncer: Syncer, caplog: pytest.LogCaptureFixture
) -> None:
    syncer.run(lambda: os.unlink(tmp_path / "absent"))
    log = OneFile(tmp_path / "file")
    syncer.sync(log).result(10)
    syncer.sync(log).result(10)
    assert any("absent" in record.getMessage() for record in caplog.records)


def test_closing_does_what_is_pending_and_then_refuses(tmp_path: Path) -> None:
    syncer = Syncer(interval_ms=3_600_000)
    log = OneFile(tmp_path / "file")
    log.end_offset = 7
    syncer.note(log)
    done: list[bool] = []
    syncer.run(lambda: done.append(True))
    syncer.close()
    assert log.synced[-1] == 7
    assert done
    with pytest.raises(LogClosedError):
        syncer.sync(log)


def test_a_rolled_segment_is_synced_and_moves_the_recovery_point(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, LogConfig(fsync=Fsync.NEVER))
    log.append(batch(b"a"), now_ms=0)
    log.roll()
    log.flush()
    assert log.synced_offset == 1
    assert (tmp_path / "t-0" / "checkpoint").exists()
    log.close()
