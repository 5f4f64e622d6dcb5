from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from streamsrt.errors import UserError
from streamsrt.testing.topology_test_driver import TestRecord, TopologyTestDriver
from topology import KStream, Store, StreamsBuilder, TimeWindows, Topology, ValueAndTimestamp, serdes


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
    with pytest.raises(UserError, match="no more records"):
        driver.create_output_topic("out", serdes.string, serdes.long).read_record()
