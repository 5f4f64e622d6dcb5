"""What a task costs per record, from fetched batches to encoded ones: ``python -m tests.bench.bench_stages [workload ...]``.

Scope: batches in memory -> decode with CRC check -> operators -> write-back cache over RocksDB -> changelog and outputs
encoded over six partitions; no network. Beside each workload stand, measured in the same run, its bare stages, hand-written
for this very program over our own decoder, encoder and store, and the prototype: a loop over the bare libraries without
checks (:mod:`tests.bench.prototype`). What remains is the price of being general. 500 records in a batch, values of 100
bytes, 10,000 keys, a commit for each 50,000 records. CPU time; medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, Literal, NamedTuple

from streamsrt.runtime.tuning import tune_process
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.state.windowed import WindowBytesStore
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import decode_batches, encode_batch
from tests.bench import prototype
from tests.bench.measure import compare
from topology import serdes
from topology.graph import nodes, operations
from topology.spec.windows import TimeWindows

RECORDS = 100_000
BATCH_RECORDS = 500
COMMIT_RECORDS = 50_000
PARTITIONS = 6
T0 = 1_700_000_040_000
pack8 = Struct(">q").pack
DIRECTORIES: list[str] = []

Level = Literal["INFO", "DEBUG", "TRACE"]
Row = tuple[bytes | None, bytes, int]


class Driven(NamedTuple):
    """A task, and where its output goes."""

    task: Task
    collector: RecordCollector

    def commit(self) -> None:
        self.task.prepare_commit()
        self.collector.flush()
        self.task.post_commit(dict.fromkeys(self.task.caches, 1))


@dataclass(frozen=True)
class Workload:
    title: str
    batches: list[bytes]
    records: int
    task: Callable[[Level], Driven]
    bare: Callable[[], Callable[[], object]]
    prototype: Callable[[], object]


def rows(keys: int = 10_000, records: int = RECORDS, step: float = 1.0) -> list[Row]:
    rng = random.Random(1)
    pool = [rng.randbytes(50).hex().encode() for _ in range(997)]
    return [(b"user-%06d" % rng.randrange(keys), pool[i % 997], T0 + int(i * step)) for i in range(records)]


def lines(records: int = 20_000) -> list[Row]:
    rng = random.Random(7)
    words = sorted({"".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 10))) for _ in range(10_000)})
    weights = [1 / (i + 1) for i in range(len(words))]
    flat = rng.choices(words, weights, k=records * 12)
    return [(None, " ".join(flat[i * 12 : i * 12 + 12]).encode(), T0 + i) for i in range(records)]


def encoded(records: list[Row], per_batch: int = BATCH_RECORDS) -> list[bytes]:
    result = []
    for start in range(0, len(records), per_batch):
        keys, values, timestamps = zip(*records[start : start + per_batch], strict=True)
        result.append(encode_batch(keys, values, timestamps, base_offset=start))
    return result


# ------------------------------------------------------------------------------------------------------- programs


def chain(
    *steps: tuple[str, Any], source: nodes.SourceNode, sink: nodes.SinkNode, stores: Any = ()
) -> nodes.Subtopology:
    """A line of processors between a source and a sink."""
    names = [name for name, _ in steps]
    made: list[Any] = [
        nodes.SourceNode(
            name=source.name,
            topics=source.topics,
            key_serde=source.key_serde,
            value_serde=source.value_serde,
            children=(names[0],),
        )
    ]
    for index, (name, operation) in enumerate(steps):
        made.append(
            nodes.ProcessorNode(
                name=name,
                operation=operation,
                parents=(names[index - 1] if index else source.name,),
                children=(names[index + 1] if index + 1 < len(names) else sink.name,),
            )
        )
    made.append(sink)
    return nodes.Subtopology(number=0, id="bench", digest="", nodes=tuple(made), stores=stores)


def source(value: Any = serdes.bytes) -> nodes.SourceNode:
    return nodes.SourceNode(name="source", topics=("in",), key_serde=serdes.bytes, value_serde=value)


def sink(key: Any = serdes.bytes, value: Any = serdes.bytes) -> nodes.SinkNode:
    return nodes.SinkNode(name="sink", topic="out", key_serde=key, value_serde=value)


def new_store(spec: nodes.StoreSpec, *, statistics: bool = False) -> Any:
    directory = tempfile.mkdtemp(prefix="bench-stages-")
    DIRECTORIES.append(directory)
    store = RocksDBStore(Path(directory) / spec.name, spec.name, RocksDBOptions(statistics=statistics))
    if spec.kind == "window":
        assert spec.retention_ms is not None
        return WindowBytesStore(store, retention_ms=spec.retention_ms)
    return store


def new_task(subtopology: nodes.Subtopology, level: Level = "INFO", cache_bytes: int = 64 << 20) -> Driven:
    def written(topic: str, partition: int, batch: bytes, count: int) -> None:
        pass

    collector = RecordCollector(written, lambda topic: PARTITIONS)
    task = Task(
        subtopology,
        0,
        application_id="bench",
        stores={spec.name: new_store(spec, statistics=level != "INFO") for spec in subtopology.stores},
        collector=collector,
        config=TaskConfig(cache_max_bytes=cache_bytes, write_buffer_max_bytes=64 << 20, recording_level=level),
        partitions_of_topic=lambda topic: PARTITIONS,
    )
    return Driven(task, collector)


def drive(driven: Driven, batches: list[bytes]) -> Callable[[], object]:
    """Feeds the batches as a stream thread does: decode, add, process, and commit now and then."""
    task = driven.task

    def run() -> None:
        since = 0
        for batch in batches:
            for columns in decode_batches(batch):
                task.add_batch("in", 0, columns)
            since += task.process(BATCH_RECORDS * 8, 0)
            if since >= COMMIT_RECORDS or task.commit_requested:
                driven.commit()
                since = 0
        driven.commit()

    return run


def filter_map() -> nodes.Subtopology:
    return chain(
        ("filter", operations.Filter(predicate=lambda k, v: v[0] != 48)),
        ("map", operations.MapValues(fn=lambda v: v.upper())),
        source=source(),
        sink=sink(),
    )


COUNTS = nodes.StoreSpec(name="counts", key_serde=serdes.bytes, value_serde=serdes.long)


def count() -> nodes.Subtopology:
    return chain(
        ("count", operations.Aggregate(store="counts", aggregation="count")),
        ("to-stream", operations.TableToStream()),
        source=source(),
        sink=sink(value=serdes.long),
        stores=(COUNTS,),
    )


WINDOWS = TimeWindows(60_000, grace=30_000)


def windowed_count() -> nodes.Subtopology:
    spec = nodes.StoreSpec(
        name="counts",
        kind="window",
        key_serde=serdes.bytes,
        value_serde=serdes.long,
        retention_ms=90_000,
        window_size_ms=60_000,
    )
    return chain(
        ("count", operations.Aggregate(store="counts", aggregation="count", windows=WINDOWS)),
        ("to-stream", operations.TableToStream()),
        source=source(),
        sink=sink(key=serdes.time_windowed(serdes.bytes, 60_000), value=serdes.long),
        stores=(spec,),
    )


def split_words() -> nodes.Subtopology:
    return chain(
        ("split", operations.FlatMapValues(fn=lambda v: v.lower().split())),
        ("key", operations.SelectKey(fn=lambda k, v: v)),
        ("one", operations.MapValues(fn=lambda v: b"1")),
        source=source(),
        sink=sink(),
    )


TABLE = nodes.StoreSpec(name="profiles", key_serde=serdes.bytes, value_serde=serdes.bytes, caching=False)


def join() -> nodes.Subtopology:
    made = chain(
        ("join", operations.StreamTableJoin(table="table", joiner=lambda v, profile: v + profile)),
        source=source(),
        sink=sink(),
        stores=(TABLE,),
    )
    table = nodes.SourceNode(
        name="profiles-source",
        topics=("profiles",),
        key_serde=serdes.bytes,
        value_serde=serdes.bytes,
        children=("table",),
    )
    node = nodes.ProcessorNode(
        name="table",
        operation=operations.TableSource(store="profiles"),
        parents=("profiles-source",),
        stores=("profiles",),
    )
    return nodes.Subtopology(number=0, id="bench", digest="", nodes=(*made.nodes, table, node), stores=(TABLE,))


def profiles() -> list[bytes]:
    return encoded([(b"user-%06d" % i, b"|profile-%06d-xxxxxxxxxxxxxxxxxxx" % i, T0) for i in range(100_000)])


def join_task(level: Level) -> Driven:
    driven = new_task(join(), level)
    for batch in profiles():
        for columns in decode_batches(batch):
            driven.task.restore("profiles", columns)
    return driven


# ------------------------------------------------------------------------------------------------------- bare stages


def bare_decode_encode(batches: list[bytes], work: Callable[[Any, Any, Any, Any], None]) -> Callable[[], object]:
    def run() -> None:
        collector = RecordCollector(lambda *written: None, lambda topic: PARTITIONS)
        for batch in batches:
            for columns in decode_batches(batch):
                work(columns.keys, columns.values, columns.timestamps, collector.add)
        collector.flush()

    return run


def bare_filter_map(keys: Any, values: Any, timestamps: Any, add: Any) -> None:
    kept = [(k, v.upper(), t) for k, v, t in zip(keys, values, timestamps, strict=True) if v[0] != 48]
    add("out", *map(list, zip(*kept, strict=True)))


def bare_words(keys: Any, values: Any, timestamps: Any, add: Any) -> None:
    words: list[bytes] = []
    times: list[int] = []
    for value, timestamp in zip(values, timestamps, strict=True):
        found = value.lower().split()
        words += found
        times += [timestamp] * len(found)
    add("out", words, [b"1"] * len(words), times)


def bare_count(batches: list[bytes], window_ms: int = 0) -> Callable[[], object]:
    """Decode, one dictionary per window, and at each commit the changelog, the outputs and one write to the store."""
    store = new_store(COUNTS)
    rows_of: dict[int, dict[bytes, list[int]]] = {}

    def flush(collector: RecordCollector) -> None:
        dirty = [(k + pack8(w) if window_ms else k, row) for w, d in rows_of.items() for k, row in d.items() if row[2]]
        dirty.sort()
        keys = [key for key, _ in dirty]
        counts = [pack8(row[0]) for _, row in dirty]
        times = [row[1] for _, row in dirty]
        for _, row in dirty:
            row[2] = 0
        collector.add("log", keys, counts, times, None, 0)
        collector.add("out", keys, counts, times)
        collector.flush()
        store.write(list(zip(keys, (pack8(t) + c for t, c in zip(times, counts, strict=True)), strict=True)))

    def run() -> None:
        collector = RecordCollector(lambda *written: None, lambda topic: PARTITIONS)
        since = 0
        for batch in batches:
            for columns in decode_batches(batch):
                for key, time in zip(columns.keys, columns.timestamps, strict=True):
                    assert key is not None
                    rows = rows_of.setdefault(time - time % window_ms if window_ms else 0, {})
                    row = rows.get(key)
                    if row is None:
                        row = rows[key] = [0, 0, 0]
                    row[0] += 1
                    row[1] = max(time, row[1])
                    row[2] = 1
                since += len(columns)
            if since >= COMMIT_RECORDS:
                flush(collector)
                since = 0
        flush(collector)

    return run


def bare_join(batches: list[bytes]) -> Callable[[], object]:
    table = {b"user-%06d" % i: b"|profile-%06d-xxxxxxxxxxxxxxxxxxx" % i for i in range(100_000)}

    def work(keys: Any, values: Any, timestamps: Any, add: Any) -> None:
        add("out", keys, [v + table[k] for k, v in zip(keys, values, strict=True)], timestamps)

    return bare_decode_encode(batches, work)


# ------------------------------------------------------------------------------------------------------- workloads


def prototype_store() -> prototype.Store:
    directory = tempfile.mkdtemp(prefix="bench-stages-")
    DIRECTORIES.append(directory)
    return prototype.Store(directory)


def prototype_count(batches: list[bytes], window_ms: int = 0) -> Callable[[], object]:
    return prototype.counts(batches, prototype_store(), COMMIT_RECORDS, PARTITIONS, window_ms)


def prototype_join(batches: list[bytes]) -> Callable[[], object]:
    """The table is there already, as it is for the task."""
    store = prototype_store()
    prototype.join([], profiles(), store, PARTITIONS)()
    return prototype.join(batches, [], store, PARTITIONS)


def workloads() -> dict[str, Callable[[], Workload]]:
    def plain(
        title: str, made: Any, batches: list[bytes], bare: Any, best: Callable[[], object], records: int = RECORDS
    ) -> Workload:
        return Workload(title, batches, records, lambda level: new_task(made(), level), bare, best)

    def map_filter() -> Workload:
        b = encoded(rows())
        bare = lambda: bare_decode_encode(b, bare_filter_map)  # noqa: E731
        return plain("filter + map_values", filter_map, b, bare, prototype.filter_map(b, PARTITIONS))

    def counting() -> Workload:
        b = encoded(rows())
        return plain("count, cached", count, b, lambda: bare_count(b), prototype_count(b))

    def uncached() -> Workload:
        b = encoded(rows())
        task = lambda level: new_task(count(), level, 0)  # noqa: E731
        return Workload("count, caching off", b, RECORDS, task, lambda: bare_count(b), prototype_count(b))

    def windows() -> Workload:
        b = encoded(rows(step=0.5))
        best = prototype_count(b, 60_000)
        return plain("tumbling count, cached", windowed_count, b, lambda: bare_count(b, 60_000), best)

    def joining() -> Workload:
        b = encoded(rows(keys=100_000))
        return Workload("stream-table join", b, RECORDS, join_task, lambda: bare_join(b), prototype_join(b))

    def words1() -> Workload:
        text = lines()
        b = encoded(text)
        best = prototype.split_words(b, PARTITIONS)
        bare = lambda: bare_decode_encode(b, bare_words)  # noqa: E731
        return plain("word count 1, per line", split_words, b, bare, best, len(text))

    def words2() -> Workload:
        text: list[Row] = [(word, b"1", t) for _, line, t in lines() for word in line.split()]
        b = encoded(text, 2000)
        return plain("word count 2, per word", count, b, lambda: bare_count(b), prototype_count(b), len(text))

    return {
        "map": map_filter,
        "count": counting,
        "uncached": uncached,
        "window": windows,
        "join": joining,
        "words1": words1,
        "words2": words2,
    }


def remove_directories() -> None:
    """What the stores of all tasks wrote."""
    while DIRECTORIES:
        shutil.rmtree(DIRECTORIES.pop(), ignore_errors=True)


def main() -> None:
    """Prints one line per workload: task, bare stages, their ratio, and the ratio to the prototype."""
    known = workloads()
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.bench_stages", description="What a task costs per record."
    )
    parser.add_argument("workload", nargs="*", metavar="workload", help=f"of {', '.join(known)}; all by default")
    chosen = parser.parse_args().workload
    if unknown := sorted(set(chosen) - known.keys()):
        parser.error(f"there is no workload {', '.join(unknown)}: there are {', '.join(known)}")
    tune_process()
    print(f"{'ns per record':24} {'task':>8} {'bare':>8} {'x bare':>8} {'prototype':>10} {'x prototype':>12}")
    try:
        for name in chosen or list(known):
            workload = known[name]()
            task = drive(workload.task("INFO"), workload.batches)
            sides = {"task": task, "bare": workload.bare(), "prototype": workload.prototype}
            seconds = compare(sides, rounds=5)
            task_ns, bare_ns, best_ns = (seconds[side] / workload.records * 1e9 for side in sides)
            print(
                f"{workload.title:24} {task_ns:8.0f} {bare_ns:8.0f} {task_ns / bare_ns:8.2f} "
                f"{best_ns:10.0f} {task_ns / best_ns:12.2f}",
                flush=True,
            )
    finally:
        remove_directories()


if __name__ == "__main__":
    main()
