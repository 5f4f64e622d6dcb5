"""What a coordinator reads back of its log."""

from __future__ import annotations

from coordinator.shard.journal import JournalBatch, append_marker, append_rows, latest_rows, read_journal
from streamsrt.wire.records import ControlRecord, ControlType
from tests.coordinator.group.memory_log import MemoryLog


def test_of_the_rows_of_a_key_the_last_one_is_read() -> None:
    log = MemoryLog()
    append_rows(log, [b"a", b"b"], [b"1", b"1"], 0)
    append_rows(log, [b"c"], [b"1"], 0)
    append_rows(log, [b"a"], [None], 0)
    append_rows(log, [b"b", b"b"], [b"2", b"3"], 0)
    assert [batch.rows for batch in latest_rows(log)] == [[(b"c", b"1")], [(b"a", None)], [(b"b", b"3")]]
    assert sum(len(batch.rows) for batch in read_journal(log)) == 6


def test_transactions_stay_in_their_place() -> None:
    log = MemoryLog()
    append_rows(log, [b"a"], [b"before"], 0)
    append_rows(log, [b"a"], [b"within"], 0, (7, 0))
    append_rows(log, [b"b"], [b"between"], 0)
    append_marker(log, ControlRecord(ControlType.COMMIT, 7, 0, 0), 0)
    append_rows(log, [b"b"], [b"after"], 0)
    assert list(latest_rows(log)) == [
        JournalBatch(-1, None, [(b"a", b"before")]),
        JournalBatch(7, None, [(b"a", b"within")]),
        JournalBatch(7, ControlType.COMMIT, []),
        JournalBatch(-1, None, [(b"b", b"after")]),
    ]


def test_many_transactions_are_not_held_all_at_once() -> None:
    log = MemoryLog()
    append_rows(log, [b"a"], [b"first"], 0)
    for _ in range(20_001):
        append_marker(log, ControlRecord(ControlType.ABORT, 7, 0, 0), 0)
    append_rows(log, [b"a"], [b"last"], 0)
    found = list(latest_rows(log))
    assert (found[0].rows, found[-1].rows) == ([(b"a", b"first")], [(b"a", b"last")])
    assert len(found) == 20_003
