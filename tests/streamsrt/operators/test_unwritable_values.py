"""A value that a store can't write, in every store of every operation: where changes are logged at once, the record is
skipped whole if the handler says so. Neither the row nor the changelog has anything of it, and nothing fails later.

Which stores there are is found in the programs of ``test_every_operator``: the serde of each is made to refuse some values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, NamedTuple

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.operators.test_every_operator import PROGRAMS, Row, contents, topology_of
from tests.streamsrt.operators.test_letters_of_every_operation import SURE
from topology import Topology, serdes
from topology.graph.nodes import StoreSpec, Subtopology

APP = "topology-test-driver"
REFUSED = set("xy")


class Refused(Exception):
    pass


class Refusing:
    """Writes as another serde, but not a count of 2, nor what has the letter x or y in it."""

    name = "refusing"

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def serialize(self, value: Any) -> bytes:
        if value == 2 or REFUSED & set(repr(value).lower()):
            raise Refused(f"{value!r}")
        raw: bytes = self._inner.serialize(value)
        return raw

    def deserialize(self, raw: bytes) -> Any:
        return self._inner.deserialize(raw)


class Place(NamedTuple):
    program: str
    store: str

    def __str__(self) -> str:
        return f"{self.program}: {self.store}"


def is_the_programs(spec: StoreSpec) -> bool:
    """Whether its values are the program's, and it is logged."""
    return spec.has_own_changelog and spec.value_serde is not serdes.bytes


def places() -> Iterator[Place]:
    for program in PROGRAMS:
        for part in topology_of(program).subtopologies:
            yield from (Place(program, spec.name) for spec in part.stores if is_the_programs(spec))


PLACES = sorted(set(places()))


def refusing(place: Place) -> Topology:
    """The program with a serde of that store that refuses some values."""
    topology = topology_of(place.program)

    def part_of(part: Subtopology) -> Subtopology:
        stores = tuple(
            replace(spec, value_serde=Refusing(spec.value_serde)) if spec.name == place.store else spec
            for spec in part.stores
        )
        values = {each.name: getattr(part, each.name) for each in fields(part) if each.init}
        return Subtopology(**{**values, "stores": stores})

    return replace(topology, subtopologies=tuple(part_of(part) for part in topology.subtopologies))


LATER: list[Row] = [(topic, key, "c", 301) for topic in ("right", "left") for key in ("a", "b", "x")]


def outcome(place: Place, *, generate: bool) -> dict[str, Any]:
    topology = refusing(place)
    config = {"processing.exception.handler": "continue", "statestore.cache.max.bytes": 0}
    reads = {topic for part in topology.subtopologies for topic in part.source_topics}
    with TopologyTestDriver(topology, config, generate=generate) as driver:
        for topic, key, value, timestamp in (*SURE, *LATER):
            if topic in reads:
                driver.pipe_raw(topic, key.encode(), None if value is None else value.encode(), timestamp)
        counters = driver.counters()
        before = rows_of(driver)
        driver.restart()
        assert rows_of(driver) == before
        written = sorted(driver.producer_history, key=lambda record: record.topic)
        skipped = counters["failed_processing"], counters["failed_production"]
        return {"stores": before, "written": written, "skipped": skipped}


def rows_of(driver: TopologyTestDriver) -> dict[str, list[Any]]:
    return {name: list(contents(driver, name)) for name in driver.store_names()}


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.matrix
def test_a_record_whose_value_a_store_refuses_is_skipped_whole(place: Place) -> None:
    generated, nodes = (outcome(place, generate=generate) for generate in (True, False))
    assert generated == nodes
    processing, production = generated["skipped"]
    assert processing > 0
    assert production == 0
    logged = [each.value or b"" for each in generated["written"] if each.topic == f"{APP}-{place.store}-changelog"]
    assert logged
    assert not any(REFUSED & set(value.decode(errors="ignore").lower()) for value in logged)
