"""A store in RocksDB.

1. The rules of :mod:`streamsrt.state.store` hold. The write-ahead log is off: the changelog is the log.
2. The changelog offset lives in the **same column family** as the data, under another first byte. With the log off,
   RocksDB makes one column family durable as a prefix of its writes, but several ones apart from each other: an atomic
   flush over families is not to be had through rocksdict. The extra byte costs some 35 ns a key.
3. A scan reads through a cursor and asks for its status at the end. The shorter ``items()`` ends silently at a block
   that can't be read, as if there were no more keys.
4. rocksdict keeps RocksDB open, and locked, as long as one of its iterators lives. So scans are known to their store,
   which takes their cursor away when it is closed.
5. A cursor points into the ``ReadOptions`` that it was made with and does not keep it alive: with the bound freed, scans end
   early and silently. So a scan holds both. ``set_iterate_lower_bound`` sets the upper one and is of no use.
6. All stores of a process share one block cache, out of which write buffers are paid too (:class:`RocksDBOptions`). What
   the write buffers have together is bounded here: see :meth:`RocksDBOptions.written`.
7. What is restored is gathered first (:mod:`streamsrt.state.gathered_rows`), and written in the order of keys before
   anything else is done with the store: as one batch, since a skip list takes rows in order several times as fast, and so
   does the flush; or, while many records are restored, as a file of RocksDB, which then takes it over. That costs half as
   much as a batch and its flush. The file has the offset, too, so that rows and offset become durable together, and what
   was written before is flushed before: RocksDB would keep the file in a crash that the older rows do not survive.
8. Small write buffers are faster than big ones: a skip list that fits the processor's cache.
9. While many records are restored, more files are left at level 0 before they are compacted: what is restored by and by is
   rewritten less often. Reading has to look into all of them, so that ends with the restore.
10. A store is used by one thread at a time, and several stores by as many threads. Two things go across: any thread may ask
    how big a store is, and a writer may flush the write buffer of another store, which is not closed meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from streamsrt.errors import ConfigError, StateError, StreamsError
from streamsrt.state.columns import ChangelogColumns
from streamsrt.state.deletion import delete_store
from streamsrt.state.failures import store_error
from streamsrt.state.gathered_rows import Chunk, GatheredRows
from streamsrt.state.rocksdb_files import AFTER_DATA, CHANGELOG_OFFSET, DATA, OFFSET, open_database
from streamsrt.state.store import StoreClosedError, after_prefix

_GATHERED_BUFFERS = 4
"""So many write buffers are gathered for files, by all stores together, and one by each; for batches, one by all."""
_SMALLEST_FILE = 8
"""Less than that part of a write buffer is written as a batch: files have costs of their own."""
_INCOMING = "restored.rows"
"""A file that RocksDB has not taken over yet."""
_ARENA_BLOCK_BYTES = 16 << 10
"""What a store takes for its first rows: a thousand stores with a few rows each should not fill the budget. Larger blocks
are no faster."""
_INGESTED_BLOCK_BYTES = 8 << 10
_SMALL_FILE_BYTES = 8 << 20
"""64 MB are the default: millions of rows that compress well."""
_SMALL_READ_AHEAD_BYTES = 256 << 10
"""Of each file that a compaction reads: 2 MB are the default."""
_PATIENCE = 1.5
_MANY_RECORDS = 100_000
"""From so many records on, a restore changes the options of level 0 for the time of it."""
_LEVEL_0_FILES = 4
_LEVEL_0_FILES_WHILE_RESTORING = 16
"""Less than the 20 at which RocksDB slows writes down."""

_FIRST_CHUNK_ROWS = 16
_LARGEST_CHUNK_ROWS = 1024

Compression = Literal["none", "lz4", "zstd", "snappy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDBOptions:
    """What all RocksDB stores of one process share. Make one and give it to every store.

    ``memory_bytes`` bounds blocks read and write buffers together; of it, write buffers get about ``write_buffers_bytes``
    (None: half of it) before the fullest is flushed.
    ``write_buffer_bytes`` is one store's write buffer.
    """

    memory_bytes: int = 128 << 20
    write_buffers_bytes: int | None = None
    write_buffer_bytes: int = 8 << 20
    background_jobs: int = 2
    bloom_filter_bits_per_key: int = 10
    compression: Compression = "none"
    saves_memory: bool = False
    """Indexes and filters in parts of a few kilobytes. A filter is for a whole file else, over a megabyte for a million
    keys: where there is little memory, it does not fit its part of the cache and is read again for each key. And small
    files: a compaction has index and filter of the file that it writes in memory, beside the budget."""
    statistics: bool = False
    """Whether RocksDB counts what it does, which slows reads and writes down."""
    config_setter: Callable[[str, Options], object] | None = None
    """The program's own: called with a store's name and its options before it is opened, to change them."""
    _cache: Cache = field(init=False, repr=False, compare=False)
    _write_buffers: WriteBufferManager = field(init=False, repr=False, compare=False)
    _gathering: set[int] = field(init=False, repr=False, compare=False)
    _flushing: threading.RLock = field(init=False, repr=False, compare=False)
    _stores: weakref.WeakSet[RocksDBStore] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        cache = Cache(self.memory_bytes)
        object.__setattr__(self, "_cache", cache)
        if self.write_buffers_bytes is None:
            object.__setattr__(self, "write_buffers_bytes", self.memory_bytes // 2)
        buffers = WriteBufferManager.new_write_buffer_manager_with_cache(2 * self._write_buffers_limit, False, cache)
        object.__setattr__(self, "_write_buffers", buffers)
        object.__setattr__(self, "_gathering", set())
        object.__setattr__(self, "_flushing", threading.RLock())
        object.__setattr__(self, "_stores", weakref.WeakSet())

    @property
    def _write_buffers_limit(self) -> int:
        return self.write_buffers_bytes or 0

    def used_bytes(self) -> int:
        """The memory that blocks and write buffers of all stores use now, in bytes."""
        return int(self._cache.get_usage())

    def write_buffers_used_bytes(self) -> int:
        """The memory that the write buffers of all stores use now, in bytes."""
        return int(self._write_buffers.get_usage())

    def opened(self, store: RocksDBStore) -> None:
        with self._flushing:
            self._stores.add(store)

    def written(self) -> None:
        """Called after each write: flushes the fullest write buffer where all together are too big.

        RocksDB's own rule flushes the store that is written to, however little it has, and lets the others keep what they
        have. Where flushing does not keep up with writing, the writer waits.
        """
        used_bytes, limit_bytes = self._write_buffers.get_usage(), self._write_buffers_limit
        if used_bytes <= limit_bytes:
            return
        wait = used_bytes > limit_bytes * _PATIENCE
        # Where another thread sees to it already, that is enough, as long as it does not have to be waited for.
        if not self._flushing.acquire(blocking=wait):
            return
        try:
            fullest = max(self._stores, key=RocksDBStore.write_buffer_bytes, default=None)
            if fullest is not None:
                fullest.flush_write_buffer(wait=wait)
        finally:
            self._flushing.release()

    def closing(self) -> AbstractContextManager[object]:
        """A lock to hold while a store is closed, so that it is not flushed meanwhile."""
        return self._flushing

    def gathers(self, store: int, *, for_files: bool) -> float:
        """This store has restored rows in memory; how many bytes it may have, beside the others."""
        self._gathering.add(store)
        stores = len(self._gathering)
        share = min(1, _GATHERED_BUFFERS / stores) if for_files else 1 / stores
        return min(self.write_buffer_bytes * share, self._write_buffers_limit / stores)

    def gathers_no_more(self, store: int) -> None:
        self._gathering.discard(store)

    def for_one_store(self, name: str = "") -> Options:
        """The options with which the store of that name is opened. Raises ConfigError where the program's setter raises."""
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(self.write_buffer_bytes)
        options.set_write_buffer_manager(self._write_buffers)
        # Hundreds of stores with a block of 1 MB each, which is the default, would fill the budget by being there.
        options.set_arena_block_size(_ARENA_BLOCK_BYTES)
        options.set_max_background_jobs(self.background_jobs)
        options.set_compression_type(getattr(DBCompressionType, self.compression)())
        table = BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_bloom_filter(self.bloom_filter_bits_per_key, False)
        table.set_cache_index_and_filter_blocks(True)
        if self.saves_memory:
            table.set_index_type(BlockBasedIndexType.two_level_index_search())
            table.set_partition_filters(True)
            options.set_target_file_size_base(_SMALL_FILE_BYTES)
            options.set_compaction_readahead_size(_SMALL_READ_AHEAD_BYTES)
        options.set_block_based_table_factory(table)
        # A process has hundreds of stores: RocksDB's log, statistics and reserve of 4 MB are too much for each.
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(1 << 20)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        if self.statistics:
            options.enable_statistics()
        options.set_manifest_preallocation_size(64 << 10)
        if self.config_setter is not None:
            try:
                self.config_setter(name, options)
            except Exception as error:
                raise ConfigError(
                    f"rocksdb.config.setter raised {type(error).__name__} for store {name!r}: {error}"
                ) from error
        return options


