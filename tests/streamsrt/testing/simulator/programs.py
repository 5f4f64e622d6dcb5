"""Applications that are simulated, and what goes into them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from streamsrt.testing.simulator import Input, Inputs, Outputs, uninterrupted
from topology import StreamsBuilder, serdes
from topology.nodes import Topology

EXACTLY_ONCE: dict[str, Any] = {"processing.guarantee": "exactly_once_v2"}
AT_LEAST_ONCE: dict[str, Any] = {}

_WORDS = ["to", "be", "or", "not", "that", "is", "the", "question", "whether", "tis", "nobler", "in", "mind"]


def word_count() -> Topology:
    """Two subtopologies with a repartition topic between them, and a store with a changelog."""
    builder = StreamsBuilder()
    (
        builder.stream("lines", value=serdes.string)
        .flat_map_values(lambda line: re.findall("[a-z]+", line))
        .group_by(lambda _, word: word, key=serdes.string, value=serdes.string)
        .count(store="counts")
        .to_stream()
        .to("word-counts", key=serdes.string, value=serdes.long)
    )
    return builder.build()


LINES: Inputs = {
    "lines": [
        Input(b"%d" % (n % 7), f"{_WORDS[n % len(_WORDS)]} {_WORDS[n * 7 % len(_WORDS)]}", 1_000 + n * 10)
        for n in range(60)
    ]
}


@lru_cache
def counted(*, exactly_once: bool) -> Outputs:
    """What the word count gives when nothing goes wrong."""
    return uninterrupted(word_count(), inputs=LINES, config=EXACTLY_ONCE if exactly_once else AT_LEAST_ONCE)
