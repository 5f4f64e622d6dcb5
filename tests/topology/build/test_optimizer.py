"""What each optimisation makes of a program: before and after, and that the results stay what they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import JoinWindows, KStream, StreamsBuilder, Topology, TopologyError, serdes
from topology.build.optimizer import OPTIMIZATIONS
from topology.graph.nodes import ProcessorNode, Subtopology

REUSE = "reuse.ktable.source.topics"
MERGE = "merge.repartition.topics"
SELF_JOIN = "single.store.self.join"

Words = KStream[str, str]


def words(builder: StreamsBuilder) -> Words:
    return builder.stream("in", key=serdes.string, value=serdes.string)


def by_value(stream: Words) -> Words:
    return stream.select_key(lambda key, value: value[:1])


def two_counts(builder: StreamsBuilder) -> None:
    rekeyed = by_value(words(builder))
    rekeyed.group_by_key().count().to_stream().to("counts", value=serdes.long)
    rekeyed.group_by_key().reduce(lambda one, other: one + other).to_stream().to("joined")


def filtered_between(builder: StreamsBuilder) -> None:
    rekeyed = by_value(words(builder))
    rekeyed.filter(lambda key, value: value != "bee").group_by_key().count().to_stream().to("counts", value=serdes.long)
    rekeyed.group_by_key().reduce(lambda one, other: one + other).to_stream().to("joined")


def filtered_before_named_stores(builder: StreamsBuilder) -> None:
    filtered = by_value(words(builder)).filter(lambda key, value: value != "bee")
    filtered.group_by_key().count(store="c").to_stream().to("counts", value=serdes.long)
    filtered.group_by_key().reduce(lambda one, other: one + other, store="j").to_stream().to("joined")


def read_on_the_way(builder: StreamsBuilder) -> None:
    stream = words(builder).select_key(lambda key, value: None if value == "bee" else value[:1])
    seen = stream.peek(lambda key, value: None)
    seen.to("joined")
    seen.group_by_key().count().to_stream().to("counts", value=serdes.long)


def merged_after_one_of_two(builder: StreamsBuilder) -> None:
    stream = words(builder)
    one, other = by_value(stream), stream.select_key(lambda key, value: value[-1:])
    one.merge(other).group_by_key().count().to_stream().to("counts", value=serdes.long)
    one.group_by_key().reduce(lambda one, other: one + other).to_stream().to("joined")


def merged_twice(builder: StreamsBuilder) -> None:
    stream = words(builder)
    both = stream.peek(lambda key, value: None).merge(by_value(stream).merge(stream))
    both.merge(both.filter(lambda key, value: value != "bee")).group_by_key().count().to_stream().to(
        "counts", value=serdes.long
    )
    both.group_by_key().reduce(lambda one, other: one + other).to_stream().to("joined")


def merged_between(builder: StreamsBuilder) -> None:
    stream = words(builder)
    both = by_value(stream).merge(stream.select_key(lambda key, value: value[-1:]))
    both.group_by_key().count().to_stream().to("counts", value=serdes.long)
    both.group_by_key().reduce(lambda one, other: one + other).to_stream().to("joined")


def values_made_between(builder: StreamsBuilder) -> None:
    rekeyed = by_value(words(builder))
    rekeyed.map_values(str.upper).group_by_key(value=serdes.string).count().to_stream().to("counts", value=serdes.long)
    rekeyed.group_by_key().reduce(lambda one, other: one + other).to_stream().to("joined")


def a_table(builder: StreamsBuilder) -> None:
    table = builder.table("in", key=serdes.string, value=serdes.string, store="rows")
    table.filter(lambda key, value: value != "bee").to_stream().to("joined")


def joined_with_itself(builder: StreamsBuilder) -> None:
    stream = words(builder)
    stream.join(stream, lambda one, other: one + other, JoinWindows(2, grace=3)).to("joined")


def left_joined_with_itself(builder: StreamsBuilder) -> None:
    stream = words(builder)
    stream.left_join(stream, lambda one, other: f"{one}{other}", JoinWindows(2, grace=3)).to("joined")


STRINGS = {"default.key.serde": serdes.string, "default.value.serde": serdes.string}

PROGRAMS = [
    two_counts,
    filtered_between,
    filtered_before_named_stores,
    read_on_the_way,
    merged_between,
    merged_after_one_of_two,
    values_made_between,
    a_table,
    joined_with_itself,
    left_joined_with_itself,
]
Program = Callable[[StreamsBuilder], None]


def build(program: Program, optimization: str = "none") -> Topology:
    builder = StreamsBuilder()
    program(builder)
    return builder.build({"topology.optimization": optimization})


def repartitions(topology: Topology) -> list[str]:
    return [topic.name for each in topology.subtopologies for topic in each.repartition_source_topics]


def changelogs(topology: Topology) -> list[str]:
    return [topic.name for each in topology.subtopologies for topic in each.changelog_topics]


def behind(topology: Topology, prefix: str) -> list[str]:
    """The names of the children of the first node whose name begins so."""
    parts: tuple[Subtopology, ...] = topology.subtopologies
    node = next(node for part in parts for node in part.nodes if node.name.startswith(prefix))
    assert isinstance(node, ProcessorNode)
    return list(node.children)


def test_repartitions_behind_one_change_become_one() -> None:
    before, after = build(two_counts), build(two_counts, MERGE)
    assert repartitions(before) == [
        "KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition",
        "KSTREAM-REDUCE-STATE-STORE-0000000009-repartition",
    ]
    assert repartitions(after) == ["KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition"]
    assert behind(after, "KSTREAM-KEY-SELECT") == ["KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition-filter"]
    assert changelogs(after) == changelogs(before)


def test_a_filter_comes_behind_the_repartition() -> None:
    after = build(filtered_between, MERGE)
    assert len(repartitions(after)) == 1
    assert [node.name for node in after.subtopologies[0].nodes if "FILTER" in node.name] == []
    assert [node.name for node in after.subtopologies[1].nodes if "FILTER" in node.name] == [
        "KSTREAM-FILTER-0000000002"
    ]


def test_a_merge_stands_for_the_changes_before_it() -> None:
    assert len(repartitions(build(merged_between))) == 2
    after = build(merged_between, MERGE)
    assert len(repartitions(after)) == 1
    (child,) = behind(after, "KSTREAM-MERGE")
    assert child.endswith("-repartition-filter")


def test_values_that_are_made_before_a_repartition_stay_before_it() -> None:
    assert sorted(repartitions(build(values_made_between, MERGE))) == sorted(repartitions(build(values_made_between)))


def test_a_processor_may_change_keys_so_it_stays_before_the_repartition() -> None:
    def program(builder: StreamsBuilder) -> None:
        from tests.topology.dsl.test_processor_api import Forward

        processed = by_value(words(builder)).process(Forward)
        processed.group_by_key(key=serdes.string, value=serdes.string).count().to_stream().to("a", value=serdes.long)
        processed.group_by_key(key=serdes.string, value=serdes.string).count().to_stream().to("b", value=serdes.long)

    after = build(program, MERGE)
    assert len(repartitions(after)) == 1
    assert behind(after, "KSTREAM-KEY-SELECT") == ["KSTREAM-PROCESSOR-0000000002"]


def test_repartition_that_the_program_asks_for_stays() -> None:
    def program(builder: StreamsBuilder) -> None:
        rekeyed = by_value(words(builder))
        rekeyed.repartition(name="own").group_by_key().count()
        rekeyed.group_by_key().count()

    assert len(repartitions(build(program, MERGE))) == 2


def test_a_tables_topic_is_its_changelog() -> None:
    assert changelogs(build(a_table)) == ["rows-changelog"]
    (topic,) = build(a_table, REUSE).subtopologies[0].changelog_topics
    assert (topic.name, topic.is_source, dict(topic.configs)["cleanup.policy"]) == ("in", True, "compact")


def test_a_join_with_itself_has_one_store() -> None:
    assert len(build(joined_with_itself).subtopologies[0].stores) == 2
    (store,) = build(joined_with_itself, SELF_JOIN).subtopologies[0].stores
    assert store.name == "KSTREAM-JOINTHIS-0000000003-store"


def test_only_inner_joins_have_one_store() -> None:
    assert build(left_joined_with_itself, SELF_JOIN).digest == build(left_joined_with_itself).digest


def test_an_optimization_does_what_it_says_and_no_more() -> None:
    assert len(repartitions(build(two_counts, f"{REUSE}, {SELF_JOIN}"))) == 2
    assert changelogs(build(a_table, f"{MERGE},{SELF_JOIN}")) == ["rows-changelog"]
    assert len(build(joined_with_itself, f"{REUSE},{MERGE}").subtopologies[0].stores) == 2
    for program in PROGRAMS:
        assert build(program, "all").digest == build(program, f"{SELF_JOIN},{MERGE},{REUSE}").digest


@pytest.mark.parametrize("setting", ["most", "all,none", f"{MERGE},all"])
def test_there_is_no_such_optimization(setting: str) -> None:
    with pytest.raises(TopologyError, match=r"topology\.optimization"):
        build(two_counts, setting)


@pytest.mark.parametrize("program", PROGRAMS)
def test_building_leaves_the_program_as_it_is(program: Program) -> None:
    builder = StreamsBuilder()
    program(builder)
    before = builder.build()
    builder.build({"topology.optimization": "all"})
    assert builder.build() == before


RECORDS: list[tuple[str | None, str, int]] = [
    ("k", "ant", 0), ("k", "bee", 1), ("m", "ape", 2), ("k", "bat", 2), (None, "ass", 3), ("k", "bee", 9), ("k", "cow", 6),
    ("k", "ant", 20), ("k", "old", 1),
]  # fmt: skip


def results(topology: Topology, partitions: int = 1) -> dict[str, list[Any]]:
    with TopologyTestDriver(topology, STRINGS, partitions=partitions) as driver:
        given = driver.create_input_topic("in", serdes.string, serdes.string)
        for key, value, timestamp in RECORDS:
            given.pipe_input(key, value, timestamp)
        return {
            "counts": driver.create_output_topic("counts", serdes.string, serdes.long).read_records_to_list(),
            "joined": driver.create_output_topic("joined", serdes.string, serdes.string).read_records_to_list(),
        }


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_stay_what_they_are(program: Program) -> None:
    plain = results(build(program))
    assert plain["joined"]
    assert results(build(program, "all")) == plain


@pytest.mark.parametrize("program", [*PROGRAMS, merged_twice])
def test_results_stay_what_they_are_in_several_partitions(program: Program) -> None:
    def in_any_order(topology: Topology) -> tuple[dict[Any, Any], list[str]]:
        found = results(topology, partitions=3)
        return {record.key: record.value for record in found["counts"]}, sorted(map(str, found["joined"]))

    assert in_any_order(build(program, "all")) == in_any_order(build(program))


def test_a_merge_of_which_one_side_alone_is_repartitioned_stays_before_its_repartition() -> None:
    assert len(repartitions(build(merged_after_one_of_two, MERGE))) == 2


def test_many_merges_of_a_stream_with_a_part_of_itself_are_built_at_once() -> None:
    def program(builder: StreamsBuilder) -> None:
        stream = by_value(words(builder))
        for _ in range(60):
            stream = stream.merge(stream.filter(lambda key, value: value != "bee"))
        stream.group_by_key().count().to_stream().to("counts", value=serdes.long)

    # As many ways as steps doubled sixty times would take years.
    assert len(repartitions(build(program, MERGE))) == 1


FIXTURES = Path(__file__).parents[2] / "golden" / "optimizations"
SHOWN = [
    (REUSE, a_table),
    (MERGE, two_counts),
    (MERGE, filtered_between),
    (MERGE, merged_between),
    (SELF_JOIN, joined_with_itself),
]


def shown(topology: Topology) -> str:
    """The topology as a reader of its description sees it, and the topics and stores that it needs."""
    lines = [topology.describe().rstrip("\n"), "", f"digest: {topology.digest}"]
    for part in topology.subtopologies:
        lines += [f"repartition topic of {part.number}: {topic.name}" for topic in part.repartition_source_topics]
        lines += [f"changelog of {part.number}: {topic.name}" for topic in part.changelog_topics]
        lines += [f"store of {part.number}: {store.name}" for store in part.stores]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("optimization", "program"), SHOWN, ids=lambda each: getattr(each, "__name__", each))
def test_before_and_after_are_as_shown(optimization: str, program: Program) -> None:
    """One file for each pass and program, before and after; ``UPDATE_OPTIMIZATIONS`` in the environment writes them anew."""
    for when, topology in (("before", build(program)), ("after", build(program, optimization))):
        path = FIXTURES / f"{optimization}-{program.__name__}-{when}.txt"
        if "UPDATE_OPTIMIZATIONS" in os.environ:
            path.parent.mkdir(exist_ok=True)
            path.write_text(shown(topology), encoding="utf-8")
        assert shown(topology) == path.read_text(encoding="utf-8")


def test_every_optimization_is_shown_and_changes_something() -> None:
    assert {optimization for optimization, _ in SHOWN} == set(OPTIMIZATIONS)
    for optimization, program in SHOWN:
        assert build(program).digest != build(program, optimization).digest
    assert {path.name for path in FIXTURES.iterdir()} == {
        f"{optimization}-{program.__name__}-{when}.txt"
        for optimization, program in SHOWN
        for when in ("before", "after")
    }
