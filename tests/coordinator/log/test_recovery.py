from __future__ import annotations

import logging
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.log import CorruptLogError, LogConfig, Syncer, truncate_at_corruption
from coordinator.log.partition_log import PartitionLog
from streamsrt.wire.records import ControlType, iter_headers
from tests.coordinator.log.batches import SMALL_SEGMENTS, batch, joined, marker, open_log, produced, values_from

ROOMY = LogConfig(retention_ms=-1, index_interval_bytes=128)
FIELDS = {
    "base offset": 0,
    "base offset, low byte": 7,
    "batch length": 8,
    "batch length, low byte": 11,
    "leader epoch": 12,
    "magic": 16,
    "crc": 17,
    "attributes": 22,
    "last offset delta": 26,
    "base timestamp": 34,
    "max timestamp": 42,
    "producer id": 50,
    "producer epoch": 52,
    "base sequence": 56,
    "records count": 60,
    "first record": 61,
    "value": 68,
}


@pytest.fixture
def crashed(tmp_path: Path, syncer: Syncer) -> Path:
    """A partition with five batches of one record in one segment, left by a process that died."""
    log = open_log(tmp_path / "t-0", syncer, ROOMY)
    for i in range(5):
        log.append(batch(b"value %d" % i), now_ms=0)
    log.abandon()
    return tmp_path / "t-0"


def segment_file(directory: Path, number: int = 0) -> Path:
    return sorted(directory.glob("*.log"))[number]


def batch_positions(path: Path) -> list[int]:
    return [position for position, _ in iter_headers(path.read_bytes())]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x41
    path.write_bytes(data)


