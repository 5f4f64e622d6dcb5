"""A table of counts, and beside it a table of how many keys have each count: of two subtopologies, one feeds the other."""

from __future__ import annotations

from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
counts = builder.stream("words", key=serdes.string, value=serdes.string).group_by_key().count(store="counts")
counts.group_by(lambda word, count: (word[:1], count), key=serdes.string, value=serdes.long).count(
    store="words-by-letter"
)
counts.to_stream().to("counted", key=serdes.string, value=serdes.long)
topology = builder.build()
