"""Two subtopologies that have nothing to do with each other: one counts, one asks and keeps a store without a changelog."""

from __future__ import annotations

from typing import Any

from topology import Store, StreamsBuilder, serdes

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


async def ask(value: str) -> str:
    return value


builder = StreamsBuilder()
builder.stream("words", **TEXT).group_by_key().count(store="counts")
asked = builder.stream("counted", **TEXT).map_async(ask, name="asks")
asked.group_by_key(**TEXT).count(store=Store("unlogged", logging=False))
topology = builder.build()
