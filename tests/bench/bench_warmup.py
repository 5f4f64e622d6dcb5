"""How long tasks stand still when they move to a new instance, with warm-up tasks and without.

    python -m tests.bench.bench_warmup [--rows 100000,400000] [--heartbeat-ms 5000] [--upgrade]

An instance owns all tasks of a state of so many rows of 300 bytes on the bundled broker; input trickles in on every
partition. A second instance joins with an empty state directory. The pause of a partition is the longest time between two of
its results, from then until the moved tasks run at the new instance. With ``highly_available`` it should not grow with the
state; ``sticky`` moves a task first and restores it afterwards. With ``--upgrade`` the second instance runs another version,
whose tasks take over the changelogs of the first one's.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import iter_columns
from tests.fixtures_brokers import BundledBroker
from tests.system.cluster import Cluster, Row, Server, connected
from tests.system.processes import AppProcess, wait_until

PARTITIONS = 4
VALUE = b"x" * 300
SETTINGS = {"commit.interval.ms": 100, "statestore.cache.max.bytes": 0}
TRICKLE_S = 0.02
KEYS = [
    next(key for n in range(1000) if partition_for_key(key := b"trickle-%d" % n, PARTITIONS) == p)
    for p in range(PARTITIONS)
]
"""A key for each partition, which its results go to as well."""
PATIENCE_S = 300.0


class Trickle:
    """Writes one record to each partition every 20 ms, on a connection of its own."""

    def __init__(self, broker: Server) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Trickle:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with connected(self._broker) as cluster:
            while not self._stop.wait(TRICKLE_S):
                for partition in range(PARTITIONS):
                    cluster.write("in", [Row(KEYS[partition], VALUE, 1)], PARTITIONS)


class Watch:
    """The longest time between two results of each partition, from ``begin`` on."""

    def __init__(self, broker: Server) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self._last = [0.0] * PARTITIONS
        self._longest = [0.0] * PARTITIONS
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def begin(self) -> None:
        self._last = [time.monotonic()] * PARTITIONS
        self._longest = [0.0] * PARTITIONS

    def is_fresh(self, within_s: float) -> bool:
        """Whether every partition has had a result just now."""
        return time.monotonic() - min(self._last) < within_s

    def longest(self) -> list[float]:
        now = time.monotonic()
        return [max(gap, now - last) for gap, last in zip(self._longest, self._last, strict=True)]

    def _run(self) -> None:
        with connected(self._broker) as cluster:
            cluster.network.fetcher.add_partitions({place: end for place, end in cluster.ends("out").items()})
            while not self._stop.is_set():
                for fetched in cluster.network.fetcher.poll(0.05):
                    if any(len(columns) for columns in iter_columns(fetched.buffer, from_offset=fetched.offset)):
                        now, partition = time.monotonic(), fetched.partition
                        self._longest[partition] = max(self._longest[partition], now - self._last[partition])
                        self._last[partition] = now


@contextlib.contextmanager
def running_broker(folder: Path, heartbeat_ms: int) -> Iterator[BundledBroker]:
    broker = BundledBroker(
        folder,
        {
            "group.streams.min.heartbeat.interval.ms": str(min(heartbeat_ms, 5000)),
            "group.streams.heartbeat.interval.ms": str(heartbeat_ms),
            "group.streams.initial.rebalance.delay.ms": "0",
        },
    )
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def fill(cluster: Cluster, rows: int) -> None:
    cluster.make_topics(PARTITIONS, "in", "more", "out")
    share = rows // PARTITIONS
    for partition in range(PARTITIONS):
        for start in range(0, share, 20_000):
            numbers = range(start, min(start + 20_000, share))
            part = [Row(b"%d-%d" % (partition, number), VALUE, 1) for number in numbers]
            cluster.write("in", part, PARTITIONS, partition=partition)


def measure(rows: int, assignor: str, heartbeat_ms: int, second: str) -> tuple[float, float]:
    """Longest pause of a moved partition, and how long it took from the second instance's start until all had moved."""
    with (
        tempfile.TemporaryDirectory() as name,
        running_broker(Path(name) / "broker", heartbeat_ms) as broker,
        connected(broker) as cluster,
    ):
        fill(cluster, rows)
        cluster.network.admin.alter_group_configs("bench", {"streams.assignor.name": assignor})
        one, two = (
            AppProcess(Path(name) / each, f"tests.bench.warmup_app:{app}", "bench", broker.bootstrap_servers, SETTINGS)
            for each, app in (("one", "topology"), ("two", second))
        )
        with one:
            one.wait_running(tasks=PARTITIONS)
            cluster.wait_all_committed("bench", "in", timeout_s=PATIENCE_S)
            with Trickle(broker), Watch(broker) as watch:
                one.wait_for(lambda line: line["processed_records"] > rows + 200, "it works", timeout_s=PATIENCE_S)
                watch.begin()
                began = time.monotonic()
                with two:
                    half = PARTITIONS // 2
                    wait_until(
                        lambda: len(two.tasks("active", "running")) >= half,
                        "half of the tasks run at the second instance",
                        timeout_s=PATIENCE_S,
                        pause_s=0.05,
                    )
                    took = time.monotonic() - began
                    threading.Event().wait(0.5)
                    moved = {int(task.rpartition("_")[2]) for task in two.tasks("active")}
                    pauses = watch.longest()
                    return max(pauses[partition] for partition in moved), took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="100000,400000")
    parser.add_argument("--heartbeat-ms", type=int, default=5000)
    parser.add_argument("--upgrade", action="store_true")
    options = parser.parse_args()
    second = "upgraded" if options.upgrade else "topology"
    print(f"{'rows':>10}  {'assignor':18} {'pause of a moved task':>22} {'until all moved':>16}")
    for rows in map(int, options.rows.split(",")):
        for assignor in ("sticky", "highly_available"):
            pause, took = measure(rows, assignor, options.heartbeat_ms, second)
            print(f"{rows:10,}  {assignor:18} {pause:20.2f} s {took:14.1f} s", flush=True)


if __name__ == "__main__":
    main()
