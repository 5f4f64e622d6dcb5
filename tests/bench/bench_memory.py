"""Memory per task: this runtime beside Java Kafka Streams, on one Apache Kafka.

    python -m tests.bench.bench_memory [--tasks 10,100] [--keys 2000] [--peers ours,small,java]

Each task counts by key in a store in RocksDB, with its own changelog; every one has so many keys of input. When all is
counted and committed, the memory of the process is read (RSS). ``small`` is this runtime with ``cache.max.bytes`` of 16 MiB.
Java runs with its defaults, which give every store memory of its own, without a bound over all, and a heap of 2 GB at most.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from streamsrt.wire.records import encode_batch
from tests.bench.bench_end_to_end import NAMES, clusters
from tests.bench.peer_programs import PeerProgram, prepare, say

SETTINGS = {"small": [f"cache.max.bytes={16 << 20}"]}
PATIENCE_S = 120.0
T0 = 1_700_000_000_000


def make_topics(network: NetworkThread, partitions: dict[str, int]) -> None:
    """By name: how many partitions."""
    topics = [
        NewTopic(name=name, partitions=count, replication_factor=1, configs={"retention.ms": "-1"})
        for name, count in partitions.items()
    ]
    for error in network.admin.create_topics(topics).values():
        if error is not None:
            raise error


def fill(network: NetworkThread, topic: str, tasks: int, keys: int) -> None:
    for number in range(tasks):
        some: list[bytes] = [b"%d:%012d" % (number, key) for key in range(keys)]
        values: list[bytes | None] = [b"x" * 20] * keys
        network.producer.send(topic, number, encode_batch(list(some), values, [T0] * keys), keys)
    network.producer.flush()


def until_counted(address: str, topic: str, records: int) -> None:
    """Every key comes out once at least."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench-memory", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])
    seen: set[bytes | str | None] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < records:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(seen)} of {records} keys came out")
        seen.update(message.key() for message in consumer.consume(5000, 0.2))
    consumer.close()


def resident_bytes(pid: int, counted: str = "VmRSS") -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{counted}:"):
            return int(line.split()[1]) << 10
    return 0


def measure(peer: str, tasks: int, keys: int, address: str, folder: Path) -> int:
    """Bytes."""
    name = f"memory-{peer}-{tasks}"
    network = NetworkThread(ClientConfig(bootstrap_servers=address, client_id="bench-memory"))
    network.start()
    try:
        make_topics(network, {f"in-{name}": tasks, f"out-{name}": 4})
        fill(network, f"in-{name}", tasks, keys)
        (folder / name).mkdir()
        arguments = [address, "W2", f"in-{name}", f"out-{name}", name, "0", str(folder / name)]
        program_of = "ours" if peer == "small" else peer
        with PeerProgram(program_of, [*arguments, *SETTINGS.get(peer, [])], folder / "program.log") as program:
            until_counted(address, f"out-{name}", tasks * keys)
            # The commit after the last output, and what it frees.
            threading.Event().wait(3.0)
            used = resident_bytes(program.process.pid)
        network.admin.delete_topics([topic for topic in network.admin.topics() if name in topic])
    finally:
        network.stop()
    shutil.rmtree(folder / name, ignore_errors=True)
    return used


def table(results: dict[str, dict[int, int]]) -> str:
    """Markdown."""
    names = {**NAMES, "small": "streamsrt, cache.max.bytes 16 MiB"}
    counts = list(next(iter(results.values())))
    lines = [
        "**memory of the process, MB**",
        "",
        "| runtime | " + " | ".join(f"{count} tasks" for count in counts) + " | each further task |",
        "| --- |" + " ---: |" * (len(counts) + 1),
    ]
    for peer, found in results.items():
        each = (found[counts[-1]] - found[counts[0]]) / max(1, counts[-1] - counts[0])
        cells = [names[peer], *(f"{found[count] / 1e6:.0f}" for count in counts), f"{each / 1e6:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_memory")
    parser.add_argument("--tasks", default="10,100")
    parser.add_argument("--keys", type=int, default=2_000, help="of each task")
    parser.add_argument("--peers", default="ours,small,java", help="of ours, small, java")
    given = parser.parse_args()
    peers = given.peers.split(",")
    results: dict[str, dict[int, int]] = {peer: {} for peer in peers}
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    try:
        with clusters(["ours"], folder) as where:
            for peer in peers:
                prepare("ours" if peer == "small" else peer)
                for tasks in map(int, given.tasks.split(",")):
                    results[peer][tasks] = measure(peer, tasks, given.keys, where["ours"].address, folder)
                    say(f"{peer}, {tasks} tasks: {results[peer][tasks] / 1e6:.0f} MB")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(results))


if __name__ == "__main__":
    sys.exit(main())
