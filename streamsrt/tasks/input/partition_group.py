"""The buffered input of a task, and the order in which it is processed.

1. Records of one partition are processed in the order of offsets. Between partitions, the one whose head record has the
   lowest timestamp comes first; at equal timestamps, the partition that was added first.
2. The unit is a :class:`Run`: consecutive records of one batch, up to the first one that is later than the head of
   another partition. This is the order of record-at-a-time processing, without looking at the other queues for each
   record. If such runs would be short, because the timestamps of the partitions alternate, a :class:`MergedRun` has
   records of several partitions in that order, if the caller accepts one. It ends with the last record of one of their
   batches: what follows is unknown until the next batch is looked at, or waited for.
3. A partition without records may still get older ones. ``max.task.idle.ms`` says whether to wait for them: -1: not at
   all; 0: as long as the broker is known to have records for it, or has not answered yet
   (:meth:`PartitionGroup.wait_for`); otherwise that much longer, and then no more until it has records again.
4. A record that can't be read and will be skipped does not hold back earlier ones behind it in its batch: it comes at once.
   Its timestamp may be as wrong as its value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate, chain
from typing import TypeAlias

from streamsrt.wire.records import RecordColumns
from streamsrt.wire.records.merged import MergedColumns

SHORT_RUN_RECORDS = 16
"""A shorter run costs more by itself than its records do when they are merged with others."""
_UNORDERED_RECORDS = 256
"""So many records at most are taken of a batch whose times are not in order: they are looked at anew for each run."""

TopicPartition: TypeAlias = tuple[str, int]
IsUnreadable: TypeAlias = Callable[[TopicPartition, RecordColumns, int], bool]
"""Whether the record with this index can't be read."""
_AT_ONCE = -1
"""The time of a record that comes before those of other partitions."""


class Run:
    """Records of one batch of one partition that are processed together."""

    __slots__ = ("columns", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, columns: RecordColumns) -> None:
        self.topic_partition = topic_partition
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns)


class MergedRun:
    """Records of several partitions that are processed together: those of each partition, and the order of all of them."""

    __slots__ = ("columns", "topic_partitions")

    def __init__(self, topic_partitions: list[TopicPartition], columns: MergedColumns) -> None:
        self.topic_partitions = topic_partitions
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns)


class _Queue:
    __slots__ = (
        "_is_unreadable",
        "batches",
        "fetched_to",
        "head",
        "high_watermark",
        "highest",
        "is_ordered",
        "position",
    )

    def __init__(self, is_unreadable: Callable[[RecordColumns, int], bool] | None = None) -> None:
        self._is_unreadable = is_unreadable
        self.batches: deque[RecordColumns] = deque()
        self.position = 0
        self.head: int | None = None
        self.highest = 0
        self.is_ordered: bool | None = None
        self.fetched_to = -1
        self.high_watermark = -1

    def open_batch(self, columns: RecordColumns) -> None:
        """Looks at the batch that is the first one now."""
        self.highest = -1
        self.is_ordered = None
        self.head = columns.first_timestamp if self._is_unreadable is None else self._readable_head()

    def _readable_head(self) -> int:
        return self._times_of_readable(self.position, self.position + 1)[0]

    def _times_of_readable(self, start: int, stop: int) -> list[int]:
        """Returns times of the first batch's records; unreadable ones that would hold others back come at once (rule 4)."""
        columns = self.batches[0]
        timestamps = columns.timestamps[start:stop]
        if self._is_unreadable is None or self._has_order():
            return timestamps
        latest = _AT_ONCE
        behind = columns.timestamps[start : start + _UNORDERED_RECORDS]
        is_one = len(timestamps) == 1
        lowest = [min(behind)] if is_one else list(accumulate(reversed(behind), min))[::-1]
        for index, timestamp in enumerate(timestamps):
            if timestamp > max(latest, lowest[index]) and self._is_unreadable(columns, start + index):
                timestamps[index] = _AT_ONCE
            else:
                latest = max(latest, timestamp)
        return timestamps

    def _has_order(self) -> bool:
        """Whether the times of the first batch ascend."""
        if self.is_ordered is None:
            timestamps = self.batches[0].timestamps
            self.is_ordered = timestamps == sorted(timestamps)
        return self.is_ordered

    def times(self, limit_records: int) -> tuple[list[int], int, int]:
        """Returns the times by which its next records are merged: a list, and the indexes of the first one and of the one
        after the last.

        A record that is earlier than one before it comes as soon as that one did.
        """
        start = self.position
        if self._has_order():
            timestamps = self.batches[0].timestamps
            return timestamps, start, min(start + limit_records, len(timestamps))
        stop = start + min(limit_records, _UNORDERED_RECORDS)
        latest = list(accumulate(self._times_of_readable(start, stop), max))
        return latest, 0, len(latest)

    def take(self, stop: int) -> RecordColumns:
        """Removes and returns the records of its first batch before index ``stop``."""
        columns, start = self.batches[0], self.position
        if stop == len(columns):
            self.batches.popleft()
            self.position = 0
            self.head = None
            if self.batches:
                self.open_batch(self.batches[0])
            return columns if start == 0 else columns.cut(start)
        self.position = stop
        self.head = columns.timestamps[stop] if self._is_unreadable is None else self._readable_head()
        return columns.cut(start, stop)

    def has_more_at_broker(self) -> bool:
        return self.head is None and self.fetched_to < self.high_watermark


