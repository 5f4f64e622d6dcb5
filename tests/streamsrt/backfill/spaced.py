"""A program that passes JSON on, with the topics and stores of :mod:`tests.streamsrt.backfill.chained`."""

from __future__ import annotations

from typing import Any

from topology import StreamsBuilder, serdes


def word_of(_key: str, value: dict[str, Any]) -> str:
    return str(value["word"])


builder = StreamsBuilder()
(
    builder.stream("lines", key=serdes.string, value=serdes.json)
    .select_key(word_of)
    .group_by_key(key=serdes.string, value=serdes.json)
    .reduce(lambda old, new: new, store="counts")
    .to_stream()
    .to("counts", key=serdes.string, value=serdes.json)
)
topology = builder.build()
