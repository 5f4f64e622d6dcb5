"""What a standby costs: an instance that only follows a changelog which grows evenly, beside Java's Kafka Streams.

    python -m tests.bench.bench_standby [--peers ours,bundled,java] [--rate 10000] [--every-ms 10,1000] [--seconds 10]

Two instances of an application with one task: the first has it, the second its standby. Nothing comes to the input; records
of 100 bytes are written into the changelog, in batches every so many milliseconds: as often as an instance without record
caches sends, or commits. What is counted is the CPU time of the second instance, less that of the same time without records.
Its listener counts what it applied: all that was written.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from streamsrt.wire.records import encode_batch
from tests.bench.bench_end_to_end import NAMES, clusters
from tests.bench.bench_latency import cpu_seconds
from tests.bench.peer_programs import PeerProgram, prepare, say

KEYS = 100_000
BATCH_RECORDS = 1_000
VALUE = b"x" * 100
SETTLE_S = 5.0
WARM_UP_S = 4.0
PATIENCE_S = 60.0
GOAL_SHARE = 0.05
"""Of a core, at 10,000 records a second."""


@dataclass(frozen=True, slots=True)
class Followed:
    """One run. Shares of a core."""

    idle: float
    busy: float
    per_s: float


def write(network: NetworkThread, topic: str, first: int, count: int) -> None:
    for start in range(first, first + count, BATCH_RECORDS):
        some = range(start, min(start + BATCH_RECORDS, first + count))
        keys: list[bytes | None] = [b"%016d" % (number * 7919 % KEYS) for number in some]
        batch = encode_batch(keys, [VALUE] * len(some), [time.time_ns() // 1_000_000] * len(some))
        network.producer.send(topic, 0, batch, len(some))


def write_evenly(network: NetworkThread, topic: str, per_s: float, every_s: float, seconds: float) -> int:
    """Returns how many."""
    pause = threading.Event()
    each, began_s, sent = round(per_s * every_s), time.monotonic(), 0
    while (due_s := began_s + sent / per_s) < began_s + seconds:
        pause.wait(max(0.0, due_s - time.monotonic()))
        write(network, topic, sent, each)
        sent += each
    network.producer.flush()
    return sent


def until(condition: Callable[[], bool], pause: threading.Event, what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(what)
        pause.wait(0.05)


def measure(peer: str, every_ms: int, address: str, folder: Path, given: argparse.Namespace) -> Followed:
    name = f"standby-{peer}-{every_ms}"
    network = NetworkThread(ClientConfig(bootstrap_servers=address, client_id="bench-standby"))
    network.start()
    pause = threading.Event()
    changelog = f"{name}-latest-changelog"

    def program(number: int) -> PeerProgram:
        state = folder / f"{name}-{number}"
        state.mkdir()
        arguments = [address, "W6", f"in-{name}", "-", name, "0", str(state)]
        return PeerProgram(peer, [*arguments, "num.standby.replicas=1"], folder / f"program-{number}.log")

    try:
        topic = NewTopic(name=f"in-{name}", partitions=1, replication_factor=1, configs={})
        assert network.admin.create_topics([topic])[topic.name] is None
        network.admin.alter_group_configs(name, {"streams.num.standby.replicas": "1"})
        with program(1) as first:
            until(lambda: changelog in network.admin.topics(), pause, "no changelog")
            pause.wait(SETTLE_S)
            with program(2) as second:
                pause.wait(SETTLE_S)
                warmed = write_evenly(network, changelog, given.rate, every_ms / 1000, WARM_UP_S)
                until(lambda: second.seen or first.seen, pause, "nobody follows the changelog")
                standby = second if second.seen else first
                pid = standby.process.pid
                pause.wait(2.0)
                idle = share(pid, lambda: pause.wait(given.seconds))
                sent = 0

                def write_all() -> None:
                    nonlocal sent
                    sent = write_evenly(network, changelog, given.rate, every_ms / 1000, given.seconds)

                busy = share(pid, write_all)
                more = 0
                while standby.seen[-1].records < warmed + sent + more:
                    # It tells its count at most once a second, when a record comes.
                    assert more < PATIENCE_S, "the standby does not catch up"
                    more += 1
                    pause.wait(1.1)
                    write(network, changelog, 0, 1)
                    pause.wait(0.5)
        network.admin.delete_topics([each for each in network.admin.topics() if name in each])
    finally:
        network.stop()
    shutil.rmtree(folder / f"{name}-1")
    shutil.rmtree(folder / f"{name}-2")
    return Followed(idle, busy, sent / given.seconds)


def share(pid: int, work: Callable[[], object]) -> float:
    """The share of a core that a process takes during the work."""
    before_s, began_s = cpu_seconds(pid), time.monotonic()
    work()
    return (cpu_seconds(pid) - before_s) / (time.monotonic() - began_s)


def table(results: dict[tuple[str, int], Followed]) -> str:
    """Markdown."""
    lines = [
        f"**a standby that follows a changelog: share of a core** (goal: less than {GOAL_SHARE:.0%} per 10,000 records/s)",
        "",
        "| runtime | a batch every | records / s | idle | following | per 10,000 records / s |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (peer, every_ms), run in results.items():
        cost = (run.busy - run.idle) / run.per_s * 10_000
        lines.append(
            f"| {NAMES[peer]} | {every_ms} ms | {run.per_s:,.0f} | {run.idle:.1%} | {run.busy:.1%} | {cost:.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_standby")
    parser.add_argument("--peers", default="ours,bundled,java", help="of ours, bundled, java")
    parser.add_argument("--rate", type=float, default=10_000.0, help="records per second")
    parser.add_argument("--every-ms", default="10,1000", help="how often a batch is written")
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    peers = given.peers.split(",")
    for peer in peers:
        prepare(peer)
    results: dict[tuple[str, int], Followed] = {}
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    try:
        with clusters(peers, folder) as where:
            for every_ms in map(int, given.every_ms.split(",")):
                for peer in peers:
                    run = results[peer, every_ms] = measure(peer, every_ms, where[peer].address, folder, given)
                    say(f"{peer}, every {every_ms} ms: {run.idle:.1%} idle, {run.busy:.1%} following")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(results))


if __name__ == "__main__":
    main()
