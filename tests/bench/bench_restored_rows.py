"""Restoring in process, from fetched data to closed stores: ``python -m tests.bench.bench_restored_rows [--rows 400000]``.

The rows of four stores, or of one, come in turn, as from the partitions of a changelog. CPU time is that of the process with
RocksDB's threads; compactions that are left when the stores are closed are not in it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from streamsrt.state.cache import KeyValueCache, RowFormat
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.wire.records import Compression, encode_batch, iter_columns
from tests.bench.bench_restore import T0
from topology import serdes


class Case(NamedTuple):
    """``updates`` of each key, in any order or ascending. ``spread``: values have up to so many bytes more or less, and
    times are up to 10 s apart, in any order."""

    stores: int = 4
    updates: int = 1
    value_bytes: int = 100
    ascending: bool = False
    spread: int = 0
    compression: Compression = Compression.NONE
    batch_records: int = 1000


CASES = {
    "restore: distinct keys": Case(),
    "restore: one store": Case(stores=1),
    "restore: 10 updates of each": Case(updates=10),
    "restore: values of 8 bytes": Case(value_bytes=8),
    "restore: ascending keys": Case(ascending=True),
    "restore: 80 to 120 bytes": Case(spread=20),
    "restore: 80 to 120 bytes, small batches": Case(spread=20, batch_records=125),
    "restore: gzip": Case(compression=Compression.GZIP),
    "restore: snappy": Case(compression=Compression.SNAPPY),
    "restore: lz4": Case(compression=Compression.LZ4),
    "restore: zstd": Case(compression=Compression.ZSTD),
}
FETCHED_RECORDS = 8000
ROWS = 400_000


def logged(case: Case, store: int, rows: int) -> list[bytes]:
    """A changelog in batches."""
    numbers = [number for number in range(rows // case.updates) for _ in range(case.updates)]
    if not case.ascending:
        random.Random(store).shuffle(numbers)
    batches = []
    draw = random.Random(store)
    for start in range(0, rows, case.batch_records):
        some = numbers[start : start + case.batch_records]
        sizes = [case.value_bytes + (draw.randint(-case.spread, case.spread) if case.spread else 0) for _ in some]
        values: list[bytes | None] = [
            number.to_bytes(8, "big") + b"x" * (size - 8) for number, size in zip(some, sizes, strict=True)
        ]
        keys = [b"%d:%014d" % (store, number) for number in some]
        times = [T0 + (draw.randrange(10_000) if case.spread else start + index) for index in range(len(some))]
        batch = bytearray(encode_batch(keys, values, times, compression=case.compression))
        batch[:8] = start.to_bytes(8, "big")
        batches.append(bytes(batch))
    return batches


def restoring(name: str, folder: Path, rows: int = ROWS) -> Callable[[], None]:
    """What restores that many rows, and deletes them."""
    case = CASES[name]
    each = rows // case.stores
    logs = [logged(case, store, each) for store in range(case.stores)]
    row_format = RowFormat(serdes.json.serialize, serdes.json.deserialize)

    def restore() -> None:
        options = RocksDBOptions()
        stores = [RocksDBStore(folder / str(number), "rows", options) for number in range(case.stores)]
        caches = [KeyValueCache("rows", store, row_format) for store in stores]
        # Another tree may be one whose stores are not told.
        if hasattr(stores[0], "begin_restoring"):
            for store in stores:
                store.begin_restoring(each)
        batches = FETCHED_RECORDS // case.batch_records
        for first in range(0, len(logs[0]), batches):
            for log, cache in zip(logs, caches, strict=True):
                fetched = memoryview(b"".join(log[first : first + batches]))
                for columns in iter_columns(fetched, from_offset=first * case.batch_records, as_tables=True):
                    cache.restore(columns)
        for store in stores:
            if hasattr(store, "end_restoring"):
                store.end_restoring()
            store.close()
            shutil.rmtree(store.path)

    return restore


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_restored_rows")
    parser.add_argument("--rows", type=int, default=ROWS)
    rows = parser.parse_args().rows
    for name in CASES:
        with tempfile.TemporaryDirectory(prefix="streamsrt-bench-") as folder:
            restore = restoring(name, Path(folder), rows)
            began = time.process_time()
            restore()
            spent_s = time.process_time() - began
        print(f"{name:40}{rows / spent_s:12,.0f} rows per CPU second")


if __name__ == "__main__":
    main()
