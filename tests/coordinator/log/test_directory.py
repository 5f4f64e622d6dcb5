from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.log import (
    CorruptLogError,
    FormatVersionError,
    LogClosedError,
    LogDirectory,
    LogDirectoryLockedError,
)
from tests.coordinator.log.batches import batch, produced, values_from

WRITER = """
import sys
from pathlib import Path
from coordinator.log import LogConfig, LogDirectory
from streamsrt.wire.records import encode_batch
directory = LogDirectory(Path(sys.argv[1]), fsync_interval_ms=5)
log = directory.partition("t", 0, LogConfig(segment_bytes=20_000))
for i in range(1 << 30):
    info = log.append(encode_batch([None], [b"%d" % i], [i]), now_ms=i)
    print(info.base_offset, flush=True)
"""

FULL_DISK = """
import sys
from pathlib import Path
from coordinator.log import LogDirectory, LogFullError
from tests.coordinator.log.batches import batch, values_from

directory = LogDirectory(Path(sys.argv[1]) / "data")
log = directory.partition("t", 0)
try:
    for _ in range(200):
        log.append(batch(b"x" * 10_000), now_ms=0)
except LogFullError as error:
    print(error.cause.strerror, end="")
appended = log.log_end_offset
assert 50 < appended < 105 and len(values_from(log)) == appended
try:
    log.append(batch(b"y" * 200_000), now_ms=0)
except LogFullError:
    print(", then again")
log.roll()
assert log.delete_records_before(appended) == appended
log.flush()
log.flush()
assert log.append(batch(b"z" * 10_000), now_ms=0).base_offset == appended
directory.close()
directory = LogDirectory(Path(sys.argv[1]) / "data")
assert directory.was_clean
assert values_from(directory.partition("t", 0)) == [b"z" * 10_000]
directory.close()
"""


def test_a_clean_close_is_remembered_until_the_next_start(tmp_path: Path) -> None:
    with_marker = LogDirectory(tmp_path)
    assert with_marker.was_clean, "a new directory"
    with_marker.partition("t", 0).append(batch(b"a"), now_ms=0)
    with_marker.close()
    with_marker.close()
    assert (tmp_path / "clean-shutdown").exists()
    again = LogDirectory(tmp_path)
    assert again.was_clean
    assert not (tmp_path / "clean-shutdown").exists()
    assert values_from(again.partition("t", 0)) == [b"a"]
    again.close()


def test_a_second_owner_is_told_who_has_it(tmp_path: Path) -> None:
    owner = LogDirectory(tmp_path)
    with pytest.raises(LogDirectoryLockedError, match=f"{tmp_path} is in use by process {os.getpid()}: stop"):
        LogDirectory(tmp_path)
    owner.close()
    LogDirectory(tmp_path).close()


def test_a_directory_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(FormatVersionError, match=r"is not a data directory of this broker: it contains photos"):
        LogDirectory(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".lock", "photos"]


def test_a_directory_of_another_version_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "format-version").write_text("streamsrt-log 99\n")
    with pytest.raises(FormatVersionError, match="'streamsrt-log 99'"):
        LogDirectory(tmp_path)
    (tmp_path / "format-version").write_text("streamsrt-log 1\n")
    LogDirectory(tmp_path).close()


def test_partitions_are_listed_and_opened_once(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    for topic, partition in (("b-1", 10), ("a.b_c-0", 0), ("b", 1), ("b", 0)):
        assert directory.partition(topic, partition) is directory.partition(topic, partition)
    assert directory.partitions() == [("a.b_c-0", 0), ("b", 0), ("b", 1), ("b-1", 10)]
    directory.close()
    with pytest.raises(LogClosedError):
        directory.partition("b", 0)


@pytest.mark.parametrize("topic", ["", "../x", "a/b", ".", "..", "a b", "x" * 250, "a\n"])
def test_a_name_that_no_topic_can_have_is_refused(tmp_path: Path, topic: str) -> None:
    directory = LogDirectory(tmp_path)
    with pytest.raises(ValueError, match="can't be the name of a partition"):
        directory.partition(topic, 0)
    directory.close()


def test_a_deleted_partition_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    topic = "t" * 249
    for i in range(3):
        log = directory.partition(topic, 0)
        assert log.log_end_offset == 0
        log.append(batch(b"%d" % i), now_ms=0)
        directory.delete(topic, 0)
        with pytest.raises(LogClosedError):
            log.append(batch(b"late"), now_ms=0)
    assert directory.partitions() == []
    directory.close()
    assert not [entry for entry in tmp_path.iterdir() if entry.is_dir()], "nothing of them is left"


def test_what_a_killed_broker_had_begun_to_delete_is_removed(tmp_path: Path) -> None:
    LogDirectory(tmp_path).close()
    leftover = tmp_path / "t-0.0.deleted"
    leftover.mkdir()
    (leftover / "00000000000000000000.log").write_bytes(b"x")
    LogDirectory(tmp_path).close()
    assert not leftover.exists()


@pytest.mark.parametrize("first", [LogDirectory.close, LogDirectory.abandon])
@pytest.mark.parametrize("second", [LogDirectory.close, LogDirectory.abandon])
def test_a_second_end_closes_nobody_elses_file(
    tmp_path: Path, first: Callable[[LogDirectory], None], second: Callable[[LogDirectory], None]
) -> None:
    directory = LogDirectory(tmp_path)
    number = directory._lock_fd
    first(directory)
    other = os.open(os.devnull, os.O_RDONLY)
    if other != number:
        os.dup2(other, number)
        os.close(other)
    second(directory)
    os.fstat(number)
    os.close(number)
    directory.syncer.close()


def test_a_corrupt_partition_is_repaired_when_asked(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    log = directory.partition("t", 0)
    for i in range(5):
        log.append(produced(1, i), now_ms=0)
    log.flush()
    log.abandon()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLogError):
        directory.partition("t", 0)
    repair = directory.repair("t", 0)
    assert repair is not None
    assert values_from(directory.partition("t", 0)) == [b"p1-%d" % i for i in range(repair.first_lost_offset)]
    with pytest.raises(ValueError, match="t-0 is open"):
        directory.repair("t", 0)
    directory.close()


@pytest.mark.system
def test_kill_9_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    for round_number in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(500)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines(keepends=True)
        process.stdout.close()
        process.wait()
        last = int([line for line in lines if line.endswith("\n")][-1])
        directory = LogDirectory(tmp_path)
        assert not directory.was_clean
        log = directory.partition("t", 0)
        assert log.leader_epoch == round_number + 1
        assert log.log_end_offset > last
        assert len(values_from(log)) == log.log_end_offset
        directory.close()


def test_a_full_file_system_is_refused_and_goes_on_when_there_is_space(tmp_path: Path) -> None:
    shell = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", shell, str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    ran = subprocess.run(
        [*command, sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, cwd=Path.cwd()
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "No space left on device, then again\n"
