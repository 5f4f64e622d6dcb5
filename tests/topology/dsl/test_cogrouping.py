"""Cogrouped streams: what a program may say, and what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from topology import (
    KGroupedStream,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
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
