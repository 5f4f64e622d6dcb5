"""A new store beside state that is carried over: what the advice says about reading its topics again is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.topology.graph.store_fields import store_fields
from topology import (
    CountWindows,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)
from topology.graph.diff import diff
from topology.graph.operations.traits import TRAITS, Rereading
from topology.graph.outline import outline
from topology.graph.topology import Topology
from topology.spec.processor import FixedKeyProcessor, Record

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


class Inputs(StreamsBuilder):
    """Topics a and b, each with one source."""

    def __init__(self) -> None:
        super().__init__()
        self.read: dict[str, Any] = {}


Program = Callable[[Inputs], object]


def stream(builder: Inputs, topic: str = "a") -> Any:
    return builder.read.setdefault(topic, builder.stream(topic, **TEXT))


def table(builder: Inputs, topic: str = "a", **store: Any) -> Any:
    return builder.read.setdefault(topic, builder.table(topic, **TEXT, store=Store(f"rows-{topic}", **store)))


def both(one: str | None, other: str | None) -> str:
    return f"{one}{other}"


def grouped(builder: Inputs) -> Any:
    return stream(builder).group_by_key()


def add(_: str, __: str, count: int) -> int:
    return count + 1


class Counting(FixedKeyProcessor[str, str, str]):
    """Numbers the records of a key."""

    def init(self, context: Any) -> None:
        self._context, self._seen = context, context.get_state_store("seen")

    def process(self, record: Record[str, str]) -> None:
        count = (self._seen.get(record.key) or 0) + 1
        self._seen.put(record.key, count)
        self._context.forward(record.with_value(f"{count}"))


SEEN = Store("seen", key=serdes.string, value=serdes.long)
WINDOWS = JoinWindows(1_000, grace=100)


def numbered_rows(builder: Inputs) -> object:
    class Transform:
        def init(self, context: Any) -> None:
            self._seen = context.get_state_store("seen")

        def transform(self, key: str, value: str | None) -> str:
            count = (self._seen.get(key) or 0) + 1
            self._seen.put(key, count)
            return f"{value}{count}"

        def close(self) -> None:
            pass

    return table(builder).transform_values(Transform, stores=[SEEN], store=Store("numbered", value=serdes.string))


def regrouped(builder: Inputs) -> Any:
    return table(builder).group_by(lambda _key, value: (value[0], value), **TEXT)


PROGRAMS: dict[str, Program] = {
    "table": table,
    "table, entries used last": lambda builder: table(builder, max_entries=2),
    "table that expires": lambda builder: table(builder, ttl=5_000),
    "versioned table": lambda builder: table(builder, kind="versioned", retention=100_000),
    "filtered table": lambda builder: table(builder).filter(lambda _key, value: value < "x", store="kept"),
    "mapped table": lambda builder: table(builder).map_values(
        lambda value: value * 2, store=Store("m", value=serdes.string)
    ),
    "transformed table": numbered_rows,
    "tables": lambda builder: table(builder).join(table(builder, "b"), both, store=Store("j", value=serdes.string)),
    "outer tables": lambda builder: table(builder).outer_join(
        table(builder, "b"), both, store=Store("j", value=serdes.string)
    ),
    "foreign key": lambda builder: table(builder).join(
        table(builder, "b"), both, foreign_key=lambda value: value[0], store=Store("j", value=serdes.string)
    ),
    "counted rows": lambda builder: regrouped(builder).count(store="c"),
    "aggregated rows": lambda builder: regrouped(builder).aggregate(
        int,
        lambda _key, value, letters: letters + len(value),
        lambda _key, value, letters: letters - len(value),
        store=Store("c", value=serdes.long),
    ),
    "suppressed table": lambda builder: table(builder).suppress(Suppressed.until_time_limit(2_000), name="s"),
    "count": lambda builder: grouped(builder).count(store="c"),
    "reduce": lambda builder: grouped(builder).reduce(both, store="c"),
    "windows": lambda builder: grouped(builder).windowed_by(TimeWindows(10_000, grace=90_000)).count(store="c"),
    "windows that close": lambda builder: (
        grouped(builder)
        .windowed_by(TimeWindows(10_000, grace=0))
        .count(store="c")
        .suppress(Suppressed.until_window_closes(), name="s")
    ),
    "sliding windows": lambda builder: (
        grouped(builder).windowed_by(SlidingWindows(10_000, grace=90_000)).count(store="c")
    ),
    "sessions": lambda builder: grouped(builder).windowed_by(SessionWindows(10_000, grace=90_000)).count(store="c"),
    "count windows": lambda builder: (
        grouped(builder).windowed_by(CountWindows(3)).aggregate(int, add, store=Store("c", value=serdes.long))
    ),
    "cogroup": lambda builder: grouped(builder).cogroup(add).aggregate(int, store=Store("c", value=serdes.long)),
    "processor": lambda builder: stream(builder).process_values(Counting, stores=[SEEN]),
    "deduplicate": lambda builder: stream(builder).deduplicate(
        lambda _key, value: value, 1_000, serde=serdes.string, store="d"
    ),
    "join": lambda builder: stream(builder).join(stream(builder, "b"), both, WINDOWS, store="j"),
    "left join": lambda builder: stream(builder).left_join(stream(builder, "b"), both, WINDOWS, store="j"),
    "outer join": lambda builder: stream(builder).outer_join(stream(builder, "b"), both, WINDOWS, store="j"),
    "self-join": lambda builder: (lambda one: one.join(one, both, WINDOWS, store="j"))(stream(builder)),
    "as-of join": lambda builder: stream(builder).join_asof(stream(builder, "b"), both, 1_000, store="j"),
    "as-of join that waits": lambda builder: stream(builder).join_asof(
        stream(builder, "b"), both, 1_000, grace=100, store="j"
    ),
    "join of versions": lambda builder: stream(builder).join(
        table(builder, "b", kind="versioned", retention=100_000), both, grace=100, name="j"
    ),
    "stream and table": lambda builder: stream(builder).join(table(builder, "b"), both),
}
USE_WHAT_OTHERS_FILL = {"ForeignTableJoin", "StreamGlobalTableJoin", "TableMerge"}
"""Their store is filled by another step."""
OPTIMIZED = {"topology.optimization": "single.store.self.join"}
COUNTED = "counts-of-"
Row = tuple[str, str, str | None, int]
ROWS: list[Row] = [
    ("a", "k", "one", 1_000),
    ("b", "k", "two", 1_200),
    ("a", "l", "three", 1_300),
    ("a", "k", "four", 1_400),
    ("b", "o", "five", 1_450),
    ("b", "t", "six", 1_500),
    ("b", "l", "seven", 2_300),
    ("a", "l", None, 2_400),
    ("a", "m", "eight", 2_450),
    ("b", "k", "nine", 2_500),
]
LATER: list[Row] = [
    ("b", "k", "ten", 2_600),
    ("a", "k", "eleven", 2_700),
    ("a", "n", "twelve", 2_800),
    ("a", "k", "thirteen", 30_000),
]


def built(program: Program, *topics: str) -> Topology:
    """With a store for each of these topics that counts its records."""
    builder = Inputs()
    made: Any = program(builder)
    if hasattr(made, "to_stream") or hasattr(made, "foreach"):
        (made.to_stream() if hasattr(made, "to_stream") else made).foreach(lambda _key, _value: None)
    for topic in topics:
        if topic in builder.read:
            source = builder.read[topic]
            records = source.to_stream() if hasattr(source, "to_stream") else source
            records.group_by_key().count(store=f"{COUNTED}{topic}")
    return builder.build(OPTIMIZED)


def kept(driver: TopologyTestDriver) -> dict[str, dict[bytes, bytes | None]]:
    """The rows of all stores and results in the end, by topic."""
    driver.commit()
    found: dict[str, dict[bytes, bytes | None]] = {}
    for record in driver.producer_history:
        found.setdefault(record.topic, {})[record.key or b""] = record.value
    return {topic: {key: value for key, value in rows.items() if value} for topic, rows in found.items()}


def pipe(driver: TopologyTestDriver, rows: list[Row], topics: set[str]) -> None:
    for topic, key, value, timestamp in rows:
        if topic in topics:
            driver.pipe_raw(topic, key.encode(), None if value is None else value.encode(), timestamp)


def advice(old: Topology, new: Topology) -> dict[str, str]:
    """By new store."""
    return {each.name: each.cure for each in diff(outline(old), outline(new)).state if each.fate == "rebuilt"}


def read_by(topology: Topology) -> set[str]:
    return {topic for part in topology.subtopologies for topic in part.source_topics}


def test_every_step_that_keeps_something_is_carried_over_here() -> None:
    filled = {
        step
        for program in PROGRAMS.values()
        for each in outline(built(program)).origins.values()
        for step in each.filled_by
    }
    kept = {kind.__name__ for kind, row in TRAITS.items() if row.rereading is not Rereading.NOTHING}
    assert kept <= filled
    assert filled - kept <= USE_WHAT_OTHERS_FILL


def test_whatever_has_a_store_says_what_reading_again_does_to_it() -> None:
    """A row that says NOTHING lets ``topology diff`` advise a reset of offsets, after which records count twice."""
    keep_nothing = {kind.__name__ for kind, row in TRAITS.items() if row.rereading is Rereading.NOTHING}
    assert {kind.__name__ for kind in TRAITS if store_fields(kind)} & keep_nothing == USE_WHAT_OTHERS_FILL


@pytest.mark.parametrize("topics", ["a", "b", "ab"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_reading_topics_again_is_advised_only_where_it_gives_what_a_first_start_gives(name: str, topics: str) -> None:
    old = built(PROGRAMS[name])
    if not set(topics) <= read_by(old):
        return
    new = built(PROGRAMS[name], *topics)
    told = advice(old, new)
    assert set(told) == {f"{COUNTED}{topic}" for topic in topics}
    if all("don't reset the offsets" in each for each in told.values()):
        return
    again = {topic for topic in topics if f"--topic {topic} " in told[f"{COUNTED}{topic}"]}
    assert again
    with TopologyTestDriver(old) as driver:
        pipe(driver, ROWS, read_by(old))
        driver.restart(topology=new)
        pipe(driver, ROWS, again)
        pipe(driver, LATER, read_by(new))
        found = kept(driver)
    with TopologyTestDriver(new) as driver:
        pipe(driver, [*ROWS, *LATER], read_by(new))
        wanted = kept(driver)
    for topic in set(topics) - again:
        # Nobody said that it would have what was read before.
        for each in (found, wanted):
            each.pop(f"topology-test-driver-{COUNTED}{topic}-changelog")
    assert found == wanted


AGAIN = {
    "count",
    "join",
    "left join",
    "outer join",
    "self-join",
    "sessions",
    "sliding windows",
    "windows",
    "reduce",
    "processor",
}


@pytest.mark.parametrize("name", sorted(AGAIN))
def test_what_would_count_twice_is_not_read_again(name: str) -> None:
    for told in advice(built(PROGRAMS[name]), built(PROGRAMS[name], "a")).values():
        assert told.startswith("don't reset the offsets: ")
        assert "would process the records twice" in told
