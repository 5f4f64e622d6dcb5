"""Operators in process, per record: ``python -m tests.bench.bench_operators [--rounds 3] [--runs] [name ...]``.

Scope: batches in memory -> decode with CRC check -> the program's tasks, with repartition topics between them -> write-back
caches over RocksDB -> changelogs and outputs encoded; no network. 500 records in a batch, a commit for each 50,000 records.
CPU time of this process, medians of interleaved rounds. ``x count`` is the time as a multiple of the count per key,
``x best`` as a multiple of a loop written by hand for that program (:mod:`tests.bench.prototype`), in the same run. Goals
are those of a machine on which that loop takes what is in PROTOTYPE_NS; on another one, what counts is ``x best``.

With ``--runs``, the programs of two inputs get inputs that alternate record by record (runs of one record) and batch by
batch, under ``max.task.idle.ms``: the difference is what a run costs over its records.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from streamsrt.runtime.tuning import tune_process
from streamsrt.state.kinds import LaidOut, lay_out
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.tasks.global_state import GlobalState
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import decode_batches, encode_batch
from tests.bench import prototype
from tests.bench.measure import compare
from topology import (
    Buffer,
    EmitStrategy,
    JoinWindows,
    KStream,
    ProcessorContext,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    serdes,
)
from topology.graph.nodes import StoreSpec

RECORDS, KEYS = 100_000, 5_000
BATCH_RECORDS, COMMIT_RECORDS = 500, 50_000
T0 = 1_700_000_040_000
IDLE_MS = 1_000
"""``max.task.idle.ms`` where inputs alternate."""
APPLICATION = "bench"
GOALS = {"stream-table join": 0.7, "tumbling count": 1.0, "word count (lines)": 0.1}
"""Millions of records a second on one core."""
PROTOTYPE_NS = {"count per key": 564, "stream-table join": 1392, "tumbling count": 715, "word count (lines)": 9613}

RUN_GOAL_US = 3.0
"""What a run may cost over its records."""

Row = tuple[str, bytes | None, bytes, int]
Build = Callable[[StreamsBuilder], None]


class Bench:
    """A topology's tasks for partition 0, fed as stream threads feed them."""

    def __init__(self, topology: Topology, folder: Path, max_task_idle_ms: int = 0) -> None:
        ready = topology.with_default_serdes(serdes.bytes, serdes.bytes)
        config = TaskConfig(
            cache_max_bytes=64 << 20, write_buffer_max_bytes=64 << 20, max_task_idle_ms=max_task_idle_ms
        )
        self._to_come: deque[tuple[Task, str, bytes]] = deque()
        self._tasks: list[Task] = []
        self._reader_of: dict[str, Task] = {}

        def laid_out(spec: StoreSpec) -> LaidOut:
            return lay_out(spec, RocksDBStore(folder / spec.name, spec.name, RocksDBOptions()))

        shared = ready.global_subtopologies
        self._globals = GlobalState(
            shared,
            application_id=APPLICATION,
            stores={spec.name: laid_out(spec) for each in shared for spec in each.stores},
            config=config,
        )
        self._collector = RecordCollector(self._written, lambda topic: 1)
        for subtopology in ready.subtopologies:
            stores = {spec.name: laid_out(spec) for spec in subtopology.stores}
            task = Task(
                subtopology,
                0,
                application_id=APPLICATION,
                stores=stores,
                collector=self._collector,
                config=config,
                partitions_of_topic=lambda topic: 1,
                global_stores=self._globals,
            )
            self._tasks.append(task)
            self._reader_of.update({topic: task for topic, _ in task.source_partitions})

    def _written(self, topic: str, partition: int, batch: bytes, count: int) -> None:
        reader = self._reader_of.get(topic)
        if reader is not None:
            self._to_come.append((reader, topic, batch))

    def feed(self, batches: list[tuple[str, bytes]], together: int = 1) -> None:
        """Everything to its end, with commits on the way. ``together``: so many batches are there before work begins."""
        since = 0
        for index, (topic, batch) in enumerate(batches, 1):
            if topic in self._globals.topics:
                for columns in decode_batches(batch):
                    self._globals.apply(topic, 0, columns)
                continue
            since += self._take(self._reader_of[topic], topic, batch, processes=index % together == 0)
            if since >= COMMIT_RECORDS:
                self._commit()
                since = 0
        self._commit()

    def _take(self, task: Task, topic: str, batch: bytes, *, processes: bool = True) -> int:
        for columns in decode_batches(batch):
            task.add_batch(topic, 0, columns)
        return task.process(BATCH_RECORDS * 8, 0) if processes else 0

    def _commit(self) -> None:
        while True:
            for task in self._tasks:
                # What waited for another input waits no more.
                for now_ms in (0, IDLE_MS):
                    while task.process(BATCH_RECORDS * 8, now_ms):
                        pass
                task.prepare_commit()
                self._collector.flush()
                task.post_commit(dict.fromkeys(task.caches, 1))
            if not self._to_come:
                return
            while self._to_come:
                self._take(*self._to_come.popleft())


