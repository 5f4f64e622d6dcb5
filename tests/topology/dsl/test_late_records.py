"""Late records and as-of joins in the graph: names, digests, and mistakes found when the program is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topology import (
    JoinWindows,
    KGroupedStream,
    KStream,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    UnsupportedError,
    WindowError,
    serdes,
)
from topology.graph.nodes import ProcessorNode

TEXT: Any = {"key": serdes.string, "value": serdes.string}


def streams() -> tuple[KStream[str, str], KStream[str, str]]:
    builder = StreamsBuilder()
    return builder.stream("left", **TEXT), builder.stream("right", **TEXT)


def grouped() -> KGroupedStream[str, str]:
    return streams()[0].group_by_key()


def both(one: str, other: str | None) -> str:
    return f"{one}{other}"


def test_late_records_are_a_child_of_their_own() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", **TEXT).group_by_key().windowed_by(TimeWindows(5)).count(name="count")
    plain = builder.build()
    counts.late(name="late").to("late")
    topology = builder.build()
    (subtopology,) = topology.subtopologies
    node = subtopology.node("count")
    assert isinstance(node, ProcessorNode)
    assert (node.late, node.children, node.result_children) == ("late", ("late",), ())
    assert subtopology.digest != plain.subtopologies[0].digest
    assert subtopology.id == plain.subtopologies[0].id
    assert '"count" -> "late"' in topology.dot()
    assert "Processor: late (stores: [])" in topology.describe()


def test_steps_and_stores_of_an_as_of_join_are_named() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left", **TEXT), builder.stream("right", **TEXT)
    left.join_asof(right, both, 10, grace=1, name="priced").to("out", **TEXT)
    (subtopology,) = builder.build().subtopologies
    names = {node.name for node in subtopology.nodes}
    assert {"priced-asof-left", "priced-asof-right", "priced-merge"} <= names
    stores = {store.name: store for store in subtopology.stores}
    assert stores.keys() == {"priced-asof-store", "priced-asof-waiting-store"}
    assert stores["priced-asof-store"].retention_ms == 22
    assert subtopology.copartition_groups == (("left", "right"),)


def test_the_optimizer_keeps_two_stores_where_late_records_are_wanted() -> None:
    def stores(late: bool) -> int:
        builder = StreamsBuilder()
        stream = builder.stream("in", **TEXT)
        joined = stream.join(stream, both, JoinWindows(5))
        if late:
            joined.late("right").to("late", **TEXT)
        return len(builder.build({"topology.optimization": "all"}).subtopologies[0].stores)

    assert (stores(False), stores(True)) == (1, 2)


def _twice() -> None:
    counts = grouped().windowed_by(TimeWindows(5)).count()
    counts.late()
    counts.late()


def _asof(**options: Any) -> None:
    left, right = streams()
    left.join_asof(right, both, **options)


@pytest.mark.parametrize(
    ("call", "says", "error"),
    [
        (lambda: streams()[0].late("left"), "nothing is dropped as late here", TopologyError),
        (lambda: grouped().count().late(), "nothing is dropped as late here", TopologyError),
        (lambda: grouped().windowed_by(UnlimitedWindows()).count().late(), "windows that close", TopologyError),
        (_twice, "flow into 'KSTREAM-LATE-.*' already", TopologyError),
        (lambda: _asof(within=-1), "must not be negative", WindowError),
        (lambda: _asof(within=5, grace=3, keep=7), "at least within \\+ grace = 8 ms", WindowError),
        (lambda: _asof(within=5, how="outer"), "give 'inner' or 'left'", TopologyError),
        (lambda: _asof(within="5"), "must be a timedelta or an int", WindowError),
        (lambda: streams()[0].join_asof(streams()[1], both, 5), "from one StreamsBuilder", TopologyError),
        (lambda: streams()[0].join_asof(3, both, 5), "with a KStream, not with 3", UnsupportedError),  # type: ignore
    ],
)
def test_mistakes_are_named_with_their_line(call: Callable[[], Any], says: str, error: type[TopologyError]) -> None:
    with pytest.raises(error, match=says) as raised:
        call()
    assert str(raised.value).startswith(f"{__file__}:")
