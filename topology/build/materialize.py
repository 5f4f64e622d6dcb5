"""From a program's description of a store to what the operator needs.

1. A given name is used unchanged; without one, the operator generates ``<prefix>STATE-STORE-<number>``.
2. Serdes: those of the store, else the operator's ``key=``/``value=``, else those of the stream.
3. A table without a store name can't be queried by name; if it needs a store anyway, the store gets the generated name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from topology.build.plan import Plan, PlannedSerde, PlannedStore, frozen_config
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import RowsOfKey, rows_called
from topology.spec.codecs import AnySerde, bytes_, long
from topology.spec.errors import TopologyError, UnsupportedError, WindowError, call_site
from topology.spec.names import check_name
from topology.spec.row_versions import check_upcasts
from topology.spec.stores import KindName, Store
from topology.spec.suppressed import Buffer
from topology.spec.windows import (
    MIN_SEGMENT_INTERVAL_MS,
    AnyWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)

STORE_INFIX = "STATE-STORE-"

Materialized: TypeAlias = tuple[str | None, str | Store | None, AnySerde, AnySerde]
"""What a program says of an operator that may keep a store: name of the step, store, key serde, value serde."""


def as_store(store: str | Store | None) -> Store:
    """The store that is meant by a name, a Store, or nothing."""
    if store is None:
        return Store()
    if isinstance(store, Store):
        return store
    return Store(check_name(store, "store"))


def given_serdes(store: Store, key: AnySerde, value: AnySerde, operator: str) -> tuple[AnySerde, AnySerde]:
    """The serdes that the program names for a table. Raises TopologyError where two places name different ones."""
    for side, own, outer in (("key", store.key, key), ("value", store.value, value)):
        if own is not None and outer is not None and own != outer:
            raise TopologyError(
                f"{operator}() has {side}={outer!r}, its store has {side}={own!r}: give one", call_site()
            )
    return store.key or key, store.value or value


def refuse_options(store: Store, name: str, reason: str, *options: str) -> None:
    """Raises UnsupportedError where a program gives a store one of these options, which would have no effect there."""
    values = {
        "retention": store.retention_ms,
        "window_size": store.window_size_ms,
        "segment_interval": store.segment_interval_ms,
        "max_entries": store.max_entries,
        "retain_duplicates": store.retain_duplicates or None,
    }
    given = [f"{option}=" for option in options if values[option] is not None]
    if given:
        raise UnsupportedError(f"store {name!r} can't have {', '.join(given)}: {reason}", call_site())


def refuse_another_kind(store: Store, name: str, kind: KindName) -> None:
    """Raises TopologyError where a program names a kind that the operator does not keep its rows in."""
    if store.kind not in ("key_value", kind):
        raise TopologyError(f"store {name!r} has kind {store.kind!r}, but a {kind} store is needed here", call_site())


def key_value_store(store: Store, name: str, key: PlannedSerde, value: PlannedSerde) -> PlannedStore:
    """The store of a table by key: of kind key_value or versioned."""
    spec = _table_spec(store, name, key, value)
    if rows_called(store.kind) not in {RowsOfKey.ONE, RowsOfKey.VERSIONS}:
        raise TopologyError(
            f"store {name!r} has kind {store.kind!r}, but a key_value or versioned store is needed here", call_site()
        )
    return PlannedStore(ADDED[store.kind](spec, store), key, value)


def window_store(
    store: Store,
    name: str,
    key: PlannedSerde,
    value: PlannedSerde,
    windows: TimeWindows | SlidingWindows | UnlimitedWindows,
) -> PlannedStore:
    """The store of a table by key and window. Raises WindowError where its retention is too short for the windows."""
    refuse_another_kind(store, name, "window")
    refuse_options(
        store,
        name,
        "it has one row for each key and window, and keeps it for retention=",
        *("segment_interval", "max_entries", "retain_duplicates"),
    )
    if store.window_size_ms not in (None, windows.size_ms):
        raise WindowError(
            f"store {name!r} has windows of {store.window_size_ms} ms, the operator has {windows.size_ms} ms",
            call_site(),
        )
    spec = windowed_spec(_table_spec(store, name, key, value), _retention_ms(store, name, windows), windows.size_ms)
    return PlannedStore(spec, key, value)


def _table_spec(store: Store, name: str, key: PlannedSerde, value: PlannedSerde) -> StoreSpec:
    """Rows of tables have timestamps; where the program wants none, there is only no room for them."""
    spec = store_spec(store, name, key.serde, value.serde)
    return replace(spec, timestamped=True, plain_rows=True) if store.timestamped is False else spec


def session_store(
    store: Store, name: str, key: PlannedSerde, value: PlannedSerde, windows: SessionWindows
) -> PlannedStore:
    """The store of a table by key and session. Raises WindowError where its retention is too short for the sessions."""
    refuse_another_kind(store, name, "session")
    _refuse_options_of_sessions(store, name)
    spec = session_spec(store_spec(store, name, key.serde, value.serde), _retention_ms(store, name, windows))
    return PlannedStore(spec, key, value)


def buffer_store(buffer: Buffer, name: str, key: PlannedSerde, value: PlannedSerde) -> PlannedStore:
    """What holds the changes of a table back."""
    spec = StoreSpec(
        name=name,
        kind="buffer",
        key_serde=key.serde,
        value_serde=value.serde,
        timestamped=False,
        persistent=False,
        caching=False,
        logging=buffer.logging,
        changelog_configs=frozen_config(buffer.changelog_config),
        renamed_from=buffer.renamed_from,
        version=buffer.version,
        upcasts=check_upcasts(buffer.version, buffer.upcast),
        site=call_site(),
    )
    return PlannedStore(spec, key, value)


def closed_store_name(store: str) -> str:
    """The store that remembers up to when the windows of ``store`` were closed by the wall clock."""
    return f"{store}-closed"


def closed_store(of: PlannedStore) -> PlannedStore:
    """The store of :func:`closed_store_name`: one entry, logged where the windows are."""
    name, before = closed_store_name(of.name), of.spec.renamed_from
    store = Store(
        name,
        caching=False,
        timestamped=False,
        logging=of.spec.logging,
        renamed_from=None if before is None else closed_store_name(before),
    )
    return PlannedStore(
        replace(store_spec(store, name, bytes_, long), timestamped=False), PlannedSerde(bytes_), PlannedSerde(long)
    )


def _retention_ms(store: Store, name: str, windows: AnyWindows) -> int:
    if store.retention_ms is None:
        return windows.retention_ms
    if store.retention_ms < windows.retention_ms:
        raise WindowError(
            f"store {name!r} keeps windows for {store.retention_ms} ms, but {windows!r} needs {windows.retention_ms} ms: "
            "raise its retention",
            call_site(),
        )
    return store.retention_ms


def added_store(store: Store) -> PlannedStore:
    """A store that processors connect to. Raises TopologyError where it has no name, or is a window store without times."""
    if store.name is None:
        raise TopologyError("a store for processors needs a name: Store('name', ...)", call_site())
    spec = replace(
        store_spec(store, store.name, store.key, store.value),
        caching=bool(store.caching) and store.max_entries is None,
        timestamped=bool(store.timestamped) or store.ttl_ms is not None,
        bare_values=store.ttl_ms is not None and not store.timestamped,
        default_persistence=False,
    )
    spec = ADDED[store.kind](spec, store)
    return PlannedStore(spec, PlannedSerde(store.key), PlannedSerde(store.value), shared=True)


def _added_key_value(spec: StoreSpec, store: Store) -> StoreSpec:
    refuse_options(
        store,
        spec.name,
        "it has one row for each key",
        *("window_size", "segment_interval", "retain_duplicates"),
    )
    return spec


def _added_window(spec: StoreSpec, store: Store) -> StoreSpec:
    if store.retention_ms is None or store.window_size_ms is None:
        raise WindowError(f"window store {store.name!r} needs retention= and window_size=", call_site())
    if store.retention_ms < store.window_size_ms:
        raise WindowError(f"window store {store.name!r} has a retention below its window size", call_site())
    refuse_options(store, spec.name, "only versioned stores have it", "segment_interval")
    return windowed_spec(spec, store.retention_ms, store.window_size_ms)


def _added_session(spec: StoreSpec, store: Store) -> StoreSpec:
    if store.retention_ms is None:
        raise WindowError(f"session store {store.name!r} needs retention=", call_site())
    _refuse_options_of_sessions(store, spec.name)
    return session_spec(spec, store.retention_ms)


def _refuse_options_of_sessions(store: Store, name: str) -> None:
    refuse_options(
        store,
        name,
        "it keeps sessions, which expire by retention=",
        *("window_size", "segment_interval", "max_entries", "retain_duplicates"),
    )


def read_only_store(store: Store, topic: str) -> PlannedStore:
    """A store whose changelog is the topic that it is filled from. Raises UnsupportedError for one with ttl."""
    planned = added_store(store)
    _refuse_ttl(
        planned.spec, "is filled from its source topic, which is its changelog, so nothing may be deleted from it"
    )
    refuse_version(planned.spec)
    return replace(planned, spec=replace(planned.spec, logging=False, source_topic=topic))


def global_store(planned: PlannedStore) -> PlannedStore:
    """The same as a global store: its topic is all that there is of it, so it is neither logged nor cached.

    Raises UnsupportedError for one with ttl.
    """
    _refuse_ttl(planned.spec, "is global: its rows are those of its topic")
    refuse_version(planned.spec)
    return replace(
        planned, spec=replace(planned.spec, logging=False, caching=False, changelog_configs=()), shared=False
    )


def _refuse_ttl(spec: StoreSpec, reason: str) -> None:
    if spec.ttl_ms is not None:
        raise UnsupportedError(f"store {spec.name!r} can't have ttl=: it {reason}", call_site())


def refuse_version(spec: StoreSpec) -> None:
    """Raises UnsupportedError for versions of rows that others write."""
    if spec.version > 1:
        raise UnsupportedError(
            f"store {spec.name!r} can't have version=: it is restored from a topic that is written without tags. Let the "
            "serde of the topic read both",
            call_site(),
        )


def windowed_spec(spec: StoreSpec, retention_ms: int, window_size_ms: int) -> StoreSpec:
    _refuse_ttl(spec, "keeps windows, which expire by retention=")
    return replace(
        spec,
        kind="window",
        retention_ms=retention_ms,
        segment_interval_ms=max(retention_ms // 2, MIN_SEGMENT_INTERVAL_MS),
        window_size_ms=window_size_ms,
    )


def versioned_spec(spec: StoreSpec, store: Store) -> StoreSpec:
    """A store of versions: never cached. Raises WindowError where it has no retention."""
    if store.retention_ms is None:
        raise WindowError(f"versioned store {spec.name!r} needs retention=, how long its history is kept", call_site())
    refuse_options(store, spec.name, "it keeps versions of keys, no windows", "window_size", "retain_duplicates")
    return replace(
        spec,
        kind="versioned",
        retention_ms=store.retention_ms,
        segment_interval_ms=store.segment_interval_ms or versioned_segment_interval_ms(store.retention_ms),
        caching=False,
        timestamped=True,
    )


def versioned_segment_interval_ms(retention_ms: int) -> int:
    """How much history expires at once. Source: Stores.persistentVersionedKeyValueStore of Kafka Streams."""
    steps = ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000))
    for up_to_ms, parts, least_ms in steps:
        if retention_ms <= up_to_ms:
            return max(retention_ms // parts, least_ms)
    return max(retention_ms // 24, 300_000)


def session_spec(spec: StoreSpec, retention_ms: int) -> StoreSpec:
    _refuse_ttl(spec, "keeps sessions, which expire by retention=")
    return replace(
        spec,
        kind="session",
        timestamped=False,
        retention_ms=retention_ms,
        segment_interval_ms=max(retention_ms // 2, MIN_SEGMENT_INTERVAL_MS),
    )


def generated_store_name(plan: Plan, prefix: str) -> str:
    return plan.number(prefix + STORE_INFIX)


def store_spec(store: Store, name: str, key: AnySerde, value: AnySerde) -> StoreSpec:
    """What the program says of a key-value store; what it leaves open has the DSL's defaults."""
    return StoreSpec(
        name=name,
        key_serde=key,
        value_serde=value,
        timestamped=store.timestamped is not False,
        persistent=not store.in_memory and store.max_entries is None and store.supplier is None,
        default_persistence=store.in_memory is None and store.max_entries is None and store.supplier is None,
        supplier=store.supplier,
        max_entries=store.max_entries,
        ttl_ms=store.ttl_ms,
        plain_rows=store.plain_rows,
        keeps_headers=store.keeps_headers is True,
        caching=store.caching is not False and store.max_entries is None and store.ttl_ms is None,
        logging=store.logging,
        changelog_configs=frozen_config(store.changelog_config),
        retain_duplicates=store.retain_duplicates,
        renamed_from=_former_name(store, name),
        version=store.version,
        upcasts=store.upcasts,
        site=call_site(),
    )


def _former_name(store: Store, name: str) -> str | None:
    """The former name of the store ``name``; where that is made of the program's name, its former name is, too."""
    if store.renamed_from is None or store.name is None:
        return None
    return store.renamed_from + name.removeprefix(store.name)


ADDED: Mapping[str, Callable[[StoreSpec, Store], StoreSpec]] = MappingProxyType(
    {
        "key_value": _added_key_value,
        "window": _added_window,
        "session": _added_session,
        "versioned": versioned_spec,
    }
)
"""What a store needs that is of the kind that the program names."""
