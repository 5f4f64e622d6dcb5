"""The order in which a task replays its input partitions.

1. Live, a task takes the record with the lowest head timestamp among its input partitions, at equal timestamps that of the
   partition that comes first. That equals sorting all records by (running maximum of the timestamps within the partition,
   index of the partition in ``source_partitions``, offset): after a head with timestamp t was taken, every following record
   of its partition up to the next one later than t comes before all other heads, which are at t or later.
2. :func:`merge` is that order without a sort, by the live task's own partition group.
3. A repartition partition is read as one log for each task that writes it, merged by the same rule: the order in which the
   writers' records would have come had all of them kept pace by event time. It is one of the orders that a live run may have
   had, and always the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from streamsrt.tasks.input.partition_group import PartitionGroup, TopicPartition
from streamsrt.wire.records import RecordColumns

Inputs = Mapping[TopicPartition, Iterator[RecordColumns]]
"""The batches of each input partition in offset order. The order of the mapping is that of the partitions."""

RUN_RECORDS = 4_000


def merge(inputs: Inputs, limit_records: int = RUN_RECORDS) -> Iterator[tuple[TopicPartition, RecordColumns]]:
    """Everything of all inputs, in runs of one partition, in the order of the module's first rule."""
    group = PartitionGroup(inputs, max_task_idle_ms=-1)
    left = dict(inputs)
    while True:
        for tp in [tp for tp in left if not group.buffered_of(tp)]:
            columns = next(left[tp], None)
            while columns is not None and not len(columns):
                columns = next(left[tp], None)
            if columns is None:
                del left[tp]
            else:
                group.add(tp, columns)
        run = group.next_run(limit_records)
        if run is None:
            return
        yield run.topic_partition, run.columns


def as_one_log(runs: Iterator[tuple[TopicPartition, RecordColumns]], offset: int = 0) -> Iterator[RecordColumns]:
    """The same records as one partition, with offsets from ``offset`` on."""
    for _, columns in runs:
        end = offset + len(columns)
        yield RecordColumns(columns.keys, columns.values, columns.timestamps, offset, end, None, columns.headers)
        offset = end


class Overtaken:
    """Counts the records that :func:`merge` over all records would have put, by their own timestamps, before the end of the
    earlier merge. ``times``: the partition times at that end, in the order of the partitions."""

    def __init__(self, times: Mapping[TopicPartition, int]) -> None:
        self.records = 0
        self._reached = dict(times)
        places = {tp: (ms, index) for index, (tp, ms) in enumerate(times.items())}
        self._index = {tp: index for tp, (_, index) in places.items()}
        self._ends = {
            tp: max((place for other, place in places.items() if other != tp), default=(-1, -1)) for tp in places
        }

    def add(self, tp: TopicPartition, timestamps: Sequence[int]) -> None:
        """Takes the next records of a partition."""
        end = self._ends.get(tp)
        if end is None:
            return
        reached, index = self._reached[tp], self._index[tp]
        for timestamp in timestamps:
            reached = max(reached, timestamp)
            if (reached, index) > end:
                # So is everything that follows.
                del self._ends[tp]
                return
            self.records += 1
        self._reached[tp] = reached

    def watch(self, tp: TopicPartition, batches: Iterator[RecordColumns]) -> Iterator[RecordColumns]:
        """The same batches of a partition, taken as they are read."""
        for columns in batches:
            self.add(tp, columns.timestamps)
            yield columns
