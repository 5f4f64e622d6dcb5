"""A user's mistakes: each is one error of the right kind, with the line of the program and what to do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from topology import (
    CopartitionError,
    CycleError,
    IllegalNameError,
    JoinWindows,
    KStream,
    KTable,
    NameInUseError,
    Processor,
    Record,
    SessionWindows,
    Store,
    StreamsBuilder,
    TimeWindows,
    TopicInUseError,
    TopologyError,
    UnknownStoreError,
    UnsupportedError,
    WindowError,
    serdes,
)
from topology.build.passes import build
from topology.build.plan import OperatorStep, Plan, PlannedSerde, SourceStep
from topology.graph.operations import Operation, PassThrough


class Forward(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        raise AssertionError("never runs")


async def waits(key: object, value: object) -> bool:
    return True


def unknown_store(builder: StreamsBuilder) -> None:
    builder.stream("a").process(Forward, stores=["typo"])  # here


def name_twice(builder: StreamsBuilder) -> None:
    builder.stream("a").peek(print, name="x")
    builder.stream("b").peek(print, name="x")  # here


def store_twice(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().count(store="x")
    builder.stream("b").group_by_key().count(store="x")  # here


def store_and_table(builder: StreamsBuilder) -> None:
    builder.add_state_store(Store("x"))
    builder.table("b", store="x")  # here


def repartition_twice(builder: StreamsBuilder) -> None:
    builder.stream("a").repartition(name="r").to("o")
    builder.stream("b").repartition(name="r").to("o")  # here


def topic_of_two_tables(builder: StreamsBuilder) -> None:
    builder.table("a").to_stream().to("o")
    builder.table("a").to_stream().to("p")  # here


def topic_of_stream_and_table(builder: StreamsBuilder) -> None:
    builder.stream("a").to("o")
    builder.table("a").to_stream().to("p")  # here


def overlapping_topics(builder: StreamsBuilder) -> None:
    builder.stream(["a", "b"]).to("o")
    builder.stream(["b", "c"]).to("p")  # here


def topic_of_a_pattern(builder: StreamsBuilder) -> None:
    builder.stream("ab").to("o")
    builder.stream(re.compile("a.")).to("p")  # here


def two_offset_resets(builder: StreamsBuilder) -> None:
    builder.stream("a", offset_reset="earliest").to("o")
    builder.stream("a", offset_reset="latest").to("p")  # here


def feeds_itself(builder: StreamsBuilder) -> None:
    builder.stream("a").map_values(str).to("a")  # here


def feeds_itself_through_another(builder: StreamsBuilder) -> None:
    builder.stream("a").to("b")
    builder.stream("b").peek(print).to("a")  # here


def unequal_partitions(builder: StreamsBuilder) -> None:
    table = builder.stream("t").repartition(name="rt", partitions=3).to_table(store="s")
    builder.stream("l").repartition(name="rl", partitions=4).join(table, max).to("o")  # here


def no_topic(builder: StreamsBuilder) -> None:
    builder.stream([])  # here


def bad_topic(builder: StreamsBuilder) -> None:
    builder.stream("a b")  # here


def bad_name(builder: StreamsBuilder) -> None:
    builder.stream("a").peek(print, name="x/y")  # here


def bad_store(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().count(store="..")  # here


def long_name(builder: StreamsBuilder) -> None:
    builder.stream("a").peek(print, name="n" * 250)  # here


def not_a_name(builder: StreamsBuilder) -> None:
    builder.stream("a").peek(print, name=7)  # here


def not_a_function(builder: StreamsBuilder) -> None:
    builder.stream("a").filter(True)  # here


def async_function(builder: StreamsBuilder) -> None:
    builder.stream("a").filter(waits)  # here


def stream_join(builder: StreamsBuilder) -> None:
    builder.stream("a").join(builder.stream("b"), max)  # here


def other_builder(builder: StreamsBuilder) -> None:
    builder.stream("a").merge(StreamsBuilder().stream("b"))  # here


def other_builder_table(builder: StreamsBuilder) -> None:
    builder.stream("a").join(StreamsBuilder().table("b"), max)  # here


def other_windows(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().windowed_by("1h")  # here


def short_retention(builder: StreamsBuilder) -> None:
    windowed = builder.stream("a").group_by_key().windowed_by(TimeWindows(1000, grace=500))
    windowed.count(store=Store("w", retention=1499))  # here


def window_store_of_another_size(builder: StreamsBuilder) -> None:
    windowed = builder.stream("a").group_by_key().windowed_by(TimeWindows(1000))
    windowed.count(store=Store("w", kind="window", window_size=2000))  # here


def window_store_without_windows(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().count(store=Store("w", kind="window"))  # here


def window_store_without_times(builder: StreamsBuilder) -> None:
    builder.add_state_store(Store("w", kind="window"))  # here


def window_store_too_short(builder: StreamsBuilder) -> None:
    builder.add_state_store(Store("w", kind="window", retention=10, window_size=20))  # here


def no_retention(builder: StreamsBuilder) -> None:
    builder.add_state_store(Store("w", kind="window", retention=0, window_size=20))  # here


def store_without_name(builder: StreamsBuilder) -> None:
    builder.add_state_store(Store())  # here


def store_of_another_kind(builder: StreamsBuilder) -> None:
    builder.add_state_store(Store("v", kind="list"))  # type: ignore[arg-type]  # here


def versions_without_retention(builder: StreamsBuilder) -> None:
    builder.add_state_store(Store("v", kind="versioned"))  # here


def entries_of_a_window_store(builder: StreamsBuilder) -> None:
    builder.add_state_store(Store("v", kind="window", max_entries=3))  # here


def changelog_without_logging(builder: StreamsBuilder) -> None:
    builder.add_state_store(Store("v", logging=False, changelog_config={"a": "b"}))  # here


def not_a_store(builder: StreamsBuilder) -> None:
    builder.add_state_store("v")  # here


def one_store_for_a_list(builder: StreamsBuilder) -> None:
    builder.stream("a").process(Forward, stores="v")  # here


def windows_of_a_table(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().count(store=Store("c", window_size=5))  # here


def entries_of_windows(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().windowed_by(TimeWindows(5)).count(store=Store("w", max_entries=5))  # here


def entries_of_sessions(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().windowed_by(SessionWindows(5)).count(store=Store("s", max_entries=5))  # here


def entries_of_a_join(builder: StreamsBuilder) -> None:
    builder.stream("a").join(builder.stream("b"), max, JoinWindows(5), store=Store("j", max_entries=5))  # here


def retention_of_a_join(builder: StreamsBuilder) -> None:
    builder.stream("a").join(builder.stream("b"), max, JoinWindows(5), store=Store("j", retention=50))  # here


def entries_of_an_asof_join(builder: StreamsBuilder) -> None:
    builder.stream("a").join_asof(builder.stream("b"), max, 5, grace=5, store=Store("j", max_entries=5))  # here


def sessions_in_windows(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().windowed_by(TimeWindows(5)).count(store=Store("w", kind="session"))  # here


def windows_in_sessions(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().windowed_by(SessionWindows(5)).count(store=Store("s", kind="window"))  # here


def segments_of_windows(builder: StreamsBuilder) -> None:
    builder.add_state_store(Store("w", kind="window", retention=9, window_size=5, segment_interval=3))  # here


def windows_of_versions(builder: StreamsBuilder) -> None:
    builder.add_state_store(Store("v", kind="versioned", retention=9, window_size=5))  # here


def two_serdes(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().count(store=Store("c", key=serdes.long), key=serdes.string)  # here


def no_partitions(builder: StreamsBuilder) -> None:
    builder.stream("a").repartition(partitions=0)  # here


def too_few_branch_names(builder: StreamsBuilder) -> None:
    builder.stream("a").branch(max, min, names=["x"])  # here


def keys_of_two_types(builder: StreamsBuilder) -> None:
    names = builder.stream("a", key=serdes.string)
    names.join(builder.table("t", key=serdes.long), max)  # here


def keys_of_two_types_of_tables(builder: StreamsBuilder) -> None:
    builder.table("a", key=serdes.integer).outer_join(builder.table("t", key=serdes.long), max)  # here


def keys_of_two_types_of_streams(builder: StreamsBuilder) -> None:
    other = builder.stream("t", key=serdes.long)
    builder.stream("a", key=serdes.string).left_join(other, max, JoinWindows(5))  # here


def keys_of_two_types_as_of(builder: StreamsBuilder) -> None:
    other = builder.stream("t", key=serdes.long)
    builder.stream("a", key=serdes.string).join_asof(other, max, 5)  # here


def no_emit_strategy(builder: StreamsBuilder) -> None:
    builder.stream("a").group_by_key().windowed_by(TimeWindows(5)).emit_strategy("never")  # type: ignore[arg-type]  # here


MISTAKES: dict[Callable[[StreamsBuilder], None], tuple[type[TopologyError], str]] = {
    unknown_store: (UnknownStoreError, "no store 'typo': add it with add_state_store"),
    name_twice: (NameInUseError, "'x' is taken by the step at "),
    store_twice: (NameInUseError, "another store 'x' is added at "),
    store_and_table: (NameInUseError, "another store 'x'"),
    repartition_twice: (NameInUseError, "'r-repartition' already exists"),
    topic_of_two_tables: (TopicInUseError, "'a' is read already at "),
    topic_of_stream_and_table: (TopicInUseError, "'a' is read already at "),
    overlapping_topics: (TopicInUseError, "'b' is read here among"),
    topic_of_a_pattern: (TopicInUseError, "the pattern 'a.' matches topic 'ab'"),
    two_offset_resets: (TopicInUseError, "offset_reset is 'latest' here and 'earliest'"),
    feeds_itself: (CycleError, "a -> a"),
    feeds_itself_through_another: (CycleError, "a -> b -> a"),
    unequal_partitions: (CopartitionError, "rl-repartition 4, rt-repartition 3"),
    no_topic: (TopologyError, "the list of topics is empty"),
    bad_topic: (IllegalNameError, "'a b' can't be the name of a topic"),
    bad_name: (IllegalNameError, "'x/y' can't be the name of a step"),
    bad_store: (IllegalNameError, "'..' can't be the name of a store"),
    long_name: (IllegalNameError, "249 characters"),
    not_a_name: (IllegalNameError, "peek() takes a str as name, not 7"),
    not_a_function: (TopologyError, "filter() takes a function, not True"),
    async_function: (UnsupportedError, "filter() calls waits"),
    stream_join: (TopologyError, "needs windows=JoinWindows"),
    other_builder: (TopologyError, "one StreamsBuilder"),
    other_builder_table: (TopologyError, "one StreamsBuilder"),
    other_windows: (UnsupportedError, "takes TimeWindows"),
    short_retention: (WindowError, "needs 1500 ms"),
    window_store_of_another_size: (WindowError, "windows of 2000 ms, the operator has 1000 ms"),
    window_store_without_windows: (TopologyError, "a key_value or versioned store is needed"),
    window_store_without_times: (WindowError, "needs retention= and window_size="),
    window_store_too_short: (WindowError, "retention below its window size"),
    no_retention: (WindowError, "greater than 0 ms"),
    store_without_name: (TopologyError, "needs a name"),
    store_of_another_kind: (UnsupportedError, "'list' are not supported"),
    versions_without_retention: (WindowError, "needs retention="),
    entries_of_a_window_store: (UnsupportedError, "can have max_entries"),
    changelog_without_logging: (UnsupportedError, "no changelog"),
    not_a_store: (TopologyError, "takes a Store"),
    windows_of_a_table: (UnsupportedError, "can't have window_size="),
    entries_of_windows: (UnsupportedError, "can't have max_entries="),
    entries_of_sessions: (UnsupportedError, "can't have max_entries="),
    entries_of_a_join: (UnsupportedError, "can't have max_entries="),
    retention_of_a_join: (UnsupportedError, "can't have retention="),
    entries_of_an_asof_join: (UnsupportedError, "can't have max_entries="),
    sessions_in_windows: (TopologyError, "a window store is needed here"),
    windows_in_sessions: (TopologyError, "a session store is needed here"),
    segments_of_windows: (UnsupportedError, "can't have segment_interval="),
    windows_of_versions: (UnsupportedError, "can't have window_size="),
    one_store_for_a_list: (TopologyError, "stores=['v']"),
    two_serdes: (TopologyError, "give one"),
    no_partitions: (TopologyError, "at least 1 partition"),
    too_few_branch_names: (TopologyError, "makes 2 streams but has 1 names"),
    keys_of_two_types: (TopologyError, "keys of serdes.string never equal keys of serdes.long"),
    keys_of_two_types_of_tables: (TopologyError, "outer_join() joins by key"),
    keys_of_two_types_of_streams: (TopologyError, "with select_key(), or with key="),
    keys_of_two_types_as_of: (TopologyError, "join_asof() joins by key"),
    no_emit_strategy: (TopologyError, "takes EmitStrategy.ON_WINDOW_UPDATE or"),
}


def line_of(program: Callable[[StreamsBuilder], None]) -> str:
    lines, start = inspect.getsourcelines(program)
    (offset,) = [offset for offset, line in enumerate(lines) if line.rstrip().endswith("# here")]
    return f"{__file__}:{start + offset}: "


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_told_with_its_line(mistake: Callable[[StreamsBuilder], None]) -> None:
    kind, message = MISTAKES[mistake]

    def program() -> None:
        builder = StreamsBuilder()
        mistake(builder)
        builder.build()

    with pytest.raises(TopologyError) as raised:
        program()
    assert type(raised.value) is kind
    assert message in str(raised.value)
    assert str(raised.value).startswith(line_of(mistake))
    assert raised.value.exit_code == 2


def test_an_empty_topology_is_refused() -> None:
    with pytest.raises(TopologyError, match="reads no topic"):
        StreamsBuilder().build()


def test_a_negative_epoch_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("a").to("b")
    with pytest.raises(TopologyError, match="epoch"):
        builder.build(epoch=-1)
    assert builder.build(epoch=3).epoch == 3


def test_a_circle_that_a_function_can_break_is_allowed() -> None:
    builder = StreamsBuilder()
    builder.stream("a").filter(lambda key, value: value > 0).to("a")
    builder.stream("b").process(Forward).to("b")
    builder.stream("c").to(lambda key, value, context: "c")
    assert len(builder.build().subtopologies) == 3


def test_steps_in_a_circle_are_refused() -> None:
    plan, operation = Plan(), PassThrough()
    site = inspect.currentframe()
    assert site is not None
    here = (__file__, site.f_lineno)

    def step(name: str, operation: Operation = operation) -> OperatorStep:
        from topology.spec.errors import CallSite

        return OperatorStep(name=name, site=CallSite(*here), operation=operation)

    one, other = step("one"), step("other")
    one.parents, other.parents = (other,), (one,)
    source = SourceStep(name="s", site=one.site, topics=("t",), key=PlannedSerde(), value=PlannedSerde())
    for added in (source, one, other):
        plan.add(added)
    with pytest.raises(CycleError, match="'one' comes after itself"):
        build(plan, None, 0)


def test_keys_whose_bytes_may_be_equal_are_joined() -> None:
    builder = StreamsBuilder()
    raw, names = builder.stream("a", key=serdes.bytes), builder.table("t", key=serdes.string)
    raw.join(names, max).to("o")
    builder.stream("b", key=serdes.json).select_key(max).join(names, max).to("p")
    assert builder.build().subtopologies


def test_one_equal_store_may_be_brought_by_several() -> None:
    builder = StreamsBuilder()
    store = Store("s", key=serdes.string)
    builder.add_state_store(store).add_state_store(Store("s", key=serdes.string))
    builder.stream("a").process(Forward, stores=[store]).to("o")
    builder.stream("b").process(Forward, stores=["s", store]).to("p")
    (subtopology,) = builder.build().subtopologies
    assert [spec.name for spec in subtopology.stores] == ["s"]


def test_explicit_names_can_be_demanded() -> None:
    config = {"ensure.explicit.internal.resource.naming": True}
    builder = StreamsBuilder()
    table: KTable[Any, Any] = builder.stream("a").select_key(max).to_table()
    table.to_stream().to("o")
    with pytest.raises(
        TopologyError, match=r"repartition topic KSTREAM-TOTABLE-0000000002-repartition \(.*errors.py:\d+"
    ):
        builder.build(config)
    named = StreamsBuilder()
    named.stream("a").select_key(max).to_table(name="t", store="s").to_stream().to("o")
    named.build(config)


Wrong = Callable[[KStream[Any, Any], KTable[Any, Any], Any], object]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda stream, _, fn: stream.filter(fn), "filter.. calls a function with .key, value."),
        (lambda stream, _, fn: stream.map_values(fn), "map_values.. calls a function with .value."),
        (lambda stream, _, fn: stream.flat_map_values(fn, with_key=True), "with .key, value."),
        (lambda stream, _, fn: stream.map_batches(fn), "with .value."),
        (lambda stream, _, fn: stream.try_map_values(fn), "with .value."),
        (lambda stream, _, fn: stream.deduplicate(fn, 5, serde=serdes.string), "with .key, value."),
        (lambda stream, _, fn: stream.branch(fn), "with .key, value."),
        (lambda stream, _, fn: stream.to(fn), "with .key, value, context."),
        (lambda stream, _, fn: stream.to("out", partitioner=fn), "with .topic, key, value, partitions."),
        (lambda stream, _, fn: stream.repartition(partitioner=fn), "with .topic, key, value, partitions."),
        (lambda stream, _, fn: stream.process(fn), "with ..,"),
        (lambda stream, table, fn: stream.join(table, fn), "with .value, other value."),
        (lambda stream, table, fn: stream.left_join(table, fn, with_key=True), "with .key, value, other value."),
        (lambda stream, _, fn: stream.join_asof(stream, fn, 5), "with .value, other value."),
        (lambda stream, _, fn: stream.group_by_key().reduce(fn), "with .aggregate, value."),
        (lambda stream, _, fn: stream.group_by_key().aggregate(fn, max), "with ..,"),
        (lambda stream, _, fn: stream.group_by_key().aggregate(int, fn), "with .key, value, aggregate."),
        (lambda stream, _, fn: stream.group_by_key().cogroup(fn), "with .key, value, aggregate."),
        (lambda _, table, fn: table.filter_not(fn), "with .key, value."),
        (lambda _, table, fn: table.map_values(fn), "with .value."),
        (lambda _, table, fn: table.transform_values(fn), "with ..,"),
        (lambda _, table, fn: table.group_by(max).reduce(fn, max), "with .aggregate, value."),
        (lambda _, table, fn: table.join(table, fn), "with .value, other value."),
        (lambda _, table, fn: table.join(table, max, foreign_key=fn), "with .value."),
    ],
)
def test_a_function_that_takes_other_arguments_is_refused_where_it_is_given(wrong: Wrong, message: str) -> None:
    def of_seven(a: int, b: int, c: int, d: int, e: int, f: int, g: int) -> None:
        raise AssertionError("it is not called")

    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match=rf"errors\.py:\d+: .*{message}.*but .*of_seven takes \(a") as caught:
        wrong(builder.stream("a"), builder.table("t"), of_seven)
    assert caught.value.site is not None


class _Callable:
    def __call__(self, value: object) -> object:
        return value


@pytest.mark.parametrize(("with_key", "arguments"), [(False, "value"), (True, "key, value")])
def test_an_async_function_that_takes_other_arguments_is_refused(with_key: bool, arguments: str) -> None:
    async def of_three(a: int, b: int, c: int) -> None:
        raise AssertionError("it is not called")

    with pytest.raises(
        TopologyError, match=rf"errors\.py:\d+: .*map_async.. calls .* with .{arguments}., but .*of_three"
    ):
        StreamsBuilder().stream("a").map_async(of_three, with_key=with_key)  # type: ignore[call-overload]


@pytest.mark.parametrize("fn", [max, _Callable(), partial(max, 1), lambda *given: given, lambda k, v, more=1: more])
def test_functions_that_may_take_what_they_get_are_not_judged(fn: Callable[..., object]) -> None:
    StreamsBuilder().stream("a").filter(fn).peek(fn)
