"""The table of operations has a row for every one, and every row says all of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import topology
from streamsrt.operators.key_slices import KeySlices
from streamsrt.operators.table import EMITS, MAKERS, OPERATIONS, Operator, StoreKeys
from topology.graph import operations
from topology.graph.operations import traits
from topology.graph.operations.sides import JOIN_SIDES, UNMATCHED, SideOfJoin, SideTopics

KINDS = frozenset(get_args(operations.Operation))
NAMES = frozenset(kind.__name__ for kind in KINDS)
LOOK_UP = {operations.JoinLookup}
"""Joins with what a function finds, which have no other side."""
ROOT = Path(topology.__file__).parent.parent
THE_TABLES = ("topology/graph/operations/", "streamsrt/operators/table.py", "streamsrt/operators/kinds/")
REWRITES = {"topology/build/optimizer.py"}
"""Makes one operation out of a certain other one."""


def test_every_operation_of_the_graph_has_a_row_in_both_tables() -> None:
    assert set(OPERATIONS) == KINDS
    assert set(traits.TRAITS) == KINDS


def test_the_package_offers_every_operation_of_the_union() -> None:
    others = {"Function", "JoinOperation", "Operation"}
    assert set(operations.__all__) - others == NAMES, "the union Operation and __all__ are to name the same operations"


def test_no_row_relies_on_a_default() -> None:
    assert not traits.Traits._field_defaults
    assert not Operator._field_defaults
    assert {type(value) for row in traits.TRAITS.values() for value in row} == {
        traits.Key,
        traits.ResultsPerRecord,
        traits.Reads,
        traits.RowSource,
        traits.FromParent,
        traits.Code,
        traits.Rereading,
        traits.ObservedTime,
        traits.RunEnd,
        bool,
    }


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_what_a_row_says_fits_the_operations_fields(kind: type) -> None:
    row, fields = traits.TRAITS[kind], kind.__dataclass_fields__
    assert not row.keeps_result or "store" in fields
    assert row.key is not traits.Key.CHOSEN or "fixed_key" in fields
    assert row.results is not traits.ResultsPerRecord.BY_WINDOW or {"windows", "emit_on_close"} <= set(fields)
    assert row.key is not traits.Key.GROUPED or "splits_changes" in fields
    assert row.row is not traits.RowSource.FORWARDED or "store" in fields
    assert row.code is not traits.Code.PROCESSOR or "supplier" in fields
    assert row.results is not traits.ResultsPerRecord.TO_ONE_CHILD or {"children", "predicates"} <= set(fields)
    assert row.reads is not traits.Reads.MAPPED_VALUE or "with_key" in fields
    assert row.stream_time is not traits.ObservedTime.OF_WINDOWS or {"windows", "store"} <= set(fields)
    waits_for_table = (side := JOIN_SIDES.get(kind)) is not None and side.keeps is not None and side.table is not None
    assert row.stream_time is not traits.ObservedTime.ALWAYS or "store" in fields or waits_for_table


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_what_closes_by_the_wall_clock_keeps_windows_or_holds_back(kind: type) -> None:
    row, fields = traits.TRAITS[kind], set(kind.__dataclass_fields__)
    keeps_windows = row.keeps_result and row.stream_time is not traits.ObservedTime.NONE
    assert ("idle_timeout_ms" in fields) == ("closed" in fields)
    assert "closed" not in fields or (keeps_windows and "windows" in fields) or row.holds_back


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_an_operation_allows_slices_of_keys_only_if_its_other_rows_do(kind: type) -> None:
    traits_row, row = traits.TRAITS[kind], OPERATIONS[kind]
    slices = row.slices
    knows_other_keys = (
        traits_row.key is not traits.Key.KEPT
        or traits_row.code is traits.Code.PROCESSOR
        or traits_row.run_end is not traits.RunEnd.NOTHING
        or row.offline.outcome in ("refused", "one order")
        or not isinstance(row.keys, StoreKeys)
    )
    assert not knows_other_keys or slices.refusal is not None, "refuse slices, or change this test with a reason"
    if slices.refusal is None:
        observes = traits_row.stream_time is not traits.ObservedTime.NONE
        assert {slices.pass_time is not None, slices.slack_ms is not None} == {observes}
    else:
        assert slices == KeySlices(slices.refusal)


def test_a_function_takes_what_its_operation_reads() -> None:
    pair, value = operations.Filter(predicate=bool), operations.StreamJoinWindow(store="s")
    assert (traits.takes_key(pair), traits.takes_key(value)) == (True, False)
    assert not traits.takes_key(operations.MapBatches(fn=list, frame="arrow", unpack=False))
    assert traits.takes_key(operations.MapValues(fn=str, with_key=True))
    assert not traits.takes_key(operations.MapValues(fn=str))


def test_every_join_says_what_it_keeps_of_which_side() -> None:
    assert set(JOIN_SIDES) == set(get_args(operations.JoinOperation)) | {operations.StreamTableJoin}
    assert {kind for kind in KINDS if "joiner" in kind.__dataclass_fields__} - LOOK_UP <= set(JOIN_SIDES)
    assert not SideOfJoin._field_defaults


def test_every_join_of_a_stream_says_whether_its_records_need_a_match() -> None:
    assert all(field in kind.__dataclass_fields__ for kind, field in UNMATCHED.items())
    having = {kind for kind in JOIN_SIDES if {"left", "emits_unmatched"} & set(kind.__dataclass_fields__)}
    assert {kind.__name__ for kind in having - set(UNMATCHED)} == {"SubscriptionSend", "ResponseJoin"}, (
        "those of tables"
    )


@pytest.mark.parametrize("kind", sorted(JOIN_SIDES, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_what_a_side_names_are_fields_of_the_join(kind: type) -> None:
    side, fields = JOIN_SIDES[kind], set(kind.__dataclass_fields__)
    if side is None:
        assert not {"buffer", "waiting", "shared"} & fields
        return
    named = {each for each in (side.keeps, side.meets, side.shared, side.table) if each is not None}
    assert named
    assert named <= fields
    assert side.shared is None or "side" in fields
    assert side.topics is SideTopics.NONE or side.keeps or side.meets


def _guesses(tree: ast.Module) -> Iterator[int]:
    """Lines that ask which class an operation is, but to assert it, or that have a table by class."""
    asserted = {id(node) for each in ast.walk(tree) if isinstance(each, ast.Assert) for node in ast.walk(each.test)}
    for node in ast.walk(tree):
        asked: list[ast.expr | None] = []
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, classes]) if id(node) not in asserted:
                asked = [classes]
            case ast.MatchClass(cls=cls):
                asked = [cls]
            case ast.Compare(left=ast.Call(func=ast.Name(id="type"))):
                asked = [*node.comparators]
            case ast.Dict():
                asked = [*node.keys]
        if any(NAMES & _names(each) for each in asked if each is not None):
            assert isinstance(node, ast.expr | ast.pattern)
            yield node.lineno


def _names(tree: ast.expr) -> set[str]:
    nodes = list(ast.walk(tree))
    return {each.id for each in nodes if isinstance(each, ast.Name)} | {
        each.attr for each in nodes if isinstance(each, ast.Attribute)
    }


def test_nobody_guesses_an_operation_who_can_look_it_up() -> None:
    found = {
        f"{name}:{line}"
        for package in ("topology", "streamsrt")
        for path in sorted((ROOT / package).rglob("*.py"))
        if not (name := path.relative_to(ROOT).as_posix()).startswith(THE_TABLES) and name not in REWRITES
        for line in _guesses(ast.parse(path.read_text()))
    }
    assert not found, "what is true of an operation stands in its rows: give the tables a field for it"


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(op, Suppress)",
        "isinstance(op, operations.TableFilter | operations.TableMapValues)",
        "type(op) is operations.Map",
        "{operations.Map: 1}",
    ],
)
def test_a_guess_is_found(code: str) -> None:
    assert list(_guesses(ast.parse(code))) == [1]
    assert not list(_guesses(ast.parse("assert isinstance(op, Suppress)")))


def test_what_has_code_runs_record_by_record_too() -> None:
    assert set(EMITS) < set(MAKERS)