# ----------------------------------------------------------------------------------------------------------- programs


def text(builder: StreamsBuilder, topic: str = "in") -> KStream[Any, Any]:
    return builder.stream(topic, key=serdes.bytes, value=serdes.bytes)


def count(builder: StreamsBuilder) -> None:
    text(builder).group_by_key().count(store="s").to_stream().to("out", value=serdes.long)


def windowed(windows: Any, emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE) -> Build:
    def build(builder: StreamsBuilder) -> None:
        table = text(builder).group_by_key().windowed_by(windows).emit_strategy(emit).count(store="s")
        table.to_stream(lambda window, _: window.key).to("out", key=serdes.bytes, value=serdes.long)

    return build


def word_count(builder: StreamsBuilder) -> None:
    lines: KStream[Any, str] = builder.stream("in", key=serdes.bytes, value=serdes.string)
    words = lines.flat_map_values(str.split).group_by(lambda _, word: word, key=serdes.string, value=serdes.string)
    words.count(store="s").to_stream().to("out", key=serdes.string, value=serdes.long)


def stream_table(builder: StreamsBuilder) -> None:
    table = builder.table("table", key=serdes.bytes, value=serdes.bytes, store="t")
    text(builder).join(table, lambda value, row: value + row).to("out", key=serdes.bytes, value=serdes.bytes)


def stream_stream(builder: StreamsBuilder) -> None:
    windows = JoinWindows(1000, grace=1000)
    joined = text(builder).join(text(builder, "table"), lambda one, other: one + other, windows)
    joined.to("out", key=serdes.bytes, value=serdes.bytes)


def stream_stream_left(builder: StreamsBuilder) -> None:
    windows = JoinWindows(1000, grace=1000)
    joined = text(builder).left_join(text(builder, "table"), lambda one, other: one + (other or b""), windows)
    joined.to("out", key=serdes.bytes, value=serdes.bytes)


def stream_stream_outer(builder: StreamsBuilder) -> None:
    windows = JoinWindows(1000, grace=1000)
    joined = text(builder).outer_join(text(builder, "table"), lambda one, other: (one or b"") + (other or b""), windows)
    joined.to("out", key=serdes.bytes, value=serdes.bytes)


def merged(builder: StreamsBuilder) -> None:
    both = text(builder).merge(text(builder, "table")).filter(lambda key, value: value[0] != 48)
    both.to("out", key=serdes.bytes, value=serdes.bytes)


def table_table(builder: StreamsBuilder) -> None:
    one = builder.table("in", key=serdes.bytes, value=serdes.bytes, store="one")
    other = builder.table("table", key=serdes.bytes, value=serdes.bytes, store="other")
    one.join(other, lambda a, b: a + b).to_stream().to("out", key=serdes.bytes, value=serdes.bytes)


def foreign_key(builder: StreamsBuilder) -> None:
    one = builder.table("in", key=serdes.bytes, value=serdes.bytes, store="one")
    other = builder.table("table", key=serdes.bytes, value=serdes.bytes, store="other")
    joined = one.join(other, lambda a, b: a + b, foreign_key=lambda value: b"key-00%d" % (value[0] * 19 % KEYS))
    joined.to_stream().to("out", key=serdes.bytes, value=serdes.bytes)


def group_table(builder: StreamsBuilder) -> None:
    table = builder.table("in", key=serdes.bytes, value=serdes.bytes, store="one")
    grouped = table.group_by(lambda key, value: (value[:2], value), key=serdes.bytes, value=serdes.bytes)
    grouped.count(store="groups").to_stream().to("out", key=serdes.bytes, value=serdes.long)


