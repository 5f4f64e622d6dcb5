"""The kinds of state stores and their properties, in one table.

1. Every kind has a row, and every row has all properties: there are no defaults.
2. The rows say what a store means to a program and to its changelog. How a kind is stored, logged and read is in
   ``streamsrt.state.kinds``; which queries it answers is in ``streamsrt.queries.preparation.QUERIES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, get_args

from topology.graph.nodes import SpecKind, StoreSpec


class StoreKind(Enum):
    """Which kind of store a :class:`StoreSpec` asks for."""

    KEY_VALUE = "key-value"
    LRU = "key-value, the entries used last only"
    EXPIRING = "key-value, whose entries expire"
    WINDOW = "window"
    DUPLICATES = "window, which retains duplicates"
    SESSION = "session"
    VERSIONED = "versioned"
    BUFFER = "what a suppression holds back"


class Limit(Enum):
    """What a store drops without a record that deletes it."""

    NOTHING = "nothing"
    RETENTION = "what is older than its retention"
    LAST_UPDATE = "entries whose last update is ttl ago"
    COUNT = "the entries used longest ago, beyond max_entries"


class Cleanup(Enum):
    """How a changelog is cleaned up."""

    COMPACT = "compacted"
    COMPACT_DELETE = "compacted, and deleted a day after the retention"
    DELETE = "deleted a day after the retention: its keys are all different"
    HISTORY = "compacted, but not for its history and a day"


class RowsOfKey(Enum):
    """What a store has of a key."""

    ONE = "one row, which is found by the key's bytes alone: only such stores can be global"
    VERSIONS = "versions: a change is one, valid from its timestamp on"
    WINDOWS = "rows of windows"
    SESSIONS = "rows of sessions"
    HELD = "no rows, but changes that wait"


class StoreTraits(NamedTuple):
    """One row. ``row_timestamps``: rows of a timestamped store begin with the timestamp. ``changed_in_place``: operators may
    change a cached entry instead of putting another one. ``deletion_headers``: in a store that keeps headers, a tombstone
    has those of the record that deleted the row."""

    rows: RowsOfKey
    limit: Limit
    cleanup: Cleanup
    row_timestamps: bool
    changed_in_place: bool
    deletion_headers: bool


_W, _L, _C = RowsOfKey, Limit, Cleanup

STORE_TRAITS: Mapping[StoreKind, StoreTraits] = MappingProxyType(
    {
        StoreKind.KEY_VALUE: StoreTraits(_W.ONE, _L.NOTHING, _C.COMPACT, True, True, True),
        StoreKind.LRU: StoreTraits(_W.ONE, _L.COUNT, _C.COMPACT, True, False, True),
        StoreKind.EXPIRING: StoreTraits(_W.ONE, _L.LAST_UPDATE, _C.COMPACT, True, False, True),
        StoreKind.WINDOW: StoreTraits(_W.WINDOWS, _L.RETENTION, _C.COMPACT_DELETE, True, True, True),
        StoreKind.DUPLICATES: StoreTraits(_W.WINDOWS, _L.RETENTION, _C.DELETE, False, True, True),
        StoreKind.SESSION: StoreTraits(_W.SESSIONS, _L.RETENTION, _C.COMPACT_DELETE, False, True, True),
        StoreKind.VERSIONED: StoreTraits(_W.VERSIONS, _L.RETENTION, _C.HISTORY, False, False, False),
        StoreKind.BUFFER: StoreTraits(_W.HELD, _L.NOTHING, _C.COMPACT, False, True, True),
    }
)

_BY_NAME: Mapping[str, StoreKind] = {name: StoreKind[name.upper()] for name in get_args(SpecKind)}
NAMES = frozenset(_BY_NAME)
"""What ``StoreSpec.kind`` may say."""


def kind_of(spec: StoreSpec) -> StoreKind:
    """Which kind of store ``spec`` asks for. ``spec.kind`` is one of :data:`NAMES`."""
    kind = _BY_NAME[spec.kind]
    if kind is StoreKind.KEY_VALUE and spec.max_entries is not None:
        return StoreKind.LRU
    if kind is StoreKind.KEY_VALUE and spec.ttl_ms is not None:
        return StoreKind.EXPIRING
    return StoreKind.DUPLICATES if kind is StoreKind.WINDOW and spec.retain_duplicates else kind


def kind_called(name: str) -> StoreKind | None:
    """The kind of which ``StoreSpec.kind`` is that name, without what else a store is said to be; None: there is none."""
    return _BY_NAME.get(name)


def store_traits(spec: StoreSpec) -> StoreTraits:
    """The row of the kind of store that ``spec`` asks for."""
    return STORE_TRAITS[kind_of(spec)]


def rows_of(spec: StoreSpec) -> RowsOfKey:
    """What a store has of a key."""
    return store_traits(spec).rows


def rows_called(name: str) -> RowsOfKey:
    """What a store has of a key, of the kind that :attr:`StoreSpec.kind` names."""
    return STORE_TRAITS[_BY_NAME[name]].rows


def in_words(spec: StoreSpec) -> str:
    """What messages call the kind: as the program names it."""
    return spec.kind.replace("_", "-")
