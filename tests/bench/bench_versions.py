"""This tree beside another one, in process: ``python -m tests.bench.bench_versions /path/to/other/tree``.

Each tree has a process of its own, and the two take turns, one round of a workload at a time, so that load on the machine
meets both alike. The figure is the median of the ratios of neighbouring rounds, in CPU time. The workloads are those of
``bench_stages``, or with ``--bench operators`` of ``bench_operators``, each as its own tree has it; with ``--bench driver``
those of ``bench_driver``, with ``--bench formats`` those of ``bench_formats`` and with ``--bench restore`` those of
``bench_restored_rows``, as this tree has them. Another tree is made by
``git worktree add --detach /path/to/other/tree COMMIT``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("map", "count", "uncached", "window", "join", "words1", "words2")
OPERATORS = (
    "count per key",
    "tumbling count",
    "session count",
    "stream-table join",
    "stream-stream join",
    "table-table join",
)

DRIVER = ("map", "count", "tumbling count", "stream-table join", "group by words, count")
FORMATS = tuple(
    f"filter + map: {name}"
    for name in ("json", "json, pydantic model", "json, dataclass", "json, TypedDict", "avro", "protobuf")
)
RESTORES = (
    "restore: distinct keys",
    "restore: one store",
    "restore: 10 updates of each",
    "restore: values of 8 bytes",
    "restore: ascending keys",
    "restore: 80 to 120 bytes",
)
NAMES = {"stages": STAGES, "operators": OPERATORS, "driver": DRIVER, "formats": FORMATS, "restore": RESTORES}


def bench_of_this_tree(name: str) -> Any:
    """A module of tests/bench as it is here, over the other tree's code, which may not have it yet."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepared(bench: str, name: str, folder: Path) -> Callable[[], object]:
    """One round of a workload of the tree that this process was started with."""
    if bench == "stages":
        from tests.bench import bench_stages  # of the tree that is named by PYTHONPATH

        workload = bench_stages.workloads()[name]()
        return bench_stages.drive(workload.task("INFO"), workload.batches)
    if bench == "driver":
        return bench_of_this_tree("bench_driver").piped(name)
    if bench == "formats":
        return bench_of_this_tree("bench_formats").round_of(name, folder)
    if bench == "restore":
        return bench_of_this_tree("bench_restored_rows").restoring(name, folder)
    from tests.bench import bench_operators
    from topology import StreamsBuilder

    builder = StreamsBuilder()
    bench_operators.PROGRAMS[name](builder)
    batches = bench_operators.encoded(bench_operators.rows(name))
    # The other tree may be one from before there were inputs that alternate.
    together = bench_operators.together(name) if hasattr(bench_operators, "together") else 1
    return bench_operators.fresh(builder.build(), batches, folder, together)


def work(bench: str, name: str) -> None:
    """A process of one tree: a round for each line that it reads, its CPU seconds as a line."""
    from streamsrt.runtime.tuning import tune_process

    tune_process()
    with tempfile.TemporaryDirectory(prefix="bench-versions-") as folder:
        run = prepared(bench, name, Path(folder))
        run()
        print("ready", flush=True)
        for _ in sys.stdin:
            began = time.process_time()
            run()
            print(time.process_time() - began, flush=True)


def started(tree: Path, bench: str, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--work", "--bench", bench, str(tree), name]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
    )


def one_round(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measured(other: Path, bench: str, name: str, rounds: int) -> list[tuple[float, float]]:
    """CPU seconds of neighbouring rounds: of this tree, of the other."""
    ours, theirs = started(ROOT, bench, name), started(other, bench, name)
    try:
        for process in (ours, theirs):
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise SystemExit(f"{name} does not run in one of the trees")
        pairs = []
        for number in range(rounds):
            if number % 2:
                other_s = one_round(theirs)
                pairs.append((one_round(ours), other_s))
            else:
                pairs.append((one_round(ours), one_round(theirs)))
        return pairs
    finally:
        for process in (ours, theirs):
            process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_versions")
    parser.add_argument("tree", type=Path, help="the other tree")
    parser.add_argument("names", nargs="*", help="workloads; those of the docstring without")
    parser.add_argument("--bench", choices=list(NAMES), default="stages")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.bench, options.names[0])
        return
    print(f"{'CPU milliseconds a round':32}{'this':>10}{'other':>10}{'ratio':>8}{'quartiles':>16}")
    for name in options.names or NAMES[options.bench]:
        pairs = measured(options.tree, options.bench, name, options.rounds)
        ours, theirs = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
        ratios = [mine / other for mine, other in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{name:32}{ours:10.1f}{theirs:10.1f}{middle:8.3f}{low:10.3f}-{high:.3f}", flush=True)


if __name__ == "__main__":
    main()
