"""Filter, map and aggregate over orders in real formats: this runtime beside its peers on one broker, end to end.

    python -m tests.bench.bench_formats_end_to_end [--peers ours,bundled,native,java,quix,faust]
                                                   [--formats json,pydantic,...] [--records 500000] [--rounds 2]

As :mod:`tests.bench.bench_end_to_end`: CPU time of the client's process, peers that take turns, outputs read by another
client and compared with an independent computation, Java compared by its warm half. The program is the same everywhere: half
of the orders are left out, the others become a line of two fields, and lines are added up per customer (10,000 keys) into a
total in the same format, which is the state as well, except in quixstreams, whose state is JSON.

What the formats are to each runtime:

- JSON as dicts: orjson (quixstreams and faust too); as pydantic models, dataclasses and TypedDicts: ``serdes.json(Type)``;
  Java has Jackson and records for all four. quixstreams has no types, so its program calls pydantic; faust has its own
  models with validation, which are compared with pydantic's.
- Avro and Protobuf: values with ids of a schema registry, an HTTP server of this process that each program asks. Java has
  the classes that Avro's and Protobuf's compilers generate. Faust has neither. Only the fields that are used: what is read
  has a schema of two fields, so that Avro passes over the others.
- text with commas, numbers: the serdes of strings, doubles and longs.

``loop by hand`` is a loop in this process: reading by the serde, the program's functions, a dict as state, and one write of
each total, with the loops in C where this process has them. No runtime in Python can be faster with this library.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

from tests.bench.bench_end_to_end import NAMES, RECORDS_MIN, SHARES, Cluster, Result, clusters, measured, median, table
from tests.bench.peer_programs import prepare, say
from tests.bench.peers import format_data, ours_formats
from tests.bench.peers.order_schemas import PROTOBUF
from tests.schema_registry import running_registry

BY_HAND_RECORDS, BY_HAND_ROUNDS = 40_000, 5
FAUST_HAS = {"json", "pydantic"}
GOALS = {"java": 2, "quix": 10}


def measure(
    peer: str, name: str, records: int, cluster: Cluster, folder: Path, round_name: str, registry: str
) -> Result:
    """One run, checked."""
    kind = "json" if name in format_data.JSON else name.partition("-")[0]
    source = f"{kind}-orders-{records}"
    cluster.load(source, format_data.inputs(name, records, registry))
    environment = {"REGISTRY": registry, "PROTOBUF": PROTOBUF}
    want = format_data.expected(name, records)
    return measured(peer, name, records, source, cluster, folder, round_name, want, format_data.summarised, environment)


def by_hand(name: str, registry: str) -> float:
    """Records per CPU second of a loop in this process: reading by the library, and the program's functions."""
    columns = format_data.inputs(name, BY_HAND_RECORDS, registry)
    keys, values = (list(chain.from_iterable(each[index] for each in columns)) for index in (0, 1))
    took_s = []
    for _ in range(BY_HAND_ROUNDS):
        began = time.process_time()
        ours_formats.by_hand(name, registry, keys, values)
        took_s.append(time.process_time() - began)
    return len(keys) / statistics.median(took_s)


def summary(results: dict[str, dict[str, list[Result]]], loops: dict[str, float]) -> str:
    """Markdown: per format the rate of a loop by hand, and of each kind of this runtime, with the loops in C or without, its
    rate and by how much that exceeds each peer's."""
    present = set().union(*results.values())
    peers = [peer for peer in ("java", "quix", "faust") if peer in present]
    kinds = [kind for kind in ("ours", "native") if kind in present]
    columns = [f"{NAMES[kind]}, {what}" for kind in kinds for what in ("records / CPU s", *(f"x {p}" for p in peers))]
    lines = ["| format | loop by hand | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * (1 + len(columns))]
    for name, of_peer in results.items():
        rates = {peer: median(run.per_cpu_s for run in runs) for peer, runs in of_peer.items()}
        warm = {peer: median(run.warm_per_cpu_s or run.per_cpu_s for run in runs) for peer, runs in of_peer.items()}
        cells = [format_data.TITLES[name], f"{loops[name]:,.0f}"]
        for kind in kinds:
            cells.append(f"{rates[kind]:,.0f}")
            for peer in peers:
                compared = warm if peer == "java" else rates
                cells.append(_ratio(compared[kind] / compared[peer], peer) if peer in rates else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ratio(ratio: float, peer: str) -> str:
    return f"{ratio:.1f}" if ratio >= GOALS.get(peer, 0) else f"{ratio:.1f} (goal {GOALS[peer]})"


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_formats_end_to_end")
    parser.add_argument(
        "--peers", default="ours,bundled,java,quix,faust", help="of ours, bundled, native, java, quix, faust"
    )
    parser.add_argument("--formats", default=",".join(format_data.TITLES), help=f"of {', '.join(format_data.TITLES)}")
    parser.add_argument(
        "--records", type=int, default=500_000, help="500000; Java gets 4 times, quix a fifth, faust a 100th"
    )
    parser.add_argument("--rounds", type=int, default=2, help="how often (2)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Prints a table per format; the result is the number of runs whose outputs were wrong."""
    given = options(arguments)
    peers, formats = given.peers.split(","), given.formats.split(",")
    compared = {name: [peer for peer in peers if peer != "faust" or name in FAUST_HAS] for name in formats}
    records = {peer: max(RECORDS_MIN, int(given.records * SHARES.get(peer, 1))) for peer in peers}
    results: dict[str, dict[str, list[Result]]] = {name: {peer: [] for peer in compared[name]} for name in formats}
    for peer in peers:
        prepare(peer)
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    try:
        with running_registry() as registry, clusters(peers, folder) as where:
            for number in range(given.rounds):
                for name in formats:
                    for peer in compared[name]:
                        run = measure(peer, name, records[peer], where[peer], folder, f"run{number}", registry.url)
                        results[name][peer].append(run)
                        say(
                            f"round {number + 1} {name} {peer}: {run.per_cpu_s:,.0f} records per CPU second, "
                            f"{run.wall_s:.1f} s {run.wrong}"
                        )
            loops = {name: by_hand(name, registry.url) for name in formats}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n\n".join(table(name, results[name], records, format_data.TITLES[name]) for name in formats))
    if {"ours", "native"} & {*peers}:
        print("\n" + summary(results, loops))
    return sum(bool(run.wrong) for runs in results.values() for each in runs.values() for run in each)


if __name__ == "__main__":
    sys.exit(main())
