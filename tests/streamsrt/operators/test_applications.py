"""Programs of several subtopologies: interrupted or not, generated or not, cached or not, they do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streamsrt.operators.application import Application
from tests.streamsrt.operators.programs import Piped, piped
from topology import (
    EmitStrategy,
    KTable,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    serdes,
)

TEXT = {"key": serdes.string, "value": serdes.string}


class Marked:
    """Transforms rows; counts in a store how often it saw each key."""

    def init(self, context: Any) -> None:
        self.seen = context.get_state_store("seen")

    def transform(self, key: str, value: str | None) -> str | None:
        times = (self.seen.get(key) or 0) + 1
        self.seen.put(key, times)
        return None if value is None else f"{value}{times}"

    def close(self) -> None:
        """Nothing to let go."""


def add(key: str, value: str | None, aggregate: str) -> str:
    return (aggregate + (value or "-"))[-12:]


def taken(key: str, value: str, aggregate: str) -> str:
    return aggregate.replace(value, "", 1)


def group_count(builder: StreamsBuilder) -> KTable[Any, Any]:
    table = builder.table("t", store=Store("t"), **TEXT)
    return table.group_by(lambda k, v: (v, k), **TEXT).count(store="counts").map_values(str)


def group_aggregate(builder: StreamsBuilder) -> KTable[Any, Any]:
    counts = builder.stream("in", **TEXT).group_by_key().count(store="counts")
    grouped = counts.group_by(lambda k, v: (str(v), k), **TEXT)
    return grouped.aggregate(str, add, taken, store="by-count", value=serdes.string)


def group_reduce_of_windows(builder: StreamsBuilder) -> KTable[Any, Any]:
    windowed = builder.stream("in", **TEXT).group_by_key().windowed_by(TimeWindows(10, grace=5))
    grouped = windowed.count(store="counts").group_by(lambda k, v: (k.key, v), key=serdes.string, value=serdes.long)
    return grouped.reduce(lambda a, v: a + v, lambda a, v: a - v, store="total").map_values(str)


def group_of_sliding_windows(builder: StreamsBuilder) -> KTable[Any, Any]:
    windowed = builder.stream("in", **TEXT).group_by_key().windowed_by(SlidingWindows(10, grace=5))
    grouped = windowed.count(store="counts").group_by(lambda k, v: (k.key, v), key=serdes.string, value=serdes.long)
    return grouped.reduce(lambda a, v: a + v, lambda a, v: a - v, store="total").map_values(str)


def group_of_sessions(builder: StreamsBuilder) -> KTable[Any, Any]:
    windowed = builder.stream("in", **TEXT).group_by_key().windowed_by(SessionWindows(5, grace=5))
    grouped = windowed.count(store="counts").group_by(lambda k, v: (k.key, v), key=serdes.string, value=serdes.long)
    return grouped.reduce(lambda a, v: a + v, lambda a, v: a - v, store="total").map_values(str)


def cogroup(builder: StreamsBuilder) -> KTable[Any, Any]:
    left = builder.stream("in", **TEXT).select_key(lambda k, v: v or "x").group_by_key(**TEXT)
    right = builder.stream("t", **TEXT).group_by_key()
    cogrouped = left.cogroup(add).cogroup(right, lambda k, v, a: add(k, v.upper(), a))
    return cogrouped.aggregate(str, store="co", value=serdes.string)


def cogroup_sessions(builder: StreamsBuilder) -> KTable[Any, Any]:
    streams = [builder.stream(topic, **TEXT).group_by_key() for topic in ("in", "t")]
    cogrouped = streams[0].cogroup(add).cogroup(streams[1], add).windowed_by(SessionWindows(5, grace=60))
    table = cogrouped.aggregate(str, lambda k, a, b: (a + b)[-12:], store="co", value=serdes.string)
    return table.to_stream(lambda k, v: k.key).to_table(store=Store("last", **TEXT))


def transformed(builder: StreamsBuilder) -> KTable[Any, Any]:
    builder.add_state_store(Store("seen", key=serdes.string, value=serdes.long))
    table = builder.table("t", **TEXT)
    return table.transform_values(Marked, stores=["seen"], store=Store("marked", **TEXT))


def final_counts(builder: StreamsBuilder) -> KTable[Any, Any]:
    windowed = builder.stream("in", **TEXT).group_by_key().windowed_by(TimeWindows(10, grace=5))
    final = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="counts")
    return final.to_stream(lambda k, v: f"{k.key}@{k.start_ms}").map_values(str).to_table(store=Store("last", **TEXT))


def suppressed(builder: StreamsBuilder) -> KTable[Any, Any]:
    table = builder.table("t", store=Store("t"), **TEXT).suppress(Suppressed.until_time_limit(8))
    return table.group_by(lambda k, v: (v, k), **TEXT).aggregate(str, add, taken, store="all", value=serdes.string)


Program = Callable[[StreamsBuilder], KTable[Any, Any]]
PROGRAMS: list[Program] = [
    group_count,
    group_aggregate,
    group_reduce_of_windows,
    group_of_sliding_windows,
    group_of_sessions,
    cogroup,
    cogroup_sessions,
    transformed,
    final_counts,
    suppressed,
]
inputs = st.lists(piped(), max_size=30)
every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


def build(program: Program) -> Topology:
    builder = StreamsBuilder()
    program(builder).to_stream().to("out", **TEXT)
    return builder.build()


def run(program: Program, rows: list[Piped], cut: int | None = None, **config: Any) -> Application:
    application = Application(build(program), **config)
    application.pipe(rows[:cut])
    application.commit()
    if cut is not None:
        application.pipe(rows[cut:])
        application.commit()
    return application


@every_program
@settings(max_examples=25, deadline=None)
@given(inputs, st.integers(0, 30), st.booleans())
def test_interrupted_and_restored_equals_uninterrupted(
    program: Program, rows: list[Piped], cut: int, caching: bool
) -> None:
    config = {} if caching else {"cache_max_bytes": 0}
    interrupted = Application(build(program), **config)
    interrupted.pipe(rows[:cut])
    interrupted.commit()
    interrupted.start()
    interrupted.pipe(rows[cut:])
    interrupted.commit()
    through = run(program, rows, cut, **config)
    assert interrupted.rows() == through.rows()
    assert interrupted.log.topics == through.log.topics


@every_program
@settings(max_examples=25, deadline=None)
@given(inputs)
def test_generated_code_equals_processor_nodes(program: Program, rows: list[Piped]) -> None:
    generated, nodes = (run(program, rows, cache_max_bytes=0, generate=generate) for generate in (True, False))
    assert generated.rows() == nodes.rows()
    assert generated.log.topics == nodes.log.topics


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p is not suppressed], ids=lambda program: program.__name__)
@settings(max_examples=25, deadline=None)
@given(inputs)
def test_caching_does_not_change_what_the_first_store_holds(program: Program, rows: list[Piped]) -> None:
    cached, uncached = run(program, rows), run(program, rows, cache_max_bytes=0)
    first = cached.tasks[0].subtopology.stores
    for spec in first:
        assert cached.rows()[spec.name] == uncached.rows()[spec.name]
