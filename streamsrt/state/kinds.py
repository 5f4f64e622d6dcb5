"""Every kind of state store, and how it is kept: the one place where a new kind is registered.

1. Each row says how a store is laid out over bytes, cached, logged, seen by processors and tables, and exported. Every
   place that opens a store uses this table, so that a new kind is known everywhere at once: in tasks and standbys, in
   the state directory, in tests and in backfills.
2. What a kind means to the program and to the changelog is in :data:`topology.graph.store_kinds.STORE_TRAITS`. Which
   queries it answers is in :data:`streamsrt.queries.preparation.QUERIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from streamsrt.errors import ConfigError, UserError
from streamsrt.state.access import (
    Change,
    DuplicatesAccess,
    KeySerde,
    KeyValueAccess,
    Now,
    OnChange,
    SessionAccess,
    VersionedAccess,
    WindowAccess,
)
from streamsrt.state.buffer import HeldFormat, SuppressionBuffer
from streamsrt.state.cache import Entry, KeyValueCache, RowFormat, Serialize
from streamsrt.state.columns import Headers
from streamsrt.state.duplicates import DuplicatesBytesStore, DuplicatesCache
from streamsrt.state.expiring import ExpiringCache
from streamsrt.state.lru import LruCache
from streamsrt.state.memory import MemoryStore
from streamsrt.state.ordered import OrderedAccess, OrderedBytesStore, OrderedCache
from streamsrt.state.rocksdb import RocksDBStore
from streamsrt.state.session_cache import SessionCache, SessionEntry
from streamsrt.state.sessions import SessionBytesStore, session_key, split_session_key
from streamsrt.state.sliding_cache import SlidingCache
from streamsrt.state.store import BytesStore
from streamsrt.state.versioned import VersionedBytesStore, is_stored_version
from streamsrt.state.versioned_cache import VersionedCache, VersionedEntry, VersionPut
from streamsrt.state.window_cache import WindowCache
from streamsrt.state.windowed import (
    SEGMENT_BYTES,
    STREAM_TIME_KEY,
    WindowBytesStore,
    pack_start,
    split_window_key,
    window_key,
)
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import NAMES, Limit, RowsOfKey, StoreKind, kind_called, kind_of, rows_of, store_traits
from topology.spec.codecs import AnySerde, FoldedKeys, OrderedKeys, SessionWindowedSerde, TimeWindowedSerde
from topology.spec.stores import KINDS
from topology.spec.windows import Windowed

LaidOut: TypeAlias = BytesStore | WindowBytesStore | DuplicatesBytesStore | SessionBytesStore | VersionedBytesStore
Cache: TypeAlias = KeyValueCache | WindowCache | DuplicatesCache | SessionCache | VersionedCache | SuppressionBuffer
UserStore: TypeAlias = KeyValueAccess | WindowAccess | SessionAccess | VersionedAccess
S = TypeVar("S", bound=LaidOut)
C = TypeVar("C", bound=Cache)
W = TypeVar("W", bound=WindowCache)
LogRow: TypeAlias = Callable[[bytes, bytes | None, int, Headers], None]
"""Logs a row as the changelog has it: ``(key, value, timestamp, headers)``."""
TableRow: TypeAlias = tuple[Any, int]  # keys and values have the types that the program gave its table
View: TypeAlias = Callable[[Any], TableRow]
"""``key -> (value, timestamp)``; the key as an object."""

NO_ROW: TableRow = (None, -1)
_TIME = Struct(">q")
_WINDOW_SUFFIX_BYTES = len(window_key(b"", 0))
_SESSION_SUFFIX_BYTES = len(session_key(b"", 0, 0))
_MEMBERS = {name for kind in BytesStore.__mro__ for name in vars(kind) if not name.startswith("_")}


class StoredRow(NamedTuple):
    """A row of a byte store, with those of its times that are not in it. Milliseconds; ``valid_to`` is exclusive."""

    key: bytes
    row: bytes
    timestamp: int | None = None
    window_start: int | None = None
    window_end: int | None = None
    valid_to: int | None = None


class StoreFunctions(NamedTuple, Generic[S, C, Change]):
    """One row: of stores ``S`` over bytes, with caches ``C`` before them, in which a ``Change`` is put.

    ``lay_out``: the store over a byte store. ``record_key``: the part of a key in the changelog that is the key of the
    record that the row is of. ``cache``: what stands before that. ``access``: the store as user code sees it, None where it
    can't be asked for. ``log``: what logs an entry that was put, given what logs a row. ``view``: the rows of the table
    that keeps its result there; None: no table does. ``forwarded``: the same as they were last forwarded, where the cache
    holds changes back; None: it holds none back. ``rows``: all rows of the store. ``unpack``: timestamp and value's bytes
    of a row, given the store's name and the key; None: the value, behind a timestamp where the traits say so. ``keeps``:
    whether a row with that key in the changelog is kept; None: all are. ``logged_key_bytes``: the least length of a key in
    the changelog. ``is_whole``: whether the key and the value of a row in the bytes below are what ``lay_out`` has put
    there; those of damaged rows are not. ``own_keys``: the keys in the bytes below under which the store keeps what it
    needs itself, such as its stream time. ``metrics_suffix``: what ends the name that metrics have for it.
    ``stays_because``: why ``state repartition`` can't move its rows; empty: it can.
    """

    lay_out: Callable[[StoreSpec, BytesStore], S]
    record_key: Callable[[bytes], bytes]
    cache: Callable[[StoreSpec, S, RowFormat], C]
    access: Callable[[StoreSpec, C, KeySerde, Now, OnChange[Change] | None, bool], UserStore] | None
    log: Callable[[LogRow], OnChange[Change]]
    view: Callable[[C, Serialize], View] | None
    forwarded: Callable[[C, Serialize], View] | None
    rows: Callable[[StoreSpec, S], Iterator[StoredRow]]
    unpack: Callable[[str, bytes, bytes], tuple[int, bytes | None]] | None
    keeps: Callable[[S, bytes], bool] | None
    logged_key_bytes: int
    is_whole: Callable[[bytes, bytes], bool]
    own_keys: frozenset[bytes]
    metrics_suffix: str
    stays_because: str


# ------------------------------------------------------------------------------------------------- by key


def _key_value_layout(spec: StoreSpec, store: BytesStore) -> BytesStore:
    keys = spec.key_serde
    return OrderedBytesStore(store, keys.order) if isinstance(keys, OrderedKeys) else store


def _key_value_cache(spec: StoreSpec, store: BytesStore, row_format: RowFormat) -> KeyValueCache:
    keys = spec.key_serde
    cache = KeyValueCache(spec.name, store, row_format)
    if isinstance(keys, OrderedKeys):
        cache = OrderedCache(spec.name, cast(OrderedBytesStore, store), row_format, keys.order)
    if isinstance(keys, (OrderedKeys, FoldedKeys)):
        cache.fold = keys.fold
    return cache


def _whole_key(key: bytes) -> bytes:
    return key


def _lru_cache(spec: StoreSpec, store: BytesStore, row_format: RowFormat) -> LruCache:
    assert spec.max_entries is not None
    return LruCache(spec.name, store, row_format, max_entries=spec.max_entries)


def _expiring_cache(spec: StoreSpec, store: BytesStore, row_format: RowFormat) -> ExpiringCache:
    assert spec.ttl_ms is not None
    return ExpiringCache(spec.name, store, row_format, ttl_ms=spec.ttl_ms)


def _key_value_access(
    spec: StoreSpec,
    cache: KeyValueCache,
    serde: KeySerde,
    now: Now,
    on_change: OnChange[Entry] | None,
    timestamped: bool,
) -> KeyValueAccess:
    kind = OrderedAccess if isinstance(cache, OrderedCache) else KeyValueAccess
    return kind(cache, serde, now, timestamped=timestamped, on_change=on_change)


def _log_by_key(log_row: LogRow) -> OnChange[Entry | VersionPut]:
    def log(entry: Entry | VersionPut, raw_value: bytes | None) -> None:
        log_row(entry.key, raw_value, entry.timestamp, entry.headers)

    return log


def _view_by_key(cache: KeyValueCache | VersionedCache, serialize: Serialize) -> View:
    return _found_by_key(cache.__getitem__, serialize)


def _forwarded_by_key(cache: KeyValueCache, serialize: Serialize) -> View:
    return _found_by_key(cache.forwarded, serialize)


def _found_by_key(find: Callable[[bytes], Entry | VersionedEntry], serialize: Serialize) -> View:
    def row(key: object) -> TableRow:
        entry = find(serialize(key))
        return NO_ROW if entry.value is None else (entry.value, entry.timestamp)

    return row


def _is_any(key: bytes, row: bytes) -> bool:
    return True


def _rows_by_key(spec: StoreSpec, store: BytesStore) -> Iterator[StoredRow]:
    return (StoredRow(key, row) for key, row in store.range())


# ------------------------------------------------------------------------------------------------- windows


def _window_layout(spec: StoreSpec, store: BytesStore) -> WindowBytesStore:
    assert spec.retention_ms is not None
    return WindowBytesStore(store, retention_ms=spec.retention_ms, segment_interval_ms=spec.segment_interval_ms)


def _key_of_window(key: bytes) -> bytes:
    return split_window_key(key)[0]


def _window_cache(spec: StoreSpec, store: WindowBytesStore, row_format: RowFormat) -> WindowCache:
    return _cache_of_windows(WindowCache, spec, store, row_format)


def _cache_of_windows(kind: type[W], spec: StoreSpec, store: WindowBytesStore, row_format: RowFormat) -> W:
    assert spec.retention_ms is not None
    newest = getattr(store, "stream_time_ms", None)
    cache = kind(spec.name, store, row_format, retention_ms=spec.retention_ms, newest_stored_start=newest)
    if spec.persistent and spec.segment_interval_ms is not None:
        cache.expires_by_ms = spec.segment_interval_ms
    return cache


def _window_access(
    spec: StoreSpec, cache: WindowCache, serde: KeySerde, now: Now, on_change: OnChange[Entry] | None, timestamped: bool
) -> WindowAccess:
    size_ms = spec.window_size_ms or 0
    return WindowAccess(cache, serde, now, size_ms=size_ms, timestamped=timestamped, on_change=on_change)


def _log_window(log_row: LogRow) -> OnChange[Entry]:
    def log(entry: Entry, raw_value: bytes | None) -> None:
        log_row(entry.key + pack_start(entry.start) + b"\0\0\0\0", raw_value, entry.timestamp, entry.headers)

    return log


def _window_view(cache: WindowCache, serialize: Serialize) -> View:
    return _found_by_window(lambda key, start: cache[start][key], serialize)


def _forwarded_windows(cache: WindowCache, serialize: Serialize) -> View:
    return _found_by_window(cache.forwarded, serialize)


def _found_by_window(find: Callable[[bytes, int], Entry], serialize: Serialize) -> View:
    def row(key: Windowed[object]) -> TableRow:
        entry = find(serialize(key.key), key.start_ms)
        return NO_ROW if entry.value is None else (entry.value, entry.timestamp)

    return row


def _is_window(key: bytes, row: bytes) -> bool:
    return len(key) >= SEGMENT_BYTES + _WINDOW_SUFFIX_BYTES


def _window_rows(spec: StoreSpec, store: WindowBytesStore) -> Iterator[StoredRow]:
    size_ms = spec.window_size_ms
    for key, start, row in store.fetch_all():
        yield StoredRow(key, row, window_start=start, window_end=size_ms and start + size_ms)


def _duplicates_layout(spec: StoreSpec, store: BytesStore) -> DuplicatesBytesStore:
    assert spec.retention_ms is not None
    return DuplicatesBytesStore(store, retention_ms=spec.retention_ms, segment_interval_ms=spec.segment_interval_ms)


def _duplicates_cache(spec: StoreSpec, store: DuplicatesBytesStore, row_format: RowFormat) -> DuplicatesCache:
    assert spec.retention_ms is not None
    cache = DuplicatesCache(spec.name, store, row_format, retention_ms=spec.retention_ms)
    cache.none_moves_time = not spec.persistent
    return cache


def _duplicates_access(
    spec: StoreSpec,
    cache: DuplicatesCache,
    serde: KeySerde,
    now: Now,
    on_change: OnChange[Entry] | None,
    timestamped: bool,
) -> DuplicatesAccess:
    size_ms = spec.window_size_ms or 0
    return DuplicatesAccess(cache, serde, now, size_ms=size_ms, timestamped=timestamped, on_change=on_change)


def _log_duplicate(log_row: LogRow) -> OnChange[Entry]:
    def log(entry: Entry, raw_value: bytes | None) -> None:
        key = entry.key + pack_start(entry.start) + entry.sequence.to_bytes(4, "big")
        log_row(key, raw_value, entry.timestamp, entry.headers)

    return log


def _duplicate_rows(spec: StoreSpec, store: DuplicatesBytesStore) -> Iterator[StoredRow]:
    size_ms = spec.window_size_ms
    for key, start, _, row in store.all_rows():
        yield StoredRow(key, row, window_start=start, window_end=size_ms and start + size_ms)


# ------------------------------------------------------------------------------------------------- sessions


def _session_layout(spec: StoreSpec, store: BytesStore) -> SessionBytesStore:
    assert spec.retention_ms is not None
    return SessionBytesStore(store, retention_ms=spec.retention_ms, segment_interval_ms=spec.segment_interval_ms)


def _key_of_session(key: bytes) -> bytes:
    return split_session_key(key)[0]


def _session_cache(spec: StoreSpec, store: SessionBytesStore, row_format: RowFormat) -> SessionCache:
    assert spec.retention_ms is not None
    cache = SessionCache(spec.name, store, row_format, retention_ms=spec.retention_ms)
    if spec.persistent and spec.segment_interval_ms is not None:
        cache.expires_by_ms = spec.segment_interval_ms
    return cache


def _session_access(
    spec: StoreSpec,
    cache: SessionCache,
    serde: KeySerde,
    now: Now,
    on_change: OnChange[SessionEntry] | None,
    timestamped: bool,
) -> SessionAccess:
    return SessionAccess(cache, serde, now, on_change=on_change)


def _log_session(log_row: LogRow) -> OnChange[SessionEntry]:
    def log(entry: SessionEntry, raw_value: bytes | None) -> None:
        log_row(session_key(entry.key, entry.start, entry.end), raw_value, entry.timestamp, entry.headers)

    return log


def _session_view(cache: SessionCache, serialize: Serialize) -> View:
    def row(key: Windowed[object]) -> TableRow:
        entry = cache.session(serialize(key.key), key.start_ms, key.end_ms)
        return NO_ROW if entry is None else (entry.value, key.end_ms)

    return row


def _forwarded_sessions(cache: SessionCache, serialize: Serialize) -> View:
    def row(key: Windowed[object]) -> TableRow:
        value = cache.forwarded(serialize(key.key), key.start_ms, key.end_ms)
        return NO_ROW if value is None else (value, key.end_ms)

    return row


def _is_session(key: bytes, row: bytes) -> bool:
    return len(key) >= SEGMENT_BYTES + _SESSION_SUFFIX_BYTES


def _session_rows(spec: StoreSpec, store: SessionBytesStore) -> Iterator[StoredRow]:
    for key, start, end, row in store.all_sessions():
        yield StoredRow(key, row, window_start=start, window_end=end)


# ------------------------------------------------------------------------------------------------- versions


def _versioned_layout(spec: StoreSpec, store: BytesStore) -> VersionedBytesStore:
    assert spec.retention_ms is not None
    assert spec.segment_interval_ms is not None
    return VersionedBytesStore(
        store, history_retention_ms=spec.retention_ms, segment_interval_ms=spec.segment_interval_ms
    )


def _versioned_cache(spec: StoreSpec, store: VersionedBytesStore, row_format: RowFormat) -> VersionedCache:
    return VersionedCache(spec.name, store, row_format)


def _versioned_access(
    spec: StoreSpec,
    cache: VersionedCache,
    serde: KeySerde,
    now: Now,
    on_change: OnChange[VersionPut] | None,
    timestamped: bool,
) -> VersionedAccess:
    return VersionedAccess(cache, serde, now, on_change=on_change)


def _versioned_rows(spec: StoreSpec, store: VersionedBytesStore) -> Iterator[StoredRow]:
    for key, version in store.all_versions():
        if version.value is not None:
            yield StoredRow(key, version.value, version.timestamp_ms, valid_to=version.valid_to_ms)


# ------------------------------------------------------------------------------------------------- suppressions


def _buffer_cache(spec: StoreSpec, store: BytesStore, row_format: RowFormat) -> SuppressionBuffer:
    return SuppressionBuffer(spec.name, store, row_format.serialize, row_format.deserialize)


def _unpack_held(name: str, key: bytes, row: bytes) -> tuple[int, bytes | None]:
    """Its value contains the bytes of a value, after the other parts of a change."""
    held = HeldFormat(name, bytes, bytes).from_bytes(key, row)
    return held.timestamp, held.new


_VERSIONS_STAY = (
    "it is versioned, and a restore drops versions that come after those of other keys and are older than its "
    "retention. Rows that move would be such versions"
)
STORES: Mapping[StoreKind, StoreFunctions[Any, Any, Any]] = MappingProxyType(
    {
        StoreKind.KEY_VALUE: StoreFunctions(
            lay_out=_key_value_layout,
            record_key=_whole_key,
            cache=_key_value_cache,
            access=_key_value_access,
            log=_log_by_key,
            view=_view_by_key,
            forwarded=_forwarded_by_key,
            rows=_rows_by_key,
            unpack=None,
            keeps=None,
            logged_key_bytes=0,
            is_whole=_is_any,
            own_keys=frozenset(),
            metrics_suffix="",
            stays_because="",
        ),
        StoreKind.LRU: StoreFunctions(
            lay_out=_key_value_layout,
            record_key=_whole_key,
            cache=_lru_cache,
            access=_key_value_access,
            log=_log_by_key,
            view=_view_by_key,
            forwarded=_forwarded_by_key,
            rows=_rows_by_key,
            unpack=None,
            keeps=None,
            logged_key_bytes=0,
            is_whole=_is_any,
            own_keys=frozenset(),
            metrics_suffix="-lru",
            stays_because="",
        ),
        StoreKind.EXPIRING: StoreFunctions(
            lay_out=_key_value_layout,
            record_key=_whole_key,
            cache=_expiring_cache,
            access=_key_value_access,
            log=_log_by_key,
            view=_view_by_key,
            forwarded=_forwarded_by_key,
            rows=_rows_by_key,
            unpack=None,
            keeps=None,
            logged_key_bytes=0,
            is_whole=_is_any,
            own_keys=frozenset(),
            metrics_suffix="",
            stays_because="",
        ),
        StoreKind.WINDOW: StoreFunctions(
            lay_out=_window_layout,
            record_key=_key_of_window,
            cache=_window_cache,
            access=_window_access,
            log=_log_window,
            view=_window_view,
            forwarded=_forwarded_windows,
            rows=_window_rows,
            unpack=None,
            keeps=WindowBytesStore.keeps,
            logged_key_bytes=_WINDOW_SUFFIX_BYTES,
            is_whole=_is_window,
            own_keys=frozenset({STREAM_TIME_KEY}),
            metrics_suffix="-window",
            stays_because="",
        ),
        StoreKind.DUPLICATES: StoreFunctions(
            lay_out=_duplicates_layout,
            record_key=_key_of_window,
            cache=_duplicates_cache,
            access=_duplicates_access,
            log=_log_duplicate,
            view=None,
            forwarded=None,
            rows=_duplicate_rows,
            unpack=None,
            keeps=DuplicatesBytesStore.keeps,
            logged_key_bytes=_WINDOW_SUFFIX_BYTES,
            is_whole=_is_window,
            own_keys=frozenset({STREAM_TIME_KEY}),
            metrics_suffix="-window",
            stays_because="",
        ),
        StoreKind.SESSION: StoreFunctions(
            lay_out=_session_layout,
            record_key=_key_of_session,
            cache=_session_cache,
            access=_session_access,
            log=_log_session,
            view=_session_view,
            forwarded=_forwarded_sessions,
            rows=_session_rows,
            unpack=None,
            keeps=SessionBytesStore.keeps,
            logged_key_bytes=_SESSION_SUFFIX_BYTES,
            is_whole=_is_session,
            own_keys=frozenset({STREAM_TIME_KEY}),
            metrics_suffix="-session",
            stays_because="",
        ),
        StoreKind.VERSIONED: StoreFunctions(
            lay_out=_versioned_layout,
            record_key=_whole_key,
            cache=_versioned_cache,
            access=_versioned_access,
            log=_log_by_key,
            view=_view_by_key,
            forwarded=None,
            rows=_versioned_rows,
            unpack=None,
            keeps=None,
            logged_key_bytes=0,
            is_whole=is_stored_version,
            own_keys=frozenset({STREAM_TIME_KEY}),
            metrics_suffix="",
            stays_because=_VERSIONS_STAY,
        ),
        StoreKind.BUFFER: StoreFunctions(
            lay_out=_key_value_layout,
            record_key=_whole_key,
            cache=_buffer_cache,
            access=None,
            log=_log_by_key,
            view=None,
            forwarded=None,
            rows=_rows_by_key,
            unpack=_unpack_held,
            keeps=None,
            logged_key_bytes=0,
            is_whole=_is_any,
            own_keys=frozenset(),
            metrics_suffix="-suppression",
            stays_because="",
        ),
    }
)


# ------------------------------------------------------------------------------------------------- asking the table


def functions_of(spec: StoreSpec) -> StoreFunctions[Any, Any, Any]:  # which store a kind has is in its row
    """The row of a store's kind."""
    return STORES[kind_of(spec)]


