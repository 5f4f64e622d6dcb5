"""Suppression: what is forwarded when, what happens when the buffer is full, and what a restart brings back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.errors import ProcessingError, StateError
from streamsrt.state.buffer import VERSION_HEADERS, Held, SuppressionBuffer
from streamsrt.state.memory import MemoryStore
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.operators.programs import Piped
from tests.streamsrt.operators.ways import Run, assert_all_ways_agree
from topology import (
    Buffer,
    KTable,
    SessionWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    serdes,
)


def table(builder: StreamsBuilder) -> KTable[str, str]:
    return builder.table("t", key=serdes.string, value=serdes.string)


def driver_of(builder: StreamsBuilder, table: KTable[str, Any]) -> TopologyTestDriver:
    table.to_stream().to("out")
    settings = {"default.key.serde": serdes.string, "default.value.serde": serdes.string}
    return TopologyTestDriver(builder.build(), settings)


def pipe(driver: TopologyTestDriver, *records: tuple[str, str | None, int]) -> list[tuple[Any, Any]]:
    topic = driver.create_input_topic("t", serdes.string, serdes.string)
    for key, value, timestamp in records:
        topic.pipe_input(key, value, timestamp)
    return driver.create_output_topic("out", serdes.string, serdes.string).read_key_values_to_list()


def test_the_last_change_within_the_limit_is_forwarded_a_deletion_too() -> None:
    builder = StreamsBuilder()
    driver = driver_of(builder, table(builder).suppress(Suppressed.until_time_limit(10)))
    assert pipe(driver, ("a", "1", 0), ("a", "2", 5), ("b", "1", 6), ("c", "x", 9)) == []
    assert pipe(driver, ("d", "1", 10)) == [("a", "2")]
    assert pipe(driver, ("b", None, 11), ("d", "2", 20)) == [("b", None), ("c", "x"), ("d", "2")]


def test_a_full_buffer_emits_the_oldest_early() -> None:
    builder = StreamsBuilder()
    driver = driver_of(builder, table(builder).suppress(Suppressed.until_time_limit(1000, Buffer(max_records=2))))
    assert pipe(driver, ("a", "1", 3), ("b", "1", 1), ("c", "1", 2)) == [("b", "1")]


@pytest.mark.parametrize("limit", [{"max_records": 2}, {"max_bytes": 80}])
def test_a_full_buffer_shuts_down(limit: dict[str, int]) -> None:
    builder = StreamsBuilder()
    buffer = Buffer(when_full="shut_down", **limit)
    driver = driver_of(builder, table(builder).suppress(Suppressed.until_time_limit(1000, buffer)))
    with pytest.raises(ProcessingError, match="raise max_records or max_bytes"):
        pipe(driver, ("a", "1", 3), ("b", "1", 1), ("c", "1", 2))


def test_old_values_behind_a_suppression_are_those_that_were_forwarded() -> None:
    builder = StreamsBuilder()
    grouped = table(builder).suppress(Suppressed.until_time_limit(10)).group_by(lambda k, v: ("all", v))
    total = grouped.aggregate(str, lambda k, v, a: f"{a}+{v}", lambda k, v, a: f"{a}-{v}")
    driver = driver_of(builder, total)
    assert pipe(driver, ("a", "1", 0), ("a", "2", 10)) == [("all", "+2")]
    assert pipe(driver, ("a", "3", 11), ("a", "4", 12), ("a", "5", 30)) == [("all", "+2-2+5")]


@pytest.mark.parametrize("generate", [True, False])
def test_a_join_sees_what_a_suppression_has_forwarded(generate: bool) -> None:
    builder = StreamsBuilder()
    suppressed = table(builder).suppress(Suppressed.until_time_limit(10))
    asked = builder.stream("q", key=serdes.string, value=serdes.string)
    asked.left_join(suppressed, lambda question, row: f"{question}:{row}").to("out")
    suppressed.to_stream().foreach(lambda k, v: None)
    settings = {"default.key.serde": serdes.string, "default.value.serde": serdes.string}
    driver = TopologyTestDriver(builder.build(), settings, generate=generate)
    questions = driver.create_input_topic("q", serdes.string, serdes.string)
    answers = driver.create_output_topic("out", serdes.string, serdes.string)
    pipe(driver, ("a", "1", 0))
    questions.pipe_input("a", "early", 1)
    assert answers.read_values_to_list() == ["early:None"]
    pipe(driver, ("a", "2", 10))
    questions.pipe_input("a", "then", 11)
    assert answers.read_values_to_list() == ["then:2"]
    pipe(driver, ("a", "3", 12))
    questions.pipe_input("a", "again", 13)
    assert answers.read_values_to_list() == ["again:2"]


@pytest.mark.parametrize("generate", [True, False])
def test_tables_of_sessions_can_be_joined(generate: bool) -> None:
    builder = StreamsBuilder()
    sessions = [
        builder.stream(topic, key=serdes.string, value=serdes.string)
        .group_by_key()
        .windowed_by(SessionWindows(5))
        .count(store=f"of-{topic}")
        for topic in ("t", "u")
    ]
    joined = sessions[0].join(sessions[1], lambda one, other: f"{one}/{other}")
    joined.to_stream(lambda k, v: f"{k.key}@{k.start_ms}-{k.end_ms}").to("out", value=serdes.string)
    driver = TopologyTestDriver(builder.build(), {"default.key.serde": serdes.string}, generate=generate)
    for topic in ("t", "u"):
        piped = driver.create_input_topic(topic, serdes.string, serdes.string)
        piped.pipe_input("a", "x", 1)
        piped.pipe_input("a", "x", 4)
    out = driver.create_output_topic("out", serdes.string, serdes.string)
    assert out.read_key_values_to_list() == [("a@1-4", "2/2")]


def test_a_window_of_two_joined_tables_is_closed_when_it_is_in_both() -> None:
    builder = StreamsBuilder()
    short, long = (
        builder.stream(name, key=serdes.string, value=serdes.string)
        .group_by_key()
        .windowed_by(TimeWindows(10, grace=grace))
        .count(store=Store(retention=1000))
        for name, grace in (("t", 0), ("u", 100))
    )
    joined = short.join(long, lambda one, other: f"{one}/{other}", value=serdes.string)
    driver = driver_of(builder, joined.suppress(Suppressed.until_window_closes()))
    other = driver.create_input_topic("u", serdes.string, serdes.string)
    other.pipe_input("a", "x", 2)
    assert pipe(driver, ("a", "x", 1), ("a", "x", 50)) == []
    other.pipe_input("a", "x", 50)
    other.pipe_input("a", "x", 3)
    other.pipe_input("a", "x", 200)
    assert [value for _, value in pipe(driver, ("a", "x", 200))] == ["1/2", "1/1"]


def test_results_are_final_only_where_windows_close() -> None:
    suppressed = Suppressed.until_window_closes()
    with pytest.raises(TopologyError, match="this one has none"):
        table(StreamsBuilder()).suppress(suppressed)
    grouped = StreamsBuilder().stream("a", key=serdes.string, value=serdes.string).group_by_key()
    with pytest.raises(TopologyError, match="this one has none"):
        grouped.windowed_by(UnlimitedWindows()).count().suppress(suppressed)
    grouped.windowed_by(TimeWindows(5)).count().filter(lambda k, v: v > 1).suppress(suppressed)


def test_a_table_of_versions_is_refused() -> None:
    builder = StreamsBuilder()
    versions = Store("v", kind="versioned", retention=1000)
    versioned = builder.table("t", key=serdes.string, value=serdes.string, store=versions)
    with pytest.raises(TopologyError, match="tables without versions"):
        versioned.filter(lambda k, v: bool(v)).suppress(Suppressed.until_time_limit(5))


def test_buffers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(TopologyError, match="max_records of a buffer is at least 1"):
        Buffer(max_records=0)
    with pytest.raises(TopologyError, match="when_full is"):
        Buffer(when_full="wait")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="final results only"):
        Suppressed.until_window_closes(Buffer(max_bytes=10))
    with pytest.raises(TopologyError, match="must be 0 ms or greater"):
        Suppressed.until_time_limit(-1)


def new_buffer(store: MemoryStore) -> SuppressionBuffer:
    return SuppressionBuffer("s", store, str.encode, bytes.decode)


def held(key: bytes, time_ms: int, new: str | None, old: str | None = None) -> Held:
    return Held(key, time_ms, new, old, old, time_ms + 1, (("h", None), ("i", b"1")), ("topic", 3, 7))


def test_a_buffer_is_restored_from_its_changelog_as_it_was() -> None:
    buffer = new_buffer(MemoryStore("s"))
    for change in (held(b"b", 5, "1"), held(b"a", 5, None, "0"), held(b"c", 1, "x"), held(b"b", 9, "2", "1")):
        buffer.put(change)
    assert buffer.take_first() == held(b"c", 1, "x")
    keys, values, headers = buffer.take_changes()
    assert list(zip(keys, headers, strict=True)) == [(b"a", VERSION_HEADERS), (b"b", VERSION_HEADERS), (b"c", ())]
    restored = new_buffer(MemoryStore("s"))
    restored.restore(RecordColumns(list(keys), values, [0, 0, 0], 0, 3, None, [tuple(header) for header in headers]))
    assert [(row.key, row.time_ms, row.new, row.old, row.prior) for row in restored.rows()] == [
        (b"a", 5, None, "0", "0"),
        (b"b", 5, "2", "1", None),
    ]
    assert restored.rows()[0].origin == ("topic", 3, 7)
    buffer.count_bytes()
    restored.count_bytes()
    assert restored.size_in_bytes == buffer.size_in_bytes


def test_a_changelog_in_another_format_is_refused() -> None:
    columns = RecordColumns([b"a"], [b"xyz"], [0], 0, 1)
    with pytest.raises(StateError, match="another format"):
        new_buffer(MemoryStore("s")).restore(columns)
    damaged = RecordColumns([b"a"], [b"xyz"], [0], 0, 1, None, [VERSION_HEADERS])
    buffer = new_buffer(MemoryStore("s"))
    buffer.restore(damaged)
    with pytest.raises(StateError, match="damaged"):
        buffer.take_first()


@given(st.lists(st.one_of(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3)), st.integers(-1, 3))))
def test_changes_go_by_time_and_then_by_key(steps: list[tuple[str, int] | int]) -> None:
    """A step is a change of a key at a time, or lets one go whose time is not later."""
    buffer, model = new_buffer(MemoryStore("s")), dict[bytes, int]()
    for step in steps:
        if isinstance(step, int):
            due = sorted((time_ms, key) for key, time_ms in model.items() if time_ms <= step)
            found = next(buffer.evict_until(step), None)
            assert (None if found is None else (found.time_ms, found.key)) == (due[0] if due else None)
            model.pop(due[0][1] if due else b"", None)
        else:
            key = step[0].encode()
            model.setdefault(key, step[1])
            assert buffer.put(held(key, step[1], "x")) == min(model.values())
        assert [(row.time_ms, row.key) for row in buffer.rows()] == sorted(
            (time_ms, key) for key, time_ms in model.items()
        )
    assert len(buffer) == len(model)


def test_a_window_is_closed_by_what_came_after_its_last_change() -> None:
    """A newer window changes before and after it in one batch: of the two, it is the one that changed last."""
    builder = StreamsBuilder()
    counted = builder.stream("t", key=serdes.string, value=serdes.string).group_by_key()
    windows = counted.windowed_by(TimeWindows(10_000, grace=5_000)).count()
    windows.suppress(Suppressed.until_window_closes()).to_stream(lambda w, _: f"{w.key}@{w.start_ms}").to(
        "out", key=serdes.string, value=serdes.long
    )
    topology = builder.build()
    run = Run(topology)
    run.feed([Piped("t", "k", "x", time, ()) for time in (192_992, 197_745)])
    run.commit()
    rows = [Piped("t", "k", "x", time, ()) for time in (200_676, 199_571, 208_730)]
    run.feed([*rows, Piped("t", "zz", "x", 2_000_000, ())])
    run.commit()
    closed = [(row[0], row[1]) for row in run.written.topics["out"]]
    assert closed == [(b"k@190000", (3).to_bytes(8)), (b"k@200000", (2).to_bytes(8))]
    assert_all_ways_agree(topology, rows, [7])
