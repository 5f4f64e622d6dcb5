"""What lies in the state directory of an instance that does not run, and how two states differ.

1. Data are only read: nothing is repaired or deleted. RocksDB writes into its log and rocksdict its configuration when they
   open a store; both are no data. A directory that a running instance holds is refused, as its files are behind what it has
   committed.
2. Without the application, rows are the bytes that RocksDB has, but for what a store keeps there for itself, such as its
   stream time. With it, they are read by the store's serdes, as an export has them.
3. States are compared by key, window and start of version, whatever partition a row is in. Of rows that are read by serdes,
   values are compared; of bytes, all. The rows of the first state are held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from glob import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from streamsrt.backfill.parquet_files import opened, parquet
from streamsrt.backfill.state_reading import (
    COLUMNS,
    EXPORTED,
    TIMES,
    StateFiles,
    StateRow,
    StoreReading,
    refuse_running,
    row_batch,
    row_schema,
)
from streamsrt.errors import ConfigError
from streamsrt.json_text import json_text
from streamsrt.state.kinds import own_keys_of
from streamsrt.state.rocksdb_files import RocksDBFiles
from streamsrt.state.store_format import StoreFormat, read_format

if TYPE_CHECKING:
    import pyarrow

_DATA = {".sst", ".log", ".blob"}

_ROWS = 10_000

RowKey: TypeAlias = tuple[object, int | None, int | None, int | None]


class FoundStore(NamedTuple):
    """A store on disk. ``kind`` and ``changelog`` are None where no note says so; ``rows`` is RocksDB's estimate."""

    store: str
    partition: int
    kind: str | None
    rows: int
    size_bytes: int
    changelog: str | None
    position: int | None
    changed_at_s: float


class StoppedState:
    """The state of one application in a state directory, or in the directory of the application below it.

    Raises ConfigError where there is none or several, StateDirectoryLockedError where an instance runs.
    """

    def __init__(self, directory: Path) -> None:
        self.path = _application_directory(directory)
        refuse_running(self.path, "stop it first")

    @property
    def application_id(self) -> str:
        return self.path.name

    def stores(self) -> list[FoundStore]:
        """All stores, by name and partition. Raises StoreCorruptedError."""
        return [self._found(store, partition) for store, partition in self._on_disk()]

    def kind_of(self, store: str) -> str | None:
        """The kind of a store; None where its files were installed, and no instance has opened them yet."""
        kinds = (self._kind(store, partition) for name, partition in self._on_disk() if name == store)
        return next((kind for kind in kinds if kind is not None), None)

    def rows(self, store: str, reading: StoreReading | None, kind: str | None = None) -> Iterator[StateRow]:
        """The rows of a store, by partition; of a global one, those of one process. ``kind``: of the store, where this state
        does not say it. Raises ConfigError where it is not there."""
        kept_as = store if reading is None else reading.spec.kept_as
        partitions = [partition for name, partition in self._on_disk() if name == kept_as]
        if not partitions:
            there = sorted({name for name, _ in self._on_disk()})
            raise ConfigError(f"{self.path} has no store {store!r}; it has {', '.join(there) or 'none'}")
        if reading is not None:
            files = StateFiles(reading, self.path.parent)
            for partition in files.partitions():
                with files.snapshot(partition) as snapshot:
                    yield from snapshot.rows
            return
        for partition in partitions[:1] if self._is_global(store) else partitions:
            own_keys = own_keys_of(self._kind(store, partition) or kind)
            with RocksDBFiles(self._store_path(store, partition), store) as files_of_store:
                for key, row in files_of_store.range():
                    if key not in own_keys:
                        yield StateRow(key, row, None, None, None, None, partition)

    def has(self, store: str, reading: StoreReading | None) -> bool:
        """Whether the store is there."""
        return any(name == (store if reading is None else reading.spec.kept_as) for name, _ in self._on_disk())

    def _is_global(self, store: str) -> bool:
        return next((self.path / "global").glob(f"{escape(store)}-*.json"), None) is not None

    def _on_disk(self) -> list[tuple[str, int]]:
        found = (self.path / "stores").glob("*/*")
        return sorted((path.parent.name, int(path.name)) for path in found if path.name.isdecimal() and path.is_dir())

    def _store_path(self, store: str, partition: int) -> Path:
        return self.path / "stores" / store / str(partition)

    def _noted(self, store: str, partition: int) -> StoreFormat:
        path = self._store_path(store, partition)
        return read_format(path.with_name(f"{path.name}.json")) or {}

    def _kind(self, store: str, partition: int) -> str | None:
        kind = self._noted(store, partition).get("kind")
        return None if kind is None else str(kind)

    def _found(self, store: str, partition: int) -> FoundStore:
        path, kind = self._store_path(store, partition), self._kind(store, partition)
        changelog = self._noted(store, partition).get("changelog")
        # Who only looks writes, too: RocksDB into its log LOG, rocksdict its configuration.
        files = [each.stat() for each in path.iterdir() if each.suffix in _DATA or each.name.startswith("MANIFEST")]
        with RocksDBFiles(path, store) as opened:
            own = sum(opened.get(key) is not None for key in own_keys_of(kind))
            return FoundStore(
                store,
                partition,
                kind,
                max(0, opened.estimated_rows() - own),
                sum(each.st_size for each in files),
                None if changelog is None else str(changelog),
                opened.changelog_offset(),
                max((each.st_mtime for each in files), default=0.0),
            )


