"""A replay that goes on from an earlier one does what one replay does that commits in between, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.backfill.order import Inputs, Overtaken
from streamsrt.backfill.replay import OfflineSettings, TaskReplay
from streamsrt.backfill.task_state import TaskStores
from streamsrt.state.snapshots import Values
from streamsrt.state.store import BytesStore
from streamsrt.tasks.global_state import GlobalState
from streamsrt.wire.records import RecordColumns, iter_columns
from tests.streamsrt.backfill.frozen import filled
from tests.streamsrt.backfill.test_operators import REFUSED, SEVERAL_TASKS, program
from tests.streamsrt.backfill.test_replay import BEYOND, _sources, config, per_topic
from tests.streamsrt.operators.programs import APPLICATION, Piped, build, columns_of, inputs, programs
from tests.streamsrt.operators.test_every_operator import PROGRAMS, Row, rows
from topology import (
    Buffer,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Store,
    StreamsBuilder,
    Suppressed,
    Topology,
    serdes,
)

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
Parts = dict[str, list[Piped]]


@dataclass(frozen=True)
class InMemory:
    """What a replay has left that is at its end."""

    replay: TaskReplay
    snapshot: Mapping[str, Values]

    def fill(self, store: BytesStore) -> None:
        store.write(list(self.replay.rows[store.name].range()))

    def logged(self, store: str) -> Iterator[RecordColumns]:
        (topic,) = (topic for topic, name in self.replay._logged.items() if name == store)
        entries = list(self.replay.changelogs()[topic])
        keys, values, times, headers = (
            ([], [], [], []) if not entries else zip(*((k, *v) for k, v in entries), strict=True)
        )
        yield RecordColumns(list(keys), list(values), list(times), 0, len(keys), None, list(headers))


class Written:
    """The record batches of a replay, read."""

    def __init__(self) -> None:
        self.topics: dict[tuple[str, int], list[Any]] = {}

    def __call__(self, topic: str, partition: int, batch: bytes, records: int) -> None:
        for columns in iter_columns(batch):
            headers = columns.headers or [()] * len(columns)
            found = zip(columns.keys, columns.values, columns.timestamps, headers, strict=True)
            self.topics.setdefault((topic, partition), []).extend(found)


def replay_of(
    topology: Topology,
    written: Written,
    cached: bool,
    earlier: InMemory | None = None,
    shared: GlobalState | None = None,
) -> TaskReplay:
    (subtopology,) = topology.subtopologies
    offline = OfflineSettings(
        application_id=APPLICATION, task_config=config(cached), partitions_of_topic=lambda topic: 1, now_ms=5
    )
    return TaskReplay(subtopology, 0, offline, written, TaskStores(), earlier, shared)


def batches(parts: Parts, replay: TaskReplay, starts: Parts | None = None) -> Inputs:
    def cut(found: list[Piped], offset: int) -> Iterator[RecordColumns]:
        for start in range(0, len(found), 3):
            yield columns_of(found[start : start + 3], offset + start)

    return {tp: cut(parts[tp[0]], len((starts or {}).get(tp[0], ()))) for tp in replay.task.source_partitions}


def outcome(replay: TaskReplay, written: Written) -> dict[str, Any]:
    return {
        "rows": {name: list(store.range()) for name, store in replay.rows.items()},
        "changelogs": {topic: list(entries) for topic, entries in replay.changelogs().items()},
        "written": written.topics,
        # When it was asked last what is closed is no difference: the same is open.
        "carried": {name: each[:1] if name.startswith("time of ") else each for name, each in replay.snapshot.items()},
    }


def in_one(topology: Topology, first: Parts, second: Parts, cached: bool, shared: GlobalState | None) -> dict[str, Any]:
    written = Written()
    replay = replay_of(topology, written, cached, None, shared)
    replay.merge(batches(first, replay))
    replay._commit()
    replay.merge(batches(second, replay, first))
    replay.finish()
    return outcome(replay, written)


def in_two(topology: Topology, first: Parts, second: Parts, cached: bool, shared: GlobalState | None) -> dict[str, Any]:
    written = Written()
    earlier = replay_of(topology, written, cached, None, shared)
    earlier.merge(batches(first, earlier))
    earlier.finish()
    snapshot = json.loads(json.dumps(earlier.snapshot))
    replay = replay_of(topology, written, cached, InMemory(earlier, snapshot), shared)
    replay.merge(batches(second, replay, first))
    replay.finish()
    return outcome(replay, written)


def assert_the_same(topology: Topology, piped: list[Piped], cut: int, cached: bool) -> None:
    """``piped``: records of the inputs, and of global tables, which have all of theirs from the beginning."""
    topics = _sources(topology)
    shared = filled(topology, piped, config(cached))
    piped = [row for row in piped if row.topic in topics]
    first, second = per_topic(piped[:cut], topics), per_topic(piped[cut:], topics)
    one, two = (way(topology, first, second, cached, shared) for way in (in_one, in_two))
    for name in one:
        assert two[name] == one[name], name


@given(programs, inputs, inputs, st.booleans())
@settings(max_examples=60, deadline=None)
def test_random_programs(made: Any, before: list[Piped], after: list[Piped], cached: bool) -> None:
    assert_the_same(build(*made, cached), [*before, *after], len(before), cached)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - REFUSED - SEVERAL_TASKS))
@settings(max_examples=8, deadline=None)
@given(piped=rows, cut=st.integers(1, 12), cached=st.booleans())
def test_every_operation(name: str, piped: list[Row], cut: int, cached: bool) -> None:
    topology = program(name)
    assert_the_same(topology, [Piped(topic, key, value, at, ()) for topic, key, value, at in piped], cut, cached)


@pytest.mark.parametrize("name", BEYOND)
@settings(max_examples=8, deadline=None)
@given(piped=rows, cut=st.integers(1, 12), cached=st.booleans())
def test_operators_of_our_own(name: str, piped: list[Row], cut: int, cached: bool) -> None:
    topology = BEYOND[name]()
    topics = _sources(topology)
    named = dict(zip(("left", "right"), (*topics, topics[0])[:2], strict=True))
    found = [Piped(named[topic], key, value, at, ()) for topic, key, value, at in piped]
    assert_the_same(topology, found, cut, cached)


# --------------------------------------------------------------------------------------------- what only memory knows


class Ticking(Processor[str, str, str, str]):
    """Forwards at each punctuation what it has read last; two of them are due together again and again."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.last = context.get_state_store("last")
        for interval in (6, 10):
            context.schedule(interval, PunctuationType.STREAM_TIME, lambda now, each=interval: self.tick(now, each))
        context.schedule(4, PunctuationType.STREAM_TIME, self.end_itself, start_time=9)
        self.cancelled = context.schedule(5, PunctuationType.STREAM_TIME, lambda now: self.tick(now, 5))

    def end_itself(self, now_ms: int) -> None:
        self.tick(now_ms, 4)
        self.cancelled.cancel()

    def tick(self, now_ms: int, interval: int) -> None:
        self.context.forward(Record("tick", f"{interval} {self.last.get('last')}", now_ms, ()))

    def process(self, record: Record[str, str]) -> None:
        self.last.put("last", f"{record.key}{record.value}")


