"""What a restore costs the tasks that run: their latency while other tasks of the same instance restore, and afterwards.

    python -m tests.bench.bench_restore_beside [--records 4000000] [--rounds 1] [--rate 50]

One instance, on the bundled broker: a task passes records on, and four tasks of a table restore theirs from a changelog that
was written beforehand. Records with the time of their sending come evenly, at ``--rate`` a second; a client of its own looks
when they come out. The first row is of those that were sent between the beginning and the end of the restore, the second one
of those that were sent afterwards, as many. All share the machine: compare the rows of one run only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from streamsrt.app import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from streamsrt.runtime.bundled_broker import BundledBroker
from streamsrt.wire.records import encode_batch, iter_columns
from tests.bench.bench_end_to_end import Cluster
from tests.bench.bench_restore import fill
from tests.bench.peers.ours import Restored
from topology import StreamsBuilder, Topology, serdes

SETTLE_S = 2.0
PATIENCE_S = 120.0
BROKER_SETTINGS = ("group.streams.initial.rebalance.delay.ms=0",)


@dataclass(slots=True)
class Probe:
    """Sends what carries its time, and sees it come out. ``seen``: when it was sent (monotonic) and how long it took."""

    address: str
    source: str
    sink: str
    rate: float
    seen: list[tuple[float, float]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        network = NetworkThread(ClientConfig(bootstrap_servers=self.address, client_id="probe"))
        network.start()
        try:
            network.fetcher.add_partitions({(self.sink, number): 0 for number in range(4)})
            due, number = time.monotonic(), 0
            while not self.over.is_set():
                now = time.monotonic()
                if now >= due:
                    due += 1 / self.rate
                    value = b"%d" % time.monotonic_ns()
                    stamped = encode_batch([b"k"], [value], [time.time_ns() // 1_000_000])
                    network.producer.send(self.source, number % 4, stamped, 1)
                    number += 1
                network.wait(max(0.0, due - time.monotonic()))
                self._look(network)
        finally:
            network.stop()

    def _look(self, network: NetworkThread) -> None:
        for fetched in network.fetcher.poll(0.0):
            arrived_ns = time.monotonic_ns()
            for columns in iter_columns(fetched.buffer, from_offset=fetched.offset):
                for value in columns.values:
                    sent_ns = int(value or b"0")
                    self.seen.append((sent_ns / 1e9, (arrived_ns - sent_ns) / 1e6))


def build(application: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream("probe", key=serdes.bytes, value=serdes.bytes).map_values(bytes.upper).to("probed")
    table = builder.stream(f"in-{application}", key=serdes.bytes, value=serdes.bytes)
    table.group_by_key().reduce(lambda before, now: now, store="latest")
    return builder.build()


def member(address: str, application: str, records: str, state: str) -> None:
    """The instance: prints MARK lines as :mod:`tests.bench.peers.ours` does, and runs until SIGTERM."""
    config = {
        "bootstrap.servers": address,
        "application.id": application,
        "state.dir": state,
        "auto.offset.reset": "earliest",
        "commit.interval.ms": 100,
        "linger.ms": 5,
    }
    KafkaStreams(build(application), config, restore_listener=Restored(int(records))).run()


def restore(program: subprocess.Popen[str]) -> tuple[float, float]:
    """When it began and ended."""
    marks: dict[str, float] = {}
    assert program.stdout is not None
    for line in program.stdout:
        if line.startswith("MARK"):
            marks[line.split()[1]] = time.monotonic()
        if "END" in marks:
            return marks["START"], marks["END"]
    raise SystemExit("the instance ended before its state was restored")


def one_round(cluster: Cluster, folder: Path, application: str, records: int, rate: float) -> dict[str, list[float]]:
    """Latencies in milliseconds, while it restores and afterwards."""
    fill(cluster, application, records, 1, 100)
    arguments = [cluster.address, application, str(records), str(folder / application)]
    command = [sys.executable, "-m", "tests.bench.bench_restore_beside", "--member", *arguments]
    probe = Probe(cluster.address, "probe", "probed", rate)
    thread = threading.Thread(target=probe.run, daemon=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        thread.start()
        began, ended = restore(program)
        seconds = ended - began
        print(f"{application}: {records / seconds:,.0f} records/s restored beside it, {seconds:.1f} s", flush=True)
        threading.Event().wait(SETTLE_S + max(seconds, 5.0) + 1.0)
        probe.over.set()
        thread.join(PATIENCE_S)
        program.terminate()
    later = ended + SETTLE_S
    return {
        "while others restore": [ms for at, ms in probe.seen if began <= at < ended],
        "afterwards": [ms for at, ms in probe.seen if later <= at < later + max(seconds, 5.0)],
    }


def part(latencies: list[float], share: float) -> float:
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def main() -> None:
    if sys.argv[1:2] == ["--member"]:
        member(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_restore_beside")
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rate", type=float, default=50.0)
    given = parser.parse_args()
    latencies: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="streamsrt-bench-") as name:
        folder = Path(name)
        with BundledBroker(folder / "broker", configs=BROKER_SETTINGS) as broker:
            cluster = Cluster(broker.address)
            try:
                for topic in ("probe", "probed"):
                    cluster.make_topic(topic)
                for number in range(given.rounds):
                    found = one_round(cluster, folder, f"beside-{number}", given.records, given.rate)
                    for row, some in found.items():
                        latencies.setdefault(row, []).extend(some)
            finally:
                cluster.close()
    print("\n| latency of a running task | records | p50 ms | p99 ms | max ms |\n| --- | ---: | ---: | ---: | ---: |")
    for row, some in latencies.items():
        figures = [part(some, share) for share in (0.5, 0.99, 1.0)]
        print(f"| {row} | {len(some)} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |")


if __name__ == "__main__":
    main()
