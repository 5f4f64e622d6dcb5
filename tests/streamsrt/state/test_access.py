from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import (
    KStream,
    Processor,
    ProcessorContext,
    Record,
    Store,
    StreamsBuilder,
    UnknownStoreError,
    ValueAndTimestamp,
    Windowed,
    serdes,
)

Use = Callable[[Any, Record[str, str]], object]


def use_store(store: Store, use: Use, *records: tuple[str, str, int]) -> tuple[list[Any], TopologyTestDriver]:
    """What ``use(store, record)`` returned for each record, in a processor that is connected to the store."""
    results: list[Any] = []

    class User(Processor[str, str, str, str]):
        def init(self, context: ProcessorContext[str, str]) -> None:
            self.store = context.get_state_store("s")
            with pytest.raises(UnknownStoreError, match="not connected to a store 'other'"):
                context.get_state_store("other")

        def process(self, record: Record[str, str]) -> None:
            results.append(use(self.store, record))

        def close(self) -> None:
            results.append("closed")

    builder = StreamsBuilder()
    builder.add_state_store(store)
    stream: KStream[str, str] = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.process(User, stores=["s"])
    driver = TopologyTestDriver(builder.build())
    topic = driver.create_input_topic("in", serdes.string, serdes.string)
    for key, value, timestamp in records:
        topic.pipe_input(key, value, timestamp)
    return results, driver


def test_a_key_value_store() -> None:
    def use(store: Any, record: Record[str, str]) -> object:
        if record.value == "put":
            return store.put_if_absent(record.key, record.key * 2)
        if record.value == "delete":
            return store.delete(record.key)
        scans = (store.range("a", "b"), store.reverse_range(None, "b"), store.prefix_scan("c", serdes.string))
        return [[key for key, _ in scan] for scan in scans]

    steps = [("b", "put", 1), ("a", "put", 2), ("cc", "put", 3), ("a", "put", 4), ("?", "scan", 5), ("b", "delete", 6)]
    results, driver = use_store(Store("s", key=serdes.string, value=serdes.string), use, *steps)
    assert results == [None, None, None, "aa", [["a", "b"], ["b", "a"], ["cc"]], "bb"]
    logged = [(r.key, r.value, r.timestamp) for r in driver.producer_history]
    assert logged == [(b"b", b"bb", 1), (b"a", b"aa", 2), (b"cc", b"cccc", 3), (b"b", None, 6)]
    assert list(driver.get_key_value_store("s").reverse_all()) == [("cc", "cccc"), ("a", "aa")]
    driver.close()
    assert results[-1] == "closed"


def test_a_timestamped_store_keeps_the_timestamp_that_it_is_given() -> None:
    def use(store: Any, record: Record[str, str]) -> object:
        store.put(record.key, ValueAndTimestamp(record.value, 77))
        return store.get(record.key)

    store = Store("s", key=serdes.string, value=serdes.string, timestamped=True)
    results, driver = use_store(store, use, ("a", "x", 1))
    assert results == [ValueAndTimestamp("x", 77)]
    assert [(r.value, r.timestamp) for r in driver.producer_history] == [(b"x", 77)]


def test_a_window_store() -> None:
    def use(store: Any, record: Record[str, str]) -> object:
        store.put(record.key, record.value, record.timestamp // 10 * 10)
        return list(store.fetch_range("a", 0, 20)), list(store.backward_fetch_range("a", 0, 20))

    store = Store("s", kind="window", key=serdes.string, value=serdes.string, retention=100, window_size=10)
    results, driver = use_store(store, use, ("a", "x", 1), ("b", "y", 5), ("a", "z", 11))
    assert results[-1] == ([(0, "x"), (10, "z")], [(10, "z"), (0, "x")])
    windows = driver.get_window_store("s")
    assert list(windows.fetch_keys("b", None, 0, 50)) == [(Windowed("b", 0, 10), "y")]
    assert (windows.fetch("a", 0), windows.fetch("a", 20)) == ("x", None)
