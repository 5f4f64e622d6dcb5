"""The table of kinds of stores has a row for every kind, and every row says all of it."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest

from tests.store_kinds import KINDS as PROGRAMS
from topology.build.materialize import ADDED
from topology.graph import store_kinds
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import STORE_TRAITS, Cleanup, Limit, RowsOfKey, StoreKind, StoreTraits, kind_of
from topology.spec.stores import KINDS, Store

ASKED: dict[StoreKind, dict[str, Any]] = {
    StoreKind.KEY_VALUE: {},
    StoreKind.LRU: {"max_entries": 10, "persistent": False},
    StoreKind.EXPIRING: {"ttl_ms": 10},
    StoreKind.WINDOW: {"kind": "window", "retention_ms": 10},
    StoreKind.DUPLICATES: {"kind": "window", "retention_ms": 10, "retain_duplicates": True},
    StoreKind.SESSION: {"kind": "session", "retention_ms": 10},
    StoreKind.VERSIONED: {"kind": "versioned", "retention_ms": 10},
    StoreKind.BUFFER: {"kind": "buffer"},
}


@pytest.mark.parametrize(
    ("rows", "where"), [(ASKED, "ASKED of this module"), (PROGRAMS, "KINDS of tests/store_kinds.py")]
)
def test_tests_make_a_store_of_every_kind(rows: dict[StoreKind, object], where: str) -> None:
    missing = [kind.name for kind in StoreKind if kind not in rows]
    assert not missing, f"{where} has no row for {', '.join(missing)}"


def test_every_kind_has_a_row_and_no_row_relies_on_a_default() -> None:
    assert set(STORE_TRAITS) == set(StoreKind)
    assert not StoreTraits._field_defaults
    assert {type(value) for row in STORE_TRAITS.values() for value in row} == {RowsOfKey, Limit, Cleanup, bool}


@pytest.mark.parametrize("kind", StoreKind)
def test_a_store_is_of_the_kind_that_it_asks_for(kind: StoreKind) -> None:
    assert kind_of(StoreSpec(name="s", **ASKED[kind])) is kind


def test_whatever_a_program_may_name_is_of_some_kind() -> None:
    assert frozenset(get_args(get_type_hints(StoreSpec)["kind"])) == store_kinds.NAMES
    assert get_args(get_type_hints(Store)["kind"]) == get_args(get_type_hints(Store.__init__)["kind"]) == KINDS
    assert {ASKED[kind].get("kind", "key_value") for kind in StoreKind} == store_kinds.NAMES
    assert set(ADDED) == set(KINDS) == store_kinds.NAMES - {"buffer"}
    assert [kind for kind in KINDS if f"``{kind}``" not in (Store.__doc__ or "")] == []


@pytest.mark.parametrize("kind", StoreKind)
def test_what_a_row_says_fits_together(kind: StoreKind) -> None:
    row = STORE_TRAITS[kind]
    assert (row.cleanup is Cleanup.COMPACT) == (row.limit is not Limit.RETENTION)
    assert (row.cleanup is Cleanup.HISTORY) == (row.rows is RowsOfKey.VERSIONS)
    assert row.rows is not RowsOfKey.ONE or row.row_timestamps
    assert not row.changed_in_place or row.limit in {Limit.NOTHING, Limit.RETENTION}
