"""Counts words, by a repartition topic whose name each version has for itself, in the same store.

``SLOW_READER_MS``: how long a version takes for each record that it reads of the repartition topic, so that there are always
records in flight. It takes a quarter of that for each that it writes, so that they come in small batches: a batch
is read to its end before anything else happens. ``SLOW_WHILE``: only while this file exists.
"""

from __future__ import annotations

import os
import threading

from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

SLOW_S = int(os.environ.get("SLOW_READER_MS", "0")) / 1000
WHILE = os.environ.get("SLOW_WHILE")

ANSWER = threading.Event()
"""Of a slow database, which never comes."""


def _slowly(value: bytes, took_s: float) -> bytes:
    if took_s and (WHILE is None or os.path.exists(WHILE)):
        ANSWER.wait(took_s)
    return value


def _version(name: str, epoch: int) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=serdes.bytes, value=serdes.bytes)
        .group_by(lambda key, _: _slowly(key[::-1], SLOW_S / 4), key=serdes.bytes, value=serdes.bytes, name=name)
        .aggregate(
            lambda: 0,
            lambda _key, value, count: count + len(_slowly(value, SLOW_S)),
            store="counts",
            key=serdes.bytes,
            value=serdes.long,
        )
        .to_stream()
        .to("out", key=serdes.bytes, value=serdes.long)
    )
    return builder.build(epoch=epoch)


def first() -> Topology:
    return _version("by-word", 0)


def second() -> Topology:
    return _version("by-term", 1)