def own_keys_of(kind: str | None) -> frozenset[bytes]:
    """The keys in the files of a store under which there are no data. ``kind``: as the note beside the files has it; None:
    not known."""
    found = None if kind is None else kind_called(kind.partition(",")[0])
    return frozenset() if found is None else STORES[found].own_keys


def check_kind(spec: StoreSpec) -> None:
    """Raises ConfigError for a store that can't be kept."""
    if spec.kind not in NAMES or (spec.retain_duplicates and kind_of(spec) is not StoreKind.DUPLICATES):
        kind = f"{spec.kind} store{' that retains duplicates' if spec.retain_duplicates else ''}"
        raise ConfigError(
            f"state store {spec.name!r} is a {kind}: only stores of kind {', '.join(KINDS)} are supported, and only window "
            "stores can retain duplicates"
        )
    if spec.retain_duplicates and spec.timestamped:
        raise ConfigError(f"window store {spec.name!r} retains duplicates: it can't keep timestamps beside them")
    if store_traits(spec).limit is Limit.RETENTION and spec.retention_ms is None:
        raise ConfigError(f"{spec.kind} store {spec.name!r} has no retention: give it one with retention=")


def make_store(spec: StoreSpec) -> BytesStore:
    """The byte store of data that is not on disk: the program's own, or one in memory. Raises ConfigError."""
    if spec.supplier is None:
        return MemoryStore(spec.name)
    store = spec.supplier(spec.name)
    missing = sorted(name for name in _MEMBERS if not hasattr(store, name))
    if missing:
        raise ConfigError(
            f"state store {spec.name!r}: its supplier returned a {type(store).__name__}, which lacks "
            f"{', '.join(missing)}: a store implements streamsrt.state.store.BytesStore"
        )
    own: BytesStore = store
    return own


