"""Each kind of query on each kind of store: how a task is read, and what a caller gets of a row.

:data:`QUERIES` has a row for each kind of store. Which class a caller gets is told by the store's rows
(:data:`streamsrt.queries.read_only.VIEWS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from struct import Struct
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from streamsrt.errors import UserError
from streamsrt.queries import readers
from streamsrt.queries.errors import UnreadableStoreRowError
from streamsrt.queries.readers import RawRow
from streamsrt.queries.routing import Routing
from streamsrt.queries.values import (
    Key,
    KeyQuery,
    MultiVersionedKeyQuery,
    PrefixQuery,
    Query,
    RangeQuery,
    SessionKeyQuery,
    SessionRangeQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    Value,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from streamsrt.state.store import after_prefix
from streamsrt.wording import error_text
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import StoreKind, in_words, kind_of
from topology.spec.row_versions import UpcastError
from topology.spec.stores import ValueAndTimestamp, VersionedRecord
from topology.spec.windows import Windowed

_timestamp_of = Struct(">q").unpack_from

Prepare: TypeAlias = "Callable[[Routing, StoreSpec, Query], Prepared | None]"
Convert = Callable[[RawRow], Value]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query prepared for tasks. ``read`` returns a row or None if the query is for one row, else an iterator of rows."""

    read: Callable[[Any], Any]  # of the cache of the store's kind, and as of_one_row says
    convert: Convert
    of_one_row: bool


def describe(spec: StoreSpec) -> str:
    """Describes a store's kind as text."""
    return f"a {'timestamped ' if spec.timestamped else ''}{in_words(spec)} store"


def _plain(spec: StoreSpec) -> Callable[[bytes], Value]:
    assert spec.value_serde is not None
    deserialize = spec.value_serde.deserialize
    return (lambda row: deserialize(row[8:])) if spec.timestamped else deserialize


def _stamped(spec: StoreSpec) -> Callable[[bytes], Value]:
    assert spec.value_serde is not None
    deserialize = spec.value_serde.deserialize
    return lambda row: ValueAndTimestamp(deserialize(row[8:]), _timestamp_of(row)[0])


def _key(routing: Routing, spec: StoreSpec, key: Key) -> bytes:
    return routing.stores.key_bytes(spec.name, key)


def _bounds(routing: Routing, spec: StoreSpec, lower: Key, upper: Key) -> tuple[bytes | None, bytes | None]:
    return (
        None if lower is None else _key(routing, spec, lower),
        None if upper is None else _key(routing, spec, upper) + b"\0",
    )


def _by_key(spec: StoreSpec, key: bytes, value: Callable[[bytes], Value]) -> Prepared:
    def read(cache: Any) -> RawRow | None:
        row = readers.key_row(cache, key)
        return None if row is None else RawRow(key, row)

    return Prepared(read, lambda raw: value(raw.row), of_one_row=True)


def _by_range(
    spec: StoreSpec, start: bytes | None, end: bytes | None, value: Callable[[bytes], Value], *, reverse: bool
) -> Prepared:
    assert spec.key_serde is not None
    key_of = spec.key_serde.deserialize
    return Prepared(
        lambda cache: readers.key_rows(cache, start, end, reverse=reverse),
        lambda raw: (key_of(raw.key), value(raw.row)),
        of_one_row=False,
    )


def _by_window_of_key(routing: Routing, spec: StoreSpec, query: WindowKeyQuery) -> Prepared:
    key = _key(routing, spec, query.key)
    value = _stamped(spec) if spec.timestamped else _plain(spec)
    return Prepared(
        lambda cache: readers.windows_of_key(cache, key, query.time_from, query.time_to, reverse=query.reverse),
        lambda raw: (raw.start, value(raw.row)),
        of_one_row=False,
    )


def _by_windows(routing: Routing, spec: StoreSpec, query: WindowRangeQuery) -> Prepared:
    assert spec.key_serde is not None
    low = None if query.lower is None else _key(routing, spec, query.lower)
    high = None if query.upper is None else _key(routing, spec, query.upper)
    value = _stamped(spec) if spec.timestamped else _plain(spec)
    key_of, size_ms = spec.key_serde.deserialize, spec.window_size_ms or 0
    return Prepared(
        lambda cache: readers.all_windows(cache, query.time_from, query.time_to, low, high, reverse=query.reverse),
        lambda raw: (Windowed(key_of(raw.key), raw.start, raw.start + size_ms), value(raw.row)),
        of_one_row=False,
    )


def prepare(routing: Routing, store: str, query: Query) -> Prepared | None:
    """Prepares a query; None if a store of that kind does not answer such queries. Raises UnknownStateStoreError,
    UserError. The conversion raises UserError for a failed upcast, and UnreadableStoreRowError."""
    spec = routing.stores.spec(store)
    found = QUERIES[kind_of(spec)].prepare(routing, spec, query)
    return None if found is None else replace(found, convert=_explained(store, found.convert))


def _explained(store: str, convert: Convert) -> Convert:
    """Wraps a conversion so that its failures name the row."""

    def decoded(raw: RawRow) -> Value:
        try:
            return convert(raw)
        except UpcastError as error:
            error.key = raw.key
            raise UserError(error.with_advice) from error
        except Exception as error:
            raise UnreadableStoreRowError(
                f"store {store!r}: the row with the key {raw.key!r} can't be read by the store's serdes: "
                f"{error_text(error)}. Give the store serdes that read what was written, or query the other "
                "rows by key or in ranges without it"
            ) from error

    return decoded


