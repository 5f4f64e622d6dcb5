"""The rows of a changelog, each once, on disk, as an instance would restore them, with timestamps and headers.

1. A partition is read once, read_committed, into a RocksDB of its own: memory stays bounded whatever the state.
2. A row is the last record of its key; keys whose last record is a tombstone have no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.repartition.shape import MovedStore
from streamsrt.client.interface import Network
from streamsrt.client.values import TopicPartition
from streamsrt.operators.kinds.asof_joins import pack_row, unpack_row
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.wire.murmur2 import murmur2_many
from streamsrt.wire.records import Headers, RecordColumns

_TIME = Struct(">q")
_ROWS = 5_000


class LoggedRow(NamedTuple):
    """A row as its record in the changelog has it."""

    key: bytes
    value: bytes
    timestamp: int
    headers: Headers


class StoredRows:
    """The rows of the partitions that were read, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._options = RocksDBOptions()

    def read(self, network: Network, tp: TopicPartition, end: int) -> None:
        """Reads a partition up to ``end``. Raises BrokerError, BackfillError."""
        store = self._open(tp)
        try:
            for columns in read_log(network, tp, 0, end):
                store.write(_puts(columns))
        finally:
            store.close()

    def rows(self, tp: TopicPartition) -> Iterator[LoggedRow]:
        """The rows of a partition that was read, by key."""
        store = self._open(tp)
        try:
            for key, stored in store.range():
                headers, value = unpack_row(stored[_TIME.size :])
                yield LoggedRow(key, value, _TIME.unpack_from(stored)[0], tuple(headers))
        finally:
            store.close()

    def _open(self, tp: TopicPartition) -> RocksDBStore:
        return RocksDBStore(self._folder / tp[0] / str(tp[1]), tp[0], self._options)


def _puts(columns: RecordColumns) -> list[tuple[bytes, bytes | None]]:
    headers = columns.headers or [()] * len(columns)
    last: dict[bytes, bytes | None] = {}
    for key, value, timestamp, each in zip(columns.keys, columns.values, columns.timestamps, headers, strict=True):
        if key is not None:
            last[key] = None if value is None else _TIME.pack(timestamp) + pack_row(each, value)
    return list(last.items())


def with_places(
    rows: Iterable[LoggedRow], store: MovedStore, counts: Sequence[int]
) -> Iterator[tuple[LoggedRow, tuple[int, ...]]]:
    """Each row with its partition for each of these counts. Raises UnplacedRowError."""
    found = iter(rows)
    key_of, placing = store.key_of, store.placing
    while chunk := list(islice(found, _ROWS)):
        keys = [key_of(row.key) for row in chunk]
        if placing is None:
            hashes = murmur2_many(keys)
            for row, key in zip(chunk, keys, strict=True):
                hashed = hashes[key] & 0x7FFFFFFF
                yield row, tuple(hashed % count for count in counts)
            continue
        for row, key in zip(chunk, keys, strict=True):
            whole_key = store.whole_key_of(row.key)
            yield row, tuple(placing.partition(key, whole_key, row.value, count) for count in counts)


def closed_marks(store: MovedStore, stored: StoredRows) -> dict[int, LoggedRow]:
    """The marks of a store that says for each partition up to when windows were closed, by partition."""
    found = ((index, next(stored.rows((store.changelog, index)), None)) for index in range(store.existing))
    return {index: row for index, row in found if row is not None}


def latest_mark(marks: Mapping[int, LoggedRow]) -> LoggedRow | None:
    """The mark that all partitions get; None if there is none. A window that was closed in one partition stays closed."""
    return max(marks.values(), key=lambda row: row.timestamp, default=None)
