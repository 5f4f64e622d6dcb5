from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.log import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    Syncer,
)
from coordinator.log.producer_state import SEQUENCE_MAX, ProducerState, sequence_after
from streamsrt.wire.records import ControlType, read_header
from tests.coordinator.log.batches import batch, marker, open_log, produced


class Log:
    """A producer state fed as the log does it: check, then apply at the next offset."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.end = 0

    def append(self, data: bytes, now_ms: int = 0) -> int | None:
        """The offset of the batch, or ``None`` if it was a duplicate."""
        header = read_header(data)
        if self.state.check(header) is not None:
            return None
        return self._apply(data, now_ms, aborts=False)

    def mark(self, producer_id: int, kind: ControlType, *, epoch: int = 0) -> None:
        data = marker(producer_id, kind, epoch=epoch)
        self.state.check_epoch(read_header(data))
        self._apply(data, 0, aborts=kind is ControlType.ABORT)

    def _apply(self, data: bytes, now_ms: int, *, aborts: bool) -> int:
        header, offset = read_header(data), self.end
        self.state.apply(header, offset, aborts=aborts, append_ms=now_ms)
        self.end = offset + header.last_offset_delta + 1
        return offset


def test_sequences_wrap_after_the_largest() -> None:
    assert sequence_after(SEQUENCE_MAX, 1) == 0
    assert sequence_after(SEQUENCE_MAX - 1, 3) == 1
    log = Log()
    assert log.append(produced(1, SEQUENCE_MAX - 1, 3)) == 0
    with pytest.raises(OutOfOrderSequenceError, match="expected 1 "):
        log.append(produced(1, 2))
    assert log.append(produced(1, SEQUENCE_MAX - 1, 3)) is None
    assert log.append(produced(1, 1)) == 3


def test_the_last_five_batches_are_duplicates_with_their_old_offset() -> None:
    log = Log()
    for i in range(7):
        log.append(produced(1, 2 * i, 2))
    for i in range(2, 7):
        found = log.state.check(read_header(produced(1, 2 * i, 2)))
        assert found is not None
        assert (found.base_offset, found.last_offset) == (2 * i, 2 * i + 1)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(produced(1, 2, 2))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(produced(1, 10, 1))


def test_a_gap_is_refused_and_changes_nothing() -> None:
    log = Log()
    log.append(produced(1, 0))
    with pytest.raises(OutOfOrderSequenceError, match="sent sequence 2, expected 1") as caught:
        log.append(produced(1, 2))
    assert caught.value.error_code == 45
    assert log.append(produced(1, 1)) == 1


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert Log().append(produced(1, 4711)) == 0


def test_a_higher_epoch_starts_at_zero_and_fences_the_lower() -> None:
    log = Log()
    log.append(produced(1, 0, epoch=3))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(produced(1, 1, epoch=4))
    assert log.append(produced(1, 0, epoch=4)) == 1
    with pytest.raises(InvalidProducerEpochError) as caught:
        log.append(produced(1, 1, epoch=3))
    assert caught.value.error_code == 47
    with pytest.raises(InvalidProducerEpochError):
        log.append(produced(1, 0, epoch=3))


def test_a_marker_with_a_higher_epoch_fences_as_well() -> None:
    log = Log()
    log.append(produced(1, 0, transactional=True))
    log.mark(1, ControlType.ABORT, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        log.append(produced(1, 1, transactional=True))
    with pytest.raises(InvalidProducerEpochError):
        log.mark(1, ControlType.COMMIT, epoch=0)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(produced(1, 1, epoch=1, transactional=True))
    assert log.append(produced(1, 0, epoch=1, transactional=True)) == 2


def test_a_plain_batch_within_a_transaction_is_refused() -> None:
    log = Log()
    log.append(produced(1, 0, transactional=True))
    with pytest.raises(InvalidTxnStateError, match="open since offset 0") as caught:
        log.append(produced(1, 1))
    assert caught.value.error_code == 48


def test_a_producer_without_a_sequence_is_refused() -> None:
    with pytest.raises(InvalidRecordError):
        Log().append(batch(b"a", producer_id=1, producer_epoch=0, base_sequence=-1))


def test_aborted_transactions_are_those_that_overlap_the_range() -> None:
    log = Log()
    spans = []
    for i in range(6):
        log.append(produced(1, i, transactional=True))
        log.append(produced(2, 2 * i, 2, transactional=True))
        first = log.end - 3
        kind = ControlType.ABORT if i % 2 else ControlType.COMMIT
        log.mark(1, kind)
        if kind is ControlType.ABORT:
            spans.append((1, first, log.end - 1))
        if i == 4:
            first_of_two = log.state.entries[2].transaction_first_offset
            log.mark(2, ControlType.ABORT)
            spans.append((2, first_of_two, log.end - 1))
    for start in range(log.end + 1):
        for end in range(start, log.end + 1):
            expected = {(p, first) for p, first, last in spans if last >= start and first < end}
            assert set(log.state.aborted_transactions(start, end)) >= expected
            assert all(first < end for _, first in log.state.aborted_transactions(start, end))
    log.state.forget_before(spans[0][2] + 1)
    assert (spans[0][0], spans[0][1]) not in log.state.aborted_transactions(0, log.end)


def test_the_last_stable_offset_is_the_oldest_open_transactions() -> None:
    log = Log()
    assert log.state.last_stable_offset(0) == 0
    for producer_id in (1, 2, 3):
        log.append(produced(producer_id, 0, transactional=True))
    log.mark(2, ControlType.COMMIT)
    assert log.state.last_stable_offset(log.end) == 0
    log.mark(1, ControlType.COMMIT)
    assert log.state.last_stable_offset(log.end) == 2
    log.mark(3, ControlType.ABORT)
    assert log.state.last_stable_offset(log.end) == log.end == 6
    log.mark(3, ControlType.ABORT)
    assert log.state.aborted_transactions(0, 10) == [(3, 2)], "a second marker ends nothing"


def test_silent_producers_expire_but_not_within_a_transaction() -> None:
    log = Log()
    log.append(produced(1, 0), now_ms=1000)
    log.append(produced(2, 0), now_ms=1500)
    log.append(produced(3, 0, transactional=True), now_ms=0)
    assert log.state.expire(2000, 1000) == 1
    assert set(log.state.entries) == {2, 3}


def test_a_snapshot_is_the_state_or_nothing(tmp_path: Path) -> None:
    log = Log()
    for i in range(9):
        log.append(produced(i % 3, 10 + i // 3, transactional=i % 3 == 1))
    log.mark(1, ControlType.ABORT)
    log.append(produced(1, 13, transactional=True))
    path = tmp_path / "s.snapshot"
    log.state.save(path, log.end)
    loaded = ProducerState.load(path)
    assert loaded is not None
    state, end = loaded
    assert end == log.end
    assert state.aborted_transactions(0, end) == log.state.aborted_transactions(0, end) == [(1, 1)]
    assert list(state.open_transactions()) == [(1, 10)]
    assert {pid: list(e.batches) for pid, e in state.entries.items()} == {
        pid: list(e.batches) for pid, e in log.state.entries.items()
    }
    content = path.read_bytes()
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        assert ProducerState.load(path) is None
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        assert ProducerState.load(path) is None


def test_a_duplicate_is_answered_with_its_old_offset_by_the_log(tmp_path: Path, syncer: Syncer) -> None:
    log = open_log(tmp_path / "t-0", syncer)
    log.append(batch(b"other"), now_ms=0)
    first = log.append(produced(5, 0, 3), now_ms=0)
    log.append(batch(b"other"), now_ms=0)
    again = log.append(produced(5, 0, 3), now_ms=0)
    assert again == first._replace(duplicate=True)
    assert log.log_end_offset == 5
    log.close()
