"""Throughput with stream threads as processes: one against several, over the bundled broker.

    python -m tests.bench.bench_processes [--records 2000000] [--threads 1 2]

The variants take turns; a run is ``streamsrt run --until quiet`` with a new application id. The time is from the first
processed record to the last. The work of a record is that of ``--work``: how many times a value is hashed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.bench_queries import PARTITIONS, fill
from tests.fixtures_brokers import BundledBroker
from tests.system.processes import AppProcess

APPLICATION = """
from hashlib import sha256

from topology import StreamsBuilder, serdes


def hashed(value: bytes) -> bytes:
    for _ in range({work}):
        value = sha256(value).digest()
    return value


builder = StreamsBuilder()
(
    builder.stream("in", key=serdes.string, value=serdes.bytes)
    .map_values(hashed)
    .group_by_key()
    .count(store="counts")
)
topology = builder.build()
"""


def run(address: str, folder: Path, threads: int, number: int, records: int) -> float:
    """Records per second."""
    config = {"commit.interval.ms": 1_000, "num.stream.threads": threads}
    application_id = f"bench-processes-{threads}-{number}"
    with AppProcess(folder / application_id, "hashing", application_id, address, config, cwd=folder) as app:
        began = app.wait_for(lambda line: line["processed_records"] > 0, "it has begun", timeout_s=120)
        start_s = time.perf_counter()
        app.wait_for(lambda line: line["processed_records"] >= records, "all is processed", timeout_s=600)
        per_s = (records - float(began["processed_records"])) / (time.perf_counter() - start_s)
        app.terminate()
    return per_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_processes")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    found: dict[int, list[float]] = {threads: [] for threads in given.threads}
    with tempfile.TemporaryDirectory(prefix="streamsrt-bench-") as name:
        folder = Path(name)
        (folder / "hashing.py").write_text(APPLICATION.format(work=given.work), encoding="utf-8")
        broker = BundledBroker(folder / "broker")
        broker.start()
        try:
            fill(broker.bootstrap_servers, given.records)
            for number in range(given.rounds):
                for threads in given.threads:
                    found[threads].append(run(broker.bootstrap_servers, folder, threads, number, given.records))
        finally:
            broker.stop()
    base = statistics.median(found[given.threads[0]])
    print(
        f"{os.cpu_count()} cores, {PARTITIONS} partitions, {given.work} hashes a record, load {os.getloadavg()[0]:.1f}"
    )
    for threads, runs in found.items():
        per_s = statistics.median(runs)
        print(f"num.stream.threads={threads}: {per_s:12,.0f} records/s  {per_s / base:.2f}x")


if __name__ == "__main__":
    main()