def key_query(spec: StoreSpec, key: object, as_of_ms: int | None) -> Query:
    """Returns the query for the row of a key; ``as_of_ms``: of a versioned store, the version valid at that time."""
    return QUERIES[kind_of(spec)].by_key(spec, key, as_of_ms)


def _prepare_window(routing: Routing, spec: StoreSpec, query: Query) -> Prepared | None:
    match query:
        case WindowKeyQuery():
            return _by_window_of_key(routing, spec, query)
        case WindowRangeQuery():
            return _by_windows(routing, spec, query)
    return None


def _prepare_session(routing: Routing, spec: StoreSpec, query: Query) -> Prepared | None:
    assert spec.key_serde is not None
    key_of, value = spec.key_serde.deserialize, _plain(spec)

    def convert(raw: RawRow) -> Value:
        return Windowed(key_of(raw.key), raw.start, raw.end), value(raw.row)

    match query:
        case SessionKeyQuery(key, earliest_end, latest_start, reverse):
            raw_key = _key(routing, spec, key)
            return Prepared(
                lambda cache: readers.sessions_of_key(cache, raw_key, earliest_end, latest_start, reverse=reverse),
                convert,
                of_one_row=False,
            )
        case SessionRangeQuery(earliest_end, reverse):
            return Prepared(
                lambda cache: readers.all_sessions(cache, earliest_end, reverse=reverse), convert, of_one_row=False
            )
    return None


def _prepare_versioned(routing: Routing, spec: StoreSpec, query: Query) -> Prepared | None:
    assert spec.value_serde is not None
    value = spec.value_serde.deserialize

    def convert(raw: RawRow) -> Value:
        return VersionedRecord(value(raw.row), raw.start, None if raw.end < 0 else raw.end)

    match query:
        case VersionedKeyQuery(key, as_of):
            raw_key = _key(routing, spec, key)
            return Prepared(lambda cache: readers.version_row(cache, raw_key, as_of), convert, of_one_row=True)
        case MultiVersionedKeyQuery(key, time_from, time_to, ascending):
            raw_key = _key(routing, spec, key)
            return Prepared(
                lambda cache: readers.versions_of_key(cache, raw_key, time_from, time_to, ascending=ascending),
                convert,
                of_one_row=False,
            )
    return None


def _prepare_key_value(routing: Routing, spec: StoreSpec, query: Query) -> Prepared | None:
    match query:
        case KeyQuery(key):
            return _by_key(spec, _key(routing, spec, key), _plain(spec))
        case TimestampedKeyQuery(key) if spec.timestamped:
            return _by_key(spec, _key(routing, spec, key), _stamped(spec))
        case RangeQuery(lower, upper, reverse):
            return _by_range(spec, *_bounds(routing, spec, lower, upper), _plain(spec), reverse=reverse)
        case TimestampedRangeQuery(lower, upper, reverse) if spec.timestamped:
            return _by_range(spec, *_bounds(routing, spec, lower, upper), _stamped(spec), reverse=reverse)
        case PrefixQuery(prefix, serde, reverse, with_timestamps):
            try:
                start = serde.serialize(prefix)
            except Exception as error:
                raise UserError(f"{prefix!r} can't be serialized as a prefix: {error}") from error
            value = _stamped(spec) if with_timestamps and spec.timestamped else _plain(spec)
            return _by_range(spec, start, after_prefix(start), value, reverse=reverse)
    return None


def _prepare_nothing(routing: Routing, spec: StoreSpec, query: Query) -> Prepared | None:
    return None


def _value_of_key(spec: StoreSpec, key: object, as_of_ms: int | None) -> Query:
    return (TimestampedKeyQuery if spec.timestamped else KeyQuery)(key)


def _version_of_key(spec: StoreSpec, key: object, as_of_ms: int | None) -> Query:
    return VersionedKeyQuery(key, as_of_ms)


class RowQuery(NamedTuple):
    """One row. ``prepare`` gives None for a query that the kind of store does not answer. ``by_key`` makes the query for
    the row of a key, which ``prepare`` may refuse: a key of a window store has many rows."""

    prepare: Prepare
    by_key: Callable[[StoreSpec, object, int | None], Query]


QUERIES: Mapping[StoreKind, RowQuery] = MappingProxyType(
    {
        StoreKind.KEY_VALUE: RowQuery(_prepare_key_value, _value_of_key),
        StoreKind.LRU: RowQuery(_prepare_key_value, _value_of_key),
        StoreKind.EXPIRING: RowQuery(_prepare_key_value, _value_of_key),
        StoreKind.WINDOW: RowQuery(_prepare_window, _value_of_key),
        StoreKind.DUPLICATES: RowQuery(_prepare_nothing, _value_of_key),
        StoreKind.SESSION: RowQuery(_prepare_session, _value_of_key),
        StoreKind.VERSIONED: RowQuery(_prepare_versioned, _version_of_key),
        StoreKind.BUFFER: RowQuery(_prepare_nothing, _value_of_key),
    }
)
