"""What is late stays late in another version of the application: stream times are committed under their stores' names."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from streamsrt.tasks.input.offset_metadata import partition_metadata
from streamsrt.tasks.input.stream_time_keys import committed_times, stream_time_keys
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.topology.graph.test_rereading import PROGRAMS, built
from topology import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)
from topology.graph.diff import diff
from topology.graph.outline import outline
from topology.graph.topology import Topology

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
SIZE_MS = 100
JOINED = JoinWindows(50, grace=20)
Named = Callable[[str], str | Store]
"""The store of a name: in the other version it may have another one."""
Program = Callable[[Any, Any, StreamsBuilder, Named], Any]


def both(one: str | None, other: str | None) -> str:
    return f"{one}{other}"


def counted(windows: Any, emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE) -> Program:
    return lambda a, _b, _builder, named: (
        a.group_by_key().windowed_by(windows).emit_strategy(emit).count(store=named("c"))
    )


def suppressed(a: Any, _: Any, __: StreamsBuilder, named: Named) -> Any:
    windows = a.group_by_key().windowed_by(TimeWindows(SIZE_MS, grace=0))
    return windows.count(store=named("c")).suppress(Suppressed.until_window_closes(), name="s")


def suppressed_for_a_time(a: Any, _: Any, __: StreamsBuilder, named: Named) -> Any:
    return a.group_by_key().count(store=named("c")).suppress(Suppressed.until_time_limit(60), name="s")


def cogrouped(a: Any, b: Any, _: StreamsBuilder, named: Named) -> Any:
    def add(_key: str, value: str, so_far: str) -> str:
        return so_far + value

    kept = named("c")
    store = (
        Store(kept, value=serdes.string) if isinstance(kept, str) else Store("d", value=serdes.string, renamed_from="c")
    )
    together = a.group_by_key().cogroup(add).cogroup(b.group_by_key(), add)
    return together.windowed_by(TimeWindows(SIZE_MS, grace=0)).aggregate(str, store=store)


def joined_with_versions(a: Any, _: Any, builder: StreamsBuilder, named: Named) -> Any:
    rows = builder.table("rows", **TEXT, store=Store("v", kind="versioned", retention=100_000))
    return a.join(rows, both, grace=100, name="j")


CLOSE = EmitStrategy.ON_WINDOW_CLOSE
WINDOWED: dict[str, Program] = {
    "tumbling": counted(TimeWindows(SIZE_MS, grace=0)),
    "hopping": counted(TimeWindows(SIZE_MS, advance=40, grace=50)),
    "sliding": counted(SlidingWindows(50, grace=50)),
    "sessions": counted(SessionWindows(30, grace=50)),
    "tumbling, on close": counted(TimeWindows(SIZE_MS, grace=20), CLOSE),
    "sliding, on close": counted(SlidingWindows(50, grace=20), CLOSE),
    "sessions, on close": counted(SessionWindows(30, grace=20), CLOSE),
    "cogroup": cogrouped,
    "suppressed until windows close": suppressed,
    "suppressed for a time": suppressed_for_a_time,
    "join": lambda a, b, _, __: a.join(b, both, JOINED, store="j"),
    "left join": lambda a, b, _, __: a.left_join(b, both, JOINED, store="j"),
    "outer join": lambda a, b, _, __: a.outer_join(b, both, JOINED, store="j"),
    "self-join": lambda a, _, __, ___: a.join(a, both, JOINED, store="j"),
    "as-of join": lambda a, b, _, named: a.join_asof(b, both, 60, how="left", store=named("j")),
    "as-of join that waits": lambda a, b, _, named: a.join_asof(b, both, 60, how="left", grace=20, store=named("j")),
    "join of versions": joined_with_versions,
}


def version(program: Program, *, longer: bool = False, renamed: bool = False) -> Topology:
    """``longer``: with an unnamed step in front; ``renamed``: with another name of its store."""
    builder = StreamsBuilder()
    streams = [builder.stream(topic, **TEXT) for topic in "ab"]
    if longer:
        streams = [each.map_values(lambda value: value) for each in streams]

    def named(store: str) -> str | Store:
        return Store("d", renamed_from=store) if renamed else store

    made = program(*streams, builder, named)
    results = made.to_stream() if hasattr(made, "to_stream") else made
    results.map(lambda key, value: (f"{key}", f"{value}")).to("out", **TEXT)
    return builder.build({"topology.optimization": "single.store.self.join"})


def results(before: Topology, after: Topology, seed: int) -> list[Any]:
    """Of random records, many of them late, with restarts as the one version and the other."""
    random, time_ms = Random(seed), 0
    read = {topic for part in before.subtopologies for topic in part.source_topics}
    with TopologyTestDriver(before, {"statestore.cache.max.bytes": 0}) as driver:
        for index in range(90):
            if index in (30, 60):
                driver.restart(topology=after if index == 30 else before)
            time_ms += random.choice((0, 3, 9, 30))
            topic, key = random.choice(("a", "a", "b", "rows")), f"k{random.randrange(3)}"
            at_ms = max(0, time_ms - random.choice((0, 0, 20, 90, 200)))
            if topic in read:
                driver.pipe_raw(topic, key.encode(), f"{index};".encode(), at_ms)
        return [(each.key, each.value, each.timestamp) for each in driver.output_queue("out")]


@pytest.mark.parametrize("changes", [{"longer": True}, {"longer": True, "renamed": True}])
@pytest.mark.parametrize("name", WINDOWED)
def test_another_version_gives_what_the_same_one_gives(name: str, changes: dict[str, bool]) -> None:
    before, after = version(WINDOWED[name]), version(WINDOWED[name], **changes)
    for seed in range(2):
        wanted = results(before, version(WINDOWED[name]), seed)
        assert wanted
        assert results(before, after, seed) == wanted


def of(topology: Topology) -> set[str]:
    return {name for part in topology.subtopologies for name in stream_time_keys(part).values()}


@pytest.mark.parametrize("name", [*PROGRAMS, *WINDOWED])
def test_every_stream_time_has_a_name_that_other_versions_know(name: str) -> None:
    """The programs have every operation that keeps something."""
    topology = version(WINDOWED[name]) if name in WINDOWED else built(PROGRAMS[name])
    read = {topic for part in topology.subtopologies for topic in part.source_topics}
    with TopologyTestDriver(topology) as driver:
        for topic in sorted(read):
            driver.pipe_raw(topic, b"k", b"v", 5)
        times = [task.operator_times() for task in driver._tasks]
    assert {key for each in times for key in each} <= of(topology)
    if name in WINDOWED:
        assert any(times)


def test_windows_that_were_closed_stay_closed_behind_a_new_step() -> None:
    with TopologyTestDriver(version(suppressed)) as driver:
        for at_ms in (10, 20, 250):
            driver.pipe_raw("a", b"a", b"x", at_ms)
        driver.restart(topology=version(suppressed, longer=True))
        for at_ms in (30, 260, 400):
            driver.pipe_raw("a", b"a", b"x", at_ms)
        assert [each.value for each in driver.output_queue("out")] == [b"2", b"2"]


def behind_a_repartition(name: str) -> Topology:
    builder = StreamsBuilder()
    streams = [builder.stream(topic, **TEXT).repartition(name=f"{topic}-again", **TEXT) for topic in "ab"]
    made = WINDOWED[name](*streams, builder, lambda store: store)
    results = made.to_stream() if hasattr(made, "to_stream") else made
    results.map(lambda key, value: (f"{key}", f"{value}")).to("out", **TEXT)
    return builder.build({"topology.optimization": "single.store.self.join"})


@pytest.mark.parametrize("name", WINDOWED)
def test_an_operator_that_loses_its_stream_time_is_named(name: str) -> None:
    before, after = version(WINDOWED[name]), behind_a_repartition(name)
    found = diff(outline(before), outline(after))
    lost = {each.name for each in found.state if "it starts without one" in each.reason}
    own = {key.removeprefix("@").partition("#")[0] for key in of(after)}
    unwindowed = {"c"} if name == "suppressed for a time" else set()
    if name == "join of versions":
        # The table's topic stays an input: its offsets have the time.
        assert not lost
    else:
        assert lost >= own - unwindowed
        assert not lost & unwindowed
    again = diff(outline(before), outline(version(WINDOWED[name], longer=True)))
    assert not any("stream time" in each.reason for each in again.state)


def test_times_under_the_names_of_operators_are_read() -> None:
    part = next(each for each in version(counted(TimeWindows(SIZE_MS))).subtopologies if each.stores)
    (name,) = stream_time_keys(part)
    assert committed_times(partition_metadata(7, {name: 5}), part) == (7, {"@c": 5})
    assert committed_times(partition_metadata(7, {name: 9, "@c": 5}), part) == (7, {"@c": 5})
    assert committed_times("something else", part) is None


def test_streams_of_a_cogroup_have_their_own_times() -> None:
    assert of(version(cogrouped)) == of(version(cogrouped, longer=True, renamed=True)) == {"@c", "@c#1"}
