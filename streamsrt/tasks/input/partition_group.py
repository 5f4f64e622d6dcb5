"""The buffered input of a task, and the order in which it is processed.

1. Records of one partition are processed in order of offsets. Between partitions the one whose head record has the lowest
   timestamp comes first; at equal timestamps the partition that was added first.
2. What is handed out is a :class:`Run`: consecutive records of one batch, up to the first one that is later than the head of
   another partition. That is the order of record-at-a-time processing, without a look at the other queues per record.
3. A partition without records may still get some that are older. Whether to wait for them is ``max.task.idle.ms``: -1 never;
   0 as long as the broker is known to have records for it; else that long as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from streamsrt.wire.records import RecordColumns

TopicPartition: TypeAlias = tuple[str, int]


class Run:
    """Records of one batch of one partition that are processed in one go."""

    __slots__ = ("columns", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, columns: RecordColumns) -> None:
        self.topic_partition = topic_partition
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns.keys)


class _Queue:
    __slots__ = ("batches", "fetched_to", "head", "high_watermark", "highest", "position")

    def __init__(self) -> None:
        self.batches: deque[RecordColumns] = deque()
        self.position = 0
        self.head: int | None = None
        self.highest = 0
        self.fetched_to = -1
        self.high_watermark = -1

    def open_batch(self) -> None:
        if self.batches:
            self.head = self.batches[0].timestamps[self.position]
            self.highest = -1
        else:
            self.head = None

    def has_more_at_broker(self) -> bool:
        return self.head is None and self.fetched_to < self.high_watermark


class PartitionGroup:
    """Queues of the input partitions of one task."""

    def __init__(self, partitions: Iterable[TopicPartition], max_task_idle_ms: int = 0) -> None:
        self._queues: dict[TopicPartition, _Queue] = {partition: _Queue() for partition in partitions}
        self._max_task_idle_ms = max_task_idle_ms
        self._idle_since_ms: int | None = None
        self.buffered = 0
        self.enforced = 0
        """How often records could be processed though other partitions had none."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self._queues)

    @property
    def head_timestamp(self) -> int | None:
        """The timestamp of the record that comes next; None where nothing is buffered."""
        return min((queue.head for queue in self._queues.values() if queue.head is not None), default=None)

    def add_partition(self, partition: TopicPartition) -> None:
        """Adds an input partition."""
        self._queues[partition] = _Queue()

    def buffered_of(self, partition: TopicPartition) -> int:
        """Records of that partition that are not processed yet."""
        queue = self._queues[partition]
        return sum(map(len, queue.batches)) - queue.position

    def add(self, partition: TopicPartition, columns: RecordColumns) -> None:
        """Takes a batch over. Raises KeyError for a partition that is not an input of the task."""
        queue = self._queues[partition]
        queue.fetched_to = columns.next_offset
        if not columns.keys:
            return
        queue.batches.append(columns)
        self.buffered += len(columns.keys)
        if queue.head is None:
            queue.open_batch()

    def note_high_watermark(self, partition: TopicPartition, high_watermark: int) -> None:
        """What the broker has of that partition (rule 3)."""
        self._queues[partition].high_watermark = high_watermark

    def is_ready(self, now_ms: int) -> bool:
        """Whether records may be processed now."""
        if not self.buffered:
            self._idle_since_ms = None
            return False
        for queue in self._queues.values():
            if queue.head is None:
                break
        else:
            self._idle_since_ms = None
            return True
        empty = [queue for queue in self._queues.values() if queue.head is None]
        if self._max_task_idle_ms < 0:
            self._idle_since_ms = None
            self.enforced += 1
            return True
        if any(queue.has_more_at_broker() for queue in empty):
            return False
        if self._max_task_idle_ms > 0:
            if self._idle_since_ms is None:
                self._idle_since_ms = now_ms
            if now_ms - self._idle_since_ms < self._max_task_idle_ms:
                return False
        self.enforced += 1
        return True

    def next_run(self, limit_records: int) -> Run | None:
        """Takes the next records out: at most ``limit_records`` (1 or more). None: nothing is buffered."""
        chosen: TopicPartition | None = None
        lowest: int | None = None
        bound: int | None = None
        for partition, queue in self._queues.items():
            head = queue.head
            if head is None:
                continue
            if lowest is None or head < lowest:
                # The one that was chosen so far comes first at equal timestamps: the run ends before its head's.
                bound = None if lowest is None else lowest - 1
                lowest, chosen = head, partition
            elif bound is None or head < bound:
                bound = head
        if chosen is None:
            return None
        columns = self._take(self._queues[chosen], limit_records, bound)
        self.buffered -= len(columns.keys)
        return Run(chosen, columns)

    def _take(self, queue: _Queue, limit_records: int, bound: int | None) -> RecordColumns:
        columns = queue.batches[0]
        start = queue.position
        stop = min(start + limit_records, len(columns.keys))
        timestamps = columns.timestamps
        if bound is not None and queue.highest < 0:
            queue.highest = columns.timestamp_max
        if bound is not None and queue.highest > bound:
            end = start + 1
            while end < stop and timestamps[end] <= bound:
                end += 1
            stop = end
        if stop == len(columns.keys):
            queue.batches.popleft()
            queue.position = 0
        else:
            queue.position = stop
        if start == 0 and stop == len(columns.keys):
            queue.open_batch()
            return columns
        if queue.position:
            queue.head = columns.timestamps[stop]
        else:
            queue.open_batch()
        return columns.cut(start, stop)

    def put_back(self, partition: TopicPartition, columns: RecordColumns) -> None:
        """Puts records that were taken out in front again."""
        queue = self._queues[partition]
        if queue.position:
            queue.batches[0] = queue.batches[0].cut(queue.position)
            queue.position = 0
        queue.batches.appendleft(columns)
        queue.open_batch()
        self.buffered += len(columns.keys)

    def take_first(self, partition: TopicPartition) -> RecordColumns:
        """Takes one record of that partition out. Raises IndexError where there is none."""
        self.buffered -= 1
        return self._take(self._queues[partition], 1, None)

    def clear(self) -> None:
        """Forgets everything that is buffered."""
        for partition in self._queues:
            self._queues[partition] = _Queue()
        self.buffered = 0
