"""Changelogs that are read to their end, or for ever."""

from __future__ import annotations

from streamsrt.client.values import Fetched
from streamsrt.tasks.restore.changelog_work import Applied, Apply, ChangelogWork, Failed, Followed
from streamsrt.tasks.restore.listeners import NO_RESTORE_LISTENER, NO_STANDBY_LISTENER, RestoreListener, StandbyListener
from streamsrt.tasks.restore.progress import ChangelogProgress, Restorer
from streamsrt.wire.records import RecordColumns, encode_batch

PLACE = ("app-counts-changelog", 3)


def fetched(keys: list[bytes], offset: int, next_offset: int, high_watermark: int = 9) -> Fetched:
    data = bytearray(encode_batch(list(keys), list(keys), [1] * len(keys)))
    data[:8] = offset.to_bytes(8, "big")
    return Fetched(*PLACE, memoryview(bytes(data)), offset, next_offset, high_watermark, high_watermark, 0)


class Reading:
    """One changelog: who applies it and who is told. :meth:`restore` says whether it is at its end."""

    def __init__(
        self,
        progress: ChangelogProgress,
        apply: Apply = lambda _columns: None,
        on_restore: RestoreListener = NO_RESTORE_LISTENER,
        on_standby: StandbyListener = NO_STANDBY_LISTENER,
    ) -> None:
        self.work = ChangelogWork()
        self.restorer = Restorer(on_restore, on_standby)
        self.restorer.add(progress, "sub_3")
        self.work.follow(Followed(progress.changelog, progress.position, progress.end_offset, apply))

    def restore(self, fetch: Fetched) -> bool:
        self.work.take([fetch])
        while self.work.has_work:
            self.work.step()
        done = False
        for report in self.work.reports.take():
            if isinstance(report, Failed):
                raise report.error
            assert isinstance(report, Applied)
            done = self.restorer.applied(report)
        return done


def test_an_active_tasks_changelog_is_read_to_the_end_that_was_taken() -> None:
    applied: list[RecordColumns] = []
    progress = ChangelogProgress("counts", PLACE, 4, 4, 8)
    reading = Reading(progress, applied.append)
    assert progress.remaining_records == 4
    assert not reading.restore(fetched([b"a", b"b"], 4, 6))
    assert progress.remaining_records == 2
    assert reading.restore(fetched([b"c", b"d"], 6, 8))
    assert [key for columns in applied for key in columns.keys] == [b"a", b"b", b"c", b"d"]
    assert (progress.position, progress.restored_records, progress.remaining_records) == (8, 4, 0)
    assert progress.restored_bytes > 0


def test_a_standby_follows_for_ever() -> None:
    applied: list[RecordColumns] = []
    progress = ChangelogProgress("counts", PLACE, 0, 0, None, 9)
    reading = Reading(progress, applied.append)
    assert progress.remaining_records == 9, "the end that was known at the start"
    assert not reading.restore(fetched([b"a"] * 9, 0, 9, 12))
    assert progress.remaining_records == 3
    assert not progress.is_done


def test_compaction_may_leave_nothing_between_the_position_and_the_end() -> None:
    reading = Reading(ChangelogProgress("counts", PLACE, 0, 0, 9))
    assert reading.restore(fetched([b"a"], 5, 9)), "one record stands for all that was compacted away"


def test_what_comes_after_the_end_of_following_is_passed_over() -> None:
    applied: list[RecordColumns] = []
    reading = Reading(ChangelogProgress("counts", PLACE, 0, 0, None), applied.append)
    restorer = reading.restorer
    assert restorer.partitions == (PLACE,)
    assert reading.work.release(PLACE) is None
    left = restorer.remove(PLACE)
    assert left is not None
    assert left.position == 0
    assert restorer.remove(PLACE) is None
    late = fetched([b"a"], 0, 1)
    reading.work.take([late])
    assert reading.work.step() is None
    assert reading.work.reports.take() == [late], "whoever is told may know whose it is"
    assert (applied, len(restorer)) == ([], 0)


def test_what_lies_behind_the_end_is_not_applied() -> None:
    applied: list[RecordColumns] = []
    progress = ChangelogProgress("counts", PLACE, 0, 0, 2)
    reading = Reading(progress, applied.append)
    assert reading.restore(fetched([b"a", b"b", b"c"], 0, 3))
    assert [(columns.keys, columns.next_offset) for columns in applied] == [([b"a", b"b"], 2)]
