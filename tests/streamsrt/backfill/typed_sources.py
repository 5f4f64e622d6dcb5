"""A program whose sources have values of types: what a lake with typed columns must be encoded to."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from pydantic import BaseModel

from topology import StreamsBuilder, serdes


class Line(BaseModel):
    product: str
    price: Decimal
    tags: list[str] = []


class Order(BaseModel):
    id: int
    at: datetime
    lines: list[Line]
    note: str | None
    priority: int = 3
    extra: dict[str, int] = {}


ORDER = serdes.json(Order)

builder = StreamsBuilder()
builder.stream("orders", key=serdes.long, value=ORDER).to("out", key=serdes.long, value=ORDER)
builder.stream("any", key=serdes.string, value=serdes.json).to("out-any", key=serdes.string, value=serdes.json)
topology = builder.build()