def suppressed(builder: StreamsBuilder) -> None:
    windows = TimeWindows(5_000, grace=0)
    table = (
        text(builder).group_by_key().windowed_by(windows).count(store="s").suppress(Suppressed.until_window_closes())
    )
    table.to_stream(lambda window, _: window.key).to("out", key=serdes.bytes, value=serdes.long)


def suppressed_at_limit(builder: StreamsBuilder) -> None:
    table = builder.table("in", key=serdes.bytes, value=serdes.bytes, store="one")
    held = table.suppress(Suppressed.until_time_limit(2_000, Buffer(max_records=2_000)))
    held.to_stream().to("out", key=serdes.bytes, value=serdes.bytes)


def as_of(builder: StreamsBuilder) -> None:
    joined = text(builder).join_asof(text(builder, "table"), lambda one, other: one + other, 1000, grace=100)
    joined.to("out", key=serdes.bytes, value=serdes.bytes)


def count_with_ttl(builder: StreamsBuilder) -> None:
    counts = text(builder).group_by_key().count(store=Store("counts", ttl=5_000))
    counts.to_stream().to("out", key=serdes.bytes, value=serdes.long)


def once(builder: StreamsBuilder) -> None:
    stream = text(builder).deduplicate(
        lambda key, value: value, timedelta(seconds=10), serde=serdes.bytes, store="seen"
    )
    stream.to("out", key=serdes.bytes, value=serdes.bytes)


def global_join(builder: StreamsBuilder) -> None:
    rows = builder.global_table("rows", key=serdes.bytes, value=serdes.bytes, store="g")
    both = text(builder).merge(text(builder, "table"))
    joined = both.join(rows, lambda value, row: value + row, on=lambda key, _: key)
    joined.to("out", key=serdes.bytes, value=serdes.bytes)


def versioned_join(grace: int | None = None) -> Build:
    def build(builder: StreamsBuilder) -> None:
        store = Store("versions", kind="versioned", retention=60_000)
        table = builder.table("table", key=serdes.bytes, value=serdes.bytes, store=store)
        joined = text(builder).join(table, lambda value, row: value + row, grace=grace)
        joined.to("out", key=serdes.bytes, value=serdes.bytes)

    return build


class Counts:
    """Counts in a store and forwards each count."""

    def init(self, context: ProcessorContext[bytes, int]) -> None:
        self.context = context
        self.counts = context.get_state_store("s")

    def process(self, record: Record[bytes, bytes]) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(count))


class CountsNowAndThen(Counts):
    """Forwards all counts when a second of stream time has passed, and counts anew."""

    def init(self, context: ProcessorContext[bytes, int]) -> None:
        super().init(context)
        context.schedule(1_000, PunctuationType.STREAM_TIME, self.tick)

    def process(self, record: Record[bytes, bytes]) -> None:
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)

    def tick(self, now_ms: int) -> None:
        for key, count in self.counts.all():
            self.context.forward(Record(key, count, now_ms))
            self.counts.delete(key)


def processor(supplier: type[Counts]) -> Build:
    def build(builder: StreamsBuilder) -> None:
        builder.add_state_store(Store("s", key=serdes.bytes, value=serdes.long))
        both = text(builder).merge(text(builder, "table"))
        both.process(supplier, stores=["s"]).to("out", key=serdes.bytes, value=serdes.long)

    return build


