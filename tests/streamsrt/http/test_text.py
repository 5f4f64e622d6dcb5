"""Keys out of URLs, and what JSON does not know."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
import pytest
from pydantic import BaseModel

from streamsrt.errors import UserError
from streamsrt.http.text import key_of, row_json
from streamsrt.json_text import to_json
from topology import serdes
from topology.graph.nodes import StoreSpec
from topology.spec.stores import ValueAndTimestamp
from topology.spec.windows import Windowed

SOME = UUID("0b8f2f0e-6d0c-4ee8-a0e0-3f4a8a4a6c10")


@pytest.mark.parametrize(
    ("serde", "text", "key"),
    [
        (serdes.string, "7", "7"),
        (serdes.long, "-7", -7),
        (serdes.double, "1.5", 1.5),
        (serdes.uuid, str(SOME), SOME),
        (serdes.bytes, "0xff00", b"\xff\x00"),
        (serdes.bytes, "ab", b"ab"),
        (serdes.json, '{"a":1}', {"a": 1}),
        (serdes.json, "a word", "a word"),
    ],
)
def test_text_becomes_what_the_serde_takes(serde: Any, text: str, key: object) -> None:
    assert key_of(StoreSpec(name="s", key_serde=serde), text) == key


def test_text_that_is_no_key() -> None:
    with pytest.raises(UserError, match="'seven' is not a key of store 's': its keys have the serde 'long'"):
        key_of(StoreSpec(name="s", key_serde=serdes.long), "seven")


def test_rows() -> None:
    assert row_json("k", ValueAndTimestamp(3, 9)) == {"key": "k", "value": 3, "timestamp": 9}
    assert row_json(Windowed("k", 5, 6), 3) == {"key": "k", "start": 5, "end": 6, "value": 3}
    assert orjson.loads(to_json({"a": b"text", "b": b"\xff", "c": frozenset({2, 1}), "d": SOME})) == {
        "a": "text",
        "b": "0xff",
        "c": [1, 2],
        "d": str(SOME),
    }


@dataclass
class Total:
    cents: int


class Shop(BaseModel):
    cents: int


def test_what_orjson_does_not_write_is_written_all_the_same() -> None:
    """Values of a program's own serde may be anything: a row without an answer would look like an instance that is away."""
    nested: object = "end"
    for _ in range(300):
        nested = [nested]
    value = {
        "large": 2**70,
        "pairs": {("a", 1): 1, b"k": 2, 3: 3},
        "surrogate": "\ud800",
        "objects": [Total(2**64), Shop(cents=2**64)],
        "number": 2**64 - 1,
        "nested": nested,
    }
    found = json.loads(to_json(value))
    assert found.pop("nested")
    assert found == {
        "large": 2**70,
        "pairs": {"('a', 1)": 1, "k": 2, "3": 3},
        "surrogate": "\ud800",
        "objects": [{"cents": 2**64}] * 2,
        "number": 2**64 - 1,
    }


def test_numbers_and_text_that_few_writers_of_json_take() -> None:
    wei = 123_456_789_012_345_678_901
    row = {"key": "\ud83d", "value": {"wei": [wei, -wei, 1.5, None, True], "of": {b"a", b"b"}}, "timestamp": 1}
    assert json.loads(to_json(row)) == {**row, "value": {"wei": [wei, -wei, 1.5, None, True], "of": ["a", "b"]}}
    assert to_json({"key": 1, "value": wei}) == b'{"key":1,"value":123456789012345678901}'
