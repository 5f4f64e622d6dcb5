"""What the log knows of producers: sequences, open transactions, aborted transactions.

Rules (Kafka's ``ProducerStateManager`` and ``ProducerAppendInfo``)
1. ``check`` decides and changes nothing; ``apply`` is the only mutator, and live appends and recovery both use it. It
   needs only the batch headers, and commit or abort from a control record.
2. The last five batches of each producer are remembered. One of them again is a duplicate: success with its old offset.
3. The same epoch must continue at the next sequence (2^31 - 1 is followed by 0), a higher one starts at 0, a lower one is
   fenced. A producer that the log does not know may start at any sequence: its records may have been deleted.
4. A transactional batch opens the transaction of its producer, a control batch closes it. The last stable offset is the
   first offset of the oldest open transaction. The broker's own transactional batches have no sequence numbers.
5. A snapshot holds all of it up to one offset, with a checksum. It is a hint: without one, the headers are read again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from coordinator.log.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from coordinator.log.files import write_hint
from streamsrt.checksum import crc32c
from streamsrt.wire.records import BatchHeader

SEQUENCE_MAX = (1 << 31) - 1
BATCHES_REMEMBERED = 5
_SNAPSHOT_MAGIC = b"strmpro1"


def sequence_after(sequence: int, increment: int) -> int:
    """The sequence number ``increment`` steps after ``sequence``, wrapping to 0 after 2^31 - 1."""
    return (sequence + increment) & SEQUENCE_MAX


class WrittenBatch(NamedTuple):
    """A batch that an idempotent producer has in the log; ``timestamp_ms`` is the log append time or -1."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction: ``last_offset`` is its marker's, ``last_stable_offset`` the log's after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerEntry:
    """One producer id: its epoch, its last batches and the first offset of its open transaction (-1: none)."""

    __slots__ = ("batches", "epoch", "last_append_ms", "transaction_first_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=BATCHES_REMEMBERED)
        self.last_append_ms = -1
        self.transaction_first_offset = -1

    @property
    def last_sequence(self) -> int:
        """The last sequence of this epoch, -1 if it has none."""
        return self.batches[-1].last_sequence if self.batches else -1


class ProducerState:
    """All producers of one partition's log."""

    __slots__ = ("_aborted", "_aborted_last_offsets", "_open", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        # producer id -> first offset; offsets only grow, so the first key is always the oldest transaction.
        self._open: dict[int, int] = {}
        self._aborted: list[AbortedTransaction] = []
        self._aborted_last_offsets: list[int] = []

    # ------------------------------------------------------------------------------------------------- decisions

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """Whether a producer's data batch may be appended.

        Returns the batch that it duplicates, or ``None`` if it is new.
        Raises an :class:`~coordinator.log.errors.AppendRefusedError` if it must not be written.
        """
        if header.base_sequence < 0:
            raise InvalidRecordError(
                f"producer {header.producer_id} sent sequence {header.base_sequence}: it must not be negative"
            )
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch == entry.epoch:
            last = sequence_after(header.base_sequence, header.last_offset_delta)
            for batch in entry.batches:
                if batch.first_sequence == header.base_sequence and batch.last_sequence == last:
                    return batch
        self._check_epoch(header, entry)
        self._check_sequence(header, entry)
        if entry.transaction_first_offset >= 0 and not header.is_transactional:
            raise InvalidTxnStateError(
                f"producer {header.producer_id} sent a plain batch while its transaction, open since offset "
                f"{entry.transaction_first_offset}, is neither committed nor aborted"
            )
        return None

    def check_epoch(self, header: BatchHeader) -> None:
        """Raises :class:`InvalidProducerEpochError` if the broker's own batch carries an epoch that is fenced here."""
        entry = self.entries.get(header.producer_id)
        if entry is not None:
            self._check_epoch(header, entry)

    @staticmethod
    def _check_epoch(header: BatchHeader, entry: ProducerEntry) -> None:
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"producer {header.producer_id} used epoch {header.producer_epoch}, "
                f"but epoch {entry.epoch} has written since"
            )

    @staticmethod
    def _check_sequence(header: BatchHeader, entry: ProducerEntry) -> None:
        if header.producer_epoch != entry.epoch:
            expected = 0
        elif entry.batches:
            expected = sequence_after(entry.last_sequence, 1)
        else:
            expected = 0
        if header.base_sequence != expected:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {header.base_sequence}, "
                f"expected {expected} (last epoch here {entry.epoch}, last sequence {entry.last_sequence})"
            )

    # ------------------------------------------------------------------------------------------------ the mutator

    def apply(self, header: BatchHeader, base_offset: int, *, aborts: bool = False, append_ms: int = -1) -> None:
        """Notes a batch with a producer id that now stands in the log at ``base_offset``.

        ``aborts`` says of a control batch whether it is an abort marker.
        ``append_ms`` is the broker's clock, after which unused producers expire.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        elif header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_append_ms = append_ms
        last_offset = base_offset + header.last_offset_delta
        if header.is_control and header.records_count == 0:
            return  # All of its transaction was compacted away.
        if header.is_control:
            self._close_transaction(header.producer_id, entry, last_offset, aborts=aborts)
            return
        if header.base_sequence >= 0:
            entry.batches.append(
                WrittenBatch(
                    header.base_sequence,
                    sequence_after(header.base_sequence, header.last_offset_delta),
                    base_offset,
                    last_offset,
                    header.max_timestamp if header.attributes & 8 else -1,
                )
            )
        if header.is_transactional and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = base_offset
            self._open[header.producer_id] = base_offset

    def _close_transaction(self, producer_id: int, entry: ProducerEntry, marker_offset: int, *, aborts: bool) -> None:
        first_offset = entry.transaction_first_offset
        if first_offset < 0:
            return
        entry.transaction_first_offset = -1
        del self._open[producer_id]
        if aborts:
            stable = self.last_stable_offset(marker_offset + 1)
            self._aborted.append(AbortedTransaction(producer_id, first_offset, marker_offset, stable))
            self._aborted_last_offsets.append(marker_offset)

    # -------------------------------------------------------------------------------------------------- questions

    def last_stable_offset(self, high_watermark: int) -> int:
        """The first offset that a read_committed reader may not see, at most ``high_watermark``."""
        return min(high_watermark, next(iter(self._open.values()), high_watermark))

    def open_transactions(self) -> Iterator[tuple[int, int]]:
        """(producer id, first offset) of every open transaction, oldest first."""
        return iter(self._open.items())

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in ``from_offset <= offset < to_offset``."""
        found = []
        for i in range(bisect_left(self._aborted_last_offsets, from_offset), len(self._aborted)):
            transaction = self._aborted[i]
            if transaction.first_offset < to_offset:
                found.append((transaction.first_offset, transaction.producer_id))
            if transaction.last_stable_offset >= to_offset:
                break
        return [(producer_id, first_offset) for first_offset, producer_id in sorted(found)]

    # ---------------------------------------------------------------------------------------------------- removal

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers without an open transaction that wrote nothing for ``expiration_ms``; how many."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.transaction_first_offset < 0 and now_ms - entry.last_append_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)

    def forget_before(self, log_start_offset: int) -> None:
        """Drops aborted transactions whose every offset lies below the log's start."""
        cut = bisect_left(self._aborted_last_offsets, log_start_offset)
        if cut:
            del self._aborted[:cut]
            del self._aborted_last_offsets[:cut]

    def forget_aborted(self, marker_offsets: Collection[int]) -> bool:
        """Drops the aborted transactions with these markers, which compaction takes away; whether there was one."""
        kept = [transaction for transaction in self._aborted if transaction.last_offset not in marker_offsets]
        found = len(kept) < len(self._aborted)
        self._aborted = kept
        self._aborted_last_offsets = [transaction.last_offset for transaction in kept]
        return found

    @property
    def aborted(self) -> Sequence[AbortedTransaction]:
        """Every aborted transaction with its marker in the log, by the offset of the marker."""
        return self._aborted

    # -------------------------------------------------------------------------------------------------- snapshots

    def save(self, path: Path, end_offset: int) -> None:
        """Writes a snapshot of the state after everything below ``end_offset``."""
        write_hint(path, [self.encoded(end_offset)])

    def encoded(self, end_offset: int) -> bytes:
        """The content of a snapshot file."""
        document = {
            "end_offset": end_offset,
            "producers": [
                [pid, e.epoch, e.last_append_ms, e.transaction_first_offset, [list(batch) for batch in e.batches]]
                for pid, e in self.entries.items()
            ],
            "open": list(self._open),
            "aborted": [list(transaction) for transaction in self._aborted],
        }
        body = orjson.dumps(document)
        return b"".join((_SNAPSHOT_MAGIC, crc32c(body).to_bytes(4, "big"), body))

    @classmethod
    def load(cls, path: Path) -> tuple[ProducerState, int] | None:
        """(state, end offset) of a snapshot file; ``None`` if it is missing or damaged."""
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        body = raw[12:]
        if raw[:8] != _SNAPSHOT_MAGIC or raw[8:12] != crc32c(body).to_bytes(4, "big"):
            return None
        document = orjson.loads(body)
        state = cls()
        for producer_id, epoch, append_ms, first_offset, batches in document["producers"]:
            entry = state.entries[producer_id] = ProducerEntry(epoch)
            entry.last_append_ms, entry.transaction_first_offset = append_ms, first_offset
            entry.batches.extend(WrittenBatch(*batch) for batch in batches)
        state._open = {pid: state.entries[pid].transaction_first_offset for pid in document["open"]}
        state._aborted = [AbortedTransaction(*row) for row in document["aborted"]]
        state._aborted_last_offsets = [transaction.last_offset for transaction in state._aborted]
        return state, document["end_offset"]
