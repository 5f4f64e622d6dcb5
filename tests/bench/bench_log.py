"""What the broker's log does per second: appends, reads, recovery, group commit.

Run it as ``python -m tests.bench.bench_log [--directory D]``. Each row is the median of several rounds; MB are 10^6 bytes.
Wall-clock figures of appends depend on the disk's writeback, so the CPU time of the process is printed beside them.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from coordinator.log import Fsync, LogConfig, LogDirectory
from coordinator.log.partition_log import PartitionLog
from streamsrt.wire.records import Compression, encode_batch

ROUNDS = 5
CONFIG = LogConfig(retention_ms=-1, fsync=Fsync.NEVER, max_message_bytes=4 << 20, segment_bytes=1 << 30)
Row = tuple[str, str, str, str]


def batch_of(record_count: int, value_bytes: int) -> bytes:
    return encode_batch([None] * record_count, [b"x" * value_bytes] * record_count, [1000] * record_count)


def batch_of_unlike(compression: Compression = Compression.NONE) -> bytes:
    rng = random.Random(1)
    values = [rng.randbytes(rng.randint(250, 750)).hex().encode() for _ in range(1000)]
    return encode_batch([None] * 1000, values, [1000] * 1000, compression=compression)


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """(wall, CPU) seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def median(samples: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(s[0] for s in samples), statistics.median(s[1] for s in samples)


def appending(root: Path, name: str, batch: bytes, count: int) -> Row:
    samples = []
    for i in range(ROUNDS):
        directory = LogDirectory(root / f"append-{i}")
        log = directory.partition("t", 0, CONFIG)
        log.append(batch, now_ms=0)

        def work(log: PartitionLog = log) -> None:
            for _ in range(count):
                log.append(batch, now_ms=0)

        samples.append(timed(work))
        directory.delete("t", 0)
        directory.close()
        shutil.rmtree(root / f"append-{i}")
    wall, cpu = median(samples)
    return (
        name,
        f"{count / wall:,.0f} /s",
        f"{count * len(batch) / wall / 1e6:,.0f} MB/s",
        f"{cpu / count * 1e6:.1f} us",
    )


def reading(root: Path, name: str, batch: bytes, count: int, max_bytes: int) -> Row:
    directory = LogDirectory(root / "read")
    log = directory.partition("t", 0, CONFIG)
    for _ in range(count):
        log.append(batch, now_ms=0)
    reads = 0

    def work() -> None:
        nonlocal reads
        position = reads = 0
        while position < log.log_end_offset:
            position = log.read(position, max_bytes).next_offset
            reads += 1

    wall, cpu = median([timed(work) for _ in range(ROUNDS)])
    size_bytes = log.size_bytes
    directory.delete("t", 0)
    directory.close()
    shutil.rmtree(root / "read")
    return name, f"{reads / wall:,.0f} /s", f"{size_bytes / wall / 1e6:,.0f} MB/s", f"{cpu / reads * 1e6:.1f} us"


def recovering(root: Path, name: str, batch: bytes, total_bytes: int) -> Row:
    directory = LogDirectory(root / "recover")
    log = directory.partition("t", 0, CONFIG)
    count = total_bytes // len(batch)
    for _ in range(count):
        log.append(batch, now_ms=0)
    log.abandon()
    samples = []
    for _ in range(ROUNDS):
        (log.directory / "checkpoint").unlink(missing_ok=True)
        opened: list[PartitionLog] = []

        def work(opened: list[PartitionLog] = opened) -> None:
            opened.append(PartitionLog(log.directory, CONFIG, directory.syncer, clean=False))

        samples.append(timed(work))
        assert opened[0].log_end_offset == log.log_end_offset
        opened[0].abandon()
    wall, cpu = median(samples)
    directory.close()
    shutil.rmtree(root / "recover")
    return name, f"{count / wall:,.0f} /s", f"{total_bytes / wall / 1e6:,.0f} MB/s", f"{cpu / count * 1e6:.1f} us"


def acknowledging(root: Path, waiters: int, seconds: float) -> Row:
    """Each waiter appends one record of 100 bytes and appends again when it is acknowledged as on disk."""
    directory = LogDirectory(root / "acks")
    log = directory.partition("t", 0, dataclasses.replace(CONFIG, fsync=Fsync.GROUP))
    batch = batch_of(1, 100)
    latencies: list[float] = []
    ready: list[float] = [time.perf_counter()] * waiters
    condition = threading.Condition()

    def deliver(started: float) -> None:
        latencies.append(time.perf_counter() - started)
        ready.append(0.0)
        with condition:
            condition.notify()

    begin, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        if not ready:
            with condition:
                condition.wait_for(lambda: bool(ready))
        ready.pop()
        log.append(batch, now_ms=0)
        started = time.perf_counter()
        directory.syncer.sync_then(log, lambda error, started=started: deliver(started))  # type: ignore[misc]
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    count = len(latencies)
    p50, p99 = statistics.median(latencies) * 1e3, sorted(latencies)[int(count * 0.99)] * 1e3
    directory.delete("t", 0)
    directory.close()
    shutil.rmtree(root / "acks")
    name = f"group fsync, {waiters} waiting"
    return name, f"{count / wall:,.0f} /s", f"p50 {p50:.1f} p99 {p99:.1f} ms", f"{cpu / count * 1e6:.1f} us"


def rows(root: Path) -> list[Row]:
    mega = batch_of(1000, 1024)
    return [
        appending(root, "append 1 MB (1000 x 1 KB)", mega, 300),
        appending(root, "append 1 MB (1000 x 0.5-1.5 KB)", batch_of_unlike(), 300),
        appending(root, "the same, lz4", batch_of_unlike(Compression.LZ4), 300),
        appending(root, "append 16 KB", batch_of(16, 1024), 10_000),
        appending(root, "append 1 x 100 B", batch_of(1, 100), 50_000),
        reading(root, "read 1 MB at a time, 1 MB batches", mega, 300, 1 << 20),
        reading(root, "read 1 MB at a time, 1 KB batches", batch_of(1, 1024), 100_000, 1 << 20),
        reading(root, "read one batch of 100 B at a time", batch_of(1, 100), 50_000, 1),
        recovering(root, "recover, 64 KB batches", batch_of(64, 1024), 600_000_000),
        recovering(root, "recover, 16 KB batches", batch_of(16, 1024), 600_000_000),
        recovering(root, "recover, 1 KB batches", batch_of(1, 1024), 200_000_000),
        *(acknowledging(root, waiters, 2.0) for waiters in (1, 10, 100, 1000)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where to write (default: a temporary directory)")
    root = Path(tempfile.mkdtemp(prefix="bench-log-", dir=parser.parse_args().directory))
    try:
        print(f"{'':36} {'rate':>16} {'volume or latency':>22} {'CPU each':>12}")
        for name, rate, volume, cpu in rows(root):
            print(f"{name:36} {rate:>16} {volume:>22} {cpu:>12}")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
