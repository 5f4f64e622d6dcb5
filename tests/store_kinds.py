"""A program for every kind of store, whose one store the caller describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import (
    Buffer,
    JoinWindows,
    SessionWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import StoreKind
from topology.graph.topology import Topology

MINUTE_MS = 60_000
TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.json}


@dataclass(frozen=True)
class KindOfStore:
    """``build(name, said)``: the topology with the store of that name, about which ``said`` is said besides.

    ``derived``: how the store is called that the name makes.
    """

    build: Callable[[str, Mapping[str, Any]], Topology]
    derived: str = "{}"
    reads_other: bool = False

    def spec(self, topology: Topology, name: str) -> StoreSpec:
        stores = {spec.name: spec for each in topology.subtopologies for spec in each.stores}
        return stores[self.derived.format(name)]


def _latest(**given: Any) -> Callable[[str, Mapping[str, Any]], Topology]:
    def build(name: str, said: Mapping[str, Any]) -> Topology:
        builder = StreamsBuilder()
        table = builder.table("in", **TEXT, store=Store(name, **given, **said))
        table.to_stream().to("out", **TEXT)
        return builder.build()

    return build


def _windowed(windows: Any) -> Callable[[str, Mapping[str, Any]], Topology]:
    def build(name: str, said: Mapping[str, Any]) -> Topology:
        builder = StreamsBuilder()
        grouped = builder.stream("in", **TEXT).group_by_key().windowed_by(windows)
        store = Store(name, **said)
        if isinstance(windows, SessionWindows):
            grouped.aggregate(dict, _merged, lambda _, one, other: _merged(None, other, one), store=store, **TEXT)
        else:
            grouped.aggregate(dict, _merged, store=store, **TEXT)
        return builder.build()

    return build


def _merged(_: object, value: dict[str, int] | None, so_far: dict[str, int]) -> dict[str, int]:
    return {**so_far, **(value or {})}


def _joined(name: str, said: Mapping[str, Any]) -> Topology:
    builder = StreamsBuilder()
    left, right = builder.stream("in", **TEXT), builder.stream("other", **TEXT)
    size = 20 * MINUTE_MS

    def own(side: str) -> Store:
        given = dict(said)
        if "renamed_from" in given:
            given["renamed_from"] += f"-{side}-join-store"
        return Store(
            f"{name}-{side}-join-store",
            kind="window",
            retention=size,
            window_size=size,
            retain_duplicates=True,
            **given,
        )

    stores = own("this"), own("other")
    joined = left.join(right, lambda one, _: one, JoinWindows(10 * MINUTE_MS), store=stores)
    joined.to("out", **TEXT)
    return builder.build()


def _held_back(name: str, said: Mapping[str, Any]) -> Topology:
    builder = StreamsBuilder()
    table = builder.table("in", **TEXT, store="rows")
    held = table.suppress(Suppressed.until_time_limit(MINUTE_MS, Buffer(**said)), name=name)
    held.to_stream().to("out", **TEXT)
    return builder.build()


Row = tuple[str, str, Any, int]
ROWS: list[Row] = [
    ("in", "ann", {"pens": 1}, 1_000),
    ("other", "ann", {"pens": 0}, 2_000),
    ("in", "bob", {"books": 2}, 3_000),
    ("in", "ann", {"books": 3}, 4_000),
]
LATER: list[Row] = [
    ("other", "ann", {"pens": 5}, 5_000),
    ("in", "ann", {"cups": 4}, 6_000),
    ("in", "bob", None, 7_000),
    ("other", "bob", {"pens": 5}, 8_000),
    ("in", "cid", {"pens": 9}, 200 * MINUTE_MS),
]
"""Records for every one of the programs: topic, key, value, timestamp."""


def pipe(driver: TopologyTestDriver, rows: list[Row], *, reads_other: bool) -> None:
    for topic, key, value, timestamp in rows:
        if topic == "in" or reads_other:
            driver.pipe_raw(topic, key.encode(), None if value is None else serdes.json.serialize(value), timestamp)


KINDS: dict[StoreKind, KindOfStore] = {
    StoreKind.KEY_VALUE: KindOfStore(_latest()),
    StoreKind.LRU: KindOfStore(_latest(max_entries=10)),
    StoreKind.EXPIRING: KindOfStore(_latest(ttl=60 * MINUTE_MS)),
    StoreKind.WINDOW: KindOfStore(_windowed(TimeWindows(60 * MINUTE_MS, grace=0))),
    StoreKind.DUPLICATES: KindOfStore(_joined, "{}-this-join-store", reads_other=True),
    StoreKind.SESSION: KindOfStore(_windowed(SessionWindows(MINUTE_MS, grace=60 * MINUTE_MS))),
    StoreKind.VERSIONED: KindOfStore(_latest(kind="versioned", retention=60 * MINUTE_MS)),
    StoreKind.BUFFER: KindOfStore(_held_back, "{}-store"),
}
"""By kind; a test says that all are there."""
