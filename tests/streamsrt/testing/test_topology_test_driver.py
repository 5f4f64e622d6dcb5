from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streamsrt.errors import ProcessingError, UserError
from streamsrt.testing.topology_test_driver import TestRecord, TopologyTestDriver
from topology import (
    KStream,
    Processor,
    ProcessorContext,
    Record,
    Store,
    StreamsBuilder,
    TimeWindows,
    Topology,
    ValueAndTimestamp,
    serdes,
)


def word_count() -> Topology:
    builder = StreamsBuilder()
    lines: KStream[Any, str] = builder.stream("lines", key=serdes.string, value=serdes.string)
    words = lines.flat_map_values(str.split).group_by(lambda _, word: word, key=serdes.string, value=serdes.string)
    words.count(store=Store("counts")).to_stream().to("out", key=serdes.string, value=serdes.long)
    return builder.build()


def test_repartition_topics_are_followed_and_each_record_is_committed() -> None:
    with TopologyTestDriver(word_count()) as driver:
        lines = driver.create_input_topic("lines", serdes.string, serdes.string)
        out = driver.create_output_topic("out", serdes.string, serdes.long)
        lines.pipe_input(None, "to be or not to be", 7)
        assert out.read_record() == TestRecord("to", 1, 7, ())
        assert out.queue_size() == 5
        assert out.read_key_values_to_map() == {"be": 2, "not": 1, "or": 1, "to": 2}
        assert out.is_empty()
        topics = {record.topic for record in driver.producer_history}
        assert topics == {
            "out",
            "topology-test-driver-counts-changelog",
            "topology-test-driver-counts-repartition",
        }
        assert driver.get_key_value_store("counts").get("be") == 2
        assert driver.get_timestamped_key_value_store("counts").get("be") == ValueAndTimestamp(2, 7)


def test_with_manual_commits_the_cache_holds_changes_back() -> None:
    driver = TopologyTestDriver(word_count(), commit="manual")
    lines = driver.create_input_topic("lines", serdes.string, serdes.string, start_timestamp=5, auto_advance_ms=10)
    out = driver.create_output_topic("out", serdes.string, serdes.long)
    lines.pipe_key_values([(None, "a b"), (None, "a")])
    assert out.is_empty()
    assert driver.get_key_value_store("counts").get("a") == 2
    driver.commit()
    assert out.read_records_to_list() == [TestRecord("b", 1, 5), TestRecord("a", 2, 15)]


def test_window_stores_can_be_read() -> None:
    builder = StreamsBuilder()
    stream: KStream[str, str] = builder.stream("in", key=serdes.string, value=serdes.string)
    grouped = stream.group_by_key(key=serdes.string, value=serdes.string)
    grouped.windowed_by(TimeWindows(10, grace=5)).count(store=Store("w"))
    driver = TopologyTestDriver(builder.build())
    topic = driver.create_input_topic("in", serdes.string, serdes.string)
    for timestamp in (1, 2, 11, 3, 21, 4):
        topic.pipe_input("a", "x", timestamp)
    store = driver.get_window_store("w")
    assert [(key.start_ms, count) for key, count in store.all()] == [(10, 1), (20, 1)]
    assert (store.fetch("a", 20), store.fetch("a", 30)) == (1, None)
    assert driver.counters()["dropped_late"] == 1
    with pytest.raises(UserError, match="use get_window_store"):
        driver.get_key_value_store("w")


def test_the_wall_clock_moves_on_demand_only() -> None:
    driver = TopologyTestDriver(word_count(), initial_wall_clock_ms=1000)
    driver.advance_wall_clock_time(timedelta(seconds=2))
    driver.advance_wall_clock_time(500)
    assert driver.now_ms == 3500


def test_mistakes_of_a_test_say_what_there_is() -> None:
    driver = TopologyTestDriver(word_count())
    with pytest.raises(UserError, match=r"does not read the topic 'nope'.*lines"):
        driver.create_input_topic("nope", serdes.string, serdes.string).pipe_input("a", "b")
    with pytest.raises(UserError, match=r"no store 'nope'.*counts"):
        driver.get_key_value_store("nope")
    for timestamp in (1 << 63, 1.5, datetime(2026, 1, 1, tzinfo=UTC)):
        with pytest.raises(UserError, match=r"lines: the timestamp is .* give a whole number of milliseconds"):
            driver.pipe_raw("lines", None, b"x", timestamp)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no more records"):
        driver.create_output_topic("out", serdes.string, serdes.long).read_record()


