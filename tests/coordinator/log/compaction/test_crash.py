"""A kill at every file operation of a compaction leaves a log that reads as before or as after it."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator.log import LogFailedError, LogFullError, PartitionLog, Syncer
from streamsrt.wire.records import ControlType
from tests.coordinator.log.batches import marker
from tests.coordinator.log.compaction.keyed import COMPACTED, compact, fill, keyed, open_compacted, rows_of

_OPERATIONS = {"open", "os.rename", "os.remove", "os.truncate", "os.utime", "os.link"}


class Camera:
    """Copies a directory before every operation on files in it: what a kill at that moment leaves behind."""

    def __init__(self) -> None:
        self.watched: Path | None = None
        self.album = Path()
        self.shots: list[Path] = []
        self._lock = threading.Lock()
        self._busy: set[int] = set()

    def see(self, event: str, arguments: tuple[object, ...]) -> None:
        watched = self.watched
        if watched is None or event not in _OPERATIONS or not arguments:
            return
        path = str(arguments[0])
        if not path.startswith(str(watched)) or path.endswith(".deleted"):
            return  # What is renamed to be deleted is deleted by another thread, whenever it comes to that.
        me = threading.get_ident()
        if me in self._busy:
            return
        with self._lock:
            self._busy.add(me)
            try:
                target = self.album / str(len(self.shots))
                shutil.copytree(watched, target, ignore=shutil.ignore_patterns("*.deleted"))
                self.shots.append(target)
            finally:
                self._busy.discard(me)

    @contextmanager
    def watching(self, directory: Path, album: Path) -> Iterator[list[Path]]:
        self.album, self.shots, self.watched = album, [], directory
        try:
            yield self.shots
        finally:
            self.watched = None


CAMERA = Camera()
sys.addaudithook(CAMERA.see)


def _written(directory: Path, syncer: Syncer) -> PartitionLog:
    log = open_compacted(directory, syncer, dataclasses.replace(COMPACTED, segment_bytes=300))
    log.append(
        keyed(("x", "aborted"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        now_ms=0,
    )
    log.append(marker(7, ControlType.ABORT), now_ms=0, from_coordinator=True)
    fill(log, 2, ["a", "b", "c"])
    log.append(keyed(("a", None)), now_ms=0)
    log.append(
        keyed(("x", "committed"), producer_id=7, producer_epoch=0, base_sequence=1, transactional=True), now_ms=0
    )
    log.append(marker(7, ControlType.COMMIT), now_ms=0, from_coordinator=True)
    log.append(keyed(("c", "end")), now_ms=0)
    log.roll()
    return log


def test_a_kill_at_any_moment(tmp_path: Path, syncer: Syncer) -> None:
    log = _written(tmp_path / "t-0", syncer)
    (tmp_path / "album").mkdir()
    final = {b"b": b"b1", b"x": b"committed", b"c": b"end", b"a": None}
    for number, now_ms in enumerate((10_000, 20_000, 30_000)):
        log.config = dataclasses.replace(log.config, segment_bytes=300 if number == 0 else 600)
        log.flush()
        album = tmp_path / "album" / str(number)
        album.mkdir()
        with CAMERA.watching(tmp_path / "t-0", album) as shots:
            before = rows_of(log)
            compact(log, now_ms)
            after = rows_of(log)
        assert len(shots) >= 8, "the pass did too little for this test to mean anything"
        known = set(before)
        for shot in shots:
            again = open_compacted(shot, syncer, log.config, clean=False)
            rows = rows_of(again)
            assert set(after) <= set(rows) <= known
            assert [row.offset for row in rows] == sorted(row.offset for row in rows)
            latest = {row.key: row.value for row in rows_of(again, committed=True)}
            assert {key: latest.get(key) for key in final} == final
            assert again.log_end_offset == log.log_end_offset
            last = keyed(("x", "committed"), producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
            assert again.append(last, now_ms=0).duplicate
            assert not list(shot.glob("*.cleaned")) + list(shot.glob("*.swap"))
            again.abandon()
    assert log.segment_count == 2


@pytest.mark.parametrize("blocked", ["00000000000000000000.cleaned", "checkpoint.new"])
def test_a_disk_that_refuses_leaves_the_log_as_it_was(tmp_path: Path, syncer: Syncer, blocked: str) -> None:
    log = _written(tmp_path / "t-0", syncer)
    log.flush()
    before = rows_of(log)
    (tmp_path / "t-0" / blocked).mkdir()
    with pytest.raises((LogFailedError, OSError)):
        compact(log)
    assert rows_of(log) == before
    (tmp_path / "t-0" / blocked).rmdir()
    compact(log)
    assert len(rows_of(log)) < len(before)


def test_no_space_for_the_cleaned_file(tmp_path: Path, syncer: Syncer) -> None:
    """``/dev/full`` stands for the disk: opening works, writing does not."""
    log = _written(tmp_path / "t-0", syncer)
    log.flush()
    before = rows_of(log)
    cleaned = tmp_path / "t-0" / "00000000000000000000.cleaned"
    cleaned.symlink_to("/dev/full")
    with pytest.raises(LogFullError, match="compaction could not write"):
        compact(log)
    assert rows_of(log) == before
    assert not cleaned.is_symlink()
    compact(log)
    assert len(rows_of(log)) < len(before)