class _Scan:
    """A cursor of RocksDB over a range, read in chunks, which its store can take away."""

    __slots__ = (
        "__weakref__",
        "_bounds",
        "_chunk_rows",
        "_cursor",
        "_start",
        "_step",
        "_store",
        "complete",
        "since_ms",
    )

    def __init__(self, store: RocksDBStore, db: Rdict, start: bytes, end: bytes, *, reverse: bool) -> None:
        self.complete = False
        self.since_ms = time.time_ns() // 1_000_000
        self._store = store
        self._bounds = ReadOptions()
        self._bounds.set_iterate_upper_bound(end)
        cursor = db.iter(self._bounds)
        self._cursor: RdictIter | None = cursor
        self._start = start
        self._step: Callable[[], None] | None = cursor.prev if reverse else cursor.next
        self._chunk_rows = _FIRST_CHUNK_ROWS
        if reverse:
            cursor.seek_to_last()
        else:
            cursor.seek(start)

    def release(self) -> None:
        """Releases the cursor and its resources."""
        self._cursor = None
        self._step = None

    def read(self) -> list[tuple[bytes, bytes]]:
        """Returns the next rows. Afterwards ``complete`` shows whether they were the last ones."""
        cursor, step, start = self._cursor, self._step, self._start
        if cursor is None or step is None:
            raise StoreClosedError(self._store.name)
        valid, key_of, value_of = cursor.valid, cursor.key, cursor.value
        rows: list[tuple[bytes, bytes]] = []
        for _ in range(self._chunk_rows):
            if not valid() or (key := key_of()) < start:
                self._end(cursor)
                return rows
            rows.append((key[1:], value_of()))
            step()
        self._chunk_rows = min(self._chunk_rows * 4, _LARGEST_CHUNK_ROWS)
        return rows

    def _end(self, cursor: RdictIter) -> None:
        self.release()
        try:
            cursor.status()
        except Exception as error:
            raise self._store.translated(error, "read") from error
        self.complete = True


