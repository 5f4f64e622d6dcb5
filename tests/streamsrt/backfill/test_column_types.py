"""Values of serdes as columns: what type each is, and that every value fits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Literal, NotRequired, TypedDict
from uuid import UUID

import pyarrow as pa
import pytest
from google.protobuf import type_pb2
from pydantic import BaseModel

from streamsrt.backfill.column_types import TIME, UnfitValueError, column_type, ms_of_time, time_of_ms
from streamsrt.schema_registry import SchemaRegistry
from topology import serdes
from topology.spec.codecs import ProgramSerde

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAME = UUID(int=7)


class Size(Enum):
    SMALL = "small"


class Item(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    id: int
    at: datetime
    day: date | None
    price: float
    paid: bool
    items: list[Item]
    prices: dict[str, float]
    size: Size
    kind: Literal["a", "b"]
    amount: Decimal
    code: UUID
    either: int | str
    any: object = None


class Tree(BaseModel):
    name: str
    children: list[Tree]


@dataclass
class Point:
    x: int
    y: float | None


class Sparse(TypedDict):
    a: int
    b: NotRequired[str]


ORDER = Order(
    id=1,
    at=NOON,
    day=None,
    price=1.5,
    paid=True,
    items=[Item(sku="x"), Item(sku="y", count=2)],
    prices={"x": 0.5},
    size=Size.SMALL,
    kind="b",
    amount=Decimal("1.10"),
    code=NAME,
    either="z",
    any={"free": [1]},
)


def column(serde: ProgramSerde, values: Sequence[object]) -> pa.Array:
    """The values through the serde's bytes into a column."""
    found = column_type(serde)
    return pa.array([found.of(serde.deserialize(serde.serialize(value))) for value in values], found.type)


@pytest.mark.parametrize(
    ("serde", "value", "kind", "shown"),
    [
        (serdes.string, "é", pa.string(), "é"),
        (serdes.bytes, b"\xff", pa.binary(), b"\xff"),
        (serdes.short, -3, pa.int16(), -3),
        (serdes.integer, 2**31 - 1, pa.int32(), 2**31 - 1),
        (serdes.long, -(2**63), pa.int64(), -(2**63)),
        (serdes.float, 0.5, pa.float32(), 0.5),
        (serdes.double, 0.1, pa.float64(), 0.1),
        (serdes.boolean, True, pa.bool_(), True),
        (serdes.uuid, NAME, pa.string(), str(NAME)),
        (serdes.json, {"a": [1, None]}, pa.string(), '{"a":[1,null]}'),
        (serdes.json(list[int]), [1, 2], pa.list_(pa.int64()), [1, 2]),
    ],
)
def test_serdes_have_the_types_of_their_values(
    serde: ProgramSerde, value: object, kind: pa.DataType, shown: object
) -> None:
    found = column(serde, [value])
    assert found.type == kind
    assert found.to_pylist() == [shown]


def test_models_are_structs_of_their_fields() -> None:
    found = column(serdes.json(Order), [ORDER, ORDER.model_copy(update={"day": date(2026, 3, 1)})])
    types = {field.name: field.type for field in found.type}
    assert types == {
        "id": pa.int64(),
        "at": TIME,
        "day": pa.date32(),
        "price": pa.float64(),
        "paid": pa.bool_(),
        "items": pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int64())])),
        "prices": pa.map_(pa.string(), pa.float64()),
        "size": pa.string(),
        "kind": pa.string(),
        "amount": pa.string(),
        "code": pa.string(),
        "either": pa.string(),
        "any": pa.string(),
    }
    first, second = found.to_pylist()
    assert (first["at"], first["day"], second["day"]) == (NOON, None, date(2026, 3, 1))
    assert first["items"] == [{"sku": "x", "count": 1}, {"sku": "y", "count": 2}]
    assert (first["prices"], first["size"], first["amount"]) == ([("x", 0.5)], "small", "1.10")
    assert (first["either"], first["any"]) == ('"z"', '{"free":[1]}')


