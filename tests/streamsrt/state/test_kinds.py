"""Every kind of store has a row in each table of the client, and nobody guesses a kind who can look it up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import pytest

import streamsrt
from streamsrt.cli.console.instances import KEY_PATHS
from streamsrt.errors import ConfigError, UserError
from streamsrt.http.answers import KEY_QUERIES
from streamsrt.queries.preparation import QUERIES
from streamsrt.queries.read_only import VIEWS
from streamsrt.state import kinds
from streamsrt.state.cache import RowFormat
from streamsrt.state.kinds import STORES, StoreFunctions, cache_over, functions_of, lay_out, store_access, stored_view
from streamsrt.state.memory import MemoryStore
from streamsrt.testing.topology_test_driver import GETTERS, TopologyTestDriver
from tests.topology.graph.test_store_kinds import ASKED
from topology import serdes
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import NAMES, RowsOfKey, StoreKind, rows_of

ROOT = Path(streamsrt.__file__).parent.parent
THE_TABLES = {"topology/graph/store_kinds.py", "streamsrt/state/kinds.py", "topology/build/materialize.py"}
WHAT_A_PROGRAM_SAYS = "topology/spec/"


def _with_subclasses(kind: type) -> Iterator[type]:
    yield kind
    for each in kind.__subclasses__():
        yield from _with_subclasses(each)


CLASSES = {
    each.__name__
    for kind in chain(get_args(kinds.Cache), get_args(kinds.LaidOut))
    for each in _with_subclasses(kind)
    if each.__module__.startswith("streamsrt.")
}


def spec_of(kind: StoreKind) -> StoreSpec:
    asked: dict[str, Any] = {"segment_interval_ms": 10} if kind is StoreKind.VERSIONED else {}
    return StoreSpec(name="s", timestamped=kind is not StoreKind.DUPLICATES, **ASKED[kind], **asked)


def test_every_kind_has_a_row_in_each_table() -> None:
    assert set(STORES) == set(QUERIES) == set(StoreKind)
    assert not StoreFunctions._field_defaults


def test_every_sort_of_rows_is_read_and_named() -> None:
    assert set(VIEWS) == set(RowsOfKey) - {RowsOfKey.HELD}
    assert set(KEY_PATHS) == set(RowsOfKey)
    assert {f"/stores/{{store}}/{path}/{{key:key}}" for path in KEY_PATHS.values()} == set(KEY_QUERIES)
    assert set(GETTERS) == set(RowsOfKey) - {RowsOfKey.HELD}
    assert all(hasattr(TopologyTestDriver, getter) for getter in GETTERS.values())


@pytest.mark.parametrize("kind", StoreKind)
def test_a_row_opens_caches_and_exports_its_store(kind: StoreKind) -> None:
    spec, row_format = spec_of(kind), RowFormat(bytes, bytes, timestamped=True)
    store = lay_out(spec, MemoryStore("s"))
    cache = cache_over(spec, store, row_format)
    assert not list(functions_of(spec).rows(spec, store))
    if rows_of(spec) is RowsOfKey.HELD:
        with pytest.raises(UserError, match="can't be queried"):
            store_access(spec, cache, serdes.bytes, lambda: (0, (), 0), None, timestamped=False)
    else:
        assert store_access(spec, cache, serdes.bytes, lambda: (0, (), 0), None, timestamped=False).name == "s"
    if functions_of(spec).view is None:
        with pytest.raises(UserError, match="does not contain a table"):
            stored_view(spec, cache, serdes.bytes)


@pytest.mark.parametrize("kind", [kind for kind in StoreKind if "retention_ms" in ASKED.get(kind, {})])
def test_what_drops_old_rows_needs_a_retention(kind: StoreKind) -> None:
    asked = {name: value for name, value in ASKED[kind].items() if name != "retention_ms"}
    with pytest.raises(ConfigError, match="has no retention"):
        lay_out(StoreSpec(name="s", timestamped=False, **asked), MemoryStore("s"))


def _guesses(tree: ast.Module) -> Iterator[int]:
    """Lines that compare a store's kind with a name, list names of kinds, or ask which class a cache or a store is, but to
    assert it."""
    asserted = {id(node) for each in ast.walk(tree) if isinstance(each, ast.Assert) for node in ast.walk(each.test)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [inner for each in (node.left, *node.comparators) for inner in ast.walk(each)]
            of_kind = any(isinstance(each, ast.Attribute) and each.attr == "kind" for each in parts)
            if of_kind and any(isinstance(each, ast.Constant) and each.value in NAMES for each in parts):
                yield node.lineno
        if isinstance(node, ast.Dict):
            keys = [each.value for each in node.keys if isinstance(each, ast.Constant)]
            if keys and NAMES.issuperset(keys):
                yield node.lineno
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        if called and id(node) not in asserted:
            assert isinstance(node, ast.Call)
            if CLASSES & {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}:
                yield node.lineno


def test_nobody_guesses_a_kind_who_can_look_it_up() -> None:
    found = [
        f"{name}:{line}"
        for package in ("topology", "streamsrt")
        for path in sorted((ROOT / package).rglob("*.py"))
        if not (name := str(path.relative_to(ROOT))).startswith(WHAT_A_PROGRAM_SAYS) and name not in THE_TABLES
        for line in _guesses(ast.parse(path.read_text()))
    ]
    assert not found, "what is true of a kind of store stands in its rows: give the tables a field for it"


@pytest.mark.parametrize(
    "code",
    [
        "spec.kind == 'window'",
        "'session' != spec.kind",
        "spec.kind in ('window', 'buffer')",
        "isinstance(c, LruCache)",
        "{'versioned': 1}",
    ],
)
def test_a_guess_is_found(code: str) -> None:
    assert list(_guesses(ast.parse(code))) == [1]
