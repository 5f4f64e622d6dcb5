"""Latency at a fixed rate, far below what each runtime can do: a map and a count, at least once and exactly once.

    python -m tests.bench.bench_fixed_rate [--peers ours,bundled,java,quix] [--rate 5000] [--seconds 10]
                                           [--linger-ms MS] [--cases map,count,map-eos,count-eos]

Every record comes out: the map drops none, and the count has no caches, so that it forwards each update as quixstreams does.
Producers wait for all replicas (acks=all) and linger for as long as each runtime does by itself, unless ``--linger-ms`` is
given. Exactly once commits every 100 ms. A program of its own writes a batch every 2 ms; its first record has a key that
tells when it was given to the producer, and another client, which reads committed records, looks when that comes out. The
first 4 seconds don't count, twice as many for Java. Apache Kafka has the heap and the garbage collector that its start
script gives it. All share the machine: compare the runtimes of one run only. ``ours@/path/to/tree`` is another tree's.
Where the program waited for a CPU for longer than in other runs, or the host stole from this machine, the run tells little
of the runtime. The producer and the reader collect garbage as rarely as applications of this project do.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from streamsrt.runtime.tuning import tune_process
from tests.bench.bench_end_to_end import NAMES, Cluster, clusters
from tests.bench.bench_latency import SETTLE_S, Reader, Run, cpu_seconds, quantile, stolen_seconds, waited_seconds
from tests.bench.peer_programs import ROOT, PeerProgram, file_name, prepare, say
from tests.bench.peers.paced import KEYED_TICK_S, PARTITIONS, keyed_batch
from tests.kafka_server import SHIPPED_HEAP

CASES = {
    "map": ("W1", ["commit.interval.ms=1000"]),
    "count": ("W2", ["commit.interval.ms=1000", "statestore.cache.max.bytes=0"]),
    "map-eos": ("W1", ["commit.interval.ms=100", "processing.guarantee=exactly_once_v2"]),
    "count-eos": ("W2", ["commit.interval.ms=100", "processing.guarantee=exactly_once_v2"]),
}
"""The workloads of the peers, and their settings."""
TITLES = {
    "map": "map, at least once",
    "count": "count without caches, at least once",
    "map-eos": "map, exactly once, a commit every 100 ms",
    "count-eos": "count, exactly once, a commit every 100 ms",
}
GOALS = {"map": (4, 10), "count": (4, 10), "map-eos": (math.inf, 150), "count-eos": (math.inf, 150)}
"""p50 and p99, milliseconds."""
LINGER = {"java": "producer.linger.ms", "ours": "linger.ms", "bundled": "linger.ms"}
WARM_UP_S = {"java": 8.0}


def settings(peer: str, case: str, linger_ms: int | None) -> list[str]:
    if peer == "quix":
        return []
    return [*CASES[case][1], *([] if linger_ms is None else [f"{LINGER[peer.partition('@')[0]]}={linger_ms}"])]


def measure(peer: str, case: str, cluster: Cluster, folder: Path, given: argparse.Namespace) -> Run:
    name = f"rate-{file_name(peer)}-{case}"
    source, sink, state = f"in-{name}", f"out-{name}", folder / name
    cluster.make_topic(source)
    cluster.make_topic(sink)
    state.mkdir()
    arguments = [cluster.address, CASES[case][0], source, sink, name, "0", str(state)]
    settle_s = WARM_UP_S.get(peer, SETTLE_S)
    reader = Reader(cluster.address, sink)
    try:
        with PeerProgram(peer, arguments + settings(peer, case, given.linger_ms), folder / "program.log") as program:
            for number in range(PARTITIONS):
                cluster.send(source, number, bytes(keyed_batch(1, number)), 1)
            cluster.flush()
            reader.until(lambda: len(reader.latencies) >= PARTITIONS)
            paced = [sys.executable, "-m", "tests.bench.peers.paced"]
            paced += [cluster.address, source, str(given.rate), str(settle_s + given.seconds), "keys"]
            writer = subprocess.Popen(paced, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            seen = len(reader.latencies)
            reader.until(lambda: len(reader.latencies) > seen)
            began_s, before = time.monotonic(), spent(program.process.pid)
            said = writer.communicate()[0].split()
            ended_s = time.monotonic()
            now = spent(program.process.pid)
            used, waited, stolen = (
                (late - early) / (ended_s - began_s) for late, early in zip(now, before, strict=True)
            )
            expected = PARTITIONS + int(said[0]) // max(1, round(given.rate * KEYED_TICK_S))
            reader.until(lambda: len(reader.latencies) >= expected)
    finally:
        reader.close()
        cluster.delete_topics(name)
    assert len(reader.latencies) == expected, f"{len(reader.latencies)} marked records came out, not {expected}"
    taken = [latency for seen_s, latency in reader.latencies if began_s + settle_s < seen_s < ended_s]
    return Run(given.rate, sorted(taken), used, float(said[1]), waited, stolen)


def spent(pid: int) -> tuple[float, float, float]:
    """Seconds so far: in which the program computed, in which it waited for a CPU, and which the host took."""
    return cpu_seconds(pid), waited_seconds(pid), stolen_seconds()


def table(case: str, results: dict[str, Run]) -> str:
    """Markdown."""
    p50, p99 = GOALS[case]
    goal = f"p99 {p99:g}" if p50 == math.inf else f"p50 {p50:g}, p99 {p99:g}"
    lines = [
        f"**{TITLES[case]}: latency, milliseconds** (goal: {goal})",
        "",
        "| runtime | records / s | p50 | p90 | p99 | max | cores used | waited for | stolen | producer late, s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for peer, run in results.items():
        each = " | ".join(f"{quantile(run.latencies_ms, part):.1f}" for part in (0.5, 0.9, 0.99, 1))
        lines.append(
            f"| {NAMES.get(peer, peer)} | {run.per_s:,.0f} | {each} | {run.cpu_share:.2f} "
            f"| {run.waited_share:.2f} | {run.stolen_share:.2f} | {run.late_s:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_fixed_rate")
    parser.add_argument("--peers", default="ours,bundled,java,quix", help="of ours, bundled, java, quix, ours@TREE")
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--rate", type=float, default=5_000.0, help="records per second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--linger-ms", type=int, help="of ours and of Java, instead of what each has by itself")
    given = parser.parse_args()
    peers, cases = given.peers.split(","), given.cases.split(",")
    for peer in peers:
        prepare(peer)
    tune_process()
    results: dict[str, dict[str, Run]] = {case: {} for case in cases}
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    try:
        with clusters(peers, folder, SHIPPED_HEAP) as where:
            for case in cases:
                for peer in peers:
                    if peer == "quix" and case.endswith("eos"):
                        continue
                    run = results[case][peer] = measure(peer, case, where[peer], folder, given)
                    say(f"{peer} {case}: p50 {statistics.median(run.latencies_ms or [math.nan]):.1f} ms")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n\n".join(table(case, results[case]) for case in cases))


if __name__ == "__main__":
    main()
