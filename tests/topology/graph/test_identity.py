"""The rules of ids and digests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology import NameInUseError, Store, StreamsBuilder, TimeWindows, Topology, serdes
from topology.graph.identity import subtopology_id

Program = Callable[[StreamsBuilder], object]


def made(*programs: Program) -> Topology:
    builder = StreamsBuilder()
    for program in programs:
        program(builder)
    return builder.build()


def counting(store: str, topic: str = "orders", steps: int = 0) -> Program:
    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream(topic, key=serdes.string, value=serdes.string)
        for _ in range(steps):
            stream = stream.filter(lambda key, value: True)
        stream.group_by_key().count(store=store).to_stream().to(f"{store}-out")

    return program


def copying(topic: str, steps: int = 0) -> Program:
    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream(topic)
        for _ in range(steps):
            stream = stream.peek(lambda key, value: None)
        stream.to(f"{topic}-copy")

    return program


def regrouping(store: str, topic: str) -> Program:
    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream(topic, key=serdes.string, value=serdes.string)
        stream.group_by(lambda key, value: value, name=store).count(store=store)

    return program


def ids(topology: Topology) -> dict[tuple[str, ...], str]:
    return {
        subtopology.source_topics + tuple(topic.name for topic in subtopology.repartition_source_topics): subtopology.id
        for subtopology in topology.subtopologies
    }


PARTS = st.lists(
    st.tuples(st.sampled_from(["count", "copy", "regroup"]), st.integers(0, 3)), min_size=1, max_size=5
).map(lambda parts: [(kind, f"t{index}", steps) for index, (kind, steps) in enumerate(parts)])


def part(kind: str, topic: str, steps: int) -> Program:
    if kind == "count":
        return counting(f"store-{topic}", topic, steps)
    return copying(topic, steps) if kind == "copy" else regrouping(f"store-{topic}", topic)


@given(PARTS, st.integers(0, 5), st.integers(0, 3))
def test_ids_stay_when_a_subtopology_or_a_stateless_step_is_inserted(
    parts: list[tuple[str, str, int]], at: int, more_steps: int
) -> None:
    programs = [part(*one) for one in parts]
    before = ids(made(*programs))
    at = min(at, len(programs))
    after = ids(made(*programs[:at], copying("inserted", more_steps), *programs[at:]))
    assert {owned: after[owned] for owned in before} == before
    longer = ids(made(*(part(kind, topic, steps + more_steps) for kind, topic, steps in parts)))
    assert longer == before


@given(PARTS)
def test_ids_are_distinct_and_digests_repeat(parts: list[tuple[str, str, int]]) -> None:
    programs = [part(*one) for one in parts]
    one, other = made(*programs), made(*programs)
    assert len({subtopology.id for subtopology in one.subtopologies}) == len(one.subtopologies)
    assert [s.digest for s in one.subtopologies] == [s.digest for s in other.subtopologies]
    assert one.digest == other.digest


def test_an_id_is_what_the_subtopology_owns() -> None:
    assert subtopology_id(["a-changelog"], ["r"], ["t"], []) == subtopology_id(["a-changelog"], [], ["other"], ["x.*"])
    assert subtopology_id([], ["r"], ["t"], []) == subtopology_id([], ["r"], ["other"], [])
    assert subtopology_id([], [], ["t", "u"], []) == subtopology_id([], [], ["u", "t"], [])
    different = [
        subtopology_id(["a"], [], [], []),
        subtopology_id([], ["a"], [], []),
        subtopology_id([], [], ["a"], []),
        subtopology_id([], [], [], ["a"]),
        subtopology_id(["a", "b"], [], [], []),
    ]
    assert len(set(different)) == len(different)
    assert all(len(one) == 8 and int(one, 16) >= 0 for one in different)


def test_a_store_without_changelog_does_not_make_the_id() -> None:
    def program(logging: bool, name: str) -> Program:
        return lambda builder: (
            builder.stream("t", key=serdes.string).group_by_key().count(store=Store(name, logging=logging))
        )

    assert ids(made(program(False, "a"))) == ids(made(program(False, "b"))) == ids(made(copying("t")))
    assert ids(made(program(True, "a"))) != ids(made(program(True, "b")))


def test_two_subtopologies_with_one_id_are_refused() -> None:
    seen: dict[str, str] = {}
    for number in range(1 << 20):
        name = f"s{number}"
        other = seen.setdefault(subtopology_id([f"{name}-changelog"], [], [], []), name)
        if other != name:
            break
    with pytest.raises(NameInUseError, match="same id"):
        made(counting(name, "a"), counting(other, "b"))


def test_code_has_no_part_in_the_digest() -> None:
    def plain(builder: StreamsBuilder) -> None:
        builder.stream("t").filter(lambda key, value: value > 1).map_values(lambda value: value).to("o")

    def rewritten(builder: StreamsBuilder) -> None:
        stream = builder.stream("t")
        stream = stream.filter_not(lambda key, value: key is None)
        stream.map_values(lambda key, value: (key, value), with_key=True).to("o")

    assert made(plain).digest == made(rewritten).digest


def base(builder: StreamsBuilder) -> None:
    grouped = builder.stream("t", key=serdes.string, value=serdes.string).group_by_key()
    grouped.windowed_by(TimeWindows(1000)).count(store="c").to_stream().to("o")


def changed_programs() -> dict[str, Program]:
    def windowed(windows: TimeWindows, store: str | Store = "c", topic: str = "t", out: str = "o") -> Program:
        def program(builder: StreamsBuilder) -> None:
            grouped = builder.stream(topic, key=serdes.string, value=serdes.string).group_by_key()
            grouped.windowed_by(windows).count(store=store).to_stream().to(out)

        return program

    def value_serde(builder: StreamsBuilder) -> None:
        grouped = builder.stream("t", key=serdes.string, value=serdes.long).group_by_key()
        grouped.windowed_by(TimeWindows(1000)).count(store="c").to_stream().to("o")

    def reduced(builder: StreamsBuilder) -> None:
        grouped = builder.stream("t", key=serdes.string, value=serdes.string).group_by_key()
        grouped.windowed_by(TimeWindows(1000)).reduce(max, store="c").to_stream().to("o")

    def partitioned(builder: StreamsBuilder) -> None:
        grouped = builder.stream("t", key=serdes.string, value=serdes.string).group_by_key()
        stream = grouped.windowed_by(TimeWindows(1000)).count(store="c").to_stream()
        stream.to("o", partitioner=lambda topic, key, value, partitions: 0)

    def named(builder: StreamsBuilder) -> None:
        grouped = builder.stream("t", key=serdes.string, value=serdes.string, name="in").group_by_key()
        grouped.windowed_by(TimeWindows(1000)).count(store="c").to_stream().to("o")

    def one_step_more(builder: StreamsBuilder) -> None:
        stream = builder.stream("t", key=serdes.string, value=serdes.string).peek(lambda key, value: None)
        stream.group_by_key().windowed_by(TimeWindows(1000)).count(store="c").to_stream().to("o")

    return {
        "window size": windowed(TimeWindows(2000)),
        "window advance": windowed(TimeWindows(1000, 500)),
        "grace": windowed(TimeWindows(1000, grace=1)),
        "store name": windowed(TimeWindows(1000), "d"),
        "caching": windowed(TimeWindows(1000), Store("c", caching=False)),
        "logging": windowed(TimeWindows(1000), Store("c", logging=False)),
        "changelog": windowed(TimeWindows(1000), Store("c", changelog_config={"segment.bytes": 1000})),
        "in memory": windowed(TimeWindows(1000), Store("c", in_memory=True)),
        "retention": windowed(TimeWindows(1000), Store("c", retention=5000)),
        "source topic": windowed(TimeWindows(1000), topic="u"),
        "sink topic": windowed(TimeWindows(1000), out="p"),
        "value serde": value_serde,
        "aggregation": reduced,
        "partitioner": partitioned,
        "name": named,
        "one step more": one_step_more,
    }


@pytest.mark.parametrize("what", changed_programs())
def test_structure_makes_the_digest(what: str) -> None:
    assert made(changed_programs()[what]).digest != made(base).digest


def test_the_order_of_a_sources_topics_has_no_part_in_the_digest() -> None:
    """``describe()`` and the group do not know it either."""

    def reading(*topics: str) -> Program:
        return lambda builder: builder.stream(list(topics)).to("out")

    assert made(reading("a", "b")).digest == made(reading("b", "a")).digest
    assert made(reading("a", "b")).digest != made(reading("a", "c")).digest


def test_order_and_partitions_make_the_digest() -> None:
    assert made(copying("a"), copying("b")).digest != made(copying("b"), copying("a")).digest

    def repartitioned(partitions: int) -> Program:
        return lambda builder: builder.stream("t").repartition(name="r", partitions=partitions).to("o")

    assert made(repartitioned(2)).digest != made(repartitioned(3)).digest


def test_copartition_groups_make_the_digest() -> None:
    def program(joined: bool) -> Program:
        def build(builder: StreamsBuilder) -> None:
            table = builder.table("t", key=serdes.string, value=serdes.string, store="s")
            stream = builder.stream("l", key=serdes.string, value=serdes.string)
            if joined:
                stream.join(table, lambda value, other: value, name="x").to("o")

        return build

    assert made(program(True)).digest != made(program(False)).digest


def test_configuration_does_not_change_ids_and_digests() -> None:
    topology = made(base)
    configured = topology.configured({"topic.segment.bytes": 7, "dsl.store.suppliers.class": "in_memory"})
    resolved = configured.with_default_serdes(serdes.string, serdes.json)
    for other in (configured, resolved):
        assert other.digest == topology.digest
        assert ids(other) == ids(topology)


PROGRAM = """
from topology import *
builder = StreamsBuilder()
table = builder.table("t", key=serdes.string, value=serdes.json, store="s")
stream = builder.stream(["a", "b", "c"], key=serdes.string, value=serdes.string)
stream.group_by(lambda k, v: v).count(store=Store("c", changelog_config={"x": "1", "y": "2"}))
stream.join(table, lambda v, t: v).to("o")
stores = {"d", "e", "f", "g"}
for name in "defg":
    builder.add_state_store(Store(name, key=serdes.string, value=serdes.string))
