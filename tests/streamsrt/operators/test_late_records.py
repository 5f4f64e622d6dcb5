"""Late records as a stream: what is dropped as too late, once, as it came; in every way of running it, and restarted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.operators.programs import Piped, piped
from tests.streamsrt.operators.ways import Run, assert_all_ways_agree, assert_an_interruption_changes_nothing
from topology import (
    EmitStrategy,
    JoinWindows,
    KTable,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    TimeWindows,
    Topology,
    serdes,
)

TEXT: Any = {"key": serdes.string, "value": serdes.string}
ON_CLOSE = EmitStrategy.ON_WINDOW_CLOSE

rows = st.lists(piped(("in",)), max_size=40)
sizes = st.lists(st.integers(1, 20), min_size=1, max_size=3)


def windowed(windows: Any, *, on_close: bool = False, caching: bool = True) -> Topology:
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", **TEXT).group_by_key().windowed_by(windows)
    if on_close:
        grouped = grouped.emit_strategy(ON_CLOSE)
    table: KTable[Any, Any] = grouped.count(store=Store("counts", caching=caching))
    named = table.to_stream(lambda window, _: f"{window.key}@{window.start_ms}-{window.end_ms}")
    named.to("out", key=serdes.string, value=serdes.long)
    table.late(name="too-late").to("late", **TEXT)
    return builder.build()


def cogrouped() -> Topology:
    builder = StreamsBuilder()
    groups = [builder.stream(topic, **TEXT).group_by_key() for topic in ("in", "other")]

    def add(key: str, value: str, total: int) -> int:
        return total + 1

    table: KTable[Any, Any] = (
        groups[0].cogroup(add).cogroup(groups[1], add).windowed_by(TimeWindows(10)).aggregate(int, value=serdes.long)
    )
    table.late().to("late", **TEXT)
    return builder.build()


def joined(kind: str) -> Callable[[], Topology]:
    def build() -> Topology:
        builder = StreamsBuilder()
        left, right = builder.stream("in", **TEXT), builder.stream("other", **TEXT)
        join: Any = getattr(left, kind)
        result = join(right, lambda one, other: f"{one}+{other}", JoinWindows(4, grace=3), store="j")
        result.to("out", **TEXT)
        result.late("left").to("late", **TEXT)
        result.late("right", value=serdes.string).map_values(str.upper).to("late-right", **TEXT)
        return builder.build()

    return build


WINDOWS = {
    "tumbling": TimeWindows(10, grace=3),
    "hopping": TimeWindows(10, 4, grace=2),
    "sliding": SlidingWindows(6, grace=2),
    "session": SessionWindows(4, grace=2),
}
PROGRAMS: dict[str, Callable[[], Topology]] = {
    **{name: lambda windows=windows: windowed(windows) for name, windows in WINDOWS.items()},  # type: ignore[misc]
    **{
        f"{name}-on-close": lambda windows=windows: windowed(windows, on_close=True, caching=False)  # type: ignore[misc]
        for name, windows in WINDOWS.items()
    },
    "cogrouped": cogrouped,
    "join": joined("join"),
}


def late_by_the_words(windows: Any, records: list[Piped]) -> list[tuple[Any, ...]]:
    """Records whose last window is over when they come."""
    found, now = [], -1
    for row in records:
        if row.key is None:
            continue
        now = max(now, row.timestamp)
        advance = windows.advance_ms
        if row.timestamp // advance * advance + windows.size_ms + windows.grace_ms <= now:
            found.append((row.key, row.value, row.timestamp, row.headers))
    return found


@pytest.mark.parametrize("kind", ["tumbling", "hopping"])
@settings(max_examples=50, deadline=None)
@given(records=rows, generate=st.booleans())
def test_a_record_that_no_window_takes_is_late(kind: str, records: list[Piped], generate: bool) -> None:
    with TopologyTestDriver(windowed(WINDOWS[kind]), generate=generate) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        for row in records:
            topic.pipe_input(row.key, row.value, row.timestamp, row.headers)
        late = driver.create_output_topic("late", serdes.string, serdes.string).read_records_to_list()
    assert [tuple(record) for record in late] == late_by_the_words(WINDOWS[kind], records)


@pytest.mark.parametrize("kind", WINDOWS)
@settings(max_examples=30, deadline=None)
@given(records=rows)
def test_every_record_changes_a_window_or_is_late(kind: str, records: list[Piped]) -> None:
    run = Run(windowed(WINDOWS[kind], caching=False), cache_max_bytes=0)
    for row in records:
        before = {topic: len(run.written.topics.get(topic, ())) for topic in ("out", "late")}
        run.feed([row])
        changed, late = (len(run.written.topics.get(topic, ())) > before[topic] for topic in ("out", "late"))
        if row.key is None or (kind == "sliding" and row.value is None):
            assert (changed, late) == (False, False)
        elif kind == "sliding":
            # A late record may show that later ones have a window of their own, without being in it.
            assert changed or late
        else:
            assert changed != late


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=25, deadline=None)
@given(records=rows, batches=sizes)
def test_all_ways_of_running_it_agree(program: str, records: list[Piped], batches: list[int]) -> None:
    assert_all_ways_agree(PROGRAMS[program](), records, batches)


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=25, deadline=None)
@given(records=st.lists(piped(("in", "other")), max_size=40), cut=st.integers(0, 40))
def test_an_interruption_changes_nothing(program: str, records: list[Piped], cut: int) -> None:
    topology = PROGRAMS[program]()
    topics = topology.subtopologies[0].source_topics
    assert_an_interruption_changes_nothing(topology, [row for row in records if row.topic in topics], cut)


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_what_a_join_does_not_keep_is_late_and_still_meets_what_is_there(kind: str) -> None:
    with TopologyTestDriver(joined(kind)()) as driver:
        left = driver.create_input_topic("in", serdes.string, serdes.string)
        right = driver.create_input_topic("other", serdes.string, serdes.string)
        right.pipe_input("a", "r", 0)
        left.pipe_input("a", "soon", 12)
        left.pipe_input("a", "old", 1)
        right.pipe_input("a", "again", 1)
        late = driver.create_output_topic("late", serdes.string, serdes.string).read_records_to_list()
        assert [tuple(record)[:3] for record in late] == [("a", "old", 1)]
        out = driver.create_output_topic("out", serdes.string, serdes.string).read_values_to_list()
        assert "old+r" in out
        assert "old+again" not in out
        right.pipe_input("a", "new", 30)
        right.pipe_input("a", "older", 3)
        assert driver.create_output_topic("late-right", serdes.string, serdes.string).read_values_to_list() == ["OLDER"]
