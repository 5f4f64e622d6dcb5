"""Filter and map, counts per key and per window, JSON: this runtime beside its peers on one broker, end to end.

    python -m tests.bench.bench_end_to_end [--quick] [--peers ours,bundled,java,quix,faust] [--workloads W1,W2,W3]
                                           [--records 1000000] [--rounds 3]
    python -m tests.bench.bench_end_to_end --workloads W8,W9
    python -m tests.bench.bench_end_to_end --peers ours,native,ours@/path/to/another/tree

The broker is an Apache Kafka (Java 17 and Maven needed) on this machine; ``bundled`` is this runtime on the bundled broker,
``ours`` on Kafka, ``native`` the same with the loops in C. Each peer runs in a virtual environment of its own, made on first
use. What is counted is CPU time (user and system, all threads) of the client's process from the beginning of processing to
the last acknowledged output, so that neither the broker's share nor other load on the machine counts; wall-clock rates are
not comparable between machines. The
peers take turns in every round; each run has a new application id, output topic and state directory; tables show medians.
The outputs of every run are read by another client and compared with an independent computation. The slower peers get
fewer records; their rates don't depend on it. ``warm`` is the second half of the run alone. Java gets four times as many,
and is compared by its warm half, since the first records measure its compiler.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import LATEST, ClientConfig, NewTopic
from streamsrt.runtime.bundled_broker import BundledBroker
from streamsrt.wire.records import encode_batch
from tests.bench.peer_programs import OURS, UnfinishedError, file_name, prepare, run_program, say
from tests.bench.peers import data, json_data
from tests.kafka_server import SMALL_HEAP, KafkaServer, missing_tools

SHARES = {"quix": 0.2, "faust": 0.01, "java": 4}
RECORDS_MIN = 10_000
FAUST_TABLES = {"W2": "counts", "W3": "windows", "W9": "totals", "json": "totals", "pydantic": "totals"}
TITLES = {
    "W1": "W1: filter + map_values",
    "W2": "W2: count per key",
    "W3": "W3: tumbling count, 1 min",
    "W8": "W8: filter + map_values over JSON of 300 bytes",
    "W9": "W9: filter + sum per key over JSON of 300 bytes",
}
JSON = {"W8", "W9"}
"""Their input is of :mod:`tests.bench.peers.json_data`."""
NAMES = {
    "ours": "streamsrt",
    "bundled": "streamsrt, bundled broker",
    "native": "streamsrt, loops in C",
    "java": "java: Kafka Streams 4.3.1",
    "quix": "quixstreams 3.28.1",
    "faust": "faust-streaming 0.15.3",
}
GOALS = {
    ("W1", "quix"): 6.5,
    ("W2", "quix"): 16,
    ("W3", "quix"): 20,
    ("W1", "faust"): 100,
    ("W1", "java"): 2,
    ("W2", "java"): 2,
    ("W3", "java"): 2,
    ("W8", "java"): 2,
    ("W9", "java"): 2,
    ("W8", "quix"): 10,
    ("W9", "quix"): 10,
}
"""Java's are of the warm halves."""
LOAD_BATCH_RECORDS = 1000
READ_TIMEOUT_S = 180.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "auto.create.topics.enable": "true",
    "log.retention.ms": "-1",
}


@dataclass(frozen=True, slots=True)
class Result:
    """One run. Rates are input records per CPU second."""

    per_cpu_s: float
    warm_per_cpu_s: float | None
    wall_s: float
    outputs: int
    wrong: str
    peak_bytes: int = 0
    """Resident memory; 0 where nobody looked."""


# -------------------------------------------------------------------------------------------------------- the broker


