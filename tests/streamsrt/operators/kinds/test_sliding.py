"""Sliding windows against counting what lies in each of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.streamsrt.operators.programs import Piped
from tests.streamsrt.operators.ways import Run
from topology import SlidingWindows, Store, StreamsBuilder, Topology, serdes

DIFFERENCE_MS = 6


def program(*, caching: bool, grace_ms: int = 1_000, own_counter: bool = False) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    windowed = grouped.windowed_by(SlidingWindows(DIFFERENCE_MS, grace=grace_ms))
    store = Store("counts", value=serdes.long, caching=caching)
    if own_counter:
        counts = windowed.aggregate(int, lambda key, value, count: count + 1, store=store)
    else:
        counts = windowed.count(store=store)
    counts.to_stream().to("out", key=serdes.time_windowed(serdes.string, DIFFERENCE_MS), value=serdes.long)
    return builder.build()


def windows_of(times: list[int]) -> dict[int, int]:
    """By start: one that ends at each record, and one right behind it, where that holds any."""
    ordered = sorted(times)
    found = {}
    for time in times:
        for start in (time - DIFFERENCE_MS, time + 1):
            held = bisect_right(ordered, start + DIFFERENCE_MS) - bisect_left(ordered, start)
            if held:
                found[start] = held
    return found


AT_THE_EDGE = [21, 35, 36, 42, 49, 53]
"""The window that ends at 49 begins right behind 42: it is the left one of a record and the right one of another."""


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(DIFFERENCE_MS, 60), min_size=1, max_size=12),
    st.booleans(),
    st.booleans(),
    st.integers(0, 12),
)
@example(AT_THE_EDGE, False, True, 12)
@example(AT_THE_EDGE, True, False, 5)
def test_each_window_has_the_records_that_lie_in_it(times: list[int], caching: bool, generate: bool, cut: int) -> None:
    config = {} if caching else {"cache_max_bytes": 0}
    run = Run(program(caching=caching), generate=generate, **config)
    rows = [Piped("in", "a", "x", time, ()) for time in times]
    run.feed(rows[:cut])
    run.commit()
    run.restart()
    run.feed(rows[cut:])
    run.commit()
    counted = {int.from_bytes(row[0][-8:], "big"): int.from_bytes(row[1], "big") for row in run.written.topics["out"]}
    assert counted == windows_of(times)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.none() | st.tuples(st.sampled_from("ab"), st.integers(-15, 12)), max_size=25),
    st.integers(0, 9),
    st.booleans(),
)
def test_rows_that_are_counted_at_once_are_those_of_each_change(
    script: list[tuple[str, int] | None], grace_ms: int, generate: bool
) -> None:
    """With caching, a record is counted in all of its windows at once. ``script``: a record's key and how far it is ahead of
    stream time, or None for a commit. The windows begin with those that would start before time 0."""
    at_once = Run(program(caching=True, grace_ms=grace_ms), generate=generate)
    each = Run(program(caching=False, grace_ms=grace_ms), generate=generate, cache_max_bytes=0)
    time_ms = 0
    for step in script:
        if step is None:
            at_once.commit()
            each.commit()
            continue
        key, ahead = step
        rows = [Piped("in", key, "x", max(0, time_ms + ahead), ())]
        time_ms = max(time_ms, rows[0].timestamp)
        at_once.feed(rows)
        each.feed(rows)
    at_once.commit()
    each.commit()
    for topic in ("out", *(name for name in each.written.topics if name.endswith("-changelog"))):
        last = [{row[0]: row[1:3] for row in run.written.topics.get(topic, [])} for run in (at_once, each)]
        assert last[0] == last[1]
    assert at_once.task.counters() == each.task.counters()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.tuples(st.sampled_from("ab"), st.integers(-9, 9)), max_size=25), st.integers(0, 9))
@example([("a", 14), ("a", 7), ("a", 6), ("a", 0), None, ("b", 9), ("a", 1), ("a", 6), ("a", -6)], 9)
def test_a_count_writes_what_an_aggregation_that_counts_writes(
    script: list[tuple[str, int] | None], grace_ms: int
) -> None:
    """In the same order: a count has a way of its own for the latest record of a key. ``script``: as above."""
    runs = [Run(program(caching=True, grace_ms=grace_ms, own_counter=own)) for own in (False, True)]
    for run in runs:
        time_ms = 0
        for step in script:
            if step is None:
                run.commit()
                continue
            key, ahead = step
            row = Piped("in", key, "x", max(0, time_ms + ahead), ())
            time_ms = max(time_ms, row.timestamp)
            run.feed([row])
        run.commit()
    assert runs[0].outcome() == runs[1].outcome()
