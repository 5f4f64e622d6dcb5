"""Values in stores and changelogs are as their serdes write them, however another program has written them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import JoinWindows, Store, StreamsBuilder, serdes

JSON = {"key": serdes.string, "value": serdes.json}
SPACED, WRITTEN = b'{"id": 7, "of": [1, 2]}', b'{"id":7,"of":[1,2]}'


def paired(one: object, other: object) -> list[object]:
    return [one, other]


def table(builder: StreamsBuilder) -> None:
    builder.table("in", **JSON, store="kept")


def table_with_old_values(builder: StreamsBuilder) -> None:
    first = builder.table("in", **JSON, store="kept")
    first.filter(lambda _key, value: value["id"] > 3).to_stream().to("out", **JSON)


def versioned(builder: StreamsBuilder) -> None:
    builder.table("in", **JSON, store=Store("kept", kind="versioned", retention=1000))


def inner_join(builder: StreamsBuilder) -> None:
    left, right = builder.stream("in", **JSON), builder.stream("other", **JSON)
    left.join(right, paired, JoinWindows(10, grace=0)).to("out", **JSON)


def outer_join(builder: StreamsBuilder) -> None:
    left, right = builder.stream("in", **JSON), builder.stream("other", **JSON)
    left.outer_join(right, paired, JoinWindows(10, grace=0)).to("out", **JSON)


def grace_join(builder: StreamsBuilder) -> None:
    rows = builder.table("other", **JSON, store=Store("rows", kind="versioned", retention=10_000))
    builder.stream("in", **JSON).join(rows, paired, grace=1_000).to("out", **JSON)


def passed_on_and_stored(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", **JSON)
    stream.to("out", **JSON)
    stream.to_table(store="kept")


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize(
    "program",
    [table, table_with_old_values, versioned, inner_join, outer_join, grace_join, passed_on_and_stored],
)
def test_what_is_stored_is_as_its_serde_writes_it(program: Callable[[StreamsBuilder], None], generate: bool) -> None:
    builder = StreamsBuilder()
    program(builder)
    config = {"application.id": "app", "statestore.cache.max.bytes": "0"}
    with TopologyTestDriver(builder.build(), config, generate=generate) as driver:
        driver.create_input_topic("in", serdes.bytes, serdes.bytes).pipe_input(b"k", SPACED, 5)
        driver.commit()
        logged = [record.value for record in driver.producer_history if record.topic.endswith("-changelog")]
    values = [value for value in logged if value is not None]
    assert values, "nothing is logged"
    assert all(WRITTEN in value for value in values)
