"""The stores of stream-stream joins: one window store per side, and one for records that no match was found for yet.

1. A side's store keeps several records of one key and time apart by a sequence number (``retain_duplicates``).
2. Without a name, the stores have the names of the steps; a name given by the program is their common prefix. A program
   that brings its own two stores specifies everything except their serdes.
3. The store of unmatched records holds bytes that the runtime encodes itself, not with the program's serdes.

Source: StreamJoined, StreamJoinedStoreFactory and OuterStreamJoinStoreFactory of Kafka Streams.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TypeAlias

from topology.build.materialize import refuse_another_kind, refuse_options, store_spec, windowed_spec
from topology.build.plan import PlannedSerde, PlannedStore
from topology.graph.operations.joins import JoinKind
from topology.graph.store_kinds import RowsOfKey, rows_called
from topology.spec.codecs import bytes_
from topology.spec.errors import TopologyError, WindowError, call_site
from topology.spec.join_windows import JoinWindows
from topology.spec.names import check_name
from topology.spec.stores import Store

_GENERATED_LEFT = re.compile(r"KSTREAM-(?:JOIN|OUTER)THIS-([0-9]{10})-store")

JoinStores: TypeAlias = str | Store | tuple[Store, Store] | None


@dataclass(frozen=True, slots=True)
class StreamJoinStores:
    """The stores of one join. ``shared`` is None for an inner join."""

    left: PlannedStore
    right: PlannedStore
    shared: PlannedStore | None


def stream_join_stores(
    kind: JoinKind,
    given: JoinStores,
    windows: JoinWindows,
    generated: tuple[str, str],
    key: PlannedSerde,
    values: tuple[PlannedSerde, PlannedSerde],
) -> StreamJoinStores:
    """The stores of a join. ``generated``: the steps' generated names. Raises TopologyError where they don't fit."""
    suffixes = _suffixes(kind)
    if isinstance(given, tuple):
        own = tuple(_supplied(store, windows, key, value) for store, value in zip(given, values, strict=True))
        if own[0].name == own[1].name:
            raise TopologyError(f"both stores of the join are named {own[0].name!r}", call_site())
        shared_name = own[0].name
    else:
        base = Store(check_name(given, "store")) if isinstance(given, str) else given or Store()
        if base.key is not None or base.value is not None:
            raise TopologyError("the serdes of a join are given with key=, value= and other_value=", call_site())
        if base.version > 1:
            raise TopologyError("the sides of a join have versions of their own: give two Stores", call_site())
        reason = "the join keeps records as long as its windows say"
        refuse_options(base, base.name or generated[0], reason, "retention", "window_size")
        prefixes = generated if base.name is None else tuple(base.name + suffix for suffix in suffixes)
        own = tuple(
            _window(base, f"{prefix}-store", windows, key, value)
            for prefix, value in zip(prefixes, values, strict=True)
        )
        shared_name = base.name or ""
    shared = None
    if kind != "inner":
        suffix = "-outer-shared-join" if kind == "outer" else "-left-shared-join"
        name = f"{shared_name}{suffix}" if shared_name else f"KSTREAM-OUTERSHARED-{generated[0].rpartition('-')[2]}"
        before = given[0] if isinstance(given, tuple) else given
        former = before.renamed_from if isinstance(before, Store) else None
        renamed_from = None if former is None else _former_shared(former, suffix)
        shared = _shared(given, own[0], f"{name}-store", renamed_from)
    return StreamJoinStores(own[0], own[1], shared)


def _suffixes(kind: JoinKind) -> tuple[str, str]:
    return side_suffix(kind, "this"), side_suffix(kind, "other")


def side_suffix(kind: JoinKind, side: str) -> str:
    """What is put behind a join's name for the step and the store of one side."""
    outer = kind == "outer" or (kind == "left" and side == "other")
    return f"-outer-{side}-join" if outer else f"-{side}-join"


def _window(store: Store, name: str, windows: JoinWindows, key: PlannedSerde, value: PlannedSerde) -> PlannedStore:
    refuse_another_kind(store, name, "window")
    refuse_options(store, name, "the join keeps records as long as its windows say", "segment_interval", "max_entries")
    spec = replace(
        store_spec(store, name, key.serde, value.serde), timestamped=False, caching=False, retain_duplicates=True
    )
    return PlannedStore(windowed_spec(spec, windows.retention_ms, windows.size_ms), key, value)


def _supplied(store: Store, windows: JoinWindows, key: PlannedSerde, value: PlannedSerde) -> PlannedStore:
    if store.name is None or rows_called(store.kind) is not RowsOfKey.WINDOWS:
        raise TopologyError(f"a store of a join needs a name and kind='window', not {store!r}", call_site())
    if not store.retain_duplicates:
        raise TopologyError(f"store {store.name!r} of a join needs retain_duplicates=True", call_site())
    if store.retention_ms != windows.retention_ms or store.window_size_ms != windows.size_ms:
        raise WindowError(
            f"store {store.name!r} has retention {store.retention_ms} ms and window size {store.window_size_ms} ms, but the "
            f"join's windows need exactly {windows.retention_ms} ms and {windows.size_ms} ms",
            call_site(),
        )
    planned = _window(store, store.name, windows, key.or_given(store.key), value.or_given(store.value))
    # Sequence numbers make all keys different, so compacting such a changelog does no harm; Kafka Streams does it here.
    configs = {"cleanup.policy": "compact,delete", **dict(planned.spec.changelog_configs)}
    return replace(planned, spec=replace(planned.spec, changelog_configs=tuple(sorted(configs.items()))))


def _former_shared(former: str, suffix: str) -> str:
    """The former name of the shared store, which is made of the same name as now or of the number of a generated one."""
    generated = _GENERATED_LEFT.fullmatch(former)
    return f"{former}{suffix}-store" if generated is None else f"KSTREAM-OUTERSHARED-{generated[1]}-store"


def _shared(given: JoinStores, left: PlannedStore, name: str, renamed_from: str | None) -> PlannedStore:
    configs = {} if isinstance(given, tuple) else dict(left.spec.changelog_configs)
    spec = replace(
        left.spec,
        name=name,
        renamed_from=renamed_from,
        version=1,
        upcasts=(),
        kind="key_value",
        key_serde=bytes_,
        value_serde=bytes_,
        changelog_configs=tuple(sorted(configs.items())),
        retention_ms=None,
        segment_interval_ms=None,
        window_size_ms=None,
        retain_duplicates=False,
    )
    return PlannedStore(spec, PlannedSerde(bytes_), PlannedSerde(bytes_))
