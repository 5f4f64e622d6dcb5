"""What state stores cost. Run: python -m tests.bench.bench_state [--keys N]

"bare" rows are the floor: rocksdict with nothing around it. Times are CPU time of the process with its background threads,
so they hold flushes and compactions that fall into a round. Compare rows within a table; figures of different runs don't
compare.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from rocksdict import Rdict, SstFileWriter, WriteBatch, WriteOptions

from streamsrt.state.memory import MemoryStore
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.state.store import BytesStore
from streamsrt.state.windowed import WindowBytesStore, window_key
from tests.bench.measure import compare, print_table, tune_malloc

VALUE = b"v" * 16
OPTIONS = RocksDBOptions()
NO_LOG = WriteOptions()
NO_LOG.disable_wal = True  # type: ignore[method-assign, assignment]
READS = 20_000
FETCHES = 2000
BATCH = 1000


class Stores:
    """Makes stores in one temporary directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._numbers = count()

    def path(self) -> Path:
        return self.root / str(next(self._numbers))

    def rocksdb(self, options: RocksDBOptions = OPTIONS) -> RocksDBStore:
        return RocksDBStore(self.path(), "bench", options)

    def bare(self) -> Rdict:
        return Rdict(str(self.path()), OPTIONS.for_one_store())


def keys_of(number: int) -> list[bytes]:
    return [b"user-%08d" % i for i in range(number)]


def shuffled(keys: list[bytes]) -> list[bytes]:
    return random.Random(1).sample(keys, len(keys))


def batches(keys: list[bytes]) -> Iterable[list[bytes]]:
    return (keys[i : i + BATCH] for i in range(0, len(keys), BATCH))


def write_all(store: BytesStore, keys: list[bytes]) -> None:
    for offset, chunk in enumerate(batches(keys)):
        store.write([(key, VALUE) for key in chunk], changelog_offset=offset)


def write_one_by_one(store: BytesStore, keys: list[bytes]) -> None:
    for key in keys:
        store.write([(key, VALUE)])


def write_bare(db: Rdict, keys: list[bytes]) -> None:
    for chunk in batches(keys):
        batch = WriteBatch(raw_mode=True)
        put = batch.put
        for key in chunk:
            put(key, VALUE)
        db.write(batch, NO_LOG)


def read_all(get: Callable[[bytes], Any], keys: list[bytes]) -> None:
    for key in keys:
        get(key)


def bench_reads(stores: Stores, keys: list[bytes]) -> None:
    store, bare, memory = stores.rocksdb(), stores.bare(), MemoryStore("bench")
    write_all(store, keys)
    write_bare(bare, keys)
    write_all(memory, keys)
    store.flush()
    bare.flush()
    chosen = shuffled(keys)[:READS]
    absent = [b"zser" + key[4:] for key in chosen]
    table = compare(
        {
            "bare get, random": partial(read_all, bare.get, chosen),
            "RocksDBStore.get, random": partial(read_all, store.get, chosen),
            "RocksDBStore.get, sorted": partial(read_all, store.get, sorted(chosen)),
            "RocksDBStore.get, absent": partial(read_all, store.get, absent),
            "MemoryStore.get": partial(read_all, memory.get, chosen),
        }
    )
    print_table(f"lookups among {len(keys)} keys on disk, cached blocks", table, READS)
    table = compare(
        {
            "bare items()": lambda: sum(1 for _ in bare.items()),
            "RocksDBStore.range()": lambda: sum(1 for _ in store.range()),
            "RocksDBStore.range(reverse=True)": lambda: sum(1 for _ in store.range(reverse=True)),
            "MemoryStore.range()": lambda: sum(1 for _ in memory.range()),
        }
    )
    print_table("scans, per row", table, len(keys))
    ends = [(key, keys[min(len(keys) - 1, int(key[5:]) + 10)]) for key in chosen[:FETCHES]]
    table = compare(
        {
            "RocksDBStore.range of 10 rows": lambda: [list(store.range(low, high)) for low, high in ends],
            "MemoryStore.range of 10 rows": lambda: [list(memory.range(low, high)) for low, high in ends],
        }
    )
    print_table("short scans, each", table, FETCHES)
    store.close()
    bare.close()


