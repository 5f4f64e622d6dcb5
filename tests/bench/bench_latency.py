"""Latency at a tenth and at seven tenths of what each runtime can do: this one, Java's, quixstreams, on one Apache Kafka.

    python -m tests.bench.bench_latency [--peers ours,java,quix] [--loads 10,70] [--seconds 10] [--linger-ms 5]

Every record is hashed five times, and one in 50 comes out. First each runtime works off a backlog: its rate by the wall
clock is its 100 %. Then a program of its own writes records evenly at a part of that rate; each marked one carries the time
when it was given to the producer, and another client looks when it comes out. The first 4 seconds don't count. Apache
Kafka has the heap and the garbage collector that its start script gives it. All share the machine, which makes a high load
a busy machine: compare the runtimes, and the loads, of one run only.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from streamsrt.wire.records import encode_batch
from tests.bench.bench_end_to_end import NAMES, Cluster, clusters
from tests.bench.peer_programs import ROOT, PeerProgram, prepare, run_program, say
from tests.bench.peers.paced import MARKED, PARTITIONS, VALUE, batch
from tests.kafka_server import SHIPPED_HEAP

BACKLOG = {"ours": 800_000, "bundled": 800_000, "java": 2_000_000, "quix": 200_000}
SETTLE_S = 4.0
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """One load. Latencies in milliseconds. ``waited_share``: for how long threads of the program could have run and had no
    CPU, per second; ``stolen_share``: for how long the host gave this machine's CPUs to others."""

    per_s: float
    latencies_ms: list[float]
    cpu_share: float
    late_s: float
    waited_share: float = math.nan
    stolen_share: float = math.nan


def settings(peer: str, linger_ms: int) -> list[str]:
    names = {"java": "producer.linger.ms", "ours": "linger.ms", "bundled": "linger.ms"}
    return [f"{names[peer]}={linger_ms}"] if peer in names else []


