"""Rows that queries read of a store whose values have versions, for every kind of store that answers queries."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamsrt.errors import UserError
from streamsrt.queries.preparation import Prepared, prepare
from streamsrt.queries.readers import RawRow
from streamsrt.queries.routing import Routing, StoreDirectory
from streamsrt.queries.values import (
    KeyQuery,
    MultiVersionedKeyQuery,
    PrefixQuery,
    Query,
    RangeQuery,
    SessionKeyQuery,
    SessionRangeQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from tests.store_kinds import KINDS
from topology import serdes
from topology.graph.store_kinds import StoreKind, store_traits
from topology.spec.row_versions import versioned_values

Value = dict[str, int]
QUERIES: list[Query] = [
    KeyQuery("ann"),
    TimestampedKeyQuery("ann"),
    RangeQuery(None, None),
    TimestampedRangeQuery(None, None),
    PrefixQuery("a", serdes.string),
    WindowKeyQuery("ann", 0, 9),
    WindowRangeQuery(0, 9),
    SessionKeyQuery("ann", 0, 9),
    SessionRangeQuery(0),
    VersionedKeyQuery("ann"),
    MultiVersionedKeyQuery("ann", 0, 9),
]
UNASKED = {StoreKind.DUPLICATES, StoreKind.BUFFER}


def answered(kind: StoreKind, upcast: Callable[[Value], Value]) -> tuple[list[Prepared], bytes]:
    """Every query that such a store answers, and how its rows begin."""
    topology = KINDS[kind].build("rows", {"version": 2, "upcast": {1: upcast}})
    spec = KINDS[kind].spec(topology, "rows")
    routing = Routing(StoreDirectory(topology, "app"), lambda _: 1)
    found = [prepared for query in QUERIES if (prepared := prepare(routing, spec.name, query)) is not None]
    has_time = spec.timestamped and store_traits(spec).row_timestamps
    return found, (5).to_bytes(8, "big") if has_time else b""


@pytest.mark.parametrize("kind", StoreKind)
def test_rows_of_every_version_are_answered_as_the_latest(kind: StoreKind) -> None:
    prepared, begins = answered(kind, lambda value: {**value, "second": 1})
    assert bool(prepared) == (kind not in UNASKED)
    later = versioned_values(serdes.json, 2, (), "rows").serialize({"pens": 1, "second": 1})
    for each in prepared:
        old, new = (each.convert(RawRow(b"ann", begins + value, 1, 2)) for value in (b'{"pens":1}', later))
        assert old == new
        assert "'second': 1" in repr(new)


@pytest.mark.parametrize("kind", StoreKind)
def test_a_row_that_can_not_be_upcast_is_named(kind: StoreKind) -> None:
    prepared, begins = answered(kind, lambda value: {"missing": value["missing"]})
    for each in prepared:
        with pytest.raises(UserError, match=r"store 'rows', key b'ann': upcast=.* raised KeyError: 'missing'"):
            each.convert(RawRow(b"ann", begins + b'{"pens":1}', 1, 2))