class PartitionGroup:
    """Queues of the input partitions of one task. ``is_unreadable``: None if no unreadable record is skipped."""

    def __init__(
        self,
        partitions: Iterable[TopicPartition],
        max_task_idle_ms: int = 0,
        is_unreadable: IsUnreadable | None = None,
    ) -> None:
        self._is_unreadable = is_unreadable
        self._queues: dict[TopicPartition, _Queue] = {partition: self._queue(partition) for partition in partitions}
        self._max_task_idle_ms = max_task_idle_ms
        self._idle_since_ms: dict[TopicPartition, int] = {}
        """Since when a partition without records is waited for."""
        self._unknown: set[TopicPartition] = set()
        self.buffered = 0
        self.enforced = 0
        """How often records could be processed though other partitions had none."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self._queues)

    @property
    def head_timestamp(self) -> int | None:
        """Returns the timestamp of the next record; None if nothing is buffered."""
        return self._next()[2] if self.buffered else None

    def _queue(self, partition: TopicPartition) -> _Queue:
        return _Queue() if self._is_unreadable is None else _Queue(partial(self._is_unreadable, partition))

    def add_partition(self, partition: TopicPartition) -> None:
        """Adds an input partition."""
        self._queues[partition] = self._queue(partition)

    def buffered_of(self, partition: TopicPartition) -> int:
        """Returns the number of unprocessed records of a partition."""
        queue = self._queues[partition]
        return sum(map(len, queue.batches)) - queue.position

    def add(self, partition: TopicPartition, columns: RecordColumns) -> int:
        """Adds a batch, and returns how many records it has. Raises KeyError for a partition that is not an input of the
        task."""
        queue = self._queues[partition]
        queue.fetched_to = columns.next_offset
        count = len(columns)
        if not count:
            return 0
        self._idle_since_ms.pop(partition, None)
        queue.batches.append(columns)
        self.buffered += count
        if queue.head is None:
            queue.open_batch(columns)
        return count

    def wait_for(self, partitions: Iterable[TopicPartition]) -> None:
        """Their high watermarks will be noted, and are unknown until then (rule 3)."""
        self._unknown.update(partitions)

    def note_high_watermark(self, partition: TopicPartition, high_watermark: int, fetched_to: int = -1) -> None:
        """Records the broker's high watermark of a partition (rule 3). ``fetched_to``: where a fetch without data ended."""
        queue = self._queues[partition]
        queue.high_watermark = high_watermark
        queue.fetched_to = max(queue.fetched_to, fetched_to)
        self._unknown.discard(partition)

    def readable_ends(self) -> list[tuple[str, int, int]]:
        """Returns the partitions whose high watermark is known, each with that."""
        known = ((*tp, queue.high_watermark) for tp, queue in self._queues.items())
        return [each for each in known if each[2] >= 0]

    def is_ready(self, now_ms: int) -> bool:
        """Whether records may be processed now."""
        if not self.buffered:
            return False
        empty = [(partition, queue) for partition, queue in self._queues.items() if queue.head is None]
        if not empty:
            return True
        if self._max_task_idle_ms < 0:
            self.enforced += 1
            return True
        if any(queue.has_more_at_broker() for _, queue in empty) or self._misses_an_unknown():
            return False
        if self._max_task_idle_ms > 0:
            since_ms = [self._idle_since_ms.setdefault(partition, now_ms) for partition, _ in empty]
            if now_ms - max(since_ms) < self._max_task_idle_ms:
                return False
        self.enforced += 1
        return True

    def _misses_an_unknown(self) -> bool:
        return bool(self._unknown) and any(self._queues[each].head is None for each in self._unknown)

    def next_run(self, limit_records: int) -> Run | None:
        """Removes and returns the next records: at most ``limit_records`` (1 or more). None: nothing is buffered."""
        chosen, bound, _ = self._next()
        if chosen is None:
            return None
        return self._run(chosen, limit_records, bound)

    def next_merged(self, limit_records: int, merges: Callable[[], bool]) -> Run | MergedRun | None:
        """Like :meth:`next_run`; if ``merges``, returns records of several partitions where a run of one partition would
        be short."""
        chosen, bound, _ = self._next()
        if chosen is None:
            return None
        queue = self._queues[chosen]
        if bound is not None and limit_records > 1:
            timestamps = queue.batches[0].timestamps
            if timestamps[min(queue.position + SHORT_RUN_RECORDS, len(timestamps)) - 1] > bound and merges():
                return self._merged(limit_records)
        return self._run(chosen, limit_records, bound)

    def _next(self) -> tuple[TopicPartition | None, int | None, int | None]:
        """Returns the partition of the next record, the time up to which its records come first (None: all of them), and
        the next record's time."""
        if len(self._queues) == 1:
            ((partition, queue),) = self._queues.items()
            return (None if queue.head is None else partition), None, queue.head
        chosen: TopicPartition | None = None
        lowest: int | None = None
        bound: int | None = None
        for partition, queue in self._queues.items():
            head = queue.head
            if head is None:
                continue
            if lowest is None or head < lowest:
                # The partition chosen so far comes first at equal timestamps: the run ends before its head's.
                bound = None if lowest is None else lowest - 1
                lowest, chosen = head, partition
            elif bound is None or head < bound:
                bound = head
        return chosen, bound, lowest

    def _run(self, partition: TopicPartition, limit_records: int, bound: int | None) -> Run:
        """Removes and returns the records that come before ``bound`` is passed."""
        queue = self._queues[partition]
        columns, start = queue.batches[0], queue.position
        stop = min(start + limit_records, len(columns))
        if bound is not None:
            if queue.highest < 0:
                queue.highest = columns.timestamp_max
            if queue.highest > bound:
                timestamps, end = columns.timestamps, start + 1
                while end < stop and timestamps[end] <= bound:
                    end += 1
                stop = end
        taken = queue.take(stop)
        self.buffered -= stop - start
        return Run(partition, taken)

    def _merged(self, limit_records: int) -> MergedRun | Run:
        """Removes and returns all records before the last record of the batch that ends first, and that record."""
        waiting = [(partition, queue) for partition, queue in self._queues.items() if queue.head is not None]
        times = [queue.times(limit_records) for _, queue in waiting]
        lasts = [each[stop - 1] for each, _, stop in times]
        until = min(lasts)
        ends_first = lasts.index(until)
        stops = [
            # At equal times, the partition added first comes first.
            (bisect_right if number <= ends_first else bisect_left)(each, until, start, stop)
            for number, (each, start, stop) in enumerate(times)
        ]
        taken_times = [each[start:stop] for (each, start, _), stop in zip(times, stops, strict=True)]
        keys = list(chain.from_iterable(taken_times))
        order = sorted(range(len(keys)), key=keys.__getitem__)
        taken = list(map(len, taken_times))
        if len(order) > limit_records:
            taken, order = _limited(taken, order[:limit_records])
        self.buffered -= len(order)
        parts = [
            (partition, queue.take(queue.position + count))
            for (partition, queue), count in zip(waiting, taken, strict=True)
            if count
        ]
        if len(parts) == 1:
            return Run(*parts[0])
        return MergedRun([partition for partition, _ in parts], MergedColumns([part for _, part in parts], order))

    def put_back(self, partition: TopicPartition, columns: RecordColumns) -> None:
        """Puts removed records back in front."""
        self._idle_since_ms.pop(partition, None)
        queue = self._queues[partition]
        if queue.position:
            queue.batches[0] = queue.batches[0].cut(queue.position)
            queue.position = 0
        queue.batches.appendleft(columns)
        queue.open_batch(columns)
        self.buffered += len(columns)

    def clear(self) -> None:
        """Drops everything that is buffered."""
        for partition in self._queues:
            self._queues[partition] = self._queue(partition)
        self._idle_since_ms.clear()
        self.buffered = 0


def _limited(counts: list[int], order: list[int]) -> tuple[list[int], list[int]]:
    """Limits parts to the first records: returns how many are left of each, and the order of those.

    A part's records keep their order, so those that are left are its first ones.
    """
    kept = [0] * len(counts)
    firsts = list(accumulate(counts, initial=0))
    parts = [bisect_right(firsts, index, 0, len(counts)) - 1 for index in order]
    for part in parts:
        kept[part] += 1
    starts = list(accumulate(kept, initial=0))
    return kept, [starts[part] + index - firsts[part] for part, index in zip(parts, order, strict=True)]
