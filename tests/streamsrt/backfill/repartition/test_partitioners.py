"""Which partitioner of a program places the rows of which store, and what it is told of their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamsrt.backfill.errors import UnplacedRowError
from streamsrt.backfill.repartition.partitioners import Placements, Placing
from streamsrt.backfill.repartition.placement import key_of_rows, whole_key_of_rows
from streamsrt.state.windowed import window_key
from streamsrt.wire.murmur2 import partition_for_key
from topology import StreamsBuilder, TimeWindows, Windowed, serdes
from topology.graph.nodes import StoreSpec, Subtopology
from topology.graph.topology import Topology

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
MINUTE_MS = 60_000


def by_length(_topic: str, key: str, _value: object, count: int) -> int:
    return len(key) % count


def store_of(topology: Topology, store: str) -> tuple[StoreSpec, Subtopology]:
    return next((spec, part) for part in topology.subtopologies for spec in part.stores if spec.name == store)


def placing_of(topology: Topology, store: str) -> Placing | None:
    return Placements(topology, "app").of_store(*store_of(topology, store))


def counted(partitioner: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).repartition(partitioner=partitioner, **TEXT).group_by_key().count(store="counts")
    return builder.build()


def place(placing: Placing | None, key: bytes, value: bytes | None = None, count: int = 5) -> int:
    assert placing is not None
    return placing.partition(key, key, value, count)


def test_a_store_without_such_a_partitioner_has_none() -> None:
    assert placing_of(counted(None), "counts") is None


@pytest.mark.parametrize(
    "function",
    [
        len,
        lambda value: value.size,
        lambda value: value["size"],
        lambda value: value == "x",
        hash,
        int,
        lambda value: 1 if value else 0,
        lambda value: 1 if isinstance(value, str) else 0,
        lambda value: sum(1 for _ in value),
        lambda value: f"{value}".count("x"),
        lambda value: value,
    ],
)
def test_whatever_uses_the_value_is_noticed(function: Callable[[Any], Any]) -> None:
    def partitioner(_topic: str, _key: str, value: Any, _count: int) -> Any:
        try:
            return function(value)
        except (TypeError, ValueError, AttributeError):
            return 0

    with pytest.raises(UnplacedRowError, match="needs the values of the records, and the rows do not have them"):
        place(placing_of(counted(partitioner), "counts"), b"key")


def test_a_value_that_is_only_passed_on_is_not_used() -> None:
    def inner(value: object, key: str) -> int:
        return len([value, key]) + len(key)

    assert (
        place(placing_of(counted(lambda _topic, key, value, count: inner(value, key) % count), "counts"), b"four") == 1
    )


@pytest.mark.parametrize("choice", [3, [3], {3}, (3, 3), True])
def test_a_choice_counts_as_that_of_a_sink(choice: Any) -> None:
    assert place(placing_of(counted(lambda *_: choice), "counts"), b"key") == int(choice if choice is True else 3)


def test_no_choice_is_that_of_the_default_partitioner() -> None:
    assert place(placing_of(counted(lambda *_: None), "counts"), b"key") == partition_for_key(b"key", 5)


@pytest.mark.parametrize("choice", [5, -1, "one", 1.5, []])
def test_a_choice_that_is_no_partition_is_said_with_the_key(choice: Any) -> None:
    with pytest.raises(UnplacedRowError, match="key b'key'"):
        place(placing_of(counted(lambda *_: choice), "counts"), b"key")


def test_the_topic_has_its_full_name() -> None:
    seen = []

    def partitioner(topic: str, key: str, _value: object, count: int) -> int:
        seen.append((topic, key, count))
        return 0

    builder = StreamsBuilder()
    placed = builder.stream("in", **TEXT).repartition(name="by", partitioner=partitioner, **TEXT)
    placed.group_by_key().count(store="counts")
    place(placing_of(builder.build(), "counts"), b"key")
    assert seen == [("app-by-repartition", "key", 5)]


def test_windows_of_a_key_count_where_the_partitioner_gets_them() -> None:
    def partitioner(_topic: str, key: Any, _value: object, count: int) -> int:
        assert isinstance(key, Windowed)
        return key.start_ms // MINUTE_MS % count

    builder = StreamsBuilder()
    windows = builder.stream("in", **TEXT).group_by_key().windowed_by(TimeWindows(MINUTE_MS)).count(store="windows")
    keys: Any = serdes.time_windowed(serdes.string, MINUTE_MS)
    placed = windows.to_stream().repartition(partitioner=partitioner, key=keys, value=serdes.long)
    placed.to_table(store="rows", key=keys, value=serdes.long)
    topology = builder.build()
    spec, part = store_of(topology, "rows")
    key = keys.serialize(Windowed("ann", 3 * MINUTE_MS, 4 * MINUTE_MS))
    placing = placing_of(topology, "rows")
    assert placing is not None
    whole = whole_key_of_rows(spec, part)(key)
    assert placing.partition(key_of_rows(spec, part)(key), whole, None, 5) == 3
    # Behind a windowed aggregation, rows have windows that the records did not have.
    filtered = StreamsBuilder()
    stream = filtered.stream("in", **TEXT).repartition(partitioner=by_length, **TEXT)
    table = stream.group_by_key().windowed_by(TimeWindows(MINUTE_MS)).count(store="windows")
    table.filter(lambda _, value: value > 1, store="many").to_stream().foreach(lambda *_: None)
    topology = filtered.build()
    for store, row in (("windows", window_key(b"four", 0)), ("many", keys.serialize(Windowed("four", 0, MINUTE_MS)))):
        spec, part = store_of(topology, store)
        placing = placing_of(topology, store)
        assert placing is not None
        assert placing.partition(key_of_rows(spec, part)(row), whole_key_of_rows(spec, part)(row), None, 5) == 4, store


def joined(other_partitioner: Any = None) -> Topology:
    builder = StreamsBuilder()
    left = (
        builder.stream("left", **TEXT)
        .repartition(name="left", partitioner=by_length, **TEXT)
        .to_table(store="l", **TEXT)
    )
    right = builder.table("right", **TEXT, store="r")
    result = left.join(
        right,
        "{}{}".format,
        foreign_key=lambda value: value,
        other_partitioner=other_partitioner,
        store="result",
        name="fk",
        **TEXT,
    )
    result.to_stream().foreach(lambda *_: None)
    return builder.build()


def test_the_result_of_a_foreign_key_join_lies_where_the_left_rows_do() -> None:
    topology = joined()
    assert place(placing_of(topology, "l"), b"four") == place(placing_of(topology, "result"), b"four") == 4
    assert placing_of(topology, "r") is None
    assert placing_of(topology, "fk-subscription-store") is None
    left = next(part for part in topology.subtopologies if any(spec.name == "l" for spec in part.stores))
    rows = Placements(topology, "app").of_left_rows(["fk-subscription-response-topic"], left)
    assert place(rows, b"four") == 4


def test_subscriptions_lie_where_the_partitioner_of_the_other_table_puts_them() -> None:
    placing = placing_of(joined(by_length), "fk-subscription-store")
    assert place(placing, b"four") == 4
    assert str(placing).startswith("partitioner by_length (")


def test_a_topic_that_the_program_writes_is_placed_by_the_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).to("out", partitioner=lambda _topic, _key, value, count: len(value) % count, **TEXT)
    placements = Placements(builder.build(), "app")
    assert place(placements.of_topic("out"), b"key", b"four") == 4
    assert placements.of_topic("in") is None
