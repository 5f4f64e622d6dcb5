"""Whether a hot path has become slower, in a few minutes: ``python -m tests.bench.bench_quick [--write] [path ...]``.

Each path is measured as a multiple of a loop written by hand that does the same (:mod:`tests.bench.prototype`,
:mod:`tests.bench.bench_records`). Both take turns in one process, and the figure is the median of the ratios of
neighbouring rounds, in CPU time: what else runs on the machine slows both. A path whose ratio is 1.3 times the one in
``quick_ratios.json`` fails the run, after a second, longer measurement. Another Python or processor has other ratios: there,
record them before the change in a file of your own (``--write --recorded FILE``), and compare with it (``--recorded FILE``).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from streamsrt.runtime.tuning import tune_process
from streamsrt.wire.messages import encode_request
from streamsrt.wire.records import decode_batch, encode_batch
from tests.bench import bench_operators, bench_records, bench_stages, bench_state, prototype
from tests.coordinator.broker.in_process import InProcessBroker, production
from topology import StreamsBuilder

RECORDED = Path(__file__).with_name("quick_ratios.json")
LIMIT = 1.3
ROUNDS = 21
CALL_S = 0.06
"""A round calls each side so often that it takes about this long: the clock and the caches matter less then."""
NOT_RECORDED, WORSE = "NOT RECORDED", "WORSE"
RESTORED_KEYS = 150_000
REQUESTS, REQUEST_RECORDS = 1000, 1

Run = Callable[[], object]
Sides = tuple[Run, Run]
"""Ours, and the loop by hand."""


# ---------------------------------------------------------------------------------------------------------- comparing


@dataclass(frozen=True, slots=True)
class Verdict:
    """A path's ratio to its loop by hand, then and now."""

    path: str
    recorded: float | None
    measured: float
    limit: float

    @property
    def change(self) -> float | None:
        """How many times what is recorded."""
        return None if self.recorded is None else self.measured / self.recorded

    @property
    def text(self) -> str:
        """One word or two; nothing if all is well."""
        if self.change is None:
            return NOT_RECORDED
        if self.change >= self.limit:
            return WORSE
        return "better: record it" if self.change <= 1 / self.limit else ""

    @property
    def fails(self) -> bool:
        """Whether the run must not pass."""
        return self.text in {NOT_RECORDED, WORSE}


def judge(recorded: Mapping[str, float], measured: Mapping[str, float], limit: float = LIMIT) -> list[Verdict]:
    """One verdict for each path that was measured."""
    return [Verdict(path, recorded.get(path), ratio, limit) for path, ratio in measured.items()]


def settle(
    recorded: Mapping[str, float],
    measured: Mapping[str, float],
    again: Callable[[Sequence[str]], Mapping[str, float]],
    limit: float = LIMIT,
) -> list[Verdict]:
    """The verdicts, after paths that seem worse were measured ``again``: the better of both counts."""
    suspects = [each.path for each in judge(recorded, measured, limit) if each.text == WORSE]
    better = {path: min(ratio, measured[path]) for path, ratio in again(suspects).items()} if suspects else {}
    return judge(recorded, {**measured, **better}, limit)


def table(verdicts: Sequence[Verdict]) -> str:
    """One line per path."""
    lines = [f"{'CPU time as a multiple of the loop by hand':44}{'recorded':>10}{'now':>8}{'change':>9}"]
    for each in verdicts:
        then = "-" if each.recorded is None else f"{each.recorded:.2f}"
        change = "-" if each.change is None else f"{each.change:.2f}x"
        lines.append(f"{each.path:44}{then:>10}{each.measured:8.2f}{change:>9}  {each.text}".rstrip())
    return "\n".join(lines)


def conclusion(verdicts: Sequence[Verdict]) -> str:
    """What is to be done; nothing if all is well."""
    lines = []
    worse = [each.path for each in verdicts if each.text == WORSE]
    if worse:
        lines.append(
            f"{', '.join(worse)}: at least {verdicts[0].limit} times what is recorded. Find the cause; if it is worth its "
            "price, record the new ratio with --write and say why in the commit."
        )
    unknown = [each.path for each in verdicts if each.text == NOT_RECORDED]
    if unknown:
        lines.append(f"{', '.join(unknown)}: nothing is recorded to compare with. Record it with --write.")
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------- measuring


def seconds(run: Run, calls: int) -> float:
    """CPU time of the process, background threads included."""
    start = time.process_time()
    for _ in range(calls):
        run()
    return time.process_time() - start


def ratio(sides: Sides, rounds: int) -> float:
    """The median over rounds in which the two follow each other, each being first in half of them."""
    calls = []
    for run in sides:
        run()
        calls.append(max(1, math.ceil(CALL_S / max(seconds(run, 1), 1e-6))))
    gc.collect()
    ratios = []
    for number in range(rounds):
        took = [0.0, 0.0]
        for side in (0, 1) if number % 2 else (1, 0):
            took[side] = seconds(sides[side], calls[side]) / calls[side]
        ratios.append(took[0] / took[1])
    return statistics.median(ratios)


# -------------------------------------------------------------------------------------------------------------- paths


def decoding(spread: int) -> Sides:
    batches = [encode_batch(*columns) for columns in bench_records.columns(spread)]
    return bench_records.each(decode_batch, batches), bench_records.each(prototype.decode, batches)


def encoding() -> Sides:
    columns = bench_records.columns()
    return (
        bench_records.each(lambda batch: encode_batch(*batch), columns),
        bench_records.each(bench_records.aiokafka_build, columns),
    )


