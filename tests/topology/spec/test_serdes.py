from __future__ import annotations

import json
import struct
import sys
from dataclasses import dataclass
from datetime import date
from inspect import signature
from typing import Annotated, Any, NotRequired, TypedDict
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from streamsrt.wire.murmur2 import partition_for_key
from tests.oracle.programs import GOLDEN, serde, to_value
from topology import TopologyError, Windowed, serdes
from topology.spec.codecs import _writer


def special(case: str) -> list[dict[str, Any]]:
    return json.loads((GOLDEN / f"{case}.json").read_text())["rows"]


@pytest.mark.parametrize("row", special("06-stores/serdes"), ids=lambda row: f"{row['serde']} {row['value']}")
def test_bytes_are_javas(row: dict[str, Any]) -> None:
    own, value = serde(row["serde"]), to_value(row["value"], row["serde"])
    assert own.serialize(value).hex() == row["hex"]
    assert own.deserialize(bytes.fromhex(row["hex"])) == value


@pytest.mark.parametrize("row", special("06-stores/key-schemas"), ids=lambda row: f"{row['key_hex']}@{row['start']}")
def test_windowed_keys_are_javas(row: dict[str, Any]) -> None:
    windowed = serdes.time_windowed(serdes.bytes, row["end"] - row["start"])
    key = Windowed(bytes.fromhex(row["key_hex"]), row["start"], row["end"])
    assert windowed.serialize(key).hex() == row["time_windowed_serde_hex"]
    assert windowed.deserialize(windowed.serialize(key)) == key


@pytest.mark.parametrize("row", special("09-partitioning/windowed-stream-partitioner"))
def test_windowed_keys_of_other_types_are_javas(row: dict[str, Any]) -> None:
    windowed = serdes.time_windowed(serde(row["serde"]), row["end"] - row["start"])
    key = Windowed(to_value(row["key"], row["serde"]), row["start"], row["end"])
    assert windowed.serialize(key).hex() == row["time_windowed_key_hex"]
    assert windowed.inner.serialize(key.key).hex() == row["base_key_hex"]


NUMBERS = {
    serdes.short: (16, st.integers(-(1 << 15), (1 << 15) - 1)),
    serdes.integer: (32, st.integers(-(1 << 31), (1 << 31) - 1)),
    serdes.long: (64, st.integers(-(1 << 63), (1 << 63) - 1)),
}


@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_integers_round_trip(number: serdes.CallableSerde[int]) -> None:
    bits, values = NUMBERS[number]

    @given(values)
    def check(value: int) -> None:
        assert len(number.serialize(value)) == bits // 8
        assert number.deserialize(number.serialize(value)) == value

    check()


@given(st.floats(allow_nan=False), st.text(st.characters(exclude_categories=["Cs"])), st.binary(), st.uuids())
def test_others_round_trip(number: float, text: str, data: bytes, identifier: UUID) -> None:
    assert serdes.double.deserialize(serdes.double.serialize(number)) == number
    assert serdes.string.deserialize(serdes.string.serialize(text)) == text
    assert serdes.bytes.deserialize(serdes.bytes.serialize(data)) == data
    assert serdes.uuid.deserialize(serdes.uuid.serialize(identifier)) == identifier


@pytest.mark.parametrize(
    ("own", "value"),
    [
        (serdes.string, 1),
        (serdes.string, b"bytes"),
        (serdes.bytes, "text"),
        (serdes.bytes, 7),
        (serdes.long, "1"),
        (serdes.long, 1 << 63),
        (serdes.integer, 1.5),
        (serdes.short, 1 << 15),
        (serdes.double, "1.5"),
        (serdes.boolean, 1),
        (serdes.uuid, "123e4567-e89b-12d3-a456-426614174000"),
        (serdes.void, 1),
        (serdes.json, object()),
    ],
)
def test_a_value_of_another_type_is_refused(own: serdes.Serde[Any], value: object) -> None:
    with pytest.raises((TypeError, ValueError, struct.error)):
        own.serialize(value)