def test_a_killed_process_loses_nothing(crashed: Path, syncer: Syncer, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(crashed, syncer, ROOMY)
    assert values_from(log) == [b"value %d" % i for i in range(5)]
    assert not caplog.records, "nothing was cut off"
    log.close()


def test_an_append_torn_at_any_byte_is_cut_off(
    crashed: Path, syncer: Syncer, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = segment_file(crashed)
    whole = path.read_bytes()
    last = batch_positions(path)[-1]
    for cut in range(last + 1, len(whole)):
        caplog.clear()
        directory = tmp_path / f"torn-{cut}"
        shutil.copytree(crashed, directory)
        segment_file(directory).write_bytes(whole[:cut])
        log = open_log(directory, syncer, ROOMY)
        assert log.log_end_offset == 4
        assert segment_file(directory).stat().st_size == last
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert f"truncated {cut - last} bytes at position {last}" in record.getMessage()
        assert log.append(batch(b"next"), now_ms=0).base_offset == 4
        assert values_from(log) == [*(b"value %d" % i for i in range(4)), b"next"]
        log.close()


@pytest.mark.parametrize("tail", [b"\x00" * 5000, b"\x00", b"\xff" * 70, bytes(range(256)) * 3], ids=len)
def test_bytes_that_never_were_a_batch_are_cut_off(crashed: Path, syncer: Syncer, tail: bytes) -> None:
    path = segment_file(crashed)
    size_bytes = path.stat().st_size
    with path.open("ab") as file:
        file.write(tail)
    log = open_log(crashed, syncer, ROOMY)
    assert (log.log_end_offset, log.size_bytes) == (5, size_bytes)
    log.close()


@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_byte_in_the_last_batch_takes_that_batch(crashed: Path, syncer: Syncer, field: str) -> None:
    path = segment_file(crashed)
    flip(path, batch_positions(path)[-1] + FIELDS[field])
    log = open_log(crashed, syncer, ROOMY)
    assert log.log_end_offset == 4
    log.close()


@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_byte_with_batches_behind_it_is_refused(crashed: Path, syncer: Syncer, field: str) -> None:
    path = segment_file(crashed)
    before = path.read_bytes()
    position = batch_positions(path)[2]
    flip(path, position + FIELDS[field])
    with pytest.raises(CorruptLogError) as caught:
        open_log(crashed, syncer, ROOMY)
    error = caught.value
    assert (error.file, error.position, error.offsets) == (path, position, (2, 3))
    assert f"{path} is corrupt at byte {position}: " in str(error)
    assert "offsets 2 to 2 are unreadable" in str(error)
    assert "--truncate-corrupt" in str(error)
    assert len(path.read_bytes()) == len(before), "nothing was repaired without being asked"


def test_an_offset_that_falls_behind_is_refused(crashed: Path, syncer: Syncer) -> None:
    path = segment_file(crashed)
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, batch_positions(path)[2], 1)
    path.write_bytes(data)
    with pytest.raises(CorruptLogError, match="starts at offset 1, but offset 2 is next"):
        open_log(crashed, syncer, ROOMY)


def test_a_hole_in_the_middle_is_refused(crashed: Path, syncer: Syncer) -> None:
    path = segment_file(crashed)
    second, third = batch_positions(path)[1:3]
    data = bytearray(path.read_bytes())
    data[second:third] = bytes(third - second)
    path.write_bytes(data)
    with pytest.raises(CorruptLogError) as caught:
        open_log(crashed, syncer, ROOMY)
    assert caught.value.offsets == (1, 2)


def closed_and_reopened(directory: Path, syncer: Syncer, values: int) -> None:
    log = open_log(directory, syncer)
    for i in range(values):
        log.append(batch(b"%04d" % i * 20), now_ms=0)
    log.abandon()


def test_corruption_at_the_end_of_an_older_segment_is_refused(tmp_path: Path, syncer: Syncer) -> None:
    directory = tmp_path / "t-0"
    closed_and_reopened(directory, syncer, 12)
    (directory / "checkpoint").unlink(missing_ok=True)
    path = segment_file(directory, 1)
    position = batch_positions(path)[-1]
    flip(path, path.stat().st_size - 1)
    following = int(segment_file(directory, 2).stem)
    with pytest.raises(CorruptLogError) as caught:
        open_log(directory, syncer)
    assert (caught.value.file, caught.value.position, caught.value.offsets[1]) == (path, position, following)


def test_a_torn_segment_with_an_empty_one_behind_is_a_torn_tail(tmp_path: Path, syncer: Syncer) -> None:
    directory = tmp_path / "t-0"
    log = open_log(directory, syncer, ROOMY)
    log.append(batch(b"a"), now_ms=0)
    log.append(batch(b"b"), now_ms=0)
    log.roll()
    log.abandon()
    (directory / "checkpoint").unlink(missing_ok=True)
    path = segment_file(directory)
    path.write_bytes(path.read_bytes()[:-1])
    log = open_log(directory, syncer, ROOMY)
    assert (log.log_end_offset, log.segment_count) == (1, 1)
    log.close()


def test_a_log_shorter_than_what_was_on_disk_is_refused(tmp_path: Path, syncer: Syncer) -> None:
    directory = tmp_path / "t-0"
    log = open_log(directory, syncer, ROOMY)
    for i in range(3):
        log.append(batch(b"%d" % i), now_ms=0)
    log.close()
    path = segment_file(directory)
    positions = batch_positions(path)
    for size_bytes in (positions[-1], positions[-1] + 10):
        path.write_bytes(path.read_bytes()[:size_bytes].ljust(size_bytes, b"\0"))
        with pytest.raises(CorruptLogError) as caught:
            open_log(directory, syncer, ROOMY, clean=True)
        assert caught.value.offsets[0] == 2
    repair = truncate_at_corruption(directory)
    assert repair is not None
    assert repair.first_lost_offset == 2
    log = open_log(directory, syncer, ROOMY)
    assert values_from(log) == [b"0", b"1"]
    log.close()


# ------------------------------------------------------------------------------------------------------------- repair


def test_repair_keeps_what_it_drops(tmp_path: Path, syncer: Syncer) -> None:
    directory = tmp_path / "t-0"
    closed_and_reopened(directory, syncer, 20)
    (directory / "checkpoint").unlink(missing_ok=True)
    path = segment_file(directory, 2)
    flip(path, batch_positions(path)[1] + 70)
    before = {file.name: file.read_bytes() for file in directory.glob("*.log")}
    with pytest.raises(CorruptLogError) as caught:
        open_log(directory, syncer)
    repair = truncate_at_corruption(directory)
    assert repair is not None
    assert (repair.file, repair.position) == (caught.value.file, caught.value.position)
    assert repair.first_lost_offset == caught.value.offsets[0]
    dropped = b"".join(file.read_bytes() for file in repair.dropped_files)
    kept = b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))
    assert kept + dropped == b"".join(before[name] for name in sorted(before))
    assert len(dropped) == repair.dropped_bytes
    log = open_log(directory, syncer)
    assert log.log_end_offset == repair.first_lost_offset
    assert values_from(log) == [b"%04d" % i * 20 for i in range(repair.first_lost_offset)]
    log.append(batch(b"goes on"), now_ms=0)
    log.close()
    assert truncate_at_corruption(directory) is None


def test_repair_of_a_whole_log_changes_nothing(crashed: Path) -> None:
    before = {path.name: path.read_bytes() for path in crashed.iterdir()}
    assert truncate_at_corruption(crashed) is None
    assert {path.name: path.read_bytes() for path in crashed.iterdir()} == before


# ------------------------------------------------------------------------------- what is derived from the segments


def transactional_log(directory: Path, syncer: Syncer) -> PartitionLog:
    log = open_log(directory, syncer)
    for i in range(12):
        log.append(produced(1, i, transactional=True), now_ms=0)
        log.append(produced(2, 2 * i, 2), now_ms=0)
        if i % 4 == 3:
            kind = ControlType.ABORT if i % 8 == 3 else ControlType.COMMIT
            log.append(marker(1, kind), now_ms=0, from_coordinator=True)
    log.append(produced(3, 0, transactional=True), now_ms=0)
    return log


