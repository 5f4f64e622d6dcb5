"""Offline up to some offset, then live from there: the same as live all the way."""

from __future__ import annotations

import contextlib
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamsrt.backfill.order import Inputs, merge
from streamsrt.backfill.replay import OfflineSettings, TaskReplay
from streamsrt.backfill.task_state import ChangelogRows, LastValue, TaskStores
from streamsrt.errors import ProcessingError
from streamsrt.state.kinds import lay_out
from streamsrt.state.memory import MemoryStore
from streamsrt.tasks.global_state import GlobalState
from streamsrt.tasks.input.offset_metadata import done_metadata
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import RecordColumns, iter_columns
from tests.streamsrt.operators import test_late_records
from tests.streamsrt.operators.engine import test_expiry
from tests.streamsrt.operators.kinds import test_asof_joins, test_idle
from tests.streamsrt.operators.programs import (
    APPLICATION,
    STREAM_JOINS,
    GlobalRows,
    Piped,
    Written,
    build,
    columns_of,
    commit,
    inputs,
    piped,
    programs,
)
from topology import Store, StreamsBuilder, TimeWindows, Topology, serdes
from topology.graph.nodes import Subtopology
from topology.graph.store_kinds import Limit, store_traits

Output = tuple[bytes | None, bytes | None, int, Any]


@dataclass
class Outcome:
    """What is there at the end. ``outputs``: every record by topic; ``rows``: the bytes of the stores."""

    outputs: dict[str, list[Output]]
    rows: dict[str, list[tuple[bytes, bytes]]]

    def compacted(self) -> dict[str, dict[bytes | None, Output]]:
        found: dict[str, dict[bytes | None, Output]] = {}
        for topic, records in self.outputs.items():
            latest = {record[0]: record for record in records if record[0] is not None}
            # A deletion of what never was there to see is no difference.
            found[topic] = {key: record for key, record in latest.items() if record[1] is not None}
        return {topic: latest for topic, latest in found.items() if latest}


def config(cached: bool) -> TaskConfig:
    return TaskConfig(
        default_key_serde=serdes.string, default_value_serde=serdes.string, cache_max_bytes=(10 << 20) * cached
    )


def live_task(
    topology: Topology, rows: dict[str, Any], written: Written, cached: bool, shared: GlobalState | None = None
) -> Task:
    (subtopology,) = topology.subtopologies
    stores: dict[str, Any] = {}
    for spec in subtopology.stores:
        store = rows.setdefault(spec.name, MemoryStore(spec.name))
        stores[spec.name] = lay_out(spec, store)
    return Task(
        subtopology,
        0,
        application_id=APPLICATION,
        stores=stores,
        collector=written,
        config=config(cached),
        partitions_of_topic=lambda topic: 1,
        global_stores=shared or GlobalRows(),
    )


def per_topic(piped: Sequence[Piped], topics: Sequence[str]) -> dict[str, list[Piped]]:
    return {topic: [row for row in piped if row.topic == topic] for topic in topics}


def run_live(task: Task, parts: dict[str, list[Piped]], starts: dict[str, int]) -> None:
    for topic, rows in parts.items():
        if rows:
            task.add_batch(topic, 0, columns_of(rows, starts[topic]))
    while task.process(3, 0):
        continue
    commit(task)


def all_live(
    topology: Topology,
    before: dict[str, list[Piped]],
    after: dict[str, list[Piped]],
    cached: bool,
    shared: GlobalState | None = None,
) -> Outcome:
    rows: dict[str, MemoryStore] = {}
    written = Written()
    task = live_task(topology, rows, written, cached, shared)
    run_live(task, before, dict.fromkeys(before, 0))
    run_live(task, after, {topic: len(each) for topic, each in before.items()})
    return Outcome(written.topics, {name: list(store.range()) for name, store in rows.items()})


