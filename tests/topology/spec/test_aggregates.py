"""Aggregates by name: what they add up to, in any order of merging, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from topology import Collect, Count, First, Last, Max, Mean, Min, NamedAggregate, Sum, TopologyError, agg

totals = agg(
    n=Count(),
    known=Count("x"),
    total=Sum("x"),
    low=Min("x"),
    high=Max(lambda row: row["x"]),
    first=First("x"),
    last=Last("x"),
    mean=Mean("x"),
    some=Collect("x", limit=3),
)

rows = st.lists(st.fixed_dictionaries({"x": st.none() | st.integers(-100, 100)}))


def over(values: list[dict[str, Any]]) -> dict[str, Any]:
    return reduce(lambda row, value: totals.add("k", value, row), values, totals())


@given(rows)
def test_they_are_what_python_makes_of_the_list(values: list[dict[str, Any]]) -> None:
    known = [value["x"] for value in values if value["x"] is not None]
    found = over(values)
    assert (found["n"], found["known"], found["total"]) == (len(values), len(known), sum(known))
    assert (found["low"], found["high"]) == (min(known, default=None), max(known, default=None))
    assert (found["first"], found["last"]) == (known[0] if known else None, known[-1] if known else None)
    assert found["mean"]["mean"] == (sum(known) / len(known) if known else None)
    assert list(found["some"]) == known[-3:]


@given(rows, rows)
def test_merging_two_halves_is_the_whole(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert _plain(totals.merge("k", over(one), over(other))) == _plain(over([*one, *other]))


@given(rows, rows)
def test_what_is_subtracted_was_never_there(kept: list[dict[str, Any]], gone: list[dict[str, Any]]) -> None:
    sums = agg(n=Count(), known=Count("x"), total=Sum("x"), mean=Mean("x"))
    row = sums()
    for value in [*kept, *gone]:
        row = sums.add("k", value, row)
    for value in gone:
        row = sums.subtract("k", value, row)
    expected = sums()
    for value in kept:
        expected = sums.add("k", value, expected)
    assert row == expected


def test_rows_are_never_changed_in_place() -> None:
    start = totals()
    one = totals.add("k", {"x": 1}, start)
    before = _plain(one)
    totals.add("k", {"x": 2}, one)
    totals.merge("k", one, one)
    assert start == totals()
    assert _plain(one) == before


def test_fields_of_objects_and_whole_values() -> None:
    @dataclass
    class Order:
        amount: int

    made = agg(total=Sum("amount"))
    assert made.add("k", Order(3), made()) == {"total": 3}
    plain = agg(total=Sum(), n=Count())
    assert plain.add("k", None, plain.add("k", 4, plain())) == {"total": 4, "n": 2}


def test_an_aggregate_of_ones_own() -> None:
    class Words(NamedAggregate):
        start = ""

        def add(self, state: Any, value: Any) -> Any:
            return f"{state} {value}".strip()

    made = agg(words=Words())
    assert made.add("k", "b", made.add("k", "a", made())) == {"words": "a b"}
    with pytest.raises(TypeError, match=r"define merge\(one, other\)"):
        made.merge("k", made(), made())


def test_mistakes_are_named() -> None:
    with pytest.raises(TopologyError, match="needs at least one aggregate"):
        agg()
    with pytest.raises(TopologyError, match=r"agg\(n=3\): give Count"):
        agg(n=3)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="of a field or of a function, not of 7"):
        Sum(7)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="give at least 1"):
        Collect(limit=0)
    with pytest.raises(TopologyError, match=r"low=Min\(\.\.\.\) can't take a value back"):
        _ = agg(n=Count(), low=Min()).subtract


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}
