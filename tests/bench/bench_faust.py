"""Applications of Faust, unchanged, by Faust 0.15.3 and by ``streamsrt faust run``: events a CPU second, restore, latency.

    python -m tests.bench.bench_faust [--workloads map,count] [--events 100000] [--share 0.05] [--rounds 1]

Both run ``tests/bench/faust_apps/measured.py`` on one Apache Kafka on this machine (Java 17 and Maven needed), one after the
other, each with a topic of results and an application id of its own. What is counted is CPU time (user and system, all
threads) of the process from its first event to the last result in the topic, so that neither the broker's share nor other
load counts. Faust gets a ``share`` of the events: its rate does not depend on it. Number and last values of the results are
compared with what belongs there. Restore: rows of a changelog per CPU second and per second, from the start of the process
to the first event, less the median of three starts with an empty changelog; both sides restore the same ``--rows``, and the
first results show that they have them. Latency: events come evenly at ``--pace`` a second, from the send to the
result in the topic as another client sees it, the first two seconds left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from streamsrt.client.values import LATEST
from streamsrt.wire.records import encode_batch
from tests.bench.bench_end_to_end import LOAD_BATCH_RECORDS, SETTINGS, Cluster
from tests.bench.bench_restore_beside import Probe
from tests.bench.peer_programs import say
from tests.kafka_server import KafkaServer, missing_tools

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "faust_apps"
PARTITIONS, KEYS, ITEMS = 4, 1000, 50
EMPTY_STARTS = 3
PATIENCE_S = 300.0
STARTS_MAX = 3
RESTORED_EVENTS = 16
SETTLE_S = 2.0
TICKS = os.sysconf("SC_CLK_TCK")
GOALS = {"async": 3.0, "restore": 30.0}
PLAIN_GOAL = 20.0
TITLES = {
    "map": "agent, bytes in and out",
    "models": "agent, models in and out",
    "count": "count in a table",
    "windows": "count in a tumbling window",
    "group_by": "group_by, sum in a table",
    "join": "look-up in another agent's table, models",
    "async": "5 ms of waiting for each event, concurrency 64",
}
SIDES = ("faust", "ours")
SLOW = ("async",)
PAUSE = threading.Event()
"""Never set: waiting for it passes time."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run. ``cpu_s``: from the first event on; ``before_s``: up to it."""

    cpu_s: float
    before_s: float
    wrong: str


class NothingProcessedError(Exception):
    """An application has not come to its first event in time."""


class Start(NamedTuple):
    """A start, from the process's beginning to its first event."""

    cpu_s: float
    wall_s: float
    wrong: str


def fill(cluster: Cluster, topic: str, rows: Iterator[tuple[bytes, bytes]]) -> None:
    """Writes rows, each key to a partition of its own."""
    parts: list[tuple[list[bytes | None], list[bytes | None]]] = [([], []) for _ in range(PARTITIONS)]
    for key, value in rows:
        keys, values = parts[hash_of(key) % PARTITIONS]
        keys.append(key)
        values.append(value)
    now_ms = time.time_ns() // 1_000_000
    for number, (keys, values) in enumerate(parts):
        for start in range(0, len(keys), LOAD_BATCH_RECORDS):
            some = slice(start, start + LOAD_BATCH_RECORDS)
            count = len(keys[some])
            cluster.send(topic, number, encode_batch(keys[some], values[some], [now_ms] * count), count)
    cluster.flush()


def hash_of(key: bytes) -> int:
    """Any, but always the same."""
    return sum(key)


