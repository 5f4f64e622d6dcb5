from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from weakref import ref

import pytest

from coordinator.log import Fsync, LogClosedError, LogConfig, LogFailedError, LogStorageError, Syncer
from coordinator.log.filesystem import Filesystem
from coordinator.log.fsync import MANY_FILES, SharedFile, SyncRequest
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


def test_what_waits_for_a_round_is_little_work_for_the_garbage_collector(tmp_path: Path, syncer: Syncer) -> None:
    """Thousands of logs wait for each one, and all that lives that long is looked at again and again."""
    logs = [open_log(tmp_path / f"t-{number}", syncer, LogConfig(fsync=Fsync.INTERVAL)) for number in range(100)]
    for log in logs:
        log.append(batch(b"a"), now_ms=0)
        log.flush()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for log in logs:
            log.append(batch(b"b"), now_ms=0)
        made = len(gc.get_objects()) - before
    finally:
        gc.enable()
    assert made < 3 * len(logs)


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


class OneFilesystem:
    """Counts how often it is synced."""

    def __init__(self, device: int, *, succeeds: bool = True) -> None:
        self.device = device
        self.succeeds = succeeds
        self.times = 0

    def sync(self) -> bool:
        self.times += 1
        return self.succeeds


def many_files(folder: Path) -> list[OneFile]:
    return [OneFile(folder / str(number)) for number in range(MANY_FILES)]


def noted(filesystem: OneFilesystem, logs: list[OneFile], *, waits: bool = False) -> None:
    """Syncs the logs in one round."""
    syncer = Syncer(interval_ms=3_600_000, filesystem=filesystem)
    for log in logs:
        log.end_offset = 5
        syncer.note(log)
    if waits:
        syncer.sync(logs[0]).result(10)
    syncer.close()


def test_many_files_are_synced_at_once(tmp_path: Path) -> None:
    logs = many_files(tmp_path)
    filesystem = OneFilesystem(logs[0].file.device)
    elsewhere = OneFile(Path("/dev/null"))
    noted(filesystem, [*logs, elsewhere])
    assert filesystem.times == 1
    assert all(log.synced == [5] for log in logs)
    assert elsewhere.failed
    assert not elsewhere.synced


def test_few_files_and_those_that_somebody_waits_for_are_synced_one_by_one(tmp_path: Path) -> None:
    logs = many_files(tmp_path)
    filesystem = OneFilesystem(logs[0].file.device)
    noted(filesystem, logs[1:])
    noted(filesystem, logs, waits=True)
    assert filesystem.times == 0
    assert all(log.synced for log in logs)


def test_where_syncing_all_at_once_fails_each_file_tells_for_itself(tmp_path: Path) -> None:
    logs = many_files(tmp_path)
    bad = OneFile(Path("/dev/null"))
    filesystem = OneFilesystem(bad.file.device, succeeds=False)
    noted(filesystem, [*logs, bad])
    assert filesystem.times == 1
    assert all(log.synced == [5] and not log.failed for log in logs)
    assert bad.failed


def test_a_filesystem_is_synced_where_errors_would_show(tmp_path: Path) -> None:
    filesystem = Filesystem(tmp_path)
    assert filesystem.device == SharedFile(tmp_path / "file", os.O_RDWR | os.O_CREAT).device
    assert filesystem.sync() in {True, False}
    if sys.platform == "linux":
        assert not Filesystem(Path("/proc")).sync()


def test_background_work_that_fails_is_reported_and_the_thread_lives(
    tmp_path: Path, syncer: Syncer, caplog: pytest.LogCaptureFixture
) -> None:
    syncer.run(lambda: os.unlink(tmp_path / "absent"))
    log = OneFile(tmp_path / "file")
    syncer.sync(log).result(10)
    syncer.sync(log).result(10)
    assert any("absent" in record.getMessage() for record in caplog.records)


def test_who_gives_up_waiting_holds_up_nobody(tmp_path: Path, syncer: Syncer) -> None:
    """A client that goes while its commit waits for the disk: the thread ended, and all others waited for ever."""
    log = OneFile(tmp_path / "file")

    async def give_up() -> None:
        waiting = asyncio.gather(asyncio.wrap_future(syncer.sync(log)))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wrap_future(syncer.sync(log))

    asyncio.run(asyncio.wait_for(give_up(), 10))


def test_whatever_fails_on_the_thread_fails_alone(
    tmp_path: Path, syncer: Syncer, caplog: pytest.LogCaptureFixture
) -> None:
    broken, log = OneFile(tmp_path / "broken"), OneFile(tmp_path / "file")

    def fail(*_: object, **__: object) -> None:
        raise ValueError("wrong")

    broken.on_synced = fail  # type: ignore[method-assign]
    with pytest.raises(LogFailedError, match="broken: could not be flushed"):
        syncer.sync(broken).result(10)
    assert broken.failed
    syncer.sync_then(log, fail)
    syncer.run(fail)
    with pytest.raises(ValueError, match="wrong"):
        syncer.call(fail).result(10)
    syncer.sync(log).result(10)
    assert caplog.text.count("Traceback") == 3


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
