"""Logs of keyed records for the tests of this folder: what is written, what a reader makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from coordinator.log import LogConfig, PartitionLog
from coordinator.log.fsync import Syncer
from streamsrt.wire.records import decode_batches, encode_batch, iter_headers
from tests.coordinator.log.batches import joined

COMPACTED = LogConfig(
    segment_bytes=600,
    index_interval_bytes=128,
    retention_ms=-1,
    segment_ms=1 << 40,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=1000,
)


class Row(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def keyed(*rows: tuple[str, str | None], timestamp_ms: int = 1000, **fields: object) -> bytes:
    """A batch of (key, value); a value of None is a tombstone."""
    keys = [key.encode() for key, _ in rows]
    values = [None if value is None else value.encode() for _, value in rows]
    timestamps = [timestamp_ms + i for i in range(len(rows))]
    return encode_batch(keys, values, timestamps, **fields)  # type: ignore[arg-type]


def open_compacted(
    directory: Path, syncer: Syncer, config: LogConfig = COMPACTED, *, clean: bool = True
) -> PartitionLog:
    return PartitionLog(directory, config, syncer, clean=clean)


def compact(log: PartitionLog, now_ms: int = 10_000, map_bytes_max: int = 1 << 20) -> Mapping[int, str]:
    """One pass, with everything on disk before it, as it is sooner or later; what could not be read."""
    log.flush()
    steps = log.compact(now_ms, map_bytes_max=map_bytes_max)
    while True:
        try:
            step = next(steps)
        except StopIteration as done:
            reasons: Mapping[int, str] = done.value
            return reasons
        if step is not None:
            step.result()


def rows_of(log: PartitionLog, *, committed: bool = False, max_bytes: int = 1 << 20) -> list[Row]:
    """What a consumer reads from the log's start on, and the offset of each record."""
    rows: list[Row] = []
    position = log.log_start_offset
    end = log.last_stable_offset if committed else log.high_watermark
    while position < end:
        result = log.read(position, max_bytes, up_to=end)
        aborted = log.aborted_transactions(position, result.next_offset) if committed else None
        for columns in decode_batches(
            joined(result), from_offset=position, aborted=None if aborted is None else list(aborted)
        ):
            for i in range(len(columns)):
                rows.append(Row(columns.offset_at(i), columns.keys[i], columns.values[i], columns.timestamps[i]))
        assert result.next_offset > position, "the reader is stuck"
        position = result.next_offset
    return rows


def pairs_of(log: PartitionLog) -> list[tuple[int, str, str | None]]:
    return [
        (row.offset, (row.key or b"").decode(), None if row.value is None else row.value.decode())
        for row in rows_of(log)
    ]


def headers_of(log: PartitionLog) -> list[tuple[int, int, int]]:
    """(base offset, last offset, count) of every batch."""
    data = joined(log.read(log.log_start_offset, 1 << 30))
    return [(header.base_offset, header.last_offset, header.records_count) for _, header in iter_headers(data)]


def fill(log: PartitionLog, rounds: int, keys: Sequence[str], timestamp_ms: int = 1000) -> None:
    for number in range(rounds):
        for key in keys:
            log.append(keyed((key, f"{key}{number}"), timestamp_ms=timestamp_ms), now_ms=timestamp_ms)
