"""How quickly state is restored from its changelog: this runtime beside Java Kafka Streams, on one Apache Kafka.

    python -m tests.bench.bench_restore [--records 2000000] [--rounds 1] [--peers ours,java] [--cases 3]

A table with four partitions is restored into RocksDB by an application that has nothing on disk. The changelogs are written
beforehand, the same ones for both; what is restored are distinct keys, or ten updates of each key in any order; values of
100 bytes, of 8 (counts) or of 80 to 120. ``native`` is this runtime with the loops in C. The time is from the beginning of
the first partition to the end of the last one, as the application's restore listener is told; CPU time is that of the whole
process meanwhile. MB are those of keys and values.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from streamsrt.wire.records import Compression, encode_batch
from tests.bench.bench_end_to_end import NAMES, Cluster, clusters
from tests.bench.peer_programs import PeerProgram, prepare, say
from tests.bench.peers.ours import PARTITIONS

CASES = {
    "distinct keys, 100 bytes": (1, 100, 0),
    "10 updates of each key, 100 bytes": (10, 100, 0),
    "distinct keys, 8 bytes": (1, 8, 0),
    "distinct keys, 80 to 120 bytes": (1, 100, 20),
}
"""Updates of each key, and the bytes of a value, up to so many more or less."""
KEY_BYTES = 16
BATCH_RECORDS = 1000
T0 = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """One restore."""

    records: int
    megabytes: float
    wall_s: float
    cpu_s: float


def fill(
    cluster: Cluster,
    application: str,
    records: int,
    updates: int,
    value_bytes: int,
    spread: int = 0,
    compression: Compression = Compression.NONE,
) -> None:
    """Makes the topics of an application, and writes its changelog."""
    network = NetworkThread(ClientConfig(bootstrap_servers=cluster.address, client_id="bench-restore"))
    network.start()
    changelog = f"{application}-latest-changelog"
    compact = NewTopic(
        name=changelog, partitions=PARTITIONS, replication_factor=1, configs={"cleanup.policy": "compact"}
    )
    plain = NewTopic(name=f"in-{application}", partitions=PARTITIONS, replication_factor=1, configs={})
    try:
        for error in network.admin.create_topics([compact, plain]).values():
            if error is not None:
                raise error
        each = records // PARTITIONS
        draw = random.Random(1)
        for partition in range(PARTITIONS):
            numbers = [number for number in range(each // updates) for _ in range(updates)]
            draw.shuffle(numbers)
            for start in range(0, each, BATCH_RECORDS):
                some = numbers[start : start + BATCH_RECORDS]
                keys = [b"%d:%014d" % (partition, number) for number in some]
                values: list[bytes | None] = [
                    number.to_bytes(8, "big")
                    + b"x" * (value_bytes - 8 + (draw.randint(-spread, spread) if spread else 0))
                    for number in some
                ]
                times = [T0 + start + index for index in range(len(some))]
                batch = encode_batch(keys, values, times, compression=compression)
                network.producer.send(changelog, partition, batch, len(some))
        network.producer.flush()
    finally:
        network.stop()


def measure(
    peer: str, case: str, records: int, compression: Compression, cluster: Cluster, folder: Path, name: str
) -> Run:
    updates, value_bytes, spread = CASES[case]
    application, state = name, folder / name
    fill(cluster, application, records, updates, value_bytes, spread, compression)
    state.mkdir()
    arguments = [cluster.address, "W6", f"in-{application}", "-", application, str(records), str(state)]
    with PeerProgram(peer, arguments, folder / "program.log") as program:
        program.wait_for("END")
        start, end = program.marks["START"], program.marks["END"]
        program.process.terminate()
    cluster.delete_topics(application)
    shutil.rmtree(state, ignore_errors=True)
    megabytes = records * (KEY_BYTES + value_bytes) / 1e6
    return Run(records, megabytes, end.at_s - start.at_s, end.cpu_s - start.cpu_s)


def table(case: str, results: dict[str, list[Run]]) -> str:
    """Markdown."""
    lines = [
        f"**restore: {case}**",
        "",
        "| runtime | records | records / s | MB / s | records / CPU s | x java, wall | x java, CPU |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    wall_s = {peer: statistics.median(run.wall_s for run in runs) for peer, runs in results.items()}
    cpu_s = {peer: statistics.median(run.cpu_s for run in runs) for peer, runs in results.items()}
    for peer, runs in results.items():
        run = runs[0]
        against = [f"{taken['java'] / taken[peer]:.2g}" if "java" in taken else "" for taken in (wall_s, cpu_s)]
        cells = [
            NAMES[peer],
            f"{run.records:,}",
            f"{run.records / wall_s[peer]:,.0f}",
            f"{run.megabytes / wall_s[peer]:.0f}",
            f"{run.records / cpu_s[peer]:,.0f}",
            *against,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_restore")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--peers", default="ours,java", help="of ours, bundled, native, java")
    parser.add_argument("--cases", default=",".join(map(str, range(len(CASES)))), help="of 0, 1, 2 and 3")
    parser.add_argument("--compression", default="none", help="of the changelog: none, gzip, snappy, lz4 or zstd")
    given = parser.parse_args()
    peers = given.peers.split(",")
    compression = Compression[given.compression.upper()]
    chosen = [case for index, case in enumerate(CASES) if str(index) in given.cases.split(",")]
    results: dict[str, dict[str, list[Run]]] = {case: {peer: [] for peer in peers} for case in chosen}
    for peer in peers:
        prepare(peer)
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    try:
        with clusters(peers, folder) as where:
            for number in range(given.rounds):
                for index, case in enumerate(chosen):
                    for peer in peers:
                        name = f"restore-{number}-{index}-{peer}"
                        run = measure(peer, case, given.records, compression, where[peer], folder, name)
                        results[case][peer].append(run)
                        say(f"{case} {peer}: {run.wall_s:.1f} s, {run.cpu_s:.1f} CPU s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n\n".join(table(case, results[case]) for case in chosen))


if __name__ == "__main__":
    sys.exit(main())
