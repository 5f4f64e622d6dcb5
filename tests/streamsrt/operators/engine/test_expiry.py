"""Stores with a time to live: what is deleted when, told downstream, restored, and the same in every way of running it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.operators.programs import Piped, piped
from tests.streamsrt.operators.ways import assert_all_ways_agree, assert_an_interruption_changes_nothing
from topology import (
    Processor,
    ProcessorContext,
    Record,
    SessionWindows,
    Store,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyError,
    serdes,
)
from topology.graph.nodes import StoreSpec

TEXT: Any = {"key": serdes.string, "value": serdes.string}
TTL_MS = 10

rows = st.lists(piped(("in", "t")), max_size=40)
sizes = st.lists(st.integers(1, 20), min_size=1, max_size=3)


def source_table() -> Topology:
    builder = StreamsBuilder()
    builder.table("t", store=Store("rows", ttl=TTL_MS), **TEXT).to_stream().to("out")
    return builder.build()


def counted() -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in", **TEXT).group_by_key().count(store=Store("counts", ttl=TTL_MS))
    totals = counts.group_by(lambda key, count: (key[0], count), key=serdes.string, value=serdes.long)
    totals.reduce(int.__add__, int.__sub__, store="totals").to_stream().to("out")
    return builder.build()


def joined() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("t", store=Store("rows", ttl=TTL_MS), **TEXT)
    upper = table.map_values(str.upper, store=Store("upper", ttl=2 * TTL_MS, value=serdes.string))
    stream = builder.stream("in", **TEXT)
    stream.left_join(upper, lambda one, row: f"{one}+{row}").to("out", **TEXT)
    counts = stream.group_by_key().count(store="counts")
    table.outer_join(counts, lambda row, count: f"{row}/{count}", store=Store("both", ttl=3, **TEXT)).to_stream().to(
        "both"
    )
    return builder.build()


class Remember(Processor[str, str, str, str]):
    """Forwards what the store has of the key, then puts the record there."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        self._seen: Any = context.get_state_store("seen")

    def process(self, record: Record[str, str]) -> None:
        if record.key is not None:
            found = ",".join(f"{key}={value}" for key, value in self._seen.all())
            self._context.forward(record._replace(value=found))
            self._seen.put(record.key, record.value)

    def close(self) -> None:
        pass


def remembering() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Store("seen", ttl=TTL_MS, **TEXT))
    builder.stream("in", **TEXT).process(Remember, stores=["seen"]).to("out", **TEXT)
    return builder.build()


PROGRAMS: dict[str, Callable[[], Topology]] = {
    "source": source_table,
    "count": counted,
    "join": joined,
    "processor": remembering,
}


def of(topology: Topology, records: list[Piped]) -> list[Piped]:
    (subtopology,) = topology.subtopologies
    return [row for row in records if row.topic in subtopology.source_topics]


def single(build: Callable[[], Topology]) -> Topology:
    """The program's first subtopology alone: what comes behind a repartition is run elsewhere."""
    topology = build()
    return replace(topology, subtopologies=topology.subtopologies[:1])


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=30, deadline=None)
@given(records=rows, batches=sizes)
def test_all_ways_of_running_it_agree(program: str, records: list[Piped], batches: list[int]) -> None:
    topology = single(PROGRAMS[program])
    assert_all_ways_agree(topology, of(topology, records), batches)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("cache_max_bytes", [0, 1 << 20])
@settings(max_examples=25, deadline=None)
@given(records=rows, cut=st.integers(0, 40))
def test_an_interruption_changes_nothing(program: str, records: list[Piped], cut: int, cache_max_bytes: int) -> None:
    topology = single(PROGRAMS[program])
    kept = of(topology, records)
    assert_an_interruption_changes_nothing(topology, kept, cut, cache_max_bytes=cache_max_bytes)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(piped(("t",)), max_size=30))
