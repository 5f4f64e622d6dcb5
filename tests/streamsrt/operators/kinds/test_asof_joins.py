"""As-of joins: against a model of the words of the documentation, in every way of running them, and restarted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.operators.kinds.asof_joins import pack_row, unpack_row
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.operators.programs import Piped, piped
from tests.streamsrt.operators.ways import assert_all_ways_agree, assert_an_interruption_changes_nothing
from topology import Store, StreamsBuilder, Topology, serdes

TEXT: Any = {"key": serdes.string, "value": serdes.string}
WITHIN_MS, GRACES_MS, KEEPS_MS = 12, (0, 7), (None, 40)

rows = st.lists(piped(("left", "right")), max_size=40)
sizes = st.lists(st.integers(1, 20), min_size=1, max_size=3)
hows = st.sampled_from(("inner", "left"))


def both(left: str, right: str | None) -> str:
    return f"{left}+{right}"


def program(how: Any, grace: int, keep: int | None = None) -> Topology:
    builder = StreamsBuilder()
    left, right = builder.stream("left", **TEXT), builder.stream("right", **TEXT)
    joined = left.join_asof(right, both, WITHIN_MS, how=how, grace=grace, keep=keep, store="j", name="j")
    joined.to("out", **TEXT)
    joined.late("left").to("late-left", **TEXT)
    joined.late("right").to("late-right", **TEXT)
    return builder.build()


def expected(records: list[Piped], how: str, grace: int, keep: int | None) -> dict[str, list[tuple[Any, ...]]]:
    """The documentation in other words: a right record counts where it came before its left record was joined."""
    keep_ms = 2 * WITHIN_MS + grace if keep is None else keep
    out: list[tuple[Any, ...]] = []
    late: dict[str, list[tuple[Any, ...]]] = {"left": [], "right": []}
    rights: list[Piped] = []
    waiting: list[Piped] = []
    now = -1

    def join(left: Piped) -> None:
        found = [r for r in rights if r.key == left.key and left.timestamp - WITHIN_MS <= r.timestamp <= left.timestamp]
        # max() gives the first of equals, so the last that came is looked for from behind.
        match = max(reversed(found), key=lambda r: r.timestamp, default=None)
        if match is not None or how == "left":
            value = both(left.value or "", None if match is None else match.value)
            out.append((left.key, value, left.timestamp, left.headers))

    for record in records:
        if record.value is None or (record.key is None and (record.topic == "right" or how == "inner")):
            continue
        if record.key is None:
            join(record)
            continue
        now = max(now, record.timestamp)
        for ready in sorted((w for w in waiting if w.timestamp + grace <= now), key=lambda w: w.timestamp):
            waiting.remove(ready)
            join(ready)
        keeps = keep_ms if record.topic == "right" else keep_ms - WITHIN_MS
        if record.timestamp < now - keeps:
            late[record.topic].append((record.key, record.value, record.timestamp, record.headers))
        elif record.topic == "right":
            rights.append(record)
        elif record.timestamp + grace <= now:
            join(record)
        else:
            waiting.append(record)
    return {"out": out, "late-left": late["left"], "late-right": late["right"]}


@pytest.mark.parametrize("grace", GRACES_MS)
@pytest.mark.parametrize("keep", KEEPS_MS)
@settings(max_examples=60, deadline=None)
@given(records=rows, how=hows)
def test_results_are_those_of_the_documentation(records: list[Piped], how: str, grace: int, keep: int | None) -> None:
    with TopologyTestDriver(program(how, grace, keep)) as driver:
        for row in records:
            driver.create_input_topic(row.topic, serdes.string, serdes.string).pipe_input(
                row.key, row.value, row.timestamp, row.headers
            )
        topics = expected(records, how, grace, keep)
        for topic, wanted in topics.items():
            found = driver.create_output_topic(topic, serdes.string, serdes.string).read_records_to_list()
            assert [tuple(record) for record in found] == wanted


@pytest.mark.parametrize("grace", GRACES_MS)
@settings(max_examples=30, deadline=None)
@given(records=rows, how=hows, batches=sizes)
def test_all_ways_of_running_it_agree(records: list[Piped], how: str, batches: list[int], grace: int) -> None:
    assert_all_ways_agree(program(how, grace), records, batches)


@pytest.mark.parametrize("grace", GRACES_MS)
@settings(max_examples=40, deadline=None)
@given(records=rows, how=hows, cut=st.integers(0, 40))
def test_an_interruption_changes_nothing(records: list[Piped], how: str, cut: int, grace: int) -> None:
    assert_an_interruption_changes_nothing(program(how, grace), records, cut)


def test_a_repartitioned_side_waits_over_a_restart() -> None:
    builder = StreamsBuilder()
    prices = builder.stream("prices", key=serdes.string, value=serdes.integer)
    trades = builder.stream("trades", **TEXT).select_key(lambda _, value: value[:1])
    joined = trades.join_asof(
        prices, lambda trade, price: f"{trade}@{price}", 100, grace=10, store=Store(in_memory=True)
    )
    joined.to("out", **TEXT)
    with TopologyTestDriver(builder.build(), partitions=2) as driver:
        trade = driver.create_input_topic("trades", serdes.string, serdes.string)
        price = driver.create_input_topic("prices", serdes.string, serdes.integer)
        out = driver.create_output_topic("out", serdes.string, serdes.string)
        price.pipe_input("x", 1, 50)
        trade.pipe_input("any", "x1", 60)
        assert out.is_empty()
        driver.restart()
        price.pipe_input("x", 2, 55)
        price.pipe_input("x", 3, 70)
        assert out.read_records_to_list()[0][:3] == ("x", "x1@2", 60)


@given(
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4).map(tuple),
    st.binary(max_size=8),
)
def test_a_row_is_read_as_it_was_written(headers: Any, value: bytes) -> None:
    assert unpack_row(pack_row(headers, value)) == (headers, value)
