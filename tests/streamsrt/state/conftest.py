"""Every kind of byte store, to be held to the same rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.sqlite_store import SqliteStore
from streamsrt.state.memory import MemoryStore
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.state.store import BytesStore

# A write buffer of 64 KB is full after some hundred rows: what is read comes from several files and a buffer.
SMALL_BUFFERS = RocksDBOptions(memory_bytes=8 << 20, write_buffers_bytes=4 << 20, write_buffer_bytes=64 << 10)
DEFAULTS = RocksDBOptions()

OpenStore = Callable[[], BytesStore]


def make_memory_store(path: Path) -> BytesStore:
    return MemoryStore("counts")


def make_store_of_the_example(path: Path) -> BytesStore:
    return SqliteStore("counts")


def make_rocksdb_store(path: Path) -> BytesStore:
    return RocksDBStore(path, "counts", DEFAULTS)


def make_rocksdb_store_with_small_buffers(path: Path) -> BytesStore:
    return RocksDBStore(path, "counts", SMALL_BUFFERS)


@pytest.fixture(
    params=[make_memory_store, make_store_of_the_example, make_rocksdb_store, make_rocksdb_store_with_small_buffers]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BytesStore]:
    opened: BytesStore = request.param(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture(params=[make_rocksdb_store, make_rocksdb_store_with_small_buffers])
def open_persistent(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    return lambda: request.param(tmp_path / "store")
