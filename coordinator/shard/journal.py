"""A coordinator's records as batches of its log: written, read back, ended by transaction markers.

1. What one decision makes is one batch: all of it is in the log, or nothing.
2. A refusal is the record's fault or the disk's; who waits for an answer is told which by the error code.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from coordinator.log.errors import AppendRefusedError, LogError
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import (
    ControlRecord,
    ControlType,
    decode_batch,
    decode_control_batch,
    encode_batch,
    encode_control_batch,
    iter_headers,
)

logger = logging.getLogger("coordinator.shard")

READ_BYTES = 1 << 20
NO_PRODUCER = (-1, -1)


class Appended(Protocol):
    """Where an append went."""

    @property
    def last_offset(self) -> int: ...


class Read(Protocol):
    """Whole batches, and the offset to read from next."""

    @property
    def buffers(self) -> list[memoryview]: ...

    @property
    def next_offset(self) -> int: ...


class CoordinatorLog(Protocol):
    """What a shard needs of a partition log."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(self, batches: bytes, *, now_ms: int, from_coordinator: bool = False) -> Appended: ...

    def read(self, offset: int, max_bytes: int) -> Read: ...


class AppendFailedError(Exception):
    """Records could not be written; the code is for who waits for an answer."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class JournalBatch(NamedTuple):
    """Keys and values of one batch. ``producer_id`` is -1 outside of transactions; a marker has no records."""

    producer_id: int
    marker: ControlType | None
    rows: Sequence[tuple[bytes, bytes | None]]


def append_rows(
    log: CoordinatorLog,
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    now_ms: int,
    producer: tuple[int, int] = NO_PRODUCER,
) -> None:
    """Appends records as one batch, in the transaction of ``producer`` (id, epoch) if it is given.

    Raises AppendFailedError, EncodeError.
    """
    producer_id, producer_epoch = producer
    in_transaction = producer_id >= 0
    batch = encode_batch(
        keys,
        values,
        [now_ms] * len(keys),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=in_transaction,
    )
    _append(log, batch, now_ms, from_coordinator=in_transaction)


def append_marker(log: CoordinatorLog, control: ControlRecord, now_ms: int) -> None:
    """Appends the marker that ends a producer's transaction on this log. Raises AppendFailedError."""
    _append(log, encode_control_batch(control, timestamp_ms=now_ms), now_ms, from_coordinator=True)


def _append(log: CoordinatorLog, batch: bytes, now_ms: int, *, from_coordinator: bool) -> None:
    try:
        if from_coordinator:
            log.append(batch, now_ms=now_ms, from_coordinator=True)
        else:
            log.append(batch, now_ms=now_ms)
    except AppendRefusedError as error:
        logger.error("records of a coordinator are not taken by the log: %s", error)
        raise AppendFailedError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    except LogError as error:
        logger.error("records of a coordinator cannot be written: %s", error)
        raise AppendFailedError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None


def read_journal(log: CoordinatorLog) -> Iterator[JournalBatch]:
    """Every batch of the log in order; records without a key are passed over. Raises LogError or DecodeError."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, READ_BYTES)
        for buffer in read.buffers:
            for position, header in iter_headers(buffer):
                if header.last_offset < offset or header.records_count == 0:
                    continue
                producer_id = header.producer_id if header.is_transactional else -1
                if header.is_control:
                    yield JournalBatch(producer_id, decode_control_batch(buffer, position).type, [])
                    continue
                columns = decode_batch(buffer, position, headers=False).from_offset(offset)
                rows = [
                    (key, value) for key, value in zip(columns.keys, columns.values, strict=True) if key is not None
                ]
                yield JournalBatch(producer_id, None, rows)
        if read.next_offset <= offset:
            return
        offset = read.next_offset
