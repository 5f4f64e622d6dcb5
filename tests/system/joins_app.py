"""Joins for the storms: of streams in a window, and of tables by foreign key.

Reads the streams ``lefts`` and ``rights`` and writes ``pairs``; reads the tables ``books`` (``AUTHOR/TITLE``) and
``authors`` and writes ``shelf``.
"""

from __future__ import annotations

from datetime import timedelta

from topology import JoinWindows, StreamsBuilder, serdes

LEFTS, RIGHTS, PAIRS = "lefts", "rights", "pairs"
BOOKS, AUTHORS, SHELF = "books", "authors", "shelf"
WINDOW = timedelta(hours=6)


def author_of(book: str) -> str:
    return book.partition("/")[0]


def pair(left: str, right: str) -> str:
    return f"{left}+{right}"


def on_the_shelf(book: str, author: str) -> str:
    return f"{book.partition('/')[2]} by {author}"


builder = StreamsBuilder()
lefts = builder.stream(LEFTS, key=serdes.string, value=serdes.string)
rights = builder.stream(RIGHTS, key=serdes.string, value=serdes.string)
lefts.join(rights, pair, JoinWindows(WINDOW, grace=WINDOW)).to(PAIRS, key=serdes.string, value=serdes.string)
books = builder.table(BOOKS, key=serdes.string, value=serdes.string)
authors = builder.table(AUTHORS, key=serdes.string, value=serdes.string)
shelf = books.join(authors, on_the_shelf, foreign_key=author_of)
shelf.to_stream().to(SHELF, key=serdes.string, value=serdes.string)
topology = builder.build()
INTERNAL = tuple(topic.name for part in topology.subtopologies for topic in part.repartition_source_topics)
