"""What stays of a log when it is compacted, and what its readers and producers see."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from coordinator.log import CorruptLogError, LogClosedError, OutOfOrderSequenceError
from coordinator.log.fsync import Syncer
from coordinator.log.validation import split_batches
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import Compression, ControlType, iter_headers, read_header
from tests.coordinator.broker.odd_batches import CASES
from tests.coordinator.log.batches import batch, joined, marker
from tests.coordinator.log.compaction.keyed import (
    COMPACTED,
    Row,
    compact,
    fill,
    headers_of,
    keyed,
    open_compacted,
    pairs_of,
    rows_of,
)


def test_the_last_record_of_each_key_stays_at_its_offset(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    fill(log, 20, ["a", "b", "c"])
    log.roll()
    log.append(keyed(("z", "active")), now_ms=0)
    before = log.size_bytes
    compact(log)
    assert pairs_of(log) == [(57, "a", "a19"), (58, "b", "b19"), (59, "c", "c19"), (60, "z", "active")]
    assert log.size_bytes < before / 5
    compact(log)
    assert log.segment_count == 2, "small segments become one"
    assert (log.log_start_offset, log.log_end_offset) == (0, 61)
    log.close()
    again = open_compacted(tmp_path / "t-0", syncer)
    assert len(pairs_of(again)) == 4


def test_the_active_segment_is_not_touched(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    fill(log, 2, ["a", "b"])
    compact(log)
    assert len(pairs_of(log)) == 4
    assert not log.assess_compaction(10_000).is_worth_it(log.config)


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_keeps_what_its_surviving_records_had(tmp_path: Path, syncer: Syncer, codec: Compression) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    headers = [(("h", b"1"),), (), (("h", None), ("i", b"2"))]
    log.append(keyed(("a", "1"), ("b", "1"), ("c", "1"), timestamp_ms=50, headers=headers, compression=codec), now_ms=0)
    log.append(keyed(("b", "2"), timestamp_ms=70), now_ms=0)
    log.roll()
    compact(log)
    assert rows_of(log) == [Row(0, b"a", b"1", 50), Row(2, b"c", b"1", 52), Row(3, b"b", b"2", 70)]
    data = joined(log.read(0, 1 << 20))
    (_, header), *_ = iter_headers(data)
    assert (header.base_offset, header.last_offset, header.records_count) == (0, 2, 2)
    assert (header.compression, header.max_timestamp, header.partition_leader_epoch) == (codec, 52, log.leader_epoch)
    assert log.offset_for_timestamp(51) == (2, 52)


def test_timestamps_of_the_broker_stay(tmp_path: Path, syncer: Syncer) -> None:
    config = dataclasses.replace(COMPACTED, message_timestamp_type=COMPACTED.message_timestamp_type.LOG_APPEND_TIME)
    log = open_compacted(tmp_path / "t-0", syncer, config)
    log.append(keyed(("a", "1"), ("b", "1"), ("d", None)), now_ms=5000)
    log.append(keyed(("b", "2")), now_ms=6000)
    log.roll()
    compact(log)
    assert rows_of(log) == [Row(0, b"a", b"1", 5000), Row(2, b"d", None, 5000), Row(3, b"b", b"2", 6000)]


def test_a_tombstone_stays_for_the_retention_of_deletes(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    log.append(keyed(("a", "1"), ("b", "1")), now_ms=0)
    log.append(keyed(("a", None), timestamp_ms=2000), now_ms=0)
    log.append(keyed(("c", "1")), now_ms=0)
    log.roll()
    compact(log, now_ms=10_000)
    assert rows_of(log)[1] == Row(2, b"a", None, 2000)
    compact(log, now_ms=10_999)
    assert [key for _, key, _ in pairs_of(log)] == ["b", "a", "c"]
    compact(log, now_ms=11_000)
    assert pairs_of(log) == [(1, "b", "1"), (3, "c", "1")]
    assert headers_of(log) == [(0, 1, 1), (3, 3, 1)]


def test_what_comes_after_a_tombstone_stays(tmp_path: Path, syncer: Syncer) -> None:
    config = dataclasses.replace(COMPACTED, delete_retention_ms=0)
    log = open_compacted(tmp_path / "t-0", syncer, config)
    log.append(keyed(("a", "1")), now_ms=0)
    log.append(keyed(("a", None)), now_ms=0)
    log.append(keyed(("a", "2")), now_ms=0)
    log.roll()
    for _ in range(3):
        compact(log)
    assert pairs_of(log) == [(2, "a", "2")]


def test_records_without_a_key_go(tmp_path: Path, syncer: Syncer) -> None:
    plain = dataclasses.replace(COMPACTED, cleanup_policy=frozenset({"delete"}))
    log = open_compacted(tmp_path / "t-0", syncer, plain)
    log.append(batch(b"old"), now_ms=0)
    log.append(keyed(("a", "1")), now_ms=0)
    log.roll()
    log.config = COMPACTED
    compact(log)
    assert pairs_of(log) == [(1, "a", "1")]


def test_a_producer_goes_on_after_its_records_are_gone(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    log.append(keyed(("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0), now_ms=0)
    last = keyed(("a", "2"), ("a", "3"), producer_id=7, producer_epoch=0, base_sequence=1)
    log.append(last, now_ms=0)
    log.append(keyed(("a", "4")), now_ms=0)
    log.roll()
    compact(log)
    assert pairs_of(log) == [(3, "a", "4")]
    assert headers_of(log) == [(1, 2, 0), (3, 3, 1)]
    log.abandon()
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    (tmp_path / "t-0" / "checkpoint").unlink()
    again = open_compacted(tmp_path / "t-0", syncer, clean=False)
    assert again.append(last, now_ms=0).duplicate
    with pytest.raises(OutOfOrderSequenceError):
        again.append(keyed(("b", "1"), producer_id=7, producer_epoch=0, base_sequence=1), now_ms=0)
    again.append(keyed(("b", "1"), producer_id=7, producer_epoch=0, base_sequence=3), now_ms=0)


def test_the_husk_of_a_forgotten_producer_goes(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    log.append(keyed(("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0), now_ms=0)
    log.append(keyed(("a", "2")), now_ms=0)
    log.roll()
    compact(log)
    assert headers_of(log) == [(0, 0, 0), (1, 1, 1)]
    log.apply_retention(now_ms=log.config.producer_id_expiration_ms)
    compact(log)
    assert headers_of(log) == [(1, 1, 1)]
    assert rows_of(log)[0].offset == 1


def transactional(producer_id: int, sequence: int, *rows: tuple[str, str | None]) -> bytes:
    return keyed(*rows, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


def test_aborted_records_go_first_and_their_marker_and_entry_later(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    log.append(transactional(7, 0, ("a", "aborted")), now_ms=0)
    log.append(marker(7, ControlType.ABORT), now_ms=0, from_coordinator=True)
    log.append(transactional(7, 1, ("b", "committed")), now_ms=0)
    log.append(marker(7, ControlType.COMMIT), now_ms=0, from_coordinator=True)
    log.append(keyed(("z", "z")), now_ms=0)
    log.roll()
    compact(log, now_ms=10_000)
    assert headers_of(log) == [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 1)]
    assert list(log.aborted_transactions(0, 10)) == [(7, 0)]
    compact(log, now_ms=20_000)
    assert headers_of(log)[0] == (1, 1, 1), "its horizon begins with the pass that found no data"
    compact(log, now_ms=30_000)
    assert headers_of(log) == [(2, 2, 1), (3, 3, 1), (4, 4, 1)]
    assert list(log.aborted_transactions(0, 10)) == []
    assert [row.key for row in rows_of(log, committed=True)] == [b"b", b"z"]
    log.abandon()
    again = open_compacted(log.directory, syncer, clean=False)
    assert list(again.aborted_transactions(0, 10)) == []
    assert [row.key for row in rows_of(again, committed=True)] == [b"b", b"z"]


def test_a_marker_stays_while_a_record_of_its_transaction_does(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    log.append(transactional(7, 0, ("a", "1")), now_ms=0)
    log.append(marker(7, ControlType.COMMIT), now_ms=0, from_coordinator=True)
    log.append(transactional(8, 0, ("b", "1")), now_ms=0)
    log.append(marker(8, ControlType.COMMIT), now_ms=0, from_coordinator=True)
    log.append(keyed(("b", "2")), now_ms=0)
    log.append(transactional(8, 1, ("c", "1")), now_ms=0)
    log.append(marker(8, ControlType.COMMIT), now_ms=0, from_coordinator=True)
    log.roll()
    for now_ms in (10_000, 20_000, 30_000):
        compact(log, now_ms=now_ms)
    assert headers_of(log) == [(0, 0, 1), (1, 1, 1), (4, 4, 1), (5, 5, 1), (6, 6, 1)]


def test_an_open_transaction_stops_it(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    fill(log, 1, ["a", "a", "a"])
    log.roll()
    log.append(transactional(7, 0, ("x", "1")), now_ms=0)
    fill(log, 1, ["a", "a", "a"])
    log.roll()
    compact(log)
    assert [offset for offset, _, _ in pairs_of(log)] == [2, 3, 4, 5, 6]
    log.append(marker(7, ControlType.COMMIT), now_ms=0, from_coordinator=True)
    compact(log)
    assert [offset for offset, _, _ in pairs_of(log)] == [3, 6]


def test_what_is_not_on_disk_is_not_touched(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    fill(log, 1, ["a", "a"])
    log.flush()
    log.append(keyed(("a", "last")), now_ms=0)
    synced = log.synced_offset
    assert synced == 2
    assert log.assess_compaction(0).end_offset == 0


def test_min_compaction_lag(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer, dataclasses.replace(COMPACTED, min_compaction_lag_ms=500))
    fill(log, 2, ["a"], timestamp_ms=1000)
    log.roll()
    fill(log, 2, ["a"], timestamp_ms=2000)
    log.roll()
    compact(log, now_ms=1499)
    assert len(pairs_of(log)) == 4
    compact(log, now_ms=2400)
    assert len(pairs_of(log)) == 3
    compact(log, now_ms=2500)
    assert len(pairs_of(log)) == 1


def test_when_it_is_worth_it(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    keys = [f"key-{i:02}" for i in range(20)]
    fill(log, 1, keys)
    log.roll()
    log.flush()
    assert log.assess_compaction(0).is_worth_it(log.config)
    compact(log)
    state = log.assess_compaction(0)
    assert (state.dirty_ratio, state.is_worth_it(log.config)) == (0.0, False)
    fill(log, 1, keys[:10])
    log.roll()
    log.flush()
    state = log.assess_compaction(0)
    assert 0.3 < state.dirty_ratio < 0.4
    assert not state.is_worth_it(log.config)
    assert state.is_worth_it(dataclasses.replace(log.config, min_cleanable_dirty_ratio=0.3))
    hurried = dataclasses.replace(log.config, max_compaction_lag_ms=100)
    log.config = hurried
    assert not log.assess_compaction(1100).is_worth_it(hurried)
    assert log.assess_compaction(1101).is_worth_it(hurried)
    log.close()
    again = open_compacted(tmp_path / "t-0", syncer)
    assert 0.3 < again.assess_compaction(0).dirty_ratio < 0.4


def test_a_segment_is_closed_in_time_for_the_greatest_lag(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer, dataclasses.replace(COMPACTED, max_compaction_lag_ms=100))
    log.append(keyed(("a", "1")), now_ms=0)
    log.append(keyed(("a", "2")), now_ms=99)
    assert log.segment_count == 1
    log.append(keyed(("a", "3")), now_ms=100)
    assert log.segment_count == 2


def test_a_map_that_is_full_ends_the_pass_early(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    fill(log, 10, [f"k{i}" for i in range(10)])
    log.roll()
    sizes = []
    for _ in range(40):
        compact(log, map_bytes_max=600)
        sizes.append(len(pairs_of(log)))
        if log.assess_compaction(0).dirty_bytes == 0:
            break
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) > 3
    assert pairs_of(log) == [(90 + i, f"k{i}", f"k{i}9") for i in range(10)]


def test_appends_go_on_between_the_steps(tmp_path: Path, syncer: Syncer) -> None:
    config = dataclasses.replace(COMPACTED, segment_bytes=1 << 20)
    log = open_compacted(tmp_path / "t-0", syncer, config)
    for number in range(3000):
        log.append(keyed((f"k{number % 10}", "v" * 100)), now_ms=0)
    log.roll()
    log.flush()
    steps = 0
    for step in log.compact(10_000):
        steps += 1
        log.append(keyed(("new", str(steps))), now_ms=0)
        if step is not None:
            step.result()
    assert steps >= 5
    assert len(pairs_of(log)) == 10 + steps


def test_a_group_that_retention_deletes_meanwhile_is_left_alone(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    fill(log, 30, ["a"])
    log.roll()
    log.flush()
    for step in log.compact(10_000):
        if step is not None:
            step.result()
            log.delete_records_before(20)
    assert pairs_of(log)[0][0] >= 20
    assert pairs_of(log)[-1] == (29, "a", "a29")
    log.close()
    again = open_compacted(tmp_path / "t-0", syncer)
    assert again.log_start_offset == 20
    assert pairs_of(again)[-1] == (29, "a", "a29")


def test_a_log_that_is_closed_meanwhile_ends_the_pass(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    fill(log, 30, ["a"])
    log.roll()
    log.flush()
    steps = log.compact(10_000)
    next(steps)
    log.close()
    with pytest.raises(LogClosedError):
        next(steps)
    again = open_compacted(tmp_path / "t-0", syncer)
    assert len(pairs_of(again)) == 30


def test_a_flipped_bit_is_noticed_and_nothing_is_lost(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    fill(log, 5, ["a"])
    log.roll()
    log.flush()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1
    with path.open("r+b") as file:
        file.write(damaged)
    kept = read_header(damaged)
    reasons = compact(log)
    assert list(reasons) == [0]
    assert "CRC" in reasons[0]
    assert path.read_bytes()[: kept.size_bytes] == damaged[: kept.size_bytes]
    assert len(path.read_bytes()) < len(damaged), "what is behind it is compacted"
    assert compact(log) == reasons


def test_where_not_even_a_header_can_be_read_the_log_stays_as_it_is(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    fill(log, 5, ["a"])
    log.roll()
    log.flush()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    damaged = bytearray(path.read_bytes())
    damaged[16] = 7
    with path.open("r+b") as file:
        file.write(damaged)
    with pytest.raises(DecodeError):
        compact(log)
    assert path.read_bytes() == damaged
    assert not list(path.parent.glob("*.cleaned"))


@pytest.mark.parametrize(
    "name", ["garbage", "count 2, one record", "broken gzip", "codec 5", "no record bytes, count 1"]
)
def test_batches_that_nobody_can_read_stay_and_the_others_are_compacted(
    tmp_path: Path, syncer: Syncer, name: str
) -> None:
    config = dataclasses.replace(COMPACTED, segment_bytes=1 << 20)
    log = open_compacted(tmp_path / "t-0", syncer, config)
    fill(log, 5, ["a", "b"])
    first = log.log_end_offset
    # As a broker that only looked at headers once took them.
    log.append_admitted(split_batches(CASES[name].records, config, from_coordinator=False), 0)
    fill(log, 5, ["b", "c"])
    end = log.log_end_offset
    log.roll()
    reasons = compact(log)
    assert list(reasons) == [first]
    left = b"".join(log.read(0, 1 << 20).buffers)
    kept = [header for _, header in iter_headers(left)]
    assert [header.base_offset for header in kept] == [first - 2, first, end - 2, end - 1]
    assert CASES[name].records[61:] in left
    log.append(keyed(("d", "1")), now_ms=0)
    log.roll()
    assert compact(log) == reasons


def test_compacted_and_deleted(tmp_path: Path, syncer: Syncer) -> None:
    config = dataclasses.replace(COMPACTED, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000)
    log = open_compacted(tmp_path / "t-0", syncer, config)
    fill(log, 10, ["a", "b"], timestamp_ms=1000)
    log.roll()
    fill(log, 10, ["c", "a"], timestamp_ms=5000)
    log.roll()
    compact(log, now_ms=5500)
    assert [key for _, key, _ in pairs_of(log)] == ["b", "c", "a"]
    log.apply_retention(now_ms=7000)
    assert pairs_of(log) == []
    assert log.log_start_offset == log.log_end_offset == 40


def test_gaps_are_no_damage_below_the_recovery_point(tmp_path: Path, syncer: Syncer) -> None:
    log = open_compacted(tmp_path / "t-0", syncer)
    fill(log, 30, ["a", "b"])
    log.roll()
    compact(log)
    log.append(keyed(("c", "1")), now_ms=0)
    log.abandon()
    again = open_compacted(tmp_path / "t-0", syncer, clean=False)
    assert [offset for offset, _, _ in pairs_of(again)] == [58, 59, 60]
    again.abandon()
    (tmp_path / "t-0" / "checkpoint").unlink()
    for index in (tmp_path / "t-0").glob("*.index"):
        index.unlink()
    try:
        blind = open_compacted(tmp_path / "t-0", syncer, clean=False)
    except CorruptLogError as error:
        raise AssertionError("a lost checkpoint must not make a compacted log corrupt") from error
    assert [offset for offset, _, _ in pairs_of(blind)] == [58, 59, 60]