PROGRAMS: dict[str, Build] = {
    "count per key": count,
    "word count (lines)": word_count,
    "word count, words of one length (lines)": word_count,
    "tumbling count": windowed(TimeWindows(60_000, grace=30_000)),
    "hopping count, 4 windows": windowed(TimeWindows(60_000, 15_000, grace=30_000)),
    "sliding count": windowed(SlidingWindows(2_000, grace=1_000)),
    "session count": windowed(SessionWindows(2_000, grace=1_000)),
    "tumbling count, at close": windowed(TimeWindows(5_000), EmitStrategy.ON_WINDOW_CLOSE),
    "suppress until close": suppressed,
    "suppress at a limit": suppressed_at_limit,
    "stream-table join": stream_table,
    "stream-stream join": stream_stream,
    "stream-stream join, interleaved": stream_stream,
    "stream-stream left join": stream_stream_left,
    "stream-stream outer join": stream_stream_outer,
    "table-table join": table_table,
    "foreign-key join": foreign_key,
    "group table by": group_table,
    "as-of join": as_of,
    "count per key, ttl": count_with_ttl,
    "deduplicate": once,
    "global join": global_join,
    "versioned join": versioned_join(),
    "grace join": versioned_join(grace=100),
    "processor": processor(Counts),
    "processor, punctuations": processor(CountsNowAndThen),
    "merge": merged,
}
TWO_INPUTS = (
    "merge",
    "stream-stream join",
    "stream-stream left join",
    "stream-stream outer join",
    "stream-table join",
    "table-table join",
    "foreign-key join",
    "as-of join",
    "global join",
    "versioned join",
    "grace join",
    "processor",
    "processor, punctuations",
)
ALTERNATING = {f"{name}, alternating": PROGRAMS[name] for name in TWO_INPUTS}
"""Programs of two inputs whose times alternate record by record."""
PROGRAMS |= ALTERNATING
ONE_LENGTH = {"word count, words of one length (lines)"}
INTERLEAVED = {"stream-stream join, interleaved"}
APART = {f"{name}, runs of {BATCH_RECORDS}": PROGRAMS[name] for name in TWO_INPUTS}
"""The same programs, of inputs that alternate batch by batch."""
PROGRAMS |= APART
TWO_SIDED = {"stream-table join", "stream-stream join", "table-table join", "foreign-key join"}


# -------------------------------------------------------------------------------------------------------------- input


