"""Stores that the program brings itself (``supplier=``, ``dsl.store.suppliers.class``): the same as those that there are."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from examples.sqlite_store import SqliteStore
from streamsrt.errors import ConfigError
from streamsrt.state.kinds import make_store, scope
from streamsrt.testing.mock_processor_context import MockProcessorContext
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.operators.test_every_operator import PROGRAMS, Row, outcome, topology_of
from topology import Store, StreamsBuilder, Topology, UnsupportedError, serdes

KEY = "dsl.store.suppliers.class"
TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def kept_on_disk(topology: Topology) -> set[str]:
    """The stores that leave it to the configuration where they are."""
    parts = (*topology.subtopologies, *topology.global_subtopologies)
    return {store.name for part in parts for store in part.stores if store.default_persistence}


PIPED: list[Row] = [
    (topic, key, value, 3 * at)
    for at, (topic, key, value) in enumerate(product(("left", "right"), ("a", "b"), ("a", "x", None, "xy")))
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_they_do_what_stores_in_memory_do(program: str) -> None:
    made: set[str] = set()

    def supplier(name: str) -> SqliteStore:
        made.add(name)
        return SqliteStore(name)

    topology = topology_of(program)
    results = [
        outcome(topology.configured({KEY: where}), PIPED, 7, cache_max_bytes=0) for where in ("in_memory", supplier)
    ]
    assert results[1] == results[0]
    assert made == kept_on_disk(topology)


def counting(**options: Any) -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in", **TEXT).group_by_key().count(store=Store("counts", **options))
    counts.to_stream().to("out", key=serdes.string, value=serdes.long)
    return builder.build()


def test_one_store_of_a_topology() -> None:
    topology = counting(supplier=SqliteStore)
    assert topology.digest == counting(in_memory=True).digest
    (spec,) = topology.configured({KEY: "rocks_db"}).subtopologies[0].stores
    assert isinstance(make_store(spec), SqliteStore)
    assert scope(spec) == "custom"
    with TopologyTestDriver(topology) as driver:
        for key in (b"a", b"b", b"a"):
            driver.pipe_raw("in", key, b"x", 1)
        driver.restart()
        driver.pipe_raw("in", b"a", b"x", 1)
        assert list(driver.get_key_value_store("counts").all()) == [("a", 3), ("b", 1)]


def test_the_test_driver_goes_by_the_setting() -> None:
    made: list[str] = []

    def supplier(name: str) -> SqliteStore:
        made.append(name)
        return SqliteStore(name)

    with TopologyTestDriver(counting(), {KEY: supplier}) as driver:
        driver.pipe_raw("in", b"a", b"x", 1)
        assert made == ["counts"]


def test_a_setting_goes_over_that_of_the_build() -> None:
    own = counting().configured({KEY: SqliteStore})
    (spec,) = own.subtopologies[0].stores
    assert (spec.supplier, spec.persistent) == (SqliteStore, False)
    (spec,) = own.configured({"topic.segment.bytes": 5}).subtopologies[0].stores
    assert (spec.supplier, spec.persistent) == (SqliteStore, False)
    (spec,) = own.configured({KEY: "rocks_db"}).subtopologies[0].stores
    assert (spec.supplier, spec.persistent) == (None, True)


def test_a_mock_context_has_them_too() -> None:
    store = MockProcessorContext().add_state_store(Store("s", supplier=SqliteStore, timestamped=False, **TEXT))
    store.put("k", "v")
    assert store.get("k") == "v"


@pytest.mark.parametrize("options", [{"supplier": "my.Store"}, {"in_memory": True}, {"max_entries": 3}])
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"supplier= is a callable \(name\) that returns a store"):
        Store("s", **{"supplier": SqliteStore, **options})


class Half:
    """A store that can't do all that is needed."""

    name, persistent, is_open = "counts", False, True

    def get(self, key: bytes) -> None:
        return None


def test_a_store_must_do_everything() -> None:
    with pytest.raises(
        ConfigError, match=r"'counts': its supplier returned a Half, which lacks approximate_count, .*write"
    ):
        TopologyTestDriver(counting(supplier=lambda name: Half()))
