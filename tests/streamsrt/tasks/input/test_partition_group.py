from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamsrt.tasks.input.partition_group import PartitionGroup
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


def test_put_back_and_take_first() -> None:
    group = PartitionGroup([A])
    group.add(A, batch([1, 2, 3]))
    run = group.next_run(2)
    assert run is not None
    group.put_back(A, run.columns.cut(1))
    assert group.buffered == 2
    assert group.take_first(A).values == [b"1"]
    assert drain(group, 10) == [("a", 3, b"2")]


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
