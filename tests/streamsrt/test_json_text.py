"""One JSON for values of programs, whatever prints them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from math import inf, nan
from typing import NamedTuple
from uuid import UUID

import orjson
import pytest
from google.protobuf import any_pb2, descriptor_pb2, type_pb2
from pydantic import BaseModel

from streamsrt.json_text import json_text, to_json


class Item(BaseModel):
    name: str
    due: date
    tags: list[str]


@dataclass
class Order:
    item: Item
    number: UUID


def test_a_model_is_written_by_its_fields() -> None:
    order = Order(Item(name="a", due=date(2026, 1, 2), tags=["x"]), UUID(int=7))
    assert orjson.loads(json_text(order)) == {
        "item": {"name": "a", "due": "2026-01-02", "tags": ["x"]},
        "number": "00000000-0000-0000-0000-000000000007",
    }


def test_what_json_has_no_form_for_is_its_text() -> None:
    assert json_text({1: 2j}) == '{"1":"2j"}'


class Reading(BaseModel):
    rate: float
    took: timedelta
    id: int


class Place(NamedTuple):
    name: str
    at: object


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (18446744073709551616, "18446744073709551616"),
        ({"id": [-(2**70)]}, '{"id":[-1180591620717411303424]}'),
        (nan, '"NaN"'),
        ({"rates": [1.5, None, inf, -inf]}, '{"rates":[1.5,null,"Infinity","-Infinity"]}'),
        ({nan: None}, '{"NaN":null}'),
        (b"text", '"text"'),
        ({"raw": bytearray(b"\0\xff")}, '{"raw":"0x00ff"}'),
        # Nobody could tell it from the digits of other bytes.
        (b"0xff", '"0x30786666"'),
        (b"", '""'),
        (timedelta(seconds=90), '"PT1M30S"'),
        ({timedelta(days=-1): 1}, '{"-P1D":1}'),
        (
            Reading(rate=nan, took=timedelta(seconds=1), id=2**64),
            '{"rate":"NaN","took":"PT1S","id":18446744073709551616}',
        ),
        (Place("here", {b"\xff"}), '["here",["0xff"]]'),
        ({"none": None, "of": Place("there", nan)}, '{"none":null,"of":["there","NaN"]}'),
    ],
)
def test_what_orjson_refuses_or_loses_is_written(value: object, text: str) -> None:
    assert json_text(value) == text
    assert to_json(value) == text.encode()
    assert json.loads(text) is not None


class Blob(BaseModel):
    raw: bytes
    rate: float | None = None


def test_a_model_with_bytes_that_are_no_text_is_written() -> None:
    assert json_text([Blob(raw=b"\xff")]) == '[{"raw":"0xff","rate":null}]'


def test_messages_of_protobuf_are_what_their_mapping_makes_of_them() -> None:
    message = descriptor_pb2.UninterpretedOption(
        identifier_value="ü", positive_int_value=2**63, string_value=b"\0\xff", double_value=nan
    )
    assert json.loads(json_text({"all": [message, None]})) == {
        "all": [
            {
                "name": [],
                "identifier_value": "ü",
                "positive_int_value": "9223372036854775808",
                "string_value": "AP8=",
                "double_value": "NaN",
            },
            None,
        ]
    }
    assert json.loads(json_text(type_pb2.Field(kind=type_pb2.Field.TYPE_INT64, name="n"))) == {
        "kind": "TYPE_INT64",
        "cardinality": "CARDINALITY_UNKNOWN",
        "number": 0,
        "name": "n",
        "type_url": "",
        "oneof_index": 0,
        "packed": False,
        "options": [],
        "json_name": "",
        "default_value": "",
    }


def test_a_message_that_the_mapping_refuses_is_its_text() -> None:
    unknown = any_pb2.Any(type_url="type.googleapis.com/not.there", value=b"\1")
    assert "not.there" in json.loads(json_text(unknown))
