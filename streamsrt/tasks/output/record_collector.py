"""Collects what a task writes, column by column, until there is enough of it for a record batch.

1. Operators hand over columns once per run, never single records. A partition's columns are encoded as one batch when
   they reach about ``batch_bytes`` (the record size is estimated from the previous batch; at first,
   ``batch_records_first`` records are enough), and all of them at :meth:`RecordCollector.flush`. A produce request
   takes one batch of a partition and costs as much as hundreds of records.
2. Records of one partition keep the order in which they were handed over.
3. A record without an explicit partition goes where the Java client's default partitioner sends its key: murmur2.
   Records without a key stay together: one partition per call, the next one at the next call.
4. Headers add cost only to partitions that have some.
5. Short texts that are keys and values at once stay columns of numpy until they are encoded, unless a partition has
   other records before them.
6. With the loops in C, records are written when they come, as long as they make one batch: while their bytes are in the
   processor's cache, and so that these are freed. They become columns again where they have to be looked at.
7. No batch is larger than ``batch_bytes_max`` unless a single record is: brokers refuse batches above
   ``max.message.bytes``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Protocol

from streamsrt.errors import ProductionError
from streamsrt.operators.engine.placement import Choice, check_partitions, is_plain, picked, spread
from streamsrt.wire.compression import Compression
from streamsrt.wire.kernels import RecordsWriter, new_writer, split, write_apart
from streamsrt.wire.later_numpy import np
from streamsrt.wire.murmur2 import PartitionMemo, murmur2_padded
from streamsrt.wire.primitives import EncodeError
from streamsrt.wire.records import Headers, decode_batch, encode_batch, encode_written
from streamsrt.wire.records.texts import Texts, Times, encode_texts

Keys = Sequence[bytes | None]
Partitions = int | Sequence[Any] | None  # Choice, which mypy does not narrow after is_plain()
"""One partition for all records, or for each what a partitioner chose (:mod:`streamsrt.operators.engine.placement`)."""
Sink = Callable[[str, int, bytes, int], None]


class Collector(Protocol):
    """The destination of a task's output."""

    def add(
        self,
        topic: str,
        keys: Keys,
        values: Keys,
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
        partition: Partitions = None,
        partition_keys: Keys | None = None,
    ) -> None: ...

    def add_texts(self, topic: str, texts: Texts, times: Times) -> None: ...


_SAMPLE = 4
"""How many timestamps are kept of what has come to a partition between two looks, about."""
_TIMES_MAX = 512


class _Columns:
    """Records of one partition. ``texts``: the records instead, where each is a text, with their times; ``writer``: has
    them instead, written (rule 6), if there are loops in C."""

    __slots__ = ("counted", "enough", "headers", "keys", "texts", "timestamps", "values", "writer")

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.counted = 0
        """How many of the records are counted."""
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: list[Headers] | None = None
        self.texts: list[tuple[Texts, Times]] = []
        self.writer: RecordsWriter | None = new_writer()

    def __len__(self) -> int:
        if self.texts:
            return sum(len(times) for _, times in self.texts)
        return len(self.keys) or (0 if self.writer is None else len(self.writer))

    @property
    def written(self) -> RecordsWriter | None:
        """The records, if they are written."""
        return self.writer if self.writer is not None and len(self.writer) else None

    @property
    def open_writer(self) -> RecordsWriter | None:
        """What may write records that come behind those that are there."""
        return None if self.keys or self.texts else self.writer

    def extend(self, keys: Keys, values: Keys, timestamps: Sequence[int], headers: Sequence[Headers] | None) -> None:
        writer = self.open_writer if headers is None and self.batches(len(keys)) == 1 else None
        if writer is not None and writer.add(keys, values, timestamps, 0, len(keys)):
            return
        self.settle()
        self._extend(keys, values, timestamps, headers)

    def _extend(self, keys: Keys, values: Keys, timestamps: Sequence[int], headers: Sequence[Headers] | None) -> None:
        if headers is not None:
            self.pad_headers(True)
        self.keys += keys
        self.values += values
        self.timestamps += timestamps
        if headers is not None and self.headers is not None:
            self.headers += headers
        elif self.headers is not None:
            self.headers += repeat((), len(keys))

    def extend_texts(self, texts: Texts, times: Times) -> None:
        self.settle_written()
        self.texts.append((texts, times))
        if self.keys:
            self.settle()

    def batches(self, more: int = 0) -> int:
        """How many batches they make, with so many more."""
        return max(1, round((len(self) + more) / self.enough))

    def settle(self) -> None:
        """Makes columns of what is written, and of the texts."""
        self.settle_written()
        pending, self.texts = self.texts, []
        for texts, times in pending:
            raw = texts.tolist()
            self._extend(raw, raw, times.tolist(), None)

    def settle_written(self) -> None:
        """Makes columns of what is written."""
        written = self.written
        if written is not None:
            batch = encode_written(written, compression=Compression.NONE, transactional=False)
            columns = decode_batch(batch, verify_crc=False, headers=False)
            self.keys, self.values, self.timestamps = columns.keys, columns.values, columns.timestamps
            written.clear()

    def joined_texts(self) -> tuple[Texts, Times] | None:
        """The texts as one; None if there are none."""
        if len(self.texts) > 1:
            joined = Texts.joined([texts for texts, _ in self.texts])
            self.texts = [(joined, np.concatenate([times for _, times in self.texts]))]
        return self.texts[0] if self.texts else None

    def sampled_times(self, start: int, step: int) -> list[int]:
        """Every ``step``-th timestamp from ``start`` on."""
        if self.written is not None:
            return self.written.times(start, step)
        joined = self.joined_texts()
        return self.timestamps[start::step] if joined is None else joined[1][start::step].tolist()

    def pad_headers(self, wanted: bool) -> None:
        if wanted and self.headers is None:
            self.headers = [()] * len(self.keys)

    def clear(self) -> None:
        self.keys.clear()
        self.values.clear()
        self.timestamps.clear()
        self.texts.clear()
        if self.writer is not None:
            self.writer.clear()
        self.headers = None
        self.counted = 0


