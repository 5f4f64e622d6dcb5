"""Compared with what Java 17 printed for the same calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from topology.graph.java_set_order import TreeSet, hash_order

GOLDEN = Path(__file__).parents[2] / "golden" / "java_sets" / "tree_sets.txt"


@pytest.mark.parametrize(
    ("names", "order"),
    [
        ("one two three four five six seven", "six four one seven two three five"),
        ("cherry banana apple", "banana cherry apple"),
        ("banana apple cherry apple", "banana apple cherry"),
        ("ü 😀 x", "😀 x ü"),
    ],
)
def test_hash_order(names: str, order: str) -> None:
    assert hash_order(names.split()) == order.split()


def test_hash_order_of_more_than_a_table_holds() -> None:
    order = [6, 7, 8, 9, 0, 1, 2, 3, 10, 4, 11, 5, *range(12, 20)]
    assert hash_order(f"topic-{number}" for number in range(20)) == [f"topic-{number}" for number in order]
    order = [6, 7, 8, 9, 0, 1, 2, 10, 3, 11, 4, 12, 5, *range(13, 20)]
    assert hash_order(f"topic-{number}" for number in reversed(range(20))) == [f"topic-{number}" for number in order]


@pytest.mark.parametrize("line", GOLDEN.read_text().splitlines())
def test_tree_set_whose_elements_grow(line: str) -> None:
    """Each line: ``a7`` adds element 7, ``g7:2`` makes it larger by 2; then the set. Larger ones come first."""
    calls, _, printed = line.partition("|")
    size = {str(number): 0 for number in range(30)}
    tree = TreeSet(lambda one, other: (-size[one], one) < (-size[other], other))
    for call in calls.split():
        if call[0] == "a":
            tree.add(call[1:])
        else:
            name, _, by = call[1:].partition(":")
            size[name] += int(by)
    assert f"[{', '.join(tree.items())}]" == printed
