"""What counting costs: a task without it, and at each level of ``metrics.recording.level``.

``python -m tests.bench.bench_metrics [--rounds N] [--programs map,count,join]``. Scope: as of
:mod:`tests.bench.bench_stages`, batches in memory to encoded ones, no network. "Off" is INFO with what it counts taken out
of the task and of the record collector, which no setting does. CPU time; the levels take turns, round by round, in one
process, each with a task of its own, and the ratios are medians over the rounds.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streamsrt.runtime.tuning import tune_process
from streamsrt.tasks.output import record_collector
from streamsrt.tasks.task_meter import TaskMeter
from tests.bench.bench_stages import DIRECTORIES, Level, Workload, drive, workloads

LEVELS: dict[str, Level] = {"off": "INFO", "INFO": "INFO", "DEBUG": "DEBUG", "TRACE": "TRACE"}
COUNTED: tuple[tuple[Any, str], ...] = (
    (TaskMeter, "done"),
    (TaskMeter, "turned"),
    (TaskMeter, "look"),
    (record_collector._Topic, "look"),
)


@contextmanager
def uncounted() -> Iterator[None]:
    """Nothing is counted within."""
    real = [(owner, name, getattr(owner, name)) for owner, name in COUNTED]
    for owner, name, _ in real:
        setattr(owner, name, lambda *_: None)
    try:
        yield
    finally:
        for owner, name, function in real:
            setattr(owner, name, function)


def timed(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def measure(workload: Workload, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each round, after one to warm up."""
    runs = {mode: drive(workload.task(level), workload.batches) for mode, level in LEVELS.items()}
    seconds: dict[str, list[float]] = {mode: [] for mode in runs}
    gc.collect()
    for _ in range(rounds + 1):
        for mode, run in runs.items():
            if mode == "off":
                with uncounted():
                    seconds[mode].append(timed(run))
            else:
                seconds[mode].append(timed(run))
    return {mode: times[1:] for mode, times in seconds.items()}


def main(programs: list[str], rounds: int) -> None:
    """Prints a line per program: CPU time without counting, and each level's as a multiple of it, round by round."""
    tune_process()
    print(f"{'':24} {'off':>12}" + "".join(f"{level:>8}" for level in LEVELS if level != "off"))
    known = workloads()
    try:
        for name in programs:
            workload = known[name]()
            seconds = measure(workload, rounds)
            off = seconds.pop("off")
            ratios = [statistics.median(map(float.__truediv__, times, off)) for times in seconds.values()]
            nanoseconds = statistics.median(off) / workload.records * 1e9
            print(f"{workload.title:24} {nanoseconds:6.0f} ns/rec" + "".join(f"{r:8.3f}" for r in ratios), flush=True)
    finally:
        for directory in DIRECTORIES:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_metrics")
    parser.add_argument("--programs", default="map,count,join", help=f"of {', '.join(workloads())}")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    main(options.programs.split(","), options.rounds)