@pytest.mark.parametrize(
    ("own", "data"),
    [
        (serdes.string, b"\xff"),
        (serdes.long, b"1234567"),
        (serdes.integer, b"12345"),
        (serdes.short, b""),
        (serdes.float, b"12345"),
        (serdes.double, b"1234"),
        (serdes.boolean, b"\x02"),
        (serdes.boolean, b"\x01\x01"),
        (serdes.uuid, b"not a uuid"),
        (serdes.void, b""),
        (serdes.json, b"{"),
        (serdes.time_windowed(serdes.string, 10), b"1234567"),
    ],
)
def test_malformed_bytes_are_refused(own: serdes.Serde[Any], data: bytes) -> None:
    with pytest.raises((TypeError, ValueError, struct.error)):
        own.deserialize(data)


def test_bytes_takes_every_kind_of_bytes() -> None:
    assert serdes.bytes.serialize(bytearray(b"a")) == serdes.bytes.serialize(memoryview(b"a")) == b"a"


class Reading(BaseModel):
    sensor: str
    celsius: float


@dataclass
class Flight:
    number: int
    day: date


def test_json_of_plain_values() -> None:
    value = {"a": [1, None, "ü"]}
    assert serdes.json.serialize(value) == '{"a":[1,null,"ü"]}'.encode()
    assert serdes.json.deserialize(serdes.json.serialize(value)) == value


@pytest.mark.parametrize(
    ("model", "value", "data"),
    [
        (Reading, Reading(sensor="a", celsius=1.5), b'{"sensor":"a","celsius":1.5}'),
        (Flight, Flight(7, date(2013, 1, 1)), b'{"number":7,"day":"2013-01-01"}'),
        (dict[str, int], {"a": 1}, b'{"a":1}'),
    ],
)
def test_json_of_a_type(model: type[Any], value: object, data: bytes) -> None:
    own = serdes.json(model)
    assert own.serialize(value) == data
    assert own.deserialize(data) == value


def test_json_of_a_type_validates_what_it_reads() -> None:
    with pytest.raises(ValidationError, match="celsius"):
        serdes.json(Reading).deserialize(b'{"sensor":"a"}')


class Aliased(BaseModel):
    model_config = ConfigDict(validate_by_name=True)

    number: int = Field(alias="no")


def test_json_of_a_model_has_the_names_that_pydantic_gives_it() -> None:
    own, adapter = serdes.json(Aliased), TypeAdapter(Aliased)
    row = Aliased(number=1)
    assert own.serialize(row) == adapter.dump_json(row)
    assert own.deserialize(b'{"no":1}') == own.deserialize(b'{"number":1}') == row


@dataclass
class Sent:
    number: int = Field(serialization_alias="no")


@pytest.mark.parametrize("by_alias", [None, True, False])
@pytest.mark.parametrize(
    ("model", "value"), [(Aliased, Aliased(no=1)), (Sent, Sent(1)), (dict[str, float], {"celsius": 1.5})]
)
def test_a_writer_writes_as_pydantic_calls_it(model: Any, value: object, by_alias: bool | None) -> None:
    to_json = TypeAdapter(model).serializer.to_json
    assert _writer(to_json, by_alias)(value) == to_json(value, by_alias=by_alias)


def test_an_argument_that_the_core_has_by_default_is_not_given() -> None:
    """Giving it takes time for each record."""
    adapter = TypeAdapter(Aliased)
    default = signature(adapter.serializer.to_json).parameters["by_alias"].default
    assert _writer(adapter.serializer.to_json, default) == adapter.serializer.to_json
    assert serdes.json(Aliased).serialize(Aliased(no=1)) == adapter.dump_json(Aliased(no=1))