def _rows(scan: _Scan, rows: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    while True:
        yield from rows
        if scan.complete:
            return
        rows = scan.read()


class RocksDBStore:
    """A :class:`~streamsrt.state.store.BytesStore` in a RocksDB of its own at ``path`` (Kafka's ``RocksDBStore``).

    Raises :class:`~streamsrt.errors.StoreCorruptedError` where the files can't be trusted,
    :class:`~streamsrt.errors.StateDirectoryLockedError` where somebody has them open, and
    :class:`~streamsrt.errors.StateError` where they can't be written.
    """

    persistent = True
    opened_by = 0
    """The process that has opened one: RocksDB's threads are of that process, and missing in one that is forked from it."""

    def __init__(self, path: Path, name: str, options: RocksDBOptions) -> None:
        RocksDBStore.opened_by = os.getpid()
        self.name = name
        self.path = path
        self._options = options
        self._scans: weakref.WeakSet[_Scan] = weakref.WeakSet()
        self._no_log = WriteOptions()
        # A property, whatever rocksdict's type stub says.
        self._no_log.disable_wal = True  # type: ignore[method-assign, assignment]
        self._db: Rdict | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            # Of a process that was killed.
            (path / _INCOMING).unlink(missing_ok=True)
            opened = options.for_one_store(name)
            db = open_database(path, opened)
        except Exception as error:
            raise self.translated(error, "opened") from error
        try:
            offset = db.get(CHANGELOG_OFFSET)
        except Exception as error:
            db.close()
            raise self.translated(error, "opened") from error
        self._db = db
        self._statistics = opened.get_statistics if options.statistics else None
        options.opened(self)
        self._get: Callable[[bytes], bytes | None] = db.get
        self._gathered = GatheredRows()
        self._is_gathering = False
        self._file_options: Options | None = None
        """Of the files in which many records are restored."""
        self._changelog_offset: int | None = None if offset is None else OFFSET.unpack(offset)[0]

    @property
    def is_open(self) -> bool:
        return self._db is not None

    def _opened(self) -> Rdict:
        """The database, up to date."""
        if self._db is None:
            raise StoreClosedError(self.name)
        if self._is_gathering:
            self._write_restored(self._db)
        return self._db

    def translated(self, error: Exception, doing: str) -> Exception:
        """This package's error for one of RocksDB; a caller's mistake (a str as key) stays what it is."""
        if isinstance(error, DbClosedError):
            return StoreClosedError(self.name)
        if type(error) is not Exception and not isinstance(error, OSError):
            return error
        return store_error(str(error), self.name, self.path, doing)

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._get(b"d" + key)
        except Exception as error:
            raise self.translated(error, "read") from error

    def write(self, puts: Iterable[tuple[bytes, bytes | None]], *, changelog_offset: int | None = None) -> None:
        self.end_restoring()
        self._write(self._opened(), puts, changelog_offset)

    def _write(self, db: Rdict, puts: Iterable[tuple[bytes, bytes | None]], changelog_offset: int | None) -> None:
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in puts:
            if value is None:
                delete(b"d" + key)
            else:
                put(b"d" + key, value)
        self._write_batch(db, batch, changelog_offset)

    def _write_batch(self, db: Rdict, batch: WriteBatch, changelog_offset: int | None) -> None:
        if changelog_offset is not None:
            batch.put(CHANGELOG_OFFSET, OFFSET.pack(changelog_offset))
        try:
            db.write(batch, self._no_log)
        except Exception as error:
            raise self.translated(error, "written") from error
        if changelog_offset is not None:
            self._changelog_offset = changelog_offset
        self._options.written()

    def write_buffer_bytes(self) -> int:
        """What its write buffer takes that is not being flushed."""
        return 0 if self._db is None else self._db.property_int_value("rocksdb.cur-size-active-mem-table") or 0

    def property(self, name: str) -> int:
        """One of RocksDB's integer properties, by its name without ``rocksdb.``; 0 where it has none of that name."""
        # What is gathered stays so: any thread may ask.
        db = self._db
        if db is None:
            raise StoreClosedError(self.name)
        return db.property_int_value(f"rocksdb.{name}") or 0

    def statistics(self) -> str:
        """What RocksDB has counted since it was opened, as text; empty where it does not count (:class:`RocksDBOptions`)."""
        return "" if self._statistics is None else self._statistics() or ""

    def open_since_ms(self) -> list[int]:
        """When each scan began that is not at its end, in epoch milliseconds."""
        return [scan.since_ms for scan in list(self._scans) if not scan.complete]

    def begin_restoring(self, records: int) -> None:
        """Says that about so many records are restored now. Raises StateError."""
        # What a setter has set can't be asked for, and is to be there afterwards.
        if records >= _MANY_RECORDS and self._options.config_setter is None:
            self._compact_at(_LEVEL_0_FILES_WHILE_RESTORING)
            self._file_options = self._options.for_one_store(self.name)

    def end_restoring(self) -> None:
        """Says that the records of :meth:`begin_restoring` are restored. A second call does nothing. Raises StateError."""
        if self._file_options is not None:
            self._opened()
            self._compact_at(_LEVEL_0_FILES)
            self._file_options = None

    def _compact_at(self, files: int) -> None:
        if self._db is None:
            raise StoreClosedError(self.name)
        try:
            self._db.set_options({"level0_file_num_compaction_trigger": str(files)})
        except Exception as error:
            raise self.translated(error, "written") from error

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int) -> None:
        db = self._opened_for_restoring()
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys and {len(values)} values to restore in store {self.name!r}")
        if keys:
            self._gathered.add(keys, values)
        self._restored(db, next_offset)

    def restore_stamped(self, columns: ChangelogColumns) -> None:
        """:meth:`restore` with each value behind its timestamp, which takes 8 bytes."""
        db = self._opened_for_restoring()
        tables, placed = columns.tables, columns.placed
        is_added = (tables is not None and self._gathered.add_tables(tables)) or (
            placed is not None and self._gathered.add_placed(placed)
        )
        if not is_added and columns.keys:
            self._gathered.add(columns.keys, columns.values, columns.timestamps)
        self._restored(db, columns.next_offset)

    def _opened_for_restoring(self) -> Rdict:
        if self._db is None:
            raise StoreClosedError(self.name)
        return self._db

    def _restored(self, db: Rdict, next_offset: int) -> None:
        gathered = self._gathered
        self._is_gathering = True
        self._changelog_offset = next_offset
        self._get = self._get_after_restoring
        limit_bytes = self._options.gathers(id(self), for_files=self._file_options is not None)
        if gathered.size_bytes >= limit_bytes:
            gathered.settle()
            # Where keys are repeated, there is room again.
            if gathered.size_bytes >= limit_bytes / 2:
                self._write_restored(db)

    def _write_restored(self, db: Rdict) -> None:
        gathered, file_options = self._gathered, self._file_options
        if file_options is None or gathered.size_bytes < self._options.write_buffer_bytes // _SMALLEST_FILE:
            batch = WriteBatch(raw_mode=True)
            _fill(batch, gathered.in_order())
            self._write_batch(db, batch, self._changelog_offset)
        else:
            self._ingest_restored(db, gathered.in_order(), file_options)
        self._forget_restored(db)

    def _ingest_restored(self, db: Rdict, chunks: Iterable[Chunk], file_options: Options) -> None:
        path = self.path / _INCOMING
        try:
            db.flush(True)
            writer = SstFileWriter(file_options)
            writer.open(str(path))
            _fill(writer, chunks)
            writer[CHANGELOG_OFFSET] = OFFSET.pack(self._changelog_offset or 0)
            writer.finish()
            moving = IngestExternalFileOptions()
            moving.set_move_files(True)
            db.ingest_external_file([str(path)], moving)
        except Exception as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise self.translated(error, "written") from error

    def _forget_restored(self, db: Rdict) -> None:
        self._gathered = GatheredRows()
        self._is_gathering = False
        self._options.gathers_no_more(id(self))
        self._get = db.get

    def _get_after_restoring(self, stored_key: bytes) -> bytes | None:
        self._opened()
        return self._get(stored_key)

    def ingest(self, path: Path, *, changelog_offset: int | None) -> None:
        """Takes over a file of :func:`write_sst` into a store that is empty, then the offset that it stands for.

        A crash in between leaves a store without an offset: wipe it and take the file again. Raises StateError for a store
        that is not empty, whose newer rows the file would hide.
        """
        db = self._opened()
        if self._changelog_offset is not None or next(self.range(), None) is not None:
            raise StateError(
                f"state store {self.name!r} in {self.path} is not empty, and a bundle goes into an empty one only: wipe it "
                "first, or leave it to be restored from its changelog"
            )
        try:
            db.ingest_external_file([str(path)])
        except Exception as error:
            raise self.translated(error, "written") from error
        self._write(db, (), changelog_offset)
        self.flush()

    def changelog_offset(self) -> int | None:
        if self._db is None:
            raise StoreClosedError(self.name)
        return self._changelog_offset

    def range(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        db = self._opened()
        low = DATA if start is None else DATA + start
        high = AFTER_DATA if end is None else DATA + end
        if low >= high:
            return iter(())
        scan = _Scan(self, db, low, high, reverse=reverse)
        rows = scan.read()
        if scan.complete:
            return iter(rows)
        self._scans.add(scan)
        return _rows(scan, rows)

    def prefix(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.range(prefix, after_prefix(prefix))

    def delete_range(self, start: bytes | None = None, end: bytes | None = None) -> None:
        db = self._opened()
        low = DATA if start is None else DATA + start
        high = AFTER_DATA if end is None else DATA + end
        if low >= high:
            return
        try:
            db.delete_range(low, high, self._no_log)
        except Exception as error:
            raise self.translated(error, "written") from error

    def approximate_count(self) -> int:
        entries = self.property("estimate-num-keys") + len(self._gathered)
        return max(0, entries - (self._changelog_offset is not None))

    def approximate_size_bytes(self) -> int:
        return (
            self.property("total-sst-files-size") + self.property("cur-size-all-mem-tables") + self._gathered.size_bytes
        )

    def flush(self) -> None:
        self._opened()
        self.flush_write_buffer(wait=True)

    def flush_write_buffer(self, *, wait: bool) -> None:
        """Flushes what was written; restored rows that are gathered stay. ``wait``: until it is done."""
        try:
            if self._db is not None:
                self._db.flush(wait)
        except Exception as error:
            raise self.translated(error, "written") from error

    def close(self) -> None:
        db = self._db
        if db is None:
            return
        self._release_scans()
        try:
            self.flush()
        finally:
            self._drop(db)

    def _drop(self, db: Rdict) -> None:
        with self._options.closing():
            self._db = None
            self._forget_restored(db)
            try:
                # It flushes once more, and is closed whether or not that works.
                db.close()
            except Exception as error:
                raise self.translated(error, "written") from error

    def _release_scans(self) -> None:
        for scan in list(self._scans):
            scan.release()
        self._scans.clear()

    def wipe(self) -> None:
        self._release_scans()
        if self._db is not None:
            with suppress(StateError):
                # What could not be written is deleted now.
                self._drop(self._db)
        delete_store(self.path, self.name)


def _fill(target: WriteBatch | SstFileWriter, chunks: Iterable[Chunk]) -> None:
    for keys, values in chunks:
        if None not in values:
            deque(map(target.__setitem__, keys, values), maxlen=0)
            continue
        for key, value in zip(keys, values, strict=True):
            if value is None:
                del target[key]
            else:
                target[key] = value


def write_sst(path: Path, rows: Iterable[tuple[bytes, bytes]]) -> None:
    """Writes rows, which come in the order of keys and are not none, as a file for :meth:`RocksDBStore.ingest`.

    Raises StateError where it can't be written.
    """
    try:
        writer = SstFileWriter(_one_file())
        writer.open(str(path))
        for key, value in rows:
            writer[DATA + key] = value
        writer.finish()
    except StreamsError:
        # Of whoever makes the rows.
        raise
    except Exception as error:
        raise store_error(str(error), path.stem, path, "written") from error


def _one_file() -> Options:
    """A file of any size is written with its index in memory, which grows by an entry per block: larger blocks, and entries
    that share the beginnings of their keys, need an eighth of the memory."""
    table = BlockBasedOptions()
    table.set_block_size(_INGESTED_BLOCK_BYTES)
    table.set_index_block_restart_interval(16)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    return options
