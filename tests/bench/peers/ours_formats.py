"""Filter, map and aggregate over orders in each format: the programs of the end-to-end benchmark of formats."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from streamsrt.schema_registry import SchemaRegistry
from tests.bench.peers.json_data import LEAST_CENTS
from tests.bench.peers.order_schemas import AVRO, ORDER_SUBJECT, PROTOBUF, TOTAL_SUBJECT, USED, message_classes
from tests.bench.peers.order_types import (
    LineData,
    LineModel,
    OrderData,
    OrderDict,
    OrderModel,
    TotalData,
    TotalDict,
    TotalModel,
)
from topology import StreamsBuilder, Topology, serdes
from topology.spec.codecs import ProgramSerde

STORE = "totals"


class Steps(NamedTuple):
    """What a program does with each order."""

    order: ProgramSerde
    is_large: Callable[[Any, Any], bool]
    line_of: Callable[[Any], Any]
    nothing: Callable[[], Any]
    add: Callable[[Any, Any, Any], Any]
    total: ProgramSerde


def _of_dicts(order: ProgramSerde, total: ProgramSerde) -> Steps:
    return Steps(
        order,
        lambda _, order: order["cents"] >= LEAST_CENTS,
        lambda order: {"cents": order["cents"] * 2, "city": order["address"]["city"]},
        lambda: {"cents": 0, "orders": 0, "city": ""},
        lambda _, line, total: {
            "cents": total["cents"] + line["cents"],
            "orders": total["orders"] + 1,
            "city": line["city"],
        },
        total,
    )


def _of_objects(order: ProgramSerde, total: ProgramSerde, make_line: Any, make_total: Any) -> Steps:
    return Steps(
        order,
        lambda _, order: order.cents >= LEAST_CENTS,
        lambda order: make_line(cents=order.cents * 2, city=order.address.city),
        lambda: make_total(cents=0, orders=0, city=""),
        lambda _, line, total: make_total(cents=total.cents + line.cents, orders=total.orders + 1, city=line.city),
        total,
    )


def _of_texts() -> Steps:
    def summed(_: bytes, line: tuple[int, str], total: str) -> str:
        cents, orders, _city = total.split(",")
        return f"{int(cents) + line[0]},{int(orders) + 1},{line[1]}"

    def line_of(text: str) -> tuple[int, str]:
        fields = text.split(",")
        return int(fields[2]) * 2, fields[4]

    return Steps(
        serdes.string,
        lambda _, text: int(text.split(",", 3)[2]) >= LEAST_CENTS,
        line_of,
        lambda: "0,0,",
        summed,
        serdes.string,
    )


def _of_numbers() -> Steps:
    return Steps(
        serdes.double,
        lambda _, cents: cents >= LEAST_CENTS,
        lambda cents: int(cents) * 2,
        lambda: 0,
        lambda _, cents, total: total + cents,
        serdes.long,
    )


def steps(name: str, registry_url: str) -> Steps:
    """Those of a format."""
    registry = SchemaRegistry(registry_url)
    match name:
        case "json":
            return _of_dicts(serdes.json, serdes.json)
        case "typeddict":
            return _of_dicts(serdes.json(OrderDict), serdes.json(TotalDict))
        case "pydantic":
            return _of_objects(serdes.json(OrderModel), serdes.json(TotalModel), LineModel, TotalModel)
        case "dataclass":
            return _of_objects(serdes.json(OrderData), serdes.json(TotalData), LineData, TotalData)
        case "avro" | "avro-used":
            order = registry.avro(ORDER_SUBJECT, AVRO["Order"] if name == "avro" else USED)
            return _of_dicts(order, registry.avro(TOTAL_SUBJECT, AVRO["Total"]))
        case "protobuf":
            order_class, total_class = message_classes()
            order = registry.protobuf(ORDER_SUBJECT, order_class, PROTOBUF)
            total = registry.protobuf(TOTAL_SUBJECT, total_class, PROTOBUF)
            return _of_objects(order, total, LineData, total_class)
        case "string":
            return _of_texts()
        case "number":
            return _of_numbers()
        case _:
            raise ValueError(name)


def build(workload: str, source: str, sink: str) -> Topology:
    """``workload``: the name of a format. The address of the registry is in the environment."""
    builder = StreamsBuilder()
    each = steps(workload, os.environ["REGISTRY"])
    totals = (
        builder.stream(source, key=serdes.bytes, value=each.order)
        .filter(each.is_large)
        .map_values(each.line_of)
        .group_by_key()
        .aggregate(each.nothing, each.add, store=STORE, value=each.total)
    )
    totals.to_stream().to(sink)
    return builder.build()


def by_hand(name: str, registry_url: str, keys: Sequence[bytes], values: Sequence[bytes]) -> dict[bytes, Any]:
    """The same in a loop: what the library of the format and the functions of the program alone cost."""
    deserialize, is_large, line_of, nothing, add, total = steps(name, registry_url)
    read, totals = deserialize.deserialize, {}
    for key, value in zip(keys, values, strict=True):
        order = read(value)
        if is_large(key, order):
            before = totals.get(key)
            totals[key] = add(key, line_of(order), nothing() if before is None else before)
    return {key: total.serialize(value) for key, value in totals.items()}