def backlog(cluster: Cluster, topic: str, records: int) -> None:
    """Writes it."""
    cluster.make_topic(topic)
    size = 1000
    marked = size // MARKED
    values: list[bytes | None] = [VALUE] * (size - marked) + [b"M%019d" % 0] * marked
    encoded = bytes(encode_batch([b"key"] * size, values, [time.time_ns() // 1_000_000] * size))
    for number in range(records // size):
        cluster.send(topic, number % PARTITIONS, encoded, size)
    cluster.flush()


def capacity(peer: str, cluster: Cluster, folder: Path, linger_ms: int) -> float:
    """Records per second by the wall clock, once it is warm."""
    source, sink, records = f"in-{peer}", f"out-{peer}", BACKLOG[peer]
    backlog(cluster, source, records)
    cluster.make_topic(sink)
    state = folder / f"capacity-{peer}"
    state.mkdir()
    arguments = [cluster.address, "W7", source, sink, f"capacity-{peer}", str(records), str(state)]
    marks = run_program(peer, arguments + settings(peer, linger_ms), folder / "program.log")
    start, end = marks.get("HALF", marks["START"]), marks["END"]
    cluster.delete_topics(f"-{peer}")
    return (records - start.records) / (end.at_s - start.at_s)


class Reader:
    """Looks when marked records come out. ``latencies``: when each was seen (``time.monotonic``), and milliseconds.

    The marks are values, or keys. It reads committed records, as librdkafka's consumers do.
    """

    def __init__(self, address: str, topic: str) -> None:
        self.latencies: list[tuple[float, float]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "bench-latency",
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 1,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            first = self._consumer.poll(0.05)
            now_ns, now_s = time.time_ns(), time.monotonic()
            for message in [] if first is None else [first, *self._consumer.consume(500, 0)]:
                if message.error() is not None:
                    continue
                mark = next((each for each in (message.key(), message.value()) if each and each[:1] == b"M"), None)
                if mark is not None:
                    self.latencies.append((now_s, (now_ns - int(mark[1:20])) / 1e6))

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("nothing comes out")
            self._over.wait(0.02)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()


def measure(peer: str, load: int, per_s: float, cluster: Cluster, folder: Path, given: argparse.Namespace) -> Run:
    name = f"latency-{peer}-{load}"
    source, sink, state = f"in-{name}", f"out-{name}", folder / name
    cluster.make_topic(source)
    cluster.make_topic(sink)
    state.mkdir()
    arguments = [cluster.address, "W7", source, sink, name, "0", str(state), *settings(peer, given.linger_ms)]
    reader = Reader(cluster.address, sink)
    try:
        with PeerProgram(peer, arguments, folder / "program.log") as program:
            for number in range(PARTITIONS):
                cluster.send(source, number, bytes(batch(MARKED)), MARKED)
            cluster.flush()
            reader.until(lambda: len(reader.latencies) >= PARTITIONS)
            began_s, before_s = time.monotonic(), cpu_seconds(program.process.pid)
            paced = [sys.executable, "-m", "tests.bench.peers.paced"]
            paced += [cluster.address, source, str(per_s), str(SETTLE_S + given.seconds)]
            said = subprocess.run(paced, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
            used_s = (cpu_seconds(program.process.pid) - before_s) / (time.monotonic() - began_s)
            ended_s = time.monotonic()
    finally:
        reader.close()
        cluster.delete_topics(name)
    taken = [latency for seen_s, latency in reader.latencies if began_s + SETTLE_S < seen_s < ended_s]
    return Run(per_s, sorted(taken), used_s, float(said[1]))


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def waited_seconds(pid: int) -> float:
    """For how long the threads of a process have waited for a CPU so far; not a number where the system does not tell."""
    files = [folder / "schedstat" for folder in Path(f"/proc/{pid}/task").glob("*")]
    if not files or not files[0].exists():
        return math.nan
    return sum(int(file.read_text(encoding="ascii").split()[1]) for file in files) / 1e9


def stolen_seconds() -> float:
    """For how long the host has given this machine's CPUs to others so far."""
    file = Path("/proc/stat")
    return int(file.read_text(encoding="ascii").split()[8]) / 100 if file.exists() else math.nan


def quantile(latencies_ms: list[float], part: float) -> float:
    return latencies_ms[min(len(latencies_ms) - 1, int(len(latencies_ms) * part))] if latencies_ms else math.nan


def table(results: dict[str, dict[int, Run]], capacities: dict[str, float]) -> str:
    """Markdown."""
    lines = [
        "**latency, milliseconds**",
        "",
        "| runtime | 100 %: records / s | load | records / s | p50 | p99 | max | cores used | producer late, s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for peer, runs in results.items():
        for load, run in runs.items():
            times = run.latencies_ms
            lines.append(
                f"| {NAMES[peer]} | {capacities[peer]:,.0f} | {load} % | {run.per_s:,.0f} | {quantile(times, 0.5):.1f} "
                f"| {quantile(times, 0.99):.1f} | {quantile(times, 1):.1f} | {run.cpu_share:.2f} | {run.late_s:.2f} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_latency")
    parser.add_argument("--peers", default="ours,java,quix", help="of ours, bundled, java, quix")
    parser.add_argument("--loads", default="10,70", help="percent of what it can do")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument(
        "--linger-ms", type=int, default=5, help="of ours and of Java, whose default is 100; quix has 5"
    )
    given = parser.parse_args()
    peers = given.peers.split(",")
    for peer in peers:
        prepare(peer)
    results: dict[str, dict[int, Run]] = {peer: {} for peer in peers}
    capacities: dict[str, float] = {}
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    try:
        with clusters(peers, folder, SHIPPED_HEAP) as where:
            for peer in peers:
                capacities[peer] = capacity(peer, where[peer], folder, given.linger_ms)
                say(f"{peer}: {capacities[peer]:,.0f} records/s")
            for load in map(int, given.loads.split(",")):
                for peer in peers:
                    run = measure(peer, load, capacities[peer] * load / 100, where[peer], folder, given)
                    results[peer][load] = run
                    say(f"{peer} {load} %: p50 {statistics.median(run.latencies_ms or [math.nan]):.1f} ms")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(results, capacities))


if __name__ == "__main__":
    main()