def test_dataclasses_and_typed_dicts_are_structs_and_what_may_be_missing_is_null() -> None:
    assert column(serdes.json(Point), [Point(1, None)]).to_pylist() == [{"x": 1, "y": None}]
    assert column(serdes.json(Sparse), [{"a": 1}, {"a": 2, "b": "x"}]).to_pylist() == [
        {"a": 1, "b": None},
        {"a": 2, "b": "x"},
    ]


def test_what_contains_itself_is_json_where_it_does() -> None:
    tree = Tree(name="a", children=[Tree(name="b", children=[])])
    found = column(serdes.json(Tree), [tree])
    assert found.to_pylist() == [{"name": "a", "children": ['{"name":"b","children":[]}']}]


AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "level", "type": {"type": "enum", "name": "Level", "symbols": ["LOW", "HIGH"]}},
        {"name": "last", "type": ["null", "Level"]},
        {"name": "count", "type": "int"},
        {"name": "tags", "type": {"type": "map", "values": "float"}},
        {"name": "parts", "type": {"type": "array", "items": {"type": "fixed", "name": "Two", "size": 2}}},
        {"name": "either", "type": ["int", "string"]},
        {"name": "before", "type": ["null", "Reading"]},
    ],
}


def test_avro_records_are_structs_of_their_fields() -> None:
    # The registry is not asked for a type.
    found = column_type(SchemaRegistry("http://127.0.0.1:1").avro("readings-value", AVRO))
    value: dict[str, object] = {
        "at": NOON,
        "day": None,
        "clock": time(1, 2),
        "price": Decimal("10.25"),
        "level": "LOW",
        "last": "HIGH",
        "count": 3,
        "tags": {"a": 0.5},
        "parts": [b"ab"],
        "either": "x",
    }
    (row,) = pa.array([found.of({**value, "before": {**value, "before": None}})], found.type).to_pylist()
    assert row["before"].startswith('{"at":')
    assert {**row, "before": None} == {
        **value,
        "clock": "01:02:00",
        "tags": [("a", 0.5)],
        "either": '"x"',
        "before": None,
    }
    types = {field.name: field.type for field in found.type}
    assert (types["at"], types["day"], types["price"], types["count"]) == (
        TIME,
        pa.date32(),
        pa.decimal128(6, 2),
        pa.int32(),
    )


def test_registered_json_has_the_fields_of_its_model() -> None:
    found = column_type(SchemaRegistry("http://127.0.0.1:1").json("points-value", Point))
    assert found.type == pa.struct([("x", pa.int64()), ("y", pa.float64())])


def test_times_that_no_calendar_has_are_null() -> None:
    assert time_of_ms(1) == datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
    assert [time_of_ms(ms) for ms in (None, -1, 2**63 - 1)] == [None, None, None]
    assert all(ms_of_time(time_of_ms(ms)) == ms for ms in (0, 1, 253_402_300_799_999))
    assert ms_of_time(None) is None


def test_an_integer_of_a_model_that_no_column_has_room_for_is_an_error_that_says_where() -> None:
    column = column_type(serdes.json(Item))
    assert column.of(Item(sku="a", count=-(2**63))) == {"sku": "a", "count": -(2**63)}
    with pytest.raises(UnfitValueError, match=r"the integer 9223372036854775808 does not fit into a column") as caught:
        column.of(Item(sku="a", count=2**63))
    assert caught.value.fields == ("count",)
    nested = column_type(serdes.json(dict[str, list[Item]]))
    with pytest.raises(UnfitValueError) as caught:
        nested.of({"a": [Item(sku="a", count=2**63)]})
    assert caught.value.fields == ("count",)


def test_messages_of_protobuf_are_json_by_their_own_mapping() -> None:
    serde = SchemaRegistry("http://localhost").protobuf("p", type_pb2.Option, "")
    column = column_type(serde)
    assert column.type == pa.string()
    assert column.of(type_pb2.Option(name="n")) == '{"name":"n"}'
