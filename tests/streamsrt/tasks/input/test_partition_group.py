from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamsrt.tasks.input.partition_group import SHORT_RUN_RECORDS, MergedRun, PartitionGroup, Run
from streamsrt.wire.records import RecordColumns

A, B = ("a", 0), ("b", 0)


def batch(timestamps: list[int], offset: int = 0) -> RecordColumns:
    values: list[bytes | None] = [b"%d" % (offset + i) for i in range(len(timestamps))]
    return RecordColumns([None] * len(timestamps), values, list(timestamps), offset, offset + len(timestamps))


def drain(group: PartitionGroup, limit: int) -> list[tuple[str, int, bytes | None]]:
    taken = []
    while (run := group.next_run(limit)) is not None:
        assert 0 < len(run) <= limit
        columns = run.columns
        taken += [(run.topic_partition[0], t, v) for t, v in zip(columns.timestamps, columns.values, strict=True)]
    return taken


def test_a_run_ends_where_another_partition_comes_first() -> None:
    group = PartitionGroup([A, B])
    group.add(A, batch([1, 2, 8]))
    group.add(B, batch([5, 6]))
    runs = []
    while (run := group.next_run(100)) is not None:
        runs.append((run.topic_partition[0], run.columns.timestamps, run.columns.base_offset, run.columns.next_offset))
    assert runs == [("a", [1, 2], 0, 2), ("b", [5, 6], 0, 2), ("a", [8], 2, 3)]


def test_at_equal_timestamps_the_partition_that_was_added_first_comes_first() -> None:
    group = PartitionGroup([A, B])
    group.add(A, batch([5, 5]))
    group.add(B, batch([4, 5, 5, 6]))
    assert [(topic, time) for topic, time, _ in drain(group, 100)] == [
        ("b", 4),
        ("a", 5),
        ("a", 5),
        ("b", 5),
        ("b", 5),
        ("b", 6),
    ]


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), max_size=4),
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), max_size=4),
    st.integers(1, 5),
)
def test_the_order_is_that_of_record_at_a_time(left: list[list[int]], right: list[list[int]], limit: int) -> None:
    by_run, by_record = PartitionGroup([A, B]), PartitionGroup([A, B])
    for group in (by_run, by_record):
        for partition, batches in ((A, left), (B, right)):
            offset = 0
            for timestamps in batches:
                group.add(partition, batch(timestamps, offset))
                offset += len(timestamps)
    total = sum(map(len, left)) + sum(map(len, right))
    assert by_run.buffered == total
    runs, records = drain(by_run, limit), drain(by_record, 1)
    assert by_run.buffered == 0
    assert runs == records


Taken = tuple[str, int, bytes | None]


def always() -> bool:
    return True


def take_merged(group: PartitionGroup, limit: int, stop: int | None = None) -> list[Taken] | None:
    """The next records; those from ``stop`` on are put back."""
    run = group.next_merged(limit, always)
    if run is None:
        return None
    columns = run.columns
    assert 0 < len(run) <= limit
    if isinstance(run, MergedRun):
        counts = columns.counts(len(run) if stop is None else stop)
        assert [len(part) for part in run.columns.parts] == run.columns.counts(len(run))
        for partition, part, count in zip(run.topic_partitions, run.columns.parts, counts, strict=True):
            if count < len(part):
                group.put_back(partition, part.cut(count))
        names = [run.topic_partitions[origin][0] for origin in run.columns.origins]
        assert [columns.offset_at(index) for index in range(len(run))] == [int(v or b"") for v in columns.values]
    else:
        names = [run.topic_partition[0]] * len(run)
        if stop is not None and stop < len(run):
            group.put_back(run.topic_partition, run.columns.cut(stop))
    return list(zip(names, columns.timestamps, columns.values, strict=True))[:stop]


batches = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=20), max_size=3)


@given(st.lists(batches, min_size=2, max_size=4), st.sampled_from((2, 3, 7, 100)), st.integers(1, 8))
def test_records_of_several_partitions_come_in_the_same_order(
    inputs: list[list[list[int]]], limit: int, added_at: int
) -> None:
    """The last partition gets its records, and something is put back, when some were taken out."""
    partitions = [(name, 0) for name in "abcd"[: len(inputs)]]
    late = partitions[-1]
    ordered = [(partition, some) for partition, some in zip(partitions, inputs, strict=True)]
    found: list[list[Taken]] = []
    for merges in (True, False):
        group, taken = PartitionGroup(partitions), list[Taken]()
        for partition, some in ordered:
            if partition != late:
                fill(group, partition, some)
        taken += (take_merged(group, limit, 1) if merges else drain_one(group)) or []
        while len(taken) < added_at and (more := take_merged(group, added_at, 1) if merges else drain_one(group)):
            taken += more
        fill(group, late, inputs[-1])
        while (more := take_merged(group, limit) if merges else drain_one(group)) is not None:
            taken += more
        assert group.buffered == 0
        found.append(taken)
    assert found[0] == found[1]


def drain_one(group: PartitionGroup) -> list[Taken] | None:
    run = group.next_run(1)
    return None if run is None else [(run.topic_partition[0], run.columns.timestamps[0], run.columns.values[0])]


def fill(group: PartitionGroup, partition: tuple[str, int], some: list[list[int]]) -> None:
    offset = 0
    for timestamps in some:
        group.add(partition, batch(timestamps, offset))
        offset += len(timestamps)


