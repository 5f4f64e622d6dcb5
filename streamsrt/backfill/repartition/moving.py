"""Moves rows from one partition to another, in transactions.

1. A chunk of rows is one transaction: puts in their new partitions, tombstones in their old ones, and rows that are
   rewritten where they are. A row keeps its timestamp and headers.
2. Where a store has a mark for each partition, the latest one is written to all of them.
3. A new attempt fences an earlier one that is still alive, and ends the transaction that it left open.
"""

from __future__ import annotations

from collections.abc import Callable

from streamsrt.backfill.repartition.rows import LoggedRow, StoredRows, closed_marks, latest_mark, with_places
from streamsrt.backfill.repartition.shape import MovedStore
from streamsrt.backfill.repartition.survey import rewritten
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import TopicPartition
from streamsrt.wire.records import Headers, encode_batch

CHUNK_ROWS = 2_000
CHUNK_BYTES = 4 << 20
_BATCH_BYTES = 512 << 10
_TIMEOUT_S = 60.0

Put = tuple[bytes, bytes | None, int, Headers]
OnChunk = Callable[[str], None]


def transactional_id(application_id: str) -> str:
    """Under which rows of an application's state are moved."""
    return f"{application_id}-repartition"


def fence_earlier(network: NetworkThread) -> None:
    """Fences earlier attempts and ends what they left open. All that was committed before is in the logs then."""
    network.transactions.initialize(_TIMEOUT_S)


class Mover:
    """Moves rows. ``network``: its producer has the :func:`transactional_id`. ``on_chunk`` hears of each transaction."""

    def __init__(self, network: NetworkThread, on_chunk: OnChunk, *, chunk_rows: int = CHUNK_ROWS) -> None:
        self._network = network
        self._on_chunk = on_chunk
        self._chunk_rows = chunk_rows
        self._puts: dict[TopicPartition, list[Put]] = {}
        self._rows = self._bytes = 0
        self.moved = 0

    def move(self, store: MovedStore, stored: StoredRows) -> None:
        """Brings the rows of a store to where they belong."""
        if store.has_marks:
            self._spread(store, stored)
            return
        for index in range(store.existing):
            here = store.changelog, index
            for row, (target,) in with_places(stored.rows(here), store, (store.after,)):
                value = rewritten(store, row.value)
                if target == index and value is None:
                    continue
                self._add(row, (store.changelog, target), value or row.value)
                if target != index:
                    self._puts.setdefault(here, []).append((row.key, None, row.timestamp, ()))
                if self._rows >= self._chunk_rows or self._bytes >= CHUNK_BYTES:
                    self._commit(store)
            if self._rows:
                self._commit(store)

    def _spread(self, store: MovedStore, stored: StoredRows) -> None:
        """Writes the latest mark to all partitions that have another one, or none."""
        marks = closed_marks(store, stored)
        latest = latest_mark(marks)
        if latest is None:
            return
        for index in range(store.after):
            if index not in marks or marks[index].value != latest.value:
                self._add(latest, (store.changelog, index), latest.value)
        if self._rows:
            self._commit(store)

    def _add(self, row: LoggedRow, target: TopicPartition, value: bytes) -> None:
        self._puts.setdefault(target, []).append((row.key, value, row.timestamp, row.headers))
        self._rows += 1
        self._bytes += len(row.key) + len(value)

    def _commit(self, store: MovedStore) -> None:
        for (topic, partition), puts in self._puts.items():
            for batch in _batches(puts):
                keys, values, times, headers = map(list, zip(*batch, strict=True))
                encoded = encode_batch(
                    keys, values, times, headers=headers if any(headers) else None, transactional=True
                )
                self._network.producer.send(topic, partition, encoded, len(keys))
        self._network.transactions.commit("", {}, member_id="", member_epoch=-1, timeout_s=_TIMEOUT_S)
        self.moved += self._rows
        self._puts = {}
        self._rows = self._bytes = 0
        self._on_chunk(f"{self.moved} rows moved, {store.store} under way")


def _batches(puts: list[Put]) -> list[list[Put]]:
    """Runs of puts that a broker takes as one batch."""
    found: list[list[Put]] = [[]]
    size = 0
    for put in puts:
        more = len(put[0]) + len(put[1] or b"")
        if size and size + more > _BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(put)
        size += more
    return found
