"""Filter, map and aggregate over orders in each format: the programs of the end-to-end benchmark of formats."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from typing_extensions import TypedDict

from streamsrt.schema_registry import SchemaRegistry
from tests.bench.peers.json_data import LEAST_CENTS
from tests.bench.peers.order_schemas import AVRO, ORDER_SUBJECT, PROTOBUF, TOTAL_SUBJECT, message_classes
from topology import KTable, StreamsBuilder, Topology, serdes
from topology.spec.codecs import ProgramSerde

STORE = "totals"


class AddressModel(BaseModel):
    city: str
    zip: int


class ItemModel(BaseModel):
    sku: str
    count: int


class OrderModel(BaseModel):
    id: int
    customer: str
    cents: int
    currency: str
    address: AddressModel
    items: list[ItemModel]
    note: str


class LineModel(BaseModel):
    cents: int
    city: str


class TotalModel(BaseModel):
    cents: int
    orders: int
    city: str


@dataclass
class AddressData:
    city: str
    zip: int


@dataclass
class ItemData:
    sku: str
    count: int


@dataclass
class OrderData:
    id: int
    customer: str
    cents: int
    currency: str
    address: AddressData
    items: list[ItemData]
    note: str


@dataclass
class LineData:
    cents: int
    city: str


@dataclass
class TotalData:
    cents: int
    orders: int
    city: str


class AddressDict(TypedDict):
    city: str
    zip: int


class ItemDict(TypedDict):
    sku: str
    count: int


class OrderDict(TypedDict):
    id: int
    customer: str
    cents: int
    currency: str
    address: AddressDict
    items: list[ItemDict]
    note: str


class TotalDict(TypedDict):
    cents: int
    orders: int
    city: str


def _of_dicts(builder: StreamsBuilder, source: str, order: ProgramSerde, total: ProgramSerde) -> KTable[bytes, Any]:
    return (
        builder.stream(source, key=serdes.bytes, value=order)
        .filter(lambda _, order: order["cents"] >= LEAST_CENTS)
        .map_values(lambda order: {"cents": order["cents"] * 2, "city": order["address"]["city"]})
        .group_by_key()
        .aggregate(
            lambda: {"cents": 0, "orders": 0, "city": ""},
            lambda _, line, total: {
                "cents": total["cents"] + line["cents"],
                "orders": total["orders"] + 1,
                "city": line["city"],
            },
            store=STORE,
            value=total,
        )
    )


def _of_objects(
    builder: StreamsBuilder, source: str, order: ProgramSerde, total: ProgramSerde, make_line: Any, make_total: Any
) -> KTable[bytes, Any]:
    return (
        builder.stream(source, key=serdes.bytes, value=order)
        .filter(lambda _, order: order.cents >= LEAST_CENTS)
        .map_values(lambda order: make_line(cents=order.cents * 2, city=order.address.city))
        .group_by_key()
        .aggregate(
            lambda: make_total(cents=0, orders=0, city=""),
            lambda _, line, total: make_total(cents=total.cents + line.cents, orders=total.orders + 1, city=line.city),
            store=STORE,
            value=total,
        )
    )


def _of_texts(builder: StreamsBuilder, source: str) -> KTable[bytes, Any]:
    def summed(_: bytes, line: tuple[int, str], total: str) -> str:
        cents, orders, _city = total.split(",")
        return f"{int(cents) + line[0]},{int(orders) + 1},{line[1]}"

    def line_of(text: str) -> tuple[int, str]:
        fields = text.split(",")
        return int(fields[2]) * 2, fields[4]

    return (
        builder.stream(source, key=serdes.bytes, value=serdes.string)
        .filter(lambda _, text: int(text.split(",", 3)[2]) >= LEAST_CENTS)
        .map_values(line_of)
        .group_by_key()
        .aggregate(lambda: "0,0,", summed, store=STORE, value=serdes.string)
    )


def _of_numbers(builder: StreamsBuilder, source: str) -> KTable[bytes, Any]:
    return (
        builder.stream(source, key=serdes.bytes, value=serdes.double)
        .filter(lambda _, cents: cents >= LEAST_CENTS)
        .map_values(lambda cents: int(cents) * 2)
        .group_by_key()
        .aggregate(lambda: 0, lambda _, cents, total: total + cents, store=STORE, value=serdes.long)
    )


def build(workload: str, source: str, sink: str) -> Topology:
    """``workload``: the name of a format. The address of the registry is in the environment."""
    builder = StreamsBuilder()
    totals: KTable[bytes, Any]
    match workload:
        case "json":
            totals = _of_dicts(builder, source, serdes.json, serdes.json)
        case "typeddict":
            totals = _of_dicts(builder, source, serdes.json(OrderDict), serdes.json(TotalDict))
        case "pydantic":
            order, total = serdes.json(OrderModel), serdes.json(TotalModel)
            totals = _of_objects(builder, source, order, total, LineModel, TotalModel)
        case "dataclass":
            order, total = serdes.json(OrderData), serdes.json(TotalData)
            totals = _of_objects(builder, source, order, total, LineData, TotalData)
        case "avro":
            registry = SchemaRegistry(os.environ["REGISTRY"])
            order, total = registry.avro(ORDER_SUBJECT, AVRO["Order"]), registry.avro(TOTAL_SUBJECT, AVRO["Total"])
            totals = _of_dicts(builder, source, order, total)
        case "protobuf":
            registry = SchemaRegistry(os.environ["REGISTRY"])
            order_class, total_class = message_classes()
            order = registry.protobuf(ORDER_SUBJECT, order_class, PROTOBUF)
            total = registry.protobuf(TOTAL_SUBJECT, total_class, PROTOBUF)
            totals = _of_objects(builder, source, order, total, LineData, total_class)
        case "string":
            totals = _of_texts(builder, source)
        case "number":
            totals = _of_numbers(builder, source)
        case _:
            raise ValueError(workload)
    totals.to_stream().to(sink)
    return builder.build()