def test_a_merged_run_ends_with_a_batch_since_what_follows_is_not_known() -> None:
    group = PartitionGroup([A, B])
    group.add(A, batch([1, 3, 5, 7]))
    group.add(B, batch([2, 4, 5]))
    run = group.next_merged(100, always)
    assert isinstance(run, MergedRun)
    assert run.topic_partitions == [A, B]
    assert list(run.columns.timestamps) == [1, 2, 3, 4, 5, 5]
    assert list(run.columns.origins) == [0, 1, 0, 1, 0, 1]
    assert [(part.base_offset, part.next_offset) for part in run.columns.parts] == [(0, 3), (0, 3)]
    assert group.buffered == 1


def test_long_runs_are_not_merged_nor_is_anything_where_nobody_can() -> None:
    group = PartitionGroup([A, B])
    group.add(A, batch([*range(SHORT_RUN_RECORDS), 90]))
    group.add(B, batch([50, 100]))
    run = group.next_merged(100, always)
    assert not isinstance(run, MergedRun)
    assert run is not None
    assert len(run) == SHORT_RUN_RECORDS
    run = group.next_merged(100, lambda: False)
    assert not isinstance(run, MergedRun)
    assert run is not None
    assert (run.topic_partition, run.columns.timestamps) == (B, [50])


def test_headers_of_some_are_none_of_others() -> None:
    group = PartitionGroup([A, B])
    group.add(A, batch([1, 3]))
    with_headers = batch([2, 4])
    with_headers.headers = [(("h", b"1"),), ()]
    group.add(B, with_headers)
    run = group.next_merged(100, always)
    assert isinstance(run, MergedRun)
    assert run.columns.headers == ((), (("h", b"1"),), ())


def test_what_is_put_back_comes_first() -> None:
    group = PartitionGroup([A])
    group.add(A, batch([1, 2, 3]))
    run = group.next_run(2)
    assert run is not None
    group.put_back(A, run.columns.cut(1))
    assert group.buffered == 2
    assert drain(group, 10) == [("a", 2, b"1"), ("a", 3, b"2")]


def test_a_partition_of_which_nothing_is_known_yet_is_waited_for() -> None:
    """What it has may be older: rows of a table, of the time before a stream began."""
    group = PartitionGroup([A, B])
    group.wait_for([A, B])
    group.note_high_watermark(A, 2)
    group.add(A, batch([5, 6]))
    assert not group.is_ready(0)
    group.note_high_watermark(B, 7, 5)
    assert not group.is_ready(0), "it has two more"
    group.add(B, batch([1, 2], 5))
    assert group.is_ready(0)
    assert [(topic, time) for topic, time, _ in drain(group, 100)] == [("b", 1), ("b", 2), ("a", 5), ("a", 6)]
    group.add(A, batch([9], 2))
    assert group.is_ready(0)


def test_a_partition_that_has_nothing_is_not_waited_for() -> None:
    group = PartitionGroup([A, B])
    group.wait_for([A, B])
    group.add(A, batch([5]))
    group.note_high_watermark(A, 1)
    group.note_high_watermark(B, 7, 7)
    assert group.is_ready(0)


def test_an_input_without_records_is_waited_for_once() -> None:
    group = PartitionGroup([A, B], 50)
    group.add(A, batch([5, 3, 4]))
    assert [group.is_ready(now) for now in (100, 149, 150)] == [False, False, True]
    assert group.next_run(10) is not None
    assert not group.is_ready(151)
    group.add(A, batch([2, 1]))
    assert group.is_ready(152), "B has still none"
    group.add(B, batch([9]))
    assert group.is_ready(153)
    while group.next_run(10) is not None:
        pass
    group.add(A, batch([7]))
    assert [group.is_ready(now) for now in (160, 209, 210)] == [False, False, True], "B had some meanwhile"
    group.clear()
    group.add(A, batch([8]))
    assert not group.is_ready(211)


def test_readiness_follows_max_task_idle_ms() -> None:
    never, known, patient = (PartitionGroup([A, B], idle) for idle in (-1, 0, 50))
    for group in (never, known, patient):
        assert not group.is_ready(0)
        group.add(A, batch([1]))
    assert never.is_ready(0)
    assert known.is_ready(0)
    known.note_high_watermark(B, 7)
    assert not known.is_ready(10**9)
    known.add(B, RecordColumns([], [], [], 7, 7))
    assert known.is_ready(0)
    assert [patient.is_ready(now) for now in (100, 149, 150)] == [False, False, True]
    patient.add(B, batch([1]))
    assert patient.is_ready(0)


rows_of_a_batch = st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=12)


@given(rows_of_a_batch, rows_of_a_batch, st.integers(1, 20), st.booleans())
def test_unreadable_records_do_not_change_the_order_of_the_others(
    left: list[tuple[int, bool]], right: list[tuple[int, bool]], limit: int, merges: bool
) -> None:
    rows = {A: left, B: right}
    given = PartitionGroup([A, B], is_unreadable=lambda tp, columns, i: rows[tp][columns.offset_at(i)][1])
    without = PartitionGroup([A, B])
    for partition, some in rows.items():
        given.add(partition, batch([ms for ms, _ in some]))
        without.add(partition, batch([ms for ms, is_bad in some if not is_bad]))
    taken = list[tuple[str, int]]()
    while (run := given.next_merged(limit, lambda: merges)) is not None:
        parts = [run.topic_partition] if isinstance(run, Run) else run.topic_partitions
        origins = [0] * len(run) if isinstance(run, Run) else run.columns.origins
        offsets = [run.columns.offset_at(i) for i in range(len(run))]
        each = [(parts[origin], offset) for origin, offset in zip(origins, offsets, strict=True)]
        taken += [(tp[0], rows[tp][offset][0]) for tp, offset in each if not rows[tp][offset][1]]
    assert taken == [(topic, ms) for topic, ms, _ in drain(without, 1)]
