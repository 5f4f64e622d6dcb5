"""A process that writes to a store until somebody kills it: ``python -m tests.streamsrt.state.writer <path> <first batch>``.

Batch ``n`` moves the changelog offset from ``n`` to ``n + 1``. The number of every batch is printed when it is written.
"""

from __future__ import annotations

import itertools
import random
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


def main() -> None:
    store = RocksDBStore(Path(sys.argv[1]), "counts", OPTIONS)
    for number in itertools.count(int(sys.argv[2])):
        store.write(batch(number), changelog_offset=number + 1)
        print(number, flush=True)


if __name__ == "__main__":
    main()
