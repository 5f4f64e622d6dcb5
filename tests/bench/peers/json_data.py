"""The input of the benchmarks over JSON, orders of 300 bytes, and what must come out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache

from tests.bench.peers.data import PARTITIONS, T0, Columns, Expected, Message, frequent_keys

LEAST_CENTS = 50_000
"""Smaller orders are left out: half of them."""
ORDER_BYTES = 300
_MASK = (1 << 64) - 1
_CITIES = ("Basel", "Zurich", "Geneva", "Bern", "Lugano", "Chur", "Olten")


def _order(index: int, customer: str) -> bytes:
    order = {
        "id": index,
        "customer": customer,
        "cents": index * 7919 % 100_000,
        "currency": "EUR" if index % 3 else "CHF",
        "address": {"city": _CITIES[index % 7], "zip": 1000 + index % 8999},
        "items": [{"sku": f"sku-{index % 977}", "count": index % 5 + 1}, {"sku": f"sku-{index % 331}", "count": 1}],
        "note": "",
    }
    size = len(json.dumps(order, separators=(",", ":")))
    return json.dumps({**order, "note": "x" * (ORDER_BYTES - size)}, separators=(",", ":")).encode()


@cache
def orders(records: int) -> tuple[Columns, ...]:
    """By partition: customers, orders, timestamps a millisecond apart."""
    columns: tuple[Columns, ...] = tuple(([], [], []) for _ in range(PARTITIONS))
    for index, (key, partition) in enumerate(frequent_keys(records)):
        keys, values, timestamps = columns[partition]
        timestamps.append(T0 + len(keys))
        keys.append(key)
        values.append(_order(index, key.decode()))
    return columns


@cache
def expected(workload: str, records: int) -> Expected:
    """W8: how many outputs, and a hash that does not depend on their order. W9: the last sum by customer."""
    every = [
        (key, json.loads(value)) for keys, values, _ in orders(records) for key, value in zip(keys, values, strict=True)
    ]
    large = [(key, order) for key, order in every if order["cents"] >= LEAST_CENTS]
    if workload == "W8":
        mapped = ((key, order["id"], order["cents"] * 2, order["address"]["city"]) for key, order in large)
        return {"outputs": len(large), "hash": sum(map(hash, mapped)) & _MASK}
    sums: Expected = {}
    for key, order in large:
        sums[key] = sums.get(key, 0) + order["cents"]
    return sums


def summarised(workload: str, messages: Iterable[list[Message]]) -> tuple[int, Expected]:
    """How many outputs a run wrote, and what :func:`expected` says of them. ``messages``: in the order of each partition."""
    rows = [(key, json.loads(value)) for some in messages for key, value in some]
    if workload == "W8":
        hashed = sum(hash((key, row["id"], row["double"], row["city"])) for key, row in rows) & _MASK
        return len(rows), {"outputs": len(rows), "hash": hashed}
    return len(rows), {key: row["cents"] for key, row in rows}
