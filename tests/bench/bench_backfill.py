"""The flights of a year: live replay by one process, backfill by one process, by the local engine and by Spark on two.

    python -m tests.bench.bench_backfill [--every 1] [--rounds 3] [--copies 1] [--sst-keys 1000000] [--no-spark]

The broker is the bundled one. All read the same topic (not an archive), but for "spark, shuffle": that one reads a lake of
the same records in random order. All end with equal state, which is checked. Spark's session is started and warm before.
The last row is what Spark needs for the same aggregate by itself: a groupBy over the same lake, written as Parquet, without
order, late records, changelogs and outputs. Its windows are compared, too. Memory is the peak of the worker that had the
most: for the first two rows this process with what the script holds, for Spark a Python worker, and its JVM.
``copies`` makes the history longer: the year, again and again, each time a year later. Ratios of one run on an idle machine
mean something; the CPU seconds also elsewhere. The second table compares an SST file with random write batches for the
state that an instance gets.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as f

from examples import flights
from streamsrt.app import KafkaStreams
from streamsrt.backfill import Backfill, Lake
from streamsrt.backfill.engine_local import LocalEngine
from streamsrt.backfill.job import Engine
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.manifest import TaskManifest
from streamsrt.backfill.run_task import peak_memory_bytes, run_task
from streamsrt.backfill.sources import Source
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.backfill.spark.session import open_session, quiet
from streamsrt.runtime.bundled_broker import BundledBroker
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore, write_sst
from tests.streamsrt.backfill.scene import APPLICATION, Scene, open_scene
from topology import serdes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKER_CONFIGS = ("group.streams.initial.rebalance.delay.ms=0", "group.streams.assignment.interval.ms=0")
YEAR_MS = 365 * 24 * 60 * 60 * 1000
GROUP_BY = "plain groupBy on Spark"
LIVE = "live replay, 1 process"
ONE_PROCESS = "backfill, 1 process"
SHUFFLE = "spark, shuffle"
GOALS = {"local, 2 workers": 1.6, "spark, direct": 1.5, SHUFFLE: 0.6}
GOAL_TIMES_GROUP_BY = 1.5


class Taken(NamedTuple):
    """What one row took. ``worker_bytes``, ``jvm_bytes``: peaks of memory; 0 where there is none."""

    wall_s: float
    cpu_s: float
    worker_bytes: int
    jvm_bytes: int


class OneProcess:
    """An engine that runs tasks in this process."""

    def run(
        self, directory: Path, task_ids: Sequence[str], bootstrap_servers: str | None = None
    ) -> Iterator[TaskManifest]:
        for task_id in task_ids:
            yield run_task(directory, task_id, bootstrap_servers=bootstrap_servers)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_backfill")
    parser.add_argument("--every", type=int, default=1, help="take only every N-th departure")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sst-keys", type=int, default=1_000_000)
    parser.add_argument("--no-spark", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-backfill-") as folder:
        compare_replays(Path(folder), options.every, options.copies, options.rounds, spark=not options.no_spark)
        compare_loads(Path(folder), options.sst_keys, options.rounds)


def load_history(scene: Scene, every: int, copies: int) -> int:
    """Writes the years one after the other, so that not all of them are in memory at once; how many records."""
    year = list(islice(flights.read_departures(), 0, None, every))
    for copy in range(copies):
        scene.load([row._replace(timestamp_ms=row.timestamp_ms + copy * YEAR_MS) for row in year])
    return copies * len(year)


def compare_replays(folder: Path, every: int, copies: int, rounds: int, *, spark: bool) -> None:
    with BundledBroker(folder / "broker", configs=BROKER_CONFIGS) as broker, contextlib.ExitStack() as stack:
        for scene in open_scene(broker.address, folder):
            records = load_history(scene, every, copies)
            if spark:
                session = warm_session(stack)
                lake = write_lake(scene)
            gc.collect()
            taken: dict[str, list[Taken]] = {}
            for number in range(rounds):
                taken.setdefault(LIVE, []).append(live(scene, f"live-{number}"))
                for name, workers in ((ONE_PROCESS, 0), ("local, 2 workers", 2)):
                    application_id = f"backfill-{workers}-{number}"
                    engine = LocalEngine(workers) if workers else OneProcess()
                    taken.setdefault(name, []).append(offline(scene, application_id, engine))
                for name, source in (("spark, direct", None), (SHUFFLE, lake)) if spark else ():
                    application_id = f"{name.replace(', ', '-')}-{number}"
                    taken.setdefault(name, []).append(offline(scene, application_id, SparkEngine(), source))
                if spark:
                    taken.setdefault(GROUP_BY, []).append(group_by(session, scene, lake, number))
            if spark:
                check_groups(session, scene, f"live-{rounds - 1}", rounds - 1)
            for application_id in ("backfill-2", *(("spark-direct", "spark-shuffle") if spark else ())):
                check(scene, f"{application_id}-{rounds - 1}", f"live-{rounds - 1}")
            show(taken, records)


def cpu_s() -> float:
    """CPU seconds of this process, of its children that have ended, and of Spark with all its processes."""
    own = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return own + sum(map(tree_cpu_s, jvms()))


def jvms() -> list[int]:
    """The process of Spark, where it runs."""
    return [pid for pid in children(os.getpid()) if fields_of(pid)[0] == "java"]


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run, of all its threads."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text(encoding="ascii").split()]


def fields_of(pid: int) -> tuple[str, list[str]]:
    """The name of a process, and what the kernel says of it behind the name."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").partition("(")[2].rpartition(") ")
    return name, rest.split()


