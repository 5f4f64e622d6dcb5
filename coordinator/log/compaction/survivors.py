"""Which records of a batch are kept when its log is compacted.

Rules (Kafka's ``Cleaner`` and ``CleanedTransactionMetadata``, KIP-534)
1. A record is kept if no later one has its key. Records without a key and those of aborted transactions are removed.
2. A kept tombstone gets a horizon, ``delete.retention.ms`` after the pass that first kept it, in the header of its
   batch. A pass after the horizon removes it: readers had that long to see it.
3. A transaction marker is kept as long as a batch of its transaction is in the log before it. Then it gets a horizon as
   well. An aborted transaction is forgotten with its marker: the list of aborted ones must not name a transaction
   without an end in the log.
4. The last batch of each producer that the log knows is kept as a header without records, for its sequence number. So
   is the last batch of the compacted range, for the offset after it.
5. Batches after the compacted range do not change.
6. A batch that can't be read does not change: nothing is lost by that, and batches after it are compacted.
7. Offsets, producer, sequence and leader epoch of a batch never change, and a batch of which everything is kept is not
   touched.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from coordinator.log.producer_state import AbortedTransaction, ProducerState
from streamsrt.wire.compacted import compacted_batch
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import (
    BatchHeader,
    ControlType,
    RecordColumns,
    decode_batch,
    decode_control_batch,
    empty_batch,
)


class AbortedData:
    """Which batches belong to aborted transactions."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        for transaction in aborted:
            self._by_producer.setdefault(transaction.producer_id, []).append(transaction)

    def holds(self, header: BatchHeader) -> bool:
        """Whether this batch was aborted. A producer's transactions do not overlap, so one search is enough."""
        transactions = self._by_producer.get(header.producer_id)
        if transactions is None or not header.is_transactional:
            return False
        i = bisect_left(transactions, header.base_offset, key=lambda transaction: transaction.last_offset)
        return i < len(transactions) and transactions[i].first_offset <= header.base_offset


class Survivors:
    """Decides batch by batch, in the order of the log from its start on.

    ``latest``: key -> its last offset in the dirty part. ``end_offset``: the end of the compacted range.
    """

    def __init__(
        self,
        latest: Mapping[bytes, int],
        aborted: AbortedData,
        producers: ProducerState,
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._latest = latest
        self._aborted = aborted
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._last_offsets = {
            producer_id: entry.batches[-1].last_offset
            for producer_id, entry in producers.entries.items()
            if entry.batches
        }
        self._marker_epochs = {
            producer_id: entry.epoch for producer_id, entry in producers.entries.items() if not entry.batches
        }
        self._with_data: set[int] = set()
        #: Offsets of the abort markers that were removed.
        self.forgotten: set[int] = set()
        #: Offset of each batch that can't be read -> the reason.
        self.unreadable: dict[int, str] = {}

    def of(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """The kept part of a batch: itself, a new one, or nothing."""
        if header.base_offset >= self._end_offset:
            return batch
        try:
            return self._of_readable(header, batch)
        except DecodeError as error:
            self.unreadable[header.base_offset] = str(error)
            return batch

    def _of_readable(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        if header.is_control:
            return self._of_marker(header, batch)
        if header.is_transactional:
            self._with_data.add(header.producer_id)
        if header.records_count == 0 or self._aborted.holds(header):
            return self._husk(header)
        return self._of_data(header, batch)

    def _of_data(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        columns = decode_batch(batch)
        offsets = columns.offsets or range(header.base_offset, header.base_offset + len(columns))
        horizon_ms = header.delete_horizon_ms
        is_over = horizon_ms is not None and self._now_ms >= horizon_ms
        latest = self._latest.get
        kept = [
            i
            for i, (key, value, offset) in enumerate(zip(columns.keys, columns.values, offsets, strict=True))
            if key is not None and latest(key, -1) <= offset and (value is not None or not is_over)
        ]
        if not kept:
            return self._husk(header)
        begins = horizon_ms is None and None in columns.values and any(columns.values[i] is None for i in kept)
        if len(kept) == len(columns) and not begins:
            return batch
        chosen = columns if len(kept) == len(columns) else _picked(columns, kept, offsets)
        return compacted_batch(header, chosen, delete_horizon_ms=self._horizon_ms if begins else None)

    def _of_marker(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        has_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if header.records_count == 0:
            return self._husk(header)
        horizon_ms = header.delete_horizon_ms
        if has_data or (horizon_ms is not None and self._now_ms < horizon_ms):
            return batch
        if horizon_ms is None:
            return compacted_batch(header, decode_batch(batch), delete_horizon_ms=self._horizon_ms)
        if decode_control_batch(batch).type is ControlType.ABORT:
            self.forgotten.add(header.base_offset)
        return self._husk(header)

    def _husk(self, header: BatchHeader) -> bytes | None:
        """The batch without records if its header is still needed, else nothing."""
        if header.next_offset == self._end_offset or self._is_last_of_producer(header):
            return empty_batch(header)
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id < 0:
            return False
        if header.is_control:
            return self._marker_epochs.get(header.producer_id) == header.producer_epoch
        return self._last_offsets.get(header.producer_id) == header.last_offset


def _picked(columns: RecordColumns, kept: Sequence[int], offsets: Sequence[int]) -> RecordColumns:
    return RecordColumns(
        [columns.keys[i] for i in kept],
        [columns.values[i] for i in kept],
        [columns.timestamps[i] for i in kept],
        columns.base_offset,
        columns.next_offset,
        [offsets[i] for i in kept],
        None if columns.headers is None else [columns.headers[i] for i in kept],
    )
