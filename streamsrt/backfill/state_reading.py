"""The committed state of an application as rows: for exports and data frames.

1. A store is read from one place: from its changelog in the cluster (:class:`StateLog`), whether or not an instance runs, or
   from the files of an instance that does not run (:class:`StateFiles`). What a running instance has in its files is behind
   what it has committed, so such files are refused.
2. From the changelog it is what an instance would restore: all partitions, each up to one position, which is taken of all of
   them at once, when the source is made. The end of a changelog is that of ``read_committed``. Of a source topic that serves
   as changelog the committed offset of the group is the end: what lies behind it is input.
3. Restoring goes into a RocksDB that is deleted afterwards, so a store need not fit into memory. It always begins with the
   changelog's start. Files that are days old can't be brought up to date: the deletions since then may be compacted away.
4. Keys and values are text where the store's serde makes text of them: a string as it is, anything else that JSON can say as
   JSON. Others stay bytes. What a column is depends on the serde alone. ``typed``: keys and values have the types of
   :mod:`streamsrt.backfill.column_types` instead, and times are timestamps.
5. Expired windows that are not deleted yet are left out, as in a query.
6. A row that its serdes can't read, or that is none of a store of that kind, ends the reading, unless it is to be skipped:
   then it is counted (:class:`SkippedRows`).
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, Protocol, cast

import orjson

from streamsrt.application import load_application
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.parquet_files import parquet
from streamsrt.backfill.planned_application import configured
from streamsrt.backfill.whole_rows import StoredBytes, WholeRows
from streamsrt.client.interface import Network
from streamsrt.client.values import EARLIEST, LATEST, TopicPartition
from streamsrt.config import StreamsConfig
from streamsrt.errors import ConfigError, DeserializationError, StateDirectoryLockedError, StateError
from streamsrt.json_text import json_text
from streamsrt.state.cache import RowFormat
from streamsrt.state.directory import read_positions
from streamsrt.state.kinds import StoredRow, cache_over, check_kind, functions_of, lay_out
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.state.rocksdb_files import RocksDBFiles
from streamsrt.state.store import BytesStore
from streamsrt.tasks.global_state import GlobalState
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import RecordColumns
from topology.graph.nodes import StoreSpec, Subtopology, internal_topic_name
from topology.graph.store_kinds import store_traits
from topology.graph.topology import Topology
from topology.spec.codecs import OrderedKeys, ProgramSerde, SessionWindowedSerde, TimeWindowedSerde
from topology.spec.row_versions import plain_name
from topology.spec.windows import Windowed

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

_TIME = Struct(">q")
_FILE_ROWS = 100_000
_WRITE_RECORDS = 100_000
SHOWN_KEYS = 5
"""Of so many rows that can't be read the keys are shown."""
POSITION_KEY = b"streamsrt.position"
"""The key of a Parquet file's metadata with the positions of its rows: JSON, by topic and partition."""

ColumnKind = Literal["text", "bytes"]
Positions = dict[TopicPartition, int]


class StateRow(NamedTuple):
    """A row of a store. Times in ms; None where the store has none. Keys and values that are typed are what the columns of
    :func:`row_schema` take.

    ``window_end`` of sessions is included. A version is valid from ``timestamp`` to ``valid_to``, None: still.
    """

    key: object
    value: object
    timestamp: int | None
    window_start: int | None
    window_end: int | None
    valid_to: int | None
    partition: int


COLUMNS = StateRow._fields
TIMES = ("timestamp", "window_start", "window_end", "valid_to")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A partition of a store at one position: of each changelog partition, the offset below which everything is there.

    No positions: nothing is known of them. ``rows`` raises StoreCorruptedError, DeserializationError.
    """

    partition: int
    positions: Positions
    rows: Iterator[StateRow]


class StoreSource(Protocol):
    """Where a store is read from."""

    @property
    def store(self) -> StoreReading: ...

    def partitions(self) -> list[int]:
        """The partitions that are there."""

    def snapshot(self, partition: int) -> AbstractContextManager[Snapshot]:
        """A context with the :class:`Snapshot` of one partition, which is read in the context."""


@dataclass(slots=True)
class SkippedRows:
    """Rows that could not be read. ``unfit``: those of them that do not fit into typed columns. ``first``: partition and
    key's bytes of the first few."""

    count: int = 0
    unfit: int = 0
    first: list[tuple[int, bytes]] = field(default_factory=list)

    def add(self, partition: int, key: bytes) -> None:
        self.count += 1
        if len(self.first) < SHOWN_KEYS:
            self.first.append((partition, key))