class Cluster:
    """A broker with the inputs: topics are made, loaded and read here."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._network = NetworkThread(ClientConfig(bootstrap_servers=address, client_id="bench"))
        self._network.start()
        self._loaded: set[str] = set()

    def close(self) -> None:
        self._network.stop()

    def make_topic(self, name: str) -> None:
        topic = NewTopic(name=name, partitions=data.PARTITIONS, replication_factor=1, configs={"retention.ms": "-1"})
        for error in self._network.admin.create_topics([topic]).values():
            if error is not None:
                raise error

    def send(self, topic: str, partition: int, batch: bytes, records: int) -> None:
        self._network.producer.send(topic, partition, batch, records)

    def flush(self) -> None:
        self._network.producer.flush()

    def delete_topics(self, part: str) -> None:
        names = [name for name in self._network.admin.topics() if part in name]
        self._network.admin.delete_topics(names)

    def input(self, records: int, *, is_json: bool = False) -> str:
        """The topic with so many records; written when it is first asked for."""
        name = f"{'json' if is_json else 'in'}-{records}"
        if name in self._loaded:
            return name
        self.load(name, json_data.orders(records) if is_json else data.rows(records))
        return name

    def load(self, name: str, columns: tuple[data.Columns, ...]) -> None:
        """Writes an input, the first time."""
        if name in self._loaded:
            return
        self.make_topic(name)
        for partition, (keys, values, timestamps) in enumerate(columns):
            for start in range(0, len(keys), LOAD_BATCH_RECORDS):
                some = slice(start, start + LOAD_BATCH_RECORDS)
                batch = encode_batch(keys[some], values[some], timestamps[some])
                self._network.producer.send(name, partition, batch, len(keys[some]))
        self._network.producer.flush()
        self._loaded.add(name)

    def read(self, topic: str) -> Iterator[list[data.Message]]:
        """All that is in the topic now."""
        places = [(topic, number) for number in range(data.PARTITIONS)]
        ends = self._network.admin.list_offsets(dict.fromkeys(places, LATEST))
        left = {number: ends[topic, number].offset for _, number in places if ends[topic, number].offset}
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "bench-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 5,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        deadline = time.monotonic() + READ_TIMEOUT_S
        while left and time.monotonic() < deadline:
            some: list[data.Message] = []
            for message in consumer.consume(5000, 1.0):
                error = message.error()
                if error is None:
                    some.append((message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.pop(message.partition(), None)
                else:
                    raise RuntimeError(str(error))
            yield some
        consumer.close()


@contextlib.contextmanager
def clusters(peers: list[str], folder: Path, heap: Iterable[str] = SMALL_HEAP) -> Iterator[dict[str, Cluster]]:
    """By peer: where it runs. ``heap``: options of Apache Kafka's JVM."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Cluster] = {}
        if set(peers) - {"bundled"}:
            reason = missing_tools()
            if reason is not None:
                raise SystemExit(f"{reason}; without it only --peers bundled can be measured")
            server = KafkaServer(folder / "kafka", SETTINGS, heap=heap)
            server.start()
            stack.callback(server.kill)
            kafka = Cluster(server.bootstrap_servers)
            stack.callback(kafka.close)
            found.update(dict.fromkeys(set(peers) - {"bundled"}, kafka))
        if "bundled" in peers:
            delays = [f"{key}=0" for key, value in SETTINGS.items() if key.startswith("group.streams") and value == "0"]
            broker = stack.enter_context(BundledBroker(folder / "bundled", configs=delays))
            bundled = Cluster(broker.address)
            stack.callback(bundled.close)
            found["bundled"] = bundled
        yield found


# ---------------------------------------------------------------------------------------------------------- the runs


def measure(peer: str, workload: str, records: int, cluster: Cluster, folder: Path, name: str) -> Result:
    """One run, checked."""
    source = cluster.input(records, is_json=workload in JSON)
    if workload in JSON:
        want = json_data.expected(workload, records)
        return measured(peer, workload, records, source, cluster, folder, name, want, json_data.summarised)
    want = data.expected(workload, records)
    summarised = partial(data.summarised, peer)
    return measured(peer, workload, records, source, cluster, folder, name, want, summarised)


def measured(
    peer: str,
    workload: str,
    records: int,
    source: str,
    cluster: Cluster,
    folder: Path,
    name: str,
    want: data.Expected,
    summarised: Callable[[str, Iterable[list[data.Message]]], tuple[int, data.Expected]],
    environment: Mapping[str, str] | None = None,
) -> Result:
    """One run over the topic ``source``. ``summarised``: makes of its outputs what must be equal to ``want``."""
    application = f"{name}-{workload.lower()}-{file_name(peer)}"
    sink, state = f"out-{application}", folder / application
    cluster.make_topic(sink)
    if peer == "faust" and workload in FAUST_TABLES:
        # It makes the topic itself, but fails when its metadata don't show it soon enough.
        cluster.make_topic(f"{application}-{FAUST_TABLES[workload]}-changelog")
    state.mkdir()
    arguments = [cluster.address, workload, source, sink, application, str(records), str(state)]
    try:
        marks = run_program(peer, arguments, folder / "program.log", environment)
    except UnfinishedError as error:
        return Result(math.nan, None, math.nan, 0, str(error))
    outputs, got = summarised(workload, cluster.read(sink))
    wrong = data.difference(want, got)
    cluster.delete_topics(application)
    shutil.rmtree(state, ignore_errors=True)
    start, end, half = marks["START"], marks["END"], marks.get("HALF")
    warm = None if half is None else (records - half.records) / max(1e-3, end.cpu_s - half.cpu_s)
    return Result(records / (end.cpu_s - start.cpu_s), warm, end.at_s - start.at_s, outputs, wrong)


