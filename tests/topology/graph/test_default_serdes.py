from __future__ import annotations

from typing import Any

import pytest

from topology import MissingSerdeError, Serde, Store, StreamsBuilder, TimeWindows, Topology, serdes
from topology.graph.nodes import SinkNode, SourceNode


def pairs(topology: Topology) -> dict[str, tuple[Serde[Any] | None, Serde[Any] | None]]:
    """Key and value serde by topic and store."""
    found = {}
    for subtopology in topology.subtopologies:
        for node in subtopology.nodes:
            if isinstance(node, (SourceNode, SinkNode)):
                topic = node.topics[0] if isinstance(node, SourceNode) else str(node.topic)
                found[topic] = (node.key_serde, node.value_serde)
        found |= {store.name: (store.key_serde, store.value_serde) for store in subtopology.stores}
    return found


def word_count() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("lines", value=serdes.string)
        .flat_map_values(str.split)
        .group_by(lambda _, word: word, key=serdes.string)
        .count(store="counts")
        .to_stream()
        .to("word-counts", value=serdes.long)
    )
    return builder.build()


def test_what_the_program_leaves_open_is_none() -> None:
    assert pairs(word_count()) == {
        "lines": (None, serdes.string),
        "counts-repartition": (serdes.string, None),
        "counts": (serdes.string, serdes.long),
        "word-counts": (serdes.string, serdes.long),
    }


def test_without_defaults_the_serde_from_before_is_assumed_and_bytes_where_nothing_was_said() -> None:
    assert pairs(word_count().with_default_serdes()) == {
        "lines": (serdes.bytes, serdes.string),
        "counts-repartition": (serdes.string, serdes.string),
        "counts": (serdes.string, serdes.long),
        "word-counts": (serdes.string, serdes.long),
    }


def test_a_default_goes_over_what_is_assumed() -> None:
    assert pairs(word_count().with_default_serdes(serdes.long, serdes.json)) == {
        "lines": (serdes.long, serdes.string),
        "counts-repartition": (serdes.string, serdes.json),
        "counts": (serdes.string, serdes.long),
        "word-counts": (serdes.string, serdes.long),
    }


def test_a_type_that_nobody_named_is_an_error_with_both_lines() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    grouped.aggregate(dict, lambda key, value, counts: counts, store="c")
    topology = builder.build()
    with pytest.raises(MissingSerdeError) as raised:
        topology.with_default_serdes()
    message = str(raised.value)
    assert message.count(__file__) == 2
    assert "values of store 'c'" in message
    assert "default.value.serde" in message
    assert pairs(topology.with_default_serdes(value=serdes.json))["c"] == (serdes.string, serdes.json)


@pytest.mark.parametrize("operator", ["process", "process_values"])
def test_what_a_processor_forwards_is_not_assumed(operator: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    getattr(stream, operator)(dict).to("out")
    with pytest.raises(MissingSerdeError, match=rf"{operator}\(\) at "):
        builder.build().with_default_serdes(key=serdes.string)


def test_a_join_makes_another_type() -> None:
    builder = StreamsBuilder()
    table = builder.table("t", key=serdes.string, value=serdes.string)
    builder.stream("in", key=serdes.string, value=serdes.string).join(table, max).to("out")
    with pytest.raises(MissingSerdeError, match=r"join\(\) at "):
        builder.build().with_default_serdes()


def test_windows_of_a_default_key() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows(5000))
    windowed.count(store="w").to_stream().to("out")
    for default in (serdes.string, serdes.long, None):
        found = pairs(builder.build().with_default_serdes(default))
        key = found["out"][0]
        assert isinstance(key, serdes.TimeWindowedSerde)
        assert (key.inner, key.size_ms) == (default or serdes.bytes, 5000)
        assert found["w"] == (default or serdes.bytes, serdes.long)


def test_merged_streams_keep_what_both_have() -> None:
    builder = StreamsBuilder()
    one = builder.stream("a", key=serdes.string, value=serdes.string)
    other = builder.stream("b", key=serdes.string, value=serdes.long)
    one.merge(other).to("out")
    assert pairs(builder.build())["out"] == (serdes.string, None)
    with pytest.raises(MissingSerdeError, match=r"merge\(\) at "):
        builder.build().with_default_serdes()


def test_names_of_serdes_go_where_they_are_given() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.select_key(max).repartition(name="r", key=serdes.long, value=serdes.json).to("out", value=serdes.bytes)
    stream.map_values(len).to_table(store=Store("t", key=serdes.bytes), value=serdes.integer)
    stream.group_by(max, key=serdes.short, name="g").reduce(max, store="red", value=serdes.uuid)
    assert pairs(builder.build()) == {
        "in": (serdes.string, serdes.string),
        "r-repartition": (serdes.long, serdes.json),
        "out": (serdes.long, serdes.bytes),
        "t": (serdes.bytes, serdes.integer),
        "g-repartition": (serdes.short, serdes.string),
        "red": (serdes.short, serdes.uuid),
    }