def _application_directory(directory: Path) -> Path:
    if (directory / "stores").is_dir():
        return directory.absolute()
    below = sorted(path.parent for path in directory.glob("*/stores") if path.is_dir())
    if len(below) == 1:
        return below[0].absolute()
    if below:
        raise ConfigError(
            f"{directory} has the state of several applications: give one of {', '.join(map(str, below))}"
        )
    raise ConfigError(
        f"{directory} has no state: give the state directory of an instance (--state-dir of streamsrt run), or the "
        "directory of the application below it"
    )


# ---------------------------------------------------------------------------------------------------------- comparison


def is_export(directory: Path) -> bool:
    """Whether ``streamsrt state export`` has written the directory."""
    return next(directory.glob(EXPORTED), None) is not None


def is_typed(directory: Path) -> bool:
    """Whether an export has real types instead of text and milliseconds."""
    path = next(directory.glob(EXPORTED))
    return str(parquet().read_schema(path).field("timestamp").type) != "int64"


def exported_rows(directory: Path) -> Iterator[StateRow]:
    """The rows of an export, by partition; times in ms."""
    for path in sorted(directory.glob(EXPORTED)):
        with opened(path, "Export the state again, or bring the file back") as file:
            for batch in file.iter_batches(columns=list(COLUMNS)):
                yield from _rows_of(batch)


def as_exported(rows: Iterator[StateRow], reading: StoreReading) -> Iterator[StateRow]:
    """Rows as they would be read from a typed export of them."""
    schema = row_schema(reading)
    while chunk := list(islice(rows, _ROWS)):
        yield from _rows_of(row_batch(schema, chunk))


def _rows_of(batch: pyarrow.RecordBatch) -> Iterator[StateRow]:
    columns = [
        column.to_pylist() if str(column.type) == "int64" or name not in TIMES else _ms(column.to_pylist())
        for name, column in zip(COLUMNS, batch.columns, strict=True)
    ]
    yield from (StateRow(*row) for row in zip(*columns, strict=True))


def _ms(times: list[datetime | None]) -> list[int | None]:
    from streamsrt.backfill.column_types import ms_of_time

    return [ms_of_time(time) for time in times]


class Difference(NamedTuple):
    """A row that is in one state only, or has another value in the other one. ``first`` or ``second`` is None: not there."""

    key: RowKey
    first: StateRow | None
    second: StateRow | None


@dataclass
class Comparison:
    """How two states of a store differ. ``shown`` are the first differences."""

    first_rows: int = 0
    second_rows: int = 0
    only_first: int = 0
    only_second: int = 0
    different: int = 0
    shown: list[Difference] = field(default_factory=list)

    @property
    def are_equal(self) -> bool:
        return not (self.only_first or self.only_second or self.different)


def compare_rows(first: Iterator[StateRow], second: Iterator[StateRow], shown: int) -> Comparison:
    """Compares two states of a store; ``shown`` is how many differences are kept."""
    found = Comparison()
    left: dict[RowKey, StateRow] = {}
    for row in first:
        found.first_rows += 1
        left[_key(row)] = row

    def keep(difference: Difference) -> None:
        if len(found.shown) < shown:
            found.shown.append(difference)

    for row in second:
        found.second_rows += 1
        other = left.pop(key := _key(row), None)
        if other is None:
            found.only_second += 1
            keep(Difference(key, None, row))
        elif other.value != row.value:
            found.different += 1
            keep(Difference(key, other, row))
    found.only_first = len(left)
    for key, row in left.items():
        keep(Difference(key, row, None))
    return found


def _key(row: StateRow) -> RowKey:
    # A version is one of several of its key; elsewhere the timestamp is no part of what a row is.
    starts = row.timestamp if row.valid_to is not None else None
    # Keys with fields are dicts.
    key = row.key if isinstance(row.key, str | bytes | int | float | None) else json_text(row.key)
    return key, row.window_start, row.window_end, starts