def test_several_partitions_are_several_tasks() -> None:
    with TopologyTestDriver(word_count(), partitions={"lines": 3, "out": 2}) as driver:
        lines = driver.create_input_topic("lines", serdes.string, serdes.string)
        out = driver.create_output_topic("out", serdes.string, serdes.long)
        for partition in range(3):
            lines.pipe_input(None, "to be or not to be", partition, partition=partition)
        assert out.read_key_values_to_map() == {"be": 6, "not": 3, "or": 3, "to": 6}
        counts = [dict(driver.get_key_value_store("counts", partition=partition).all()) for partition in range(3)]
        assert {word: count for part in counts for word, count in part.items()} == {"be": 6, "not": 3, "or": 3, "to": 6}
        assert sum(map(len, counts)) == 4
        placed = {(record.topic, record.partition): record.key for record in driver.producer_history}
        assert {partition for topic, partition in placed if topic == "out"} <= {0, 1}
        assert {partition for topic, partition in placed if topic.endswith("-changelog")} == {
            partition for partition, part in enumerate(counts) if part
        }
        with pytest.raises(UserError, match="has 3 partitions here"):
            lines.pipe_input(None, "x", partition=3)
        with pytest.raises(UserError, match="no store 'counts' of partition 3"):
            driver.get_key_value_store("counts", partition=3)


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_has_what_the_changelogs_have(clean: bool) -> None:
    with TopologyTestDriver(word_count(), partitions=2) as driver:
        lines = driver.create_input_topic("lines", serdes.string, serdes.string)
        out = driver.create_output_topic("out", serdes.string, serdes.long)
        lines.pipe_values(["to be", "or not"])
        driver.restart(clean=clean)
        lines.pipe_input(None, "to be")
        assert out.read_key_values_to_map() == {"be": 2, "not": 1, "or": 1, "to": 2}


def test_after_a_crash_what_was_not_committed_is_done_again() -> None:
    config = {"statestore.cache.max.bytes": 1 << 20}
    with TopologyTestDriver(word_count(), config, commit="manual") as driver:
        lines = driver.create_input_topic("lines", serdes.string, serdes.string)
        out = driver.create_output_topic("out", serdes.string, serdes.long)
        lines.pipe_values(["to be"])
        driver.commit()
        assert out.read_key_values_to_map() == {"be": 1, "to": 1}
        lines.pipe_values(["to", "to"])
        driver.restart(clean=False)
        driver.commit()
        assert out.read_key_values_to_map()["to"] >= 3, "at least once: they may count twice"
        assert driver.get_key_value_store("counts").get("be") == 1


def test_topics_have_clocks_of_their_own() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        given = driver.create_input_topic("in", serdes.string, serdes.string, start_timestamp=10, auto_advance_ms=5)
        given.pipe_values(["a", "b"])
        given.advance_time(timedelta(seconds=1))
        given.pipe_input("k", "c")
        given.pipe_records([TestRecord("k", "d", 3, (("h", b"1"),))])
        out = driver.create_output_topic("out", serdes.string, serdes.string)
        assert [record.timestamp for record in out.read_records_to_list()] == [10, 15, 1020, 3]


def test_partitioners_choose_in_sinks_and_repartitions() -> None:
    builder = StreamsBuilder()
    stream: KStream[str, str] = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.to("all", partitioner=lambda *_: {0, 1})
    stream.to(lambda key, _value, _context: f"for-{key}", partitioner=lambda _topic, _key, value, _count: len(value))
    stream.repartition(name="second", partitioner=lambda *_: 1).to("none", partitioner=lambda *_: [])
    with TopologyTestDriver(builder.build(), partitions=3) as driver:
        driver.create_input_topic("in", serdes.string, serdes.string).pipe_input("k", "xx")
        placed = [
            (record.topic.removeprefix("topology-test-driver-"), record.partition) for record in driver.producer_history
        ]
    assert sorted(placed) == [("all", 0), ("all", 1), ("for-k", 2), ("second-repartition", 1)]


