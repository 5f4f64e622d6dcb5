"""Counts by key, in two versions: the second reads another topic into the same store, and a store of its own beside it.
A third one only calls the store something else.

``UPGRADE_FAILS_AT`` makes an instance of the second version fail: at its start (0), or at the record of that number.
"""

from __future__ import annotations

import os
from itertools import count

from topology import KStream, Store, StreamsBuilder, serdes
from topology.graph.topology import Topology

FAILS_AT = int(os.environ.get("UPGRADE_FAILS_AT", "-1"))
_records = count(1)


def _checked(value: bytes) -> bytes:
    if next(_records) == FAILS_AT:
        raise ValueError("this version fails")
    return value


def _count(stream: KStream[bytes, bytes], store: str | Store = "counts") -> None:
    (stream.group_by_key().count(store=store).to_stream().to("out", key=serdes.bytes, value=serdes.long))


def first() -> Topology:
    builder = StreamsBuilder()
    _count(builder.stream("in", key=serdes.bytes, value=serdes.bytes))
    return builder.build()


def second() -> Topology:
    if FAILS_AT == 0:
        raise ValueError("this version fails")
    builder = StreamsBuilder()
    rows = builder.stream("in", key=serdes.bytes, value=serdes.bytes)
    more = builder.stream("more", key=serdes.bytes, value=serdes.bytes)
    both = rows.merge(more).map_values(_checked)
    _count(both)
    both.group_by_key().aggregate(bytes, lambda _key, value, _last: value, store="last", value=serdes.bytes)
    return builder.build(epoch=1)


def renamed() -> Topology:
    builder = StreamsBuilder()
    _count(builder.stream("in", key=serdes.bytes, value=serdes.bytes), Store("per-key", renamed_from="counts"))
    return builder.build(epoch=1)


def mismatched() -> Topology:
    """It joins topics with different numbers of partitions."""
    builder = StreamsBuilder()
    rows = builder.stream("in", key=serdes.bytes, value=serdes.bytes)
    table = builder.table("more", key=serdes.bytes, value=serdes.bytes, store="more")
    _count(rows.left_join(table, lambda row, _more: row))
    return builder.build(epoch=1)


def sourceless() -> Topology:
    """It reads a topic that does not exist."""
    builder = StreamsBuilder()
    rows = builder.stream("in", key=serdes.bytes, value=serdes.bytes)
    _count(rows.merge(builder.stream("nowhere", key=serdes.bytes, value=serdes.bytes)))
    return builder.build(epoch=1)
