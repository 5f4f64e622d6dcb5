"""What exactly once costs: filter and map, count per key, at least once beside exactly once on one broker.

    python -m tests.bench.bench_exactly_once [--broker kafka|bundled] [--records 1000000] [--rounds 3] [--tasks 4]

The variants take turns in every round, each with a new application id, output topic and state directory; the figures are
medians. The outputs of every run are read committed by another client and compared with an independent computation. CPU time
is that of the application's process. Ratios compare with at least once at the same commit interval.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from tests.bench.bench_end_to_end import TITLES, Cluster, clusters
from tests.bench.peer_programs import run_program, say
from tests.bench.peers import data

AT_LEAST, EXACTLY = "at_least_once", "exactly_once_v2"
VARIANTS = tuple((guarantee, interval_ms) for interval_ms in (1000, 100) for guarantee in (AT_LEAST, EXACTLY))
WORKLOADS = ("W1", "W2")

Variant = tuple[str, int]
Run = tuple[float, float, str]
"""Records per second, records per CPU second, what was wrong."""


def measure(workload: str, variant: Variant, records: int, cluster: Cluster, folder: Path, name: str) -> Run:
    guarantee, interval_ms = variant
    application = f"{name}-{workload.lower()}-{guarantee}-{interval_ms}"
    source, sink, state = cluster.input(records), f"out-{application}", folder / application
    cluster.make_topic(sink)
    state.mkdir()
    arguments = [cluster.address, workload, source, sink, application, str(records), str(state)]
    settings = [f"processing.guarantee={guarantee}", f"commit.interval.ms={interval_ms}"]
    marks = run_program("ours", [*arguments, *settings], folder / "program.log")
    _, got = data.summarised("ours", workload, cluster.read(sink))
    wrong = data.difference(data.expected(workload, records), got)
    cluster.delete_topics(application)
    shutil.rmtree(state)
    start, end = marks["START"], marks["END"]
    return records / (end.at_s - start.at_s), records / (end.cpu_s - start.cpu_s), wrong


def table(workload: str, runs: dict[Variant, list[Run]]) -> str:
    """Markdown."""
    lines = [
        f"**{TITLES[workload]}**",
        "",
        "| processing.guarantee | commit.interval.ms | records / s | ratio | records / CPU s | ratio | outputs |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    medians = {
        variant: (statistics.median(run[0] for run in found), statistics.median(run[1] for run in found))
        for variant, found in runs.items()
    }
    for variant, (per_s, per_cpu_s) in medians.items():
        base_s, base_cpu_s = medians[AT_LEAST, variant[1]]
        wrong = sorted({run[2] for run in runs[variant] if run[2]})
        lines.append(
            f"| {variant[0]} | {variant[1]} | {per_s:,.0f} | {per_s / base_s:.2f} | {per_cpu_s:,.0f} "
            f"| {per_cpu_s / base_cpu_s:.2f} | {'WRONG: ' + '; '.join(wrong) if wrong else 'correct'} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Prints a table per workload; the result is the number of runs whose outputs were wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_exactly_once")
    parser.add_argument("--broker", choices=["kafka", "bundled"], default="kafka")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=data.PARTITIONS, help="how many partitions the topics have")
    given = parser.parse_args()
    data.PARTITIONS = given.tasks
    peer = "ours" if given.broker == "kafka" else "bundled"
    results: dict[str, dict[Variant, list[Run]]] = {name: {each: [] for each in VARIANTS} for name in WORKLOADS}
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    try:
        with clusters([peer], folder) as where:
            for number in range(given.rounds):
                for workload in WORKLOADS:
                    for variant in VARIANTS:
                        run = measure(workload, variant, given.records, where[peer], folder, f"run{number}")
                        results[workload][variant].append(run)
                        say(f"round {number + 1} {workload} {variant}: {run[0]:,.0f}/s, {run[1]:,.0f}/CPU s {run[2]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n\n".join(table(workload, results[workload]) for workload in WORKLOADS))
    return sum(bool(run[2]) for runs in results.values() for each in runs.values() for run in each)


if __name__ == "__main__":
    sys.exit(main())
