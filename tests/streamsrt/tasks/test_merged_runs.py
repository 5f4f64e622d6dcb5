"""Records of several inputs whose times alternate: taken together, they give what they give one by one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.errors import ProcessingError
from streamsrt.operators.engine.environment import ErrorContext
from streamsrt.operators.engine.handlers import ExceptionHandlers, HandlerResponse, log_and_continue
from streamsrt.operators.runner import Runner
from streamsrt.tasks.task import Task
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.operators.programs import (
    KEYS,
    Piped,
    Written,
    build,
    columns_of,
    commit,
    final_rows,
    new_store,
    new_task,
    piped,
)
from topology import (
    JoinWindows,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Store,
    StreamsBuilder,
    TimeWindows,
    Topology,
    serdes,
)

TEXT = {"key": serdes.string, "value": serdes.string}
ALL_AT_ONCE, ONE_BY_ONE = 1000, 1


@dataclass(frozen=True)
class Commit:
    """A commit; ``restarts``: a new task goes on from what is committed, and ``aborts``: what came before it is lost."""

    restarts: bool = False
    aborts: bool = False


Step = list[Piped] | Commit
steps = st.lists(
    st.lists(piped(), min_size=1, max_size=30) | st.builds(Commit, st.booleans(), st.booleans()), min_size=1, max_size=6
)


def merged_streams() -> Topology:
    """Two streams, and a count by key and window of both together."""
    builder = StreamsBuilder()
    both = builder.stream("in", **TEXT).merge(builder.stream("t", **TEXT))
    counts = both.group_by_key(**TEXT).windowed_by(TimeWindows(10, grace=5)).count(store="counts")
    counts.to_stream(lambda window, _: window.key).to("out", key=serdes.string, value=serdes.long)
    both.map_values(lambda value: None if value is None else value + "!").to("rest", **TEXT)
    return builder.build()


def joined_with_itself_and_another() -> Topology:
    builder = StreamsBuilder()
    one, other = builder.stream("in", **TEXT), builder.stream("t", **TEXT)
    windows = JoinWindows(6, 9, grace=5)
    one.left_join(other, lambda a, b: f"{a}+{b}", windows).to("out", **TEXT)
    one.join(one, lambda a, b: f"{a}&{b}", windows).to("rest", **TEXT)
    other.outer_join(one, lambda a, b: f"{a}|{b}", windows).to("rest", **TEXT)
    return builder.build()


def of_several_topics() -> Topology:
    """A source of two topics beside a table: more partitions than sources, in another order."""
    builder = StreamsBuilder()
    table = builder.table("t", store="t", **TEXT)
    builder.stream(["z", "in"], **TEXT).left_join(table, lambda a, b: f"{a}+{b}").to("out", **TEXT)
    return builder.build()


def joined_as_of() -> Topology:
    """Nothing of it is generated."""
    builder = StreamsBuilder()
    one, other = builder.stream("in", **TEXT), builder.stream("t", **TEXT)
    one.join_asof(other, lambda a, b: f"{a}+{b}", 8, grace=4).to("out", **TEXT)
    return builder.build()


def joined_with_versions() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("t", store=Store("t", kind="versioned", retention=30, **TEXT))
    builder.stream("in", **TEXT).left_join(table, lambda a, b: f"{a}+{b}", grace=5).to("out", **TEXT)
    return builder.build()


def counted_for_a_while() -> Topology:
    """Rows expire between records."""
    builder = StreamsBuilder()
    both = builder.stream("in", **TEXT).merge(builder.stream("t", **TEXT))
    counts = both.group_by_key(**TEXT).count(store=Store("counts", key=serdes.string, value=serdes.long, ttl=9))
    counts.to_stream().to("out", key=serdes.string, value=serdes.long)
    return builder.build()


def joined_with_versions_at_once() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("t", store=Store("t", kind="versioned", retention=30, **TEXT))
    builder.stream("in", **TEXT).join(table, lambda a, b: f"{a}+{b}").to("out", **TEXT)
    return builder.build()


class Numbers:
    """Numbers the values of a key, and forgets the numbers every ten milliseconds."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.numbers = context.get_state_store("numbers")
        context.schedule(10, PunctuationType.STREAM_TIME, self.forget)

    def process(self, record: Record[str, str]) -> None:
        if record.key is not None:
            number = (self.numbers.get(record.key) or 0) + 1
            self.numbers.put(record.key, number)
            self.context.forward(record.with_value(f"{record.value} {number} {self.context.record_metadata}"))

    def forget(self, now_ms: int) -> None:
        for key, number in list(self.numbers.all()):
            self.numbers.delete(key)
            self.context.forward(Record(key, f"{number} until {now_ms}", now_ms))


