"""A process that writes to a store until somebody kills it: ``python -m tests.streamsrt.state.writer <path> <first batch>``,
with ``restore`` behind that one that restores.

Batch ``n`` moves the changelog offset from ``n`` to ``n + 1``. The number of every batch is printed when it is written.
"""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
from pathlib import Path

from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore

OPTIONS = RocksDBOptions(memory_bytes=8 << 20, write_buffers_bytes=4 << 20, write_buffer_bytes=64 << 10)


def batch(number: int) -> list[tuple[bytes, bytes | None]]:
    """Twenty changes of a thousand keys, every fifth a deletion."""
    chosen = random.Random(number)
    return [
        (b"key-%03d" % chosen.randrange(1000), None if chosen.random() < 0.2 else b"%08d" % number * 10)
        for _ in range(20)
    ]


def logged(number: int) -> tuple[list[bytes], list[bytes | None]]:
    """Keys and values of the 500 records of a changelog from ``500 * number`` on: some repeated, some deleted."""
    chosen = random.Random(number)
    keys = [b"key-%08d" % chosen.randrange(30_000) for _ in range(500)]
    return keys, [None if chosen.random() < 0.1 else b"%08d" % number * 100 for _ in keys]


def restore() -> None:
    store = RocksDBStore(Path(sys.argv[1]), "counts", OPTIONS)
    store.begin_restoring(1_000_000)
    for number in itertools.count(int(sys.argv[2])):
        store.restore(*logged(number), 500 * (number + 1))
        print(number, flush=True)


def run_writer_and_kill_it(path: Path, first: int, last: int, *words: str) -> None:
    """Runs this module on a store until batch ``last`` is written."""
    command = [sys.executable, "-m", "tests.streamsrt.state.writer", str(path), str(first), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) == last:
                writer.send_signal(signal.SIGKILL)
                break
    assert writer.returncode == -signal.SIGKILL


def main() -> None:
    if "restore" in sys.argv:
        restore()
    store = RocksDBStore(Path(sys.argv[1]), "counts", OPTIONS)
    for number in itertools.count(int(sys.argv[2])):
        store.write(batch(number), changelog_offset=number + 1)
        print(number, flush=True)


if __name__ == "__main__":
    main()
