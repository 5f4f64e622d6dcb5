from __future__ import annotations

import re
from typing import Any

import pytest

from topology import KStream, StreamsBuilder, TopicInUseError, Topology, serdes
from topology.graph.nodes import ProcessorNode, SinkNode, SourceNode
from topology.graph.operations import Branch, Filter, KeyNotNull, PassThrough, Process, SelectKey, StreamTableJoin
from topology.spec.processor import Record


def processors(topology: Topology) -> list[ProcessorNode]:
    return [n for s in topology.subtopologies for n in s.nodes if isinstance(n, ProcessorNode)]


def is_small(key: Any, value: int) -> bool:
    return value < 10


def is_medium(key: Any, value: int) -> bool:
    return value < 100


def test_branch_gives_streams_and_names_them() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", value=serdes.long)
    small, medium, rest = stream.branch(is_small, is_medium, default=True, names=["small", None, "rest"], name="size-")
    for index, branch in enumerate((small, medium, rest)):
        branch.to(f"out{index}")
    (subtopology,) = builder.build().subtopologies
    split = subtopology.node("size-")
    assert isinstance(split, ProcessorNode)
    assert split.operation == Branch(
        predicates=(is_small, is_medium, None), children=("size-small", "size-2", "size-rest")
    )
    assert split.children == ("size-small", "size-2", "size-rest")
    assert [subtopology.node(name).children for name in split.children] == [
        ("KSTREAM-SINK-0000000005",),
        ("KSTREAM-SINK-0000000006",),
        ("KSTREAM-SINK-0000000007",),
    ]


def test_branch_and_split_are_the_same() -> None:
    def described(chain: bool) -> str:
        builder = StreamsBuilder()
        stream = builder.stream("in", value=serdes.long)
        branches: list[KStream[Any, int]]
        if chain:
            by_name = stream.split().branch(is_small).branch(is_medium, name="m").default_branch()
            assert list(by_name) == [f"KSTREAM-BRANCH-0000000001{suffix}" for suffix in ("1", "m", "0")]
            branches = list(by_name.values())
        else:
            branches = list(stream.branch(is_small, is_medium, default=True, names=[None, "m", None]))
        for branch in branches:
            branch.to("out")
        return builder.build().describe()

    assert described(True) == described(False)


def test_branches_without_a_default_drop_the_rest() -> None:
    builder = StreamsBuilder()
    (small,) = builder.stream("in").branch(is_small)
    small.to("out")
    split = processors(builder.build())[0]
    assert isinstance(split.operation, Branch)
    assert split.operation.predicates == (is_small,)


def test_a_stream_is_not_changed_by_its_operators() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.select_key(lambda key, value: value).to("rekeyed")
    stream.group_by_key().count(store="c")
    assert not [s for s in builder.build().subtopologies if s.repartition_source_topics]


def test_building_twice_gives_equal_topologies() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.group_by(is_small).count(store="c")
    first = builder.build()
    assert builder.build() == first
    stream.to("out")
    assert builder.build().digest != first.digest


