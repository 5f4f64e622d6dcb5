from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.backfill.order import as_one_log, merge
from streamsrt.tasks.input.partition_group import PartitionGroup
from streamsrt.wire.records import RecordColumns

logs = st.lists(st.lists(st.integers(0, 12), max_size=25), min_size=1, max_size=4)
sizes = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def batches(partition: int, timestamps: Sequence[int], sizes: Sequence[int]) -> Iterator[RecordColumns]:
    """The partition's records, cut into batches of these sizes; each value says where its record lies."""
    start, turn = 0, 0
    while start < len(timestamps):
        part = timestamps[start : start + sizes[turn % len(sizes)]]
        values = [b"%d:%d" % (partition, start + index) for index in range(len(part))]
        yield RecordColumns([None] * len(part), list(values), list(part), start, start + len(part))
        start += len(part)
        turn += 1


def sorted_by_key(logs: Sequence[Sequence[int]]) -> list[bytes]:
    rows = [
        (latest, partition, offset)
        for partition, timestamps in enumerate(logs)
        for offset, latest in enumerate(accumulate(timestamps, max))
    ]
    return [b"%d:%d" % (partition, offset) for _, partition, offset in sorted(rows)]


@given(logs, sizes, st.integers(1, 9))
@settings(max_examples=300)
def test_the_order_is_the_sort_by_running_maximum_partition_and_offset(
    logs: list[list[int]], sizes: list[int], limit: int
) -> None:
    inputs = {("in", index): batches(index, timestamps, sizes) for index, timestamps in enumerate(logs)}
    merged = [value for _, columns in merge(inputs, limit) for value in columns.values]
    assert merged == sorted_by_key(logs)


@given(logs, sizes)
@settings(max_examples=200)
def test_the_order_is_that_of_a_live_task_to_which_everything_is_known(logs: list[list[int]], sizes: list[int]) -> None:
    group = PartitionGroup([("in", index) for index in range(len(logs))])
    for index, timestamps in enumerate(logs):
        for columns in batches(index, timestamps, sizes):
            group.add(("in", index), columns)
    taken: list[bytes | None] = []
    while (run := group.next_run(1)) is not None:
        taken += run.columns.values
    assert taken == sorted_by_key(logs)


@given(logs, sizes)
@settings(max_examples=50)
def test_one_log_out_of_several_has_consecutive_offsets(logs: list[list[int]], sizes: list[int]) -> None:
    inputs = {("in", index): batches(index, timestamps, sizes) for index, timestamps in enumerate(logs)}
    offsets = [columns.offset_at(index) for columns in as_one_log(merge(inputs)) for index in range(len(columns))]
    assert offsets == list(range(sum(map(len, logs))))
