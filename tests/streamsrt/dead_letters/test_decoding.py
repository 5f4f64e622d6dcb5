"""Keys and values by the serdes of their application, and who else reads a topic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamsrt.dead_letters.decoding import as_text, decoders, reaches, second_time, shown
from streamsrt.errors import ConfigError
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology


def program() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=serdes.string, value=serdes.json)
    amounts = orders.map_values(lambda order: order["amount"], name="amounts")
    amounts.filter(lambda _key, amount: amount > 0, name="positive").to("amounts", value=serdes.json)
    amounts.to("copies", value=serdes.json)
    orders.group_by(lambda _key, order: order["kind"], key=serdes.string, value=serdes.json, name="by-kind").count(
        store="kinds"
    )
    return builder.build()


def test_a_value_is_what_its_source_reads() -> None:
    key, value = decoders(program(), {})
    assert shown("orders", b"k", key) == "k"
    assert shown("orders", b'{"amount": 1}', value) == {"amount": 1}
    assert shown("shop-by-kind-repartition", b'{"amount": 1}', value) == {"amount": 1}
    assert shown("orders", None, value) is None


def test_what_no_serde_reads_is_shown_as_it_is() -> None:
    _, value = decoders(program(), {})
    told = shown("orders", b"{", value)
    assert isinstance(told, str)
    assert told.startswith("{ (not decoded: ")
    assert shown("unheard-of", b"\xff\x00", value) == "ff00"
    assert as_text("any", "ä".encode()) == "ä"
    assert as_text("any", b"\0\0\0\0\0\0\0\2") == "0000000000000002", "a number, not characters that nobody sees"


def test_default_serdes_are_those_of_the_settings() -> None:
    builder = StreamsBuilder()
    builder.stream("numbers").foreach(lambda _key, _value: None)
    key, value = decoders(builder.build(), {"default.key.serde": "string", "default_value_serde": serdes.integer})
    assert shown("numbers", b"k", key) == "k"
    assert shown("numbers", b"\x00\x00\x00\x07", value) == 7
    with pytest.raises((ConfigError, ValueError), match="does not name a serde"):
        decoders(builder.build(), {"default.key.serde": "nothing"})


def test_who_sees_a_replayed_record_for_the_second_time() -> None:
    topology = program()
    beside, before = second_time(topology, "orders", "positive")
    assert before == ()
    assert "amounts" not in beside
    assert any("by-kind" in name or "KEY-SELECT" in name for name in beside), beside
    assert any("SINK" in name for name in beside), "the sink of the copies"
    assert second_time(topology, "unheard-of", "positive") == ((), ())
    assert second_time(topology, "orders", "unheard-of") == ((), ())
    assert reaches(topology, "orders", "positive")
    assert not reaches(topology, "unheard-of", "positive")
    assert not reaches(topology, "orders", "unheard-of")


def test_the_program_of_the_page_takes_replayed_records_at_the_step_only() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "dead-letters.md"
    (program,) = re.findall(r"```python\n([^>].*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    made: dict[str, Topology] = {}
    exec(program, made)
    assert reaches(made["topology"], "orders-again", "amount")
    assert second_time(made["topology"], "orders-again", "amount") == ((), ())
    assert second_time(made["topology"], "orders", "amount").beside


def test_what_comes_before_the_step_and_keeps_state_sees_it_again_too() -> None:
    builder = StreamsBuilder()
    words = builder.stream("lines", key=serdes.string, value=serdes.string).flat_map_values(str.split, name="split")
    counted = words.group_by_key().count(store="counts").to_stream(name="streamed")
    counted.map_values(lambda count: count, name="fails").to("out", value=serdes.long)
    before = second_time(builder.build(), "lines", "fails").before
    assert before[0] == "split"
    assert len(before) == 2, "and the count, but not what only passes records on"
    assert "AGGREGATE" in before[1]
