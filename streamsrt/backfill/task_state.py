"""What a task keeps while it is replayed: its stores, and of each changelog the last value of every key.

1. Both are on disk, in a folder of the attempt that is deleted with it, under one budget of memory, however long the history
   is and however many rows there are. Without a folder they are in memory: for tests.
2. A deleted key has no last value: the changelog was empty before.
3. Of a store of versions every record is kept: each is a version, or ends one.
"""

from __future__ import annotations

import marshal
import shutil
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from struct import Struct

from streamsrt.state.memory import MemoryStore
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.state.store import BytesStore
from streamsrt.tasks.output.record_collector import Keys
from streamsrt.wire.records import Headers

ROCKSDB_BYTES = 48 << 20
"""Blocks that are read and write buffers, of all stores of a task."""

LastValue = tuple[bytes | None, int, Headers]
"""Value, timestamp in ms, headers."""

_NUMBER = Struct(">q")
_HEAD = Struct(">qI")
"""Timestamp, and how many bytes of headers follow."""


class TaskStores:
    """Stores of one task, in ``folder`` if one is given. Must be closed, which invalidates the files in the folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._options = None
        if folder is not None:
            self._options = RocksDBOptions(memory_bytes=ROCKSDB_BYTES, compression="lz4", saves_memory=True)
        self._opened: list[BytesStore] = []

    def open(self, name: str) -> BytesStore:
        """A new store of bytes. Raises StateError."""
        store: BytesStore
        if self._folder is None or self._options is None:
            store = MemoryStore(name)
        else:
            path = self._folder / str(len(self._opened))
            path.mkdir(parents=True)
            store = RocksDBStore(path, name, self._options)
        self._opened.append(store)
        return store

    def close(self) -> None:
        """Closes everything and deletes it where it was on disk."""
        for store in self._opened:
            if self._folder is not None:
                store.wipe()
        self._opened.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class ChangelogRows:
    """The last value of each key of one changelog, in ``store``."""

    def __init__(self, store: BytesStore) -> None:
        self._store = store
        self._records = 0

    def add(
        self, keys: Keys, values: Keys, timestamps: Sequence[int], headers: Sequence[Headers] | None = None
    ) -> None:
        """Takes columns of the changelog as they are written. Records without a key count for nothing, as in a log that is
        compacted."""
        pack = _HEAD.pack
        if headers is None:
            rows = [
                None if value is None else pack(at, 0) + value for value, at in zip(values, timestamps, strict=True)
            ]
        else:
            rows = []
            for value, at, each in zip(values, timestamps, headers, strict=True):
                packed = marshal.dumps(each) if each else b""
                rows.append(None if value is None else pack(at, len(packed)) + packed + value)
        kept: list[bytes] = [key for key in keys if key is not None]
        if len(kept) < len(keys):
            rows = [row for key, row in zip(keys, rows, strict=True) if key is not None]
        self._records += len(kept)
        # As when it is restored: of many values for one key only the last one is written.
        self._store.restore(kept, rows, self._records)

    def entries(self) -> Iterator[tuple[bytes, LastValue]]:
        """Every key that has a value, in the order of keys."""
        unpack, size = _HEAD.unpack_from, _HEAD.size
        for key, row in self._store.range():
            at, length = unpack(row)
            headers: Headers = marshal.loads(row[size : size + length]) if length else ()
            yield key, (row[size + length :], at, headers)


class ChangelogVersions:
    """Every record of one changelog, in the order in which they were written: what a store of versions is restored from."""

    def __init__(self, store: BytesStore) -> None:
        self._store = store
        self._records = 0

    def add(
        self, keys: Keys, values: Keys, timestamps: Sequence[int], headers: Sequence[Headers] | None = None
    ) -> None:
        """Takes columns of the changelog as they are written."""
        each = repeat(()) if headers is None else headers
        records = zip(keys, values, timestamps, each, strict=headers is not None)
        first = self._records
        rows = [
            (_NUMBER.pack(number), marshal.dumps((key, value, at, tuple(of_record))))
            for number, (key, value, at, of_record) in enumerate(records, first)
        ]
        self._records += len(rows)
        self._store.write(rows)

    def entries(self) -> Iterator[tuple[bytes, LastValue]]:
        """Every record that has a key, deletions too."""
        for _, row in self._store.range():
            key, value, at, headers = marshal.loads(row)
            if key is not None:
                yield key, (value, at, headers)
