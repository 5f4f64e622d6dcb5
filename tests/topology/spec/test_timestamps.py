"""Timestamp extractors by name, and where reading begins."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import StreamsBuilder, TopologyError
from topology.spec.timestamps import EXTRACTORS, timestamp_extractor


def at(timestamp: int) -> Any:
    return SimpleNamespace(timestamp=timestamp, system_time_ms=1234)


@pytest.mark.parametrize("name", EXTRACTORS)
def test_a_valid_timestamp_is_kept(name: str) -> None:
    extract = timestamp_extractor(f"org.apache.kafka.streams.processor.{name}")
    assert extract is not None
    assert extract(at(7), 3) == (1234 if "allclock" in name else 7)


def test_an_invalid_timestamp() -> None:
    assert EXTRACTORS["log_and_skip"](at(-1), 3) == -1
    assert EXTRACTORS["use_partition_time"](at(-1), 3) == 3
    for name in ("fail_on_invalid", "use_partition_time"):
        with pytest.raises(ValueError, match="no timestamp"):
            EXTRACTORS[name](at(-1), -1)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"no timestamp extractor 'latest'.*fail_on_invalid"):
        StreamsBuilder().stream("in", timestamp_extractor="latest")


def test_where_reading_begins() -> None:
    builder = StreamsBuilder()
    builder.stream("a", offset_reset="none").to("x")
    builder.stream("b", offset_reset=timedelta(hours=1)).to("x")
    sources = [source for part in builder.build().subtopologies for source in part.sources]
    assert [source.offset_reset for source in sources] == ["none", "by_duration:3600000"]
    for wrong in ("first", timedelta(seconds=-1)):
        with pytest.raises(TopologyError, match="offset_reset"):
            builder.stream("c", offset_reset=wrong)  # type: ignore[arg-type]


def test_the_wall_clock_is_the_tasks() -> None:
    builder = StreamsBuilder()
    builder.stream("in", timestamp_extractor="wallclock").to("out")
    with TopologyTestDriver(builder.build(), initial_wall_clock_ms=77) as driver:
        driver.pipe_raw("in", b"k", b"v", 5)
        assert [record.timestamp for record in driver.producer_history] == [77]
