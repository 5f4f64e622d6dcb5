"""Queries of a running application: how long one takes, idle and under load, and what they cost the application.

    python -m tests.bench.bench_queries [--records 1500000] [--callers 4]

A count per key over the bundled broker. The figures under load are of queries that are asked one after the other by each of
so many threads while the application works off its input; its own throughput is measured without them and with them.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from pathlib import Path

from streamsrt.app import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from streamsrt.queries.errors import InvalidStateStoreError
from streamsrt.tasks.output.record_collector import RecordCollector
from tests.fixtures_brokers import BundledBroker
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

KEYS = [f"key-{n:05d}" for n in range(10_000)]
PARTITIONS = 4


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.bytes).group_by_key().count(store="counts")
    return builder.build()


def fill(address: str, records: int) -> None:
    network = NetworkThread(ClientConfig(bootstrap_servers=address))
    network.start()
    network.admin.create_topics([NewTopic(name="in", partitions=PARTITIONS)])
    collector = RecordCollector(network.producer.send, lambda _topic: PARTITIONS)
    keys = [key.encode() for key in KEYS]
    now_ms = time.time_ns() // 1_000_000
    for _ in range(records // len(keys)):
        collector.add("in", keys, [b"x" * 50] * len(keys), [now_ms] * len(keys))
    collector.flush()
    network.producer.flush(120)
    network.stop()


class Callers:
    """Threads that ask for one key after the other, each pausing for as long as ``pause_s``."""

    def __init__(self, streams: KafkaStreams, count: int, pause_s: float) -> None:
        self.took_s: list[float] = []
        self._streams = streams
        self._pause_s = pause_s
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(count)]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        for key in itertools.cycle(KEYS):
            if self._over.wait(self._pause_s) if self._pause_s else self._over.is_set():
                return
            start_s = time.perf_counter()
            try:
                self._streams.store("counts").get(key)
            except InvalidStateStoreError:
                continue
            self.took_s.append(time.perf_counter() - start_s)


def percentiles(took_s: list[float]) -> str:
    if len(took_s) < 100:
        return f"{len(took_s)} queries"
    cuts = statistics.quantiles(took_s, n=1000)
    p50_ms, p99_ms, p999_ms = (cuts[at] * 1e3 for at in (499, 989, 998))
    return f"p50 {p50_ms:.3f} ms, p99 {p99_ms:.2f} ms, p99.9 {p999_ms:.1f} ms, {len(took_s):,} queries"


def run(address: str, folder: Path, name: str, records: int, callers: int, pause_s: float) -> tuple[float, str, str]:
    """Records per second, how long queries took under load, and afterwards, when it is idle."""
    config = {
        "application.id": f"bench-queries-{name}",
        "bootstrap.servers": address,
        "state.dir": folder / name,
        "commit.interval.ms": 1_000,
    }
    pause = threading.Event()
    streams = KafkaStreams(counting(), config)
    streams.start()
    try:
        with Callers(streams, callers, pause_s) as under_load:
            while streams.progress.processed_records < 10_000:
                pause.wait(0.002)
            under_load.took_s.clear()
            start_s, before = time.perf_counter(), streams.progress.processed_records
            while streams.progress.processed_records < records:
                pause.wait(0.01)
            per_s = (records - before) / (time.perf_counter() - start_s)
        pause.wait(1.5)
        with Callers(streams, max(1, callers), 0.0) as idle:
            pause.wait(2)
        return per_s, percentiles(under_load.took_s), percentiles(idle.took_s)
    finally:
        streams.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_queries")
    parser.add_argument("--records", type=int, default=1_500_000)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamsrt-bench-") as folder:
        broker = BundledBroker(Path(folder) / "broker")
        broker.start()
        try:
            fill(broker.bootstrap_servers, given.records)
            variants = {
                "none": (0, 0.0),
                "100/s a caller": (given.callers, 0.01),
                "as fast as it goes": (given.callers, 0.0),
            }
            for number in range(given.rounds):
                for name, (callers, pause_s) in variants.items():
                    per_s, loaded, idle = run(
                        broker.bootstrap_servers,
                        Path(folder),
                        f"{number}-{callers}-{pause_s}",
                        given.records,
                        callers,
                        pause_s,
                    )
                    print(f"{name:20} {per_s:12,.0f} records/s   under load: {loaded}   idle: {idle}", flush=True)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
