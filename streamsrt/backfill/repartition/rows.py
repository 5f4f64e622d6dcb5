"""The rows of a changelog, each once, on disk, as an instance would restore them, with timestamps and headers.

1. A partition is read once, read_committed, into a RocksDB of its own: memory stays bounded whatever the state.
2. A row is the last record of its key; keys whose last record is a tombstone have no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.repartition.placement import KeyOf
from streamsrt.client.interface import Network
from streamsrt.client.values import TopicPartition
from streamsrt.operators.kinds.asof_joins import pack_row, unpack_row
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.wire.murmur2 import murmur2_many
from streamsrt.wire.records import Headers, RecordColumns

_TIME = Struct(">q")
_HASHED_ROWS = 5_000


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


def with_hashes(rows: Iterable[LoggedRow], key_of: KeyOf) -> Iterator[tuple[LoggedRow, int]]:
    """Each row with the hash whose remainder is its partition."""
    found = iter(rows)
    while chunk := list(islice(found, _HASHED_ROWS)):
        keys = [key_of(row.key) for row in chunk]
        hashes = murmur2_many(keys)
        for row, key in zip(chunk, keys, strict=True):
            yield row, hashes[key] & 0x7FFFFFFF
