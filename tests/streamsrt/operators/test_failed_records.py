"""What a record that fails leaves behind.

Stores hold what their changelogs say, whether it is skipped or stops the task. What was held back until it came is forwarded
after the next start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.errors import RecordError
from streamsrt.operators.engine.handlers import ExceptionHandlers, log_and_continue
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.operators.programs import Piped, final_rows
from tests.streamsrt.operators.test_every_operator import Row, contents, rows
from tests.streamsrt.operators.test_letters_of_every_operation import PLACES, Place, broken
from tests.streamsrt.operators.ways import Run
from topology import (
    CountWindows,
    EmitStrategy,
    KStream,
    KTable,
    ProcessorContext,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    Windowed,
    serdes,
)

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
SKIPPING: dict[str, Any] = {"processing.exception.handler": "continue"}
caches = st.sampled_from([0, 1 << 20])


def all_rows(driver: TopologyTestDriver) -> dict[str, list[Any]]:
    return {name: list(contents(driver, name)) for name in driver.store_names()}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(PLACES), rows, caches, st.booleans())
def test_stores_are_as_their_changelogs_after_records_that_are_skipped(
    place: Place, piped: list[Row], cache_max_bytes: int, generate: bool
) -> None:
    topology = broken(place)
    config = {**SKIPPING, "statestore.cache.max.bytes": cache_max_bytes}
    reads = {topic for part in topology.subtopologies for topic in part.source_topics}
    with TopologyTestDriver(topology, config, generate=generate) as driver:
        for topic, key, value, timestamp in piped:
            if topic in reads:
                driver.pipe_raw(topic, key.encode(), None if value is None else value.encode(), timestamp)
        driver.commit()
        before = all_rows(driver)
        driver.restart()
        assert all_rows(driver) == before


ONE_TASK = [
    place
    for place in PLACES
    if len((topology := broken(place)).subtopologies) == 1 and not topology.global_subtopologies
]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(ONE_TASK), rows, st.booleans(), st.booleans())
def test_stores_are_as_their_changelogs_after_a_record_that_stops_the_task(
    place: Place, piped: list[Row], caching: bool, generate: bool
) -> None:
    topology = broken(place)
    (subtopology,) = topology.subtopologies
    run = Run(topology, generate=generate, **({} if caching else {"cache_max_bytes": 0}))
    try:
        run.feed([Piped(*row, ()) for row in piped if row[0] in subtopology.source_topics])
    except RecordError as error:
        if not error.is_in_order:
            # Nothing is committed then.
            return
    try:
        run.commit()
    except RecordError:
        return
    before = final_rows(run.task)
    run.restart()
    assert final_rows(run.task) == before


def appended(key: str, value: str | None, aggregate: str) -> str:
    if value == "bad":
        raise ValueError(value)
    return f"{aggregate}{value}"


def windowed(windows: TimeWindows | SlidingWindows) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", **TEXT).group_by_key().windowed_by(windows)
    grouped.aggregate(lambda: "", appended, store=Store("rows", **TEXT)).to_stream(lambda k, v: k.key).to("out", **TEXT)
    return builder.build()


@pytest.mark.parametrize(
    "windows", [TimeWindows(10, grace=0), TimeWindows(10, 5, grace=0), SlidingWindows(10, grace=0)]
)
@pytest.mark.parametrize("cache_max_bytes", [0, 1 << 20])
@pytest.mark.parametrize("generate", [True, False])
def test_a_skipped_record_lets_no_window_expire(
    windows: TimeWindows | SlidingWindows, cache_max_bytes: int, generate: bool
) -> None:
    config = {**SKIPPING, "statestore.cache.max.bytes": cache_max_bytes}
    with TopologyTestDriver(windowed(windows), config, generate=generate) as driver:
        records = driver.create_input_topic("in", serdes.string, serdes.string)
        records.pipe_input("k", "good", 20)
        driver.commit()
        before = all_rows(driver)
        assert before["rows"]
        records.pipe_input("k", "bad", 1_000_000)
        driver.commit()
        assert all_rows(driver) == before


def sessions(stream: KStream[str, str]) -> KStream[str, str]:
    grouped = stream.group_by_key().windowed_by(SessionWindows(10, grace=100))
    table = grouped.aggregate(lambda: "", appended, lambda key, one, other: one + other, store=Store("rows", **TEXT))
    return table.to_stream(lambda key, value: key.key)


@pytest.mark.parametrize("cache_max_bytes", [0, 1 << 20])
@pytest.mark.parametrize("generate", [True, False])
def test_a_skipped_record_leaves_the_sessions_that_it_would_have_merged(cache_max_bytes: int, generate: bool) -> None:
    builder = StreamsBuilder()
    sessions(builder.stream("in", **TEXT)).to("out", **TEXT)
    config = {**SKIPPING, "statestore.cache.max.bytes": cache_max_bytes}
    with TopologyTestDriver(builder.build(), config, generate=generate) as driver:
        records = driver.create_input_topic("in", serdes.string, serdes.string)
        for value, timestamp in (("one", 0), ("other", 15), ("bad", 8)):
            records.pipe_input("k", value, timestamp)
        found = [(tuple(session)[1:], value) for session, value in driver.get_session_store("rows").all()]
        assert found == [((0, 0), "one"), ((15, 15), "other")]
        driver.restart()
        assert [value for _, value in driver.get_session_store("rows").all()] == ["one", "other"]


@pytest.mark.parametrize("generate", [True, False])
def test_a_mapper_that_takes_no_deletion_leaves_no_session_in_the_changelog(generate: bool) -> None:
    """It fails at the first of the merged sessions; the other one is deleted from the changelog as well."""
    builder = StreamsBuilder()
    sessions(builder.stream("in", **TEXT)).map_values(str.upper).to("out", **TEXT)
    run = Run(builder.build(), generate=generate, cache_max_bytes=0)
    read_and_commit(run, [Piped("in", "k", "one", 0, ()), Piped("in", "k", "other", 15, ())])
    with pytest.raises(RecordError, match="NoneType") as failed:
        run.feed([Piped("in", "k", "good", 8, ())])
    assert not failed.value.is_in_order
    run.restart()
    kept = [value for _, _, value, _ in final_rows(run.task)["rows"]]
    assert kept == (["oneothergood"] if generate else ["one", "other"])


def closed(windows: TimeWindows | SlidingWindows | SessionWindows) -> Callable[[KStream[str, str]], KTable[Any, int]]:
    def program(stream: KStream[str, str]) -> KTable[Any, int]:
        grouped: Any = stream.group_by_key().windowed_by(windows)
        table: KTable[Any, int] = grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="rows")
        return table

    return program


def suppressed_windows(stream: KStream[str, str]) -> KTable[Any, int]:
    windowed = stream.group_by_key().windowed_by(TimeWindows(10, grace=0))
    return windowed.count(store="rows").suppress(Suppressed.until_window_closes())


def suppressed(stream: KStream[str, str]) -> KTable[Any, int]:
    return stream.group_by_key().count(store="rows").suppress(Suppressed.until_time_limit(5))


def read_and_commit(run: Run, records: list[Piped]) -> None:
    run.feed(records)
    run.commit()


HOLDING = {
    "windows": closed(TimeWindows(10, grace=0)),
    "sliding windows": closed(SlidingWindows(10, grace=0)),
    "sessions": closed(SessionWindows(10, grace=0)),
    "suppressed windows": suppressed_windows,
    "suppressed": suppressed,
}


@pytest.mark.parametrize("program", HOLDING)
@pytest.mark.parametrize("cache_max_bytes", [0, 1 << 20])
@pytest.mark.parametrize("generate", [True, False])
def test_what_was_held_back_is_not_lost_with_the_record_that_lets_it_go(
    program: str, cache_max_bytes: int, generate: bool
) -> None:
    is_broken = True

    def text(key: object, value: int) -> str:
        if is_broken:
            raise ValueError("broken")
        return str(value)

    builder = StreamsBuilder()
    table = HOLDING[program](builder.stream("in", **TEXT))
    table.to_stream(lambda k, v: getattr(k, "key", k)).map_values(text, with_key=True).to("out", **TEXT)
    run = Run(builder.build(), generate=generate, cache_max_bytes=cache_max_bytes)
    read_and_commit(run, [Piped("in", "a", "", 1, ()), Piped("in", "b", "", 2, ())])
    lets_go = [Piped("in", "c", "", 50, ())]
    with pytest.raises(RecordError) as failed:
        read_and_commit(run, lets_go)
    assert not failed.value.is_in_order or failed.value.offset < 0, "what came before would be committed"
    is_broken = False
    run.restart()
    read_and_commit(run, [*lets_go, Piped("in", "d", "", 200, ())])
    assert [key for key, *_ in run.written.topics["out"]] == [b"a", b"b", b"c"]


def test_the_deletion_of_an_expired_row_is_not_committed_with_the_record_that_lets_it_expire() -> None:
    def text(value: str | None) -> str:
        if value is None:
            raise ValueError("broken")
        return str(value)

    builder = StreamsBuilder()
    table = builder.table("in", store=Store("rows", ttl=10, **TEXT), **TEXT)
    table.to_stream().map_values(text).to("out", **TEXT)
    run = Run(builder.build(), cache_max_bytes=0)
    read_and_commit(run, [Piped("in", "a", "row", 1, ())])
    with pytest.raises(RecordError) as failed:
        run.feed([Piped("in", "b", "row", 50, ())])
    assert not failed.value.is_in_order


def expiring(builder: StreamsBuilder) -> None:
    builder.table("in", store=Store("rows", ttl=10, **TEXT), **TEXT).to_stream().to("out", **TEXT)


class Ticks:
    """Forwards the time of each punctuation."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        def tick(at_ms: int) -> None:
            context.forward(Record("tick", str(at_ms), at_ms))

        context.schedule(10, PunctuationType.STREAM_TIME, tick)

    def process(self, record: Record[str, str]) -> None: ...


