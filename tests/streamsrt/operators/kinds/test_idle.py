"""Windows that close, and suppressions that let go, by the wall clock: once, whatever happens, and late from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.operators.programs import piped
from tests.streamsrt.operators.ways import Input, assert_all_ways_agree, assert_an_interruption_changes_nothing
from topology import (
    EmitStrategy,
    KTable,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyError,
    UnlimitedWindows,
    serdes,
)

TEXT: Any = {"key": serdes.string, "value": serdes.string}
ON_CLOSE = EmitStrategy.ON_WINDOW_CLOSE
IDLE_MS = 100

inputs: st.SearchStrategy[list[Input]] = st.lists(st.just(IDLE_MS) | piped(("in",)) | piped(("in",)), max_size=30)
sizes = st.lists(st.integers(1, 20), min_size=1, max_size=3)

WINDOWS = {
    "tumbling": TimeWindows(10, grace=3),
    "hopping": TimeWindows(10, 4, grace=2),
    "sliding": SlidingWindows(6, grace=2),
    "session": SessionWindows(4, grace=2),
}


def _write(table: KTable[Any, Any], late: bool = True) -> None:
    named = table.to_stream(lambda window, _: f"{window.key}@{window.start_ms}-{window.end_ms}")
    named.to("out", key=serdes.string, value=serdes.long)
    if late:
        table.late().to("late")


def windowed(windows: Any) -> Topology:
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", **TEXT).group_by_key().windowed_by(windows)
    _write(grouped.emit_strategy(ON_CLOSE, idle_timeout=IDLE_MS).count(store="counts"))
    return builder.build()


def suppressed(windows: Any, suppression: Suppressed) -> Topology:
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", **TEXT).group_by_key().windowed_by(windows)
    _write(grouped.count(store="counts").suppress(suppression, name="last"), late=suppression.wait_ms is None)
    return builder.build()


FINAL = Suppressed.until_window_closes(idle_timeout=IDLE_MS)
PROGRAMS: dict[str, Callable[[], Topology]] = {
    **{name: lambda windows=windows: windowed(windows) for name, windows in WINDOWS.items()},  # type: ignore[misc]
    "suppressed": lambda: suppressed(WINDOWS["tumbling"], FINAL),
    "suppressed-sessions": lambda: suppressed(WINDOWS["session"], FINAL),
    "held-back": lambda: suppressed(WINDOWS["tumbling"], Suppressed.until_time_limit(20, idle_timeout=IDLE_MS)),
}


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=25, deadline=None)
@given(rows=inputs, batches=sizes)
def test_all_ways_of_running_it_agree(program: str, rows: list[Input], batches: list[int]) -> None:
    assert_all_ways_agree(PROGRAMS[program](), rows, batches)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("cache_max_bytes", [0, 1 << 20])
@settings(max_examples=25, deadline=None)
@given(rows=inputs, cut=st.integers(0, 30))
def test_an_interruption_changes_nothing(program: str, rows: list[Input], cut: int, cache_max_bytes: int) -> None:
    assert_an_interruption_changes_nothing(PROGRAMS[program](), rows, cut, cache_max_bytes=cache_max_bytes)


@pytest.mark.parametrize("program", ["tumbling", "hopping", "sliding", "suppressed"])
@settings(max_examples=40, deadline=None)
@given(rows=inputs)
def test_a_window_is_shown_once(program: str, rows: list[Input]) -> None:
    with driver_of(PROGRAMS[program]()) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        for row in [*rows, IDLE_MS]:
            if isinstance(row, int):
                driver.advance_wall_clock_time(row)
            else:
                topic.pipe_input(row.key, row.value, row.timestamp)
        shown = [key for key, _ in read(driver)]
    assert len(shown) == len(set(shown))


def driver_of(topology: Topology, **options: Any) -> TopologyTestDriver:
    return TopologyTestDriver(
        topology, {"default.key.serde": serdes.string, "default.value.serde": serdes.string}, **options
    )


def pipe(driver: TopologyTestDriver, *records: tuple[str, int]) -> None:
    topic = driver.create_input_topic("in", serdes.string, serdes.string)
    for key, timestamp in records:
        topic.pipe_input(key, "x", timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[str | None, int | None]]:
    return driver.create_output_topic("out", serdes.string, serdes.long).read_key_values_to_list()


def late(driver: TopologyTestDriver, key: Any = serdes.bytes) -> list[tuple[Any, int]]:
    records = driver.create_output_topic("late", key, serdes.bytes).read_records_to_list()
    return [(record.key, record.timestamp) for record in records]


@pytest.mark.parametrize("generate", [True, False])
def test_windows_close_when_no_record_came_for_the_time(generate: bool) -> None:
    with driver_of(windowed(WINDOWS["tumbling"]), generate=generate) as driver:
        pipe(driver, ("a", 1), ("b", 12), ("a", 2))
        driver.advance_wall_clock_time(IDLE_MS - 1)
        pipe(driver, ("b", 11))
        driver.advance_wall_clock_time(IDLE_MS - 1)
        assert read(driver) == []
        driver.advance_wall_clock_time(1)
        assert read(driver) == [("a@0-10", 2), ("b@10-20", 2)]
        driver.advance_wall_clock_time(10 * IDLE_MS)
        pipe(driver, ("a", 9), ("a", 19), ("c", 20))
        assert read(driver) == []
        assert late(driver) == [(b"a", 9), (b"a", 19)]
        pipe(driver, ("c", 33))
        assert read(driver) == [("c@20-30", 1)]


def test_a_session_that_was_closed_is_not_made_longer() -> None:
    with driver_of(windowed(WINDOWS["session"])) as driver:
        pipe(driver, ("a", 1), ("a", 3))
        driver.advance_wall_clock_time(IDLE_MS)
        assert read(driver) == [("a@1-3", 2)]
        pipe(driver, ("a", 7), ("a", 8))
        assert late(driver) == [(b"a", 7)]
        driver.advance_wall_clock_time(IDLE_MS)
        assert read(driver) == [("a@8-8", 1)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("program", ["tumbling", "suppressed"])
def test_what_was_closed_stays_closed_over_a_restart(program: str, clean: bool) -> None:
    with driver_of(PROGRAMS[program](), commit="each record" if clean else "manual") as driver:
        pipe(driver, ("a", 1))
        driver.commit()
        driver.advance_wall_clock_time(IDLE_MS)
        if program == "suppressed":
            # What a suppression lets go is logged with the commit: undone together, or done together.
            driver.commit()
        driver.restart(clean=clean)
        assert read(driver) == [("a@0-10", 1)]
        driver.advance_wall_clock_time(IDLE_MS)
        pipe(driver, ("a", 2), ("b", 40))
        driver.commit()
        driver.advance_wall_clock_time(IDLE_MS)
        assert read(driver) == [("b@40-50", 1)]
        assert [time for _, time in late(driver)] == [2]


def test_the_time_counts_from_a_restart_on() -> None:
    with driver_of(windowed(WINDOWS["tumbling"])) as driver:
        pipe(driver, ("a", 1))
        driver.advance_wall_clock_time(IDLE_MS - 1)
        driver.restart()
        driver.advance_wall_clock_time(IDLE_MS - 1)
        assert read(driver) == []
        driver.advance_wall_clock_time(1)
        assert read(driver) == [("a@0-10", 1)]


def test_a_suppression_lets_go_what_caches_held_back_too() -> None:
    with driver_of(suppressed(WINDOWS["tumbling"], FINAL), commit="manual") as driver:
        pipe(driver, ("a", 1), ("a", 2))
        driver.advance_wall_clock_time(IDLE_MS)
        assert read(driver) == [("a@0-10", 2)]
        pipe(driver, ("a", 3))
        driver.commit()
        assert read(driver) == []
        assert [time for _, time in late(driver)] == [3]


def test_a_suppression_by_time_begins_anew() -> None:
    with driver_of(PROGRAMS["held-back"]()) as driver:
        pipe(driver, ("a", 1))
        driver.advance_wall_clock_time(IDLE_MS)
        assert read(driver) == [("a@0-10", 1)]
        pipe(driver, ("a", 2))
        assert read(driver) == []
        driver.advance_wall_clock_time(IDLE_MS)
        assert read(driver) == [("a@0-10", 2)]


def test_another_operator_is_not_idle_while_its_own_sources_bring_records() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", **TEXT).merge(builder.stream("more", **TEXT)).group_by_key()
    table: KTable[Any, Any] = (
        counts.windowed_by(TimeWindows(10)).emit_strategy(ON_CLOSE, idle_timeout=IDLE_MS).count(store=Store("counts"))
    )
    _write(table)
    with driver_of(builder.build()) as driver:
        pipe(driver, ("a", 1))
        driver.advance_wall_clock_time(IDLE_MS - 1)
        driver.create_input_topic("more", serdes.string, serdes.string).pipe_input("b", "x", 2)
        driver.advance_wall_clock_time(IDLE_MS - 1)
        assert read(driver) == []
        driver.advance_wall_clock_time(1)
        assert read(driver) == [("a@0-10", 1), ("b@0-10", 1)]


def test_what_was_closed_is_in_a_store_of_its_own() -> None:
    (subtopology,) = windowed(WINDOWS["tumbling"]).subtopologies
    assert {store.name for store in subtopology.stores} == {"counts", "counts-closed"}
    assert {topic.name for topic in subtopology.changelog_topics} == {"counts-changelog", "counts-closed-changelog"}
    (last,) = suppressed(WINDOWS["tumbling"], FINAL).subtopologies
    assert {store.name for store in last.stores} == {"counts", "last-store", "last-store-closed"}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: _grouped(TimeWindows(5)).emit_strategy(ON_CLOSE, idle_timeout=0), "an idle_timeout is at least 1 ms"),
        (
            lambda: _grouped(TimeWindows(5)).emit_strategy(EmitStrategy.ON_WINDOW_UPDATE, idle_timeout=5),
            "goes with EmitStrategy.ON_WINDOW_CLOSE only",
        ),
        (lambda: _grouped(UnlimitedWindows()).emit_strategy(ON_CLOSE, idle_timeout=5), "never closed"),
        (lambda: Suppressed.until_time_limit(5, idle_timeout=-1), "an idle_timeout is at least 1 ms"),
        (
            lambda: _grouped(TimeWindows(5)).count().suppress(Suppressed.until_window_closes()).late(),
            "nothing is dropped as late here",
        ),
    ],
)
def test_mistakes_are_named_with_their_line(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(TopologyError, match=says) as raised:
        call()
    assert str(raised.value).startswith(f"{__file__}:")


def _grouped(windows: Any) -> Any:
    return StreamsBuilder().stream("in", **TEXT).group_by_key().windowed_by(windows)


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_window_that_ends_after_the_last_timestamp_never_closes(program: str, generate: bool) -> None:
    with driver_of(PROGRAMS[program](), generate=generate) as driver:
        pipe(driver, ("a", 1))
        for _ in range(2):
            pipe(driver, ("a", 2**63 - 1))
            driver.advance_wall_clock_time(IDLE_MS)
            driver.restart()
        shown = [key for key, _ in read(driver)]
    assert shown[0] is not None
    assert shown[0].startswith("a@1-" if program in {"session", "suppressed-sessions"} else "a@0-")
    assert program == "held-back" or len(shown) == 1