def test_streams_of_one_topic_share_a_source() -> None:
    builder = StreamsBuilder()
    builder.stream(["b", "a"], key=serdes.string).to("o")
    builder.stream(re.compile("x.*")).to("p")
    builder.stream(["a", "b"]).map_values(str, name="second").to("q")
    builder.stream(re.compile("x.*")).to("r")
    topology = builder.build()
    sources = [source for s in topology.subtopologies for source in s.sources]
    assert [(source.topics, source.pattern) for source in sources] == [(("b", "a"), None), ((), "x.*")]
    assert sources[0].children == ("KSTREAM-SINK-0000000001", "second")
    assert topology.subtopologies[1].source_topic_patterns == ("x.*",)


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ({"value": serdes.string}, {"value": serdes.json}, "value is serdes.json here and serdes.string at"),
        ({}, {"key": serdes.long}, "key is serdes.long here and None at"),
        ({}, {"timestamp_extractor": "wallclock"}, "timestamp_extractor is <function wallclock .*> here and None at"),
    ],
)
def test_streams_of_one_topic_read_it_alike(first: dict[str, Any], second: dict[str, Any], says: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in", **first).to("o")
    builder.stream("in", **second).to("p")
    with pytest.raises(TopicInUseError, match=f"{__file__}:.*{says} {__file__}:.*, for the same topics: give one"):
        builder.build()


def test_streams_of_one_topic_may_say_the_same_twice() -> None:
    def orders() -> KStream[Any, Any]:
        return builder.stream(
            "in", value=serdes.json(dict), timestamp_extractor=lambda record, time: record.value["at"]
        )

    builder = StreamsBuilder()
    orders().to("o")
    orders().to("p")
    assert len(builder.build().subtopologies[0].sources) == 1


def test_a_merged_source_is_copartitioned_by_the_one_that_stays() -> None:
    builder = StreamsBuilder()
    table = builder.table("t", store="s")
    builder.stream("in").to("o")
    builder.stream("in").join(table, max).to("p")
    (subtopology,) = builder.build().subtopologies
    assert subtopology.copartition_groups == (("in", "t"),)


def test_only_a_left_join_keeps_records_without_a_key() -> None:
    def filters(left: bool) -> list[object]:
        builder = StreamsBuilder()
        table = builder.table("t", store="s")
        stream = builder.stream("in").select_key(is_small)
        (stream.left_join if left else stream.join)(table, max).to("out")
        return [node.operation for node in processors(builder.build()) if "FILTER" in node.name]

    assert filters(left=True) == [PassThrough()]
    assert filters(left=False) == [KeyNotNull()]


def test_unnamed_joins_share_a_repartition_and_its_copartition_group() -> None:
    builder = StreamsBuilder()
    one, other = builder.table("t", store="s"), builder.table("u", store="v")
    stream = builder.stream("in").select_key(is_small)
    stream.join(one, max).to("o")
    stream.left_join(other, max).to("p")
    stream.join(one, max, name="named").to("q")
    topology = builder.build()
    repartitions = {t.name for s in topology.subtopologies for t in s.repartition_source_topics}
    assert repartitions == {"KSTREAM-KEY-SELECT-0000000005-repartition", "named-repartition"}
    joined = next(s for s in topology.subtopologies if s.copartition_groups)
    assert joined.copartition_groups == (("KSTREAM-KEY-SELECT-0000000005-repartition", "named-repartition", "t", "u"),)
    assert [node.operation for node in processors(topology) if node.name == "KSTREAM-FILTER-0000000007"] == [
        PassThrough()
    ]


def test_join_names_the_tables_node_and_its_stores() -> None:
    builder = StreamsBuilder()
    table = builder.table("t", store="s").filter(is_small).map_values(str)
    builder.stream("in").join(table, max, with_key=True).to("o")
    (join,) = [node for node in processors(builder.build()) if isinstance(node.operation, StreamTableJoin)]
    assert join.operation == StreamTableJoin(table="KTABLE-MAPVALUES-0000000003", joiner=max, left=False, with_key=True)
    assert join.stores == ("s",)


def test_process_changes_the_key_and_process_values_does_not() -> None:
    def repartitions(values: bool) -> list[str]:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=serdes.string, value=serdes.string)
        processed = stream.process_values(dict) if values else stream.process(dict)
        processed.group_by_key(name="g").count(store="c")
        topology = builder.build()
        operations = [node.operation for node in processors(topology) if isinstance(node.operation, Process)]
        assert operations == [Process(supplier=dict, fixed_key=values)]
        return [t.name for s in topology.subtopologies for t in s.repartition_source_topics]

    assert repartitions(values=False) == ["g-repartition"]
    assert repartitions(values=True) == []


def test_nodes_know_the_line_of_the_program() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.filter(is_small).to("out")
    source, step, sink = builder.build().subtopologies[0].nodes
    assert isinstance(source, SourceNode)
    assert isinstance(sink, SinkNode)
    assert source.site is not None
    assert step.site is not None
    assert sink.site is not None
    assert source.site.file == __file__
    assert (step.site.line, sink.site.line) == (source.site.line + 1, source.site.line + 1)


def test_operations_hold_the_users_functions() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in").filter(is_small).filter_not(is_medium).select_key(max)
    stream.to("out", partitioner=min)
    operations = [node.operation for node in processors(builder.build())]
    assert operations == [Filter(predicate=is_small), Filter(predicate=is_medium, negate=True), SelectKey(fn=max)]
    (sink,) = builder.build().subtopologies[0].sinks
    assert sink.partitioner is min


def test_records_are_changed_into_new_ones() -> None:
    record = Record("k", 1, 7)
    changed = record.with_key("l").with_value("v").with_timestamp(8).with_headers((("h", b"x"),))
    assert changed == Record("l", "v", 8, (("h", b"x"),))
    assert record == Record("k", 1, 7, ())
