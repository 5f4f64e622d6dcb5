"""Punctuations of processors in the test driver: when they are due, and what processors find when they begin."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import (
    FixedKeyProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Store,
    StreamsBuilder,
    Topology,
    TopologyError,
    WindowError,
    serdes,
)
from topology.spec.windows import Duration, Time


class Beats(Processor[str, str, str, int]):
    """Forwards the time of each punctuation under the name of what drives it."""

    def __init__(self, interval: Duration, start_time: Time | None) -> None:
        self.interval = interval
        self.start_time = start_time

    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context
        for type_ in PunctuationType:
            context.schedule(self.interval, type_, self.beat(type_.value), start_time=self.start_time)

    def beat(self, name: str) -> Callable[[int], None]:
        return lambda now: self.context.forward(Record(name, now, now))

    def process(self, record: Record[str, str]) -> None:
        pass


class FixedBeats(Beats, FixedKeyProcessor[str, str, int]):
    """The same behind ``process_values``."""


def beating(fixed: bool, interval: Duration, start_time: Time | None) -> Topology:
    builder = StreamsBuilder()
    records = builder.stream("in", key=serdes.string, value=serdes.string)
    if fixed:
        beats = records.process_values(lambda: FixedBeats(interval, start_time))
    else:
        beats = records.process(lambda: Beats(interval, start_time))
    beats.to("out", key=serdes.string, value=serdes.long)
    return builder.build()


def beats_of(driver: TopologyTestDriver) -> list[tuple[str | None, int | None]]:
    return driver.create_output_topic("out", serdes.string, serdes.long).read_key_values_to_list()


@pytest.mark.parametrize("fixed", [False, True], ids=["process", "process_values"])
def test_a_start_in_the_future_is_the_first_time(fixed: bool) -> None:
    with TopologyTestDriver(beating(fixed, 100, 1_030), initial_wall_clock_ms=1_000) as driver:
        records = driver.create_input_topic("in", serdes.string, serdes.string)
        for time in (5, 1_029, 1_030, 1_129, 1_131):
            records.pipe_input("k", "v", time)
        assert beats_of(driver) == [("stream_time", 1_030), ("stream_time", 1_131)]
        for step in (29, 1, 99, 1, 250):
            driver.advance_wall_clock_time(step)
        assert beats_of(driver) == [(("wall_clock_time"), now) for now in (1_030, 1_130, 1_380)]


@pytest.mark.parametrize("fixed", [False, True], ids=["process", "process_values"])
def test_a_start_that_is_over_counts_on_to_the_next_time(fixed: bool) -> None:
    hour = timedelta(hours=1)
    nine = datetime(2024, 1, 1, 9, tzinfo=UTC)
    nine_ms = int(nine.timestamp()) * 1000
    now_ms = nine_ms + 3 * 3_600_000 + 1
    with TopologyTestDriver(beating(fixed, hour, nine), initial_wall_clock_ms=now_ms) as driver:
        driver.advance_wall_clock_time(hour - timedelta(milliseconds=2))
        assert beats_of(driver) == []
        driver.advance_wall_clock_time(1)
        assert beats_of(driver) == [("wall_clock_time", nine_ms + 4 * 3_600_000)]


def test_the_grid_stays_the_same_after_a_restart() -> None:
    with TopologyTestDriver(beating(False, 100, 30)) as driver:
        records = driver.create_input_topic("in", serdes.string, serdes.string)
        records.pipe_input("k", "v", 1_055)
        assert beats_of(driver) == [("stream_time", 1_055)]
        driver.advance_wall_clock_time(45)
        assert beats_of(driver) == [("wall_clock_time", 45)]
        driver.restart()
        records.pipe_input("k", "v", 1_129)
        assert beats_of(driver) == []
        records.pipe_input("k", "v", 1_130)
        assert beats_of(driver) == [("stream_time", 1_130)]
        driver.advance_wall_clock_time(84)
        assert beats_of(driver) == []
        driver.advance_wall_clock_time(1)
        assert beats_of(driver) == [("wall_clock_time", 130)]


@pytest.mark.parametrize(
    ("start_time", "what"),
    [(-1, "before 1970"), (datetime(2024, 1, 1), "needs a time zone"), ("9:00", "must be a datetime")],
)
def test_a_start_that_is_no_time_is_refused(start_time: Any, what: str) -> None:
    with pytest.raises(WindowError, match=what):
        TopologyTestDriver(beating(False, 100, start_time))


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(TopologyError, match="at least 1 ms"):
        TopologyTestDriver(beating(False, 0, 5))


class FromState(Processor[str, str, str, str]):
    """Keeps in memory what its store holds; forwards what it found when it began."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.rows = context.get_state_store("rows")
        self.found = dict(self.rows.all())

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(",".join(f"{key}={value}" for key, value in sorted(self.found.items()))))
        self.rows.put(record.key, record.value)


def test_a_processor_begins_when_its_stores_are_restored() -> None:
    builder = StreamsBuilder()
    rows = Store("rows", key=serdes.string, value=serdes.string, timestamped=False)
    found = builder.stream("in", key=serdes.string, value=serdes.string).process(FromState, stores=[rows])
    found.to("out", key=serdes.string, value=serdes.string)
    with TopologyTestDriver(builder.build()) as driver:
        records = driver.create_input_topic("in", serdes.string, serdes.string)
        result = driver.create_output_topic("out", serdes.string, serdes.string)
        records.pipe_key_values([("a", "1"), ("b", "2")])
        driver.restart()
        records.pipe_input("c", "3")
        assert result.read_values_to_list() == ["", "", "a=1,b=2"]
