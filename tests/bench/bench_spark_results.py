"""What driver and executors of a cluster of Spark take of memory for a large result that comes back through Spark.

    python -m tests.bench.bench_spark_results [--megabytes 500] [--driver-memory 512m]

A standalone cluster with two workers that see neither the plan's directory nor the archive. The first task reads so many
megabytes of an archive, and its result is as large: records of a repartition topic, which the second task reads. So the
archive and the result go to executors, and the result comes back. Each figure is the most that a process ever had in memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamsrt.backfill import Backfill
from streamsrt.backfill.application_bundle import write_environment
from streamsrt.backfill.archive import scan_archive
from streamsrt.backfill.plan import BackfillPlan, TaskPlan, load_plan, save_plan
from streamsrt.backfill.run_task import peak_memory_bytes
from tests.streamsrt.backfill import lakeside
from tests.streamsrt.backfill.spark_cluster import Cluster, standalone
from tests.streamsrt.backfill.test_engine_local import planned

ROOT = Path(__file__).resolve().parents[2]
NAME = "lakeside"
RECORD_BYTES = 1_000
FILE_RECORDS = 50_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_spark_results")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--driver-memory", default="512m", help="of the driver's JVM; executors have 600 MB")
    options = parser.parse_args()
    records = options.megabytes * 1_000_000 // RECORD_BYTES
    with tempfile.TemporaryDirectory(prefix="bench-spark-results-") as name:
        folder = Path(name)
        hidden = folder / "hidden"
        hidden.mkdir()
        program = folder / "program"
        program.mkdir()
        shutil.copy(lakeside.__file__, program / f"{NAME}.py")
        sys.path.insert(0, str(program))
        write_environment(program / "bundle.zip", f"{NAME}:topology")
        write_history(hidden / "history", records)
        save_plan(plan_over(hidden, records), hidden / "large")
        (folder / "cluster").mkdir()
        with standalone(folder / "cluster", hidden) as cluster:
            measure(cluster, program, hidden / "large", options.driver_memory)


def write_history(root: Path, records: int) -> None:
    chance = np.random.default_rng(3)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
    root.mkdir()
    for start in range(0, records, FILE_RECORDS):
        count = min(FILE_RECORDS, records - start)
        values = [row.tobytes() for row in letters[chance.integers(0, 26, (count, RECORD_BYTES))]]
        offsets = np.arange(start, start + count)
        table = {"partition": np.zeros(count, np.int32), "offset": offsets, "timestamp": offsets * 10}
        columns = pa.table({**table, "key": [b"k"] * count, "value": values})
        pq.write_table(columns, root / f"{start:012}.parquet", compression="none")


def plan_over(hidden: Path, records: int) -> BackfillPlan:
    plan = load_plan(planned(hidden / "small", [[("ax", 1)]], import_module(NAME)).directory)
    files = scan_archive(hidden / "history")[0]

    def over(task: TaskPlan) -> TaskPlan:
        changes = {"end": records, "log_start": records, "archive": files}
        return task.model_copy(update={"sources": tuple(each.model_copy(update=changes) for each in task.sources)})

    return plan.model_copy(update={"tasks": tuple(map(over, plan.tasks))}).sealed()


def measure(cluster: Cluster, program: Path, directory: Path, driver_memory: str) -> None:
    words = ["backfill", "run", "--dir", str(directory), "--bundle", str(program / "bundle.zip"), "-b", "127.0.0.1:1"]
    conf = ["--conf", f"spark.driver.memory={driver_memory}", *cluster.conf()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYSPARK_PYTHON", None)
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "streamsrt", *words, "--engine", "spark", "--master", cluster.master, *conf],
        cwd=program,
        env=environment,
    )
    peaks: dict[str, int] = {}
    ended = threading.Event()
    watcher = threading.Thread(target=watch, args=(process.pid, peaks, ended))
    watcher.start()
    code = process.wait()
    seconds = time.monotonic() - began
    ended.set()
    watcher.join()
    if code:
        raise SystemExit(code)
    sizes = [file.size_bytes for each in Backfill(directory).verify() for file in each.files]
    print(f"result {sum(sizes) / 1e6:.0f} MB, largest file {max(sizes) / 1e6:.0f} MB, {seconds:.0f} s")
    for name, peak in sorted(peaks.items()):
        print(f"{name:24} {peak / 1e6:8.0f} MB at most")


def watch(driver: int, peaks: dict[str, int], ended: threading.Event) -> None:
    """Notes the most that each kind of process has had, until the run has ended."""
    while not ended.wait(0.2):
        for entry in Path("/proc").iterdir():
            kind = kind_of(entry, driver) if entry.name.isdigit() else None
            if kind is not None:
                peaks[kind] = max(peaks.get(kind, 0), peak_memory_bytes(int(entry.name)))


def kind_of(entry: Path, driver: int) -> str | None:
    try:
        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
    if int(entry.name) == driver:
        return "driver, Python"
    if parent == driver:
        return "driver, JVM"
    if "CoarseGrainedExecutorBackend" in command:
        return "executor, JVM"
    return "executor, Python" if "pyspark.daemon" in command else None


if __name__ == "__main__":
    main()