def ticking(builder: StreamsBuilder) -> None:
    """Its processor takes a run of records right from the source."""
    builder.stream("in", **TEXT).process(Ticks).to("out", **TEXT)


def ticking_behind_a_step(builder: StreamsBuilder) -> None:
    builder.stream("in", **TEXT).filter(lambda k, v: True).process(Ticks).to("out", **TEXT)


def upper(builder: StreamsBuilder) -> None:
    builder.stream("in", **TEXT).map_values(str.upper).to("out", **TEXT)


def merged(builder: StreamsBuilder) -> None:
    builder.stream("in", **TEXT).merge(builder.stream("other", **TEXT)).map_values(str.upper).to("out", **TEXT)


@pytest.mark.parametrize("program", [expiring, ticking, ticking_behind_a_step, upper, merged])
@pytest.mark.parametrize("generate", [True, False])
def test_a_record_that_cannot_be_read_moves_no_time(program: Callable[[StreamsBuilder], None], generate: bool) -> None:
    """Its timestamp may be as wrong as the rest of it: no row expires by it, and no punctuation is due."""
    builder = StreamsBuilder()
    program(builder)
    handlers = ExceptionHandlers(deserialization=log_and_continue)
    read, unread = (Run(builder.build(), generate=generate, handlers=handlers) for _ in range(2))
    records = [
        ("in", b"a", 1),
        ("other", b"b", 2),
        ("in", b"c", 4),
        ("other", b"d", 5),
        ("in", b"e", 6),
        ("in", b"f", 15),
    ]
    poisoned = [
        *records[:3],
        ("other", b"\xff", 10_000),
        ("in", b"\xff", 1_000_000),
        *records[3:],
        ("in", b"\xff", 9_999),
    ]
    topics = [topic for topic, _ in read.task.source_partitions]
    for run, piped in ((read, records), (unread, poisoned)):
        for topic in topics:
            keys, times = zip(*((key, ms) for name, key, ms in piped if name == topic), strict=True)
            run.task.add_batch(topic, 0, RecordColumns(list(keys), [b"v"] * len(keys), list(times), 0, len(keys)))
        while run.task.process(1000, 0):
            pass
        run.commit()
    assert unread.task.counters()["failed_deserialization"] == len(topics) + 1
    assert unread.written.topics == read.written.topics
    assert final_rows(unread.task) == final_rows(read.task)
    assert unread.task.stream_time_ms == read.task.stream_time_ms == 15
    assert unread.task.partition_times() == read.task.partition_times()