def offline_then_live(
    topology: Topology,
    before: dict[str, list[Piped]],
    after: dict[str, list[Piped]],
    cached: bool,
    ordered: bool = False,
    state: TaskStores | None = None,
    frozen: GlobalState | None = None,
    shared: GlobalState | None = None,
) -> Outcome:
    """``frozen``, ``shared``: the global tables, offline and live."""
    outputs: dict[str, list[Output]] = {}

    def sink(topic: str, partition: int, batch: bytes, records: int) -> None:
        for columns in iter_columns(batch):
            headers = columns.headers or [()] * len(columns)
            outputs.setdefault(topic, []).extend(
                zip(columns.keys, columns.values, columns.timestamps, headers, strict=True)
            )

    settings_ = OfflineSettings(
        application_id=APPLICATION, task_config=config(cached), partitions_of_topic=lambda topic: 1
    )
    (subtopology,) = topology.subtopologies
    replay = TaskReplay(subtopology, 0, settings_, sink, state, global_stores=frozen or GlobalRows())
    if ordered:
        replay.ordered(merge(batches_of(before, replay)))
    else:
        replay.merge(batches_of(before, replay))
    replay.finish()
    check_restored(replay, subtopology)
    for topic, found in replay.changelogs().items():
        entries = list(found)
        versioned = any(spec.kind == "versioned" and spec.changelog_name in topic for spec in subtopology.stores)
        by_use = any(spec.max_entries and spec.changelog_name in topic for spec in subtopology.stores)
        assert versioned or by_use or [key for key, _ in entries] == sorted({key for key, _ in entries})
        outputs[topic] = [(key, *last) for key, last in entries]
    written = Written()
    task = live_task(topology, replay.rows, written, cached, shared)
    for spec in subtopology.stores:
        if store_traits(spec).limit is Limit.COUNT:
            # Such a store is in memory only: whoever takes over restores it.
            entries = outputs[f"{APPLICATION}-{spec.changelog_name}"]
            keys, values, timestamps, headers = ([entry[field] for entry in entries] for field in range(4))
            columns = RecordColumns(keys, values, timestamps, 0, len(entries), None, headers)
            task.restore(spec.name, columns)
    for tp, time in replay.task.partition_times().items():
        task.restore_partition_time(*tp, done_metadata("id", time, replay.task.operator_times()))
    run_live(task, after, {topic: len(each) for topic, each in before.items()})
    for topic, records in written.topics.items():
        outputs.setdefault(topic, []).extend(records)
    return Outcome(outputs, {name: list(store.range()) for name, store in replay.rows.items()})


def batches_of(parts: dict[str, list[Piped]], replay: TaskReplay) -> Inputs:
    def cut(rows: list[Piped]) -> Iterator[RecordColumns]:
        for start in range(0, len(rows), 3):
            yield columns_of(rows[start : start + 3], start)

    return {tp: cut(parts[tp[0]]) for tp in replay.task.source_partitions}


def _stored(last: LastValue, *, timestamped: bool) -> bytes:
    """The row of a changelog's record."""
    return (last[1].to_bytes(8, "big", signed=True) if timestamped else b"") + (last[0] or b"")


def check_restored(replay: TaskReplay, subtopology: Subtopology) -> None:
    """A store that is restored from what is live of its changelog is the one that the replay has."""
    replay._full_changelogs = False
    live = replay.changelogs()
    for spec in subtopology.stores:
        found = live.get(f"{APPLICATION}-{spec.changelog_name}")
        if found is None:
            continue
        below = MemoryStore(spec.name)
        store: Any = lay_out(spec, below)
        entries = list(found)
        if spec.kind == "versioned":
            store.write([(key, at, value) for key, (value, at, _) in entries], changelog_offset=1)
        else:
            stored = [_stored(last, timestamped=spec.timestamped) for _, last in entries]
            store.restore([key for key, _ in entries], stored, 1)
        if spec.retain_duplicates:
            # What was beyond retention before it was to be written is in the changelog only, and nobody sees it.
            kept: Any = replay._stores[spec.name]
            assert list(store.all_rows()) == list(kept.all_rows())
            continue
        rows = dict(replay.rows[spec.name].range())
        # Under the empty key are marks of time and numbers, which may come of rows that are gone again.
        assert {key: value for key, value in below.range() if key} == {key: value for key, value in rows.items() if key}
        assert spec.kind == "versioned" or getattr(store, "dropped_rows", 0) == 0
    replay._full_changelogs = True


def _sources(topology: Topology) -> list[str]:
    (subtopology,) = topology.subtopologies
    return sorted(subtopology.source_topics)