class StoreReading:
    """Returns the reader of one store of an application. ``typed``: with real types instead of text and milliseconds.
    ``skipped``: takes the rows that can't be read; without it they are errors. ``config``: settings that go before those
    of the module. Raises ConfigError if there is no store of that name."""

    def __init__(
        self,
        application: str,
        application_id: str,
        store: str,
        *,
        typed: bool = False,
        skipped: SkippedRows | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.typed = typed
        self.skipped = skipped
        loaded = load_application(application)
        topology, settings = configured(loaded.topology, {**loaded.config, **(config or {})}, application_id)
        found = _with_store(topology, store)
        if found is None:
            names = [spec.name for each in _all(topology) for spec in each.stores]
            raise ConfigError(f"{application} has no store {store!r}; it has {', '.join(sorted(names)) or 'none'}")
        self.application_id = application_id
        self.subtopology, self.spec = found
        self.config: StreamsConfig = settings
        check_kind(self.spec)
        self.is_global = self.subtopology in topology.global_subtopologies
        column = _typed_column if typed else _column
        self.key_type, self._read_key = column(self.spec.key_serde, "key")
        self.value_type, self._read_value = column(self.spec.value_serde, "value")
        self.row_format = RowFormat(
            _never, _never, timestamped=self.spec.timestamped and not (self.spec.plain_rows and not self.is_global)
        )

    @property
    def changelog(self) -> str | None:
        """The topic that the store is restored from; None where there is none."""
        if self.is_global:
            return self.subtopology.sources[0].topics[0]
        if self.spec.source_topic is not None or not self.spec.logging:
            return self.spec.source_topic
        return internal_topic_name(self.application_id, self.spec.changelog_name)

    def rows(self, store: StoredBytes, partition: int) -> Iterator[StateRow]:
        """The rows of a byte store. Raises DeserializationError."""
        functions = functions_of(self.spec)
        whole = WholeRows(store, self.spec.name, functions.is_whole, functions.own_keys)
        laid_out = lay_out(self.spec, cast(BytesStore, whole))
        whole.on_damaged = lambda key: self.skip(partition, key, f"a {self.spec.kind} store has no rows of that form")
        for stored in functions.rows(self.spec, laid_out):
            try:
                row = self._typed(stored, partition)
            except _UnfitColumnError as error:
                self._skip(partition, stored.key, f"is read by its serde, but does not fit into {error}", error)
                if self.skipped is not None:
                    self.skipped.unfit += 1
                continue
            except Exception as error:  # noqa: BLE001  # a user's serde may raise anything
                self.skip(partition, stored.key, str(error), error)
                continue
            yield row

    def skip(self, partition: int, key: bytes, reason: str, cause: Exception | None = None) -> None:
        """Counts a row that can't be read. Raises DeserializationError where such rows are not skipped."""
        what = f"is not what its serde reads: {reason}. Check that the application is the one that wrote it"
        self._skip(partition, key, what, cause)

    def _skip(self, partition: int, key: bytes, what: str, cause: Exception | None) -> None:
        if self.skipped is None:
            raise DeserializationError(
                f"a row of store {self.spec.name}, partition {partition}, key 0x{key.hex()}, {what}; "
                "streamsrt state export, state inspect and state diff leave such rows out with --skip-unreadable"
            ) from cause
        self.skipped.add(partition, key)

    def is_damaged(self, key: bytes) -> bool:
        """Whether a key of the changelog is none that the store could be restored from."""
        if len(key) < functions_of(self.spec).logged_key_bytes:
            return True
        if isinstance(self.spec.key_serde, OrderedKeys):
            try:
                self.spec.key_serde.order(key)
            except Exception:  # noqa: BLE001  # a user's order may raise anything
                return True
        return False

    def _typed(self, stored: StoredRow, partition: int) -> StateRow:
        unpack = functions_of(self.spec).unpack
        timestamp: int | None = stored.timestamp
        value: bytes | None = stored.row
        if unpack is not None:
            timestamp, value = unpack(self.spec.name, stored.key, stored.row)
        elif self.row_format.timestamped and store_traits(self.spec).row_timestamps:
            timestamp, value = _TIME.unpack_from(stored.row)[0], stored.row[_TIME.size :]
        key, start, end = self._read_key(stored.key), stored.window_start, stored.window_end
        if isinstance(key, _OfWindow):
            key, start, end = key
        read = None if value is None else self._read_value(value)
        return StateRow(key, read, timestamp, start, end, stored.valid_to, partition)


class _OfWindow(NamedTuple):
    """A key that has a window in it, as the column shows it."""

    key: object
    start_ms: int
    end_ms: int


class _UnfitColumnError(Exception):
    """A value that its serde reads does not fit into a column: the message names it, and says why and what to do."""


def _fitting(convert: Callable[[object], object], column: str) -> Callable[[object], object]:
    """The conversion of a column with typed values."""
    from streamsrt.backfill.column_types import UnfitValueError

    def fitting(value: object) -> object:
        try:
            return convert(value)
        except Exception as error:
            name = ".".join((column, *(error.fields if isinstance(error, UnfitValueError) else ())))
            raise _UnfitColumnError(
                f"column {name}: {error}. Leave out the types (--typed; in Spark the option typed): it is JSON text then"
            ) from error

    return fitting


def _never(_: object) -> NoReturn:
    raise AssertionError("rows are read as bytes")


def _all(topology: Topology) -> Sequence[Subtopology]:
    return (*topology.subtopologies, *topology.global_subtopologies)


def _with_store(topology: Topology, store: str) -> tuple[Subtopology, StoreSpec] | None:
    """The store of that name, else the one that keeps its state under it."""
    found = [(each, spec) for each in _all(topology) for spec in each.stores if store in (spec.name, spec.kept_as)]
    return next((each for each in found if each[1].name == store), found[0] if found else None)


def has_store(application: str, store: str) -> bool:
    """Whether the application has a store of that name, or one that keeps its state under it."""
    return _with_store(load_application(application).topology, store) is not None


def _typed_column(
    serde: ProgramSerde | None, name: str
) -> tuple[ColumnKind | pyarrow.DataType, Callable[[bytes], object]]:
    # Not before it is wanted: what has no types needs no Arrow.
    parquet()
    from streamsrt.backfill.column_types import column_type

    if isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        inner, deserialize = column_type(serde.inner), serde.deserialize
        convert = _fitting(inner.of, name)

        def read(raw: bytes) -> _OfWindow:
            found = deserialize(raw)
            return _OfWindow(convert(found.key), found.start_ms, found.end_ms)

        return inner.type, read
    column = column_type(serde)
    if serde is None:
        return column.type, bytes
    plain: Callable[[bytes], object] = serde.deserialize
    fitting = _fitting(column.of, name)
    return column.type, lambda raw: fitting(plain(raw))


def _column(serde: ProgramSerde | None, _name: str) -> tuple[ColumnKind | pyarrow.DataType, Callable[[bytes], object]]:
    kind = "bytes" if serde is None else plain_name(serde)
    if serde is None or kind == "bytes":
        return "bytes", bytes if serde is None else serde.deserialize
    if kind == "string":
        return "text", serde.deserialize
    deserialize = serde.deserialize

    def read(raw: bytes) -> str | _OfWindow:
        found = deserialize(raw)
        if isinstance(found, Windowed):
            return _OfWindow(_text(found.key), found.start_ms, found.end_ms)
        return json_text(found)

    return "text", read


def _text(value: object) -> str:
    return value if isinstance(value, str) else json_text(value)


# ------------------------------------------------------------------------------------------------------------- the cluster


class StateLog:
    """A store as its changelog has it. The positions are those of the moment when this is made.

    ``positions``: of an earlier one, to be of its moment. Raises ConfigError for a store without a changelog, BrokerError.
    """

    def __init__(self, store: StoreReading, network: Network, positions: Positions | None = None) -> None:
        self.store = store
        self._network = network
        topic = store.changelog
        if topic is None:
            raise ConfigError(
                f"store {store.spec.name!r} has no changelog (logging=False): stop the instance, and give the directory "
                "of its state"
            )
        self._topic = topic
        self.positions = self._ends(topic) if positions is None else positions

    def _ends(self, topic: str) -> Positions:
        admin = self._network.admin
        count = admin.partitions_for({topic}).get(topic)
        if count is None:
            raise ConfigError(
                f"store {self.store.spec.name!r} is restored from topic {topic!r}, which does not exist: application "
                f"{self.store.application_id!r} has not run on this cluster yet, or has another name"
            )
        partitions = [(topic, partition) for partition in range(count)]
        latest = admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
        ends = {tp: at.offset for tp, at in latest.items()}
        if self.store.spec.source_topic is None or self.store.is_global:
            return ends
        starts = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        committed = admin.committed(self.store.application_id, partitions)
        # Nothing committed: nothing of the topic was read yet.
        return {tp: min(ends[tp], committed[tp].offset) if tp in committed else starts[tp].offset for tp in partitions}

    def partitions(self) -> list[int]:
        """All partitions of the store."""
        return [0] if self.store.is_global else sorted(partition for _, partition in self.positions)

    @contextmanager
    def snapshot(self, partition: int) -> Iterator[Snapshot]:
        """The rows of one partition; of a global store, those of all."""
        positions = {tp: end for tp, end in self.positions.items() if self.store.is_global or tp[1] == partition}
        with tempfile.TemporaryDirectory(prefix="streamsrt-state-") as folder:
            restored = RocksDBStore(Path(folder) / "store", self.store.spec.name, RocksDBOptions())
            try:
                if self.store.is_global:
                    self._fill(restored, positions)
                else:
                    self._restore(restored, positions)
                yield Snapshot(partition, positions, self.store.rows(restored, partition))
            finally:
                restored.close()

    def _restore(self, restored: RocksDBStore, positions: Positions) -> None:
        spec = self.store.spec
        cache = cache_over(spec, lay_out(spec, restored), self.store.row_format)
        for tp, end in positions.items():
            damaged: dict[bytes, bool] = {}
            for columns in read_log(self._network, tp, 0, end):
                for key, value in zip(columns.keys, columns.values, strict=True):
                    if key is not None and self.store.is_damaged(key):
                        damaged[key] = value is not None
                cache.restore(_restorable(columns, damaged))
            for key, is_there in damaged.items():
                if is_there:
                    self.store.skip(tp[1], key, f"no key in the changelog of a {spec.kind} store is like that")

    def _fill(self, restored: RocksDBStore, positions: Positions) -> None:
        state = GlobalState(
            [self.store.subtopology],
            application_id=self.store.application_id,
            stores={self.store.spec.name: restored},
            config=TaskConfig.of(self.store.config),
        )
        records = 0
        for tp, end in positions.items():
            for columns in read_log(self._network, tp, 0, end):
                state.apply(*tp, columns)
                records += len(columns)
                if records >= _WRITE_RECORDS:
                    state.write()
                    state.evict(0)
                    records = 0
        state.write()
        state.close()


def _restorable(columns: RecordColumns, damaged: Collection[bytes]) -> RecordColumns:
    """Without damaged keys, and without the records of a source topic that have no key, which are in no table."""
    if None not in columns.keys and not damaged:
        return columns
    kept = [index for index, key in enumerate(columns.keys) if key is not None and key not in damaged]
    return RecordColumns(
        [columns.keys[index] for index in kept],
        [columns.values[index] for index in kept],
        [columns.timestamps[index] for index in kept],
        columns.base_offset,
        columns.next_offset,
    )


# --------------------------------------------------------------------------------------------------------------- the files


class StateFiles:
    """A store in the state directory of an instance that does not run.

    Each process of an instance has global stores of its own, which hold the same: one of them is read. Raises ConfigError
    where there is nothing to be read.
    """

    def __init__(self, store: StoreReading, state_dir: Path) -> None:
        self.store = store
        spec = store.spec
        self._directory = state_dir / store.application_id
        self._root = self._directory / "stores" / spec.kept_as
        if not spec.persistent:
            raise ConfigError(f"store {spec.name!r} is not in files: {_FROM_CHANGELOG}")
        if not self._root.is_dir():
            raise ConfigError(f"{self._root} does not exist: store {spec.name!r} was never kept in {state_dir}")

    @cached_property
    def _found(self) -> list[int]:
        found = sorted(int(path.name) for path in self._root.iterdir() if path.name.isdecimal())
        return found[:1] if self.store.is_global else found

    def partitions(self) -> list[int]:
        """The partitions that are here; of a global store, the number of the process whose files are read."""
        return self._found

    @contextmanager
    def snapshot(self, partition: int) -> Iterator[Snapshot]:
        """The rows of one partition. Raises StateDirectoryLockedError where an instance runs."""
        self._refuse_running()
        with RocksDBFiles(self._root / str(partition), self.store.spec.name) as files:
            # Files are read as they were when they were opened. Who starts later changes nothing of that.
            self._refuse_running()
            positions = self._positions(partition, files.changelog_offset())
            yield Snapshot(partition, positions, self.store.rows(files, partition))

    def _positions(self, partition: int, offset: int | None) -> Positions:
        topic = self.store.changelog
        if offset is None or topic is None:
            return {}
        if not self.store.is_global:
            return {(topic, partition): offset}
        # Of a global store, the files note the sum of the positions; they are ahead of a note that was not written any more.
        noted = read_positions(self._directory, self.store.spec.kept_as, partition)
        return {(topic, of): at for of, at in noted.items()} if sum(noted.values()) <= offset else {}

    def _refuse_running(self) -> None:
        refuse_running(self._directory, _FROM_CHANGELOG if self.store.changelog else "stop it first")


def refuse_running(directory: Path, instead: str) -> None:
    """Raises StateDirectoryLockedError where an instance runs with an application's directory; ``instead``: what to do about
    it."""
    try:
        with open(directory / ".lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return
    except BlockingIOError:
        raise StateDirectoryLockedError(
            f"an instance runs with {directory}, and its files are behind what it has committed: {instead}"
        ) from None
    except OSError as error:
        raise StateError(f"state directory {directory} can't be read: {error}") from error


_FROM_CHANGELOG = "leave the state directory out to read it from its changelog in the cluster (bootstrap servers)"


# ----------------------------------------------------------------------------------------------------------------- Parquet


@dataclass(frozen=True, slots=True)
class Exported:
    """The number of rows written of a partition, and the changelog positions that they correspond to."""

    partition: int
    rows: int
    positions: Positions


EXPORTED = "partition-*.parquet"


def export_parquet(source: StoreSource, folder: Path) -> list[Exported]:
    """Writes a store as Parquet files, one per partition, with the position in the metadata. Of files of an earlier export
    that this one has not written, see :func:`other_exported`."""
    pq = parquet()
    folder.mkdir(parents=True, exist_ok=True)
    done = []
    for partition in source.partitions():
        with source.snapshot(partition) as snapshot:
            schema = row_schema(source.store, snapshot.positions)
            with (
                _whole_file(folder / f"partition-{partition}.parquet") as path,
                pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer,
            ):
                rows = _write(writer, schema, snapshot.rows)
            done.append(Exported(partition, rows, snapshot.positions))
    return done


def other_exported(folder: Path, exported: Sequence[Exported]) -> list[Path]:
    """The files of a folder which readers take for partitions of the export, and which it has not written: an earlier one,
    of another store or another instance, had these partitions."""
    written = {f"partition-{each.partition}.parquet" for each in exported}
    return sorted(path for path in folder.glob(EXPORTED) if path.name not in written)


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """Where to write a file that is at ``path`` when it is whole: what was written of rows up to an error reads as if it
    were all. Readers pass over names that begin with a dot."""
    fresh = path.with_name(f".{path.name}")
    try:
        yield fresh
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def row_schema(store: StoreReading, positions: Positions | None = None) -> pyarrow.Schema:
    """Returns the columns of a store's rows. ``positions``: the positions for the metadata."""
    import pyarrow as pa

    kinds = {"text": pa.string(), "bytes": pa.binary()}
    key, value = (kinds[kind] if isinstance(kind, str) else kind for kind in (store.key_type, store.value_type))
    time = pa.timestamp("us", tz="UTC") if store.typed else pa.int64()
    types = {**dict.fromkeys(TIMES, time), "key": key, "value": value, "partition": pa.int32()}
    said: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in (positions or {}).items():
        said.setdefault(topic, {})[str(partition)] = offset
    metadata = None if positions is None else {POSITION_KEY: orjson.dumps(said)}
    return pa.schema([(name, types[name]) for name in COLUMNS], metadata=metadata)


def row_batch(schema: pyarrow.Schema, rows: Sequence[StateRow]) -> pyarrow.RecordBatch:
    """Rows as columns of that schema."""
    import pyarrow as pa

    columns: list[Sequence[object]] = list(zip(*rows, strict=True)) if rows else [() for _ in COLUMNS]
    return pa.record_batch(
        [
            pa.array(
                _times(column) if pa.types.is_timestamp(field.type) and field.name in TIMES else column, field.type
            )
            for column, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )


def _times(column: Sequence[object]) -> list[object]:
    from streamsrt.backfill.column_types import time_of_ms

    return [time_of_ms(ms) for ms in column]


def _write(writer: ParquetWriter, schema: pyarrow.Schema, rows: Iterator[StateRow]) -> int:
    total, chunk = 0, []
    for row in rows:
        chunk.append(row)
        if len(chunk) == _FILE_ROWS:
            writer.write_batch(row_batch(schema, chunk))
            total += len(chunk)
            chunk = []
    writer.write_batch(row_batch(schema, chunk))
    return total + len(chunk)
