from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamsrt.errors import ConfigError
from streamsrt.operators.engine.compiler import Compiler
from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.plan import Counters
from streamsrt.operators.table import EMITS, OF_VERSIONS
from tests.streamsrt.operators.programs import Piped, Written, columns_of, commit, new_task
from topology import KStream, KTable, StreamsBuilder, TimeWindows, Topology, serdes
from topology.spec.serdes import CallableSerde


class Counted:
    """A string serde that counts what it is asked for."""

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.written: list[str] = []
        self.serde: CallableSerde[str] = CallableSerde("counted", self.serialize, self.deserialize)

    def serialize(self, value: str) -> bytes:
        self.written.append(value)
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        self.read.append(data)
        return data.decode()


def run(topology: Topology, *rows: tuple[str | None, str | None]) -> Written:
    written = Written()
    task = new_task(topology, written)
    task.add_batch("in", 0, columns_of([Piped("in", k, v, 1, ()) for k, v in rows], 0))
    task.process(100, 0)
    commit(task)
    return written


def test_what_nobody_reads_is_neither_deserialized_nor_serialized() -> None:
    key, value = Counted(), Counted()
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=key.serde, value=value.serde)
    stream.filter_not(lambda k, v: v == "x").to("out", key=key.serde, value=value.serde)
    counts = stream.group_by_key(key=key.serde, value=value.serde).count()
    counts.to_stream().to("counts", key=key.serde, value=serdes.long)
    written = run(builder.build(), ("a", "x"), ("b", "y"))
    assert [row[:2] for row in written.topics["out"]] == [(b"b", b"y")]
    assert [row[0] for row in written.topics["counts"]] == [b"a", b"b"]
    # A key is read and written once more, when it comes first: another serde's key may have several forms.
    assert (key.read, value.read) == ([b"a", b"a", b"b", b"b"], [b"x", b"y"])
    assert (key.written, value.written) == (["a", "b"], [])


def test_children_share_what_they_both_read() -> None:
    value = Counted()
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=value.serde)
    for name in ("one", "two"):
        stream.map_values(str.upper).to(name, key=serdes.string, value=serdes.string)
    run(builder.build(), ("a", "x"))
    assert value.read == [b"x"]


def test_a_chain_too_deep_for_one_function_still_runs() -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    for number in range(150):
        stream = stream.filter(lambda k, v, n=number: int(v) > n)
    stream.to("out", key=serdes.string, value=serdes.string)
    written = run(builder.build(), ("a", "149"), ("b", "150"))
    assert [row[0] for row in written.topics["out"]] == [b"b"]


def test_a_chain_of_tables_that_python_can_not_generate_code_for_still_runs() -> None:
    builder = StreamsBuilder()
    table: KTable[Any, Any] = builder.table("in", key=serdes.string, value=serdes.string)
    for _ in range(290):
        table = table.filter(lambda k, v: True)
    table.to_stream().to("out", key=serdes.string, value=serdes.string)
    written = run(builder.build(), ("a", "1"))
    assert [row[:2] for row in written.topics["out"]] == [(b"a", b"1")]


def test_a_chain_longer_than_pythons_stack_is_refused_before_the_first_record() -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    for _ in range(600):
        stream = stream.peek(print)
    stream.to("out", key=serdes.string, value=serdes.string)
    with pytest.raises(
        ConfigError, match=r"602 steps follow one another up to KSTREAM-SINK-0000000601, and .* repartition"
    ):
        run(builder.build())


def test_a_table_that_is_joined_with_itself_again_and_again_is_built_and_looked_up_at_once() -> None:
    """The ways to the table at its beginning are more than anybody can count."""
    builder = StreamsBuilder()
    table: KTable[Any, Any] = builder.table("table", key=serdes.string, value=serdes.string)
    for number in range(60):
        other = table if number % 2 else table.filter(lambda k, v: True)
        table = table.join(other, lambda one, two: one)
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.left_join(table, lambda one, two: f"{one}{two}").to("out", key=serdes.string, value=serdes.string)
    written = run(builder.build(), ("a", "1"))
    assert [row[:2] for row in written.topics["out"]] == [(b"a", b"1None")]


def test_nested_flat_maps_beyond_pythons_limit_of_blocks_still_run() -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    for _ in range(25):
        stream = stream.flat_map_values(lambda v: [v + "."])
    stream.to("out", key=serdes.string, value=serdes.string)
    assert run(builder.build(), ("a", "v")).topics["out"][0][1] == b"v" + b"." * 25


