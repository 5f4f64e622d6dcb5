"""Peak memory of an instance under load, by its budget: ``python -m tests.bench.bench_memory_budget [--caches 32,128,256]``.

An application reduces per key on the bundled broker: ``--keys`` keys with values of 200 bytes, written twice in the same
order, so that each update misses the caches, which are smaller than the state. The peak is that of the whole process
(VmHWM), from its start to the end of the input. With ``--threads 2`` there are several processes, which share most of the
code.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from streamsrt.wire.records import encode_batch
from tests.bench.peer_programs import ROOT, say
from tests.fixtures_brokers import BundledBroker
from topology import StreamsBuilder, serdes

TOPIC, PARTITIONS, BATCH = "values", 4, 2_000
VALUE = bytes(range(200))
T0 = 1_700_000_000_000

builder = StreamsBuilder()
(
    builder.stream(TOPIC, key=serdes.bytes, value=serdes.bytes)
    .group_by_key()
    .reduce(lambda _, value: value, store="latest")
    .to_stream()
    .to("latest", key=serdes.bytes, value=serdes.bytes)
)
topology = builder.build()


def fill(network: NetworkThread, keys: int) -> None:
    network.admin.create_topics([NewTopic(name=name, partitions=PARTITIONS) for name in (TOPIC, "latest")])
    for turn in range(2):
        for start in range(0, keys, BATCH):
            names = [b"%012d" % (key * 7919 % keys) for key in range(start, start + BATCH)]
            values: list[bytes | None] = [VALUE[turn:] + os.urandom(turn + 1)] * BATCH
            batch = encode_batch(list(names), values, [T0] * BATCH)
            network.producer.send(TOPIC, start // BATCH % PARTITIONS, batch, BATCH)
        network.producer.flush()


class Peaks:
    """The peak of each process of an instance, read while it runs: afterwards nothing tells."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._peaks: dict[int, int] = {}
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> list[int]:
        self._ended.set()
        self._thread.join()
        return sorted(self._peaks.values(), reverse=True)

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            for pid in (self._pid, *_children(self._pid)):
                if peak := _peak_bytes(pid):
                    self._peaks[pid] = peak


def _children(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(word) for word in path.read_text(encoding="ascii").split()]
    return found + [grandchild for child in found for grandchild in _children(child)]


def _peak_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("VmHWM:")), 0)


def measure(address: str, folder: Path, cache_mib: int, arguments: argparse.Namespace) -> list[int]:
    """Bytes of each process, the largest first."""
    name = f"budget-{cache_mib}"
    command = [sys.executable, "-m", "streamsrt", "run", "tests.bench.bench_memory_budget:topology", "-a", name]
    command += [
        "-b",
        address,
        "--state-dir",
        str(folder / name),
        "--until",
        "quiet",
        "--threads",
        str(arguments.threads),
    ]
    command += [
        "--config",
        f"cache.max.bytes={cache_mib << 20}",
        "--config",
        f"processing.guarantee={arguments.guarantee}",
    ]
    with (
        (folder / f"{name}.log").open("wb") as log,
        subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as process,
    ):
        peaks = Peaks(process.pid)
        try:
            process.wait()
        finally:
            found = peaks.stop()
    if process.returncode:
        raise RuntimeError((folder / f"{name}.log").read_text(encoding="utf-8"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--caches", default="32,128,256", help="cache.max.bytes in MiB")
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--guarantee", default="at_least_once")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        broker = BundledBroker(Path(scratch) / "broker")
        broker.start()
        network = NetworkThread(ClientConfig(bootstrap_servers=broker.bootstrap_servers))
        network.start()
        try:
            fill(network, arguments.keys)
            for cache_mib in map(int, arguments.caches.split(",")):
                peaks = measure(broker.bootstrap_servers, Path(scratch), cache_mib, arguments)
                listed = ", ".join(f"{peak / (1 << 20):.0f}" for peak in peaks)
                say(f"cache.max.bytes {cache_mib} MiB: peak of each process {listed} MiB")
        finally:
            network.stop()
            broker.stop()


if __name__ == "__main__":
    main()
