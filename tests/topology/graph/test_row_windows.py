"""One store with other windows: what is carried over counts right, and what would not is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, get_args

import orjson
import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import (
    CountWindows,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
    Windowed,
    serdes,
)
from topology.graph.diff import diff
from topology.graph.outline import TopologyOutline, outline
from topology.graph.row_windows import (
    FIXED,
    MEANINGS,
    SLIDING,
    RowWindows,
    misread_meaning,
    misread_windows,
    partial_windows,
)
from topology.graph.topology import Topology
from topology.spec.windows import AnyWindows

SIZE_MS, GRACE_MS = 10_000, 600_000
TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
BEFORE, AFTER = (1_000, 2_000, 6_000, 13_000), (14_000, 19_000, 23_000, 31_000, 36_000, 48_000, 55_000, 90_000, 91_000)
"""Times of records of one key: those that the old version reads, and those of the new one."""

WINDOWS: dict[str, AnyWindows | CountWindows | None] = {
    "none": None,
    "tumbling": TimeWindows(SIZE_MS, grace=GRACE_MS),
    "hopping": TimeWindows(SIZE_MS, SIZE_MS // 2, grace=GRACE_MS),
    "hopping askew": TimeWindows(SIZE_MS, 4_000, grace=GRACE_MS),
    "longer": TimeWindows(2 * SIZE_MS, grace=GRACE_MS),
    "unlimited": UnlimitedWindows(),
    "sliding": SlidingWindows(SIZE_MS, grace=GRACE_MS),
    "session": SessionWindows(SIZE_MS, grace=GRACE_MS),
    "longer session": SessionWindows(2 * SIZE_MS, grace=GRACE_MS),
    "count": CountWindows(3),
}
PARTIAL = {
    ("tumbling", "hopping"),
    ("tumbling", "hopping askew"),
    ("hopping", "hopping askew"),
    ("hopping askew", "tumbling"),
    ("hopping askew", "hopping"),
}
MISREAD = {(one, other) for one, other in product(WINDOWS, WINDOWS) if one != other} - (
    PARTIAL | {("hopping", "tumbling"), ("session", "longer session"), ("longer session", "session")}
)


def named(window: Any, _: object) -> str:
    return f"{window.start_ms}-{window.end_ms}" if isinstance(window, Windowed) else str(window)


def counted(windows: str) -> Topology:
    builder = StreamsBuilder()
    group = builder.stream("in", **TEXT).group_by_key()
    wanted: Any = WINDOWS[windows]
    if windows == "none":
        table: Any = group.count(store="w").to_stream()
    elif windows == "count":
        store = Store("w", value=serdes.long)
        table = group.windowed_by(wanted).aggregate(lambda: 0, lambda _k, _v, count: count + 1, store=store)
    else:
        table = group.windowed_by(wanted).count(store="w").to_stream(named)
    table.to("out", key=serdes.string, value=serdes.long)
    return builder.build()


def cogrouped(windows: str) -> Topology:
    builder = StreamsBuilder()
    group = builder.stream("in", **TEXT).group_by_key()
    wanted: Any = WINDOWS[windows]
    together: Any = group.cogroup(lambda _key, _value, count: count + 1).windowed_by(wanted)
    more = (lambda _key, one, other: one + other,) if isinstance(wanted, SessionWindows) else ()
    together.aggregate(lambda: 0, *more, store=Store("w", value=serdes.long))
    return builder.build()


def held(windows: str) -> Topology:
    """The names of the windowed stores differ; what is made of them has one name."""
    builder = StreamsBuilder()
    wanted: Any = WINDOWS[windows]
    table = builder.stream("in", **TEXT).group_by_key().windowed_by(wanted).count(store=f"of-{windows}")
    table.suppress(Suppressed.until_time_limit(1_000), name="held")
    table.filter(lambda _key, _count: True, store="kept")
    return builder.build()


def version(topology: Topology) -> TopologyOutline:
    return TopologyOutline.from_json(orjson.loads(orjson.dumps(outline(topology).to_json())))


def fates(old: Topology, new: Topology) -> dict[str, tuple[str, str]]:
    return {each.name: (each.fate, each.reason) for each in diff(version(old), version(new)).state}


def results(first: str, second: str) -> dict[str, int]:
    """What the second version writes in the end, of all that it writes."""
    with TopologyTestDriver(counted(first)) as driver:
        rows, out = (
            driver.create_input_topic("in", serdes.string, serdes.string),
            driver.create_output_topic("out", serdes.string, serdes.long),
        )
        for time in BEFORE:
            rows.pipe_input("k", "x", time)
        driver.commit()
        out.read_key_values_to_list()
        driver.restart(topology=counted(second), check_state=(first, second) not in MISREAD)
        for time in AFTER:
            rows.pipe_input("k", "x", time)
        driver.commit()
        found: dict[str, int] = out.read_key_values_to_map()
        return found


def test_every_class_of_windows_has_a_meaning() -> None:
    assert set(MEANINGS) == set(get_args(AnyWindows))
    assert {type(each) for each in WINDOWS.values()} == {*get_args(AnyWindows), CountWindows, type(None)}


@pytest.mark.parametrize(("first", "second"), sorted(product(WINDOWS, WINDOWS)))
def test_a_store_that_is_carried_over_counts_as_if_it_had_always_had_these_windows(first: str, second: str) -> None:
    fate, why = fates(counted(first), counted(second))["w"]
    assert (fate == "incompatible") == ((first, second) in MISREAD), why
    if (first, second) in MISREAD:
        assert "give the new store another name" in why
        return
    assert ("lack the earlier records" in why) == ((first, second) in PARTIAL), why
    found, wanted = results(first, second), results(second, second)
    whole = {
        window: count for window, count in wanted.items() if "-" not in window or int(window.split("-")[0]) > AFTER[0]
    }
    assert whole or second == "unlimited"
    assert {window: found.get(window) for window in whole} == whole
    if (first, second) not in PARTIAL:
        assert found == wanted


def test_what_is_refused_would_count_wrong() -> None:
    assert results("tumbling", "sliding") != results("sliding", "sliding")


@pytest.mark.parametrize("build", [cogrouped, held])
@pytest.mark.parametrize(("first", "second"), sorted(product(("tumbling", "sliding", "session"), repeat=2)))
def test_stores_that_several_fill_and_those_behind_are_decided_alike(
    build: Callable[[str], Topology], first: str, second: str
) -> None:
    found = fates(build(first), build(second))
    shared = {"w"} if build is cogrouped else {"held", "kept"}
    for name, (fate, why) in found.items():
        if name in shared or name.removesuffix("-store") in shared:
            assert (fate == "incompatible") == (first != second), why
    assert len(found) >= len(shared)


def test_who_does_not_know_the_windows_compares_none() -> None:
    fixed = RowWindows(meaning=FIXED, advance_ms=1)
    assert misread_windows(None, fixed) == misread_windows(fixed, None) == ""
    assert misread_meaning("", SLIDING) == misread_meaning("later", SLIDING) == ""
    assert misread_meaning(FIXED, SLIDING)
    assert partial_windows(None, fixed) == partial_windows(fixed, None) == ""