def ticking() -> Topology:
    builder = StreamsBuilder()
    builder.stream("left", **TEXT).process(Ticking, stores=[Store("last", **TEXT)]).to("out", **TEXT)
    return builder.build()


class Recent(Processor[str, str, str, str]):
    """Reads and writes a store that forgets what was not used for longest."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.recent = context.get_state_store("recent")

    def process(self, record: Record[str, str]) -> None:
        before = self.recent.get(record.key)
        self.context.forward(record.with_value(f"{before}"))
        if record.value is not None:
            self.recent.put(record.key, record.value)


def recent() -> Topology:
    builder = StreamsBuilder()
    store = Store("recent", **TEXT, max_entries=2)
    builder.stream("left", **TEXT).process(Recent, stores=[store]).to("out", **TEXT)
    return builder.build()


def held_by_size() -> Topology:
    builder = StreamsBuilder()
    table = builder.stream("left", **TEXT).group_by_key().reduce(lambda _, new: new, store="rows")
    held = table.suppress(Suppressed.until_time_limit(40, Buffer(max_bytes=130)))
    held.to_stream().to("out", **TEXT)
    return builder.build()


@pytest.mark.parametrize("make", [ticking, recent, held_by_size])
@settings(max_examples=25, deadline=None)
@given(piped=rows, cut=st.integers(1, 12), cached=st.booleans())
def test_what_only_memory_knows_goes_on(make: Any, piped: list[Row], cut: int, cached: bool) -> None:
    found = [Piped("left", key, value or "", at, ()) for _, key, value, at in piped]
    assert_the_same(make(), found, cut, cached)


def test_what_only_memory_knows_goes_on_without_another_record() -> None:
    found = [Piped("left", "a", "", at, ()) for at in (0, 0, 40, 0, 0)]
    assert_the_same(held_by_size(), found, len(found), cached=False)


def test_records_that_come_too_late_to_be_in_order_are_counted() -> None:
    past = Overtaken({("a", 0): 100, ("b", 0): 50})
    past.add(("b", 0), [70, 99, 100, 60])
    assert past.records == 2
    past.add(("b", 0), [101, 3])
    past.add(("a", 0), [20, 30])
    assert past.records == 2
    alone = Overtaken({("a", 0): 100})
    alone.add(("a", 0), [1, 2])
    assert alone.records == 0
