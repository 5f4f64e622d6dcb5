"""The kinds of state stores: for each, its layout over a byte store, and the cache that stands before it.

Whoever opens a store or makes a cache asks here, so that a new kind of store is known everywhere at once: in tasks and
standbys, in the state directory, in tests and in backfills.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from streamsrt.errors import ConfigError
from streamsrt.state.buffer import SuppressionBuffer
from streamsrt.state.cache import KeyValueCache, RowFormat
from streamsrt.state.duplicates import DuplicatesBytesStore, DuplicatesCache
from streamsrt.state.expiring import ExpiringCache
from streamsrt.state.lru import LruCache
from streamsrt.state.memory import MemoryStore
from streamsrt.state.rocksdb import RocksDBStore
from streamsrt.state.session_cache import SessionCache
from streamsrt.state.sessions import SessionBytesStore
from streamsrt.state.store import BytesStore
from streamsrt.state.versioned import VersionedBytesStore
from streamsrt.state.versioned_cache import VersionedCache
from streamsrt.state.window_cache import WindowCache
from streamsrt.state.windowed import WindowBytesStore
from topology.graph.nodes import StoreSpec

LaidOut: TypeAlias = BytesStore | WindowBytesStore | DuplicatesBytesStore | SessionBytesStore | VersionedBytesStore
Cache: TypeAlias = KeyValueCache | WindowCache | DuplicatesCache | SessionCache | VersionedCache | SuppressionBuffer


_MEMBERS = {name for kind in BytesStore.__mro__ for name in vars(kind) if not name.startswith("_")}


def check_kind(spec: StoreSpec) -> None:
    """Raises ConfigError for a store that can't be kept."""
    if spec.kind not in ("key_value", "window", "session", "versioned", "buffer") or (
        spec.retain_duplicates and spec.kind != "window"
    ):
        kind = f"{spec.kind} store{' that retains duplicates' if spec.retain_duplicates else ''}"
        raise ConfigError(
            f"state store {spec.name!r} is a {kind}: only key-value, window, session and versioned stores can be kept, "
            "and only window stores can retain duplicates"
        )
    if spec.retain_duplicates and spec.timestamped:
        raise ConfigError(f"window store {spec.name!r} retains duplicates: it can't keep timestamps beside them")
    if spec.kind not in ("key_value", "buffer") and spec.retention_ms is None:
        raise ConfigError(f"{spec.kind} store {spec.name!r} has no retention: give it one with retention=")


def make_store(spec: StoreSpec) -> BytesStore:
    """The byte store of what is not on disk: the program's own, or one in memory. Raises ConfigError."""
    if spec.supplier is None:
        return MemoryStore(spec.name)
    store = spec.supplier(spec.name)
    missing = sorted(name for name in _MEMBERS if not hasattr(store, name))
    if missing:
        raise ConfigError(
            f"state store {spec.name!r}: its supplier made a {type(store).__name__}, which has no {', '.join(missing)}. A "
            "store does what streamsrt.state.store.BytesStore says"
        )
    own: BytesStore = store
    return own


def lay_out(spec: StoreSpec, store: BytesStore) -> LaidOut:
    """The store of that kind over ``store``. Raises ConfigError, and StateError where its data can't be read."""
    check_kind(spec)
    if spec.kind == "window":
        assert spec.retention_ms is not None
        layout = DuplicatesBytesStore if spec.retain_duplicates else WindowBytesStore
        return layout(store, retention_ms=spec.retention_ms, segment_interval_ms=spec.segment_interval_ms)
    if spec.kind == "session":
        assert spec.retention_ms is not None
        return SessionBytesStore(store, retention_ms=spec.retention_ms, segment_interval_ms=spec.segment_interval_ms)
    if spec.kind == "versioned":
        assert spec.retention_ms is not None
        assert spec.segment_interval_ms is not None
        return VersionedBytesStore(
            store, history_retention_ms=spec.retention_ms, segment_interval_ms=spec.segment_interval_ms
        )
    return store


def cache_over(spec: StoreSpec, store: Any, row_format: RowFormat) -> Cache:
    """The cache of a store that :func:`lay_out` made. Raises ConfigError."""
    check_kind(spec)
    if spec.kind == "window":
        assert spec.retention_ms is not None
        if spec.retain_duplicates:
            duplicates = DuplicatesCache(spec.name, store, row_format, retention_ms=spec.retention_ms)
            duplicates.none_moves_time = not spec.persistent
            return duplicates
        newest = getattr(store, "stream_time_ms", None)
        cache = WindowCache(spec.name, store, row_format, retention_ms=spec.retention_ms, newest_stored_start=newest)
        if spec.persistent and spec.segment_interval_ms is not None:
            cache.expires_by_ms = spec.segment_interval_ms
        return cache
    if spec.kind == "buffer":
        return SuppressionBuffer(spec.name, store, row_format.serialize, row_format.deserialize)
    if spec.kind == "session":
        assert spec.retention_ms is not None
        sessions = SessionCache(spec.name, store, row_format, retention_ms=spec.retention_ms)
        if spec.persistent and spec.segment_interval_ms is not None:
            sessions.expires_by_ms = spec.segment_interval_ms
        return sessions
    if spec.kind == "versioned":
        return VersionedCache(spec.name, store, row_format)
    if spec.max_entries is not None:
        return LruCache(spec.name, store, row_format, max_entries=spec.max_entries)
    if spec.ttl_ms is not None:
        return ExpiringCache(spec.name, store, row_format, ttl_ms=spec.ttl_ms)
    return KeyValueCache(spec.name, store, row_format)


def scope(spec: StoreSpec) -> str:
    """What a store is called in the tags of metrics, before ``-state-id`` (Kafka's ``metricsScope``)."""
    if spec.kind == "buffer":
        return "in-memory-suppression"
    where = "rocksdb" if spec.persistent else "in-memory" if spec.supplier is None else "custom"
    if spec.kind in ("window", "session"):
        return f"{where}-{spec.kind}"
    return f"{where}-lru" if spec.max_entries is not None else where


def rocksdb_of(store: LaidOut) -> RocksDBStore | None:
    """The RocksDB that a store's data is in; None where it is in memory."""
    below = getattr(store, "below", store)
    return below if isinstance(below, RocksDBStore) else None
