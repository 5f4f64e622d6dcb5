"""What a new version does to state that is there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology import Store, StreamsBuilder, TimeWindows, serdes
from topology.graph.diff import TopologyDiff, Verdict, diff
from topology.graph.outline import outline

Program = Callable[[StreamsBuilder], object]


def compare(old: list[Program], new: list[Program], epoch: int = 0) -> TopologyDiff:
    outlines = []
    for programs in (old, new):
        builder = StreamsBuilder()
        for program in programs:
            program(builder)
        outlines.append(outline(builder.build(epoch=epoch)))
    return diff(*outlines)


def fates(found: TopologyDiff) -> dict[str, str]:
    return {change.name: change.fate for change in found.state}


def reason(found: TopologyDiff, name: str) -> str:
    return next(change.reason for change in found.state if change.name == name)


def counting(
    topic: str, *, store: Store | str | None = None, filtered: bool = False, key: serdes.Serde[str] = serdes.string
) -> Program:
    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream(topic, key=key, value=serdes.string)
        if filtered:
            stream = stream.filter(lambda _key, _value: True)
        stream.group_by_key().count(store=store or f"{topic}-counts")

    return program


def windowed(size_s: int, grace_s: int = 60) -> Program:
    def program(builder: StreamsBuilder) -> None:
        windows = TimeWindows(timedelta(seconds=size_s), grace=timedelta(seconds=grace_s))
        stream = builder.stream("clicks", key=serdes.string, value=serdes.string)
        stream.group_by_key().windowed_by(windows).count(store="clicks-per-window")

    return program


def regrouping(partitions: int | None = None) -> Program:
    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream("orders", key=serdes.string, value=serdes.string)
        stream.repartition(partitions=partitions, name="orders").group_by_key().count(store="orders-counts")

    return program


def test_the_same_program_needs_nothing() -> None:
    found = compare([counting("a")], [counting("a")], epoch=4)
    assert (found.verdict, found.epoch_before, found.epoch_needed) == (Verdict.SAME, 4, 4)
    assert [change.change for change in found.subtopologies] == ["same"]


@pytest.mark.requirement("SG-123")
def test_every_change_needs_the_next_epoch_also_the_way_back() -> None:
    forth = compare([counting("a")], [counting("a", filtered=True)], epoch=4)
    back = compare([counting("a", filtered=True)], [counting("a")], epoch=5)
    assert [(each.verdict, each.epoch_needed) for each in (forth, back)] == [
        (Verdict.CARRIED_OVER, 5),
        (Verdict.CARRIED_OVER, 6),
    ]
    assert fates(forth) == fates(back) == {"a-counts": "carried over"}


def test_a_subtopology_in_front_renumbers_and_carries_over() -> None:
    found = compare([counting("a")], [counting("new"), counting("a")])
    by_change = {change.change: change for change in found.subtopologies}
    assert set(by_change) == {"new", "changed"}
    assert (by_change["changed"].number_before, by_change["changed"].number_after) == (0, 1)
    assert fates(found) == {"new-counts": "rebuilt", "a-counts": "carried over"}
    assert found.verdict is Verdict.REBUILT_OR_ORPHANED


def test_a_store_that_is_gone_is_left_behind_with_its_changelog() -> None:
    found = compare([counting("a"), counting("b")], [counting("a")])
    assert fates(found) == {"a-counts": "carried over", "b-counts": "orphaned"}
    assert "b-counts-changelog" in reason(found, "b-counts")
    assert [change.change for change in found.subtopologies] == ["same", "gone"]
    unlogged = compare([counting("a", store=Store("x", logging=False)), counting("b")], [counting("b")])
    assert reason(unlogged, "x") == "gone: it had no changelog"


def test_other_bytes_under_the_same_name_are_incompatible() -> None:
    for old, new, said in (
        (windowed(60), windowed(120), "window_size_ms 60000 -> 120000"),
        (counting("a"), counting("a", key=serdes.json), "key_serde string -> json"),
        (counting("clicks", store="clicks-per-window"), windowed(60), "kind key_value -> window"),
    ):
        found = compare([old], [new])
        assert found.verdict is Verdict.INCOMPATIBLE
        (change,) = found.state
        assert change.fate == "incompatible"
        assert said in change.reason
        assert "another name" in change.reason


def test_a_changelog_that_comes_or_goes_begins_anew() -> None:
    logged, unlogged = counting("a", store=Store("x")), counting("a", store=Store("x", logging=False))
    assert reason(compare([unlogged], [logged]), "x") == "its changelog was none and is x-changelog: it starts empty"
    assert fates(compare([logged], [unlogged])) == {"x": "rebuilt"}


def test_where_a_store_lies_and_how_long_it_keeps_does_not_change_its_bytes() -> None:
    found = compare(
        [counting("a", store=Store("x", in_memory=False))], [counting("a", store=Store("x", in_memory=True))]
    )
    assert fates(found) == {"x": "carried over"}
    assert "restored from its changelog" in reason(found, "x")
    found = compare([windowed(60, 60)], [windowed(60, 600)])
    assert fates(found) == {"clicks-per-window": "carried over"}
    assert reason(found, "clicks-per-window").startswith("retention")
    assert found.verdict is Verdict.CARRIED_OVER


def test_repartition_topics() -> None:
    assert fates(compare([counting("a")], [counting("a"), regrouping()]))["orders-repartition"] == "rebuilt"
    assert fates(compare([counting("a"), regrouping()], [counting("a")]))["orders-repartition"] == "orphaned"
    assert fates(compare([regrouping(4)], [regrouping(4), counting("a")]))["orders-repartition"] == "carried over"
    found = compare([regrouping(4)], [regrouping()])
    assert found.verdict is Verdict.INCOMPATIBLE
    assert "partitions 4 -> derived" in reason(found, "orders-repartition")


TOPICS = st.lists(st.sampled_from("abcdef"), unique=True, min_size=1)


@given(TOPICS, TOPICS)
def test_each_store_and_each_subtopology_is_told_of_once(old: list[str], new: list[str]) -> None:
    found = compare([counting(topic) for topic in old], [counting(topic) for topic in new])
    told = [change.name for change in found.state]
    assert sorted(told) == sorted(f"{topic}-counts" for topic in {*old, *new})
    assert {name for name, fate in fates(found).items() if fate == "carried over"} == {
        f"{topic}-counts" for topic in {*old} & {*new}
    }
    ids = [change.id for change in found.subtopologies]
    assert len(ids) == len(set(ids)) == len({*old, *new})
    assert (found.verdict is Verdict.SAME) == (old == new)