def median(values: Iterable[float]) -> float:
    """Of the runs that were finished; not a number where none was."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan


def _warm(run: Result) -> float:
    """The second half's rate, where that is known."""
    return run.per_cpu_s if run.warm_per_cpu_s is None else run.warm_per_cpu_s


def table(workload: str, results: dict[str, list[Result]], records: dict[str, int], title: str | None = None) -> str:
    """Markdown."""
    rates = {peer: median(run.per_cpu_s for run in runs) for peer, runs in results.items()}
    halves = {peer: median(_warm(run) for run in runs) for peer, runs in results.items()}
    others = [peer for peer in results if peer not in OURS]

    def ratio(peer: str, other: str) -> float:
        return halves[peer] / halves[other] if "java" in (peer, other) else rates[peer] / rates[other]

    head = ["runtime", "records", "runs", "records / CPU s", "warm", "outputs / record"]
    lines = [
        f"**{title or TITLES[workload]}**",
        "",
        "| " + " | ".join([*head, *(f"x {peer}" for peer in others), "outputs"]) + " |",
        "|" + " --- |" + " ---: |" * (len(head) - 1 + len(others)) + " --- |",
    ]
    for peer, runs in results.items():
        warm = [run.warm_per_cpu_s for run in runs if run.warm_per_cpu_s is not None]
        wrong = {run.wrong for run in runs if run.wrong}
        cells = [
            NAMES.get(peer, peer),
            f"{records[peer]:,}",
            str(len(runs)),
            f"{rates[peer]:,.0f}",
            f"{median(warm):,.0f}" if warm else "",
            f"{median(run.outputs for run in runs) / records[peer]:.2f}",
            *(f"{ratio(peer, other):.2g}" for other in others),
            "WRONG: " + "; ".join(sorted(wrong)) if wrong else "correct",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    for (name, other), goal in GOALS.items():
        if name == workload and other in rates and "ours" in rates:
            reached = ratio("ours", other)
            verdict = "met" if reached >= goal else "MISSED"
            lines += ["", f"Goal: at least {goal} x {NAMES[other]}: {reached:.1f}, {verdict}."]
    return "\n".join(lines)


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_end_to_end", description=(__doc__ or "")[:90])
    parser.add_argument(
        "--peers", default="ours,bundled,java,quix,faust", help="of ours, bundled, native, java, quix, faust"
    )
    parser.add_argument("--workloads", default="W1,W2,W3", help="of W1, W2, W3, W8, W9")
    parser.add_argument("--records", type=int, help="1000000; Java gets 4 times, quix a fifth, faust a 100th")
    parser.add_argument("--rounds", type=int, help="how often (3)")
    parser.add_argument("--quick", action="store_true", help="300000 records, one round")
    given = parser.parse_args(arguments)
    given.records = given.records or (300_000 if given.quick else 1_000_000)
    given.rounds = given.rounds or (1 if given.quick else 3)
    return given


def main(arguments: list[str] | None = None) -> int:
    """Prints a table per workload; the result is the number of runs whose outputs were wrong."""
    given = options(arguments)
    peers, workloads = given.peers.split(","), given.workloads.split(",")
    records = {peer: max(RECORDS_MIN, int(given.records * SHARES.get(peer, 1))) for peer in peers}
    results: dict[str, dict[str, list[Result]]] = {name: {peer: [] for peer in peers} for name in workloads}
    for peer in peers:
        prepare(peer)
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    try:
        with clusters(peers, folder) as where:
            for number in range(given.rounds):
                for workload in workloads:
                    for peer in peers:
                        run = measure(peer, workload, records[peer], where[peer], folder, f"run{number}")
                        results[workload][peer].append(run)
                        say(
                            f"round {number + 1} {workload} {peer}: {run.per_cpu_s:,.0f} records per CPU second, "
                            f"{run.wall_s:.1f} s {run.wrong}"
                        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n\n".join(table(workload, results[workload], records) for workload in workloads))
    return sum(bool(run.wrong) for runs in results.values() for each in runs.values() for run in each)


if __name__ == "__main__":
    sys.exit(main())
