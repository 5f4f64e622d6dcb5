"""Timestamps that a program's extractor gives to the records of a batch, which have to be read for that.

1. A record that can't be read, or for which the extractor fails, ends what is taken of its batch. It is handled when
   everything before it is processed, so that a dead letter of it is not sent before its turn: a commit in between does not
   cover the record, and the next start would send the letter again.
2. The extractor gets the latest timestamp that it has given for the partition. That is ahead of what is processed, and is
   no part of a commit.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeAlias

from streamsrt.errors import ProcessingError
from streamsrt.operators.engine.environment import is_interrupt
from streamsrt.operators.engine.plan import ResolvedSubtopology
from streamsrt.operators.runner import Runner
from streamsrt.state.columns import Headers
from streamsrt.tasks.input.selected import selected
from streamsrt.wire.records import RecordColumns
from streamsrt.wording import error_text
from topology.graph.nodes import SourceNode
from topology.spec.functions import TimestampExtractor
from topology.spec.timestamps import is_whole_ms

TopicPartition: TypeAlias = tuple[str, int]


class ExtractedRecord(NamedTuple):
    """The argument of a timestamp extractor: the record as it was read (Kafka's ``ConsumerRecord``)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: object
    value: object
    headers: Headers
    system_time_ms: int


class _ExtractorError(Exception):
    """The extractor failed; ``failure`` says so."""

    def __init__(self, failure: ProcessingError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Extraction:
    """Records of one partition that are not read yet. ``extractor``: of its source."""

    def __init__(
        self,
        plan: ResolvedSubtopology,
        runner: Runner,
        source: SourceNode,
        topic_partition: TopicPartition,
        extractor: TimestampExtractor,
    ) -> None:
        self._runner = runner
        self._source = source.name
        self._where = plan.location(source.name)
        self._tp = topic_partition
        self._extractor = extractor
        self._from_key = plan.key_serde(source).deserialize
        self._from_value = plan.value_serde(source).deserialize
        self._batches: deque[RecordColumns] = deque()
        self._latest = -1
        self.waiting = 0
        """How many records."""
        self.dropped = 0
        """How many records the extractor has dropped."""

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, columns: RecordColumns) -> None:
        """Adds a batch behind those that are there."""
        self._batches.append(columns)
        self.waiting += len(columns)

    def take(self, partition_time: int) -> RecordColumns:
        """Removes and returns the first records, with timestamps, when all before them are processed: up to the end of a
        batch, or to a record that fails. ``partition_time``: the latest timestamp that was processed.

        Raises RecordError where the first record fails and no handler skips it.
        """
        columns, latest = self._batches[0], max(self._latest, partition_time)
        timestamps: list[int] = []
        from_key, from_value = self._from_key, self._from_value
        for index, (raw_key, raw_value) in enumerate(zip(columns.keys, columns.values, strict=True)):
            try:
                key = None if raw_key is None else from_key(raw_key)
                value = None if raw_value is None else from_value(raw_value)
                timestamp = self._given(columns, index, key, value, latest)
            except BaseException as error:
                if is_interrupt(error):
                    raise
                if index:
                    self._batches[0], columns = columns.cut(index), columns.cut(0, index)
                    break
                self._skip_first(columns, error)
                timestamp = -1
            latest = max(latest, timestamp)
            timestamps.append(timestamp)
        else:
            self._batches.popleft()
        self._latest = latest
        self.waiting -= len(columns)
        return selected(columns, timestamps, [timestamp >= 0 for timestamp in timestamps])

    def _given(self, columns: RecordColumns, index: int, key: object, value: object, latest: int) -> int:
        """What the extractor gives a record: negative to drop it."""
        topic, partition = self._tp
        record = ExtractedRecord(
            topic,
            partition,
            columns.offset_at(index),
            columns.timestamps[index],
            key,
            value,
            () if columns.headers is None else columns.headers[index],
            self._runner.env.program_time_ms,
        )
        try:
            timestamp = self._extractor(record, latest)
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise self._error(f"raised {error_text(error)}", record.offset) from error
        if not is_whole_ms(timestamp):
            what = f"returned {timestamp!r}, which is not a whole number of milliseconds since 1970,"
            raise self._error(what, record.offset)
        self.dropped += timestamp < 0
        return timestamp

    def _error(self, what: str, offset: int) -> _ExtractorError:
        topic, partition = self._tp
        return _ExtractorError(
            ProcessingError(
                f"the timestamp extractor of {self._where} {what} at {topic}-{partition} offset {offset}. "
                "Correct it, or let it return -1 to drop the record",
                topic,
                partition,
                offset,
            )
        )

    def _skip_first(self, columns: RecordColumns, error: BaseException) -> None:
        if isinstance(error, _ExtractorError):
            raise error.failure from error.__cause__
        self._runner.failed_to_deserialize(self._source, *self._tp, columns, 0, error)