def processed() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Store("numbers", key=serdes.string, value=serdes.long))
    both = builder.stream("in", **TEXT).merge(builder.stream("t", **TEXT))
    both.process(Numbers, stores=["numbers"]).to("out", **TEXT)
    return builder.build()


OWN = {
    each.__name__: each
    for each in (
        merged_streams,
        joined_with_itself_and_another,
        of_several_topics,
        joined_as_of,
        joined_with_versions,
        joined_with_versions_at_once,
        processed,
        counted_for_a_while,
    )
}
ENDS = (
    "join", "left_join", "table_join", "table_left_join", "table_outer_join",
    "stream_join", "stream_left_join", "stream_outer_join",
)  # fmt: skip


class Log:
    """A task that reads what is piped, and begins anew from what was committed."""

    def __init__(self, topology: Topology, limit: int, **config: Any) -> None:
        self.written, self.limit = Written(), limit
        self._topology, self._config = topology, config
        self._lengths: dict[str, int] = {}
        self._rows: dict[str, list[Piped]] = {}
        self._committed: dict[tuple[str, int], tuple[int, str]] = {}
        self._durable: dict[str, int] = {}
        self.task = new_task(topology, self.written, **config)

    def pipe(self, rows: Sequence[Piped]) -> None:
        """Makes a batch of each topic's rows, and processes what there is."""
        for topic, _ in self.task.source_partitions:
            self._rows.setdefault(topic, []).extend(row for row in rows if row.topic == topic)
            self._add(topic, self._lengths.get(topic, 0))
            self._lengths[topic] = len(self._rows[topic])
        while self.task.process(self.limit, 0):
            pass

    def _add(self, topic: str, start: int) -> None:
        rows = self._rows[topic][start:]
        if rows:
            self.task.add_batch(topic, 0, columns_of(rows, start))

    def commit(self, step: Commit) -> None:
        if not step.aborts:
            self._committed.update(self.task.prepare_commit().offsets)
            self.task.post_commit(None)
            self._durable = {topic: len(rows) for topic, rows in self.written.topics.items()}
        if step.restarts or step.aborts:
            self._restart()

    def _restart(self) -> None:
        """What was written since the last commit is not there, as in an aborted transaction."""
        for topic, rows in self.written.topics.items():
            del rows[self._durable.get(topic, 0) :]
        (subtopology,) = self._topology.subtopologies
        stores = {spec.name: new_store(spec) for spec in subtopology.stores}
        self.task = new_task(self._topology, self.written, stores, **self._config)
        for spec in subtopology.stores:
            target = self.task.restore_target(spec.name)
            if target is None:
                continue
            records = self.written.topics.get(target[0], [])
            if spec.source_topic is not None:
                rows = self._rows.get(target[0], [])[: self._committed.get(target, (0, ""))[0]]
                self.task.restore(spec.name, columns_of(rows, 0))
                continue
            keys, values, timestamps, headers = ([record[i] for record in records] for i in range(4))
            self.task.restore(spec.name, RecordColumns(keys, values, timestamps, 0, len(records), None, headers))
        for (topic, partition), (_, metadata) in self._committed.items():
            self.task.restore_partition_time(topic, partition, metadata)
        for topic in self._rows:
            self._add(topic, self._committed.get((topic, 0), (0, ""))[0])
        while self.task.process(self.limit, 0):
            pass

    def outcome(self) -> dict[str, Any]:
        commit(self.task)
        return {
            "written": self.written.topics,
            "stores": final_rows(self.task),
            "counters": self.task.counters(),
            "times": (self.task.partition_times(), self.task.operator_times(), self.task.stream_time_ms),
        }


