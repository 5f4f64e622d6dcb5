"""The application of bench_warmup: keeps the last value of each key, and passes it on."""

from __future__ import annotations

from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
(
    builder.stream("in", key=serdes.bytes, value=serdes.bytes)
    .group_by_key()
    .aggregate(bytes, lambda _key, value, _last: value, store="last", value=serdes.bytes)
    .to_stream()
    .to("out", key=serdes.bytes, value=serdes.bytes)
)
topology = builder.build()
