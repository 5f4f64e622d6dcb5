"""How long the bundled broker takes to come back: with many partitions, and with many offset commits in its log.

Run it as ``python -m tests.bench.bench_restart [--partitions N] [--commits N]``. Times are of the CPU of one process, beside
the wall clock: the machine may have other work.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from coordinator.group.config import GroupConfig
from coordinator.log import Fsync, LogConfig, LogDirectory
from coordinator.shard.journal import append_rows
from coordinator.shard.shard import Shard
from streamsrt.wire import types
from streamsrt.wire.messages import encode_record_key, encode_record_value
from tests.coordinator.broker.in_process import InProcessBroker

TOPIC_PARTITIONS = 1000


def timed(name: str, work: Callable[[], object], goal: str = "") -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    print(
        f"{name:56}  {time.perf_counter() - wall:6.2f} s wall  {time.process_time() - cpu:6.2f} s CPU  {goal}",
        flush=True,
    )


def partitions(folder: Path, count: int) -> None:
    broker = InProcessBroker(folder / "partitions")

    def create() -> None:
        for number in range(count // TOPIC_PARTITIONS):
            broker.create(f"t{number}", TOPIC_PARTITIONS)

    timed(f"creating {count:,} partitions", create)
    timed("clean stop and start", broker.restart)
    broker.close()


def commits(folder: Path, count: int) -> None:
    """One commit per batch, for 10 partitions in each of 1,000 groups, in one partition of the offsets topic."""
    keys = [
        encode_record_key(types.OffsetCommitKey(group=f"group-{i % 1000}", topic="input", partition=i // 1000))
        for i in range(10_000)
    ]
    with_log = LogDirectory(folder / "commits")
    log = with_log.partition("offsets", 0, LogConfig(fsync=Fsync.NEVER, retention_ms=-1))
    for i in range(count):
        value = encode_record_value(types.OffsetCommitValue(offset=i, metadata="", commit_timestamp=1))
        append_rows(log, [keys[i % len(keys)]], [value], 1)
    timed(f"loading {count:,} offset commits", lambda: Shard(log, GroupConfig.parse({})).load(1), "goal 5 s")
    with_log.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        partitions(Path(folder), options.partitions)
        commits(Path(folder), options.commits)


if __name__ == "__main__":
    main()
