"""Operators over batches and the other operators beyond Kafka Streams', run: order, failures, and nothing left over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator
from types import coroutine
from typing import Any, cast

import hypothesis.strategies as st
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from streamsrt.errors import ProcessingError, UserError
from streamsrt.operators.engine.handlers import ExceptionHandlers, log_and_continue
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.operators.programs import Piped, Written, commit, final_rows, new_task
from tests.streamsrt.operators.test_equivalence import restore
from tests.streamsrt.operators.ways import Run
from topology import Count, FailedValue, KStream, StreamsBuilder, Sum, TimeWindows, Topology, agg, serdes

Rows = list[tuple[str, Any, int]]


@coroutine
def turn() -> Generator[None, None, None]:
    """Lets the event loop go on with the others."""
    yield


def topology_of(build: Callable[[KStream[str, Any]], KStream[Any, Any]]) -> Topology:
    builder = StreamsBuilder()
    stream: KStream[str, Any] = builder.stream("in", key=serdes.string, value=serdes.json)
    build(stream).to("out", key=serdes.string, value=serdes.json)
    return builder.build()


class Running:
    """A task, and what it writes."""

    def __init__(self, topology: Topology, stores: dict[str, Any] | None = None, **config: Any) -> None:
        self.written = Written()
        self.task = new_task(topology, self.written, stores, **config)
        self._offset = 0

    def read(self, *rows: tuple[str, Any, int]) -> Rows:
        """All of these in one batch, and what comes out."""
        before = len(self.written.topics.get("out", []))
        keys, values = [row[0].encode() for row in rows], [serdes.json.serialize(row[1]) for row in rows]
        end = self._offset + len(rows)
        self.task.add_batch("in", 0, RecordColumns(keys, values, [row[2] for row in rows], self._offset, end))
        self._offset = end
        while self.task.process(1000, 0):
            pass
        return self.out("out")[before:]

    def out(self, topic: str, value: Any = serdes.json) -> Rows:
        return [(row[0].decode(), value.deserialize(row[1]), row[2]) for row in self.written.topics.get(topic, [])]


def started(build: Callable[[KStream[str, Any]], KStream[Any, Any]], **config: Any) -> Running:
    return Running(topology_of(build), **config)


CONTINUE = ExceptionHandlers(processing=log_and_continue)


# -------------------------------------------------------------------------------------------------------------- frames


def test_arrow_tables_go_in_and_out() -> None:
    def double(table: pa.Table) -> pa.Table:
        values = pc.multiply(table["value"], 2)
        return table.set_column(table.schema.get_field_index("value"), "value", values)

    driver = started(lambda stream: stream.map_batches(double))
    assert driver.read(("a", 1, 5), ("b", 2, 6)) == [("a", 2, 5), ("b", 4, 6)]


def test_pandas_frames_with_the_fields_of_values_as_columns() -> None:
    def price(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame[frame["n"] > 0].copy()
        frame["total"] = frame["n"] * frame["each"]
        return frame

    driver = started(lambda stream: stream.map_batches(price, frame="pandas", unpack=True))
    rows = [("a", {"n": 2, "each": 3}, 1), ("b", {"n": 0, "each": 9}, 2), ("c", {"n": 1, "each": 4}, 3)]
    assert driver.read(*rows) == [
        ("a", {"n": 2, "each": 3, "total": 6}, 1),
        ("c", {"n": 1, "each": 4, "total": 4}, 3),
    ]


def test_a_record_to_blame_is_found_and_skipped() -> None:
    def positive(table: pa.Table) -> pa.Table:
        if pc.any(pc.less(table["value"], 0)).as_py():
            raise ValueError("negative")
        return table

    records = [("k", value, time) for time, value in enumerate([1, -2, 3, -4, 5])]
    driver = started(lambda stream: stream.map_batches(positive), handlers=CONTINUE)
    assert [value for _, value, _ in driver.read(*records)] == [1, 3, 5]
    assert driver.task.counters()["failed_processing"] == 2
    driver = started(lambda stream: stream.map_batches(positive))
    with pytest.raises(ProcessingError, match=r"ValueError: negative \(at in-0 offset 1") as failed:
        driver.read(*records)
    assert failed.value.offset == 1
    assert not failed.value.is_in_order


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda table: table.select(["key"]), "value and timestamp must be there too"),
        (lambda table: [1], r"returned list, not a pyarrow\.Table"),
    ],
)
def test_results_of_another_form_are_refused(fn: Any, says: str) -> None:
    with pytest.raises((UserError, ProcessingError), match=says):
        started(lambda stream: stream.map_batches(fn)).read(("a", 1, 1))


# -------------------------------------------------------------------------------------------------------- asynchronous


def lots(count: int) -> list[tuple[str, Any, int]]:
    return [(f"k{index % 3}", index, index) for index in range(count)]


def test_results_keep_the_order_and_calls_overlap_up_to_the_limit() -> None:
    under_way: Counter[str] = Counter()
    most = 0

    async def call(key: str, value: int) -> int:
        nonlocal most
        under_way["now"] += 1
        most = max(most, under_way["now"])
        for _ in range(10 - value % 10):
            await turn()
        under_way["now"] -= 1
        return value * 10

    driver = started(lambda stream: stream.map_async(call, concurrency=4, with_key=True))
    assert driver.read(*lots(40)) == [(key, 10 * value, time) for key, value, time in lots(40)]
    assert most == 4


def test_calls_are_made_again_and_then_the_handler_is_asked() -> None:
    calls: Counter[int] = Counter()

    async def flaky(value: int) -> int:
        calls[value] += 1
        if value == 1 and calls[1] < 3:
            raise ConnectionError("not yet")
        if value == 2:
            raise ValueError("never")
        return value

    driver = started(lambda stream: stream.map_async(flaky, retries=2, backoff=0), handlers=CONTINUE)
    assert [value for _, value, _ in driver.read(*lots(4))] == [0, 1, 3]
    assert calls == {0: 1, 1: 3, 2: 3, 3: 1}


def test_a_function_that_returns_an_awaitable_is_called_and_others_are_told() -> None:
    async def ten_times(value: int) -> int:
        return value * 10

    driver = started(lambda stream: stream.map_async(lambda value: ten_times(value + 1)))
    assert [value for _, value, _ in driver.read(*lots(3))] == [10, 20, 30]
    calls: list[int] = []
    plain = started(lambda stream: stream.map_async(cast(Any, calls.append), retries=3))
    with pytest.raises(ProcessingError, match=r"is to return an awaitable, and it returned NoneType: make it an async"):
        plain.read(("a", 1, 1))
    assert calls == [1]


def test_a_call_that_takes_too_long_fails() -> None:
    async def stuck(value: int) -> int:
        await asyncio.Event().wait()
        return value

    driver = started(lambda stream: stream.map_async(stuck, timeout=1))
    with pytest.raises(ProcessingError, match="TimeoutError"):
        driver.read(("a", 1, 1))


def test_records_that_wait_are_not_done_where_a_later_one_fails_elsewhere() -> None:
    async def same(value: int) -> int:
        return value

    def branches(stream: KStream[str, Any]) -> KStream[Any, Any]:
        results = stream.map_async(same)
        stream.map_values(lambda value: 1 // value).foreach(lambda key, value: None)
        return results

    driver = started(branches)
    with pytest.raises(ProcessingError, match="ZeroDivisionError") as failed:
        driver.read(("a", 1, 1), ("b", 0, 2))
    assert failed.value.offset == 1
    assert not failed.value.is_in_order


def test_a_call_that_is_cancelled_or_exits_fails_as_well() -> None:
    async def gone(value: int) -> int:
        raise asyncio.CancelledError if value else SystemExit(3)

    for value, says in ((1, "CancelledError"), (0, "SystemExit")):
        driver = started(lambda stream: stream.map_async(gone))
        with pytest.raises(ProcessingError, match=says):
            driver.read(("a", value, 1))


def test_unordered_results_are_all_there() -> None:
    async def call(value: int) -> int:
        for _ in range(value % 7):
            await turn()
        return value

    driver = started(lambda stream: stream.map_async(call, concurrency=8, ordered=False))
    assert sorted(value for _, value, _ in driver.read(*lots(30))) == list(range(30))


def test_what_follows_a_batch_may_aggregate_and_gather_again() -> None:
    async def more(value: int) -> int:
        return value + 1

    def chain(stream: KStream[str, Any]) -> KStream[Any, Any]:
        counted = stream.map_async(more).group_by_key(key=serdes.string, value=serdes.json).count(store="counts")
        return counted.to_stream().map_async(more)

    driver = started(chain)
    driver.read(("a", 1, 1), ("b", 1, 1), ("a", 1, 2))
    commit(driver.task)
    assert sorted(driver.out("out")) == [("a", 3, 2), ("b", 2, 1)]
    uncached = started(chain, cache_max_bytes=0)
    assert uncached.read(("a", 1, 1), ("a", 1, 2)) == [("a", 2, 1), ("a", 3, 2)]


# --------------------------------------------------------------------------------------------------- the other operators


def test_values_that_fail_are_another_stream() -> None:
    builder = StreamsBuilder()
    stream: KStream[str, int] = builder.stream("in", key=serdes.string, value=serdes.json)
    good, failed = stream.try_map_values(lambda value: 12 // value)
    good.to("out", key=serdes.string, value=serdes.json)

    def explain(each: FailedValue[int]) -> str:
        return f"{each.value}: {type(each.error).__name__}"

    failed.map_values(explain).to("errors", key=serdes.string, value=serdes.string)
    driver = Running(builder.build())
    assert driver.read(("a", 4, 1), ("b", 0, 2), ("c", 3, 3)) == [("a", 3, 1), ("c", 4, 3)]
    assert driver.out("errors", serdes.string) == [("b", "0: ZeroDivisionError", 2)]


def test_aggregates_by_name_in_windows() -> None:
    totals = agg(n=Count(), total=Sum())
    builder = StreamsBuilder()
    stream: KStream[str, int] = builder.stream("in", key=serdes.string, value=serdes.json)
    windows = stream.group_by_key(key=serdes.string, value=serdes.json).windowed_by(TimeWindows(10, grace=0))
    table = windows.aggregate(totals, totals.add, store="totals", value=serdes.json)
    table.to_stream(lambda window, _: f"{window.key}@{window.start_ms}").to("out", key=serdes.string, value=serdes.json)
    driver = Running(builder.build())
    driver.read(("a", 4, 1), ("a", 5, 2), ("a", 6, 12))
    commit(driver.task)
    found = {key: value for key, value, _ in driver.out("out")}
    assert found == {"a@0": {"n": 2, "total": 9}, "a@10": {"n": 1, "total": 6}}


TTL_MS = 100


def passed(records: list[tuple[str, int]]) -> list[bool]:
    """Which records pass, by the words of the documentation."""
    last: dict[str, int] = {}
    found = []
    for id_, time in records:
        before = last.get(id_)
        passes = before is None or abs(time - before) >= TTL_MS
        if passes:
            last[id_] = time if before is None else max(before, time)
        found.append(passes)
    return found


def once(grace: int = 0) -> Topology:
    def deduplicated(stream: KStream[str, Any]) -> KStream[str, Any]:
        return stream.deduplicate(lambda _, value: value, TTL_MS, serde=serdes.string, grace=grace, store="seen")

    return topology_of(deduplicated)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 500)), max_size=40), st.integers(0, 40))
def test_duplicates_are_dropped_also_after_a_restart(records: list[tuple[str, int]], cut: int) -> None:
    topology = once(grace=10_000)
    rows = [("k", id_, time) for id_, time in records]
    first = Running(topology)
    found = first.read(*rows[:cut])
    commit(first.task)
    second = Running(topology)
    restore(second.task, "seen", first.written)
    found += second.read(*rows[cut:])
    assert found == [row for row, passes in zip(rows, passed(records), strict=True) if passes]


def test_what_is_forgotten_does_not_depend_on_restarts() -> None:
    rows = [("k", "a", 0), ("k", "b", 50), ("k", "c", TTL_MS - 1), ("k", "a", 10), ("k", "c", TTL_MS), ("k", "a", 20)]
    wanted = [("k", "a", 0), ("k", "b", 50), ("k", "c", TTL_MS - 1), ("k", "a", 20)]
    for cut in range(len(rows)):
        run = Run(once())
        run.feed([Piped("in", key, f'"{id_}"', time, ()) for key, id_, time in rows[:cut]])
        run.commit()
        run.restart()
        run.feed([Piped("in", key, f'"{id_}"', time, ()) for key, id_, time in rows[cut:]])
        found = [(row[0].decode(), serdes.json.deserialize(row[1]), row[2]) for row in run.written.topics["out"]]
        assert found == wanted


def test_ids_are_forgotten_when_their_time_is_over() -> None:
    driver = Running(once())
    driver.read(("k", "a", 0), ("k", "b", 50), ("k", "c", 1000))
    commit(driver.task)
    assert [row[0] for row in final_rows(driver.task)["seen"]] == [b"c"]


@pytest.mark.parametrize("timestamp", [None, float("nan"), -5])
def test_a_row_without_a_valid_timestamp_is_a_failure_of_its_record(timestamp: float | None) -> None:
    def changed(table: pa.Table) -> pa.Table:
        times = [timestamp if value == "bad" else 1 for value in table["value"].to_pylist()]
        return table.set_column(table.schema.get_field_index("timestamp"), "timestamp", pa.array(times))

    text: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
    builder = StreamsBuilder()
    builder.stream("in", **text).map_batches(changed, frame="arrow").to("out", **text)
    run = Run(builder.build(), handlers=ExceptionHandlers(processing=log_and_continue))
    run.feed([Piped("in", "a", "good", 1, ()), Piped("in", "b", "bad", 2, ())])
    assert [key for key, *_ in run.written.topics["out"]] == [b"a"]
    assert run.task.counters()["failed_processing"] == 1
