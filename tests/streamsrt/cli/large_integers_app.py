"""A table of typed JSON whose integers may have any size."""

from __future__ import annotations

from pydantic import BaseModel

from topology import StreamsBuilder, serdes


class Account(BaseModel):
    wei: int


class Event(BaseModel):
    account: Account


builder = StreamsBuilder()
builder.table("events", key=serdes.string, value=serdes.json(Event), store="events")
topology = builder.build()
