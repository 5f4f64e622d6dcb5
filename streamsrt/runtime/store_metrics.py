"""Metrics of stores, their record caches and RocksDB, read on the processing thread for a few tasks at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from streamsrt.runtime.metrics import CACHE, STORE, MetricList
from streamsrt.sensors import SensorReading
from streamsrt.state import rocksdb_statistics as rocksdb
from streamsrt.state.kinds import Cache, rocksdb_of, scope
from streamsrt.state.rocksdb import RocksDBStore
from streamsrt.state.timed import StoreMeter
from streamsrt.tasks.global_state import GlobalConsumer
from streamsrt.tasks.manager.owned_task import OwnedTask
from topology.graph.nodes import ProcessorNode
from topology.graph.operations.traits import own_store
from topology.graph.store_kinds import RowsOfKey, rows_of

GLOBAL_TASK_ID: Final = "-1_-1"
_RATIO = 1e6


def store_metrics(board: MetricList, tags: Mapping[str, str], owned: OwnedTask) -> None:
    """Adds the metrics of one task's stores."""
    for spec in owned.subtopology.stores:
        name, store = spec.name, owned.stores[spec.name]
        of_store = {**tags, "task-id": str(owned), f"{scope(spec)}-state-id": name}
        cache = owned.task.caches[name]
        _store(board, of_store, store, cache)
        progress = owned.changelogs.get(name)
        if progress is not None:
            left = progress.remaining_records
            board.add(STORE, "restore-remaining-records-total", left, of_store, "records left")
            board.add(STORE, "restore-total", progress.restored_records, of_store, "records restored")
        meter = owned.task.meter.stores.get(name)
        if meter is not None:
            _operations(board, of_store, meter)
            of_cache = {**tags, "task-id": str(owned), "record-cache-id": name}
            _hits(board, of_cache, meter, _accesses(owned, name, meter))
        if rows_of(spec) is RowsOfKey.HELD:
            _suppression(board, of_store, owned, name)
        elif meter is not None:
            _latency(board, of_store, owned, name)


def global_store_metrics(board: MetricList, tags: Mapping[str, str], consumer: GlobalConsumer) -> None:
    """Adds the metrics of one stream thread's global stores, under the task id that they have in Kafka Streams."""
    for spec, store, cache in consumer.open_stores():
        _store(board, {**tags, "task-id": GLOBAL_TASK_ID, f"{scope(spec)}-state-id": spec.name}, store, cache)


def _store(board: MetricList, of_store: Mapping[str, str], store: Any, cache: Cache) -> None:
    board.add(STORE, "estimate-num-keys", store.approximate_count(), of_store, "entries in the store, estimated")
    board.add(STORE, "size-bytes", store.approximate_size_bytes(), of_store, "bytes on disk and in memtables")
    board.add(STORE, "cache-size-bytes-total", cache.size_bytes(), of_store, "bytes of its record cache, estimated")
    found = rocksdb_of(store)
    if found is not None:
        _properties(board, of_store, found)
        _statistics(board, of_store, found)


def _operations(board: MetricList, of_store: Mapping[str, str], meter: StoreMeter) -> None:
    for name, spread in meter.operations.items():
        board.rate(STORE, name, spread.count, of_store, f"calls of {name}")
        board.spread(STORE, f"{name}-latency", spread, board.now_ns, of_store, f"nanoseconds of a {name}")
    board.spread(
        STORE, "iterator-duration", meter.iterators, board.now_ns, of_store, "nanoseconds that an iterator was open"
    )


def _accesses(owned: OwnedTask, store: str, meter: StoreMeter) -> int:
    """Returns the number of accesses to a store's record cache: by records at nodes with the store, and by user code."""
    nodes = owned.task.meter.nodes
    by_nodes = sum(
        nodes[node.name].processed
        for node in owned.subtopology.nodes
        if isinstance(node, ProcessorNode) and (own_store(node.operation) == store or store in node.stores)
    )
    return meter.user_accesses or by_nodes


def _hits(board: MetricList, of_cache: Mapping[str, str], meter: StoreMeter, accesses: int) -> None:
    meter.hit_ratio(accesses, board.now_ns)
    found = SensorReading(*(each / _RATIO for each in meter.hit_ratios.read(board.now_ns)))
    board.reading(CACHE, "hit-ratio", found, of_cache, "share of all accesses that the cache answered", low=True)


def _suppression(board: MetricList, of_store: Mapping[str, str], owned: OwnedTask, store: str) -> None:
    meter = owned.task.meter.buffers.get(store)
    if meter is not None:
        for name, spread in zip(("count", "size"), meter, strict=True):
            what = "changes that are held back" if name == "count" else "bytes that are held back"
            board.spread(STORE, f"suppression-buffer-{name}", spread, board.now_ms, of_store, what)


def _latency(board: MetricList, of_store: Mapping[str, str], owned: OwnedTask, store: str) -> None:
    for node in owned.subtopology.nodes:
        if isinstance(node, ProcessorNode) and own_store(node.operation) == store:
            meter = owned.task.meter.nodes[node.name]
            if meter.at_store:
                what = "milliseconds from a record's timestamp to its arrival at the store"
                board.spread(STORE, "record-e2e-latency", meter.latency, board.now_ms, of_store, what, low=True)


def _properties(board: MetricList, of_store: Mapping[str, str], store: RocksDBStore) -> None:
    since_ms = store.open_since_ms()
    board.add(STORE, "num-open-iterators", len(since_ms), of_store, "iterators that are open")
    oldest = min(since_ms, default=0)
    board.add(
        STORE,
        "oldest-iterator-open-since-ms",
        oldest,
        of_store,
        "when the oldest open iterator was opened; 0: there is none",
    )
    for name in rocksdb.PROPERTIES:
        board.add(STORE, name, store.property(name), of_store, f"property rocksdb.{name}")


def _statistics(board: MetricList, of_store: Mapping[str, str], store: RocksDBStore) -> None:
    found = rocksdb.parse(store.statistics())
    if not found:
        return
    for name, statistic in rocksdb.TOTALS.items():
        board.counted(STORE, name, found[statistic].total, of_store, f"bytes of {statistic}")
    for name, statistic in rocksdb.RATIOS.items():
        board.add(
            STORE, name, rocksdb.ratio(found, statistic), of_store, "share of look-ups that hit, since it was opened"
        )
    for name, statistic in rocksdb.TIMES.items():
        count, total_us, longest_us = found[statistic].count, found[statistic].total, found[statistic].longest
        average_ms = total_us / count / 1000 if count else float("nan")
        board.add(STORE, f"{name}-avg", average_ms, of_store, "milliseconds, since it was opened")
        if name == "write-stall-duration":
            board.add(STORE, f"{name}-total", total_us / 1000, of_store, "milliseconds, since it was opened")
        else:
            board.add(STORE, f"{name}-max", longest_us / 1000, of_store, "milliseconds, since it was opened")
    board.add(
        STORE, "number-open-files", found[rocksdb.FILE_OPENS].total, of_store, "files opened, since it was opened"
    )
    board.add(STORE, "number-file-errors-total", found[rocksdb.FILE_ERRORS].total, of_store, "errors of files")
