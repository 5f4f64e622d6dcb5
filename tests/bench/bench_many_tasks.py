"""How long a commit of many tasks takes: an instance that counts per key, where the state of every task has changed.

    python -m tests.bench.bench_many_tasks [--broker bundled|kafka] [--tasks 1000] [--keys 10] [--rounds 5]

In every round, a record of each of so many keys is written for every task; a commit comes every five seconds, and the next
one writes the counts of all of them. The instance itself tells how long each commit took, from the first flush of a cache
until the offsets are committed; the longest one of a round counts. The CPU time is that of the instance in a round, with
fetching and processing. The outputs are counted.
"""

from __future__ import annotations

import argparse
import os
import queue
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from streamsrt import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from tests.bench.bench_end_to_end import clusters
from tests.bench.bench_latency import cpu_seconds
from tests.bench.bench_memory import fill, make_topics
from tests.bench.peer_programs import ROOT, say
from tests.bench.peers.ours import build

GUARANTEES = ("at_least_once", "exactly_once_v2")
COMMIT_INTERVAL_MS = 5_000
OUT_PARTITIONS = 4
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Round:
    """A commit of all tasks, and the instance's CPU time meanwhile."""

    took_ms: float
    cpu_s: float


def instance(address: str, name: str, guarantee: str, directory: str) -> None:
    """The instance: prints the duration of each commit, as it tells it."""
    config = {
        "bootstrap.servers": address,
        "application.id": name,
        "state.dir": directory,
        "commit.interval.ms": COMMIT_INTERVAL_MS,
        "processing.guarantee": guarantee,
    }
    streams = KafkaStreams(build("W2", f"in-{name}", f"out-{name}"), config)

    def tell() -> None:
        pause, seen = threading.Event(), 0
        while True:
            pause.wait(0.5)
            took_ms = max((loop.commit_took_ms for loop in streams.progress.loops), default=0)
            if took_ms != seen:
                os.write(1, f"{took_ms}\n".encode())
            seen = took_ms

    threading.Thread(target=tell, daemon=True).start()
    streams.run()


class Outputs:
    """Counts what comes out."""

    def __init__(self, address: str, topic: str) -> None:
        config = {"bootstrap.servers": address, "group.id": "bench-many-tasks", "enable.auto.commit": False}
        self._consumer = Consumer(config)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(OUT_PARTITIONS)])
        self._count = 0

    def wait_for(self, count: int) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while self._count < count:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self._count} of {count} outputs")
            self._count += sum(message.error() is None for message in self._consumer.consume(5_000, 0.1))
        assert self._count == count, f"{self._count} outputs, not {count}"

    def close(self) -> None:
        self._consumer.close()


def told(lines: queue.SimpleQueue[int]) -> list[int]:
    found = []
    while not lines.empty():
        found.append(lines.get())
    return found


def measure(guarantee: str, address: str, folder: Path, given: argparse.Namespace) -> list[Round]:
    name = f"many-{guarantee.partition('_')[0]}"
    network = NetworkThread(ClientConfig(bootstrap_servers=address, client_id="bench-many-tasks"))
    network.start()
    pause, lines = threading.Event(), queue.SimpleQueue[int]()
    (folder / name).mkdir()
    make_topics(network, {f"in-{name}": given.tasks, f"out-{name}": OUT_PARTITIONS})
    command = [sys.executable, "-m", "tests.bench.bench_many_tasks", "--instance"]
    program = subprocess.Popen(
        [*command, address, name, guarantee, str(folder / name)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    stdout = program.stdout

    def read() -> None:
        for line in stdout:
            lines.put(int(line))

    threading.Thread(target=read, daemon=True).start()
    outputs, found, written = Outputs(address, f"out-{name}"), [], 0
    try:
        # The first round waits for the tasks to start.
        for number in range(given.rounds + 1):
            before_s = cpu_seconds(program.pid)
            fill(network, f"in-{name}", given.tasks, given.keys)
            written += given.tasks * given.keys
            outputs.wait_for(written)
            # The commit that wrote the last of them may not be over, and the instance does not tell of it at once.
            pause.wait(COMMIT_INTERVAL_MS / 1000)
            commits = told(lines)
            if number:
                found.append(Round(max(commits), cpu_seconds(program.pid) - before_s))
                say(f"{guarantee}: commits of {commits} ms, {found[-1].cpu_s:.2f} s of CPU time")
    finally:
        program.terminate()
        program.wait(60)
        outputs.close()
        network.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_many_tasks")
    parser.add_argument("--broker", choices=["bundled", "kafka"], default="bundled")
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--keys", type=int, default=10, help="of each task")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--instance", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    # A thousand stores have a few files each.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if given.instance:
        instance(*given.instance)
        return
    peer = "bundled" if given.broker == "bundled" else "ours"
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    try:
        with clusters([peer], folder) as where:
            found = {each: measure(each, where[peer].address, folder, given) for each in GUARANTEES}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{given.tasks:,} tasks, {given.keys} keys of each changed (goal for 1,000 tasks: a commit takes less than 1 s)"
    )
    print(f"{'':18}{'commit, ms: median':>20}{'least':>8}{'most':>8}{'CPU of a round, s':>20}")
    for guarantee, rounds in found.items():
        took = [each.took_ms for each in rounds]
        cpu_s = statistics.median(each.cpu_s for each in rounds)
        print(f"{guarantee:18}{statistics.median(took):20.0f}{min(took):8.0f}{max(took):8.0f}{cpu_s:20.2f}")


if __name__ == "__main__":
    main()