def outcome(topology: Topology, limit: int, todo: Sequence[Step], **config: Any) -> dict[str, Any]:
    log = Log(topology, limit, **config)
    for step in todo:
        if isinstance(step, Commit):
            log.commit(step)
        else:
            log.pipe(step)
    return log.outcome()


@pytest.mark.parametrize("limit", [ONE_BY_ONE, ALL_AT_ONCE])
def test_a_record_that_can_not_be_read_holds_back_none_behind_it(limit: int) -> None:
    """Its time is that of nothing: a table's row would come after the records that it is for."""
    builder = StreamsBuilder()
    table = builder.table("t", key=serdes.string, value=serdes.long)
    builder.stream("in", **TEXT).join(table, lambda a, b: f"{a}{b}").to("out", **TEXT)
    written = Written()
    task = new_task(builder.build(), written, handlers=ExceptionHandlers(deserialization=log_and_continue))
    task.add_batch("in", 0, RecordColumns([b"k"], [b"v"], [50], 0, 1))
    task.add_batch("t", 0, RecordColumns([b"k", b"k"], [b"bad", serdes.long.serialize(1)], [10**12, 5], 0, 2))
    while task.process(limit, 0):
        pass
    assert [row[1] for row in written.topics["out"]] == [b"v1"]
    assert (task.counters()["failed_deserialization"], task.stream_time_ms) == (1, 50)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(ENDS), st.lists(st.sampled_from(("filter", "upper", "twice", "merge_self")), max_size=2), steps)
def test_a_program_of_two_inputs_gives_the_same(end: str, chain: list[str], todo: list[Step]) -> None:
    topology = build(chain, end, [], False)
    by_record = outcome(topology, ONE_BY_ONE, todo, cache_max_bytes=0)
    assert outcome(topology, ALL_AT_ONCE, todo, cache_max_bytes=0) == by_record
    assert outcome(topology, 5, todo, cache_max_bytes=0) == by_record
    assert outcome(topology, ALL_AT_ONCE, todo, cache_max_bytes=0, generate=False) == by_record


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(OWN)), steps, st.sampled_from((0, 1 << 20)))
def test_so_do_sources_that_come_together(program: str, todo: list[Step], cache_bytes: int) -> None:
    topology = OWN[program]()
    # Topics that only some of the programs have.
    rows = [
        step if isinstance(step, Commit) else [*step, *(replace(row, topic="z") for row in step[::3])] for step in todo
    ]
    by_record = outcome(topology, ONE_BY_ONE, rows, cache_max_bytes=cache_bytes)
    assert outcome(topology, ALL_AT_ONCE, rows, cache_max_bytes=cache_bytes) == by_record


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(("table_join", "table_outer_join", "left_join")), steps)
def test_so_do_tables_with_caches(end: str, todo: list[Step]) -> None:
    topology = build([], end, [], True)
    assert outcome(topology, ALL_AT_ONCE, todo) == outcome(topology, ONE_BY_ONE, todo)


# ------------------------------------------------------------------------------------------------- failures


def failing() -> Topology:
    def joined(left: str, right: str | None) -> str:
        if "7" in left:
            raise ValueError(left)
        return f"{left}+{right}"

    builder = StreamsBuilder()
    table = builder.table("t", store="t", **TEXT)
    builder.stream("in", **TEXT).left_join(table, joined).to("out", **TEXT)
    return builder.build()


def alternating(count: int, bad: Sequence[int] = ()) -> list[Piped]:
    """Records of a stream at even times, of the table at odd ones."""
    return [
        Piped("in" if time % 2 == 0 else "t", KEYS[time % 3], "7" if time in bad else f"x{time // 10}", time, ())
        for time in range(count)
    ]


def filled(task: Task, rows: Sequence[Piped]) -> Task:
    for topic in ("in", "t"):
        task.add_batch(topic, 0, columns_of([row for row in rows if row.topic == topic], 100))
    return task


@pytest.mark.parametrize("generate", [True, False])
def test_a_record_that_fails_is_named_and_what_follows_stays(generate: bool) -> None:
    written = Written()
    task = filled(new_task(failing(), written, generate=generate), alternating(40, bad=[20]))
    with pytest.raises(ProcessingError, match="at in-0 offset 110") as failure:
        task.process(1000, 0)
    assert (failure.value.topic, failure.value.offset) == ("in", 110)
    assert task.buffered_records == 20
    assert {tp: offset for tp, (offset, _) in task.prepare_commit().offsets.items()} == {("in", 0): 110, ("t", 0): 110}
    assert len(written.topics["out"]) == 10


