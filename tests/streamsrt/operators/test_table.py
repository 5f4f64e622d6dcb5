"""The table of operations has a row for every one, and every row says all of it."""

from __future__ import annotations

from typing import get_args

import pytest

from streamsrt.operators.table import EMITS, MAKERS, OPERATIONS, Operator
from topology.graph import operations
from topology.graph.operations import traits

KINDS = frozenset(get_args(operations.Operation))


def test_every_operation_of_the_graph_has_a_row_in_both_tables() -> None:
    assert set(OPERATIONS) == KINDS
    assert set(traits.TRAITS) == KINDS


def test_no_row_relies_on_a_default() -> None:
    assert not traits.Traits._field_defaults
    assert not Operator._field_defaults
    assert {type(value) for row in traits.TRAITS.values() for value in row} == {
        traits.Key,
        traits.ResultsPerRecord,
        traits.Reads,
        traits.RowSource,
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
    assert row.reads is not traits.Reads.MAPPED_VALUE or "with_key" in fields
    assert row.stream_time is not traits.ObservedTime.OF_WINDOWS or {"windows", "store"} <= set(fields)
    assert row.stream_time is not traits.ObservedTime.ALWAYS or {"store", "buffer"} & set(fields)


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_what_closes_by_the_wall_clock_keeps_windows_or_holds_back(kind: type) -> None:
    row, fields = traits.TRAITS[kind], set(kind.__dataclass_fields__)
    keeps_windows = row.keeps_result and row.stream_time is not traits.ObservedTime.NONE
    assert ("idle_timeout_ms" in fields) == ("closed" in fields)
    assert "closed" not in fields or (keeps_windows and "windows" in fields) or row.holds_back


def test_what_has_code_runs_record_by_record_too() -> None:
    assert set(EMITS) < set(MAKERS)