def test_where_the_core_has_another_default_pydantics_is_given() -> None:
    def named(value: object, *, by_alias: bool = True) -> bytes:
        return repr((value, by_alias)).encode()

    def other(value: object, **options: bool) -> bytes:
        return repr((value, options)).encode()

    assert _writer(named, False)(1) == b"(1, False)"
    assert _writer(other, True)(1) == b"(1, {'by_alias': True})"


def test_json_of_a_model_whose_parts_are_defined_later() -> None:
    class Whole(BaseModel):
        part: Part

    own = serdes.json(Whole)

    class Part(BaseModel):
        number: int

    Whole.model_rebuild(_types_namespace={"Part": Part})
    data = b'{"part":{"number":1}}'
    assert own.serialize(own.deserialize(data)) == data


class Seat(TypedDict):
    row: Annotated[int, Field(ge=1)]


class Sold(Seat, total=False):
    price: float


class Ticket(TypedDict):
    seat: Seat
    sold: Sold | None
    others: list[Seat]
    by_day: NotRequired[dict[str, list[Seat]]]


class Tree(TypedDict):
    below: list[Tree]


def test_json_of_a_typed_dict() -> None:
    own = serdes.json(Ticket)
    ticket: Ticket = {"seat": {"row": 3}, "sold": {"row": 3, "price": 1.5}, "others": [{"row": 4}]}
    assert own.deserialize(own.serialize(ticket)) == ticket
    whole: Ticket = {"seat": {"row": 3}, "sold": None, "others": [], "by_day": {"mon": [{"row": 1}]}}
    assert own.deserialize(own.serialize(whole)) == whole
    with pytest.raises(ValidationError, match=r"others\.0\.row\n  Field required"):
        own.deserialize(b'{"seat":{"row":3},"sold":null,"others":[{}]}')
    with pytest.raises(ValidationError, match=r"seat\.row\n  Input should be greater"):
        own.deserialize(b'{"seat":{"row":0},"sold":null,"others":[]}')
    assert serdes.json(list[Seat]).deserialize(b'[{"row":1}]') == [{"row": 1}]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes it as it is")
def test_a_typed_dict_that_contains_itself_is_told_what_to_do() -> None:
    with pytest.raises(
        TopologyError, match=r"test_serdes.py:.*Tree contains itself: .*, use TypedDict of typing_extensions"
    ):
        serdes.json(Tree)


def test_what_is_no_type_is_refused_in_one_line() -> None:
    no_type: Any = 5
    with pytest.raises(
        TopologyError, match=r"test_serdes.py:\d+: serdes.json\(\) takes a type, such as a model, not 5"
    ) as raised:
        serdes.json(no_type)
    assert "\n" not in str(raised.value)


def test_names_tell_serdes_apart() -> None:
    named = [
        *(
            serde(name)
            for name in ("string", "bytes", "long", "int", "short", "float", "double", "bool", "uuid", "void")
        ),
        serdes.json,
        serdes.json(Reading),
        serdes.json(Flight),
        serdes.time_windowed(serdes.string, 10),
        serdes.time_windowed(serdes.string, 20),
        serdes.time_windowed(serdes.long, 10),
    ]
    assert len({own.name for own in named}) == len(named)


@pytest.mark.parametrize(
    "row", special("09-partitioning/windowed-stream-partitioner"), ids=lambda row: str(row["start"])
)
def test_a_windowed_key_goes_where_its_inner_key_goes(row: dict[str, Any]) -> None:
    inner = {"string": serdes.string, "long": serdes.long, "bytes": serdes.bytes}[row["serde"]]
    key = bytes.fromhex(row["key"]) if row["serde"] == "bytes" else row["key"]
    windowed = serdes.time_windowed(inner, row["end"] - row["start"])
    assert windowed.serialize(Windowed(key, row["start"], row["end"])).hex() == row["time_windowed_key_hex"]
    assert inner.serialize(key).hex() == row["base_key_hex"]
    for partitions, partition in row["partition"].items():
        assert partition_for_key(inner.serialize(key), int(partitions)) == partition