def bench_writes(stores: Stores, keys: list[bytes]) -> None:
    hot = keys[:10_000]
    random_hot = shuffled(hot)
    small = RocksDBOptions(write_buffer_bytes=4 << 20)
    sorted_store = stores.rocksdb()
    table = compare(
        {
            "bare WriteBatch, sorted": partial(write_bare, stores.bare(), hot),
            "write, sorted": partial(write_all, stores.rocksdb(), hot),
            "write, sorted, 4 MB buffer": partial(write_all, stores.rocksdb(small), hot),
            "write, random": partial(write_all, stores.rocksdb(), random_hot),
            "write, random, sorted first": lambda: write_all(sorted_store, sorted(random_hot)),
            "write one by one, random": partial(write_one_by_one, stores.rocksdb(), random_hot),
            "MemoryStore.write": partial(write_all, MemoryStore("bench"), random_hot),
        }
    )
    print_table(f"writing 10,000 hot keys again and again, batches of {BATCH}", table, len(hot))


def restored(stores: Stores, keys: list[bytes]) -> None:
    store = stores.rocksdb()
    values = [VALUE] * BATCH
    for number, chunk in enumerate(batches(keys)):
        store.restore(chunk, values[: len(chunk)], number)
    store.close()
    shutil.rmtree(store.path)


def ingested(stores: Stores, keys: list[bytes]) -> None:
    path, options = stores.path(), OPTIONS.for_one_store()
    file = f"{path}.sst"
    writer = SstFileWriter(options)
    writer.open(file)
    for key in keys:
        writer[key] = VALUE
    writer.finish()
    db = Rdict(str(path), options)
    db.ingest_external_file([file])
    db.close()
    shutil.rmtree(path)


def restored_windows(stores: Stores, keys: list[bytes]) -> None:
    store = stores.rocksdb()
    windows = WindowBytesStore(store, retention_ms=86_400_000)
    values = [VALUE] * BATCH
    for number, chunk in enumerate(batches(keys)):
        windows.restore(chunk, values[: len(chunk)], number)
    windows.close()
    shutil.rmtree(store.path)


def bench_restore(stores: Stores, keys: list[bytes]) -> None:
    random_keys = shuffled(keys)
    repeated = random.Random(2).choices(keys[: len(keys) // 10], k=len(keys))
    per_window = max(1, len(keys) // 100)
    windowed = [window_key(key, i // per_window * 60_000) for i, key in enumerate(random_keys)]
    table = compare(
        {
            "SstFileWriter and ingest, sorted": partial(ingested, stores, keys),
            "restore, sorted": partial(restored, stores, keys),
            "restore, random": partial(restored, stores, random_keys),
            "restore, random, ten values for a key": partial(restored, stores, repeated),
            "restore, windows of random keys": partial(restored_windows, stores, windowed),
        }
    )
    print_table(f"restoring {len(keys)} records into an empty store, opening and closing included", table, len(keys))


def bench_windows(stores: Stores) -> None:
    keys = keys_of(1000)
    windows = WindowBytesStore(stores.rocksdb(), retention_ms=120_000, segment_interval_ms=60_000)
    clock = count(0, 6000)

    def write_windows(number: int) -> None:
        for _ in range(number):
            start = next(clock)
            windows.write([(key, start, VALUE) for key in keys], changelog_offset=start)

    write_windows(200)
    table = compare({"write of one window, with expiry": partial(write_windows, 10)})
    print_table("window store, 20 windows of 1000 keys within retention, per row", table, 10 * len(keys), unit="row")
    chosen = shuffled(keys)[:500]
    last = windows.stream_time_ms
    table = compare(
        {
            "get": lambda: [windows.get(key, last) for key in chosen],
            "fetch of 20 windows of a key": lambda: [list(windows.fetch(key, 0, last)) for key in chosen],
        }
    )
    print_table("window store, each", table, len(chosen))
    rows = sum(1 for _ in windows.fetch_all())
    table = compare({"fetch_all": lambda: sum(1 for _ in windows.fetch_all())})
    print_table("window store, per row", table, rows, unit="row")
    windows.close()


def bench_opening(stores: Stores, keys: list[bytes]) -> None:
    store = stores.rocksdb()
    write_all(store, keys)
    store.close()

    def reopen() -> None:
        RocksDBStore(store.path, "bench", OPTIONS).close()

    table = compare({"open and close a store": reopen, "open and close a new one": lambda: stores.rocksdb().close()})
    print_table("opening, each", table, 1, unit="store")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    keys = keys_of(parser.parse_args().keys)
    tune_malloc()
    root = Path(tempfile.mkdtemp(prefix="bench-state-"))
    try:
        stores = Stores(root)
        bench_reads(stores, keys)
        bench_writes(stores, keys)
        bench_restore(stores, keys)
        bench_windows(stores)
        bench_opening(stores, keys)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