class OnceOnly:
    """A processor that forwards the first record of each key."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        self._seen = context.get_state_store("seen")

    def process(self, record: Record[str, str]) -> None:
        if self._seen.get(record.key) is None:
            self._seen.put(record.key, "seen")
            self._context.forward(record)


def once_by_processor(builder: StreamsBuilder) -> KStream[Any, Any]:
    builder.add_state_store(Store("seen", **TEXT))
    return builder.stream("in", **TEXT).process(OnceOnly, stores=["seen"])


def deduplicated(builder: StreamsBuilder) -> KStream[Any, Any]:
    return builder.stream("in", **TEXT).deduplicate(lambda key, value: key, 100, serde=serdes.string)


def in_pairs(builder: StreamsBuilder) -> KStream[Any, Any]:
    grouped = builder.stream("in", **TEXT).group_by_key(**TEXT)
    return grouped.windowed_by(CountWindows(2)).reduce(lambda one, other: other, store=Store(value=serdes.string))


def expired(builder: StreamsBuilder) -> KStream[Any, Any]:
    return builder.table("in", store=Store("rows", ttl=10, **TEXT), **TEXT).to_stream()


CHANGES_BEFORE: dict[str, tuple[Callable[[StreamsBuilder], KStream[Any, Any]], list[Piped], Piped]] = {
    "processor": (once_by_processor, [Piped("in", "a", "x", 1, ())], Piped("in", "b", "x", 2, ())),
    "deduplicate": (deduplicated, [Piped("in", "a", "x", 1, ())], Piped("in", "b", "x", 2, ())),
    "count windows": (in_pairs, [Piped("in", "a", "x", 1, ())], Piped("in", "a", "x", 2, ())),
    "ttl": (expired, [Piped("in", "a", "x", 1, ())], Piped("in", "b", "x", 50, ())),
}


@pytest.mark.parametrize("case", CHANGES_BEFORE)
@pytest.mark.parametrize("cache_max_bytes", [0, 1 << 20])
def test_a_record_that_fails_behind_a_changed_store_is_not_lost(case: str, cache_max_bytes: int) -> None:
    """Read again, it finds the store as it was: a commit, or a changelog, would say that it was processed."""
    program, before, failing = CHANGES_BEFORE[case]
    is_broken = False

    def text(key: object, value: object) -> str:
        if is_broken:
            raise ValueError("broken")
        return str(value)

    builder = StreamsBuilder()
    program(builder).map_values(text, with_key=True).to("out", **TEXT)
    run, expected = (Run(builder.build(), cache_max_bytes=cache_max_bytes) for _ in range(2))
    read_and_commit(run, before)
    read_and_commit(expected, [*before, failing])
    is_broken = True
    with pytest.raises(RecordError) as failed:
        read_and_commit(run, [failing])
    assert not failed.value.is_in_order or failed.value.offset < 0, "what came before would be committed"
    is_broken = False
    run.restart()
    read_and_commit(run, [failing])
    assert run.written.topics["out"] == expected.written.topics["out"]
    assert final_rows(run.task) == final_rows(expected.task)


def test_an_asof_join_that_fails_for_a_record_that_waited_finds_its_match_after_the_next_start() -> None:
    """The record that let it go lets it go again, before it lets the match expire."""
    is_broken = True

    def joined(left: str, right: str) -> str:
        if is_broken:
            raise ValueError("broken")
        return left + right

    builder = StreamsBuilder()
    left, right = builder.stream("left", **TEXT), builder.stream("right", **TEXT)
    left.join_asof(right, joined, 8, grace=4).to("out", **TEXT)
    run = Run(builder.build())
    read_and_commit(run, [Piped("right", "k", "r", 1, ()), Piped("left", "k", "l", 2, ())])
    lets_go = [Piped("right", "k", "far", 1000, ())]
    with pytest.raises(RecordError, match="broken"):
        run.feed(lets_go)
    run.commit()
    is_broken = False
    run.restart()
    read_and_commit(run, [*lets_go, Piped("right", "k", "far", 1001, ())])
    assert [value for _, value, *_ in run.written.topics["out"]] == [b"lr"]


@pytest.mark.parametrize("emit", [EmitStrategy.ON_WINDOW_CLOSE, EmitStrategy.ON_WINDOW_UPDATE])
@pytest.mark.parametrize("cache_max_bytes", [0, 1 << 20])
@pytest.mark.parametrize("generate", [True, False])
def test_a_skipped_record_makes_no_session_longer(emit: EmitStrategy, cache_max_bytes: int, generate: bool) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", **TEXT).group_by_key().windowed_by(SessionWindows(2_000, grace=40_000))
    grouped = grouped.emit_strategy(emit)
    grouped.aggregate(lambda: "", appended, lambda _key, one, other: one + other, store=Store("rows", **TEXT))
    config = {**SKIPPING, "statestore.cache.max.bytes": cache_max_bytes}
    with TopologyTestDriver(builder.build(), config, generate=generate, commit="manual") as driver:
        records = driver.create_input_topic("in", serdes.string, serdes.string)
        for key, value, timestamp in [("k", "a", 0), ("k", "bad", 1500)]:
            records.pipe_input(key, value, timestamp)
        for key, value, timestamp in [("j", "a", 0), ("j", "bad", 1500), ("j", "b", 3000)]:
            records.pipe_input(key, value, timestamp)
        driver.commit()
        found = [(key, value) for name in driver.store_names() for key, value in contents(driver, name)]
    expected = [(Windowed("j", 0, 0), "a"), (Windowed("j", 3000, 3000), "b"), (Windowed("k", 0, 0), "a")]
    assert sorted(found) == expected