def orders(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of the input."""
    for number in range(count):
        user = f"user-{number % KEYS}"
        order = {"user": user, "item": f"item-{number % ITEMS}", "amount": 3}
        yield user.encode(), json.dumps(order).encode()


def source_of(events: int) -> str:
    """The topic with so many of them."""
    return f"orders-{os.getpid()}-{events}"


def cpu_of(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Side:
    """One of the two runtimes on the broker."""

    def __init__(self, name: str, cluster: Cluster, folder: Path) -> None:
        self.name = name
        self.cluster = cluster
        self._folder = folder

    @contextmanager
    def running(self, workload: str, application: str, source: str, sink: str) -> Iterator[subprocess.Popen[bytes]]:
        """The program, until the end of the block."""
        directory = self._folder / application
        directory.mkdir()
        environment = {
            **os.environ,
            # Faust uses orjson, which is installed here.
            "STREAMSRT_FAUST_JSON": "orjson",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{PROGRAMS}",
            "BROKER": self.cluster.address,
            "WORKLOAD": workload,
            "APPLICATION": application,
            "SOURCE": source,
            "SINK": sink,
            "DIRECTORY": str(directory),
        }
        worker = [str(PROGRAMS / "measured.py"), "worker", "-l", "warn", "--without-web"]
        run = [
            "-m",
            "streamsrt",
            "faust",
            "run",
            "measured:app",
            "--log-level",
            "warning",
            "--state-dir",
            str(directory),
        ]
        with (directory / "log").open("wb") as log:
            command = [sys.executable, *(worker if self.name == "faust" else run)]
            process = subprocess.Popen(command, env=environment, cwd=directory, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(directory, ignore_errors=True)

    def began(self, process: subprocess.Popen[bytes], application: str) -> float:
        """Waits for its first event; how much CPU time it had used by then."""
        mark, deadline = self._folder / application / "began", time.monotonic() + PATIENCE_S
        while not mark.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                text = (self._folder / application / "log").read_text()[-3000:]
                raise NothingProcessedError(f"{application} has processed nothing:\n{text}")
            PAUSE.wait(0.005)
        return float(mark.read_text())

    def results(self, sink: str) -> int:
        """How many there are."""
        ends = self.cluster._network.admin.list_offsets({(sink, number): LATEST for number in range(PARTITIONS)})
        return sum(end.offset for end in ends.values())

    def measure(self, workload: str, events: int, name: str) -> Run:
        """One run over so many events, checked."""
        application = f"{name}-{os.getpid()}-{workload}-{self.name}"
        source, sink = source_of(events), f"results-{application}"
        self.cluster.make_topic(sink)
        if workload == "join":
            self._users(source)
        with self.running(workload, application, source, sink) as process:
            before_s, deadline = self.began(process, application), time.monotonic() + PATIENCE_S
            while (count := self.results(sink)) < events and time.monotonic() < deadline:
                PAUSE.wait(0.02)
            cpu_s = cpu_of(process.pid) - before_s
        wrong = f"{count} results of {events}" if count != events else self._wrong(workload, events, sink)
        return Run(cpu_s, before_s, wrong)

    def _users(self, source: str) -> None:
        if f"{source}-users" in self.cluster._network.admin.topics():
            return
        self.cluster.make_topic(f"{source}-users")
        fill(self.cluster, f"{source}-users", ((f"user-{number}".encode(), b"1") for number in range(KEYS)))

    def _wrong(self, workload: str, events: int, sink: str) -> str:
        if workload not in ("count", "group_by"):
            return ""
        last: dict[bytes | None, int] = {}
        for part in self.cluster.read(sink):
            for key, value in part:
                last[key] = max(last.get(key, 0), int(value or b"0"))
        wanted = events * (3 if workload == "group_by" else 1)
        return "" if sum(last.values()) == wanted else f"the last values are {sum(last.values())} and not {wanted}"

    def start(self, rows: int, name: str) -> Start:
        """A start with so many rows in the changelog, to the first event; its results say what was restored.

        Faust's recovery now and then waits for ever: it is started anew then, and the output says so.
        """
        for attempt in range(STARTS_MAX):
            try:
                return self._start(rows, f"{name}-{attempt}")
            except NothingProcessedError as failure:
                say(f"restore {self.name}: {failure}")
        raise SystemExit(f"{self.name} has not restored {rows:,} rows in {STARTS_MAX} starts")

    def _start(self, rows: int, name: str) -> Start:
        application = f"{name}-{os.getpid()}-restore-{rows}-{self.name}"
        changelog, source, sink = f"{application}-counts-changelog", f"in-{application}", f"results-{application}"
        for topic in (changelog, source, sink):
            self.cluster.make_topic(topic)
        fill(self.cluster, changelog, ((b'"user-%d"' % number, b"%d" % number) for number in range(rows)))
        fill(self.cluster, source, orders(RESTORED_EVENTS))
        began_s = time.monotonic()
        with self.running("restore", application, source, sink) as process:
            cpu_s = self.began(process, application)
            wall_s, deadline = time.monotonic() - began_s, time.monotonic() + PATIENCE_S
            while self.results(sink) < RESTORED_EVENTS and time.monotonic() < deadline:
                PAUSE.wait(0.02)
        found = {key: int(value or b"0") for part in self.cluster.read(sink) for key, value in part}
        wanted = {b"user-%d" % number: 1 + number * (number < rows) for number in range(RESTORED_EVENTS)}
        return Start(cpu_s, wall_s, "" if found == wanted else f"the first results are {found}")

    def latencies_ms(self, seconds: float, pace: float, name: str) -> list[float]:
        """Of each event, in order of size."""
        application = f"{name}-{os.getpid()}-latency-{self.name}"
        source, sink = f"in-{application}", f"results-{application}"
        for topic in (source, sink):
            self.cluster.make_topic(topic)
        probe = Probe(self.cluster.address, source, sink, pace)
        thread = threading.Thread(target=probe.run)
        with self.running("latency", application, source, sink) as process:
            thread.start()
            try:
                self.began(process, application)
                since = time.monotonic() + SETTLE_S
                PAUSE.wait(SETTLE_S + seconds)
            finally:
                probe.over.set()
                thread.join()
        return sorted(took_ms for sent, took_ms in probe.seen if sent >= since)


def rates(sides: list[Side], arguments: argparse.Namespace) -> None:
    """Prints events a CPU second."""
    print("| what | faust | streamsrt | ratio | goal |\n| --- | ---: | ---: | ---: | --- |", flush=True)
    for workload in (each for each in TITLES if each in arguments.workloads):
        found: dict[str, float] = {}
        for side in sides:
            events = counts(arguments)[side.name, workload in SLOW]
            runs = [side.measure(workload, events, f"r{number}") for number in range(arguments.rounds)]
            for run in runs:
                say(
                    f"{workload} {side.name}: {events:,} events, {run.cpu_s:.2f} s CPU {run.wrong and 'WRONG: ' + run.wrong}"
                )
            found[side.name] = statistics.median(events / max(run.cpu_s, 1e-3) for run in runs)
        print(row(TITLES[workload], found, GOALS.get(workload, PLAIN_GOAL)), flush=True)


def restored(sides: list[Side], arguments: argparse.Namespace) -> None:
    """Prints rows a CPU second and a second."""
    print("| restore of a table | faust | streamsrt | ratio | goal |\n| --- | ---: | ---: | ---: | --- |", flush=True)
    cpu: dict[str, float] = {}
    wall: dict[str, float] = {}
    for side in sides:
        empty = [side.start(0, f"e{number}") for number in range(EMPTY_STARTS)]
        full = [side.start(arguments.rows, f"f{number}") for number in range(arguments.rounds)]
        for each in (*empty, *full):
            say(
                f"restore {side.name}: {each.cpu_s:.2f} s CPU, {each.wall_s:.2f} s {each.wrong and 'WRONG: ' + each.wrong}"
            )
        cpu_s, wall_s = (
            statistics.median(map(of, full)) - statistics.median(map(of, empty))
            for of in (attrgetter("cpu_s"), attrgetter("wall_s"))
        )
        cpu[side.name], wall[side.name] = arguments.rows / max(cpu_s, 1e-2), arguments.rows / max(wall_s, 1e-2)
    print(row("rows a CPU second", cpu, GOALS["restore"]), flush=True)
    print(row("rows a second", wall, GOALS["restore"]), flush=True)


def counts(arguments: argparse.Namespace) -> dict[tuple[str, bool], int]:
    """How many events each side gets, by whether it waits at each."""
    theirs = max(2000, int(arguments.events * arguments.share))
    return {
        ("ours", False): arguments.events,
        ("ours", True): max(theirs, arguments.events // 10),
        ("faust", False): theirs,
        ("faust", True): theirs,
    }


def row(title: str, found: dict[str, float], goal: float) -> str:
    """One line of the table."""
    ratio = found["ours"] / found["faust"]
    verdict = "met" if ratio >= goal else "MISSED"
    return f"| {title} | {found['faust']:,.0f} | {found['ours']:,.0f} | {ratio:.1f} | {goal:g}: {verdict} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join([*TITLES, "restore", "latency"]), help="some of them")
    parser.add_argument("--events", type=int, default=100_000, help="of this runtime")
    parser.add_argument("--share", type=float, default=0.05, help="how many of them Faust gets")
    parser.add_argument("--rows", type=int, default=300_000, help="of the changelog that both restore")
    parser.add_argument("--pace", type=float, default=100.0, help="events a second where the latency is measured")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long the latency is measured")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--bootstrap-servers", help="an Apache Kafka that runs already; without it one is started")
    arguments = parser.parse_args()
    arguments.workloads = arguments.workloads.split(",")
    if arguments.bootstrap_servers:
        with tempfile.TemporaryDirectory() as name:
            compare(Cluster(arguments.bootstrap_servers), Path(name), arguments)
        return
    if (reason := missing_tools()) is not None:
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = KafkaServer(folder / "kafka", SETTINGS)
        server.start()
        try:
            compare(Cluster(server.bootstrap_servers), folder, arguments)
        finally:
            server.kill()


def compare(cluster: Cluster, folder: Path, arguments: argparse.Namespace) -> None:
    """Everything that was asked for."""
    sides = [Side(name, cluster, folder) for name in SIDES]
    for events in set(counts(arguments).values()):
        cluster.make_topic(source_of(events))
        fill(cluster, source_of(events), orders(events))
    try:
        rates(sides, arguments)
        if "restore" in arguments.workloads:
            restored(sides, arguments)
        if "latency" in arguments.workloads:
            for side in sides:
                took_ms = side.latencies_ms(arguments.seconds, arguments.pace, "paced")
                at = {part: took_ms[min(len(took_ms) - 1, int(len(took_ms) * part))] for part in (0.5, 0.99)}
                print(f"latency of {side.name}: p50 {at[0.5]:.1f} ms, p99 {at[0.99]:.1f} ms, {len(took_ms):,} events")
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
