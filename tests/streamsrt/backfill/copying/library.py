"""A program with a foreign-key join of two tables, and a global table, in various numbers of partitions."""

from __future__ import annotations

from typing import Any

from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
BOOKS, AUTHORS, SHELVES = "taken-books", "taken-authors", "taken-shelves"


def _library(books: int, authors: int, name: str = "shelf") -> Topology:
    """``books``, ``authors``: the partitions of the left and of the right table."""
    builder = StreamsBuilder()
    shelves = builder.global_table(SHELVES, **TEXT)
    placed = builder.stream(BOOKS, **TEXT).left_join(shelves, "{} on {}".format, on=lambda book, _: book[:1])
    left = placed.repartition(name="by-book", partitions=books, **TEXT).to_table(store="books")
    by_author = builder.stream(AUTHORS, **TEXT).repartition(name="by-author", partitions=authors, **TEXT)
    right = by_author.to_table(store="authors")
    left.left_join(right, "{} by {}".format, foreign_key=author_of, store="shelf", name=name, **TEXT)
    return builder.build()


def author_of(book: str) -> str:
    return book.partition("/")[0]


few, many = _library(3, 2), _library(2, 5)
renamed = _library(2, 5, name="renamed")