def strictly_read(raw: bytes) -> str:
    if raw == b"7":
        raise ValueError("not that one")
    return raw.decode()


@pytest.mark.parametrize("generate", [True, False])
def test_a_record_that_is_skipped_does_not_take_others_with_it(generate: bool) -> None:
    asked: list[tuple[str, int, bytes | None]] = []

    def skip(context: ErrorContext, error: BaseException) -> HandlerResponse:
        asked.append((context.topic, context.offset, context.source_value))
        return HandlerResponse.CONTINUE

    builder = StreamsBuilder()
    strict = serdes.CallableSerde("strict", str.encode, strictly_read)
    one, other = (builder.stream(topic, key=serdes.string, value=strict) for topic in ("in", "t"))
    one.merge(other).map_values(str.upper).to("out", **TEXT)
    written = Written()
    handlers = ExceptionHandlers(deserialization=skip)
    task = filled(
        new_task(builder.build(), written, handlers=handlers, generate=generate), alternating(12, bad=[3, 4, 9])
    )
    assert task.process(1000, 0) == 12
    assert asked == [("t", 101, b"7"), ("in", 102, b"7"), ("t", 104, b"7")]
    assert [timestamp for _, _, timestamp, _ in written.topics["out"]] == [0, 1, 2, 5, 6, 7, 8, 10, 11]
    assert task.counters()["failed_deserialization"] == 3


@pytest.mark.parametrize("generate", [True, False])
def test_what_is_under_way_is_told_while_records_come_together(generate: bool) -> None:
    seen: list[str] = []
    builder = StreamsBuilder()
    one, other = (builder.stream(topic, **TEXT) for topic in ("in", "t"))
    one.merge(other).peek(lambda key, value: seen.append(task.processing)).to("out", **TEXT)
    task = filled(new_task(builder.build(), Written(), generate=generate), alternating(5))
    task.process(1000, 0)
    assert seen[:4] == [
        f"{topic}-0 offset {at} (of a batch of 100 to 101)" for at in (100, 101) for topic in ("in", "t")
    ]
    assert task.processing == ""


@pytest.mark.parametrize("lines", range(1, 6))
def test_what_is_under_way_may_be_asked_while_it_ends(lines: int) -> None:
    """Another thread asks, and the record is done after it has come to some line."""
    seen: list[str] = []

    class Asking(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            env, left = task._runner.env, lines
            metadata = env.metadata

            def trace(frame: Any, event: str, _argument: object) -> Any:
                nonlocal left
                if frame.f_code is Runner.current.__code__:
                    left -= event == "line"
                    env.metadata = metadata if left >= 0 else None
                return trace

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                seen.append(task.processing)
            finally:
                sys.settrace(before)
                env.metadata = metadata

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).process(Asking)
    task = new_task(builder.build(), Written())
    task.add_batch("in", 0, columns_of([Piped("in", "k", "v", 1, ())], 100))
    task.process(1000, 0)
    assert [each[:11] for each in seen] == ["in-0 offset"]


def both_written() -> Topology:
    builder = StreamsBuilder()
    one, other = (builder.stream(topic, **TEXT) for topic in ("in", "t"))
    one.merge(other).to("out", **TEXT)
    return builder.build()


@pytest.mark.parametrize(
    ("topology", "runs"),
    [(both_written, 2), (processed, 2), (joined_with_versions, 1)],
    ids=lambda each: getattr(each, "__name__", ""),
)
@pytest.mark.parametrize("generate", [True, False])
def test_records_that_alternate_are_written_together(
    topology: Callable[[], Topology], runs: int, generate: bool
) -> None:
    """Each run hands what it has written to the collector once, generated or not, and before user's processors too."""
    calls: list[int] = []

    class Counting(Written):
        def add(self, topic: str, keys: Sequence[bytes | None], *columns: Any) -> None:
            if topic == "out":
                calls.append(len(keys))

    filled(new_task(topology(), Counting(), generate=generate), alternating(100)).process(1000, 0)
    assert len(calls) == runs