class _Topic:
    __slots__ = (
        "columns",
        "next_null_partition",
        "records",
        "sent_bytes",
        "sent_records",
        "times",
        "touched",
        "writers",
    )

    def __init__(self, partitions: int, enough: int) -> None:
        self.columns = [_Columns(enough) for _ in range(partitions)]
        self.writers = tuple(columns.writer for columns in self.columns if columns.writer is not None)
        """Those of all partitions; empty without the loops in C."""
        self.touched: set[int] = set()
        """The partitions that may have unsent records; of a changelog with a thousand, few have any at a time."""
        self.next_null_partition = 0
        self.records = 0
        self.times: list[int] = []
        self.sent_records = 0
        self.sent_bytes = 0

    def rotate(self, placed_by: Keys) -> None:
        """The next records without a key go elsewhere."""
        if None in placed_by:
            self.next_null_partition = (self.next_null_partition + 1) % len(self.columns)

    def write_apart(self, keys: Keys, values: Keys, timestamps: Sequence[int], placed_by: Keys) -> bool:
        """Has each partition's writer write its records, by their keys. False: nothing was written."""
        each = len(keys) / len(self.columns)
        if not self.writers or not all(
            columns.open_writer is not None and each < columns.enough for columns in self.columns
        ):
            return False
        is_written = write_apart(self.writers, keys, values, timestamps, placed_by, self.next_null_partition)
        if is_written:
            self.rotate(placed_by)
        return is_written

    def count_new(self, columns: _Columns) -> None:
        """Counts the records since the last count."""
        count, seen = len(columns), columns.counted
        fresh = count - seen
        self.records += fresh
        columns.counted = count
        # Nobody reads the counts of changelogs.
        if len(self.times) < _TIMES_MAX:
            self.times += columns.sampled_times(seen, fresh // _SAMPLE if fresh > _SAMPLE else 1)


class RecordCollector:
    """Collects and encodes; ``sink(topic, partition, batch, record count)`` gets each encoded batch.

    ``partitions_of_topic(topic)`` is asked once per topic until :meth:`forget_topics`. Raises ProductionError for what
    can't be encoded.
    """

    def __init__(
        self,
        sink: Sink,
        partitions_of_topic: Callable[[str], int],
        *,
        compression: Compression = Compression.NONE,
        batch_records_first: int = 1000,
        batch_records_max: int = 4000,
        batch_bytes: int = 256 * 1024,
        batch_bytes_max: int = 1_000_000,
        transactional: bool = False,
    ) -> None:
        self._sink = sink
        self._partitions_of_topic = partitions_of_topic
        self._compression = compression
        self._batch_records_first = batch_records_first
        self._batch_records_max = batch_records_max
        self._batch_bytes = batch_bytes
        self._batch_bytes_max = batch_bytes_max
        self._transactional = transactional
        self._topics: dict[str, _Topic] = {}
        self._memo = PartitionMemo()
        self.dropped_records = 0
        """How many records the cluster did not take and the production handler let go."""
        self.last_refusal = ""
        """What was said of the last one."""
        self.shortened_letters = 0
        """How many dead letters were too large for their topic, and were written with less in them."""
        self.last_shortened = ""
        """What was said of the last of these."""
        self.unplaced_records = 0
        """How many records a partitioner sent to no partition."""

    def add(
        self,
        topic: str,
        keys: Keys,
        values: Keys,
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
        partition: Partitions = None,
        partition_keys: Keys | None = None,
    ) -> None:
        """Adds records. ``partition``: of all of them, or of each; None: chosen by ``partition_keys`` or by key.

        ``partition_keys`` stand in for the keys where those are not what is partitioned by (windowed keys).
        """
        known = self._topics.get(topic) or self._open(topic)
        if partition is None and len(known.columns) == 1:
            partition = 0
        if isinstance(partition, int):
            if not 0 <= partition < len(known.columns):
                check_partitions(topic, len(known.columns), partition, partition)
            columns = known.columns[partition]
            columns.extend(keys, values, timestamps, headers)
            known.touched.add(partition)
            self._send_if_full(topic, known, partition)
            return
        if partition is None:
            placed_by = keys if partition_keys is None else partition_keys
            if headers is None and known.write_apart(keys, values, timestamps, placed_by):
                self._send_full(topic, known)
                return
            partition = self._partitions(known, placed_by)
        elif not is_plain(partition):
            self._spread(topic, keys, values, timestamps, headers, partition, partition_keys)
            return
        elif partition:
            if None in partition:
                default = self._partitions(known, keys if partition_keys is None else partition_keys)
                partition = [d if p is None else p for p, d in zip(partition, default, strict=True)]
            check_partitions(topic, len(known.columns), min(partition), max(partition))
        self._split(known, keys, values, timestamps, headers, partition)
        self._send_full(topic, known)

    def _send_full(self, topic: str, known: _Topic) -> None:
        known.touched.update(range(len(known.columns)))
        for index in range(len(known.columns)):
            self._send_if_full(topic, known, index)

    def add_texts(self, topic: str, texts: Texts, times: Times) -> None:
        """Adds a record for each text, which is both its key and its value."""
        known = self._topics.get(topic) or self._open(topic)
        count = len(known.columns)
        known.touched.update(range(count))
        if count == 1:
            known.columns[0].extend_texts(texts, times)
        else:
            partitions = (murmur2_padded(texts.words, texts.sizes) & 0x7FFFFFFF) % count
            # Of small numbers, numpy sorts small types more quickly.
            order = partitions.astype(np.min_scalar_type(count)).argsort(kind="stable")
            texts, times = texts[order], times[order]
            ends = np.bincount(partitions, minlength=count).cumsum().tolist()
            for columns, start, end in zip(known.columns, [0, *ends], ends, strict=False):
                if start < end:
                    columns.extend_texts(texts[start:end], times[start:end])
        for index in range(count):
            self._send_if_full(topic, known, index)

    def _spread(
        self,
        topic: str,
        keys: Keys,
        values: Keys,
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
        chosen: Sequence[Choice],
        partition_keys: Keys | None,
    ) -> None:
        at, partitions = spread(chosen)
        self.unplaced_records += len(keys) - len(set(at))
        if at:
            some = None if headers is None else picked(headers, at)
            placed_by = None if partition_keys is None else picked(partition_keys, at)
            self.add(topic, picked(keys, at), picked(values, at), picked(timestamps, at), some, partitions, placed_by)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that were written to."""
        return tuple(self._topics)

    def take_produced(self, topic: str) -> tuple[int, list[int]]:
        """Returns how many records were added for a topic since the last call, and some of their timestamps."""
        known = self._topics.get(topic)
        if known is None:
            return 0, []
        for columns in known.columns:
            if len(columns) > columns.counted:
                known.count_new(columns)
        taken = known.records, known.times
        known.records, known.times = 0, []
        return taken

    def record_bytes(self, topic: str) -> float:
        """Returns the average size of a topic's records in a batch; 0.0 if none was encoded yet."""
        known = self._topics.get(topic)
        return known.sent_bytes / known.sent_records if known is not None and known.sent_records else 0.0

    def _open(self, topic: str) -> _Topic:
        known = self._topics[topic] = _Topic(self._partitions_of_topic(topic), self._batch_records_first)
        return known

    def send_alone(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Sends one record immediately, before any buffered ones. Raises MissingTopicError."""
        known = self._topics.get(topic) or self._open(topic)
        batch = encode_batch(
            [key],
            [value],
            [timestamp],
            headers=[headers],
            compression=self._compression,
            transactional=self._transactional,
        )
        self._sink(topic, self._partitions(known, [key])[0], batch, 1)

    def _partitions(self, known: _Topic, keys: Keys) -> list[int]:
        chosen = self._memo.partitions(keys, len(known.columns), null_partition=known.next_null_partition)
        known.rotate(keys)
        return chosen

    def _split(
        self,
        known: _Topic,
        keys: Keys,
        values: Keys,
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
        partitions: Sequence[int],
    ) -> None:
        parts = None if headers is not None else split(partitions, len(known.columns), keys, values, timestamps)
        if parts is not None:
            for columns, part in zip(known.columns, parts, strict=True):
                if part[0]:
                    columns.extend(*part, None)
            return
        indexes: list[list[int]] = [[] for _ in known.columns]
        add = [chosen.append for chosen in indexes]
        for index, partition in enumerate(partitions):
            add[partition](index)
        for columns, chosen in zip(known.columns, indexes, strict=True):
            if len(chosen) == len(keys):
                columns.extend(keys, values, timestamps, headers)
            elif len(chosen) > 1:
                # One call in C per column, instead of three appends per record.
                pick = itemgetter(*chosen)
                columns.extend(pick(keys), pick(values), pick(timestamps), None if headers is None else pick(headers))
            elif chosen:
                at = slice(chosen[0], chosen[0] + 1)
                columns.extend(keys[at], values[at], timestamps[at], None if headers is None else headers[at])

    def _send_if_full(self, topic: str, known: _Topic, partition: int) -> None:
        columns = known.columns[partition]
        if len(columns) >= columns.enough:
            self._send(topic, partition, columns)

    def _send(self, topic: str, partition: int, columns: _Columns) -> None:
        """Sends all of it in batches of equal size: a last batch of a few records would cost as much as the others."""
        count, known = len(columns), self._topics[topic]
        known.count_new(columns)
        batches = columns.batches()
        if batches > 1:
            columns.settle_written()
        size = 0
        for index in range(batches):
            start, stop = count * index // batches, count * (index + 1) // batches
            size += self._send_slice(topic, partition, columns, start, stop)
        known.sent_records += count
        known.sent_bytes += size
        columns.enough = max(1, min(self._batch_records_max, count * self._batch_bytes // size))
        columns.clear()

    def _send_slice(self, topic: str, partition: int, columns: _Columns, start: int, stop: int) -> int:
        """Sends records ``start`` to ``stop`` as one batch, or as several if one would exceed the maximum size.

        The result is their size in bytes.
        """
        try:
            batch = self._encoded(columns, start, stop)
        except EncodeError as error:
            raise ProductionError(
                f"records for {topic}-{partition} can't be encoded: {error}", topic, partition
            ) from error
        if len(batch) > self._batch_bytes_max and stop - start > 1:
            columns.settle_written()
            middle = (start + stop) // 2
            size = self._send_slice(topic, partition, columns, start, middle)
            return size + self._send_slice(topic, partition, columns, middle, stop)
        self._sink(topic, partition, batch, stop - start)
        return len(batch)

    def _encoded(self, columns: _Columns, start: int, stop: int) -> bytes:
        """The batch of records ``start`` to ``stop``."""
        compression, transactional = self._compression, self._transactional
        joined = columns.joined_texts()
        if joined is not None:
            texts, times = joined[0][start:stop], joined[1][start:stop]
            batch = encode_texts(texts, times, compression=compression, transactional=transactional)
            if batch is not None:
                return batch
            raw = texts.tolist()
            return encode_batch(raw, raw, times.tolist(), compression=compression, transactional=transactional)
        if columns.written is not None:
            return encode_written(columns.written, compression=compression, transactional=transactional)
        whole, headers = start == 0 and stop == len(columns), columns.headers
        return encode_batch(
            columns.keys if whole else columns.keys[start:stop],
            columns.values if whole else columns.values[start:stop],
            columns.timestamps if whole else columns.timestamps[start:stop],
            headers=headers if whole or headers is None else headers[start:stop],
            compression=compression,
            transactional=transactional,
        )

    def discard(self) -> None:
        """Drops unsent output: its tasks belong to other members now, or repeat their work."""
        for known in self._topics.values():
            for columns in known.columns:
                columns.clear()
            known.touched.clear()

    def forget_topics(self) -> None:
        """Drops unsent output, and what is known of the topics."""
        self._topics.clear()

    def flush(self, only: Collection[str] | None = None) -> None:
        """Encodes and sends what is buffered, ``only`` for these topics; None: for all."""
        # While it sends, a dead letter may be the first record of its topic.
        for topic, known in tuple(self._topics.items()):
            if only is not None and topic not in only:
                continue
            for partition in sorted(known.touched):
                columns = known.columns[partition]
                if columns:
                    self._send(topic, partition, columns)
                # Unless a record was added meanwhile.
                if not columns:
                    known.touched.discard(partition)
