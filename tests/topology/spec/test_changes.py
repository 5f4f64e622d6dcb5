"""Changes of rows in Kafka Streams' bytes, and what becomes of them on the way from older versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology import StreamsBuilder, Topology, TopologyError, serdes
from topology.graph.nodes import ProcessorNode
from topology.graph.operations import GroupTable
from topology.spec.changes import Change, change

VALUES = st.none() | st.text(max_size=200)


@pytest.mark.parametrize(
    ("new", "old", "raw"),
    [("b", None, b"b\x01"), (None, "b", b"b\x00"), ("bc", "d", b"\x04bcd\x02"), ("", "", b"\x00\x02")],
)
def test_bytes_are_those_of_kafka_streams(new: str | None, old: str | None, raw: bytes) -> None:
    assert change(serdes.string).serialize(Change(new, old)) == raw


@given(VALUES, VALUES)
def test_a_change_is_read_as_it_was_written(new: str | None, old: str | None) -> None:
    serde = change(serdes.string)
    if new is None and old is None:
        with pytest.raises(ValueError, match="old or a new value"):
            serde.serialize(Change(new, old))
    else:
        assert serde.deserialize(serde.serialize(Change(new, old))) == Change(new, old)


def test_bytes_that_are_no_change_are_refused() -> None:
    with pytest.raises(ValueError, match="ends with a byte"):
        change(serdes.string).deserialize(b"abc\x07")
    with pytest.raises(ValueError, match="ends with a byte"):
        change(serdes.string).deserialize(b"")


def grouped() -> Topology:
    builder = StreamsBuilder()
    builder.table("t", key=serdes.string, value=serdes.string).group_by(lambda k, v: (v, k)).count()
    return builder.build()


def splits(topology: Topology) -> list[bool]:
    return [
        node.operation.splits_changes
        for subtopology in topology.subtopologies
        for node in subtopology.nodes
        if isinstance(node, ProcessorNode) and isinstance(node.operation, GroupTable)
    ]


@pytest.mark.parametrize(
    ("version", "split"), [("", False), ("2.8", True), ("3.4", True), ("3.5", False), ("4.1", False)]
)
def test_members_of_old_versions_get_two_changes(version: str, split: bool) -> None:
    topology = grouped()
    configured = topology.configured({"upgrade.from": version})
    assert splits(configured) == [split]
    assert configured.digest == topology.digest


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"upgrade\.from=soon"):
        grouped().configured({"upgrade.from": "soon"})
