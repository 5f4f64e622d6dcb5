from __future__ import annotations

import dataclasses
import os
import resource
import signal
from pathlib import Path

import pytest

from coordinator.log import (
    LogClosedError,
    LogConfig,
    LogFailedError,
    LogFullError,
    LogStorageError,
    OffsetOutOfRangeError,
    Syncer,
    TimestampType,
)
from streamsrt.wire.records import ControlType, decode_batches, encode_batch, iter_headers, read_header
from tests.coordinator.log.batches import SMALL_SEGMENTS, batch, joined, marker, open_log, produced, values_from

ROOMY = LogConfig(retention_ms=-1)


def test_offsets_are_given_in_order_of_append(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    assert log.append(batch(b"a", b"b"), now_ms=1) == (0, 1, -1, 0, False)
    assert log.append(batch(b"c") + batch(b"d", b"e"), now_ms=2) == (2, 4, -1, 0, False)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (0, 5, 5, 5)
    assert values_from(log) == [b"a", b"b", b"c", b"d", b"e"]
    log.close()


def test_a_batch_is_stored_as_it_was_sent_but_for_offset_and_leader_epoch(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    log.append(batch(b"first"), now_ms=1)
    sent = batch(b"x" * 50, b"y")
    log.append(memoryview(bytearray(sent)), now_ms=1)
    stored = joined(log.read(1, 1 << 20))
    assert stored[16:] == sent[16:]
    assert stored[8:12] == sent[8:12]
    header = read_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (1, log.leader_epoch)
    log.close()


def test_log_append_time_stamps_every_record(tmp_path: Path, syncer: Syncer) -> None:
    config = dataclasses.replace(ROOMY, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    log = open_log(tmp_path / "t-0", syncer, config)
    assert log.append(batch(b"a", b"b", timestamp_ms=5), now_ms=77_000).log_append_time_ms == 77_000
    (columns,) = decode_batches(joined(log.read(0, 1 << 20)))
    assert columns.timestamps == [77_000, 77_000]
    assert log.offset_for_timestamp(10) == (0, 77_000)
    log.close()


# ------------------------------------------------------------------------------------------------------------ reading


def test_a_read_starts_at_the_batch_that_holds_the_offset(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, ROOMY)
    for i in range(20):
        log.append(batch(b"%d" % i, b"-", b"-"), now_ms=1)
    for offset in range(60):
        data = joined(log.read(offset, 1))
        assert read_header(data).base_offset == offset // 3 * 3
    log.close()


@pytest.mark.parametrize("max_bytes", [1, 90, 150, 399, 400, 1000, 1 << 20])
def test_reads_go_on_where_the_last_one_ended_across_segments(tmp_path: Path, syncer: Syncer, max_bytes: int) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    expected = [b"v%d" % i * (i % 7 + 1) for i in range(60)]
    for value in expected:
        log.append(batch(value), now_ms=1)
    assert log.segment_count > 5
    assert values_from(log, max_bytes=max_bytes) == expected
    log.close()


def test_no_read_is_larger_than_asked_unless_one_batch_is(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    for i in range(40):
        log.append(batch(b"x" * (i * 7 % 90)), now_ms=1)
    for max_bytes in range(0, 900, 13):
        for offset in range(0, 40, 3):
            result = log.read(offset, max_bytes)
            headers = list(iter_headers(joined(result)))
            assert headers[-1][1].next_offset == result.next_offset
            assert sum(header.size_bytes for _, header in headers) == result.size_bytes
            assert result.size_bytes <= max_bytes or len(headers) == 1
    log.close()


def test_without_min_one_batch_too_few_bytes_give_nothing(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    log.append(batch(b"x" * 100), now_ms=1)
    log.append(batch(b"y" * 100), now_ms=1)
    assert log.read(0, 50, min_one_batch=False) == ([], 0, 0)
    assert log.read(0, 50).next_offset == 1
    log.close()


def test_a_read_ends_at_up_to(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    for i in range(30):
        log.append(batch(b"%d" % i, b"-"), now_ms=1)
    for up_to in range(0, 61, 2):
        position, found = 0, 0
        while position < up_to:
            result = log.read(position, 200, up_to=up_to)
            found += len(list(iter_headers(joined(result))))
            position = result.next_offset
        assert (position, found) == (up_to, up_to // 2)
    assert log.read(20, 1000, up_to=20) == ([], 0, 20)
    assert log.read(20, 1000, up_to=21).next_offset == 20, "offset 21 stands in the batch of 20: nothing of it is below"
    log.close()


def test_what_is_available_is_what_is_read(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path, syncer, SMALL_SEGMENTS)
    for i in range(60):
        log.append(batch(b"%d" % i, b"second"), now_ms=0)
    everything = log.available_bytes(0, log.high_watermark, 1 << 40)
    for offset in range(0, 121, 7):
        for end in (offset, offset + 1, 60, 61, 119, 120):
            size = log.read(offset, 1 << 30, up_to=end).size_bytes if end >= offset else 0
            assert log.available_bytes(offset, end, 1 << 30) == size
    assert 1000 <= log.available_bytes(0, log.high_watermark, 1000) < everything
    with pytest.raises(OffsetOutOfRangeError):
        log.available_bytes(121, 121, 1)
    log.close()


def test_an_offset_out_of_range_says_what_there_is(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    log.append(batch(b"a", b"b"), now_ms=1)
    assert log.read(2, 1000) == ([], 0, 2)
    for offset in (-1, 3):
        with pytest.raises(OffsetOutOfRangeError, match=r"holds 0 to 2") as caught:
            log.read(offset, 1000)
        assert caught.value.error_code == 1
    log.close()


def test_few_files_stay_open_however_many_segments_are_read(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    for i in range(100):
        log.append(batch(b"x" * 100), now_ms=i)
    values_from(log)
    log.flush()
    open_paths = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]
    assert log.segment_count > 20
    assert sum(path.startswith(str(tmp_path)) for path in open_paths) <= 8
    log.close()


def test_readers_share_a_file_however_often_it_was_closed_in_between(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, SMALL_SEGMENTS)
    for i in range(50):
        log.append(batch(b"%d" % i), now_ms=0)
    assert log.segment_count == 10
    found = []
    for _ in range(3):
        found += log.find(0, 1).records
        for offset in range(50):
            log.find(offset, 1)
    assert len({each._file.fd for each in found}) == 1
    log.close()
    assert [each.read() for each in found] == [found[0].read()] * 3
    fd = found[0]._file.fd
    del found
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_read_ends_after_so_many_segments(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, SMALL_SEGMENTS)
    for i in range(100):
        log.append(batch(b"%d" % i, b"x" * 200), now_ms=0)
    assert log.segment_count == 100
    assert log.read(0, 1 << 20).next_offset == 2 * 64
    assert values_from(log)[::2] == [b"%d" % i for i in range(100)]
    log.close()


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


# --------------------------------------------------------------------------------------------------------- timestamps


def test_the_first_record_at_or_after_a_timestamp(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    timestamps = [50, 10, 70, 60, 90, 20, 110, 100]
    for timestamp in timestamps:
        log.append(batch(b"a", b"b", timestamp_ms=timestamp), now_ms=1)
    records = [(2 * i + j, timestamp + j) for i, timestamp in enumerate(timestamps) for j in (0, 1)]
    for target in range(130):
        expected = next((record for record in records if record[1] >= target), None)
        assert log.offset_for_timestamp(target) == expected
    assert log.max_timestamp() == (13, 111)
    log.delete_records_before(3)
    assert log.offset_for_timestamp(0) == (3, 11)
    log.delete_records_before(14)
    assert log.max_timestamp() == (15, 101)
    log.delete_records_before(16)
    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0) is None
    log.close()


# ----------------------------------------------------------------------------------------------------------- segments


def test_a_segment_is_rolled_by_size(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    for _ in range(12):
        log.append(batch(b"x" * 100), now_ms=1)
    log.close()
    sizes = [path.stat().st_size for path in (tmp_path / "t-0").glob("*.log")]
    assert len(sizes) == 6
    assert max(sizes) <= SMALL_SEGMENTS.segment_bytes


def test_a_segment_is_rolled_by_age_on_the_brokers_clock(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, dataclasses.replace(ROOMY, segment_ms=1000))
    log.append(batch(b"a", timestamp_ms=1), now_ms=10_000)
    log.append(batch(b"b", timestamp_ms=1 << 40), now_ms=10_999)
    assert log.segment_count == 1
    log.append(batch(b"c", timestamp_ms=1), now_ms=11_000)
    assert log.segment_count == 2
    assert values_from(log) == [b"a", b"b", b"c"]
    log.close()


# ----------------------------------------------------------------------------------------------------------- removing


def test_retention_by_time_deletes_whole_segments_from_the_oldest_on(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, dataclasses.replace(SMALL_SEGMENTS, retention_ms=1000))
    for i in range(9):
        log.append(batch(b"x" * 200, timestamp_ms=1000 * i), now_ms=1000 * i)
    assert log.segment_count == 9
    assert log.apply_retention(5000) == 4
    assert (log.log_start_offset, log.log_end_offset) == (4, 9)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, 100)
    assert log.apply_retention(100_000) == 5, "the active segment is rolled and goes as well"
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (9, 9, 0)
    log.append(batch(b"after"), now_ms=100_000)
    assert values_from(log) == [b"after"]
    log.close()
    assert [path.name for path in sorted((tmp_path / "t-0").glob("*.log"))] == [f"{9:020d}.log"]


def test_retention_by_time_stops_at_the_first_segment_that_stays(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, dataclasses.replace(SMALL_SEGMENTS, retention_ms=1000))
    for timestamp in (0, 9000, 0, 0):
        log.append(batch(b"x" * 200, timestamp_ms=timestamp), now_ms=0)
    assert log.apply_retention(9500) == 1
    assert log.log_start_offset == 1
    log.close()


def test_retention_by_size_leaves_at_least_so_much(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, dataclasses.replace(SMALL_SEGMENTS, retention_bytes=1000))
    for _ in range(10):
        log.append(batch(b"x" * 230), now_ms=0)
    assert log.size_bytes == 3000
    assert log.apply_retention(0) == 6
    assert log.size_bytes == 1200
    assert log.apply_retention(0) == 0
    log.close()


def test_a_compacted_log_is_not_deleted_by_time_or_size(tmp_path: Path, syncer: Syncer) -> None:
    config = dataclasses.replace(
        SMALL_SEGMENTS, cleanup_policy=frozenset({"compact"}), retention_ms=0, retention_bytes=0
    )
    log = open_log(tmp_path / "t-0", syncer, config)
    for _ in range(9):
        log.append(encode_batch([b"k"], [b"x" * 200], [1000]), now_ms=0)
    assert log.apply_retention(1 << 40) == 0
    log.delete_records_before(4)
    assert (log.log_start_offset, log.segment_count) == (4, 5)
    log.close()


def test_delete_records_moves_the_start_and_survives_a_crash(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    for i in range(10):
        log.append(batch(b"%d" % i, b"-"), now_ms=0)
    assert log.delete_records_before(7) == 7
    assert log.delete_records_before(3) == 7, "the start never moves down"
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records_before(21)
    assert log.read(7, 1).next_offset == 8
    # Where the sync thread was saving the checkpoint at that moment, it does so once more.
    syncer.call(lambda: None).result(10)
    log.abandon()
    again = open_log(tmp_path / "t-0", syncer)
    assert (again.log_start_offset, again.log_end_offset) == (7, 20)
    assert again.delete_records_before(20) == 20
    assert again.read(20, 100) == ([], 0, 20)
    again.close()


# -------------------------------------------------------------------------------------------------- leader epochs


def test_the_leader_epoch_rises_after_an_unclean_stop_only(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, ROOMY)
    log.append(batch(b"a", b"b"), now_ms=0)
    assert log.leader_epoch == 0
    log.abandon()
    log = open_log(tmp_path / "t-0", syncer, ROOMY)
    assert log.leader_epoch == 1
    log.append(batch(b"c"), now_ms=0)
    log.close()
    log = open_log(tmp_path / "t-0", syncer, ROOMY, clean=True)
    assert log.leader_epoch == 1
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(1) == (1, 3)
    assert log.end_offset_for_epoch(2) == (-1, -1)
    log.close()


# ------------------------------------------------------------------------------------------------------- transactions


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    log.append(batch(b"plain"), now_ms=0)
    log.append(produced(1, 0, 2, transactional=True), now_ms=0)
    log.append(produced(2, 0, 1, transactional=True), now_ms=0)
    assert log.last_stable_offset == 1
    log.append(marker(1, ControlType.ABORT), now_ms=0, from_coordinator=True)
    assert log.last_stable_offset == 3
    log.append(marker(2, ControlType.COMMIT), now_ms=0, from_coordinator=True)
    assert log.last_stable_offset == log.log_end_offset == 6
    assert log.aborted_transactions(0, 6) == [(1, 1)]
    assert log.aborted_transactions(5, 6) == []
    committed = decode_batches(joined(log.read(0, 1 << 20)), aborted=log.aborted_transactions(0, 6))
    assert [value for columns in committed for value in columns.values] == [b"plain", b"p2-0"]
    log.close()


# ----------------------------------------------------------------------------------------------------------- failures


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, ROOMY)
    log.append(batch(b"kept"), now_ms=0)
    size_bytes = log.size_bytes
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN, "Python turns the limit into an OSError"
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes + 100, hard))
    try:
        with pytest.raises(LogFullError, match="could not be appended") as caught:
            log.append(batch(b"x" * 5000), now_ms=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.error_code == 56
    assert caught.value.file.stat().st_size == size_bytes == log.size_bytes
    assert values_from(log) == [b"kept"]
    assert log.append(produced(7, 0), now_ms=0).base_offset == 1
    assert values_from(log) == [b"kept", b"p7-0"]
    log.close()


def test_without_a_file_descriptor_the_log_refuses_and_goes_on_when_there_is_one(
    tmp_path: Path, syncer: Syncer
) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    log.append(batch(b"a"), now_ms=1)
    log.close()
    log = open_log(tmp_path / "t-0", syncer)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(LogStorageError, match="could not be opened: Too many open files"):
            log.append(batch(b"b"), now_ms=2)
        with pytest.raises(LogStorageError, match="could not be opened: Too many open files"):
            log.read(0, 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert log.append(batch(b"b"), now_ms=3).base_offset == 1
    assert values_from(log) == [b"a", b"b"]
    log.close()


def test_a_file_that_somebody_cut_off_is_an_error_of_the_disk(tmp_path: Path, syncer: Syncer) -> None:
    """Others than readers of this partition must not be concerned."""
    log = open_log(tmp_path / "t-0", syncer)
    for value in (b"a", b"b", b"c"):
        log.append(batch(value), now_ms=1)
    size_bytes = log.size_bytes
    os.truncate(next((tmp_path / "t-0").glob("*.log")), size_bytes // 3 + 10)
    with pytest.raises(LogStorageError, match="the file ends at byte"):
        log.find(1, size_bytes // 3)
    log.abandon()


def test_that_the_disk_is_full_is_told_once_and_that_there_is_space_again(
    tmp_path: Path, syncer: Syncer, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path / "t-0", syncer, ROOMY)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(2):
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.size_bytes, hard))
        try:
            for _ in range(3):
                with pytest.raises(LogFullError):
                    log.append(batch(b"x"), now_ms=0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        log.append(batch(b"x"), now_ms=0)
        log.append(batch(b"x"), now_ms=0)
    refused, taken = "Records are refused until there is space", f"{tmp_path / 't-0'} takes records again"
    told = [record.getMessage() for record in caplog.records]
    assert [refused in text for text in told] == [True, False] * 2
    assert told[1] == told[3] == taken
    assert "bytes could not be appended: File too large" in told[0]
    log.close()


def test_a_refused_batch_of_a_producer_may_come_again(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, ROOMY)
    log.append(produced(7, 0), now_ms=0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.size_bytes, hard))
    try:
        with pytest.raises(LogFullError):
            log.append(produced(7, 1), now_ms=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert log.append(produced(7, 1), now_ms=0) == (1, 1, -1, 0, False)
    log.close()


def test_a_log_whose_fsync_failed_takes_no_appends_but_is_read(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer, ROOMY)
    log.append(batch(b"a"), now_ms=0)
    log.on_sync_failed(LogFailedError(tmp_path, OSError(5, "Input/output error"), "could not be flushed to disk"))
    with pytest.raises(LogFailedError, match="Input/output error"):
        log.append(batch(b"b"), now_ms=0)
    assert values_from(log) == [b"a"]
    log.close()


def test_a_closed_log_says_so(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    log.close()
    log.close()
    for operation in (lambda: log.append(batch(b"a"), now_ms=0), lambda: log.read(0, 1), log.max_timestamp):
        with pytest.raises(LogClosedError, match=r"t-0 is closed"):
            operation()
