"""What is said of outputs that are not those of an uninterrupted run."""

from __future__ import annotations

import pytest

from streamsrt.testing.simulator.invariants import compare
from streamsrt.testing.simulator.values import Output


def outputs(*values: bytes, key: bytes = b"k") -> dict[str, list[Output]]:
    return {"out": [Output(0, key, value, 0) for value in values]}


@pytest.mark.parametrize("found", [outputs(b"2", b"1", b"3"), outputs(b"3"), outputs(b"1", b"2", b"2", b"3")])
def test_a_difference_of_order_only_names_the_comparison_that_allows_it(found: dict[str, list[Output]]) -> None:
    expected = outputs(b"1", b"2", b"3")
    wrong = compare("each", found, expected)
    assert wrong is not None
    assert "The last value of each key is the right one" in wrong
    assert "--compare last" in wrong
    assert compare("last", found, expected) is None


@pytest.mark.parametrize("found", [outputs(b"1", b"3", b"2"), outputs(), outputs(b"3", key=b"other")])
def test_another_result_does_not(found: dict[str, list[Output]]) -> None:
    wrong = compare("each", found, outputs(b"1", b"2", b"3"))
    assert wrong is not None
    assert "--compare" not in wrong