@pytest.mark.parametrize("left", [False, True])
def test_a_foreign_table_may_be_partitioned_by_the_program(left: bool) -> None:
    builder = StreamsBuilder()
    books = builder.table("books", key=serdes.string, value=serdes.string)
    authors = builder.table("authors", key=serdes.string, value=serdes.string)
    join = books.left_join if left else books.join
    joined = join(
        authors,
        lambda book, author: f"{book} by {author}",
        foreign_key=lambda book: book[0],
        other_partitioner=lambda _topic, author, _value, partitions: ord(author) % partitions,
        value=serdes.string,
    )
    joined.to_stream().to("out")
    with TopologyTestDriver(builder.build(), partitions=3) as driver:
        out = driver.create_output_topic("out", serdes.string, serdes.string)
        written = driver.create_input_topic("authors", serdes.string, serdes.string)
        for author in "abcdef":
            written.pipe_input(author, author.upper(), partition=ord(author) % 3)
        driver.create_input_topic("books", serdes.string, serdes.string).pipe_key_values([(b, b) for b in "abcdef"])
        assert out.read_key_values_to_map() == {book: f"{book} by {book.upper()}" for book in "abcdef"}


class Noted(Processor[str, str, str, str]):
    """Notes whether it begins and is closed."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def init(self, context: ProcessorContext[str, str]) -> None:
        if self.name == "broken":
            raise ValueError("no")
        self.said.append(f"{self.name} began")

    def process(self, record: Record[str, str]) -> None: ...

    def close(self) -> None:
        self.said.append(f"{self.name} closed")


def test_what_has_begun_is_closed_when_another_processor_can_not_begin() -> None:
    builder, said = StreamsBuilder(), list[str]()
    text = builder.stream("in", key=serdes.string, value=serdes.string)
    for name in ("whole", "broken"):
        text.process(lambda name=name: Noted(name, said))  # type: ignore[misc]
    with pytest.raises(ProcessingError, match="no"):
        TopologyTestDriver(builder.build())
    assert said == ["whole began", "whole closed"]


def copying(*topics: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(list(topics), key=serdes.string, value=serdes.string).to("copies")
    return builder.build()


def test_a_record_that_was_refused_is_not_in_its_topic() -> None:
    with TopologyTestDriver(copying("in")) as driver:
        with pytest.raises(UserError, match="does not read the topic 'more'"):
            driver.pipe_raw("more", b"a", b"refused", 1)
        driver.restart(topology=copying("in", "more"))
        driver.pipe_raw("more", b"a", b"taken", 2)
        assert [record.value for record in driver.producer_history] == [b"taken"]


def test_processors_are_closed_once() -> None:
    closed: list[str] = []

    class Closing(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None: ...

        def close(self) -> None:
            closed.append("once")

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).process(Closing)
    with TopologyTestDriver(builder.build()) as driver:
        driver.close()
    assert closed == ["once"]
    with TopologyTestDriver(builder.build()) as driver:
        driver.restart()
    assert closed == ["once"] * 3


def test_after_a_failure_in_a_global_store_nothing_is_committed() -> None:
    def stopped(key: str, value: str) -> None:
        raise OSError("no more")

    class Failing(Processor[str, str, Any, Any]):
        def process(self, record: Record[str, str]) -> None:
            stopped(record.key, record.value)

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).to("out")
    store = Store("everywhere", key=serdes.string, value=serdes.string, logging=False)
    builder.add_global_store(store, "rows", Failing, key=serdes.string, value=serdes.string)
    with TopologyTestDriver(builder.build(), commit="manual") as driver:
        driver.pipe_raw("in", b"a", b"x", 1)
        with pytest.raises(ProcessingError, match="no more"):
            driver.pipe_raw("rows", b"a", b"x", 1)
        driver.end()
        driver.restart(clean=False)
        assert [record.value for record in driver.producer_history] == [b"x", b"x"]


def test_a_pattern_does_not_match_the_internal_topics_of_the_application() -> None:
    seen: list[str] = []
    builder = StreamsBuilder()
    stream = builder.stream(re.compile("[^_].*"), key=serdes.string, value=serdes.string)
    first = stream.peek(lambda _, value: seen.append(value)).filter(lambda *_: len(seen) == 1)
    first.group_by_key().reduce(max, store="rows")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", serdes.string, serdes.string).pipe_input("k", "v")
        assert driver.get_key_value_store("rows").get("k") == "v"
    assert seen == ["v"]