def lay_out(spec: StoreSpec, store: BytesStore) -> LaidOut:
    """The store of that kind over ``store``. Raises ConfigError, and StateError where its data can't be read."""
    check_kind(spec)
    laid_out: LaidOut = functions_of(spec).lay_out(spec, store)
    return laid_out


def cache_over(spec: StoreSpec, store: LaidOut, row_format: RowFormat) -> Cache:
    """The cache of a store that :func:`lay_out` made. Raises ConfigError."""
    check_kind(spec)
    cache: Cache = functions_of(spec).cache(spec, store, row_format)
    return cache


def sliding_cache_over(spec: StoreSpec, store: LaidOut, row_format: RowFormat) -> SlidingCache:
    """As :func:`cache_over`, for the window store of a sliding aggregation, whose windows are read by key."""
    return _cache_of_windows(SlidingCache, spec, cast(WindowBytesStore, store), row_format)


def cache_of(kind: type[C], caches: Mapping[str, Cache], store: str) -> C:
    """The cache of a store whose operation knows the kind of the store."""
    cache = caches[store]
    assert isinstance(cache, kind)
    return cache


def table_cache(caches: Mapping[str, Cache], store: str) -> KeyValueCache | VersionedCache:
    """The cache of a store that keeps the rows of a table by key."""
    cache = caches[store]
    assert isinstance(cache, KeyValueCache | VersionedCache)
    return cache


