"""Orders in each format, and what must come out of filter, map and aggregate over them.

The orders are those of :mod:`tests.bench.peers.json_data`: 300 bytes in JSON, and as text with commas; shorter in Avro and
Protobuf, which leave out the names. The numbers are their cents alone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from functools import cache
from io import BytesIO
from typing import Any

import fastavro

from streamsrt.schema_registry import SchemaRegistry
from tests.bench.peers import json_data
from tests.bench.peers.data import Columns, Expected, Message
from tests.bench.peers.order_schemas import AVRO, ORDER_SUBJECT, PROTOBUF, message_classes

TITLES = {
    "json": "JSON as dicts",
    "pydantic": "JSON as pydantic models",
    "dataclass": "JSON as dataclasses",
    "typeddict": "JSON as TypedDicts",
    "avro": "Avro, registry",
    "avro-used": "Avro, registry, only the fields that are used",
    "protobuf": "Protobuf, registry",
    "string": "text with commas",
    "number": "doubles, longs",
}
JSON = {"json", "pydantic", "dataclass", "typeddict"}
TEXT_BYTES = 300
_ORDERS_OF_TOTAL = 1 << 24


def text(order: dict[str, Any]) -> bytes:
    """``id,customer,cents,currency,city,zip,note``."""
    parts = [order[name] for name in ("id", "customer", "cents", "currency")]
    line = ",".join(map(str, [*parts, order["address"]["city"], order["address"]["zip"], ""])).encode()
    return line.ljust(TEXT_BYTES, b"x")


def _encoder(name: str, registry_url: str) -> Callable[[dict[str, Any]], bytes]:
    registry = SchemaRegistry(registry_url)
    match name:
        case "avro" | "avro-used":
            return registry.avro(ORDER_SUBJECT, AVRO["Order"]).serialize
        case "protobuf":
            order_class, _ = message_classes()
            serialize = registry.protobuf(ORDER_SUBJECT, order_class, PROTOBUF).serialize
            return lambda order: serialize(order_class(**order))
        case "string":
            return text
        case "number":
            return lambda order: struct.pack(">d", order["cents"])
        case _:
            raise ValueError(name)


def inputs(name: str, records: int, registry_url: str) -> tuple[Columns, ...]:
    """By partition: customers, orders in that format, timestamps. Their schemas are registered."""
    columns = json_data.orders(records)
    if name in JSON:
        return columns
    encode = _encoder(name, registry_url)
    return tuple((keys, [encode(json.loads(value)) for value in values], times) for keys, values, times in columns)


@cache
def expected(name: str, records: int) -> Expected:
    """By customer: twice the cents of the large orders, and how many they are where the format tells."""
    found: Expected = {}
    for keys, values, _ in json_data.orders(records):
        for key, value in zip(keys, values, strict=True):
            cents = json.loads(value)["cents"]
            if cents >= json_data.LEAST_CENTS:
                found[key] = found.get(key, 0) + _total(cents * 2, 1 if name != "number" else 0)
    return found


def summarised(name: str, messages: Iterable[list[Message]]) -> tuple[int, Expected]:
    """How many outputs a run wrote, and the last total of each customer."""
    decode = _decoder(name)
    rows = [message for some in messages for message in some]
    return len(rows), {key: decode(value) for key, value in dict(rows).items()}


def _total(cents: int, orders: int) -> int:
    return cents * _ORDERS_OF_TOTAL + orders


def _decoder(name: str) -> Callable[[bytes], int]:
    """Reads a total without the registry: behind the id of its schema, and behind the index of its message type."""
    match name:
        case "avro" | "avro-used":
            schema = fastavro.parse_schema(AVRO["Total"])

            def from_avro(data: bytes) -> int:
                row: Any = fastavro.schemaless_reader(BytesIO(data[5:]), schema, None)
                return _total(row["cents"], row["orders"])

            return from_avro
        case "protobuf":
            _, total = message_classes()

            def from_protobuf(data: bytes) -> int:
                row = total.FromString(data[7:])
                return _total(row.cents, row.orders)

            return from_protobuf
        case "string":

            def from_text(data: bytes) -> int:
                cents, orders, _ = data.split(b",")
                return _total(int(cents), int(orders))

            return from_text
        case "number":
            return lambda data: _total(int.from_bytes(data, "big"), 0)
        case _:

            def from_json(data: bytes) -> int:
                row = json.loads(data)
                return _total(row["cents"], row["orders"])

            return from_json
