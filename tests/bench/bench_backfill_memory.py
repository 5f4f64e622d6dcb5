"""What one worker of a backfill takes of memory: for a long history with little state, and for a big state.

    python -m tests.bench.bench_backfill_memory [--records 2000000] [--keys 500000] [--only state] [--spark]

Each row is one task, computed in a process of its own: ``records`` are read out of a Parquet archive (or, with ``--spark``,
out of a lake that Spark sorts; then the figure is that of Spark's Python worker). ``ever`` counts the rows that the store
has had, ``live`` those that it has at the end, ``logged`` the records of its changelog; the peak is that of the process,
the interpreter and its packages included (``idle``: those alone).

windows     a count per key and minute, kept for an hour: every row lives for a short time
windows, full    the same, with the full changelog
state       a count per key, of as many keys as are given: every row stays
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamsrt.application import module_digest
from streamsrt.backfill import Backfill, Lake
from streamsrt.backfill.archive import scan_archive
from streamsrt.backfill.engine_local import LocalEngine
from streamsrt.backfill.job import Engine
from streamsrt.backfill.lake import scan_lake
from streamsrt.backfill.plan import BackfillPlan, Changelogs, SourceRange, StorePlan, TaskPlan, save_plan
from streamsrt.backfill.planning import splice_lake
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.backfill.spark.session import open_session
from topology import StreamsBuilder, TimeWindows, Topology, serdes

GOAL_BYTES = 300 << 20
MINUTE_MS = 60_000
STEP_MS = 100
FILE_RECORDS = 100_000
_IDLE = "from streamsrt.backfill.run_task import peak_memory_bytes; import pyarrow.parquet; print(peak_memory_bytes())"


def _windowed() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=serdes.string, value=serdes.string)
        .group_by_key(key=serdes.string, value=serdes.string)
        .windowed_by(TimeWindows(MINUTE_MS, grace=0))
        .count(store="counts")
    )
    return builder.build()


def _keyed() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=serdes.string, value=serdes.string)
        .group_by_key(key=serdes.string, value=serdes.string)
        .count(store="counts")
    )
    return builder.build()


windowed = _windowed()
keyed = _keyed()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_backfill_memory")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=500_000, help="of the big state; the windows have a thousand")
    parser.add_argument("--only", default="", help="one row, such as windows")
    parser.add_argument("--key-bytes", type=int, default=21, help="of a key, at least")
    parser.add_argument("--spark", action="store_true")
    options = parser.parse_args()
    idle = int(subprocess.run([sys.executable, "-c", _IDLE], capture_output=True, check=True, text=True).stdout)
    print(f"idle: {idle >> 20} MB; goal: at most {GOAL_BYTES >> 20} MB")
    print(f"{'':16}{'records':>12}{'ever':>12}{'live':>12}{'logged':>12}{'records/s':>12}{'peak MB':>10}")
    with engine_of(spark=options.spark) as engine:
        for name, keys, full in (
            ("windows", 1_000, "live"),
            ("windows, full", 1_000, "full"),
            ("state", options.keys, "live"),
        ):
            if options.only not in ("", name):
                continue
            with tempfile.TemporaryDirectory(prefix="bench-backfill-memory-") as folder:
                history = History(options.records, keys, options.key_bytes)
                measure(Path(folder), engine, name, history, "full" if full == "full" else "live")


@contextlib.contextmanager
def engine_of(*, spark: bool) -> Iterator[Engine]:
    if not spark:
        yield LocalEngine(1)
        return
    with contextlib.closing(open_session("local[1]")):
        yield SparkEngine()


class History(NamedTuple):
    records: int
    keys: int
    key_bytes: int


def measure(folder: Path, engine: Engine, name: str, history: History, changelogs: Changelogs) -> None:
    records, keys = history.records, history.keys
    ever = write_history(folder / "archive", history)
    lake = isinstance(engine, SparkEngine)
    save_plan(plan_over(folder / "archive", name.partition(",")[0], records, changelogs, lake=lake), folder / "plan")
    began = time.perf_counter()
    (manifest,) = Backfill(folder / "plan").run(engine)
    seconds = time.perf_counter() - began
    store = manifest.stores[0]
    assert store.changelog is not None
    peak = manifest.peak_memory_bytes
    print(
        f"{name:16}{records:12,}{(ever if name.startswith('windows') else keys):12,}{store.entries:12,}"
        f"{store.changelog.file.records:12,}{records / seconds:12,.0f}{peak >> 20:10}"
        + ("" if peak <= GOAL_BYTES else "  TOO MUCH"),
        flush=True,
    )


def write_history(root: Path, history: History) -> int:
    """Writes the history in parts; how many different keys and minutes there are."""
    records, keys, width = history.records, history.keys, history.key_bytes - len("customer-")
    chance = np.random.default_rng(7)
    root.mkdir()
    ever = 0
    rest: set[tuple[int, int]] = set()
    for start in range(0, records, FILE_RECORDS):
        offsets = np.arange(start, min(start + FILE_RECORDS, records))
        chosen = chance.integers(0, keys, len(offsets)) if keys < records else offsets % keys
        times = offsets * STEP_MS
        places = set(zip((times // MINUTE_MS).tolist(), chosen.tolist(), strict=True)) | rest
        newest = int(times[-1]) // MINUTE_MS
        rest = {place for place in places if place[0] == newest}
        ever += len(places) - len(rest)
        table = {
            "partition": np.zeros(len(offsets), np.int32),
            "offset": offsets,
            "timestamp": times,
            "key": [f"customer-{number:0{width}}" for number in chosen.tolist()],
            "value": ["x" * 40] * len(offsets),
        }
        pq.write_table(pa.table(table), root / f"{start:012}.parquet")
    return ever + len(rest)


def plan_over(root: Path, program: str, records: int, changelogs: Changelogs, *, lake: bool) -> BackfillPlan:
    """A plan of one task, made without a cluster."""
    topology, attribute = (windowed, "windowed") if program == "windows" else (keyed, "keyed")
    application = f"tests.bench.bench_backfill_memory:{attribute}"
    lakes = ()
    source = SourceRange(topic="in", partition=0, start=0, end=records, log_start=records)
    if lake:
        described, shares = scan_lake(Lake(root), "in", 1)
        lakes = (described,)
        source = splice_lake(("in", 0), shares[0], records, records, allow_gaps=False)
    else:
        source = source.model_copy(update={"archive": scan_archive(root)[0]})
    (subtopology,) = topology.subtopologies
    store = StorePlan(name="counts", changelog="bench-counts-changelog", own_changelog=True, persistent=True)
    task = TaskPlan(
        id=f"{subtopology.id}_0", subtopology=subtopology.id, partition=0, level=0, sources=(source,), stores=(store,)
    )
    return BackfillPlan(
        application=application,
        application_id="bench",
        code_digest=module_digest(application),
        version="",
        topology_digest=topology.digest,
        topics={"in": 1, "bench-counts-changelog": 1},
        lakes=lakes,
        changelogs=changelogs,
        tasks=(task,),
        created_ms=1,
    ).sealed()


if __name__ == "__main__":
    main()
