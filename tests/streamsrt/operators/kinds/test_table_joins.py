"""Joins of tables beside plain Python: whatever caches hold back, the last results are those of the last rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import pytest

from streamsrt import TopologyTestDriver
from topology import SessionWindows, Store, StreamsBuilder, TimeWindows, Topology, Windowed, serdes
from topology.dsl.streams_and_tables import KTable
from topology.graph.operations.joins import JoinKind

Rows: TypeAlias = Mapping[str, str]
TEXT = serdes.string
KINDS: tuple[JoinKind, ...] = ("inner", "left", "outer")
METHODS = {"inner": "join", "left": "left_join", "outer": "outer_join"}


def joined_text(left: object, right: object) -> str:
    return f"{left}+{right}"


def is_low(_: object, value: str) -> bool:
    return value < "c"


DERIVED: dict[str, tuple[Callable[[KTable[Any, Any]], KTable[Any, Any]], Callable[[str], str | None]]] = {
    "itself": (lambda table: table, lambda value: value),
    "its filter": (lambda table: table.filter(is_low), lambda value: value if is_low(None, value) else None),
    "its mapper": (lambda table: table.map_values(str.upper), str.upper),
}


class Program(NamedTuple):
    """``caches``: whether the left table, the right one and the join's store (None: it has none) hold changes back.
    ``right``: what of the left table the right one is; empty: a table of its own."""

    kind: JoinKind
    caches: tuple[bool, bool, bool | None]
    right: str
    grouped: bool

    @property
    def topology(self) -> Topology:
        builder = StreamsBuilder()
        left_cached, right_cached, kept = self.caches
        left = builder.table("A", key=TEXT, value=TEXT, store=Store("a", caching=left_cached))
        if self.right:
            right = DERIVED[self.right][0](left)
        else:
            right = builder.table("B", key=TEXT, value=TEXT, store=Store("b", caching=right_cached))
        store = {} if kept is None else {"store": Store("j", key=TEXT, value=TEXT, caching=kept)}
        result = getattr(left, METHODS[self.kind])(right, joined_text, **store)
        result.to_stream().to("results", key=TEXT, value=TEXT)
        if self.grouped:
            groups = result.group_by(lambda key, value: (value, key), key=TEXT, value=TEXT)
            groups.count(store="groups")
        return builder.build()

    def results(self, left: Rows, right: Rows) -> Rows:
        if self.right:
            derive = DERIVED[self.right][1]
            right = {key: value for key, own in left.items() if (value := derive(own)) is not None}
        keys = {"inner": left.keys() & right.keys(), "left": left.keys(), "outer": left.keys() | right.keys()}
        return {key: joined_text(left.get(key), right.get(key)) for key in keys[self.kind]}


ALONE = [
    Program(kind, (left, right, kept), "", grouped)
    for kind, left, right, kept, grouped in product(
        KINDS, (True, False), (True, False), (None, True, False), (True, False)
    )
]
OF_ONE_TABLE = [
    Program(kind, (cached, cached, kept), right, grouped)
    for kind, cached, kept, right, grouped in product(KINDS, (True, False), (None, True, False), DERIVED, (True, False))
    if not grouped or kept is not None
]


def changed(rows: dict[str, str], chance: random.Random) -> tuple[str, str | None]:
    key, value = chance.choice("kl"), chance.choice(("a", "b", "c", None))
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value
    return key, value


@pytest.mark.parametrize("program", ALONE + OF_ONE_TABLE, ids=str)
def test_the_last_results_are_those_of_the_last_rows(program: Program) -> None:
    topology = program.topology
    for seed in range(2):
        chance = random.Random(seed)
        rows: dict[str, dict[str, str]] = {"A": {}, "B": {}}
        with TopologyTestDriver(topology, commit="manual", generate=seed % 2 == 0) as driver:
            inputs = {topic: driver.create_input_topic(topic, TEXT, TEXT) for topic in ("A" if program.right else "AB")}
            results: dict[str, str | None] = {}
            output = driver.create_output_topic("results", TEXT, TEXT)
            for number in range(60):
                topic = chance.choice(list(inputs))
                inputs[topic].pipe_input(*changed(rows[topic], chance), number)
                if chance.random() < 0.3:
                    driver.commit()
                    results.update(output.read_key_values_to_list())
                    wanted = program.results(rows["A"], rows["B"])
                    assert {key: value for key, value in results.items() if value is not None} == wanted, number
                    if program.caches[2] is not None:
                        assert dict(driver.get_key_value_store("j").all()) == wanted
                    if program.grouped:
                        groups = dict(driver.get_key_value_store("groups").all())
                        assert +Counter(groups) == Counter(wanted.values())
                        assert min(groups.values(), default=0) >= 0


@pytest.mark.parametrize("windowed", [True, False], ids=["windows", "sessions"])
@pytest.mark.parametrize("generate", [True, False])
def test_windows_of_two_aggregates_are_grouped_once(windowed: bool, generate: bool) -> None:
    """Both aggregates of a stream change between two flushes."""
    builder = StreamsBuilder()
    grouped = builder.stream("words", key=TEXT, value=TEXT).group_by_key()
    windows: Any = TimeWindows(10) if windowed else SessionWindows(5)
    counts = grouped.windowed_by(windows).count()
    longest = grouped.windowed_by(windows).reduce(max)
    joined: KTable[Windowed[str], str] = counts.join(longest, joined_text)
    joined.group_by(lambda window, value: (window.key, value), key=TEXT, value=TEXT).count(store="windows")
    with TopologyTestDriver(builder.build(), commit="manual", generate=generate) as driver:
        words = driver.create_input_topic("words", TEXT, TEXT)
        for time in (0, 1, 20, 21, 40):
            words.pipe_input("k", "abc"[time % 3], time)
            if time in (1, 21):
                driver.commit()
        driver.commit()
        assert dict(driver.get_key_value_store("windows").all()) == {"k": 3}


@pytest.mark.parametrize("generate", [True, False])
def test_a_windowed_table_that_is_ahead_lets_no_rows_of_the_other_one_expire(generate: bool) -> None:
    """The join looks for windows of one table in the other, which has none that are as late."""
    builder = StreamsBuilder()

    def counts(topic: str) -> KTable[Windowed[str], int]:
        grouped = builder.stream(topic, key=TEXT, value=TEXT).group_by_key()
        return grouped.windowed_by(TimeWindows(10, grace=10)).count(store=Store(topic, retention=20))

    counts("A").join(counts("B"), joined_text).to_stream().to("results", key=serdes.time_windowed(TEXT, 10), value=TEXT)
    with TopologyTestDriver(builder.build(), generate=generate) as driver:
        ahead, behind = (driver.create_input_topic(topic, TEXT, TEXT) for topic in "AB")
        behind.pipe_input("k", "first", 0)
        ahead.pipe_input("k", "much later", 1_000_000)
        behind.pipe_input("k", "second", 1)
        assert driver.get_window_store("B").fetch("k", 0) == 2


def test_a_join_of_joins_is_grouped_once() -> None:
    builder = StreamsBuilder()
    first, second, third = (builder.table(topic, key=TEXT, value=TEXT) for topic in "ABC")
    result = first.join(second, joined_text).left_join(third, joined_text)
    result.group_by(lambda key, value: (value, key), key=TEXT, value=TEXT).count(store="groups")
    topology = builder.build()
    for seed in range(20):
        chance = random.Random(seed)
        rows: dict[str, dict[str, str]] = {topic: {} for topic in "ABC"}
        with TopologyTestDriver(topology, commit="manual", generate=seed % 2 == 0) as driver:
            for number in range(60):
                topic = chance.choice("ABC")
                driver.create_input_topic(topic, TEXT, TEXT).pipe_input(*changed(rows[topic], chance), number)
                if chance.random() < 0.3:
                    driver.commit()
                    both = {
                        key: joined_text(rows["A"][key], rows["B"][key]) for key in rows["A"].keys() & rows["B"].keys()
                    }
                    wanted = Counter(joined_text(value, rows["C"].get(key)) for key, value in both.items())
                    assert +Counter(dict(driver.get_key_value_store("groups").all())) == wanted, (seed, number)


@pytest.mark.parametrize("kind", ["inner", "left"])
@pytest.mark.parametrize("stays", [True, False])
def test_a_foreign_row_that_came_and_went_is_in_no_result(kind: JoinKind, stays: bool) -> None:
    """A left row asks for it in between, while a cache holds it back."""
    builder = StreamsBuilder()
    left = builder.table("A", key=TEXT, value=TEXT, store=Store("a", caching=False))
    right = builder.table("B", key=TEXT, value=TEXT)
    result = getattr(left, METHODS[kind])(right, joined_text, foreign_key=lambda value: value)
    result.to_stream().to("results", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder.build(), commit="manual") as driver:
        rows, foreign = (driver.create_input_topic(topic, TEXT, TEXT) for topic in "AB")
        foreign.pipe_input("f", "1", 0)
        rows.pipe_input("k", "f", 1)
        if not stays:
            foreign.pipe_input("f", None, 2)
        driver.commit()
        results = dict(driver.create_output_topic("results", TEXT, TEXT).read_key_values_to_list())
    without = {"k": "f+None"} if kind == "left" else {}
    assert results == ({"k": "f+1"} if stays else without)
