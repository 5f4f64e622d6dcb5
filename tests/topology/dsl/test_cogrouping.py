"""Cogrouped streams: what a program may say, and what it may not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import (
    KGroupedStream,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    UnsupportedError,
    serdes,
)


def add(key: str, value: str, aggregate: str) -> str:
    return aggregate + value


def group(builder: StreamsBuilder, topic: str) -> KGroupedStream[str, str]:
    return builder.stream(topic, key=serdes.string, value=serdes.string).group_by_key()


@pytest.mark.parametrize("windows", [TimeWindows(5), SlidingWindows(5), UnlimitedWindows()])
def test_the_table_is_asked_by_the_store_that_the_groups_share(windows: Any) -> None:
    builder = StreamsBuilder()
    cogrouped = group(builder, "a").cogroup(add).cogroup(group(builder, "b"), add).windowed_by(windows)
    table = cogrouped.aggregate(str, store="co", value=serdes.string)
    assert table.queryable_store_name == "co"
    (subtopology,) = builder.build().subtopologies
    assert [store.name for store in subtopology.stores] == ["co"]
    assert subtopology.copartition_groups == (("a", "b"),)


def test_a_group_has_one_aggregator() -> None:
    builder = StreamsBuilder()
    grouped = group(builder, "a")
    with pytest.raises(TopologyError, match="cogrouped already"):
        grouped.cogroup(add).cogroup(grouped, add)


@dataclass
class Upper:
    """A serde of the program's. A dataclass that is not frozen has no hash."""

    name: str = "upper"

    def serialize(self, value: str) -> bytes:
        return value.upper().encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


def test_late_records_are_written_with_the_serde_of_the_groups() -> None:
    builder = StreamsBuilder()
    one, other = (builder.stream(topic, key=serdes.string, value=Upper()).group_by_key() for topic in "ab")
    windows = one.cogroup(add).cogroup(other, add).windowed_by(TimeWindows(5))
    windows.aggregate(str, value=serdes.string).late().to("late")
    (subtopology,) = builder.build().subtopologies
    assert [sink.value_serde for sink in subtopology.sinks] == [Upper()]


def test_a_table_of_versions_is_known_as_one() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("s", key=serdes.string, value=serdes.string)
    cogrouped = group(builder, "a").cogroup(add).cogroup(group(builder, "b"), add)
    table = cogrouped.aggregate(str, store=Store("co", kind="versioned", retention=100), value=serdes.string)
    with pytest.raises(TopologyError, match="tables without versions"):
        table.suppress(Suppressed.until_time_limit(5))
    stream.join(table, lambda one, other: one + other, grace=10).to("out", value=serdes.string)
    with TopologyTestDriver(builder.build()) as driver:
        topics = {name: driver.create_input_topic(name, serdes.string, serdes.string) for name in "sab"}
        topics["a"].pipe_input("k", "1", 1)
        topics["s"].pipe_input("k", "at 2: ", 2)
        topics["b"].pipe_input("k", "3", 3)
        topics["s"].pipe_input("k", "at 30: ", 30)
        out = driver.create_output_topic("out", serdes.string, serdes.string)
        assert out.read_values_to_list() == ["at 2: 1"]


def test_groups_are_of_one_builder() -> None:
    with pytest.raises(TopologyError, match="one StreamsBuilder"):
        group(StreamsBuilder(), "a").cogroup(add).cogroup(group(StreamsBuilder(), "b"), add)


def test_what_is_no_group_or_window_is_refused() -> None:
    cogrouped = group(StreamsBuilder(), "a").cogroup(add)
    with pytest.raises(UnsupportedError, match="takes a grouped stream"):
        cogrouped.cogroup("b", add)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="windowed_by"):
        cogrouped.windowed_by(5)  # type: ignore[call-overload]
    with pytest.raises(TopologyError, match="takes a function"):
        cogrouped.windowed_by(SessionWindows(5)).aggregate(str, None)  # type: ignore[arg-type]
