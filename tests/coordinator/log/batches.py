"""Record batches and log files for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

from coordinator.log.config import LogConfig
from coordinator.log.fsync import Syncer
from coordinator.log.partition_log import PartitionLog
from coordinator.log.results import ReadResult
from streamsrt.wire.records import ControlRecord, ControlType, decode_batches, encode_batch, encode_control_batch

#: Small enough that a few batches roll a segment, so that tests see several of them.
SMALL_SEGMENTS = LogConfig(segment_bytes=400, index_interval_bytes=128, retention_ms=-1, segment_ms=1 << 40)


def batch(*values: bytes, timestamp_ms: int = 1000, **fields: int | bool) -> bytes:
    """A batch of the values, as a producer sends it; its records' timestamps go up by one."""
    timestamps = [timestamp_ms + i for i in range(len(values))]
    return encode_batch([None] * len(values), list(values), timestamps, **fields)  # type: ignore[arg-type]


def produced(producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False) -> bytes:
    """A batch of an idempotent producer."""
    values = [b"p%d-%d" % (producer_id, sequence + i) for i in range(count)]
    return batch(
        *values,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(producer_id: int, kind: ControlType, *, epoch: int = 0) -> bytes:
    """A transaction marker as the transaction coordinator writes it."""
    return encode_control_batch(ControlRecord(kind, producer_id, epoch, 0), timestamp_ms=1000)


def open_log(
    directory: Path, syncer: Syncer, config: LogConfig = SMALL_SEGMENTS, *, clean: bool = False
) -> PartitionLog:
    return PartitionLog(directory, config, syncer, clean=clean)


def values_from(log: PartitionLog, offset: int | None = None, max_bytes: int = 1 << 20) -> list[bytes | None]:
    """Every value of the log from ``offset`` on, read as a consumer does."""
    position = log.log_start_offset if offset is None else offset
    values: list[bytes | None] = []
    while position < log.log_end_offset:
        result = log.read(position, max_bytes)
        for columns in decode_batches(joined(result), from_offset=position):
            values += columns.values
        assert result.next_offset > position
        position = result.next_offset
    return values


def joined(result: ReadResult) -> bytes:
    data = b"".join(result.buffers)
    assert len(data) == result.size_bytes
    return data
