"""Windows, suppression and joins, end to end: this runtime beside quixstreams, where that has the operator.

    python -m tests.bench.bench_operators_end_to_end [--quick] [--peers ours,bundled,quix] [--workloads hopping,...]
                                                     [--records 300000] [--rounds 3]

As :mod:`tests.bench.bench_end_to_end`: on one Apache Kafka (``bundled``: on the bundled broker), CPU time of the client's
process, peers that take turns, outputs read by another client and compared with an independent computation. quixstreams gets
a fifth of the records. Its joins are ``join_asof`` and ``join_interval``; it has no joins of tables. Its sliding windows are
others, so they are not compared.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
from pathlib import Path

from streamsrt.wire.records import encode_batch
from tests.bench.bench_end_to_end import LOAD_BATCH_RECORDS, SHARES, Cluster, Result, clusters, table
from tests.bench.peer_programs import UnfinishedError, prepare, run_program, say
from tests.bench.peers import operator_data
from tests.bench.peers.data import Columns, difference, rows

TITLES = {
    "hopping": "Hopping count, 60 s every 15 s",
    "sliding": "Sliding count, 2 s",
    "session": "Session count, gap of 2 s",
    "suppress": "Tumbling count, 5 s, suppressed until windows close",
    "stream-table": "Join of a stream with a table of 10,000 rows",
    "stream-stream": "Join of two streams, 200 ms apart at most",
    "table-table": "Join of two tables",
    "foreign-key": "Join of two tables on a foreign key",
}
RECORDS_LEAST = 40_000
"""Ten seconds in each partition."""
QUIX_HAS = {"hopping", "session", "suppress", "stream-table", "stream-stream"}


def load(cluster: Cluster, name: str, columns: tuple[Columns, ...], loaded: set[tuple[Cluster, str]]) -> str:
    """Writes an input, the first time."""
    if (cluster, name) not in loaded:
        loaded.add((cluster, name))
        cluster.make_topic(name)
        for partition, (keys, values, timestamps) in enumerate(columns):
            for start in range(0, len(keys), LOAD_BATCH_RECORDS):
                some = slice(start, start + LOAD_BATCH_RECORDS)
                cluster.send(name, partition, encode_batch(keys[some], values[some], timestamps[some]), len(keys[some]))
        cluster.flush()
    return name


def measure(
    peer: str, workload: str, records: int, cluster: Cluster, folder: Path, name: str, loaded: set[tuple[Cluster, str]]
) -> Result:
    """One run, checked."""
    application = f"{name}-{workload}-{peer}"
    sources, total = load(cluster, f"stream-{records}", rows(records), loaded), records
    other = operator_data.other_side(workload, records)
    if other is not None:
        kind = "other" if workload == "stream-stream" else "table"
        sources += "," + load(cluster, f"{kind}-{records}", other, loaded)
        total += sum(len(keys) for keys, _, _ in other)
    sink, state = f"out-{application}", folder / application
    cluster.make_topic(sink)
    state.mkdir()
    try:
        arguments = [cluster.address, workload, sources, sink, application, str(total), str(state)]
        marks = run_program(peer, arguments, folder / "program.log")
    except UnfinishedError as error:
        return Result(math.nan, None, math.nan, 0, str(error))
    outputs, got = operator_data.summarised(peer, workload, cluster.read(sink))
    wrong = difference(operator_data.expected(workload, records), got)
    cluster.delete_topics(application)
    shutil.rmtree(state, ignore_errors=True)
    start, end = marks["START"], marks["END"]
    return Result(total / (end.cpu_s - start.cpu_s), None, end.at_s - start.at_s, outputs, wrong)


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_operators_end_to_end")
    parser.add_argument("--peers", default="ours,bundled,quix", help="of ours, bundled, quix")
    parser.add_argument("--workloads", default=",".join(TITLES), help=f"of {', '.join(TITLES)}")
    parser.add_argument("--records", type=int, help="of each stream: 300000; quix gets a fifth")
    parser.add_argument("--rounds", type=int, help="how often (3)")
    parser.add_argument("--quick", action="store_true", help="100000 records, one round")
    given = parser.parse_args(arguments)
    given.records = given.records or (100_000 if given.quick else 300_000)
    given.rounds = given.rounds or (1 if given.quick else 3)
    return given


def main(arguments: list[str] | None = None) -> int:
    """Prints a table per workload; the result is the number of runs whose outputs were wrong."""
    given = options(arguments)
    peers, workloads = given.peers.split(","), given.workloads.split(",")
    records = {peer: max(RECORDS_LEAST, int(given.records * SHARES.get(peer, 1))) for peer in peers}
    compared = {name: [peer for peer in peers if peer != "quix" or name in QUIX_HAS] for name in workloads}
    results: dict[str, dict[str, list[Result]]] = {name: {peer: [] for peer in compared[name]} for name in workloads}
    for peer in peers:
        prepare(peer)
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    loaded: set[tuple[Cluster, str]] = set()
    try:
        with clusters(peers, folder) as where:
            for number in range(given.rounds):
                for workload in workloads:
                    for peer in compared[workload]:
                        run = measure(peer, workload, records[peer], where[peer], folder, f"run{number}", loaded)
                        results[workload][peer].append(run)
                        say(
                            f"round {number + 1} {workload} {peer}: {run.per_cpu_s:,.0f} records per CPU second, "
                            f"{run.wall_s:.1f} s {run.wrong}"
                        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n\n".join(table(name, results[name], records, TITLES[name]) for name in workloads))
    return sum(bool(run.wrong) for runs in results.values() for each in runs.values() for run in each)


if __name__ == "__main__":
    sys.exit(main())
