"""The application of bench_warmup: passes the last value of each key on, and keeps it. ``upgraded`` reads more topics."""

from __future__ import annotations

from topology import KStream, StreamsBuilder, serdes
from topology.graph.topology import Topology


def _last(rows: KStream[bytes, bytes]) -> None:
    (
        rows.group_by_key()
        .aggregate(bytes, lambda _key, value, _last: value, store="last", value=serdes.bytes)
        .to_stream()
        .to("out", key=serdes.bytes, value=serdes.bytes)
    )


def topology() -> Topology:
    builder = StreamsBuilder()
    _last(builder.stream("in", key=serdes.bytes, value=serdes.bytes))
    return builder.build()


def upgraded() -> Topology:
    builder = StreamsBuilder()
    rows = builder.stream("in", key=serdes.bytes, value=serdes.bytes)
    _last(rows.merge(builder.stream("more", key=serdes.bytes, value=serdes.bytes)))
    return builder.build(epoch=1)