def picture(log: PartitionLog) -> tuple[object, ...]:
    """All that can be asked of a log."""
    end = log.log_end_offset
    entries = {
        producer_id: (entry.epoch, list(entry.batches), entry.transaction_first_offset)
        for producer_id, entry in log.producers.entries.items()
    }
    return (
        log.log_start_offset,
        end,
        log.last_stable_offset,
        log.aborted_transactions(0, end),
        list(log.producers.open_transactions()),
        entries,
        log.max_timestamp(),
        [log.read(offset, 300).next_offset for offset in range(end)],
        b"".join(joined(log.read(offset, 1)) for offset in range(end)),
    )


def remove(*patterns: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for pattern in patterns:
            for path in directory.glob(pattern):
                path.unlink()

    return damage


def shorten(pattern: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in directory.glob(pattern):
            path.write_bytes(path.read_bytes()[:-3])

    return damage


def empty_files(pattern: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in directory.glob(pattern):
            path.write_bytes(b"")

    return damage


def garble(pattern: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in directory.glob(pattern):
            flip(path, path.stat().st_size // 2)

    return damage


def swap_indexes(directory: Path) -> None:
    first, second = sorted(directory.glob("*.index"))[:2]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


DAMAGES = {
    "nothing": remove(),
    "indexes missing": remove("*.index"),
    "indexes short": shorten("*.index"),
    "indexes empty": empty_files("*.index"),
    "indexes flipped": garble("*.index"),
    "indexes of another segment": swap_indexes,
    "snapshots missing": remove("*.snapshot"),
    "snapshots short": shorten("*.snapshot"),
    "snapshots flipped": garble("*.snapshot"),
    "checkpoint missing": remove("checkpoint"),
    "checkpoint empty": empty_files("checkpoint"),
    "checkpoint flipped": garble("checkpoint"),
    "all missing": remove("*.index", "*.snapshot", "checkpoint"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("end", ["closed", "abandoned", "flushed and abandoned"])
def test_everything_beside_the_segments_is_rebuilt_from_them(
    tmp_path: Path, syncer: Syncer, damage: str, end: str
) -> None:
    directory = tmp_path / "t-0"
    log = transactional_log(directory, syncer)
    before = picture(log)
    if end == "flushed and abandoned":
        log.flush()
    if end == "closed":
        log.close()
    else:
        log.abandon()
    syncer.close()
    DAMAGES[damage](directory)
    again = Syncer()
    log = open_log(directory, again, SMALL_SEGMENTS, clean=end == "closed")
    assert picture(log) == before
    assert log.append(produced(2, 24), now_ms=0).duplicate is False
    assert log.append(produced(2, 22, 2), now_ms=0).duplicate is True
    log.close()
    again.close()


def test_a_snapshot_beyond_the_recovery_point_is_not_believed(tmp_path: Path, syncer: Syncer) -> None:
    """It may know batches that a power loss took, and would then call the producer's next attempt a duplicate."""
    directory = tmp_path / "t-0"
    log = open_log(directory, syncer, ROOMY)
    log.append(produced(1, 0), now_ms=0)
    log.append(produced(1, 1), now_ms=0)
    log.roll()
    log.abandon()
    (directory / "checkpoint").unlink(missing_ok=True)
    path = segment_file(directory)
    path.write_bytes(path.read_bytes()[: batch_positions(path)[1]])
    segment_file(directory, 1).unlink()
    log = open_log(directory, syncer, ROOMY)
    assert log.append(produced(1, 1), now_ms=0) == (1, 1, -1, 0, False)
    log.close()


def test_a_start_beyond_what_a_power_loss_left_empties_the_log(tmp_path: Path, syncer: Syncer) -> None:
    directory = tmp_path / "t-0"
    log = open_log(directory, syncer, ROOMY)
    for i in range(4):
        log.append(batch(b"%d" % i), now_ms=0)
    log.delete_records_before(3)
    log.abandon()
    path = segment_file(directory)
    path.write_bytes(path.read_bytes()[: batch_positions(path)[1]])
    log = open_log(directory, syncer, ROOMY)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert log.append(batch(b"new"), now_ms=0).base_offset == 3
    log.close()


def test_producers_outlive_their_deleted_segments_even_if_the_hints_were_lost_before(
    tmp_path: Path, syncer: Syncer
) -> None:
    directory = tmp_path / "t-0"
    log = open_log(directory, syncer, ROOMY)
    log.append(produced(1, 0, transactional=True), now_ms=0)
    log.roll()
    log.flush()
    log.abandon()
    remove("*.index", "*.snapshot")(directory)
    log = open_log(directory, syncer, ROOMY)
    log.delete_records_before(1)
    log.abandon()
    log = open_log(directory, syncer, ROOMY)
    assert list(log.producers.open_transactions()) == [(1, 0)]
    assert log.append(produced(1, 0, transactional=True), now_ms=0).duplicate
    log.close()
