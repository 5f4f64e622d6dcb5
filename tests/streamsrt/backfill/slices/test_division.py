"""What prevents slices is said with the step and what to do; what can be divided is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.lake import Lake
from streamsrt.backfill.slices.division import check_slices, divided
from streamsrt.backfill.slices.eligibility import STORES
from streamsrt.config import StreamsConfig
from topology import (
    Buffer,
    EmitStrategy,
    JoinWindows,
    KGroupedStream,
    KStream,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    serdes,
)
from topology.graph.store_kinds import StoreKind

TEXT: Any = {"key": serdes.string, "value": serdes.string}
HOURS = TimeWindows(10, grace=5)
OFF = {"statestore.cache.max.bytes": "0"}


def stream(builder: StreamsBuilder) -> KStream[Any, Any]:
    return builder.stream("in", **TEXT)


def grouped(builder: StreamsBuilder) -> KGroupedStream[Any, Any]:
    return stream(builder).group_by_key()


def table(builder: StreamsBuilder, **options: Any) -> Any:
    return builder.table("t", store=Store("t", **TEXT, **options), **TEXT)


def both(one: object, other: object) -> str:
    return f"{one}+{other}"


def topology_of(program: Callable[[StreamsBuilder], object]) -> Topology:
    builder = StreamsBuilder()
    program(builder)
    return builder.build()


def config(**given: str) -> StreamsConfig:
    return StreamsConfig.of({"application.id": "app", "bootstrap.servers": "x:1", **given})


REFUSED: dict[str, tuple[Callable[[StreamsBuilder], object], dict[str, str], str]] = {
    "other keys": (
        lambda b: stream(b).select_key(lambda k, v: v).to("out", **TEXT),
        {},
        r"KSTREAM-KEY-SELECT-\d+ \(.*test_division.py:\d+\) gives records other keys",
    ),
    "repartition topic": (
        lambda b: stream(b).repartition(**TEXT).map_batches(lambda frame: frame).foreach(print),
        {},
        "writes a repartition topic: .*The subtopology behind it can be sliced",
    ),
    "closed windows": (
        lambda b: grouped(b).windowed_by(HOURS).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="s"),
        {},
        r"headers of the record that closes them.*suppress\(Suppressed.until_window_closes\(\)\) can be sliced",
    ),
    "sliding windows": (
        lambda b: grouped(b).windowed_by(SlidingWindows(10, grace=5)).count(store="s"),
        {},
        "TimeWindows and SessionWindows can be sliced",
    ),
    "a limited buffer": (
        lambda b: (
            grouped(b)
            .windowed_by(HOURS)
            .count(store="s")
            .suppress(Suppressed.until_window_closes(Buffer(max_records=2, when_full="shut_down")))
        ),
        OFF,
        "limit for all keys together",
    ),
    "a suppression by time": (
        lambda b: grouped(b).count(store="s").suppress(Suppressed.until_time_limit(7)),
        OFF,
        r"until_window_closes\(\) can be sliced",
    ),
    "a suppression behind a cache": (
        lambda b: grouped(b).windowed_by(HOURS).count(store="s").suppress(Suppressed.until_window_closes()),
        {},
        "what the cache of store s holds back.*--config statestore.cache.max.bytes=0",
    ),
    "joined tables behind caches": (
        lambda b: table(b).join(b.table("u", store="u", **TEXT), both),
        {},
        "what the cache of store [tu] holds back",
    ),
    "joined streams": (
        lambda b: stream(b).join(b.stream("other", **TEXT), both, JoinWindows(5, 5)),
        {},
        "two streams that wait for each other",
    ),
    "a join in front of windows": (
        lambda b: stream(b).join(table(b), both).group_by_key(**TEXT).windowed_by(HOURS).count(store="s"),
        {},
        r"KSTREAM-JOIN-\d+ .*lets records through by what it knows of their keys.* of KSTREAM-AGGREGATE-\d+",
    ),
    "a join with a global table in front of windows": (
        lambda b: (
            stream(b)
            .join(b.global_table("u", **TEXT), both, on=lambda k, v: v)
            .group_by_key(**TEXT)
            .windowed_by(HOURS)
            .count(store="s")
        ),
        {},
        r"KSTREAM-LEFTJOIN-\d+ .*lets records through by what it knows of their keys",
    ),
    "entries used last": (
        lambda b: grouped(b).count(store=Store("s", max_entries=3)),
        {},
        "store s keeps the entries used last.*Without max_entries=",
    ),
    "entries that expire": (
        lambda b: grouped(b).count(store=Store("s", ttl=30)),
        {},
        "store s drops entries by the times of records of all keys.*Without ttl=",
    ),
    "versions": (lambda b: table(b, kind="versioned", retention=40), {}, "A table that is not versioned"),
    "batches": (lambda b: stream(b).map_batches(lambda frame: frame).foreach(print), {}, "by the batch"),
    "a processor": (
        lambda b: stream(b).deduplicate(lambda k, v: v, 15, serde=serdes.string).foreach(print),
        {},
        "is a processor",
    ),
    "other serdes of keys": (
        lambda b: stream(b).group_by_key(key=serdes.bytes).count(store=Store("s", key=serdes.bytes)),
        {},
        "store s .*has its keys by another serde than KSTREAM-SOURCE",
    ),
    "an exception handler": (
        lambda b: grouped(b).windowed_by(HOURS).count(store="s"),
        {"deserialization.exception.handler": "continue"},
        "which a record that an exception handler skips may move on",
    ),
    "a timestamp extractor": (
        lambda b: b.stream("in", timestamp_extractor="wallclock", **TEXT).foreach(print),
        {},
        "has a timestamp extractor",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_prevents_slices_is_said(name: str) -> None:
    program, given, says = REFUSED[name]
    with pytest.raises(PlanError, match=f"--slices 2 would divide nothing; leave it out. .*{says}"):
        divided(topology_of(program).subtopologies, config(**given), {}, 2)


ALLOWED: dict[str, tuple[Callable[[StreamsBuilder], object], dict[str, str]]] = {
    "windows to a topic": (
        lambda b: grouped(b).windowed_by(HOURS).count(store="s").to_stream().to("out", value=serdes.long),
        {},
    ),
    "joined tables": (lambda b: table(b).join(b.table("u", store="u", **TEXT), both), OFF),
    "joined tables without caches": (
        lambda b: table(b, caching=False).join(b.table("u", store=Store("u", caching=False), **TEXT), both),
        {},
    ),
    "a left join in front of windows": (
        lambda b: stream(b).left_join(table(b), both).group_by_key(**TEXT).windowed_by(HOURS).count(store="s"),
        {},
    ),
    "a join with a global table": (
        lambda b: stream(b).join(b.global_table("u", **TEXT), both, on=lambda k, v: v).to("out", **TEXT),
        {},
    ),
    "a handler where no time is observed": (
        lambda b: grouped(b).count(store="s"),
        {"deserialization.exception.handler": "continue"},
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_can_be_divided_is(name: str) -> None:
    program, given = ALLOWED[name]
    (part,) = topology_of(program).subtopologies
    assert divided([part], config(**given), {}, 3) == ({part.id: 3}, [])
    assert divided([part], config(**given), {}, 1) == ({}, [])


def test_subtopologies_that_allow_no_slices_are_not_divided() -> None:
    topology = topology_of(lambda b: stream(b).select_key(lambda k, v: v).group_by_key(**TEXT).count(store="s"))
    first, second = topology.subtopologies
    found, reasons = divided(topology.subtopologies, config(), {}, 2)
    assert found == {second.id: 2}
    assert [
        re.match(rf"subtopology {first.id} is not divided into slices: KSTREAM-", text) is not None for text in reasons
    ]


def test_a_lake_is_not_divided() -> None:
    (part,) = topology_of(lambda b: grouped(b).count(store="s")).subtopologies
    with pytest.raises(PlanError, match="the history of in is in a lake, which Spark orders for whole tasks"):
        divided([part], config(), {"in": Lake("/lake")}, 2)


@pytest.mark.parametrize("slices", [0, -1, 257])
def test_a_number_of_slices_that_makes_no_sense(slices: int) -> None:
    with pytest.raises(PlanError, match=f"--slices {slices}: give a number from 1 to 256"):
        check_slices(slices, None)


def test_a_continued_backfill_is_not_divided() -> None:
    check_slices(1, Path("monday"))
    with pytest.raises(PlanError, match="--after continues the results of undivided tasks"):
        check_slices(2, Path("monday"))


def test_every_kind_of_store_says_whether_it_allows_slices() -> None:
    assert set(STORES) == set(StoreKind)
