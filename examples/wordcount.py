"""Counts the words of Python's own documentation, which ships with Python.

    streamsrt run examples.wordcount:topology --application-id wordcount

Reads ``lines`` (a line of text a record), writes ``word-counts`` (word -> how often so far).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from topology import StreamsBuilder, serdes

LINES, WORD_COUNTS = "lines", "word-counts"

_WORD = re.compile(r"[a-z]+")


def words_of(line: str) -> list[str]:
    """The words of a line, in lower case."""
    return _WORD.findall(line.lower())


builder = StreamsBuilder()
(
    builder.stream(LINES, value=serdes.string)
    .flat_map_values(words_of)
    .group_by(lambda _, word: word, key=serdes.string, value=serdes.string)
    .count(store="counts")
    .to_stream()
    .to(WORD_COUNTS, key=serdes.string, value=serdes.long)
)
topology = builder.build()


def lines() -> Iterator[str]:
    """The text: every line that is not empty of :mod:`pydoc_data.topics`."""
    from pydoc_data.topics import topics

    for title in sorted(topics):
        for line in topics[title].splitlines():
            if line.strip():
                yield line
