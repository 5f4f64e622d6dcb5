"""How long tasks stand still when they move to a new instance of a classic group on Apache Kafka, beside Java's.

    python -m tests.bench.bench_classic_pause [--rows 1000000] [--version 4.4.0] [--only ours,upgrade,java]

As in bench_warmup an instance owns all tasks of a state of so many rows of 300 bytes, input trickles in on every partition,
and a second instance joins with an empty state directory. ``warm``: tasks are restored beside their owner before they move.
``cold``: they move first (``acceptable.recovery.lag`` is so large that everything counts as restored). ``upgrade``: the
second instance runs another version, whose tasks take over the changelogs of the first one's. ``java``: Kafka Streams 4.3.1
by its classic protocol, with the same program and settings.

The pause of a partition is the longest time between two of its results, from when the second instance starts until every
partition has results again after the move; the figure is that of the partitions that have moved. All read the same input.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.bench.bench_warmup import PARTITIONS, SETTINGS, Trickle, Watch, fill
from tests.kafka_server import VERSION, KafkaServer, streams_classpath
from tests.system.cluster import Cluster, connected
from tests.system.processes import AppProcess, wait_until

JAVA_PROGRAM = Path(__file__).resolve().parent / "peers" / "java" / "PauseMember.java"
JAVA = ("java", "-Xmx512m", "-XX:+UseSerialGC")
GROUP = {"group.protocol": "classic", "session.timeout.ms": 20_000, "heartbeat.interval.ms": 3_000}
EVERYTHING = 1 << 30
PATIENCE_S = 900.0
FRESH_S = 2.0


class Candidate(NamedTuple):
    name: str
    program: str | None
    """The second instance's; None: Java's."""
    is_warm: bool

    @property
    def settings(self) -> dict[str, object]:
        found: dict[str, object] = {**SETTINGS, **GROUP, "probing.rebalance.interval.ms": 60_000}
        return found if self.is_warm else {**found, "acceptable.recovery.lag": EVERYTHING}


CANDIDATES = [
    Candidate("ours warm", "topology", True),
    Candidate("ours cold", "topology", False),
    Candidate("upgrade warm", "upgraded", True),
    Candidate("upgrade cold", "upgraded", False),
    Candidate("java warm", None, True),
    Candidate("java cold", None, False),
]


@contextlib.contextmanager
def instance(candidate: Candidate, name: str, program: str | None, folder: Path, servers: str) -> Iterator[None]:
    application = candidate.name.replace(" ", "-")
    if program is not None:
        place = folder / f"{application}-{name}"
        with AppProcess(place, f"tests.bench.warmup_app:{program}", application, servers, candidate.settings) as app:
            yield
            app.terminate()
        return
    command = [*JAVA, "-cp", streams_classpath(), str(JAVA_PROGRAM), servers, application]
    command += [f"{key}={value}" for key, value in candidate.settings.items()]
    command += [f"state.dir={folder / application}-{name}", "internal.leave.group.on.close=true"]
    with (folder / f"{application}-{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        process.wait(60.0)
    finally:
        process.kill()
        process.wait()


class Group:
    """Who has which partitions of the input, by member id, while the group is stable."""

    def __init__(self, cluster: Cluster, candidate: Candidate) -> None:
        self._admin = AdminClient({"bootstrap.servers": cluster.address})
        self._id = candidate.name.replace(" ", "-")

    def shares(self) -> dict[str, set[int]]:
        try:
            group = self._admin.describe_consumer_groups([self._id])[self._id].result(30.0)
        except KafkaException:
            # The first group of a cluster waits for the topic of the groups.
            return {}
        if group.state.name != "STABLE":
            return {}
        return {
            member.member_id: {each.partition for each in member.assignment.topic_partitions if each.topic == "in"}
            for member in group.members
        }


def measure(candidate: Candidate, cluster: Cluster, folder: Path) -> tuple[float, float]:
    """The longest pause of a partition that moved, and how long it took until half of them had."""
    servers, group = cluster.address, Group(cluster, candidate)

    def patiently(holds: Callable[[], bool], what: str) -> None:
        wait_until(holds, f"{candidate.name}: {what}", timeout_s=PATIENCE_S, pause_s=0.1)

    first = "topology" if candidate.program is not None else None
    with instance(candidate, "one", first, folder, servers):
        patiently(lambda: [len(share) for share in group.shares().values()] == [PARTITIONS], "it has all tasks")
        cluster.wait_all_committed(candidate.name.replace(" ", "-"), "in", timeout_s=PATIENCE_S)
        with Trickle(cluster.server), Watch(cluster.server) as watch:
            patiently(lambda: watch.is_fresh(FRESH_S), "it works")
            (owner,) = group.shares()
            watch.begin()
            began = time.monotonic()
            with instance(candidate, "two", candidate.program, folder, servers):
                half = PARTITIONS // 2
                patiently(lambda: sorted(map(len, group.shares().values())) == [half, half], "half of them have moved")
                took = time.monotonic() - began
                moved = set().union(*(share for name, share in group.shares().items() if name != owner))
                patiently(lambda: watch.is_fresh(FRESH_S), "all of them work")
                # The last move may be under way still.
                patiently(lambda: time.monotonic() - began > took + 3 and watch.is_fresh(FRESH_S), "they go on")
                pauses = watch.longest()
                return max(pauses[partition] for partition in moved), took


def start_patiently(server: KafkaServer) -> None:
    """A busy machine may need more than one try."""
    for tries_left in (2, 1, 0):
        try:
            server.start()
        except RuntimeError:
            if not tries_left:
                raise
            server.kill()
        else:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--version", default=VERSION)
    parser.add_argument("--only", default="ours,upgrade,java")
    options = parser.parse_args()
    wanted = options.only.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = KafkaServer(folder / "kafka", {"group.initial.rebalance.delay.ms": "0"}, version=options.version)
        start_patiently(server)
        try:
            with connected(server) as cluster:
                fill(cluster, options.rows)
                print(f"Apache Kafka {options.version}, {options.rows:,} rows of 300 bytes", flush=True)
                for candidate in CANDIDATES:
                    if candidate.name.split()[0] in wanted:
                        pause, took = measure(candidate, cluster, folder)
                        print(f"{candidate.name:14} pause {pause:6.2f} s, moved after {took:6.1f} s", flush=True)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
