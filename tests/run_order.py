"""Which cases a run takes where it takes a share of many, and where its long tests stand.

1. Of a test with the mark ``share(n)`` a run has every n-th case. With which one it begins follows from the seed of the
   order (``--randomly-seed``), so that runs differ and each of them can be repeated. With ``--full``, and where a test is
   named by its id, all cases run.
2. Each worker of pytest-xdist gets a part of the list, begins at its head, and takes from the ends of the others when it
   is done. So long tests stand at the heads, in random order, and short ones at the ends: no worker is left with a long
   one while the others have nothing. Those of Apache Kafka stand together, and those of Spark: what is started for them by
   the first one is not started by every worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import pytest

LONG = {"kafka", "long", "slow", "spark", "system"}
"""Marks of tests that take seconds."""


def of_this_run(items: Sequence[pytest.Item], seed: object) -> list[pytest.Item]:
    """Without the cases that are left to other runs."""
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("share")
        if mark is not None:
            cases.setdefault((item.nodeid.partition("[")[0], *mark.args), []).append(item)
    others = set[pytest.Item]()
    for (name, count), of_one in cases.items():
        first = crc32(f"{seed}::{name}".encode()) % count
        others.update(set(of_one).difference(sorted(of_one, key=_place)[first::count]))
    return [item for item in items if item not in others]


def _place(item: pytest.Item) -> list[int]:
    """Where a case stands in its test, whatever order the items are in."""
    assert isinstance(item, pytest.Function)
    return [index for _, index in sorted(item.callspec.indices.items())]


def long_first(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """The items in the order that is told above."""
    heads: list[list[pytest.Item]] = [[] for _ in range(workers)]
    of_kafka, of_spark = heads[-1], heads[0]
    without_kafka = heads[:-1] or heads
    short: list[pytest.Item] = []
    turn = 0
    for item in items:
        marks = {mark.name for mark in item.iter_markers()} & LONG
        if "kafka" in marks:
            of_kafka.append(item)
        elif "spark" in marks:
            of_spark.append(item)
        elif marks:
            without_kafka[turn % len(without_kafka)].append(item)
            turn += 1
        else:
            short.append(item)
    return _filled(heads, short)


def _filled(heads: Sequence[list[pytest.Item]], short: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Heads, each with as many short ones behind it as make its worker's part of the list."""
    found: list[pytest.Item] = []
    left, at = len(short) + sum(map(len, heads)), 0
    for number, head in enumerate(heads):
        size = left // (len(heads) - number)
        end = at + max(0, size - len(head))
        found += [*head, *short[at:end]]
        left, at = left - size, end
    return [*found, *short[at:]]
