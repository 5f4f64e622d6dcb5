"""Changelogs that are read to their end, or for ever."""

from __future__ import annotations

from streamsrt.client.values import Fetched
from streamsrt.tasks.restore import ChangelogProgress, Restorer
from streamsrt.wire.records import RecordColumns, encode_batch

PLACE = ("app-counts-changelog", 3)


def fetched(keys: list[bytes], offset: int, next_offset: int, high_watermark: int = 9) -> Fetched:
    data = bytearray(encode_batch(list(keys), list(keys), [1] * len(keys)))
    data[:8] = offset.to_bytes(8, "big")
    return Fetched(*PLACE, memoryview(bytes(data)), offset, next_offset, high_watermark, high_watermark, 0)


def test_an_active_tasks_changelog_is_read_to_the_end_that_was_taken() -> None:
    applied: list[RecordColumns] = []
    restorer = Restorer()
    progress = ChangelogProgress("counts", PLACE, 4, 4, 8)
    restorer.add(progress, applied.append)
    assert progress.remaining_records == 4
    assert not restorer.restore(fetched([b"a", b"b"], 4, 6))
    assert progress.remaining_records == 2
    assert restorer.restore(fetched([b"c", b"d"], 6, 8))
    assert [key for columns in applied for key in columns.keys] == [b"a", b"b", b"c", b"d"]
    assert (progress.position, progress.restored_records, progress.remaining_records) == (8, 4, 0)
    assert progress.restored_bytes > 0


def test_a_standby_follows_for_ever() -> None:
    applied: list[RecordColumns] = []
    restorer = Restorer()
    progress = ChangelogProgress("counts", PLACE, 0, 0, None, 9)
    restorer.add(progress, applied.append)
    assert progress.remaining_records == 9, "the end that was known at the start"
    assert not restorer.restore(fetched([b"a"] * 9, 0, 9, 12))
    assert progress.remaining_records == 3
    assert not progress.is_done


def test_compaction_may_leave_nothing_between_the_position_and_the_end() -> None:
    restorer = Restorer()
    restorer.add(ChangelogProgress("counts", PLACE, 0, 0, 9), lambda _columns: None)
    assert restorer.restore(fetched([b"a"], 5, 9)), "one record stands for all that was compacted away"


def test_what_comes_after_the_end_of_following_is_passed_over() -> None:
    applied: list[RecordColumns] = []
    restorer = Restorer()
    restorer.add(ChangelogProgress("counts", PLACE, 0, 0, None), applied.append)
    assert restorer.partitions == (PLACE,)
    left = restorer.remove(PLACE)
    assert left is not None
    assert left.position == 0
    assert restorer.remove(PLACE) is None
    assert not restorer.restore(fetched([b"a"], 0, 1))
    assert (applied, len(restorer)) == ([], 0)


def test_what_lies_behind_the_end_is_not_applied() -> None:
    applied: list[RecordColumns] = []
    restorer = Restorer()
    progress = ChangelogProgress("counts", PLACE, 0, 0, 2)
    restorer.add(progress, applied.append)
    assert restorer.restore(fetched([b"a", b"b", b"c"], 0, 3))
    assert [(columns.keys, columns.next_offset) for columns in applied] == [([b"a", b"b"], 2)]
