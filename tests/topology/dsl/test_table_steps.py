"""When a table keeps a store, and when old values flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topology import KTable, Store, StreamsBuilder, TopologyError, ValueTransformer, serdes
from topology.graph.nodes import ProcessorNode
from topology.graph.operations import Aggregate, TableFilter, TableMapValues, TableSource

Table = KTable[Any, Any]


class Same(ValueTransformer):
    """Every value as it is."""

    def transform(self, key: Any, value: Any) -> Any:
        return value


def keep(key: object, value: object) -> bool:
    return True


def flags(make: Callable[[StreamsBuilder], object]) -> dict[str, tuple[str | None, bool]]:
    """Store and whether old values flow, for each table of a program by its kind of operation."""
    builder = StreamsBuilder()
    make(builder)
    found = {}
    for subtopology in builder.build().subtopologies:
        for node in subtopology.nodes:
            if isinstance(node, ProcessorNode):
                operation = node.operation
                if isinstance(operation, (TableSource, TableFilter, TableMapValues, Aggregate)):
                    assert node.stores == ((operation.store,) if operation.store else ())
                    found[type(operation).__name__] = (operation.store, node.sends_old_values)
    return found


def test_a_table_keeps_a_store_only_when_asked() -> None:
    assert flags(lambda b: b.table("t").to_stream().to("o")) == {"TableSource": (None, False)}
    assert flags(lambda b: b.table("t", store="s").to_stream().to("o")) == {"TableSource": ("s", False)}
    assert flags(lambda b: b.stream("t").to_table().to_stream().to("o")) == {"TableSource": (None, False)}


def test_a_join_makes_the_nearest_table_keep_a_store() -> None:
    def join(make: Callable[[StreamsBuilder], Table]) -> dict[str, tuple[str | None, bool]]:
        return flags(lambda b: b.stream("l").join(make(b), max).to("o"))

    assert join(lambda b: b.table("t")) == {"TableSource": ("t-STATE-STORE-0000000001", False)}
    derived = join(lambda b: b.table("t").filter(keep))
    assert derived == {"TableSource": ("t-STATE-STORE-0000000001", False), "TableFilter": (None, False)}
    stored = join(lambda b: b.table("t").filter(keep, store="f"))
    assert stored == {"TableSource": (None, False), "TableFilter": ("f", False)}
    aggregated = join(lambda b: b.stream("t").group_by_key().count(store="c").map_values(str))
    assert aggregated == {"Aggregate": ("c", False), "TableMapValues": (None, False)}


def test_a_filter_takes_old_values_where_they_are_kept_anyway() -> None:
    assert flags(lambda b: b.table("t").filter(keep)) == {"TableSource": (None, False), "TableFilter": (None, False)}
    with_store = flags(lambda b: b.table("t", store="s").filter(keep))
    assert with_store == {"TableSource": ("s", True), "TableFilter": (None, True)}
    through = flags(lambda b: b.stream("t").group_by_key().count(store="c").map_values(str).filter_not(keep))
    assert through == {"Aggregate": ("c", True), "TableMapValues": (None, True), "TableFilter": (None, True)}
    own = flags(lambda b: b.table("t").map_values(str, store="m").filter(keep, store="f"))
    assert own == {"TableSource": (None, False), "TableMapValues": ("m", True), "TableFilter": ("f", True)}


def test_a_store_that_comes_later_does_not_change_a_filter() -> None:
    def program(builder: StreamsBuilder) -> None:
        table = builder.table("t")
        table.filter(keep).to_stream().to("o")
        builder.stream("l").join(table, max).to("p")

    assert flags(program) == {"TableSource": ("t-STATE-STORE-0000000000", False), "TableFilter": (None, False)}


def test_queryable_store_name() -> None:
    builder = StreamsBuilder()
    assert builder.table("t").queryable_store_name is None
    assert builder.table("u", store="s").queryable_store_name == "s"
    assert builder.table("v").filter(keep, store="f").queryable_store_name == "f"


@pytest.mark.parametrize(("store", "burnt"), [(None, 0), (Store(value=serdes.string), 1), ("named", 0)])
def test_an_unnamed_store_takes_a_number(store: str | Store | None, burnt: int) -> None:
    builder = StreamsBuilder()
    builder.table("t", store="s").map_values(str, store=store)
    names = [node.name for node in builder.build().subtopologies[0].nodes]
    assert names[-1] == f"KTABLE-MAPVALUES-{2 + burnt:010d}"


def test_a_derived_store_inherits_the_serdes() -> None:
    builder = StreamsBuilder()
    builder.table("t", key=serdes.long, value=serdes.string).filter(keep, store="f")
    (store,) = builder.build().subtopologies[0].stores
    assert (store.key_serde, store.value_serde) == (serdes.long, serdes.string)


JOINS: dict[str, Callable[[StreamsBuilder, Table], object]] = {
    "from a stream": lambda builder, values: builder.stream("s").join(values, max),
    "from a table": lambda builder, values: builder.table("t").join(values, max),
    "by a foreign key": lambda builder, values: values.join(builder.table("t"), max, foreign_key=str),
    "behind a mapper": lambda builder, values: values.map_values(str).left_join(builder.table("t"), max),
}


@pytest.mark.parametrize("join", JOINS)
def test_rows_that_no_store_has_are_not_joined(join: str) -> None:
    builder = StreamsBuilder()
    values = builder.table("v").transform_values(Same)
    with pytest.raises(TopologyError, match=r"test_table_steps.py:\d+: the rows .* no store has them: name one"):
        JOINS[join](builder, values)


def test_rows_in_a_store_of_their_own_are_joined() -> None:
    builder = StreamsBuilder()
    values = builder.table("v").transform_values(Same, store=Store("same", key=serdes.string, value=serdes.string))
    values.map_values(str).outer_join(builder.table("t"), max).to_stream().to("o")
    assert "same" in {spec.name for each in builder.build().subtopologies for spec in each.stores}