def tree_cpu_s(pid: int) -> float:
    used = sum(map(int, fields_of(pid)[1][11:15])) / os.sysconf("SC_CLK_TCK")
    return used + sum(map(tree_cpu_s, children(pid)))


def clocks() -> tuple[float, float]:
    """The beginning of a measurement; peaks of memory begin anew."""
    for pid in (os.getpid(), *jvms()):
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    return time.perf_counter(), cpu_s()


def since(began: tuple[float, float], worker_bytes: int | None = None) -> Taken:
    """What was taken; ``worker_bytes``: the peak of workers, if it was not this process that worked."""
    wall_s, used_s = time.perf_counter() - began[0], cpu_s() - began[1]
    jvm_bytes = max((peak_memory_bytes(pid) for pid in jvms()), default=0)
    return Taken(wall_s, used_s, peak_memory_bytes() if worker_bytes is None else worker_bytes, jvm_bytes)


def live(scene: Scene, application_id: str) -> Taken:
    """From the first task that runs to the last commit, the start of the group left out."""
    began: list[tuple[float, float]] = []
    streams = KafkaStreams(
        flights.topology,
        {
            "application.id": application_id,
            "bootstrap.servers": scene.servers,
            "state.dir": scene.state_dir(application_id),
        },
        state_listener=lambda new, _old: began.append(clocks()) if new.value == "RUNNING" else None,
    )
    streams.run(until="quiet", signals=False)
    return since(began[0])


def offline(scene: Scene, application_id: str, engine: Engine, lake: Lake | None = None) -> Taken:
    """From the plan to the last result, the start of processes included."""
    backfill = Backfill(scene.folder / f"plan-{application_id}", bootstrap_servers=scene.servers)
    sources: dict[str, Source] = {} if lake is None else {flights.DEPARTURES: lake}
    backfill.plan(APPLICATION, application_id=application_id, sources=sources)
    began = clocks()
    manifests = backfill.run(engine)
    return since(began, max(manifest.peak_memory_bytes for manifest in manifests))


def warm_session(stack: contextlib.ExitStack) -> SparkSession:
    """A session on two cores, whose workers have run."""
    session = open_session("local[2]")
    stack.callback(session.close)
    with quiet():
        session.spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
    return session.spark


def group_by(spark: SparkSession, scene: Scene, lake: Lake, number: int) -> Taken:
    """The application's aggregate in Spark's own functions, with a setting as it is by default, not as in a backfill."""
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    began = clocks()
    names = spark.createDataFrame(list(flights.read_airlines()), "code string, name string")
    rows = spark.read.parquet(str(lake.path)).selectExpr(
        "cast(key as string) as code",
        "timestamp - timestamp % 3600000 as start",
        "from_json(cast(value as string), 'delay int').delay as delay",
    )
    found = rows.where("delay is not null").join(names, "code").groupBy("code", "start", "name")
    result = found.agg(
        f.count("*").alias("departures"),
        f.sum("delay").alias("total_delay"),
        f.max("delay").alias("worst_delay"),
        f.count_if(f.col("delay") >= flights.LATE_FROM_MINUTES).alias("late"),
    )
    result.write.parquet(str(scene.folder / f"groups-{number}"))
    taken = since(began, 0)
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    return taken


def check_groups(spark: SparkSession, scene: Scene, live_id: str, number: int) -> None:
    """The windows of the groupBy are those of the live run, which drops no record of this history as late."""
    groups = spark.read.parquet(str(scene.folder / f"groups-{number}")).collect()
    computed = {(row["code"], row["start"]): (row["departures"], row["total_delay"], row["late"]) for row in groups}
    live_windows = {}
    for part in scene.changelogs(live_id)["delays-per-hour"].values():
        for key, (value, _) in part.items():
            if key is not None and value is not None:
                delays = serdes.json.deserialize(value)
                place = (key[:-12].decode(), int.from_bytes(key[-12:-4], "big"))
                live_windows[place] = (delays["departures"], delays["total_delay"], delays["late"])
    assert computed == live_windows, (len(computed), len(live_windows))