def task(name: str) -> Sides:
    workload = bench_stages.workloads()[name]()
    return bench_stages.drive(workload.task("INFO"), workload.batches), workload.prototype


def stream_stream_join(folder: Path) -> Sides:
    """Each call begins with empty stores: what was joined once would be joined again."""
    program = "stream-stream join"
    batches = bench_operators.encoded(bench_operators.rows(program))
    builder = StreamsBuilder()
    bench_operators.PROGRAMS[program](builder)
    numbered = [(int(topic == "table"), batch) for topic, batch in batches]

    def by_hand() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as path:
            store = prototype.Store(path)
            prototype.stream_join(numbered, store, bench_operators.COMMIT_RECORDS, 1000)()
            store.close()

    return bench_operators.fresh(builder.build(), batches, folder, together=1), by_hand


def restoring(folder: Path) -> Sides:
    stores = bench_state.Stores(folder)
    keys = bench_state.shuffled(bench_state.keys_of(RESTORED_KEYS))
    values = [bench_state.VALUE] * len(keys)

    def by_hand() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as path:
            store = prototype.Store(path)
            prototype.restore(keys, values, store, bench_state.BATCH)()
            store.close()

    return lambda: bench_state.restored(stores, keys), by_hand


def producing(folder: Path) -> Sides:
    """From a request's frame to the parts of its answer, without the sockets."""
    broker = InProcessBroker(folder / "broker", {"log.fsync": "never", "log.retention.ms": "-1"})
    broker.create("in")
    keys = [b"user-%06d" % number for number in range(REQUEST_RECORDS)]
    batch = encode_batch(keys, [b"v" * 100] * len(keys), [broker.now_ms] * len(keys))
    frames = [encode_request(production("in", {0: batch}), 12, number, "bench")[4:] for number in range(REQUESTS)]
    file = os.open(folder / "by-hand.log", os.O_CREAT | os.O_WRONLY)

    def ours(answer: Callable[[bytes], object] | None = None) -> None:
        for frame in frames:
            parts = broker.dispatcher.handle(frame, "127.0.0.1", broker.principal)
            if answer is not None:
                assert not isinstance(parts, Awaitable)
                answer(b"".join(parts or ()))

    answers: tuple[list[bytes], list[bytes]] = ([], [])
    ours(answers[0].append)
    prototype.append(frames, {b"in": file}, 0, answers[1].append)()
    assert answers[0] == answers[1], (answers[0][:1], answers[1][:1])
    return ours, prototype.append(frames, {b"in": file}, 0)


PATHS: dict[str, Callable[[Path], Sides]] = {
    "decode a batch, records of one size": lambda _: decoding(0),
    "decode a batch, records of many sizes": lambda _: decoding(20),
    "encode a batch": lambda _: encoding(),
    "filter and map": lambda _: task("map"),
    "count per key": lambda _: task("count"),
    "tumbling windows": lambda _: task("window"),
    "stream-table join": lambda _: task("join"),
    "stream-stream join": stream_stream_join,
    "restore a store": restoring,
    "broker: produce": producing,
}


def measure(paths: Iterable[str], rounds: int) -> dict[str, float]:
    """Ratios by path."""
    measured, numbers = {}, count()
    with tempfile.TemporaryDirectory(prefix="bench-quick-") as root:
        for path in paths:
            folder = Path(root) / str(next(numbers))
            folder.mkdir()
            try:
                measured[path] = ratio(PATHS[path](folder), rounds)
            finally:
                bench_stages.remove_directories()
            print(f"{path}: {measured[path]:.2f}", file=sys.stderr, flush=True)
    return measured


# ------------------------------------------------------------------------------------------------------------ the file


def here() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}"


def read(file: Path) -> tuple[str, dict[str, float]]:
    """Where the ratios were recorded, and the ratios."""
    if not file.exists():
        return "", {}
    content = json.loads(file.read_text(encoding="utf-8"))
    return content["recorded with"], content["ratios"]


def write(file: Path, measured: Mapping[str, float]) -> None:
    """Records these paths anew; other ones keep what they have."""
    ratios = read(file)[1] | {path: round(ratio, 3) for path, ratio in measured.items()}
    kept = {path: ratios[path] for path in PATHS if path in ratios}
    file.write_text(json.dumps({"recorded with": here(), "ratios": kept}, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.bench_quick",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help="record the ratios instead of comparing with them")
    parser.add_argument("--recorded", type=Path, default=RECORDED, help="the file of ratios (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("paths", nargs="*", metavar="path", help="all without")
    options = parser.parse_args()
    unknown = set(options.paths) - PATHS.keys()
    if unknown:
        parser.error(f"no such path: {', '.join(sorted(unknown))}; there are {', '.join(PATHS)}")
    tune_process()
    measured = measure(options.paths or PATHS, options.rounds)
    if options.write:
        write(options.recorded, measured)
        return 0
    recorded_with, recorded = read(options.recorded)
    verdicts = settle(recorded, measured, lambda suspects: measure(suspects, options.rounds * 2))
    print(table(verdicts))
    if recorded_with != here():
        print(f"Recorded with {recorded_with or 'nothing'}, measured with {here()}.")
    print(conclusion(verdicts), end="\n" if conclusion(verdicts) else "")
    return int(any(each.fails for each in verdicts))


if __name__ == "__main__":
    sys.exit(main())
