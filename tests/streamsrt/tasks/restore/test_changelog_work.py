"""Changelogs that are applied step by step: what is applied when, and what is told of it."""

from __future__ import annotations

from streamsrt.client.values import Fetched, FetchError, OffsetOutOfRangeError
from streamsrt.errors import StateError
from streamsrt.tasks.restore.changelog_work import Applied, ChangelogWork, Failed, Followed, Reports
from streamsrt.wire.records import ControlRecord, ControlType, RecordColumns, encode_batch, encode_control_batch

A, B = ("log", 0), ("log", 1)


class Stores:
    """What was applied, by changelog, as offsets. ``broken``: applying to these raises."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], list[int]] = {A: [], B: []}
        self.broken: set[tuple[str, int]] = set()

    def follow(self, work: ChangelogWork, tp: tuple[str, int], position: int = 0, end: int | None = None) -> None:
        def apply(columns: RecordColumns) -> None:
            if tp in self.broken:
                raise StateError("disk full")
            self.offsets[tp] += [columns.offset_at(index) for index in range(len(columns))]

        work.follow(Followed(tp, position, end, apply))


class Told:
    """A store that is told of the beginning and the end of its restore."""

    def __init__(self) -> None:
        self.calls: list[int | str] = []

    def begin_restoring(self, records: int) -> None:
        self.calls.append(records)

    def end_restoring(self) -> None:
        self.calls.append("end")


def fetch(tp: tuple[str, int], *batches: tuple[int, int], offset: int | None = None) -> Fetched:
    """Batches as (first offset, how many records)."""
    data = b""
    for first, count in batches:
        batch = bytearray(encode_batch([b"k"] * count, [b"v"] * count, [1] * count))
        batch[:8] = first.to_bytes(8, "big")
        data += bytes(batch)
    end = batches[-1][0] + batches[-1][1]
    return Fetched(*tp, memoryview(data), batches[0][0] if offset is None else offset, end, 99, 99, 0)


def ended(work: ChangelogWork) -> tuple[str, int] | None:
    """Makes a step; the changelog that needs no more fetching after it."""
    step = work.step()
    return step.changelog if step is not None and step.is_over else None


def run(work: ChangelogWork) -> None:
    while work.has_work:
        work.step()


def test_a_step_ends_with_the_batch_that_makes_it_long_enough() -> None:
    work, stores = ChangelogWork(step_records=4), Stores()
    stores.follow(work, A)
    work.take([fetch(A, (0, 3), (3, 3), (6, 2))])
    assert work.step() == (A, False, 6, False)
    assert (stores.offsets[A], work.position(A), work.has_work) == ([0, 1, 2, 3, 4, 5], 6, True)
    work.step()
    assert (stores.offsets[A], work.position(A), work.has_work) == (list(range(8)), 8, False)


def test_what_is_released_between_two_steps_is_not_applied_any_more() -> None:
    work, stores = ChangelogWork(step_records=1), Stores()
    stores.follow(work, A)
    taken = fetch(A, (0, 2), (2, 2))
    work.take([taken])
    work.step()
    assert work.release(A) == Applied(A, 2, 99, 2, 0), "what nobody has been told of"
    run(work)
    assert stores.offsets[A] == [0, 1]
    assert work.reports.take() == []


def test_what_was_fetched_for_one_life_is_not_applied_to_the_next() -> None:
    work, stores = ChangelogWork(step_records=1), Stores()
    stores.follow(work, A)
    work.take([fetch(A, (0, 2), (2, 2)), fetch(A, (4, 2))])
    work.step()
    work.release(A)
    stores.offsets[A].clear()
    stores.follow(work, A)
    work.take([fetch(A, (0, 1))])
    run(work)
    assert stores.offsets[A] == [0]
    assert work.reports.take() == [Applied(A, 1, 99, 1, len(fetch(A, (0, 1)).buffer))]


def test_an_error_is_told_and_ends_only_the_changelog_that_it_is_about() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A)
    stores.follow(work, B)
    stores.broken.add(A)
    work.take([fetch(A, (0, 2)), fetch(B, (0, 2)), fetch(A, (2, 2))])
    assert ended(work) == A, "it needs no more fetching"
    stores.broken.clear()
    run(work)
    assert stores.offsets == {A: [], B: [0, 1]}
    told = work.reports.take()
    assert [each.changelog for each in told if isinstance(each, Applied) and each.records] == [B]
    (failed,) = [each for each in told if isinstance(each, Failed)]
    assert (failed.changelog, failed.offset, str(failed.error)) == (A, 0, "disk full")


def test_what_the_broker_refuses_is_told() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A)
    refused: FetchError = OffsetOutOfRangeError("gone", 1)
    work.take([Fetched(*A, memoryview(b""), 7, 7, 0, 0, 0, error=refused)])
    assert ended(work) == A
    assert work.reports.take() == [Failed(A, 7, refused)]


def test_a_batch_that_is_broken_is_told_after_what_lies_before_it() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A)
    whole = fetch(A, (0, 2), (2, 2), (4, 2))
    data = bytearray(whole.buffer)
    data[-1] ^= 1
    work.take([Fetched(*A, memoryview(bytes(data)), 0, 6, 99, 99, 0)])
    run(work)
    applied, failed = work.reports.take()
    assert stores.offsets[A] == [0, 1, 2, 3]
    assert isinstance(applied, Applied)
    assert (applied.position, applied.records) == (4, 4)
    assert isinstance(failed, Failed)
    assert "CRC" in str(failed.error)


def test_many_changelogs_are_at_work_at_once() -> None:
    work, stores = ChangelogWork(step_records=1), Stores()
    stores.follow(work, A, end=4)
    stores.follow(work, B, end=2)
    work.take([fetch(A, (0, 2)), fetch(B, (0, 2)), fetch(A, (2, 2))])
    partitions = [ended(work) for _ in range(6)]
    assert [tp for tp in partitions if tp is not None] == [B, A], "the one does not wait for the other"
    assert stores.offsets == {A: [0, 1, 2, 3], B: [0, 1]}


def test_nothing_is_applied_behind_the_end() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A, end=3)
    work.take([fetch(A, (0, 2), (2, 2), (4, 2)), fetch(A, (6, 2))])
    run(work)
    assert stores.offsets[A] == [0, 1, 2]


def test_reports_of_a_changelog_add_up_until_they_are_taken() -> None:
    reports = Reports()
    reports.add(Applied(A, 2, 9, 2, 10))
    reports.add(Applied(B, 1, 9, 1, 10))
    reports.add(Applied(A, 5, 12, 3, 30))
    broken = Failed(A, 5, StateError("x"))
    reports.add(broken)
    assert reports.take() == [Applied(A, 5, 12, 5, 40), Applied(B, 1, 9, 1, 10), broken]
    assert not reports
    reports.add(broken)
    reports.add(Applied(A, 6, 12, 1, 5))
    assert reports.drop(A) == Applied(A, 6, 12, 1, 5)
    assert reports.take() == []


# ------------------------------------------------------------------------------- compaction, transactions, expired offsets


def transactional(first: int, count: int, producer_id: int) -> bytes:
    return encode_batch(
        [b"k"] * count,
        [b"v"] * count,
        [1] * count,
        base_offset=first,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=first,
        transactional=True,
    )


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return encode_control_batch(ControlRecord(kind, producer_id, 0, 0), timestamp_ms=1, base_offset=offset)


def test_what_was_aborted_is_not_applied_and_markers_are_passed() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A, end=7)
    data = transactional(0, 2, 1) + transactional(2, 2, 2)
    data += marker(4, 2, ControlType.ABORT) + marker(5, 1, ControlType.COMMIT) + marker(6, 3, ControlType.COMMIT)
    work.take([Fetched(*A, memoryview(data), 0, 7, 7, 7, 0, ((2, 2),))])
    assert ended(work) == A, "the markers at the end are a part of the changelog's end"
    assert stores.offsets[A] == [0, 1]
    (told,) = work.reports.take()
    assert isinstance(told, Applied)
    assert (told.position, told.records) == (7, 2)


def test_nothing_but_markers_moves_the_position() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A, end=2)
    data = marker(0, 2, ControlType.ABORT) + marker(1, 1, ControlType.COMMIT)
    work.take([Fetched(*A, memoryview(data), 0, 2, 2, 2, 0, ())])
    assert ended(work) == A
    assert (stores.offsets[A], work.position(A)) == ([], 2)


def test_a_standby_knows_the_end_of_what_is_decided() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A)
    work.take([Fetched(*A, memoryview(transactional(0, 2, 1)), 0, 2, 9, 5, 0, ())])
    run(work)
    (told,) = work.reports.take()
    assert isinstance(told, Applied)
    assert told.high_watermark == 5, "what lies behind the last stable offset can't be read yet"


def test_compaction_leaves_gaps_within_batches_between_them_and_at_the_end() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A, end=20)
    thinned = encode_batch([b"a", b"b"], [b"1", b"2"], [1, 1], base_offset=2, offsets=[3, 6], last_offset=8)
    last = encode_batch([b"c"], [b"3"], [1], base_offset=12, offsets=[12], last_offset=19)
    work.take([Fetched(*A, memoryview(thinned + last), 0, 20, 20, 20, 0)])
    assert ended(work) == A, "the last records were compacted away"
    assert (stores.offsets[A], work.position(A)) == ([3, 6, 12], 20)


def test_a_fetch_whose_records_are_all_compacted_away_moves_the_position() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A, position=3, end=9)
    work.take([Fetched(*A, memoryview(b""), 3, 9, 9, 9, 0)])
    assert ended(work) == A, "else it would be fetched for ever"
    assert (stores.offsets[A], work.position(A)) == ([], 9)
    (told,) = work.reports.take()
    assert told == Applied(A, 9, 9, 0, 0)


def test_a_fetch_that_brings_nothing_does_not_take_the_position_back() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A, position=5)
    work.take([Fetched(*A, memoryview(b""), 3, 3, 9, 9, 0)])
    run(work)
    assert work.position(A) == 5


def test_the_position_does_not_pass_the_end_of_a_source_topic_that_serves_as_changelog() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A, end=3)
    work.take([fetch(A, (0, 2), (2, 2), (4, 2))])
    assert ended(work) == A
    assert (stores.offsets[A], work.position(A)) == ([0, 1, 2], 3), "what lies behind it was not restored"


def test_a_step_says_what_it_was_for() -> None:
    work, stores = ChangelogWork(), Stores()
    stores.follow(work, A, end=2)
    stores.follow(work, B)
    work.take([fetch(A, (0, 2)), fetch(B, (0, 3))])
    assert [work.step(), work.step(), work.step()] == [(A, True, 2, True), (B, False, 3, False), None]


def test_a_store_is_told_how_much_is_restored_and_when_it_is() -> None:
    work, active, standby = ChangelogWork(step_records=1), Told(), Told()
    work.follow(Followed(A, 2, 5, lambda columns: None, active))
    work.follow(Followed(B, 0, None, lambda columns: None, standby))
    work.take([fetch(A, (2, 2)), fetch(B, (0, 50))])
    run(work)
    assert (active.calls, standby.calls) == ([3], [99])
    work.take([fetch(A, (4, 1)), fetch(B, (50, 49))])
    run(work)
    assert (active.calls, standby.calls) == ([3, "end"], [99, "end"])
    work.take([fetch(B, (99, 1))])
    run(work)
    assert standby.calls == [99, "end"], "it has caught up already"
