"""Joins over several subtopologies, or with a buffer: a restart anywhere, and caching, change nothing of what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import Store, StreamsBuilder, Topology, UnsupportedError, WindowError, serdes

TEXT = {"key": serdes.string, "value": serdes.string}
Row = tuple[str, str | None, str | None, int]

rows = st.lists(
    st.tuples(
        st.sampled_from(("left", "right")),
        st.sampled_from(("a", "b", "c")),
        st.none() | st.sampled_from(("a1", "a2", "b1", "c1")),
        st.integers(0, 50),
    ),
    max_size=25,
)


def both(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def foreign_key(left: bool) -> Callable[[], Topology]:
    def build() -> Topology:
        builder = StreamsBuilder()
        table, other = builder.table("left", store="left", **TEXT), builder.table("right", store="right", **TEXT)
        join: Any = table.left_join if left else table.join
        # A row's foreign key is the first letter of its value; there is no row under "c1"'s.
        joined = join(other, both, foreign_key=lambda v: None if v == "c1" else v[0], store=Store("joined", **TEXT))
        joined.to_stream().to("out", **TEXT)
        return builder.build()

    return build


def with_grace() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("right", store=Store("right", kind="versioned", retention=100, **TEXT))
    builder.stream("left", **TEXT).left_join(table, both, grace=10).to("out", **TEXT)
    return builder.build()


PROGRAMS: dict[str, Callable[[], Topology]] = {
    "foreign_key": foreign_key(False),
    "foreign_key_left": foreign_key(True),
    "grace": with_grace,
}


def outcome(
    topology: Topology, piped: list[Row], *, restart_at: int | None = None, cached: bool = False, generate: bool = True
) -> tuple[list[Any], dict[str, list[Any]]]:
    """What was written to ``out``, and what the stores hold."""
    config = {"statestore.cache.max.bytes": 1 << 20 if cached else 0}
    with TopologyTestDriver(topology, config, generate=generate) as driver:
        for index, (topic, key, value, timestamp) in enumerate(piped):
            if index == restart_at:
                driver.restart()
            driver.create_input_topic(topic, serdes.string, serdes.string).pipe_input(key, value, timestamp)
        written = driver.create_output_topic("out", serdes.string, serdes.string).read_records_to_list()
        stores = {
            name: list(driver.get_key_value_store(name, timestamped=True).all())
            for name in driver.store_names()
            if driver.store_kind(name) == "key_value"
        }
    return written, {
        name: unnumbered(entries) if name.endswith("-Buffer") else entries for name, entries in stores.items()
    }


def unnumbered(entries: list[Any]) -> list[Any]:
    """Rows of a buffer, in their order, without the numbers at the end of their keys: after a restart they go on behind
    those that are still there, while a task that runs on has given some to records that were joined at once."""
    return [(key[:-4], row) for key, row in entries]


AT_ONCE_BEFORE_THE_RESTART: list[Row] = [
    *[("left", "a", None, 0)] * 10,
    ("left", "a", "a1", 22),
    ("left", "a", "a1", 12),
    ("left", "a", "a1", 13),
]


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=25, deadline=None)
@given(piped=rows, restart_at=st.integers(0, 25))
@example(piped=AT_ONCE_BEFORE_THE_RESTART, restart_at=12)
def test_a_restart_changes_nothing(program: str, piped: list[Row], restart_at: int) -> None:
    topology = PROGRAMS[program]()
    assert outcome(topology, piped, restart_at=restart_at) == outcome(topology, piped)


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=15, deadline=None)
@given(piped=rows)
def test_generated_code_changes_nothing_and_caching_not_the_values(program: str, piped: list[Row]) -> None:
    topology = PROGRAMS[program]()
    expected = outcome(topology, piped)
    assert outcome(topology, piped, generate=False) == expected
    # A cache does not tell of rows that are deleted and never were.
    assert last_values(*outcome(topology, piped, cached=True)) == last_values(*expected)


def last_values(written: list[Any], stores: dict[str, list[Any]]) -> Any:
    newest = {record.key: record.value for record in written}
    rows = {name: [(key, getattr(row, "value", row)) for key, row in entries] for name, entries in stores.items()}
    return {key: value for key, value in newest.items() if value is not None}, rows


def test_a_record_without_a_key_does_not_wait_in_a_left_join() -> None:
    with TopologyTestDriver(with_grace()) as driver:
        driver.create_input_topic("left", serdes.string, serdes.string).pipe_input(None, "x", 5)
        out = driver.create_output_topic("out", serdes.string, serdes.string)
        assert out.read_records_to_list()[0][:3] == (None, "x+None", 5)


def test_grace_needs_versions() -> None:
    builder = StreamsBuilder()
    with pytest.raises(UnsupportedError, match="keeps versions"):
        builder.stream("left").join(builder.table("right", store="right"), both, grace=10)


def test_grace_is_not_negative() -> None:
    builder = StreamsBuilder()
    table = builder.table("right", store=Store("right", kind="versioned", retention=100))
    with pytest.raises(WindowError, match="must not be negative"):
        builder.stream("left").join(table, both, grace=-1)
