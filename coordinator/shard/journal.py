"""A coordinator's records as batches of its log: written, read back, ended by transaction markers.

1. What one decision makes is one batch: all of it is in the log, or nothing.
2. A refusal is the record's fault or the disk's; who waits for an answer is told which by the error code.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from coordinator.log.errors import AppendRefusedError, LogError
from coordinator.shard.lone_records import lone_rows
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    BatchHeader,
    ControlRecord,
    ControlType,
    RecordColumns,
    decode_batch,
    decode_control_batch,
    encode_batch,
    encode_control_batch,
    read_header,
)

logger = logging.getLogger("coordinator.shard")

READ_BYTES = 1 << 20
NO_PRODUCER = (-1, -1)
_OTHERS_MAX = 10_000
"""How many batches of transactions are held at once while the last rows of keys are looked for."""
_Latest: TypeAlias = "dict[bytes, tuple[int, bytes | None]]"
"""Key -> number of the batch with its last row, and the value there."""


class Appended(Protocol):
    """The position of an append."""

    @property
    def last_offset(self) -> int: ...


class ReadBatches(Protocol):
    """Whole batches, and the offset to read from next."""

    @property
    def buffers(self) -> list[memoryview]: ...

    @property
    def next_offset(self) -> int: ...


class CoordinatorLog(Protocol):
    """The part of a partition log that a shard needs."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(self, batches: bytes, *, now_ms: int, from_coordinator: bool = False) -> Appended: ...

    def read(self, offset: int, max_bytes: int) -> ReadBatches: ...


class AppendFailedError(Exception):
    """Records could not be written; the code is for the waiting requester."""

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
        logger.error("the log does not accept records of a coordinator: %s", error)
        raise AppendFailedError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    except LogError as error:
        logger.error("records of a coordinator cannot be written: %s", error)
        raise AppendFailedError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None


def latest_rows(log: CoordinatorLog) -> Iterator[JournalBatch]:
    """As :func:`read_journal`, without what a compaction of the log would take: of the rows outside of transactions, the
    last one of each key.

    A log of a million commits for a few thousand partitions then costs as many rows as there are partitions.
    """
    latest: _Latest = {}
    others: deque[tuple[int, JournalBatch]] = deque()
    for number, batch in enumerate(read_journal(log)):
        if batch.producer_id >= 0 or batch.marker is not None:
            others.append((number, batch))
            if len(others) >= _OTHERS_MAX:
                yield from _merged(latest, others)
                latest.clear()
            continue
        for key, value in batch.rows:
            latest.pop(key, None)
            latest[key] = number, value
    yield from _merged(latest, others)


def _merged(latest: _Latest, others: deque[tuple[int, JournalBatch]]) -> Iterator[JournalBatch]:
    """Merges both in the order of the log; ``others`` is empty afterwards."""
    for key, (number, value) in latest.items():
        while others and others[0][0] < number:
            yield others.popleft()[1]
        yield JournalBatch(-1, None, [(key, value)])
    while others:
        yield others.popleft()[1]


def _rows(columns: RecordColumns) -> list[tuple[bytes, bytes | None]]:
    rows = zip(columns.keys, columns.values, strict=True)
    return [(key, value) for key, value in rows if key is not None]


def read_journal(log: CoordinatorLog) -> Iterator[JournalBatch]:
    """Every batch of the log in order, batches of one record each as one; records without a key are passed over.

    Raises LogError or DecodeError.
    """
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, READ_BYTES)
        for buffer in read.buffers:
            yield from _batches(bytes(buffer), offset)
        if read.next_offset <= offset:
            return
        offset = read.next_offset


def _batches(data: bytes, offset: int) -> Iterator[JournalBatch]:
    position = 0
    while True:
        rows, position = lone_rows(data, position, offset)
        if rows:
            yield JournalBatch(-1, None, rows)
        if len(data) - position < HEADER_SIZE_BYTES:
            return
        header = read_header(data, position)
        if position + header.size_bytes > len(data):
            return
        if header.last_offset >= offset and header.records_count:
            yield _batch(data, position, header, offset)
        position += header.size_bytes


def _batch(data: bytes, position: int, header: BatchHeader, offset: int) -> JournalBatch:
    producer_id = header.producer_id if header.is_transactional else -1
    if header.is_control:
        return JournalBatch(producer_id, decode_control_batch(data, position).type, [])
    columns = decode_batch(data, position, headers=False, header=header).from_offset(offset)
    return JournalBatch(producer_id, None, _rows(columns))