def suppression_buffers(specs: Iterable[StoreSpec], caches: Mapping[str, Cache]) -> dict[str, SuppressionBuffer]:
    """Those caches of a task that hold back changes, by store."""
    held_back = (caches[spec.name] for spec in specs if rows_of(spec) is RowsOfKey.HELD)
    return {cache.name: cache for cache in held_back if isinstance(cache, SuppressionBuffer)}


def store_access(
    spec: StoreSpec, cache: Cache, key_serde: KeySerde, now: Now, on_change: OnChange[Any] | None, *, timestamped: bool
) -> UserStore:
    """The store as user code sees it. ``timestamped``: values are ValueAndTimestamp where the store keeps timestamps."""
    access = functions_of(spec).access
    if access is None:
        raise UserError(f"store {spec.name!r} buffers the records of a suppress(): it can't be queried")
    return access(spec, cache, key_serde, now, on_change, timestamped and spec.timestamped)


def stored_view(spec: StoreSpec, cache: Cache, key_serde: KeySerde) -> View:
    """The rows of a table that keeps its result in the store, through its cache."""
    view = functions_of(spec).view
    if view is None:
        raise UserError(f"store {spec.name!r} does not contain a table: its rows can't be looked up")
    return view(cache, key_serde.serialize)


def forwarded_view(spec: StoreSpec, cache: Cache, key_serde: KeySerde) -> View:
    """The same rows as they were last forwarded, by a store whose cache holds changes back."""
    view = functions_of(spec).forwarded
    return stored_view(spec, cache, key_serde) if view is None else view(cache, key_serde.serialize)


def record_key_of(spec: StoreSpec, key: bytes) -> bytes:
    """The bytes by which the default partitioner places the record to which a row of the changelog belongs. ``key``:
    the row's key in the changelog. This is for stores whose keys are the program's; some operators have keys of their
    own."""
    return placing_key(spec.key_serde, functions_of(spec).record_key(key))


def placing_key(serde: AnySerde, key: bytes) -> bytes:
    """The part of a record's key by which the default partitioner places it: without its window, as sinks do it."""
    if isinstance(serde, TimeWindowedSerde):
        return key[: -_TIME.size]
    return key[: -2 * _TIME.size] if isinstance(serde, SessionWindowedSerde) else key


def scope(spec: StoreSpec) -> str:
    """The name of a store in the tags of metrics, before ``-state-id`` (Kafka's ``metricsScope``)."""
    where = "rocksdb" if spec.persistent else "in-memory" if spec.supplier is None else "custom"
    return f"{where}{functions_of(spec).metrics_suffix}"


def rocksdb_of(store: LaidOut) -> RocksDBStore | None:
    """The RocksDB that contains the data of a store; None if it is in memory."""
    below = getattr(store, "below", store)
    return below if isinstance(below, RocksDBStore) else None