def rows(name: str) -> list[Row]:
    """The input in the order of time; a side that is joined with comes first where it is a table, else in between."""
    chance = random.Random(1)
    if name.startswith("word count"):
        # Records of one size are read by numpy: what that is worth is seen beside words as they are.
        sizes = [5] if name in ONE_LENGTH else range(3, 8)
        words = ["".join(chance.choices("abcdefgh", k=chance.choice(sizes))) for _ in range(KEYS)]
        return [("in", None, " ".join(chance.choices(words, k=12)).encode(), T0 + n) for n in range(RECORDS // 5)]
    values = [chance.randbytes(50).hex().encode() for _ in range(997)]
    made = [("in", b"key-%05d" % chance.randrange(KEYS), values[n % 997], T0 + n) for n in range(RECORDS)]
    if name.startswith("global join"):
        rows_of_table = [("rows", b"key-%05d" % n, values[n % 997], T0) for n in range(KEYS)]
        return [*rows_of_table, *_sides(name, made)]
    return _sides(name, made)


def _sides(name: str, made: list[Row]) -> list[Row]:
    """The records on the sides that they are of."""
    if name in ALTERNATING or name in APART or name.startswith(("stream-stream", "as-of", "versioned", "grace")):
        run = 1 if name in ALTERNATING else 2 if name in INTERLEAVED else BATCH_RECORDS
        made = [(("in", "table")[n // run % 2], *row[1:]) for n, row in enumerate(made)]
        # Batches of both sides alternate; where their times do too, the task goes from one to the other all the time.
        return sorted(made, key=lambda row: (row[3] // BATCH_RECORDS // 2, row[0])) if run < BATCH_RECORDS else made
    if name in TWO_SIDED:
        values = [row[2] for row in made[:997]]
        return [*(("table", b"key-%05d" % n, values[n % 997], T0) for n in range(KEYS)), *made]
    return made


def together(name: str) -> int:
    """How many batches are there before work begins."""
    return 2 if name in ALTERNATING or name in APART or name in INTERLEAVED else 1


def encoded(records: list[Row]) -> list[tuple[str, bytes]]:
    """In batches of one topic each."""
    batches, ends, start = [], {"in": 0, "table": 0, "rows": 0}, 0
    while start < len(records):
        topic, stop = records[start][0], start
        while stop < len(records) and stop - start < BATCH_RECORDS and records[stop][0] == topic:
            stop += 1
        _, keys, values, times = zip(*records[start:stop], strict=True)
        batches.append((topic, encode_batch(keys, values, times, base_offset=ends[topic])))
        ends[topic] += stop - start
        start = stop
    return batches


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_operators")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--runs", action="store_true", help="what a run of one record costs over the record, by program"
    )
    parser.add_argument("names", nargs="*", help="programs; all without")
    options = parser.parse_args()
    known = TWO_INPUTS if options.runs else PROGRAMS
    unknown = set(options.names).difference(known)
    if unknown:
        parser.error(f"no such program: {', '.join(unknown)}; there are {', '.join(known)}")
    tune_process()
    root = Path(tempfile.mkdtemp(prefix="bench-operators-"))
    try:
        if options.runs:
            measure_runs(options.names or TWO_INPUTS, options.rounds, root)
        else:
            measure(options.names or [name for name in PROGRAMS if name not in APART], options.rounds, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def best(name: str, batches: list[tuple[str, bytes]], folder: Path) -> Callable[[], object] | None:
    """The loop by hand, where there is one."""
    table = [batch for topic, batch in batches if topic == "table"]
    stream = [batch for topic, batch in batches if topic == "in"]
    makers: dict[str, Callable[[prototype.Store], Callable[[], object]]] = {
        "count per key": lambda store: prototype.counts(stream, store, COMMIT_RECORDS, 1),
        "word count (lines)": lambda store: prototype.word_count(stream, store, COMMIT_RECORDS),
        "word count, words of one length (lines)": lambda store: prototype.word_count(stream, store, COMMIT_RECORDS),
        "tumbling count": lambda store: prototype.counts(stream, store, COMMIT_RECORDS, 1, 60_000),
        "stream-table join": lambda store: prototype.join(stream, table, store, 1),
    }
    make = makers.get(name)
    if make is None:
        return None

    def run() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as path:
            store = prototype.Store(path)
            make(store)()
            store.close()

    return run


def measure(names: list[str], rounds: int, root: Path) -> None:
    counts, variants = {}, {}
    for name in names:
        records = rows(name)
        counts[name] = len(records)
        builder = StreamsBuilder()
        PROGRAMS[name](builder)
        batches = encoded(records)
        idle_ms = IDLE_MS if name in ALTERNATING or name in APART else 0
        variants[name] = fresh(builder.build(), batches, root, together(name), idle_ms)
        by_hand = best(name, batches, root)
        if by_hand is not None:
            variants[f"best {name}"] = by_hand
    seconds = compare(variants, rounds)
    base = seconds.get("count per key")
    print(f"{'':40}{'ns/record':>10}{'M records/s':>13}{'x count':>9}{'x best':>8}  goal (best then)")
    for name in names:
        each, ratio, over = seconds[name] / counts[name], "", ""
        if base is not None:
            ratio = f"{each / (base / counts['count per key']):.1f}"
        if f"best {name}" in seconds:
            over = f"{seconds[name] / seconds[f'best {name}']:.2f}"
        goal = f"{GOALS[name]} ({1e3 / PROTOTYPE_NS[name]:.2f})" if name in GOALS else ""
        print(f"{name:40}{each * 1e9:10.0f}{1e-6 / each:13.3f}{ratio:>9}{over:>8}  {goal}")


def measure_runs(names: Sequence[str], rounds: int, root: Path) -> None:
    """What a run costs over its records: inputs that alternate record by record beside those that alternate by batches."""
    variants = {}
    for name in names:
        for kind in (f"{name}, alternating", f"{name}, runs of {BATCH_RECORDS}"):
            builder = StreamsBuilder()
            PROGRAMS[kind](builder)
            variants[kind] = fresh(builder.build(), encoded(rows(kind)), root, together(kind), IDLE_MS)
    seconds = compare(variants, rounds)
    print(f"{'us per record':30}{'in runs of ' + str(BATCH_RECORDS):>16}{'in runs of 1':>14}{'of a run':>10}  goal")
    for name in names:
        short, long = (
            seconds[kind] / RECORDS * 1e6 for kind in (f"{name}, alternating", f"{name}, runs of {BATCH_RECORDS}")
        )
        print(f"{name:30}{long:16.2f}{short:14.2f}{short - long:10.2f}  {RUN_GOAL_US:.0f}")


def fresh(
    topology: Topology, batches: list[tuple[str, bytes]], root: Path, together: int, idle_ms: int = 0
) -> Callable[[], object]:
    """Each call starts with empty stores; making them is not measured apart: it is milliseconds."""

    def run() -> None:
        # RocksDB may still write: closing stores is not measured.
        with tempfile.TemporaryDirectory(dir=root, ignore_cleanup_errors=True) as folder:
            Bench(topology, Path(folder), idle_ms).feed(batches, together)

    return run


if __name__ == "__main__":
    main()