def write_lake(scene: Scene) -> Lake:
    """All departures in no order."""
    root = scene.folder / "lake"
    root.mkdir()
    found: dict[str, list[object]] = {name: [] for name in ("partition", "offset", "timestamp", "key", "value")}
    for place, end in scene.ends(flights.DEPARTURES).items():
        for columns in read_log(scene.network, place, 0, end):
            found["partition"] += [place[1]] * len(columns)
            found["offset"] += [columns.offset_at(index) for index in range(len(columns))]
            found["timestamp"] += columns.timestamps
            found["key"] += columns.keys
            found["value"] += columns.values
    order = list(range(len(found["key"])))
    random.Random(1).shuffle(order)
    for index in range(4):
        table = pa.table(found).take(order[index::4])
        pq.write_table(table, root / f"part-{index}.parquet", compression="zstd")
    return Lake(root)


def check(scene: Scene, application_id: str, live_id: str) -> None:
    """The state of a backfill is that of the live run, in files and in changelogs, but for windows beyond retention, which
    a backfill leaves out of changelogs."""
    backfill = Backfill(scene.folder / f"plan-{application_id}", bootstrap_servers=scene.servers)
    backfill.commit(state_dir=scene.state_dir(application_id))
    assert scene.stores(application_id) == scene.stores(live_id)
    found, logged = scene.changelogs(application_id), scene.changelogs(live_id)
    for store, parts in found.items():
        for place, rows in parts.items():
            assert rows
            assert rows.items() <= logged[store][place].items()


def show(taken: dict[str, list[Taken]], records: int) -> None:
    load = os.getloadavg()[0]
    print(f"\n{records:,} departures, median of {len(taken[LIVE])} rounds, load average {load:.1f}")
    titles = f"{'records/s':>12}{'per CPU s':>12}{'x live':>8}{'x one':>8}{'MB':>7}{'JVM MB':>8}"
    print(f"{'':24}{'wall s':>8}{'CPU s':>8}{titles}")
    medians = {name: Taken(*map(statistics.median, zip(*each, strict=True))) for name, each in taken.items()}
    live_s, one_s = medians[LIVE].wall_s, medians[ONE_PROCESS].wall_s
    for name, (wall_s, used_s, worker_bytes, jvm_bytes) in medians.items():
        goal = f"  goal x one {GOALS[name]}" if name in GOALS else ""
        rates = f"{records / wall_s:12,.0f}{records / used_s:12,.0f}{live_s / wall_s:8.2f}{one_s / wall_s:8.2f}"
        jvm = jvm_bytes if name == GROUP_BY or name.startswith("spark") else 0
        memory = f"{int(worker_bytes) >> 20 or '':7}{int(jvm) >> 20 or '':8}"
        print(f"{name:24}{wall_s:8.2f}{used_s:8.2f}{rates}{memory}{goal}")
    if GROUP_BY in medians:
        for clock, index in (("wall", 0), ("CPU", 1)):
            ratio = medians[SHUFFLE][index] / medians[GROUP_BY][index]
            print(f"{SHUFFLE}, {clock} time of the groupBy: {ratio:.2f}x (goal at most {GOAL_TIMES_GROUP_BY})")


def compare_loads(folder: Path, keys: int, rounds: int) -> None:
    """A state file taken over, beside the same rows in write batches of 1000, in random order."""
    rows = [(b"key-%012d" % number, b"value-%034d" % number) for number in range(keys)]
    write_sst(folder / "rows.sst", rows)
    shuffled = random.Random(1).sample(rows, len(rows))
    taken: dict[str, list[float]] = {"SST file": [], "write batches": []}
    for number in range(rounds):
        store = RocksDBStore(folder / f"sst-{number}", "s", RocksDBOptions())
        started = time.perf_counter()
        store.ingest(folder / "rows.sst", changelog_offset=keys)
        taken["SST file"].append(time.perf_counter() - started)
        assert store.get(rows[-1][0]) == rows[-1][1]
        store.close()
        store = RocksDBStore(folder / f"batch-{number}", "s", RocksDBOptions())
        started = time.perf_counter()
        for start in range(0, keys, 1000):
            store.write(shuffled[start : start + 1000], changelog_offset=start)
        store.flush()
        taken["write batches"].append(time.perf_counter() - started)
        store.close()
    medians = {name: statistics.median(each) for name, each in taken.items()}
    print(f"\nload of {keys:,} rows (goal: SST 50x)")
    for name, value in medians.items():
        print(f"{name:24}{value * 1000:10.1f} ms{keys / value:14,.0f} rows/s{medians['write batches'] / value:8.1f}x")


if __name__ == "__main__":
    main()
