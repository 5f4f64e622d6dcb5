"""By which part of its key a row is placed: an answer for each kind of store, and for each store of an operator's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from streamsrt.backfill.repartition.placement import key_of_rows, refusal_of
from streamsrt.operators.table import OPERATIONS, OwnKeys, StoreKeys
from streamsrt.state.kinds import STORES, record_key_of
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.store_kinds import KINDS, LATER, MINUTE_MS, ROWS, Row, pipe
from tests.topology.graph.store_fields import store_fields
from topology import JoinWindows, Store, StreamsBuilder, serdes
from topology.graph.nodes import ProcessorNode, StoreSpec, internal_topic_name
from topology.graph.operations import Operation
from topology.graph.store_kinds import StoreKind
from topology.graph.topology import Topology
from topology.spec.windows import Windowed

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
OWN_KEYS = {kind: row.keys for kind, row in OPERATIONS.items() if isinstance(row.keys, OwnKeys)}


@pytest.mark.parametrize("kind", StoreKind)
def test_rows_of_each_kind_are_placed_by_the_keys_of_their_records(kind: StoreKind) -> None:
    if STORES[kind].stays_because:
        return
    asked = KINDS[kind]
    topology = asked.build("rows", {})
    spec = asked.spec(topology, "rows")
    part = next(each for each in topology.subtopologies if spec in each.stores)
    assert refusal_of(spec, part) == ""
    found = logged(topology, spec, [*ROWS, *LATER], reads_other=asked.reads_other)
    assert found, kind
    assert {key_of_rows(spec, part)(key) for key in found} <= {row[1].encode() for row in (*ROWS, *LATER)}


def logged(topology: Topology, spec: StoreSpec, rows: list[Row], *, reads_other: bool = False) -> list[bytes]:
    """The keys of a store's changelog."""
    with TopologyTestDriver(topology) as driver:
        pipe(driver, rows, reads_other=reads_other)
        topic = internal_topic_name(driver.config.application_id, spec.changelog_name)
        return [record.key for record in driver.producer_history if record.topic == topic and record.key is not None]


@pytest.mark.parametrize("operation", get_args(Operation), ids=lambda each: str(each.__name__))
def test_each_operation_that_keeps_a_store_says_what_its_keys_are(operation: type) -> None:
    names = store_fields(operation)
    keys = OPERATIONS[operation].keys
    assert bool(names) == (keys is not StoreKeys.NO_STORE)
    assert not isinstance(keys, OwnKeys) or keys.field in names


def left_join(builder: StreamsBuilder) -> None:
    left, right = (builder.stream(topic, **TEXT) for topic in ("in", "other"))
    left.left_join(right, "{} {}".format, JoinWindows(MINUTE_MS, grace=MINUTE_MS), store="rows").to("out", **TEXT)


def asof_join(builder: StreamsBuilder) -> None:
    left, right = (builder.stream(topic, **TEXT) for topic in ("in", "other"))
    left.join_asof(right, "{} {}".format, within=MINUTE_MS, grace=MINUTE_MS, store="rows").to("out", **TEXT)


def grace_join(builder: StreamsBuilder) -> None:
    table = builder.table("other", **TEXT, store=Store("table", kind="versioned", retention=10 * MINUTE_MS))
    builder.stream("in", **TEXT).join(table, "{} {}".format, grace=MINUTE_MS, name="rows").to("out", **TEXT)


def foreign_key_join(builder: StreamsBuilder) -> None:
    left, right = (builder.table(topic, **TEXT) for topic in ("in", "other"))
    left.join(right, "{} {}".format, foreign_key=lambda value: value, name="rows").to_stream().to("out", **TEXT)


@pytest.mark.parametrize("program", [left_join, asof_join, grace_join, foreign_key_join])
def test_operators_that_make_keys_say_what_the_records_key_is(program: Callable[[StreamsBuilder], None]) -> None:
    builder = StreamsBuilder()
    program(builder)
    topology = builder.build()
    operation, own, part = next(
        (node.operation, OWN_KEYS[type(node.operation)], part)
        for part in topology.subtopologies
        for node in part.nodes
        if isinstance(node, ProcessorNode) and type(node.operation) in OWN_KEYS
    )
    spec = next(each for each in part.stores if each.name == getattr(operation, own.field))
    rows: list[Row] = [
        ("in", key, "value of any length", time) for time, key in enumerate(("ann", "bob", "c" * 40), 1_000)
    ]
    found = logged(topology, spec, rows)
    keys = {"value of any length"} if program is foreign_key_join else {"ann", "bob", "c" * 40}
    # What JSON makes of a value: that is what the helper pipes.
    expected = {f'"{key}"'.encode() if program is foreign_key_join else key.encode() for key in keys}
    assert {key_of_rows(spec, part)(key) for key in found} == expected


@pytest.mark.parametrize(
    ("serde", "key"),
    [
        (serdes.time_windowed(serdes.string, MINUTE_MS), Windowed("ann", 0, MINUTE_MS)),
        (serdes.session_windowed(serdes.string), Windowed("ann", 5, 9)),
        (serdes.string, "ann"),
    ],
)
def test_keys_with_windows_are_placed_by_the_key_inside(serde: Any, key: object) -> None:
    spec = StoreSpec(name="held", kind="buffer", key_serde=serde)
    assert record_key_of(spec, serde.serialize(key)) == b"ann"