def test_a_store_of_the_entries_used_last_drops_after_the_hand_over_what_a_live_one_drops() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.group_by_key().count(store=Store("last", max_entries=2)).to_stream().to("out", value=serdes.long)
    topology = builder.build()
    found = {"in": [Piped("in", key, "x", at, ()) for at, key in enumerate("ba")]}
    later = {"in": [Piped("in", key, "x", at, ()) for at, key in enumerate("cab", 2)]}
    live = all_live(topology, found, later, False)
    assert offline_then_live(topology, found, later, False).rows == live.rows
    assert live.outputs["out"][-2:] == [(b"a", bytes([0] * 7 + [2]), 3, ()), (b"b", bytes([0] * 7 + [1]), 4, ())]


@given(programs, inputs, inputs, st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_offline_then_live_is_live_all_the_way(
    program: Any, before: list[Piped], after: list[Piped], cached: bool, ordered: bool
) -> None:
    steps, end, table_steps = program
    # After a restart unmatched records are shown as soon as they are over, which may be earlier than without it.
    assume(end not in ("stream_left_join", "stream_outer_join"))
    if end in STREAM_JOINS or end == "self_join":
        # A record without a value takes a sequence number, of which only its place in a full changelog tells.
        before, after = ([row for row in rows if row.value is not None] for rows in (before, after))
    topology = build(steps, end, table_steps, cached)
    topics = _sources(topology)
    first, second = per_topic(before, topics), per_topic(after, topics)
    live = all_live(topology, first, second, cached)
    mixed = offline_then_live(topology, first, second, cached, ordered)
    assert mixed.rows == live.rows
    assert mixed.compacted() == live.compacted()
    if not cached:
        written = {topic for topic in live.outputs if not topic.endswith("-changelog")}
        assert {topic: mixed.outputs[topic] for topic in written} == {topic: live.outputs[topic] for topic in written}


@given(programs, inputs, inputs, st.booleans())
@settings(max_examples=12, deadline=None)
def test_stores_on_disk_make_no_difference(program: Any, before: list[Piped], after: list[Piped], cached: bool) -> None:
    steps, end, table_steps = program
    topology = build(steps, end, table_steps, cached)
    topics = _sources(topology)
    first, second = per_topic(before, topics), per_topic(after, topics)
    in_memory = offline_then_live(topology, first, second, cached)
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.closing(TaskStores(Path(folder) / "state")) as state:
            assert offline_then_live(topology, first, second, cached, state=state) == in_memory
        assert not list(Path(folder).iterdir())


def test_of_a_changelog_the_last_value_of_each_key_is_kept(tmp_path: Path) -> None:
    """With its time and its headers, whatever the bytes look like, in memory and on disk."""
    for state in (TaskStores(), TaskStores(tmp_path / "state")):
        rows = ChangelogRows(state.open("t"))
        rows.add([b"b", b"a", None, b"c"], [b"1", b"2", b"3", b"4"], [1, 2, 3, 4])
        rows.add([b"a", b"c", b""], [b"", None, b"\0" * 20], [-1, 6, 2**62], [(("h", b"1"), ("", None)), (), ()])
        assert list(rows.entries()) == [
            (b"", (b"\0" * 20, 2**62, ())),
            (b"a", (b"", -1, (("h", b"1"), ("", None)))),
            (b"b", (b"1", 1, ())),
        ]
        state.close()


def windowed() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=serdes.string, value=serdes.string)
        .group_by_key(key=serdes.string, value=serdes.string)
        .windowed_by(TimeWindows(10, grace=5))
        .count(store="counts")
        .to_stream()
        .to("out", key=serdes.time_windowed(serdes.string, 10), value=serdes.long)
    )
    return builder.build()


def test_the_first_live_records_are_judged_by_the_stream_time_of_history() -> None:
    before = {"in": [Piped("in", "a", "x", 100, ())]}
    after = {"in": [Piped("in", "a", "x", 50, ())]}
    live = all_live(windowed(), before, after, cached=True)
    assert offline_then_live(windowed(), before, after, cached=True) == live
    assert len(live.outputs["out"]) == 1


