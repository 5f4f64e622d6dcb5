"""Joins with what a function looks up: keys in batches, answers remembered, failures of their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from streamsrt.errors import ProcessingError, UserError
from streamsrt.operators.engine.handlers import ExceptionHandlers, log_and_continue
from streamsrt.operators.kinds.lookup_joins import AnswerCache
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.operators.kinds.test_batches import Running, started
from topology import KStream, StreamsBuilder, TopologyError, serdes

NAMES = {1: "one", 2: "two", 3: "three"}


class Table:
    """A table elsewhere, and the keys that it was asked for, call by call."""

    def __init__(self, rows: Mapping[Any, Any] = NAMES) -> None:
        self.rows = dict(rows)
        self.calls: list[list[Any]] = []

    def find(self, keys: list[Any]) -> dict[Any, Any]:
        self.calls.append(keys)
        return {key: self.rows[key] for key in keys if key in self.rows}

    async def find_async(self, keys: list[Any]) -> dict[Any, Any]:
        return self.find(keys)


def joined(lookup: Callable[..., Any], how: Any = "inner", **options: Any) -> Callable[[KStream[str, Any]], Any]:
    return lambda stream: stream.join_lookup(
        lookup,
        lambda value, name: [value, name],
        on=lambda key, value: None if value == 0 else value,
        how=how,
        **options,
    )


def values(running: Running, *numbers: Any) -> list[Any]:
    return [value for _, value, _ in running.read(*(("k", number, 5) for number in numbers))]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_each_key_of_a_run_is_asked_for_once_in_batches(asynchronous: bool) -> None:
    table = Table()
    running = started(joined(table.find_async if asynchronous else table.find, batch=2, concurrency=2))
    assert values(running, 1, 2, 1, 9, 3, 2) == [[1, "one"], [2, "two"], [1, "one"], [3, "three"], [2, "two"]]
    assert table.calls == [[1, 2], [9, 3]]
    assert values(running, 3, 9, 1) == [[3, "three"], [1, "one"]]
    assert table.calls == [[1, 2], [9, 3]]


def test_without_a_match_the_left_join_has_none() -> None:
    table = Table()
    running = started(joined(table.find, "left"))
    assert values(running, 9, 0, 2) == [[9, None], [0, None], [2, "two"]]
    assert table.calls == [[9, 2]]
    inner = started(joined(Table().find))
    assert values(inner, 9, 0, 2) == [[2, "two"]]


def test_records_without_a_value_are_dropped() -> None:
    running = started(lambda stream: joined(Table().find, "left")(stream.map_values(lambda value: None)))
    assert values(running, 1, 2) == []
    assert running.task.counters()["dropped_null"] == 2


def test_answers_are_remembered_for_their_time_those_that_nothing_is_there_too() -> None:
    table = Table()
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.json)
    joined(table.find, "left", ttl=1_000)(stream).to("out", key=serdes.string, value=serdes.json)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.json)
        result = driver.create_output_topic("out", serdes.string, serdes.json)
        source.pipe_values([1, 9])
        table.rows.update({1: "uno", 9: "nine"})
        driver.advance_wall_clock_time(999)
        source.pipe_values([1, 9])
        driver.advance_wall_clock_time(1)
        source.pipe_values([1, 9])
        assert result.read_values_to_list() == [[1, "one"], [9, None], [1, "one"], [9, None], [1, "uno"], [9, "nine"]]
        driver.restart()
        source.pipe_values([1])
    assert table.calls == [[1], [9], [1], [9], [1]]


def test_a_cache_holds_so_many_answers_and_forgets_what_was_not_asked_for_longest() -> None:
    cache = AnswerCache(ttl_ms=100, max_entries=2)
    cache.put("a", 1, 0)
    cache.put("b", 2, 0)
    assert cache.get("a", 50) == 1
    cache.put("c", 3, 50)
    assert [cache.get(key, 60) for key in "abc"] == [1, None, 3]
    assert cache.get("a", 100) is None
    assert len(cache) == 1
    nothing = AnswerCache(ttl_ms=0, max_entries=2)
    nothing.put("a", 1, 0)
    assert len(nothing) == 0


CONTINUE = ExceptionHandlers(processing=log_and_continue)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_call_that_fails_is_the_failure_of_the_records_that_wait_for_it(asynchronous: bool) -> None:
    class Broken(Table):
        def find(self, keys: list[Any]) -> dict[Any, Any]:
            if 2 in keys:
                raise ConnectionError("gone")
            return super().find(keys)

    def running(**config: Any) -> Running:
        table = Broken()
        return started(joined(table.find_async if asynchronous else table.find, batch=1), **config)

    skipping = running(handlers=CONTINUE)
    assert values(skipping, 1, 2, 3, 2) == [[1, "one"], [3, "three"]]
    assert skipping.task.counters()["failed_processing"] == 2
    with pytest.raises(ProcessingError, match=r"ConnectionError: gone \(at in-0 offset 1") as failed:
        values(running(), 1, 2, 3)
    assert not failed.value.is_in_order


def test_an_async_call_that_fails_is_made_again() -> None:
    table, attempts = Table(), 0

    async def flaky(keys: list[Any]) -> dict[Any, Any]:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionError
        return table.find(keys)

    assert values(started(joined(flaky, retries=1, backoff=0)), 1) == [[1, "one"]]


@pytest.mark.parametrize(
    ("on", "joiner"),
    [(lambda k, v: v["no"], lambda v, f: f), (lambda k, v: [v], lambda v, f: f), (lambda k, v: v, int)],
)
def test_functions_that_raise_are_failures_of_their_records(on: Any, joiner: Any) -> None:
    running = started(lambda stream: stream.join_lookup(Table().find, joiner, on=on), handlers=CONTINUE)
    assert values(running, 1, 2) == []
    assert running.task.counters()["failed_processing"] == 2


def test_a_lookup_that_returns_no_mapping_is_named() -> None:
    with pytest.raises(UserError, match="the lookup returned list, not a mapping"):
        values(started(joined(lambda keys: [1])), 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (joined(Table().find, "outer"), "give 'inner' or 'left'"),
        (joined(Table().find, batch=0), "batch, concurrency, max_entries and timeout"),
        (joined(Table().find, ttl=-1), "ttl, retries and backoff are at least 0"),
        (joined(Table().find, retries=1), "timeout and retries are for an async lookup"),
        (joined(lambda one, other: {}), "join_lookup.. calls a function with .keys."),
        (lambda stream: stream.join_lookup(Table().find, max, on=lambda v: v), "calls a function with .key, value."),
        (lambda stream: stream.join_lookup(Table().find, lambda v: v, on=max), "with .value, other value."),
    ],
)
def test_mistakes_are_found_when_the_program_is_built(wrong: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        wrong(StreamsBuilder().stream("in"))
