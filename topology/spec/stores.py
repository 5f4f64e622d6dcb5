"""State stores: how a program describes them, and how a processor uses them.

A :class:`Store` describes what the program wants. The operator that uses it fills in the rest: serdes, kind,
timestamps, caching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, get_args

from topology.spec.codecs import AnySerde, Serde
from topology.spec.errors import UnsupportedError, WindowError, call_site
from topology.spec.functions import check_function
from topology.spec.names import check_name
from topology.spec.row_versions import StoredUpcasts, Upcast, check_upcasts
from topology.spec.windows import Duration, Windowed, to_ms

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
K_contra = TypeVar("K_contra", contravariant=True)

KindName: TypeAlias = Literal["key_value", "window", "session", "versioned"]
KINDS: tuple[str, ...] = get_args(KindName)


@dataclass(frozen=True, slots=True, init=False)
class Store:
    """The description of a state store.

    ``name``: None lets the operator generate one. ``kind``: ``key_value``, ``window``, ``session``, or ``versioned``,
    which keeps earlier values of a key. ``key``, ``value``: serdes; None: the operator's. ``retention`` (key-value
    stores ignore it, as in Kafka Streams: they have ``ttl``), ``window_size`` (window stores), ``segment_interval``
    (versioned stores: the granularity of expiry; None: Kafka Streams' default): timedelta or int milliseconds.
    ``max_entries``: an in-memory key-value store that keeps only the most recently used entries (Kafka Streams' LRU
    map); evicted entries are deleted from its changelog too. ``ttl``: an entry of a key-value store is deleted when
    stream time is that far beyond its last update (timedelta or int milliseconds), with a tombstone in the changelog,
    and the table forwards the deletion; such a store is not cached. ``plain_rows``: rows have no timestamps, as with
    Kafka Streams' plain suppliers; timestamps are read as -1. ``keeps_headers``: as with ``dsl.store.format=headers``
    (None: as configured), a tombstone in the changelog of a persistent store has the headers of the record that
    deleted the row. ``caching`` None: on in the DSL's operators, off for stores added with ``add_state_store``.
    ``logging`` False: no changelog; the state is lost with its directory. ``changelog_config``: topic settings of the
    changelog. ``in_memory`` None: as configured (``dsl.store.suppliers.class``). ``timestamped`` None: on in the DSL's
    operators, off otherwise.

    ``renamed_from``: the store's former name. The store takes over the state of that one: its changelog and files keep
    the former name. If a store is renamed again, this remains the first name.

    ``version``: the version of its values. From 2 on, values are written with a version tag, and values of earlier
    versions are upcast when they are read: ``upcast={1: to_version_2}``, with a function or a :class:`topology.Upcast`
    for each version. Rows without a tag have version 1.

    ``supplier``: a function ``(name) -> store`` that returns a ``streamsrt.state.store.BytesStore`` of your own; each
    task creates one and restores it from its changelog.

    Raises IllegalNameError, WindowError, UnsupportedError. Source: Materialized, Stores and StoreBuilder of Kafka
    Streams.
    """

    name: str | None
    kind: Literal["key_value", "window", "session", "versioned"] = "key_value"
    key: AnySerde = None
    value: AnySerde = None
    retention_ms: int | None = None
    window_size_ms: int | None = None
    segment_interval_ms: int | None = None
    max_entries: int | None = None
    ttl_ms: int | None = None
    plain_rows: bool = False
    keeps_headers: bool | None = None
    retain_duplicates: bool = False
    caching: bool | None = None
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    in_memory: bool | None = None
    timestamped: bool | None = None
    supplier: Callable[[str], Any] | None = None
    renamed_from: str | None = None
    version: int = 1
    upcasts: StoredUpcasts = ()

    def __init__(
        self,
        name: str | None = None,
        *,
        kind: Literal["key_value", "window", "session", "versioned"] = "key_value",
        key: AnySerde = None,
        value: AnySerde = None,
        retention: Duration | None = None,
        window_size: Duration | None = None,
        segment_interval: Duration | None = None,
        max_entries: int | None = None,
        ttl: Duration | None = None,
        plain_rows: bool = False,
        keeps_headers: bool | None = None,
        retain_duplicates: bool = False,
        caching: bool | None = None,
        logging: bool = True,
        changelog_config: Mapping[str, str | int] | None = None,
        in_memory: bool | None = None,
        timestamped: bool | None = None,
        supplier: Callable[[str], Any] | None = None,
        renamed_from: str | None = None,
        version: int = 1,
        upcast: Mapping[int, Callable[..., object] | Upcast] | None = None,
    ) -> None:
        if name is not None:
            check_name(name, "store")
        if renamed_from is not None:
            _check_renamed(name, renamed_from)
        if kind not in KINDS:
            raise UnsupportedError(
                f"stores of kind {kind!r} are not supported: use one of {', '.join(KINDS)}", call_site()
            )
        _check_max_entries(max_entries, kind, in_memory)
        _check_supplier(supplier, max_entries, in_memory)
        if ttl is not None and (kind != "key_value" or max_entries is not None or plain_rows or caching):
            raise UnsupportedError(
                "ttl= is for key-value stores with timestamps, without caching and max_entries; other kinds have retention=",
                call_site(),
            )
        if changelog_config and not logging:
            raise UnsupportedError("a store without logging has no changelog to configure", call_site())
        values: dict[str, Any] = {
            "name": name,
            "kind": kind,
            "key": key,
            "value": value,
            "retention_ms": _positive(retention, "the retention"),
            "window_size_ms": _positive(window_size, "the window size"),
            "segment_interval_ms": _positive(segment_interval, "the segment interval"),
            "max_entries": max_entries,
            "ttl_ms": _positive(ttl, "the ttl"),
            "plain_rows": plain_rows,
            "keeps_headers": keeps_headers,
            "retain_duplicates": retain_duplicates,
            "caching": caching,
            "logging": logging,
            "changelog_config": {str(k): str(v) for k, v in (changelog_config or {}).items()},
            "in_memory": in_memory,
            "timestamped": timestamped,
            "supplier": supplier,
            "renamed_from": renamed_from,
            "version": version,
            "upcasts": check_upcasts(version, upcast),
        }
        for attribute, value_ in values.items():
            object.__setattr__(self, attribute, value_)


def _check_renamed(name: str | None, renamed_from: str) -> None:
    check_name(renamed_from, "store")
    if name is None or name == renamed_from:
        raise UnsupportedError(
            f"renamed_from={renamed_from!r} is for a store that has another name now: Store('name', renamed_from=...)",
            call_site(),
        )


def _check_max_entries(max_entries: int | None, kind: str, in_memory: bool | None) -> None:
    if max_entries is None:
        return
    if max_entries < 1:
        raise UnsupportedError(f"a store keeps at least 1 entry, not {max_entries}", call_site())
    if kind != "key_value" or in_memory is False:
        raise UnsupportedError("only key-value stores in memory can have max_entries", call_site())


def _check_supplier(supplier: object, max_entries: int | None, in_memory: bool | None) -> None:
    if supplier is None:
        return
    if not callable(supplier) or in_memory is not None or max_entries is not None:
        raise UnsupportedError(
            "supplier= is a callable (name) that returns a store, and does not go with in_memory= and "
            "max_entries=: the store decides itself how it keeps its data",
            call_site(),
        )
    check_function(supplier, "Store", "name")


def _positive(duration: Duration | None, what: str) -> int | None:
    if duration is None:
        return None
    milliseconds = to_ms(duration, what)
    if milliseconds <= 0:
        raise WindowError(f"{what} of a store must be greater than 0 ms, not {milliseconds}", call_site())
    return milliseconds


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value of a timestamped store; the timestamp is epoch milliseconds."""

    value: V
    timestamp: int


class VersionedRecord(NamedTuple, Generic[V]):
    """A version in a versioned store; times are epoch milliseconds. ``valid_to`` is exclusive; None: the newest version."""

    value: V
    timestamp: int
    valid_to: int | None = None


class ReadOnlyKeyValueStore(Protocol[K, V_co]):
    """Read access to a key-value store. Iteration is in the order of the keys' bytes.

    Source: org.apache.kafka.streams.state.ReadOnlyKeyValueStore.
    """

    @property
    def name(self) -> str: ...

    def get(self, key: K) -> V_co | None: ...

    def range(self, start: K | None, end: K | None) -> Iterator[tuple[K, V_co]]:
        """From ``start`` to ``end``, inclusive; None: unbounded."""

    def reverse_range(self, start: K | None, end: K | None) -> Iterator[tuple[K, V_co]]: ...

    def all(self) -> Iterator[tuple[K, V_co]]: ...

    def reverse_all(self) -> Iterator[tuple[K, V_co]]: ...

    def prefix_scan(self, prefix: Any, serde: Serde[Any]) -> Iterator[tuple[K, V_co]]:
        """The entries whose key bytes start with the bytes of ``prefix``."""

    def approximate_num_entries(self) -> int: ...


class KeyValueStore(ReadOnlyKeyValueStore[K, V], Protocol[K, V]):
    """A key-value store in a processor. Values of a timestamped store are :class:`ValueAndTimestamp`.

    Source: org.apache.kafka.streams.state.KeyValueStore.
    """

    def put(self, key: K, value: V | None) -> None:
        """Writes; None deletes."""

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Writes if the key is absent, and returns the previous value."""

    def put_all(self, entries: list[tuple[K, V | None]]) -> None: ...

    def delete(self, key: K) -> V | None:
        """Deletes the key and returns the previous value."""


class WindowStore(Protocol[K, V]):
    """A window store in a processor; times are epoch milliseconds, ranges include both ends.

    Source: org.apache.kafka.streams.state.WindowStore.
    """

    @property
    def name(self) -> str: ...

    def put(self, key: K, value: V | None, window_start: int) -> None: ...

    def fetch(self, key: K, time: int) -> V | None:
        """The value of the window of ``key`` that starts at ``time``."""

    def fetch_range(self, key: K, time_from: int, time_to: int) -> Iterator[tuple[int, V]]:
        """Start and value of the windows of ``key`` that start in the range, oldest first."""

    def backward_fetch_range(self, key: K, time_from: int, time_to: int) -> Iterator[tuple[int, V]]: ...

    def fetch_keys(
        self, key_from: K | None, key_to: K | None, time_from: int, time_to: int
    ) -> Iterator[tuple[Windowed[K], V]]: ...

    def fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Windowed[K], V]]: ...

    def all(self) -> Iterator[tuple[Windowed[K], V]]: ...


class VersionedKeyValueStore(Protocol[K_contra, V]):
    """A versioned store in a processor; times are epoch milliseconds.

    Source: org.apache.kafka.streams.state.VersionedKeyValueStore (KIP-889).
    """

    @property
    def name(self) -> str: ...

    def put(self, key: K_contra, value: V | None, timestamp: int) -> int | None:
        """Writes the value that is valid from ``timestamp`` on; None deletes from then on.

        Returns the end of its validity; None if it is the newest version, or too old to be kept.
        """

    def delete(self, key: K_contra, timestamp: int) -> VersionedRecord[V] | None:
        """Deletes from ``timestamp`` on, and returns the version that was valid then.

        Deletes nothing, and returns None, if ``timestamp`` is too long ago to be kept.
        """

    def get(self, key: K_contra, as_of: int | None = None) -> VersionedRecord[V] | None:
        """The newest version, or the one valid at ``as_of``; None if there is none or it has expired."""

    def versions(self, key: K_contra) -> list[VersionedRecord[V]]:
        """All versions of a key that are stored, newest first.

        Expired ones, which ``get()`` no longer returns, are removed some at a time, as whole segments, and are among
        these until then.
        """


class SessionStore(Protocol[K, V]):
    """A session store in a processor; times are epoch milliseconds, both bounds of a session are inclusive.

    Source: org.apache.kafka.streams.state.SessionStore.
    """

    @property
    def name(self) -> str: ...

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Writes; None removes."""

    def remove(self, session: Windowed[K]) -> None: ...

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """The value of the session with these bounds."""

    def find_sessions(self, key: K, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed[K], V]]:
        """The sessions that end at ``earliest_end`` or later and start at ``latest_start`` or before, by end."""

    def fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """All sessions of ``key``, by end."""

    def all(self) -> Iterator[tuple[Windowed[K], V]]: ...
