"""Joins whose sides change places: what they keep of one side is not taken for what came from the other one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import orjson
import pytest

from topology import JoinWindows, KStream, KTable, Store, StreamsBuilder, serdes
from topology.graph.diff import Verdict, diff
from topology.graph.nodes import ProcessorNode
from topology.graph.operations import basic, grouped_tables, joins, windowed
from topology.graph.operations.traits import TRAITS
from topology.graph.outline import TopologyOutline, outline
from topology.graph.topology import Topology
from topology.spec.errors import TopologyError

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
WINDOWS = JoinWindows(1_000, grace=100)
Sides = tuple[KStream[str, str], KStream[str, str]]
Program = Callable[[StreamsBuilder, str, str, str | None], object]
"""With the topics of the left and the right side, and the name of what the join keeps, if it has one."""


def both(value: str | None, other: str | None) -> str:
    return f"{value}{other}"


def streams(builder: StreamsBuilder, left: str, right: str) -> Sides:
    return builder.stream(left, **TEXT), builder.stream(right, **TEXT)


def inner(builder: StreamsBuilder, left: str, right: str, name: str | None) -> object:
    one, other = streams(builder, left, right)
    return one.join(other, both, WINDOWS, store=name)


def leftwards(builder: StreamsBuilder, left: str, right: str, name: str | None) -> object:
    one, other = streams(builder, left, right)
    return one.left_join(other, both, WINDOWS, store=name)


def outer(builder: StreamsBuilder, left: str, right: str, name: str | None) -> object:
    one, other = streams(builder, left, right)
    return one.outer_join(other, both, WINDOWS, store=name)


def named_step(builder: StreamsBuilder, left: str, right: str, name: str | None) -> object:
    one, other = streams(builder, left, right)
    return one.join(other, both, WINDOWS, name=name)


def asof(builder: StreamsBuilder, left: str, right: str, name: str | None) -> object:
    one, other = streams(builder, left, right)
    return one.join_asof(other, both, 1_000, store=name)


def asof_that_waits(builder: StreamsBuilder, left: str, right: str, name: str | None) -> object:
    one, other = streams(builder, left, right)
    return one.join_asof(other, both, 1_000, grace=100, store=name)


def foreign_key(builder: StreamsBuilder, left: str, right: str, name: str | None) -> object:
    one, other = (builder.table(topic, **TEXT, store=topic) for topic in (left, right))
    return one.join(other, both, foreign_key=lambda value: value, name=name)


def stream_table(builder: StreamsBuilder, left: str, right: str, name: str | None) -> object:
    return builder.stream(left, **TEXT).join(builder.table(right, **TEXT, store=name), both)


def grace(builder: StreamsBuilder, left: str, right: str, name: str | None) -> object:
    history = Store(name, kind="versioned", retention=10_000) if name else Store(kind="versioned", retention=10_000)
    table: KTable[str, str] = builder.table(right, **TEXT, store=history)
    return builder.stream(left, **TEXT).join(table, both, grace=100, name=name and f"{name}-join")


SIDED: dict[str, tuple[Program, int]] = {
    "inner": (inner, 2),
    "left": (leftwards, 3),
    "outer": (outer, 3),
    "step": (named_step, 2),
    "as-of": (asof, 1),
    "as-of that waits": (asof_that_waits, 2),
    "foreign key": (foreign_key, 3),
    "stream and table": (stream_table, 1),
    "grace": (grace, 2),
}
"""With the number of stores and internal topics that have a side."""

ONE_INPUT = {
    joins.StreamSelfJoin,
    joins.TableJoinMerge,
    joins.StreamGlobalTableJoin,
    basic.TableSource,
    basic.TableFilter,
    basic.TableMapValues,
    basic.Aggregate,
    grouped_tables.TableAggregate,
    grouped_tables.TableTransformValues,
    windowed.SlidingAggregate,
    windowed.CountWindowAggregate,
    windowed.SessionAggregate,
    windowed.TableMerge,
    windowed.Suppress,
}
"""What they keep is of all that feeds them, or of a topic that is its changelog."""


def version(program: Program, left: str = "a", right: str = "b", name: str | None = "st") -> TopologyOutline:
    return outline(topology(program, left, right, name))


def topology(program: Program, left: str, right: str, name: str | None) -> Topology:
    builder = StreamsBuilder()
    program(builder, left, right, name)
    return builder.build()


def test_every_operation_with_a_store_is_swapped_here_or_has_one_input() -> None:
    named = {"store", "shared", "buffer", "waiting", "closed"}
    with_stores = {kind for kind in TRAITS if named & {field.name for field in fields(kind)}}
    swapped = {
        type(node.operation)
        for program, _ in SIDED.values()
        for part in topology(program, "a", "b", "st").subtopologies
        for node in part.nodes
        if isinstance(node, ProcessorNode)
    }
    assert with_stores - swapped <= ONE_INPUT
    assert with_stores & {kind for kind in vars(joins).values() if isinstance(kind, type)} <= swapped | ONE_INPUT


@pytest.mark.parametrize("name", ["st", None])
@pytest.mark.parametrize("join", SIDED)
def test_swapped_sides_are_incompatible_with_what_helps(join: str, name: str | None) -> None:
    program, expected = SIDED[join]
    old, new = version(program, "a", "b", name), version(program, "b", "a", name)
    found = diff(old, new)
    if join == "stream and table" and name is None:
        assert found.verdict is not Verdict.SAME, "the store is named after its topic or its number"
        return
    assert found.verdict is Verdict.INCOMPATIBLE
    told = [change for change in found.state if "have changed places" in change.reason]
    assert len(told) == expected or (join == "grace" and name is None)
    for change in told:
        assert change.fate == "incompatible"
        assert "Keep the order of the sides, or give the join another store=" in change.reason
    again = TopologyOutline.from_json(orjson.loads(orjson.dumps(old.to_json())))
    assert diff(again, new) == found, "so it is in a file"


@pytest.mark.parametrize("join", sorted(SIDED.keys() - {"step"}))
def test_what_the_advice_says_is_accepted(join: str) -> None:
    program, _ = SIDED[join]
    found = diff(version(program), version(program, "b", "a", "other"))
    assert found.verdict is Verdict.REBUILT_OR_ORPHANED
    assert diff(version(program), version(program)).verdict is Verdict.SAME


@pytest.mark.parametrize("join", sorted(SIDED.keys() - {"step"}))
def test_a_side_that_is_read_from_another_topic_is_carried_over_and_said(join: str) -> None:
    program, _ = SIDED[join]
    for left, right in (("c", "b"), ("a", "c")):
        found = diff(version(program), version(program, left, right))
        kept = [change for change in found.state if "st" in change.name and change.fate != "rebuilt"]
        assert {change.fate for change in kept} == {"carried over"}
        if join != "foreign key" and (join, right) != ("stream and table", "b"):
            assert any("the rows that it has stay. If it is another table now" in change.reason for change in kept)


@pytest.mark.parametrize("join", ["inner", "outer", "as-of", "foreign key"])
def test_a_generated_name_of_another_join_is_incompatible(join: str) -> None:
    program, _ = SIDED[join]
    found = diff(version(program, name=None), version(program, "c", "d", None))
    told = [change for change in found.state if "a generated name that means something else" in change.reason]
    assert told
    assert {change.fate for change in told} == {"incompatible"}
    if join != "foreign key":
        assert all("Keep the steps in front of it, or give the join another store=" in each.reason for each in told)


def test_a_side_that_takes_the_place_of_the_other_one_is_not_another_topic() -> None:
    for left, right in (("b", "c"), ("c", "a")):
        assert diff(version(inner), version(inner, left, right)).verdict is Verdict.INCOMPATIBLE


def test_what_changes_in_front_of_a_side_is_no_swap() -> None:
    def widened(builder: StreamsBuilder, left: str, right: str, name: str | None) -> object:
        one, other = streams(builder, left, right)
        return one.filter(lambda _k, _v: True).merge(builder.stream("c", **TEXT)).join(other, both, WINDOWS, store=name)

    found = diff(version(inner), version(widened))
    assert found.verdict is Verdict.CARRIED_OVER
    assert not any(change.reason for change in found.state)
    swapped = diff(version(inner), version(widened, "b", "a"))
    assert {change.fate for change in swapped.state} == {"incompatible"}


def test_sides_of_one_topic_are_told_apart_by_their_functions() -> None:
    def of_one_topic(first: Callable[[str], str], second: Callable[[str], str]) -> TopologyOutline:
        builder = StreamsBuilder()
        stream = builder.stream("a", **TEXT)
        stream.map_values(first).join(stream.map_values(second), both, WINDOWS, **TEXT, store="st")
        return outline(builder.build())

    def begin(value: str) -> str:
        return value[:1]

    def end(value: str) -> str:
        return value[-1:]

    def edited(value: str) -> str:
        return value[:2]

    swapped = diff(of_one_topic(begin, end), of_one_topic(end, begin))
    assert swapped.verdict is Verdict.INCOMPATIBLE
    assert all("with other functions" in change.reason for change in swapped.state)
    for first, second in ((edited, end), (begin, edited), (end, edited), (begin, begin)):
        assert diff(of_one_topic(begin, end), of_one_topic(first, second)).verdict is not Verdict.INCOMPATIBLE


def test_sides_that_bring_their_stores_along_keep_them() -> None:
    def joined(*, swapped: bool) -> TopologyOutline:
        builder = StreamsBuilder()
        window: dict[str, Any] = {"kind": "window", "retention": WINDOWS.retention_ms, "window_size": WINDOWS.size_ms}
        stores = [Store(name, **window, retain_duplicates=True) for name in ("of-a", "of-b")]
        one, other = streams(builder, "a", "b")
        if swapped:
            other.join(one, both, WINDOWS, store=(stores[1], stores[0]))
        else:
            one.join(other, both, WINDOWS, store=(stores[0], stores[1]))
        return outline(builder.build())

    found = diff(joined(swapped=False), joined(swapped=True))
    assert {change.name: change.fate for change in found.state} == {"of-a": "carried over", "of-b": "carried over"}


def test_two_given_names_that_changed_places_are_incompatible() -> None:
    def counted(first: str, second: str, *topics: str) -> TopologyOutline:
        builder = StreamsBuilder()
        for topic, store in zip(topics or ("a", "b"), (first, second), strict=True):
            builder.stream(topic, **TEXT).group_by_key().count(store=store)
        return outline(builder.build())

    found = diff(counted("x", "y"), counted("y", "x"))
    assert {change.fate for change in found.state} == {"incompatible"}
    assert "it was Aggregate of a and is Aggregate of b, and y the other way round" in found.state[0].reason
    assert diff(counted("x", "y"), counted("x", "y", "b", "c")).verdict is Verdict.CARRIED_OVER


@pytest.mark.parametrize("join", sorted(SIDED.keys() - {"foreign key", "step"}))
def test_stores_of_joins_are_asked_for_names_where_all_need_some(join: str) -> None:
    program, _ = SIDED[join]
    config = {"ensure.explicit.internal.resource.naming": True}
    for name in ("st", None):
        builder = StreamsBuilder()
        program(builder, "a", "b", name)
        if name is None:
            with pytest.raises(TopologyError, match="these have no name of their own: store "):
                builder.build(config)
        else:
            builder.build(config)


def test_an_outline_without_sides_is_not_compared_by_them() -> None:
    value = orjson.loads(orjson.dumps(version(inner).to_json()))
    for origin in value["origins"].values():
        del origin["sides"]
    assert diff(TopologyOutline.from_json(value), version(inner, "b", "a")).verdict is Verdict.CARRIED_OVER