def test_a_partition_that_is_behind_is_waited_for() -> None:
    """Reading partition after partition would make every record of the second one late."""
    times = [Piped("in", "a", "x", time, ()) for time in range(0, 400, 7)]
    other = [Piped("t", "a", "y", time, ()) for time in range(3, 400, 7)]
    builder = StreamsBuilder()
    (
        builder.stream(["in", "t"], key=serdes.string, value=serdes.string)
        .group_by_key(key=serdes.string, value=serdes.string)
        .windowed_by(TimeWindows(10, grace=5))
        .count(store="counts")
    )
    (subtopology,) = builder.build().subtopologies
    settings_ = OfflineSettings(
        application_id=APPLICATION, task_config=config(True), partitions_of_topic=lambda topic: 1
    )
    replay = TaskReplay(subtopology, 0, settings_, lambda *_: None)
    replay.merge(batches_of({"in": times, "t": other}, replay))
    replay.finish()
    assert replay.task.counters()["dropped_late"] == 0
    assert replay.task.stream_time_ms == max(row.timestamp for row in (*times, *other))


def test_full_caches_are_committed_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsrt.backfill.replay.CACHE_MAX_BYTES", 2000)
    rows = [Piped("in", f"k{index}", "x", index, ()) for index in range(200)]
    topology = build([], "count", [], True)
    parts = {"in": rows}
    assert offline_then_live(topology, parts, {"in": []}, True).rows == all_live(topology, parts, {"in": []}, True).rows


def test_caches_of_objects_stay_small(tmp_path: Path) -> None:
    """Rows of many keys, whose values are dictionaries."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    first: dict[str, int] = {}
    grouped.aggregate(
        lambda: first, lambda k, v, a: {f"{k}-{n}": n + len(v) for n in range(4)}, store="rows", value=serdes.json
    )
    topology = builder.build()
    records = 40_000
    columns = (
        RecordColumns([b"k%d" % n for n in range(at, at + 1_000)], [b"x"] * 1_000, [1] * 1_000, at, at + 1_000)
        for at in range(0, records, 1_000)
    )
    (subtopology,) = topology.subtopologies
    settings_ = OfflineSettings(
        application_id=APPLICATION, task_config=config(True), partitions_of_topic=lambda topic: 1
    )
    with contextlib.closing(TaskStores(tmp_path / "state")) as state:
        replay = TaskReplay(subtopology, 0, settings_, lambda *_: None, state)
        tracemalloc.start()
        try:
            replay.merge({("in", 0): columns})
            replay.finish()
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert sum(1 for _ in replay.rows["rows"].range()) == records
    assert peak_bytes < 100 << 20


def test_a_record_that_fails_is_named() -> None:
    def fail(value: str) -> str:
        raise ValueError("no")

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).map_values(fail).to("out")
    topology = builder.build().with_default_serdes()
    check: Callable[[], Any] = lambda: offline_then_live(  # noqa: E731
        topology, {"in": [Piped("in", "a", "x", 1, ())]}, {"in": []}, True
    )
    with pytest.raises(ProcessingError, match="in-0") as caught:
        check()
    assert caught.value.offset == 0


BEYOND: dict[str, Callable[[], Topology]] = {
    "as-of": lambda: test_asof_joins.program("left", 0),
    "as-of with grace": lambda: test_asof_joins.program("inner", 7),
    "late records": test_late_records.PROGRAMS["hopping"],
    "closed by the wall clock": test_idle.PROGRAMS["tumbling"],
    "rows that expire": test_expiry.source_table,
    "rows that expire and are joined": test_expiry.PROGRAMS["join"],
}


@pytest.mark.parametrize("program", BEYOND)
@given(before=st.lists(piped(("in", "t")), max_size=25), after=st.lists(piped(("in", "t")), max_size=25))
@settings(max_examples=25, deadline=None)
def test_operators_of_our_own_go_on_live_where_the_backfill_ended(
    program: str, before: list[Piped], after: list[Piped]
) -> None:
    topology = BEYOND[program]()
    topics = _sources(topology)
    named = dict(zip(("in", "t"), (*topics, topics[0])[:2], strict=True))
    first, second = (
        per_topic([replace(row, topic=named[row.topic]) for row in rows], topics) for rows in (before, after)
    )
    live, mixed = all_live(topology, first, second, False), offline_then_live(topology, first, second, False)
    assert mixed.rows == live.rows
    assert mixed.compacted() == live.compacted()
    written = {topic for topic in live.outputs if not topic.endswith("-changelog")}
    assert {topic: mixed.outputs[topic] for topic in written} == {topic: live.outputs[topic] for topic in written}
