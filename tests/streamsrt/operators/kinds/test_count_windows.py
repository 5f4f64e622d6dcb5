"""Count windows: when they open and close, what is forwarded, what is kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.operators.kinds.count_windows import step_of
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import (
    CountWindows,
    OpenWindow,
    OpenWindows,
    Store,
    StreamsBuilder,
    Topology,
    TopologyError,
    UnsupportedError,
    WindowError,
    serdes,
)
from topology.graph.operations import CountWindowAggregate
from topology.spec.count_windows import open_windows


def collect(key: object, value: Any, before: list[Any]) -> list[Any]:
    return [*before, value]


def collected(windows: CountWindows, **options: Any) -> Topology:
    """Lists of the values of each window."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.json).group_by_key()
    closed = stream.windowed_by(windows).aggregate(list, collect, store="open", value=serdes.json, **options)
    closed.to("out", key=serdes.string, value=serdes.json)
    return builder.build()


def run(
    records: list[tuple[str | None, Any, int]], windows: CountWindows, **options: Any
) -> tuple[list[Any], dict[str, Any]]:
    """What is forwarded, and the rows that are left."""
    with TopologyTestDriver(collected(windows, **options)) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.json)
        for key, value, timestamp in records:
            source.pipe_input(key, value, timestamp)
        result = driver.create_output_topic("out", serdes.string, serdes.json).read_records_to_list()
        rows = dict(driver.get_key_value_store("open").all())
    return [(each.key, each.value, each.timestamp) for each in result], rows


def test_a_window_closes_when_it_is_full_with_its_latest_time() -> None:
    records = [("a", 1, 10), ("b", 2, 20), ("a", 3, 5), ("a", 4, 7), ("a", 5, 8), ("b", 6, 1)]
    forwarded, rows = run(records, CountWindows(2))
    assert forwarded == [("a", [1, 3], 10), ("a", [4, 5], 8), ("b", [2, 6], 20)]
    assert rows == {}


def test_windows_that_overlap_take_each_record() -> None:
    forwarded, rows = run([("a", number, number) for number in range(7)], CountWindows(4, 2))
    assert forwarded == [("a", [0, 1, 2, 3], 3), ("a", [2, 3, 4, 5], 5)]
    assert rows == {"a": OpenWindows(1, (OpenWindow(3, 6, [4, 5, 6]), OpenWindow(1, 6, [6])))}


def test_the_program_may_close_a_window_early_and_the_next_record_opens_another() -> None:
    records = [("a", number, number) for number in (1, 2, 9, 3, 4, 5, 6)]
    forwarded, rows = run(records, CountWindows(3), close_when=lambda key, found: sum(found) > 10)
    assert forwarded == [("a", [1, 2, 9], 9), ("a", [3, 4, 5], 5)]
    forwarded, rows = run(records, CountWindows(5), close_when=lambda key, found: 9 in found)
    assert forwarded == [("a", [1, 2, 9], 9)]
    assert rows == {"a": OpenWindows(4, (OpenWindow(4, 6, [3, 4, 5, 6]),))}


def test_records_without_key_or_value_are_dropped() -> None:
    forwarded, rows = run([(None, 1, 1), ("a", None, 2), ("a", 3, 3)], CountWindows(1))
    assert forwarded == [("a", [3], 3)]
    assert rows == {}


@pytest.mark.parametrize("generate", [True, False], ids=["generated", "nodes"])
def test_what_is_dropped_is_counted(generate: bool) -> None:
    with TopologyTestDriver(collected(CountWindows(2)), generate=generate) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.json)
        records: list[tuple[str | None, int | None]] = [(None, 1), ("a", None), (None, None), ("a", 2), ("a", 3)]
        dropped = []
        for record in records:
            source.pipe_input(*record)
            dropped.append((driver.counters()["dropped_null"], driver.counters()["dropped"]))
        assert dropped == [(1, 1), (2, 2), (3, 3), (3, 3), (3, 3)]
        assert driver.create_output_topic("out", serdes.string, serdes.json).read_values_to_list() == [[2, 3]]


def test_a_window_that_is_not_filled_in_time_is_forgotten_with_a_ttl() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.long).group_by_key()
    totals = stream.windowed_by(CountWindows(2)).reduce(lambda one, other: one + other, store=Store("open", ttl=100))
    totals.to("out", key=serdes.string, value=serdes.long)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.long)
        for number, timestamp in ((1, 0), (2, 101), (3, 150)):
            source.pipe_input("a", number, timestamp)
        assert driver.create_output_topic("out", serdes.string, serdes.long).read_values_to_list() == [5]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.lists(st.integers(0, 9), max_size=30))
def test_windows_are_the_slices_of_a_keys_records(size: int, advance: int, values: list[int]) -> None:
    size, advance = max(size, advance), min(size, advance)
    step = step_of(
        CountWindowAggregate(
            store="s", size=size, advance=advance, initializer=tuple, aggregator=lambda k, v, a: (*a, v)
        )
    )
    row, found = None, []
    for time, value in enumerate(values):
        row, closed = step("k", value, time, row)
        found += [window.aggregate for window in closed]
    starts = range(0, len(values) - size + 1, advance)
    assert found == [tuple(values[start : start + size]) for start in starts]


rows = st.builds(
    OpenWindows,
    st.integers(0, 100),
    st.lists(st.builds(OpenWindow, st.integers(0, 9), st.integers(-1, 2**60), st.none() | st.text(max_size=5))).map(
        tuple
    ),
)


@given(rows)
def test_rows_are_read_as_they_were_written(row: OpenWindows) -> None:
    serde = open_windows(serdes.string)
    assert serde.deserialize(serde.serialize(row)) == row


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda grouped: CountWindows(0), WindowError, "windows of 0 records can't advance by 0"),
        (lambda grouped: CountWindows(2, 3), WindowError, "0 < advance <= size"),
        (lambda grouped: grouped.reduce(max, store=Store(caching=True)), UnsupportedError, "without caching"),
        (lambda grouped: grouped.reduce(max, store=Store(max_entries=5)), UnsupportedError, "max_entries"),
        (lambda grouped: grouped.reduce(max, close_when=lambda row: row), TopologyError, "with .key, aggregate."),
    ],
)
def test_mistakes_are_found_when_the_program_is_built(wrong: Any, kind: type[TopologyError], message: str) -> None:
    builder = StreamsBuilder()
    with pytest.raises(kind, match=message):
        wrong(builder.stream("in").group_by_key().windowed_by(CountWindows(3)))
