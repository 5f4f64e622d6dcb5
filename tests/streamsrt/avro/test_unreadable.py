"""What can't be read is told in one short sentence, whoever reads it: C, generated code or fastavro."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import pytest

from streamsrt.avro import kernels
from streamsrt.avro.unreadable import UnreadableAvroError, in_short
from streamsrt.avro.values import reader_of
from tests.streamsrt.avro.test_values import native

__all__ = ["native"]

MONEY = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
TIGHT: dict[str, Any] = {"type": "enum", "name": "shop.Size", "symbols": ["S", "M"]}
FIELDS: list[dict[str, Any]] = [
    {"name": "size", "type": TIGHT},
    {"name": "total", "type": MONEY},
    {"name": "all", "type": {"type": "array", "items": "shop.Money"}},
    {"name": "hash", "type": {"type": "fixed", "name": "shop.Hash", "size": 2}},
    {"name": "note", "type": ["null", "string"]},
]
VALUE = {"size": "M", "total": {"cents": 5}, "all": [{"cents": 1}], "hash": b"ab", "note": "text"}
ORIGIN = "schema 7 of the schema registry"


def order(*fields: dict[str, Any], name: str = "shop.Order") -> Any:
    return fastavro.parse_schema({"type": "record", "name": name, "fields": list(fields)})


def written() -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, order(*FIELDS), VALUE)
    return out.getvalue()


def refused(data: bytes, reader: Any, writer: Any = None) -> str:
    with pytest.raises(UnreadableAvroError) as error:
        reader_of(writer or order(*FIELDS), reader, ORIGIN)(data, 0)
    assert error.value.__cause__ is not None
    return str(error.value)


@pytest.mark.parametrize(
    "more", [[], [{"name": "either", "type": ["int", "string", "null"]}]], ids=["code", "fastavro"]
)
def test_a_value_that_is_cut_off_or_damaged(native: kernels.NativeAvro | None, more: list[dict[str, Any]]) -> None:
    whole, schema = written(), order(*FIELDS, *more)
    said = f"the value ends too early or is damaged: it is no shop.Order ({ORIGIN})"
    for size in range(len(whole)):
        assert refused(whole[:size], schema, schema) == said
    for broken in (b"\x09" + whole[1:], whole[:-4] + b"\xff\xff\xff\xff"):
        assert refused(broken, schema, schema) == said
    reader = reader_of(order(*FIELDS), order(*FIELDS), ORIGIN)
    assert reader(whole, 0) == VALUE


@pytest.mark.parametrize(
    ("reader", "says"),
    [
        (order({"name": "new", "type": "long"}), "shop.Order: No default value for field new in shop.Order"),
        (order({"name": "total", "type": "string"}), "shop.Order: shop.Money is not string"),
        (order({"name": "total", "type": {**MONEY, "name": "Geld"}}), "shop.Order: shop.Money is not shop.Geld"),
        (order(*FIELDS, name="shop.Bill"), "shop.Bill: shop.Order is not shop.Bill"),
        ("string", "string: shop.Order is not string"),
        (
            order({"name": "note", "type": ["null", "long"]}),
            "shop.Order: a union of null, string not found in a union of null, long",
        ),
        (
            order({"name": "all", "type": {"type": "array", "items": "long"}}),
            "shop.Order: array of shop.Money is not array of long",
        ),
        (
            order({"name": "hash", "type": {"type": "fixed", "name": "shop.Hash", "size": 3}}),
            "shop.Order: shop.Hash size is different than shop.Hash",
        ),
        (
            order({"name": "size", "type": {**TIGHT, "symbols": ["S"]}}),
            "shop.Order: M not found in reader symbol list shop.Size, known symbols: ['S']",
        ),
    ],
)
def test_schemas_that_do_not_fit_are_named_and_not_printed(
    native: kernels.NativeAvro | None, reader: Any, says: str
) -> None:
    assert refused(written(), reader) == f"what was written with shop.Order ({ORIGIN}) can't be read as {says}"


def test_texts_that_only_look_like_schemas() -> None:
    doc = order({"name": "total", "type": {**MONEY, "doc": "this is not that"}})
    whole = refused(b"\x0a", order({"name": "total", "type": "string"}), doc)
    assert whole.endswith("can't be read as shop.Order: shop.Money is not string")
    odd = order({"name": "total", "type": "float", "default": float("inf")})
    assert refused(b"", "string", odd).endswith("can't be read as string: types in them differ")
    assert in_short({"type": "map", "values": ["null", {"type": "long", "logicalType": "timestamp-millis"}]}) == (
        "map of a union of null, long"
    )
