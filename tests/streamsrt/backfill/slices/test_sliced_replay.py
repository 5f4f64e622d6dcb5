"""In slices of its keys a task computes what it computes as a whole."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.slices.share import Slice
from streamsrt.tasks.global_state import GlobalState
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.backfill.frozen import filled
from tests.streamsrt.backfill.slices.replays import Computed, Records, config_of, prevents, sliced, whole
from tests.streamsrt.operators.programs import Piped, build, piped, programs
from tests.streamsrt.operators.test_every_operator import PROGRAMS
from topology import KTable, SessionWindows, Store, StreamsBuilder, Suppressed, TimeWindows, Topology, serdes
from topology.graph.nodes import Subtopology

TEXT: Any = {"key": serdes.string, "value": serdes.string}
COUNTS = (2, 3)
keyed = st.builds(
    lambda row, key: replace(row, key=row.key and key), piped(), st.sampled_from(("a", "b", "c", "dd", "e", "f", "g"))
)
records = st.lists(keyed, max_size=50)


def parts_of(subtopology: Subtopology, rows: Sequence[Piped]) -> dict[str, list[Piped]]:
    """The records by topic, also if the program has other names for its topics."""
    topics = sorted(subtopology.source_topics)
    named = dict(zip(("in", "t"), (*topics, topics[0])[:2], strict=True))
    return {topic: [row for row in rows if named[row.topic] == topic] for topic in topics}


def written_by(writer: Subtopology, rows: Sequence[Piped], config: Any) -> dict[str, list[RecordColumns]]:
    return whole(writer, parts_of(writer, rows), config).written


def assert_slices_are_the_whole(
    subtopology: Subtopology, parts: Records, config: Any, shared: GlobalState | None = None
) -> Computed:
    expected = whole(subtopology, parts, config, shared)
    for count in COUNTS:
        found = sliced(subtopology, parts, config, count, shared=shared)
        assert replace(found, parts=0) == replace(expected, parts=0)
    return expected


@given(programs, records, st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_slices_of_random_programs_are_the_whole(program: Any, rows: list[Piped], cached: bool, generate: bool) -> None:
    steps, end, table_steps = program
    (subtopology,) = build(steps, end, table_steps, cached).subtopologies
    config = config_of(cached=cached, generate=generate)
    assume(prevents(subtopology, config) is None)
    assert_slices_are_the_whole(subtopology, parts_of(subtopology, rows), config)


def told(program: str, tell: Callable[[object, object], None]) -> Topology:
    builder = StreamsBuilder()
    result = PROGRAMS[program](builder)
    if isinstance(result, KTable):
        result = result.to_stream()
    if result is not None:
        result.foreach(tell)
    return builder.build({"topology.optimization": "single.store.self.join"})


ABLE = [
    (program, index)
    for program in PROGRAMS
    for index, part in enumerate(told(program, print).subtopologies)
    if prevents(part, config_of(cached=False)) is None and not part.is_global
]


@pytest.mark.parametrize(("program", "index"), ABLE)
@given(rows=records, generate=st.booleans())
@settings(max_examples=8, deadline=None)
def test_slices_of_every_operation_that_allows_them_are_the_whole(
    program: str, index: int, rows: list[Piped], generate: bool
) -> None:
    seen: list[tuple[str, str]] = []
    topology = told(program, lambda key, value: seen.append((repr(key), repr(value))))
    subtopologies = topology.subtopologies
    part, config = subtopologies[index], config_of(cached=False, generate=generate)
    # What stands in a repartition topic of changes only its writer makes.
    parts: Records = parts_of(part, rows) if part.source_topics else written_by(subtopologies[0], rows, config)
    of_key: list[dict[str, list[str]]] = []
    # Records of the other topic are those of the global table, in programs that have one.
    tables = [replace(row, topic="right") for row in rows if row.topic == "t" and row.key is not None]
    shared = filled(topology, tables, config)
    for compute in (
        lambda: whole(part, parts, config, shared),
        lambda: sliced(part, parts, config, 2, shared=shared),
    ):
        seen.clear()
        compute()
        of_key.append({key: [text for other, text in seen if other == key] for key, _ in seen})
    assert of_key[0] == of_key[1]
    assert_slices_are_the_whole(part, parts, config, shared)


# ------------------------------------------------------------------------------------------------------------- by hand

DAY_MS = 24 * 60 * 60 * 1000


def row(key: str | None, at: int, value: str | None = "x", topic: str = "in") -> Piped:
    return Piped(topic, key, value, at, ())


def both(
    program: Callable[[StreamsBuilder], KTable[Any, Any]],
    *rows: Piped,
    cached: bool = False,
    tables: Sequence[Piped] = (),
) -> Computed:
    """What the program has computed, the same in slices. The keys ``a`` and ``dd`` are in two slices, if there are two."""
    assert [Slice("t", 0, 2).has([key]).tolist() for key in (b"a", b"dd")] == [[False], [True]]
    builder = StreamsBuilder()
    table = program(builder)
    table.to_stream().foreach(lambda key, value: None)
    topology, config = builder.build(), config_of(cached=cached)
    (part,) = topology.subtopologies
    assert prevents(part, config) is None
    return assert_slices_are_the_whole(part, parts_of(part, rows), config, filled(topology, tables, config))


def stream(builder: StreamsBuilder) -> Any:
    return builder.stream("in", **TEXT)


def windows(builder: StreamsBuilder, before: Any = None) -> KTable[Any, Any]:
    source = before or stream(builder)
    return typing.cast(
        "KTable[Any, Any]", source.group_by_key().windowed_by(TimeWindows(10, grace=5)).count(store="rows")
    )


def sessions(builder: StreamsBuilder) -> KTable[Any, Any]:
    windowed = stream(builder).group_by_key().windowed_by(SessionWindows(6, grace=0))
    return typing.cast("KTable[Any, Any]", windowed.count(store="rows"))


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("program", [windows, sessions])
def test_a_record_is_late_by_the_records_of_other_keys(
    program: Callable[[StreamsBuilder], KTable[Any, Any]], cached: bool
) -> None:
    found = both(program, row("a", 3), row("dd", 40), row("a", 4), row("a", 41), cached=cached)
    assert found.counters["dropped_late"] == 1


def test_only_records_that_come_to_the_operation_move_its_time_on() -> None:
    def program(builder: StreamsBuilder) -> KTable[Any, Any]:
        return windows(builder, stream(builder).filter(lambda key, value: value != "test"))

    assert both(program, row("a", 3), row("dd", 40, "test"), row("a", 4)).counters["dropped_late"] == 0
    assert both(program, row("a", 3), row("dd", 40), row("a", 4)).counters["dropped_late"] == 1
    rows = [row("a", 3), row("dd", 90, "test"), row("dd", 40), row("dd", 80, "test"), row("a", 30), row("a", 4)]
    assert both(program, *rows).counters["dropped_late"] == 1


def test_a_left_join_with_a_global_table_moves_time_on_by_what_it_lets_through() -> None:
    """Whatever the table has: not records without a value, and not those of which no key of the table is known."""

    def program(builder: StreamsBuilder) -> KTable[Any, Any]:
        names = builder.global_table("names", store="names", **TEXT)
        joined = stream(builder).left_join(names, "{}{}".format, on=lambda key, value: None if value == "?" else value)
        return windows(builder, joined)

    late, named = (row("a", 3), row("a", 4)), [row("x", 1, "Xaver", "names")]
    for value, dropped in (("x", 1), ("unknown", 1), ("?", 0), (None, 0)):
        found = both(program, late[0], row("dd", 40, value), late[1], tables=named)
        assert found.counters["dropped_late"] == dropped


def test_a_record_without_a_key_moves_no_time_on() -> None:
    assert both(windows, row("a", 3), row(None, 40), row("a", 4)).counters["dropped_late"] == 0


@pytest.mark.parametrize("program", [windows, sessions])
def test_rows_expire_by_the_records_of_other_keys(program: Callable[[StreamsBuilder], KTable[Any, Any]]) -> None:
    found = both(program, row("a", 3), row("dd", 10 * DAY_MS))
    assert len(found.rows["rows"]) == 2, "its row, and the stream time"
    assert len(found.changelogs["app-rows-changelog"]) == 1


def test_a_suppressed_window_closes_by_the_records_of_other_keys() -> None:
    def program(builder: StreamsBuilder) -> KTable[Any, Any]:
        table = windows(builder).suppress(Suppressed.until_window_closes(), name="sup")
        return table.map_values(lambda count: count + 1, store=Store("final", value=serdes.long))

    found = both(program, row("a", 3), row("a", 4), row("dd", 40))
    assert len(found.rows["final"]) == 1
    assert len(found.rows["sup-store"]) == 1, "that of the other key is still held back"


def test_a_suppressed_session_that_others_close_is_not_continued() -> None:
    """By a record of the very time at which it closes."""

    def program(builder: StreamsBuilder) -> KTable[Any, Any]:
        table = sessions(builder).suppress(Suppressed.until_window_closes(), name="sup")
        key = serdes.session_windowed(serdes.string)
        return table.map_values(lambda count: count, store=Store("final", key=key, value=serdes.long))

    found = both(program, row("a", 0), row("dd", 6), row("a", 6), row("dd", 30))
    assert len(found.rows["final"]) == 3


def test_a_join_of_tables_is_computed_by_key() -> None:
    def program(builder: StreamsBuilder) -> KTable[Any, Any]:
        tables = [builder.table(topic, store=topic, **TEXT) for topic in ("in", "t")]
        return tables[0].outer_join(tables[1], lambda one, other: f"{one}+{other}", store="joined", **TEXT)

    rows = [
        row("a", 1),
        row("dd", 2),
        row("a", 3, "y", "t"),
        row("dd", 4, None),
        row("a", 5, None),
        row("a", 6, None, "t"),
    ]
    assert both(program, *rows).rows["joined"] == []
    assert len(both(program, *rows[:4]).rows["joined"]) == 1


@pytest.mark.parametrize("generate", [True, False])
def test_one_key_in_different_bytes_has_one_slice(generate: bool) -> None:
    """Its table row is found there, whichever they are."""
    builder = StreamsBuilder()
    keyed_by: Any = {"key": serdes.json, "value": serdes.string}
    table = builder.table("t", store=Store("t", **keyed_by), **keyed_by)
    joined = builder.stream("in", **keyed_by).join(table, lambda one, other: f"{one}+{other}")
    joined.to("out", key=serdes.json, value=serdes.string)
    (part,) = builder.build().subtopologies
    rows = [row(f'{{"id": {number}}}', 1, topic="t") for number in range(9)]
    rows += [row(f'{{"id":{number}}}', 2) for number in range(9)]
    config = config_of(cached=False, generate=generate)
    assert prevents(part, config) is None
    found = assert_slices_are_the_whole(part, parts_of(part, rows), config)
    assert len(found.outputs) == 9


def parts_in(program: Callable[[StreamsBuilder], object], rows: Sequence[Piped]) -> int:
    builder = StreamsBuilder()
    program(builder)
    (part,) = builder.build().subtopologies
    return sliced(part, {"in": rows}, config_of(cached=False), 2).parts


@pytest.mark.parametrize(("behind_ms", "is_cut"), [(0, False), (5, False), (6, True)])
def test_history_is_cut_only_at_records_that_may_be_late(behind_ms: int, is_cut: bool) -> None:
    """By the records of other keys; the grace is 5 ms."""
    rows = [row("a", 100 + at - behind_ms) if at % 2 else row("dd", 101 + at) for at in range(200)]
    batches = 29
    assert (parts_in(windows, rows) > 2 * batches) is is_cut


def test_caches_that_are_full_before_the_end_change_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is forwarded meanwhile depends on when they are, and only the last result of a key is the same."""
    monkeypatch.setattr("streamsrt.backfill.replay.CACHE_MAX_BYTES", 2_000)
    builder = StreamsBuilder()
    windows(builder).to_stream().to("out", key=serdes.time_windowed(serdes.string, 10), value=serdes.long)
    (part,) = builder.build().subtopologies
    rows = {"in": [row(f"k{index * 7 % 60}", 30 + index - index % 3 * 9) for index in range(400)]}
    config = config_of(cached=True)
    expected, found = whole(part, rows, config), sliced(part, rows, config, 3)
    assert expected.counters["dropped_late"] > 0
    last = [{place: results[-1] for place, results in each.outputs.items()} for each in (expected, found)]
    assert last[0] == last[1]
    assert replace(found, parts=0, outputs={}) == replace(expected, parts=0, outputs={})


def test_a_record_without_a_key_for_one_of_several_partitions_is_refused() -> None:
    (part,) = build([], "sink", [], False).subtopologies
    with pytest.raises(PlanError, match=r"without a key goes to topic 'rest'.*plan without --slices"):
        sliced(part, {"in": [row(None, 1)]}, config_of(cached=False), 2, partitions=3)
    assert sliced(part, {"in": [row("a", 1)]}, config_of(cached=False), 2, partitions=3).outputs