def test_a_topic_may_be_chosen_for_each_record() -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.to(lambda k, v, context: f"to-{v}-{context.offset}", key=serdes.string, value=serdes.string)
    assert sorted(run(builder.build(), ("a", "x"), ("b", "y")).topics) == ["to-x-0", "to-y-1"]


def test_two_sinks_of_one_topic_keep_the_order_of_records() -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.to("out", key=serdes.string, value=serdes.string)
    stream.map_values(str.upper).to("out", key=serdes.string, value=serdes.string)
    written = run(builder.build(), ("a", "x"), ("b", "y"))
    assert [row[1] for row in written.topics["out"]] == [b"x", b"X", b"y", b"Y"]


def test_columns_that_only_pass_are_handed_on_without_a_loop() -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    for topic in ("out", "copy"):
        stream.to(topic, key=serdes.string, value=serdes.string)
    kept, changed = (lines_of(topology, "in") for topology in (builder.build(), written_twice()))
    assert not [line for line in kept if "for " in line]
    assert [line for line in changed if "for " in line]
    rows = [("a", "x"), (None, "y"), ("b", None)]
    written = run(builder.build(), *rows)
    assert [row[:2] for row in written.topics["out"]] == [(b"a", b"x"), (None, b"y"), (b"b", None)]
    assert written.topics["copy"] == written.topics["out"]


def written_twice() -> Topology:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    for _ in range(2):
        stream.to("out", key=serdes.string, value=serdes.string)
    return builder.build()


def lines_of(topology: Topology, topic: str) -> list[str]:
    """The function for records of that topic."""
    written: list[object] = []
    task = new_task(topology, Written())
    env = Environment(task.plan, task.caches, written.append, Counters(), {}, 0, lambda _: 1, task_dir=Path)
    return Compiler(env, EMITS, OF_VERSIONS).source(task.source_of(topic).name, headers=False).source.splitlines()


def test_a_missing_serde_is_found_before_the_first_record() -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in")
    stream.to("out")
    (subtopology,) = builder.build().subtopologies
    from streamsrt.tasks.task import Task
    from streamsrt.tasks.task_config import TaskConfig

    with pytest.raises(ConfigError, match=r"no key serde for .*default\.key\.serde"):
        Task(
            subtopology,
            0,
            application_id="app",
            stores={},
            collector=Written(),
            config=TaskConfig(),
            partitions_of_topic=lambda topic: 1,
        )


def test_a_window_is_over_when_records_of_another_way_to_it_say_so() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    ways = stream.filter(lambda k, v: v == "a").merge(stream.filter(lambda k, v: v != "a"))
    counts = ways.group_by_key().windowed_by(TimeWindows(10, grace=5)).count()
    counts.to_stream(lambda window, _: str(window.start_ms)).to("out", key=serdes.string, value=serdes.long)
    written = Written()
    task = new_task(builder.build(), written)
    rows = [("a", 1), ("b", 2), ("a", 14), ("b", 3), ("a", 15), ("b", 4), ("a", 5)]
    task.add_batch("in", 0, columns_of([Piped("in", "k", value, at, ()) for value, at in rows], 0))
    task.process(100, 0)
    commit(task)
    counted = {row[0]: serdes.long.deserialize(row[1]) for row in written.topics["out"]}
    assert counted == {b"0": 3, b"10": 2}


def test_a_key_that_is_the_value_or_another_one_or_none() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.select_key(lambda k, v: v if k == "same" else k).to("out", key=serdes.string, value=serdes.string)
    written = run(builder.build(), ("same", "x"), ("other", "y"), ("same", None), (None, "z"), (None, None))
    assert [row[:2] for row in written.topics["out"]] == [
        (b"x", b"x"),
        (b"other", b"y"),
        (None, None),
        (None, b"z"),
        (None, None),
    ]
    values = StreamsBuilder()
    upper = values.stream("in", key=serdes.string, value=serdes.string).map_values(str.upper)
    upper.select_key(lambda k, v: v if k == "same" else k).to("out", key=serdes.string, value=serdes.string)
    written = run(values.build(), ("same", "x"), ("other", "y"))
    assert [row[:2] for row in written.topics["out"]] == [(b"X", b"X"), (b"other", b"Y")]
