"""The disk of a simulated host: the files of an instance, and what a crash leaves of them.

By the contract of a store (:mod:`streamsrt.state.store`), nothing is durable before a flush, unless the store chooses
to flush, and batches become durable in order. So after a crash a store contains its last flush and any number of the
batches after it: a random generator of the host decides how many.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from streamsrt.errors import StateError
from streamsrt.state.directory import LocalStore, StateDirectory
from streamsrt.state.kinds import LaidOut, check_kind, lay_out, make_store
from streamsrt.state.memory import MemoryStore
from streamsrt.state.rocksdb import RocksDBOptions
from streamsrt.state.store_format import StoreFormat, differences, store_format
from topology.graph.nodes import StoreSpec

Batch = tuple[tuple[tuple[bytes, bytes | None], ...], int | None]


class Disk:
    """The data that survives the process: the process id, and the files of its stores."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.process_id = uuid.UUID(int=chance.getrandbits(128), version=4)
        self.files: dict[tuple[str, int], File] = {}
        self.formats: dict[tuple[str, int], StoreFormat] = {}
        self.positions: dict[tuple[str, int], dict[int, int]] = {}

    def crash(self) -> None:
        """Simulates a crash of the process: each file keeps what a crash leaves."""
        for file in self.files.values():
            file.crash(self.chance)

    def lose(self) -> None:
        """Replaces the disk by an empty one; the process that starts there is a new one."""
        self.files.clear()
        self.formats.clear()
        self.positions.clear()
        self.process_id = uuid.UUID(int=self.chance.getrandbits(128), version=4)


class File:
    """A store on disk: durable contents, and batches that may survive."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.changelog_offset: int | None = None
        self.unflushed: list[Batch] = []

    def flush(self) -> None:
        for batch in self.unflushed:
            self._apply(batch)
        self.unflushed.clear()

    def crash(self, chance: random.Random) -> None:
        del self.unflushed[chance.randint(0, len(self.unflushed)) :]
        self.flush()

    def _apply(self, batch: Batch) -> None:
        puts, changelog_offset = batch
        for key, value in puts:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        if changelog_offset is not None:
            self.changelog_offset = changelog_offset


class DiskStore(MemoryStore):
    """A store backed by a file, as long as the process lives."""

    persistent = True

    def __init__(self, name: str, file: File) -> None:
        super().__init__(name)
        self.file = file
        super().write(file.rows.items(), changelog_offset=file.changelog_offset)

    def write(self, puts: Iterable[tuple[bytes, bytes | None]], *, changelog_offset: int | None = None) -> None:
        written = tuple(puts)
        super().write(written, changelog_offset=changelog_offset)
        self.file.unflushed.append((written, changelog_offset))

    def flush(self) -> None:
        super().flush()
        self.file.flush()

    def close(self) -> None:
        if self.is_open:
            self.file.flush()
        super().close()

    def wipe(self) -> None:
        super().wipe()
        self.file.rows.clear()
        self.file.unflushed.clear()
        self.file.changelog_offset = None


@lru_cache(maxsize=1)
def _no_rocksdb() -> RocksDBOptions:
    """Returns options that open nothing; they are used to report RocksDB's memory."""
    return RocksDBOptions()


class SimulatedDirectory(StateDirectory):
    """The state directory of one process on a :class:`Disk`. Call :meth:`detach` when the process is dead: then nothing
    that it does reaches the disk."""

    def __init__(self, disk: Disk) -> None:
        self.path = Path("/simulated")
        self.process_id = disk.process_id
        self.rocksdb = _no_rocksdb()
        self._disk = disk
        self._opened: dict[tuple[str, int], LaidOut] = {}
        self._stores: list[DiskStore] = []

    def detach(self) -> None:
        """Disconnects a dead process: writes of code that is still being unwound are dropped."""
        self._disk = Disk(random.Random(0))
        for store in self._stores:
            store.file = File()

    def open_store(self, spec: StoreSpec, partition: int) -> LaidOut:
        key = (spec.kept_as, partition)
        if self.is_open(*key):
            raise StateError(f"state store {spec.name!r} of partition {partition} is already open in this process")
        check_kind(spec)
        if spec.persistent:
            wanted = store_format(spec)
            if differences(self._disk.formats.get(key), wanted):
                self._disk.files.pop(key, None)
            self._disk.formats[key] = wanted
            file = self._disk.files.setdefault(key, File())
            store = DiskStore(spec.name, file)
            self._stores.append(store)
            opened = self._opened[key] = lay_out(spec, store)
        else:
            opened = self._opened[key] = lay_out(spec, make_store(spec))
        return opened

    def is_open(self, store: str, partition: int) -> bool:
        opened = self._opened.get((store, partition))
        return opened is not None and opened.is_open

    def list_stores(self) -> list[LocalStore]:
        return [
            LocalStore(
                *key,
                self._opened[key].changelog_offset() if self.is_open(*key) else file.changelog_offset,
            )
            for key, file in sorted(self._disk.files.items())
        ]

    def wipe(self, store: str, partition: int) -> None:
        opened = self._opened.pop((store, partition), None)
        if opened is not None:
            opened.wipe()
        self._disk.files.pop((store, partition), None)
        self._disk.formats.pop((store, partition), None)

    def clean_obsolete(self, now_ms: int, cleanup_delay_ms: int) -> list[tuple[str, int]]:
        return []

    def read_positions(self, store: str, replica: int) -> dict[int, int]:
        return dict(self._disk.positions.get((store, replica), {}))

    def write_positions(self, store: str, replica: int, positions: Mapping[int, int]) -> None:
        self._disk.positions[store, replica] = dict(positions)

    def close(self) -> None:
        for store in self._opened.values():
            store.close()
        self._opened.clear()