builder.stream({"h", "i", "j", "k"}, key=serdes.string, value=serdes.string).process(lambda: None, stores=stores)
topology = builder.build()
print(topology.digest, *(s.id for s in topology.subtopologies))
"""


def test_digests_are_the_same_in_every_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1


def test_digests_do_not_change_between_versions() -> None:
    """Another digest for the same program would stop every rolling upgrade of the library."""
    topology = made(base)
    assert topology.digest == "0a09afa137884d9b6680c2d40e840459"
    assert [subtopology.id for subtopology in topology.subtopologies] == ["c5b1cc59"]


@dataclass(frozen=True)
class Above:
    limit: float

    def __call__(self, key: str, value: float) -> bool:
        return value > self.limit


@dataclass
class Seen:
    times: int = 0
    values: list[float] = field(default_factory=list)


def seen(initializer: Callable[[], object]) -> Topology:
    def program(builder: StreamsBuilder) -> None:
        grouped = builder.stream("t", key=serdes.string, value=serdes.double).group_by_key()
        grouped.aggregate(initializer, lambda key, value, row: row, store="s", value=serdes.json)

    return made(program)


def kept(predicate: Callable[[str, float], object]) -> Topology:
    return made(lambda builder: builder.stream("t", key=serdes.string, value=serdes.double).filter(predicate).to("o"))


def test_functions_may_be_dataclasses() -> None:
    assert seen(Seen).digest == seen(dict).digest
    assert kept(Above(1.5)).digest == kept(Above(2)).digest == kept(lambda key, value: True).digest
