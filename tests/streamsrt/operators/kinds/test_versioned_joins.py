"""Joins of a stream with a versioned table, with a grace period and without, beside a plain computation of the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.streamsrt.operators.programs import Piped, Written, columns_of, commit, new_task
from topology import Store, StreamsBuilder, Topology, serdes

RETENTION_MS = 40


def joined(grace_ms: int | None, left: bool) -> Topology:
    builder = StreamsBuilder()
    store = Store("versions", kind="versioned", retention=RETENTION_MS, in_memory=True)
    table = builder.table("t", key=serdes.string, value=serdes.string, store=store)
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    join = stream.left_join if left else stream.join
    join(table, lambda value, row: f"{value}+{row}", grace=grace_ms).to("out")
    return builder.build()


class Versions:
    """All versions of each key, and the latest time that any had."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, str | None]] = {}
        self.now_ms = -1

    def put(self, key: str, value: str | None, at_ms: int) -> None:
        if at_ms >= self.now_ms - RETENTION_MS:
            self.now_ms = max(self.now_ms, at_ms)
            self.rows.setdefault(key, {})[at_ms] = value

    def as_of(self, key: str, at_ms: int) -> str | None:
        rows = self.rows.get(key, {})
        begun = [each for each in rows if each <= at_ms]
        if not begun or (at_ms < self.now_ms - RETENTION_MS and any(each > at_ms for each in rows)):
            return None
        return rows[max(begun)]


class Join:
    """The results, in their order. ``waiting``: time, key, number and value of each record that waits."""

    def __init__(self, grace_ms: int | None, left: bool) -> None:
        self.versions = Versions()
        self.out: list[tuple[Any, ...]] = []
        self.waiting: list[tuple[int, str, int, str]] = []
        self._grace_ms, self._left = grace_ms, left
        self._now_ms, self._number = -1, 0

    def take(self, row: Piped) -> None:
        if row.topic == "t":
            if row.key is not None:
                self.versions.put(row.key, row.value, row.timestamp)
        elif row.value is None or (row.key is None and not self._left):
            return
        elif row.key is None or self._grace_ms is None or row.timestamp < self._now_ms - self._grace_ms:
            self._join(row.key, row.value, row.timestamp)
        else:
            self._now_ms = max(self._now_ms, row.timestamp)
            self._number += 1
            self.waiting.append((row.timestamp, row.key, self._number, row.value))
            self.waiting.sort()
            while self.waiting and self.waiting[0][0] <= self._now_ms - self._grace_ms:
                at_ms, key, _, value = self.waiting.pop(0)
                self._join(key, value, at_ms)

    def _join(self, key: str | None, value: str, at_ms: int) -> None:
        row = None if key is None else self.versions.as_of(key, at_ms)
        if row is not None or self._left:
            self.out.append((None if key is None else key.encode(), f"{value}+{row}".encode(), at_ms, ()))


keys = st.sampled_from(("a", "b", "a", "b", "a", "b", None))
values = st.sampled_from(("x", "y", "z", "x", "y", "z", None))
rows = st.builds(
    Piped, st.sampled_from(("in", "t")), keys, values, st.integers(0, 10).map(lambda at: 10 * at), st.just(())
)


@pytest.mark.parametrize("left", [False, True])
@given(
    st.lists(st.one_of(rows, st.none()), min_size=20, max_size=40),
    st.sampled_from((None, 0, 10, 30)),
    st.sampled_from((0, 1 << 20)),
)
def test_late_records_and_versions_give_what_a_plain_computation_gives(
    left: bool, steps: Sequence[Piped | None], grace_ms: int | None, cache_max_bytes: int
) -> None:
    """A step: a record, or (None) a commit, after which caches may be empty."""
    written, join = Written(), Join(grace_ms, left)
    task = new_task(joined(grace_ms, left), written, cache_max_bytes=cache_max_bytes)
    offsets = {"in": 0, "t": 0}
    for step in [*steps, None]:
        if step is None:
            commit(task)
            continue
        task.add_batch(step.topic, 0, columns_of([step], offsets[step.topic]))
        offsets[step.topic] += 1
        while task.process(1_000, 0):
            continue
        join.take(step)
    assert written.topics.get("out", []) == join.out
    buffers = [cache for name, cache in task.caches.items() if name.endswith("-Buffer")]
    assert [len(list(cache.rows(None, None))) for cache in buffers] == [len(join.waiting)] * (grace_ms is not None)