def test_a_row_lives_as_long_as_the_documentation_says(records: list[Piped]) -> None:
    rows: dict[str, tuple[str, int]] = {}
    wanted: list[tuple[str, str | None, int]] = []
    now = -1

    def expire() -> None:
        for at_ms, key in sorted((time + TTL_MS, key) for key, (_, time) in rows.items()):
            if at_ms <= now:
                del rows[key]
                wanted.append((key, None, at_ms))

    with TopologyTestDriver(source_table()) as driver:
        for row in records:
            topic = driver.create_input_topic("t", serdes.string, serdes.string)
            topic.pipe_input(row.key, row.value, row.timestamp)
            now = max(now, row.timestamp)
            expire()
            if row.key is not None:
                wanted.append((row.key, row.value, row.timestamp))
                rows.pop(row.key, None)
                if row.value is not None:
                    rows[row.key] = (row.value, row.timestamp)
            expire()
            store = driver.get_key_value_store("rows", timestamped=True)
            assert {key: tuple(value) for key, value in store.all()} == rows
        out = driver.create_output_topic("out", serdes.string, serdes.string).read_records_to_list()
    assert [tuple(record)[:3] for record in out] == wanted


def test_deletions_flow_through_groups_and_joins() -> None:
    with TopologyTestDriver(counted()) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        for key, time in (("a1", 0), ("a2", 5), ("b1", 12)):
            topic.pipe_input(key, "x", time)
        totals = driver.get_key_value_store("totals")
        assert dict(totals.all()) == {"a": 1, "b": 1}
        topic.pipe_input("b1", "x", 15)
        assert dict(totals.all()) == {"a": 0, "b": 2}
        driver.restart()
        assert dict(driver.get_key_value_store("counts").all()) == {"b1": 2}
        topic.pipe_input("c", "x", 25)
        assert dict(driver.get_key_value_store("counts").all()) == {"c": 1}


def test_the_changelog_tells_of_what_expired() -> None:
    with TopologyTestDriver(source_table()) as driver:
        topic = driver.create_input_topic("t", serdes.string, serdes.string)
        topic.pipe_input("a", "1", 0)
        topic.pipe_input("b", "2", 30)
        changelog = driver.output_queue("topology-test-driver-rows-changelog")
        assert [(row.key, row.value, row.timestamp) for row in changelog] == [
            (b"a", b"1", 0),
            (b"a", None, 10),
            (b"b", b"2", 30),
        ]


def test_a_table_whose_rows_expire_keeps_a_changelog_of_its_own() -> None:
    builder = StreamsBuilder()
    builder.table("t", store=Store("rows", ttl=5), **TEXT)
    builder.table("u", store=Store("others"), **TEXT)
    parts = builder.build({"topology.optimization": "all"}).subtopologies
    specs: dict[str, StoreSpec] = {spec.name: spec for part in parts for spec in part.stores}
    assert (specs["rows"].source_topic, specs["others"].source_topic) == (None, "u")
    assert not specs["rows"].caching


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda b: Store("s", ttl=0), "the ttl of a store must be greater than 0 ms"),
        (lambda b: Store("s", ttl=5, kind="window"), "other kinds have retention="),
        (lambda b: Store("s", ttl=5, caching=True), "without caching"),
        (lambda b: b.global_table("g", store=Store("s", ttl=5, **TEXT)), "can't have ttl=: it is global"),
        (lambda b: _grouped(b).windowed_by(TimeWindows(5)).count(store=Store("s", ttl=5)), "keeps windows"),
        (lambda b: _grouped(b).windowed_by(SessionWindows(5)).count(store=Store("s", ttl=5)), "keeps sessions"),
    ],
)
def test_what_can_not_expire_is_refused_with_its_line(call: Callable[[StreamsBuilder], Any], says: str) -> None:
    with pytest.raises(TopologyError, match=says) as raised:
        call(StreamsBuilder())
    assert str(raised.value).startswith(f"{__file__}:")


def _grouped(builder: StreamsBuilder) -> Any:
    return builder.stream("in", **TEXT).group_by_key()
